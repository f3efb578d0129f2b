"""A document from parsed JSON: of the declared types, and of sizes that fit each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import ValidationError, convert

from attncli.analysis.documents import KINDS
from attncli.analysis.documents.agreement import first_error
from attncli.analysis.documents.declaration import Document
from attncli.errors import InputError

Row = list[float | None]
NESTED = (Row, list[Row], list[list[Row]], list[list[list[Row]]])
"""Nested lists of numbers, by how deep they are."""
AT = " - at `$"
Kind = TypeVar("Kind")


def document_of(content: Mapping[str, Any], where: str) -> Document:
    """The document that parsed JSON holds. where: what errors call the file.

    Raises InputError, naming the place, for another schema, a member too many or too few, a value of another type, and
    sizes that do not fit each other.
    """
    kinds = kinds_of(content, where)
    kind = kinds[0]
    if len(kinds) > 1:
        topics = {topic_of(kind): kind for kind in kinds}
        topic = content.get("topic")
        if not isinstance(topic, str) or topic not in topics:
            raise InputError(
                f"its topic is {str(topic)[:40]!r}", where=f"{where}: $.topic", expected=", ".join(map(str, topics))
            )
        kind = topics[topic]
    document = part_of(content, kind, where, f"what attn schema {content['schema']} describes")
    check(document, where)
    return document


def kinds_of(content: Mapping[str, Any], where: str) -> tuple[type[Document], ...]:
    """The classes that the member `schema` allows."""
    name = content.get("schema")
    if name is None and set(content) == {"error"}:
        raise InputError(
            "this is what attn said when it failed, and no answer",
            where=where,
            expected="what it writes when it succeeds",
        )
    if not isinstance(name, str) or name not in KINDS:
        reason = f"its schema is {str(name)[:40]!r}" if name is not None else "it names no schema"
        raise InputError(f"this is no document that attn knows: {reason}", where=where, expected=", ".join(KINDS))
    return KINDS[name]


def topic_of(kind: type[Document]) -> str:
    """The topic of an explanation's class, the one that its field `topic` allows."""
    (topic,) = get_args(get_type_hints(kind)["topic"])
    return str(topic)


def part_of(content: Any, kind: type[Kind], where: str, expected: str) -> Kind:
    """A part of a document from parsed JSON. Raises InputError naming the place within `where`."""
    try:
        return convert(content, kind, dec_hook=_array)
    except (ValidationError, OverflowError) as error:
        message, *paths = str(error).split(AT)  # within an array, the path begins anew there, and comes first
        place = "$" + "".join(path.rstrip("`") for path in reversed(paths))
        raise InputError(
            f"the document is not as declared: {message[:1].lower()}{message[1:]}",
            where=f"{where}: {place}",
            expected=expected,
        ) from error


def check(document: Document, where: str) -> None:
    """Raise InputError, naming the place, unless the document's sizes fit each other."""
    error = first_error(document)
    if error is not None:
        place, message = error
        raise InputError(
            f"the document contradicts itself: {message}",
            where=f"{where}: $.{place}",
            expected="a document as attn wrote it",
        )


def _array(kind: type, value: Any) -> Any:
    """Nested lists of numbers as an array; raises ValidationError for anything else."""
    if (get_origin(kind) or kind) is not np.ndarray:
        raise TypeError(f"a document holds no {kind}")
    if isinstance(value, np.ndarray):
        return value
    depth, inner = -1, value
    while isinstance(inner, list) and depth < len(NESTED) - 1:
        depth, inner = depth + 1, inner[0] if inner else None
    try:
        rows = convert(value, NESTED[max(depth, 0)])
    except ValidationError as error:
        raise ValueError(str(error)) from error
    try:
        return np.array(rows, np.float64)
    except ValueError as error:
        raise ValueError("Expected rows of one length") from error
