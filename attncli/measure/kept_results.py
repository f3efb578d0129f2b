"""Results of long work, kept in a file: until all are known, so that the same work goes on after an
interruption, or until they are asked for again.

A file is found by a digest of everything that its results depend on, and begins with a digest of
its own: one that is damaged is as good as none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from msgspec import DecodeError, Struct, ValidationError, json

from attncli.errors import AttnError
from attncli.inputs.files import (
    LARGEST_FILE,
    atomic_writer,
    folder_entries,
    is_file,
    is_folder,
    open_regular,
    read_regular,
)
from attncli.inputs.token import Token
from attncli.language import message
from attncli.models.load import open_checkpoint
from attncli.models.model import Model
from attncli.version import __version__

LIMIT = 2**26
"""Bytes of a file of results."""
Results = TypeVar("Results")
Floats = np.ndarray[Any, np.dtype[Any]]


class KeptResults(Generic[Results]):
    """Results of unfinished work kept in a file, so that it can go on later.

    path: the file; None to keep nothing.
    kind: the results' type, which JSON can write.
    """

    def __init__(self, path: Path | None, kind: Any) -> None:
        """Nothing is read or written yet.

        path: the file in which results are kept; None to keep nothing.
        kind: the type of the results, such as a Struct or `dict[str, Run]`, which a kept file is
            checked against; a type expression, for which there is no narrower annotation than Any.
        """
        self._path = path
        self._kind = kind

    def read(self) -> Results | None:
        """The kept results; None where there is no file or it cannot be used."""
        if self._path is None:
            return None
        try:
            raw = read_regular(self._path, what=message("results"), limit=LIMIT)
            # a file that was cut off, or changed by hand, does not have the sum that it begins with
            checksum, _, content = raw.partition(b"\n")
            if checksum != sha256(content).hexdigest().encode():
                return None
            results: Results = json.decode(content, type=self._kind)
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
                content = json.encode(results)
                stream.write(sha256(content).hexdigest().encode() + b"\n" + content)
        except (OSError, AttnError):  # the work goes on, and only cannot be resumed
            return

    def drop(self) -> None:
        """Remove the file, once the work is finished."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


class KeptArray(Struct, frozen=True):
    """An array as a file of results holds it.

    dtype: float32 or float64.
    data: its bytes.
    """

    dtype: Literal["float32", "float64"]
    shape: tuple[int, ...]
    data: bytes

    def array(self) -> Floats | None:
        """The array; None where bytes and shape do not fit."""
        if len(self.data) != prod(self.shape) * np.dtype(self.dtype).itemsize:
            return None
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class KeptArrays:
    """Arrays of unfinished work, each kept in a file of its own as soon as it is known.

    folder: of the files; None to keep nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: list[KeptResults[KeptArray]] = []

    def load_or_compute(self, name: str, compute: Callable[[], Floats]) -> Floats:
        """The array of this name, read from its file where it was kept; else computed by `compute`
        and kept.
        """
        path = None  # without a folder nothing is kept, and the array is always computed
        if self._folder is not None:
            path = self._folder / f"{name}.json"
        file = KeptResults[KeptArray](path, KeptArray)
        self._files.append(file)  # `drop` removes it
        stored = file.read()
        array = None
        if stored is not None:
            array = stored.array()  # None for a damaged file
        if array is None:
            array = np.ascontiguousarray(compute())
            # `compute` gives floats of one of these two types
            dtype: Literal["float32", "float64"] = "float32"
            if array.dtype == np.float64:
                dtype = "float64"
            file.keep(KeptArray(dtype, array.shape, array.tobytes()))
        return array

    def drop(self) -> None:
        """Remove the files and their folder, once the work is finished."""
        for file in self._files:
            file.drop()
        if self._folder is not None:
            with suppress(OSError):
                self._folder.rmdir()


def fingerprint(model: Model, tokens: Sequence[Token], *request: object) -> str:
    """A digest that differs whenever results may: of the weights' files, the model's specification
    and backend, the tokens, and the request."""
    # the folders of the tokenizer, the model and its adapters, which stand as "DIR:0.5"
    places = [Path(model.tokenizer.name).parent]
    if model.identity.name is not None:
        places.append(Path(model.identity.name))
    places += [Path(adapter.partition(":")[0]) for adapter in model.identity.adapters]
    description = (
        __version__,
        model.identity,
        [_file_stamps(place) for place in places],
        [token.id for token in tokens],
        request,
        model.backend.name,
        model.backend.dtype,
        repr(model.spec),
    )
    return sha256(repr(description).encode()).hexdigest()[:32]


def _file_stamps(place: Path) -> list[tuple[str, int, int, int, int]]:
    """For a file, or each file in a folder: its name, size, times of writing and of change, and
    inode, which differ once it has changed; an empty list for a place that is neither. The time of
    change (ctime) cannot be set back by whoever writes the file."""
    stamps = []
    with suppress(AttnError, OSError):
        for path in folder_entries(place) if is_folder(place) else [place]:
            if is_folder(path):  # what lies deeper is no part of a checkpoint
                continue
            status = path.stat()
            times = (status.st_mtime_ns, status.st_ctime_ns)
            stamps.append((path.name, status.st_size, *times, status.st_ino))
    return stamps


PIECE = 2**22
"""Bytes of a file that are read at once."""
WEIGHT_ENDINGS = (".safetensors", ".gguf", ".h5", ".msgpack", ".onnx", ".pt", ".pth")
"""How files of weights end of which the tensors that are read have a digest of their own."""


def description_digest(place: Path) -> str:
    """sha256 of all that a checkpoint holds but its tensors' data: of the headers of its tensor
    files, and of every other file of its folder, such as the config, the tokenizer and pickled
    weights.

    place: a folder, or a GGUF file. Raises InputError for a file that cannot be read.
    """
    # the headers of tensor files: all before the first tensor
    starts: dict[Path, int] = {}
    for tensor in open_checkpoint(place).names().values():
        file = tensor.file.resolve()
        starts[file] = min(starts.get(file, tensor.start), tensor.start)
    hasher = sha256()
    for file, start in sorted(starts.items()):
        if file.suffix.lower() in WEIGHT_ENDINGS:
            _add_file(hasher, file, start)

    # the other files, whole
    for path in folder_entries(place) if is_folder(place) else ():
        if is_file(path) and path.suffix.lower() not in WEIGHT_ENDINGS:
            hasher.update(f"{path.name}\0{path.stat().st_size}\0".encode("utf-8", "surrogatepass"))
            _add_file(hasher, path, LARGEST_FILE)
    return hasher.hexdigest()


def _add_file(hasher: Any, path: Path, count: int) -> None:
    """Add the first `count` bytes of a file to a digest; all of them where it has fewer."""
    what = message("a file of a model")
    stream, _ = open_regular(path, what=what, limit=LARGEST_FILE, may_be_empty=True)
    with stream:
        while count > 0 and (piece := stream.read(min(count, PIECE))):
            hasher.update(piece)
            count -= len(piece)
