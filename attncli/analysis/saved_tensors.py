"""The tensors that `--save` writes: every stage of every layer that ran."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import UNSET

from attncli.analysis.documents.declaration import Part, members
from attncli.analysis.documents.run import RunDocument
from attncli.arrays.backend import Backend
from attncli.mechanism.trace import SAVED, LayerTrace


class SavedStages:
    """Collects layers' traces as `layers.{i}.{stage}` and `hidden.{i}`, arrays on the CPU.

    Stages of cross-attention are named `layers.{i}.cross.{stage}`. Stages that a run did not
    keep are left out.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.tensors: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, trace: LayerTrace) -> None:
        """Take one layer; layers may come in any order."""
        self.tensors[f"hidden.{trace.layer}"] = self.backend.numpy(trace.before)
        self.tensors[f"hidden.{trace.layer + 1}"] = self.backend.numpy(trace.after)
        self._stages(f"layers.{trace.layer}", trace)
        if trace.cross is not None:
            self._stages(f"layers.{trace.layer}.cross", trace.cross)

    def _stages(self, prefix: str, trace: LayerTrace) -> None:
        for name in SAVED:
            if name in trace.stages:
                self.tensors[f"{prefix}.{name}"] = np.ascontiguousarray(self.backend.numpy(trace.stages[name]))


def metadata(document: RunDocument) -> dict[str, str]:
    """The head of a document as metadata of a tensor file: each member as JSON text.

    The file holds every token and every row, also where the document merges words or is about one query.
    """
    import orjson

    def plain(part: object) -> object:
        if not isinstance(part, Part):
            raise TypeError(f"metadata holds no {type(part).__name__}")
        return dict(members(part))

    values = dict(members(document)) | {"tokens": document.tokens if document.pieces is UNSET else document.pieces}
    names = ("schema", "version", "text", "tokens", "model", "attention", "empty_rows")
    return {name: orjson.dumps(values[name], default=plain).decode() for name in names}
