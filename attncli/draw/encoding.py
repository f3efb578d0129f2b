"""Documents as bytes: JSON, one line of JSON, tab-separated text, and how large a document would
be.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attncli.documents import Part, members

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which no encoding writes; U+FFFD stands in its place."""
_ACTIVE = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
"""What JSON lets stand and a terminal obeys, in UTF-8: DEL, C1 controls, bidi controls, line and
paragraph separators."""
_WORDS = {"True": "true", "False": "false", "nan": "", "inf": "", "-inf": ""}
"""How values that are no text are written in a plain field, by Python's words for them."""
_PLAIN = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}

PIECE = 2**20
"""Bytes from which a part of a document is written before the rest is put together."""

FEW = 256
"""Entries of a list that may hold matrices, as layers and heads do."""

NUMBER_BYTES = {"float64": 22, "float32": 13, "bfloat16": 13, "float16": 13}
"""Bytes that one number with its comma takes in JSON, rounded up from measured means of weights and
scores.
"""


def json_bytes(document: Part | Mapping[str, Any]) -> bytes:
    """The document as strict JSON, one member of the top level per line, with a newline at the end.

    NaN and infinities become null. Lone surrogates become U+FFFD, as I-JSON (RFC 7493) allows none.
    What a terminal would obey is written as an escape, which means the same.
    NumPy arrays of any layout, byte order and float width are written as nested lists.
    Raises TypeError for a key that is not a string. Same document, same bytes.
    """
    return b"".join(json_pieces(document))


def json_pieces(document: Part | Mapping[str, Any]) -> Iterator[bytes]:
    """The document as strict JSON (`json_bytes` joins it), in pieces of about a mebibyte or an array,
    whichever is more: never the whole text at once.
    """
    pending: list[bytes] = []
    size = 0
    for part in _document_pieces(document):
        pending.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(pending)
            pending = []
            size = 0
    yield b"".join(pending)


def _document_pieces(document: Part | Mapping[str, Any]) -> Iterator[bytes]:
    """The JSON of a document, a line for each member, in pieces of any size."""
    is_empty = True
    before = b"{\n"
    for key, value in _json_members(document):
        yield before + _dumps(_check_key(key)) + b": "
        yield from _value_pieces(value)
        before = b",\n"
        is_empty = False
    if is_empty:
        yield b"{}\n"
    else:
        yield b"\n}\n"


