"""JSON files that somebody else wrote: one object, of bounded size, without repeated keys or NaN."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

from attncli.errors import InputError, LimitError
from attncli.inputs.file_opening import read_regular

JSON_LIMIT = 16 * 2**20
MOST = 2**21
"""Names, lists and values in one file: many times what the largest model needs, and parsed in seconds."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""How half of a character beyond the first 65,536 is written; two that belong together are one character."""
TAG = "__float__"
TAGGED = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""How transformers writes numbers for which JSON has no word: an object of one key, or, earlier, the bare word."""
HUGE = (re.compile(rb"[eE]\+?0*[1-9][0-9]{2}"), re.compile(rb"[0-9]{300}"))
"""One of which a number above the range of a float must contain; each is found faster by itself."""


def read_object(
    path: Path,
    *,
    what: str,
    limit: int = JSON_LIMIT,
    most: int = MOST,
    with_tags: bool = False,
) -> dict[str, Any]:
    """The JSON object in a file. with_tags: whether `{"__float__": "Infinity"}` stands for that number, and the bare
    word.

    Raises InputError for a file that is missing, not a file, not UTF-8, not JSON (NaN and Infinity are not, nor is a
    number that no float can hold), not an object, nested too deeply, or that names a key twice or holds half of a
    character (a lone surrogate); LimitError above `limit` bytes or `most` names and values.
    """
    raw = read_regular(path, what=what, limit=limit)
    return parse_object(raw, str(path), what, most=most, with_tags=with_tags)


def nesting_error(where: str, what: str) -> InputError:
    """The error for JSON whose lists and objects stand in one another deeper than any reader here goes; how deep that
    is depends on the reader and on Python. what: what was expected."""
    return InputError("this JSON is nested too deeply", where=where, expected=what)


def finite(word: str) -> float:
    """The number that a JSON text writes with a point or an exponent; raises ValueError where no float can hold it."""
    number = float(word)
    if math.isinf(number):
        raise ValueError(f"the number {word[:40]} is too large")
    return number


def parse_object(raw: bytes, where: str, what: str, *, most: int = MOST, with_tags: bool = False) -> dict[str, Any]:
    """The JSON object in these bytes; raises as `read_object`."""

    # each takes up to a hundred times its bytes once it is parsed
    item_count = sum(map(raw.count, (b":", b",", b"[")))
    if item_count > most:
        raise LimitError(
            f"this JSON holds about {item_count:,} names and values",
            where=where,
            expected=f"{what}, at most {most:,} of them",
        )

    def unique(pairs: list[tuple[str, Any]]) -> Any:
        entries: dict[str, Any] = dict(pairs)
        if len(entries) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise InputError(f"the key {twice!r} stands there twice", where=where, expected=what)
        match entries.get(TAG) if with_tags and len(entries) == 1 else None:
            case str() as word if word in TAGGED:
                return TAGGED[word]
            case _:
                pass
        return entries

    def constant(word: str) -> float:
        if with_tags:
            return TAGGED[word]
        raise ValueError(f"{word} is not JSON")

    # asking of every number costs half the time of reading
    parse_float = finite if any(huge.search(raw) for huge in HUGE) else None
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant, parse_float=parse_float
        )
    except RecursionError as error:
        raise nesting_error(where, what) from error
    except ValueError as error:
        raise InputError(f"this is not valid JSON: {error}", where=where, expected=what) from error
    if not isinstance(value, dict):
        raise InputError(f"this JSON is a {type(value).__name__}, not an object", where=where, expected=what)
    if SURROGATE.search(raw):  # few have one, and looking at every text takes long
        refuse_half_characters(value, where)
    return value


def refuse_half_characters(json_value: Any, where: str) -> None:
    """Raise InputError, naming the first place, where a text of parsed JSON holds a lone surrogate, which no encoding
    can write."""
    waiting = [("$", json_value)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str):
            if any("\ud800" <= char <= "\udfff" for char in part):
                raise InputError(
                    "this text holds half of a character", where=f"{where}: {place}", expected="UTF-8 text"
                )
            continue
        names = [(place, key) for key in part] if isinstance(part, dict) else []
        inner = part.items() if isinstance(part, dict) else enumerate(part)
        waiting += names
        waiting += [
            (f"{place}.{name}" if names else f"{place}[{name}]", member)
            for name, member in reversed(list(inner))
            if isinstance(member, str | list | dict)
        ]
