"""The GGUF format: a file's metadata and where its tensors lie, all checked before anything is
believed.

Every count and length is held against the bytes that are there before room is made for it, so that
a file that lies costs no more memory than it has bytes of header.

Source: the format's description, ggml's docs/gguf.md (2023-2025), versions 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from msgspec import Struct

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.files import GGUF_MAGIC, LARGEST_FILE, foreign_file, open_regular
from attncli.inputs.ggml_blocks import BLOCKS, BlockKind
from attncli.inputs.string_table import Array, StringTable, text_starts
from attncli.language import message

EXPECTED = message("a .gguf file")
VERSIONS = (2, 3)
HEADER_LIMIT = 512 * 2**20
"""Bytes of metadata that are believed: the largest vocabularies take some 20 MB."""
MOST_AXES = 4
"""Axes of a tensor, by the format."""
MOST_LAYERS = 10_000
"""Layers that are believed: a damaged file may state any number."""
BY_LAYER = (
    *("attention.head_count", "attention.head_count_kv", "attention.recurrent_layers"),
    *("attention.sliding_window_pattern", "feed_forward_length", "expert_feed_forward_length"),
)
"""Keys of the model itself that may have a value for each layer."""
NAME_LIMIT = 65_535
"""Bytes of a metadata key; names of tensors have at most 64."""
ALIGNMENT = "general.alignment"
STEP = 2**20
"""Bytes of header read at a time."""

STRING, ARRAY = 8, 9
NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""Types of values that have a fixed size, by their number; 7 is a truth value."""
BOOL = 7


class GgufTensor(Struct, frozen=True):
    """Where a tensor lies in a GGUF file.

    shape: in NumPy's order, the first axis varies slowest.
    start, stop: bytes from the beginning of the file.
    """

    name: str
    block: BlockKind
    shape: tuple[int, ...]
    start: int
    stop: int


