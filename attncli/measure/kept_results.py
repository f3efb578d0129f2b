"""Results of long work, kept in a file until all are known, so that the same work goes on after an interruption."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import DecodeError, ValidationError, json

from attncli.errors import AttnError
from attncli.inputs.files import atomic_writer, read_regular
from attncli.inputs.token import Token
from attncli.language import message
from attncli.models.model import Model

LIMIT = 2**20
"""Bytes of a file of results."""
Results = TypeVar("Results")


class KeptResults(Generic[Results]):
    """Results in a file. path: None to keep nothing. kind: their type, which JSON can write."""

    def __init__(self, path: Path | None, kind: Any) -> None:
        self._path, self._kind = path, kind

    def read(self) -> Results | None:
        """The results in the file; None where there is none, or one that is no use."""
        if self._path is None:
            return None
        try:
            results: Results = json.decode(
                read_regular(self._path, what=message("results"), limit=LIMIT), type=self._kind
            )
        except (AttnError, DecodeError, ValidationError):
            return None
        return results

    def keep(self, results: Results) -> None:
        """Write what is known; a folder that cannot be written keeps nothing."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_writer(self._path, alone=True) as stream:
                stream.write(json.encode(results))
        except (OSError, AttnError):
            return

    def drop(self) -> None:
        """Remove the file: all is known."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def fingerprint(model: Model, tokens: Sequence[Token], *request: object) -> str:
    """What changes when results may: the weights' files, how is computed, the tokens, and what is asked for."""
    folder = Path(model.tokenizer.name).parent
    stamps = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.glob("*.safetensors"))
    description = (
        model.identity, stamps, [token.id for token in tokens], request, model.backend.name, model.backend.dtype,
        repr(model.spec),
    )  # fmt: skip
    return sha256(repr(description).encode()).hexdigest()[:32]