def _json_members(value: Part | Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The names and values of the JSON object that a value becomes, in order."""
    if isinstance(value, Part):
        return members(value)
    return value.items()


def _value_pieces(value: Any) -> Iterator[bytes]:
    """The value's JSON; what holds many numbers, such as layers and heads, member by member."""
    is_large = _count_numbers(value) * NUMBER_BYTES["float32"] > PIECE
    if is_large and isinstance(value, list):
        before = b"["
        for member in value:
            yield before
            yield from _value_pieces(member)
            before = b","
        yield b"]"
    elif is_large and isinstance(value, Part | dict):
        before = b"{"
        for key, member in _json_members(value):
            yield before + _dumps(_check_key(key)) + b":"
            yield from _value_pieces(member)
            before = b","
        yield b"}"
    else:
        yield _dumps(value)


def _count_numbers(value: Any) -> int:
    """How many numbers the arrays in a value hold; long lists hold small records and are not looked
    through.
    """
    if isinstance(value, Part | dict):
        return sum(_count_numbers(member) for _, member in _json_members(value))
    if isinstance(value, list):
        if len(value) <= FEW:
            return sum(map(_count_numbers, value))
        return 0
    return int(getattr(value, "size", 0))


def ndjson_line(document: Part | Mapping[str, Any]) -> bytes:
    """The document as one line of strict JSON with its newline; see `json_bytes`."""
    return _dumps(document) + b"\n"


def _check_key(key: object) -> str:
    """The key itself, which must be a string. Raises TypeError."""
    if not isinstance(key, str):
        raise TypeError(f"a document's keys are strings, found {key!r}")
    return key


def _dumps(value: Any) -> bytes:
    """The JSON of a value; what a terminal would obey is written as an escape."""
    import orjson

    try:
        encoded = orjson.dumps(value, default=_plain_value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, Exception):
            raise error.__cause__ from None  # Ctrl-C while `default` was asked
        # a lone surrogate, a big-endian array or a very large number, for which orjson does not ask
        # `default`
        encoded = orjson.dumps(
            _json_value(value), default=_plain_value, option=orjson.OPT_SERIALIZE_NUMPY
        )
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return _ACTIVE.sub(lambda active: b"\\u%04x" % ord(active[0].decode()), encoded)


def _plain_value(value: Any) -> Any:
    """Convert a value that orjson cannot write: a part of a document to a dictionary; an array that
    is strided, big-endian, bfloat16, scalar or wider than float64 to a plain one. Raises TypeError
    for any other value."""
    import numpy as np

    if isinstance(value, Part):
        return dict(members(value))
    if isinstance(value, np.generic):
        array = np.asarray(value)
    else:
        array = value
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a document holds no {type(value).__name__}")
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    elif array.dtype.kind not in "biuf":
        raise TypeError(f"a document holds no array of {array.dtype.name}")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if native.ndim == 0:
        return native[()]  # the number in it
    return np.ascontiguousarray(native)


def _json_value(value: Any) -> Any:
    """The value with lone surrogates replaced, arrays as orjson takes them, and whole numbers
    beyond 64 bits as floats."""
    match value:
        case int() if not -(2**63) <= value < 2**64:
            if abs(value) <= sys.float_info.max:
                return float(value)
            return None
        case str():
            return SURROGATE.sub("\ufffd", value)
        case Part():
            return {key: _json_value(member) for key, member in members(value)}
        case dict():
            return {_json_value(key): _json_value(member) for key, member in value.items()}
        case list() | tuple():
            return [_json_value(member) for member in value]
        case _:
            # of arrays, orjson refuses those of the other byte order without asking for a plain one
            if getattr(value, "dtype", None) is None or value.dtype.isnative:
                return value
            return _plain_value(value)


def plain(rows: Iterable[Sequence[object]]) -> str:
    """Rows as tab-separated lines, each with a newline. None, NaN and infinity are the empty field,
    booleans are as in JSON, floats are written in full.

    Tab, newline, return and backslash inside a field are `\\t \\n \\r \\\\`; other characters that
    are invisible or unsafe in a terminal are `\\u{1b}`. Reversible, but for a combining mark with
    nothing to sit on, which gets a dotted circle.
    """
    return "".join("\t".join(_plain_field(value) for value in row) + "\n" for row in rows)


def comma_separated(rows: Iterable[Sequence[object]]) -> str:
    """Rows of fields as CSV lines: commas between them, quotes where they need some (RFC 4180)."""
    return "".join(
        ",".join(_quote_field(_plain_field(value)) for value in row) + "\n" for row in rows
    )


def _quote_field(field: str) -> str:
    """A field of comma-separated text, in quotes where it needs some."""
    if "," in field or '"' in field:
        return '"' + field.replace('"', '""') + '"'
    return field


def _plain_field(value: object) -> str:
    """A value as a field of tab-separated text: see `plain`."""
    if value is None:
        return ""
    if isinstance(value, float):
        text = repr(float(value))  # a NumPy float's own `repr` is "np.float64(0.5)"
    else:
        text = str(value)
    if not isinstance(value, str):
        text = _WORDS.get(text, text)
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    from attncli.draw.safe import safe

    controls = {chr(code): f"\\u{{{code:x}}}" for code in (*range(0x20), 0x7F)} | _PLAIN
    return safe("".join(controls.get(char, char) for char in text))


def estimate_bytes(shapes: Iterable[Sequence[int]], dtype: str, *, text: int = 0) -> int:
    """About how many bytes of JSON arrays of these shapes take, plus `text` bytes of everything
    else.
    """
    return text + sum(map(math.prod, shapes)) * NUMBER_BYTES.get(dtype, NUMBER_BYTES["float64"])