class GgufHeader(Struct, frozen=True):
    """The header of a GGUF file: metadata by key (arrays of numbers as NumPy arrays, of texts as
    `StringTable`) and tensors in file order."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_gguf(path: Path) -> GgufHeader:
    """The header of a GGUF file. Raises InputError, with the place and both values, for anything
    the format does not allow, UnsupportedError for a version or a type of tensors that is not
    implemented."""
    stream, size = open_regular(path, what="a .gguf file", limit=LARGEST_FILE)
    with stream:
        return _Header(stream, size, str(path)).read()


class _Header:
    """A reader of a GGUF header, value after value from the beginning of the file.

    stream: the file, which is read in parts.
    size: the file's, in bytes.
    where: its path, for errors.
    buffer: the bytes of the file that are loaded, from the first one on.
    at: the byte where the next value begins.
    """

    def __init__(self, stream: BinaryIO, size: int, where: str) -> None:
        self.stream = stream
        self.size = size
        self.where = where
        self.buffer = b""
        self.at = 0

    def read(self) -> GgufHeader:
        """Read the whole header. Raises InputError, with the place and both values, for anything
        the format does not allow; UnsupportedError for a version or a type of tensors that is not
        read.
        """
        if self.take(4) != GGUF_MAGIC:
            first_bytes = bytes(self.buffer[:64])
            if wrong_kind_error := foreign_file(first_bytes, self.where, EXPECTED):
                raise wrong_kind_error
            raise InputError(
                "this file begins with {start}",
                where=self.where,
                expected=EXPECTED,
                start=repr(self.buffer[:4]),
            )
        version = self.number("<I")
        if version not in VERSIONS:
            what = message("this is version {version} of GGUF", version=version)
            # a small number with its four bytes the other way round
            if version >= 2**24 and version % 2**24 == 0:
                what = message("this GGUF file is big-endian, for machines such as IBM's")
            raise UnsupportedError(what, where=self.where, expected="2 or 3, little-endian")
        # the fewest bytes of each: a tensor has a length, a name, axes, a type and an offset; an
        # entry of metadata a length, a name, a type and a value
        tensor_count = self.count(message("tensors"), 24)
        entry_count = self.count(message("entries of metadata"), 13)
        metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self.text(NAME_LIMIT)
            if key in metadata:
                self.fail(
                    message("the metadata have two entries {key}", key=repr(key)),
                    message("each key once"),
                )
            metadata[key] = self.value(key, self.number("<I"))
        infos = [self.tensor_info() for _ in range(tensor_count)]
        alignment = metadata.get(ALIGNMENT, 32)  # 32 is what the format says where a file does not
        if not isinstance(alignment, int) or not 8 <= alignment <= 2**20 or alignment % 8:
            self.fail(
                message("{key} is {value}", key=ALIGNMENT, value=repr(alignment)),
                message("a multiple of 8, up to 2²⁰"),
            )
        # the data begin at the next multiple of the alignment
        origin = self.at + -self.at % alignment
        return GgufHeader(metadata, self.layout(infos, origin, alignment))

    def layout(
        self, infos: list[tuple[str, tuple[int, ...], BlockKind, int]], origin: int, alignment: int
    ) -> dict[str, GgufTensor]:
        """The tensors by name in file order, from what `tensor_info` gives of each. Raises
        InputError where one overlaps another, leaves a gap or ends beyond the file.

        infos: of each tensor the name, shape, kind of block, and first byte after `origin`.
        origin: the byte of the file where the data begin.
        alignment: bytes; every tensor begins at a multiple of it after `origin`.
        """
        tensors: dict[str, GgufTensor] = {}
        place = origin
        # in the order of their offsets
        for name, shape, block, offset in sorted(infos, key=lambda info: info[3]):
            start = origin + offset
            size = prod(shape) // block.weights * block.bytes
            if name in tensors:
                self.fail(
                    message("tensor {name} is there twice", name=repr(name)),
                    message("each tensor once"),
                )
            if offset % alignment or start != place:
                self.fail(
                    message(
                        "tensor {name} begins at byte {start:,}, the one before leaves off at"
                        " {place:,}",
                        name=repr(name),
                        start=start,
                        place=place,
                    ),
                    message(
                        "tensors side by side, each at a multiple of {alignment}",
                        alignment=alignment,
                    ),
                )
            if start + size > self.size:
                self.fail(
                    message(
                        "tensor {name} of shape {shape} ends at byte {stop:,}, the file at"
                        " {size:,}",
                        name=repr(name),
                        shape=list(shape),
                        stop=start + size,
                        size=self.size,
                    ),
                    message("a whole file"),
                )
            tensors[name] = GgufTensor(name, block, shape, start, start + size)
            place = start + size + -size % alignment
        return tensors

    def tensor_info(self) -> tuple[str, tuple[int, ...], BlockKind, int]:
        """Read one tensor's entry: its name, shape, kind of block, and how many bytes after the
        beginning of the data it starts. Raises InputError for one that does not fit in the file,
        UnsupportedError for a type that is not read."""
        name = self.text(NAME_LIMIT)
        axes = self.number("<I")
        if not 1 <= axes <= MOST_AXES:
            self.fail(
                message("tensor {name} has {axes} axes", name=repr(name), axes=axes),
                message("1 to {most}", most=MOST_AXES),
            )
        # the file lists the axis that varies fastest first
        shape = tuple(self.number("<Q") for _ in range(axes))[::-1]
        kind = self.number("<I")
        offset = self.number("<Q")
        block = BLOCKS.get(kind)
        if block is None:
            what = message("tensor {name} is of the type {kind}", name=repr(name), kind=kind)
            raise UnsupportedError(
                what, where=self.where, expected=", ".join(known.name for known in BLOCKS.values())
            )
        count = prod(shape)
        if (
            not 0 < count < 2**62
            or count // block.weights * block.bytes > self.size
            or offset > self.size
        ):
            self.fail(
                message(
                    "tensor {name} of shape {shape} at {offset:,} does not fit in {size:,} bytes",
                    name=repr(name),
                    shape=list(shape),
                    offset=offset,
                    size=self.size,
                ),
                message("tensors that lie in the file"),
            )
        if shape[-1] % block.weights:
            self.fail(
                message("tensor {name} has rows of {length}", name=repr(name), length=shape[-1]),
                message(
                    "a multiple of {weights}, the block of {kind}",
                    weights=block.weights,
                    kind=block.name,
                ),
            )
        return name, shape, block, offset

    def value(self, key: str, kind: int) -> Any:
        """Read a metadata value of this GGUF type (`kind`): a number, a text, or an array of
        either. Raises InputError for arrays within arrays."""
        if kind == STRING:
            return self.text(self.size)
        if kind != ARRAY:
            return self.numbers(key, kind, count=1)[0].item()
        inner = self.number("<I")
        if inner == ARRAY:
            self.fail(
                message("{key} is an array of arrays", key=repr(key)),
                message("arrays of numbers or texts"),
            )
        if inner == STRING:  # each has at least the 8 bytes of its length
            return self.texts(self.count(message("items of {key}", key=repr(key)), 8))
        return self.numbers(key, inner, count=None)  # how many there are stands before them

    def numbers(self, key: str, kind: int, count: int | None) -> np.ndarray[Any, Any]:
        """Read `count` numbers of this GGUF type (`kind`), [number]; where `count` is None, read
        first how many there are.

        key: the metadata key that they belong to, for errors.
        """
        if kind not in NUMBERS:
            self.fail(
                message("{key} is of the type {kind}", key=repr(key), kind=kind),
                message("a type from 0 to 12"),
            )
        dtype = np.dtype(NUMBERS[kind])
        if count is None:
            count = self.count(message("items of {key}", key=repr(key)), dtype.itemsize)
        values = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if kind == BOOL:
            return values.astype(np.bool_)
        return values

    def count(self, what: str, least: int) -> int:
        """Read how many items follow, each of which takes at least `least` bytes; raises InputError
        where so many cannot fit.

        what: their name, for the error.
        """
        count = self.number("<Q")
        if count * least > min(self.size, HEADER_LIMIT) - self.at:
            self.fail(
                message(
                    "the header claims {count:,} {what} at byte {at:,}, and {rest:,} bytes follow",
                    count=count,
                    what=what,
                    at=self.at - 8,
                    rest=self.size - self.at,
                ),
                message(
                    "as many as fit, in a header of at most {limit:,} bytes", limit=HEADER_LIMIT
                ),
            )
        return count

    def texts(self, count: int) -> StringTable:
        """Read `count` texts that lie one after the other, each behind its length in 8 bytes.
        Raises InputError for a text that ends beyond the file."""
        first = self.at
        begins: list[Array] = []  # where texts begin, for each part of the file that is loaded
        left = count
        while left:
            # as many as lie within what is loaded
            starts, stop = text_starts(self.buffer, self.at, left)
            if stop > self.size:
                # reading the last one by itself raises the error
                self.at = int(starts[-1]) - 8
                self.text(self.size)
            left -= len(starts)
            begins.append(starts)
            self.at = stop
            # the texts so far, and of the next one its length, as far as the file goes
            loaded_to = stop
            if left:
                loaded_to = max(stop, min(stop + 8, self.size))
            self.load(loaded_to)
        # a text ends where the length of the next one begins; behind the last one as if another came
        begin = np.concatenate([*begins, np.array([self.at + 8])]) - first
        return StringTable(self.buffer[first : self.at], begin[:-1], begin[1:] - 8)

    def text(self, most: int) -> str:
        """Read a text: its length, at most `most` bytes, and its bytes as UTF-8."""
        length = self.number("<Q")
        if length > most or length > self.size - self.at:
            self.fail(
                message(
                    "a text at byte {at:,} claims {length:,} bytes, and {rest:,} follow",
                    at=self.at - 8,
                    length=length,
                    rest=self.size - self.at,
                ),
                message("a text that lies in the file"),
            )
        return self.take(length).decode("utf-8", "replace")

    def number(self, code: str) -> int:
        """Read one number.

        code: its type in the notation of Python's `struct`.
        """
        number: int = struct.unpack(code, self.take(struct.calcsize(code)))[0]
        return number

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        stop = self.at + count
        self.load(stop)
        raw = self.buffer[self.at : stop]
        self.at = stop
        return raw

    def load(self, stop: int) -> None:
        """Read on until the first `stop` bytes of the file are in `buffer`."""
        if stop > min(self.size, HEADER_LIMIT):
            self.fail(
                message(
                    "the header goes on at byte {stop:,}, the file has {size:,}",
                    stop=stop,
                    size=self.size,
                ),
                message("a whole file, its header at most {limit:,} bytes", limit=HEADER_LIMIT),
            )
        while len(self.buffer) < stop:
            # half as much again each time: appending copies all that is there
            piece = self.stream.read(max(STEP, stop - len(self.buffer), len(self.buffer) // 2))
            if not piece:
                self.fail(
                    message("the file became shorter while it was read"),
                    message("a file nobody writes to"),
                )
            self.buffer += piece

    def fail(self, what: str, expected: str) -> NoReturn:
        """Raise InputError about the file.

        what: what is wrong with it.
        expected: what would be right.
        """
        raise InputError(what, where=self.where, expected=expected)


class Metadata:
    """The metadata of a GGUF file, with a getter for each type of value.

    values: by key; arrays of numbers as NumPy arrays, of texts as `StringTable`.
    where: the file, for errors.
    read_keys: the keys that were asked for so far.
    tensors: the names of those in the file, where they are known.
    architecture: what stands before the keys of the model itself.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self.read_keys: set[str] = set()
        self.tensors: Collection[str] = ()
        self.architecture = self.text("general.architecture")

    def architecture_value(self, key: str) -> Any:
        """The value of a key that begins with the architecture, such as `llama.KEY`; None where
        there is none. Raises InputError for a list where one value is expected."""
        value = self.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray | StringTable) and key not in BY_LAYER:
            what = message(
                "the metadata set {key} to {value}",
                key=f"{self.architecture}.{key}",
                value=repr(value)[:80],
            )
            raise InputError(what, where=self.where, expected=message("one value"))
        return value

    def layers(self) -> int:
        """How many layers the metadata states, at most `MOST_LAYERS`; 0 where they state no number."""
        stated = self.architecture_value("block_count")
        if isinstance(stated, int):
            return min(stated, MOST_LAYERS)
        return 0

    def get(self, key: str) -> Any:
        """The value of a key, None where there is none."""
        self.read_keys.add(key)
        return self.values.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """The text under a key, or the default. Raises InputError where there is neither."""
        return self._of_kind(key, str, message("a text"), default)

    def texts(self, key: str) -> StringTable:
        """The texts under a key, none where there is none. Raises InputError for a value of another
        type."""
        none = StringTable.of(())
        table: StringTable = self._of_kind(key, StringTable, message("a list of texts"), none)
        return table

    def flag(self, key: str) -> bool | None:
        """The boolean under a key, None where there is none."""
        value = self.get(key)
        if isinstance(value, bool):
            return value
        return None

    def numbers(self, key: str) -> list[float]:
        """The list of numbers under a key, empty where there is none."""
        value = self.get(key)
        if isinstance(value, np.ndarray):
            return value.tolist()
        return []

    def _of_kind(self, key: str, kind: Callable[..., Any], what: str, default: Any) -> Any:
        """The value of a key, or the default where there is none. Raises InputError for one of
        another type than `kind`.

        kind: a class, such as `str`.
        what: what was expected, for the error.
        """
        value = self.get(key)
        if value is None:
            value = default
        # neither a value nor a default is None, which is of no kind
        if not isinstance(value, kind):  # type: ignore[arg-type]
            raise InputError(
                "the metadata set {key} to {value}",
                where=self.where,
                expected=what,
                key=key,
                value=repr(value)[:80],
            )
        return value
