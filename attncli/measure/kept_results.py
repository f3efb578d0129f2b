"""Results of long work, kept in a file until all are known, so that the same work goes on after an
interruption.
"""

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
    """Results of unfinished work kept in a file, so that it can go on later. path: the file; None
    to keep nothing.
    kind: the results' type, which JSON can write."""

    def __init__(self, path: Path | None, kind: Any) -> None:
        self._path = path
        self._kind = kind

    def read(self) -> Results | None:
        """The kept results; None where there is no file or it cannot be used."""
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
        """Write the results to the file; nothing happens where it cannot be written."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_writer(self._path, alone=True) as stream:
                stream.write(json.encode(results))
        except (OSError, AttnError):
            return

    def drop(self) -> None:
        """Remove the file, once the work is finished."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def fingerprint(model: Model, tokens: Sequence[Token], *request: object) -> str:
    """A digest that differs whenever results may: of the weights' files, the model's specification
    and backend, the tokens, and the request."""
    folder = Path(model.tokenizer.name).parent
    stamps = sorted(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.glob("*.safetensors")
    )
    description = (
        model.identity,
        stamps,
        [token.id for token in tokens],
        request,
        model.backend.name,
        model.backend.dtype,
        repr(model.spec),
    )
    return sha256(repr(description).encode()).hexdigest()[:32]
