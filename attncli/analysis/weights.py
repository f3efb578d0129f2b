"""The document of `attn weights`: the tensors of a file, and what attention they are read as."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec.structs import asdict, replace

from attncli import __version__
from attncli.analysis.documents.weights import AttentionSizes, EmbeddingRows, TensorRow, WeightsDocument
from attncli.errors import AttnError, LimitError, UnsupportedError
from attncli.inputs.dtypes import named
from attncli.inputs.tensors import TensorInfo, read_metadata, read_tensors, tensor_index
from attncli.models.layouts.layout import NOTHING_ASKED, Asked
from attncli.models.layouts.recognise import recognise
from attncli.models.one_layer import digest

SAVED = "stages of a run, as attn run --save wrote them (attn view FILE shows the run)"
SAVED_ROLES = {
    "q": "Q", "k": "K", "v": "V", "raw": "S", "scaled": "S scaled", "capped": "S capped", "biased": "S biased",
    "masked": "S masked", "weights": "A", "mixed": "O", "out": "O of all",
}  # fmt: skip
"""What a learner calls the stages that are saved, by the last part of their tensors' names."""


def weights_document(path: Path, asked: Asked = NOTHING_ASKED) -> WeightsDocument:
    """The tensors of a file with their statistics, and the attention they make up.

    A file that is no attention is listed all the same, and `warnings` says why; so is one whose numbers
    cannot be read (too large, data types without numbers), then without statistics. Raises InputError for a
    file that is damaged.
    """
    listed = tensor_index(path)
    metadata = read_metadata(path)
    layout: str | None = None
    identity: str | None = None
    sizes: AttentionSizes | None = None
    embedding: EmbeddingRows | None = None
    warnings: list[str] = []
    roles: dict[str, str] = {}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    try:
        arrays = read_tensors(path, allow_nonfinite=True)
    except (UnsupportedError, LimitError) as error:
        warnings.append(f"the numbers were not read: {error.what}")
    if is_saved_run(metadata):
        layout = SAVED
        roles = {name: SAVED_ROLES[stage] for name in arrays if (stage := name.rpartition(".")[2]) in SAVED_ROLES}
        roles |= {name: "X" for name in arrays if name.startswith("hidden.")}
    elif arrays:
        try:
            found = recognise(arrays, metadata, str(path), asked)
        except AttnError as error:
            warnings.append(
                f"not read as an attention: {error.what}" + (f"; expected {error.expected}" if error.expected else "")
            )
        else:
            roles = found.roles
            layout, identity = found.layout, digest(found.weights)
            sizes = AttentionSizes(**asdict(found.facts))
            if found.vocabulary is not None:
                by: Literal["id", "text"] = "id" if found.vocabulary.places is None else "text"
                embedding = EmbeddingRows(rows=len(found.vocabulary.rows), by=by)
            warnings += [*([found.scale.says] if found.scale else []), *found.notes]
    rows = []
    for info in listed:
        row, odd = _row(info, arrays.get(info.name), roles.get(info.name))
        rows.append(row)
        if odd:
            warnings.append(
                f"{info.name} holds {odd:,} of {arrays[info.name].size:,} values that are not finite; such a file "
                f"does not run"
            )
    return WeightsDocument(
        version=__version__,
        file=str(path),
        layout=layout,
        digest=identity,
        sizes=sizes,
        embedding=embedding,
        metadata=metadata,
        tensors=rows,
        warnings=warnings,
    )


def is_saved_run(metadata: Mapping[str, str]) -> bool:
    """Whether a tensor file is what `attn run --save` wrote: stages of a run, not weights."""
    return metadata.get("schema", "").strip('"') == "attn.run/1"


def _row(info: TensorInfo, array: np.ndarray[Any, Any] | None, role: str | None) -> tuple[TensorRow, int]:
    """A tensor's entry, and how many of its values are not finite; statistics are over the others, in float64."""
    row = TensorRow(
        name=info.name,
        dtype=info.dtype,
        shape=list(info.shape),
        bytes=_bytes(info),
        role=role or None,
        min=None,
        mean=None,
        max=None,
        std=None,
    )
    if array is None:
        return row, 0
    # bfloat16 knows no mean of its own
    values = array.astype(np.float32) if array.dtype.name in ("bfloat16", "float16") else array
    finite = np.isfinite(values)
    odd = values.size - int(np.count_nonzero(finite))
    kept = values[finite] if odd else values
    if kept.size:
        mean, spread = float(kept.mean(dtype=np.float64)), float(kept.std(dtype=np.float64))
        row = replace(row, min=float(kept.min()), mean=mean, max=float(kept.max()), std=spread)
    return row, odd


def _bytes(info: TensorInfo) -> int | None:
    try:
        return math.prod(info.shape) * named(info.dtype).itemsize
    except KeyError:  # a data type that NumPy has no numbers for
        return None
