"""A document from parsed JSON: of the declared types, and of sizes that fit each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert, field

from attncli.documents import KINDS, Document, Numbers, Part
from attncli.errors import InputError
from attncli.language import listing, message

Row = list[float | None]
NESTED = (Row, list[Row], list[list[Row]], list[list[list[Row]]])
"""Nested lists of numbers, by how deep they are."""
AT = " - at `$"
"""What msgspec writes before the place of a fault."""
Kind = TypeVar("Kind")


def document_of(content: Mapping[str, Any], where: str) -> Document:
    """The document that parsed JSON holds, checked.

    where: what errors call the file.

    Raises InputError, naming the place, for another schema, a member too many or too few, a value
    of another type, and sizes that do not fit each other.
    """
    # one class for a schema, but for explanations, which their topic tells apart
    kinds = kinds_of(content, where)
    kind = kinds[0]
    if len(kinds) > 1:
        kind_of_topic = {topic_of(candidate): candidate for candidate in kinds}
        topic = content.get("topic")
        place = f"{where}: $.topic"
        if not isinstance(topic, str) or topic not in kind_of_topic:
            raise InputError(
                "its topic is {topic}",
                where=place,
                expected=listing(kind_of_topic),
                topic=repr(str(topic)[:40]),
            )
        kind = kind_of_topic[topic]
    document = part_of(
        content,
        kind,
        where,
        message("what attn schema {schema} describes", schema=content["schema"]),
    )
    check(document, where)
    return document


def kinds_of(content: Mapping[str, Any], where: str) -> tuple[type[Document], ...]:
    """The classes that a document with the `schema` of this parsed JSON may have.

    Raises:
        InputError: For a schema that attn does not write, and for the document of a failure.
    """
    name = content.get("schema")
    if name is None and set(content) == {"error"}:
        raise InputError(
            "this is what attn said when it failed, and no answer",
            where=where,
            expected="what it writes when it succeeds",
        )
    if not isinstance(name, str) or name not in KINDS:
        reason = message("it names no schema")
        if name is not None:
            reason = message("its schema is {name}", name=repr(str(name)[:40]))
        raise InputError(
            "this is no document that attn knows: {reason}",
            where=where,
            expected=listing(KINDS),
            reason=reason,
        )
    return KINDS[name]


def topic_of(kind: type[Document]) -> str:
    """The topic that an explanation's class is about: the only value that its field `topic` allows."""
    (topic,) = get_args(get_type_hints(kind)["topic"])
    return str(topic)


def part_of(content: Any, kind: type[Kind], where: str, expected: str) -> Kind:
    """A part of a document from parsed JSON. Raises InputError naming the place within `where`.

    Args:
        content: parsed JSON of any kind.
        kind: the class it is read as.
        where: the file, as messages name it.
        expected: what the file should hold, in words.
    """
    try:
        return convert(content, kind, dec_hook=_array_of_lists)
    except (ValidationError, OverflowError) as error:
        # "Expected `int` - at `$[0]` - at `$.layers`": the path within an array, which has a decoder
        # of its own, comes before the path to the array
        problem, *paths = str(error).split(AT)
        place = "$" + "".join(path.rstrip("`") for path in reversed(paths))
        raise InputError(
            "the document is not as declared: {problem}",
            where=f"{where}: {place}",
            expected=expected,
            # in the middle of our sentence: "expected `int`"
            problem=problem[:1].lower() + problem[1:],
        ) from error


def check(document: Document, where: str) -> None:
    """Raise InputError, naming the first place that contradicts the rest, unless all sizes fit each
    other.
    """
    lengths = Lengths(
        {axis: (length, message("the document")) for axis, length in document.lengths().items()}
    )
    if (error := next(_part_errors(document, lengths, ""), None)) is not None:
        place, wrong = error
        raise InputError(
            "the document contradicts itself: {message}",
            where=f"{where}: $.{place}",
            expected="a document as attn wrote it",
            message=wrong,
        )


def _array_of_lists(kind: type, value: Any) -> Any:
    """Nested lists of numbers as an array, NaN for null: msgspec calls this for a field whose type
    is an array. Raises ValueError for any other value, which msgspec turns into a ValidationError;
    TypeError for a field of another type, which no document has.

    kind: the field's type.
    value: its parsed JSON.
    """
    if (get_origin(kind) or kind) is not np.ndarray:
        raise TypeError(f"a document holds no {kind}")
    if isinstance(value, np.ndarray):
        return value
    # how deep the lists are nested, by their first items: 0 for a row; what is no list at all is read
    # as a row, which fails
    depth = -1
    inner = value
    while isinstance(inner, list) and depth < len(NESTED) - 1:
        depth = depth + 1
        inner = inner[0] if inner else None
    try:
        rows = convert(value, NESTED[max(depth, 0)])
    except ValidationError as error:
        raise ValueError(str(error)) from error
    try:
        return np.array(rows, np.float64)
    except ValueError as error:
        raise ValueError("Expected rows of one length") from error


DocumentError = tuple[str, str]
"""A place in a document, and what is wrong there."""


class Axes(Struct, frozen=True):
    """The axes that a field's type declares.

    axes: those of an array; of a list the one that it runs along; None for none.
    at: the axis that an index belongs to; None for no index.
    items: the same for the items of a list or dictionary.
    """

    axes: tuple[str, ...] | None = None
    at: str | None = None
    items: Axes | None = None


class Lengths(Struct, frozen=True):
    """The lengths of axes found so far, by name, each with the place in the document that has it."""

    by_axis: dict[str, tuple[int | range, str]] = field(default_factory=dict)

    def length_error(self, axis: str, length: int, place: str) -> str:
        """Compare the length of an axis at one place of the document with the length that it had at
        the places before; the first one is kept for the places to come.

        Returns the text of an error where they differ; "" where they agree, or the place is the
        first.
        """
        if not axis:  # one whose length is free
            return ""
        declared, source = self.by_axis.setdefault(axis, (length, place))
        if isinstance(declared, range) and length in declared:
            self.by_axis[axis] = (length, place)  # from here on exactly this length
        elif declared != length:
            declared_text: object = declared
            if isinstance(declared, range):
                declared_text = f"{declared.start} to {declared.stop - 1}"
            return message(
                "{length} along the axis {axis}, and {source} has {length_text}",
                length=length,
                axis=repr(axis),
                source=source,
                length_text=declared_text,
            )
        return ""


@cache
def axes_of(kind: type[Part]) -> Mapping[str, Axes]:
    """The axes that the fields of a part declare, by field name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _axes_of_hint(hints[name]) for name in kind.__struct_fields__}


def _axes_of_hint(hint: Any) -> Axes:
    """The axes that a field's type hint declares by `axes(…)` and `index_of(…)`, in any depth of
    lists, dictionaries and unions."""
    if get_origin(hint) is Annotated:
        inner, *details = get_args(hint)
        declared = _axes_of_hint(inner)
        for item in details:
            if isinstance(item, Meta) and item.extra:
                declared = Axes(
                    item.extra.get("axes", declared.axes),
                    item.extra.get("at", declared.at),
                    declared.items,
                )
        return declared
    if get_origin(hint) in (list, dict):
        return Axes(items=_axes_of_hint(get_args(hint)[-1]))
    if get_origin(hint) is np.ndarray:
        return Axes()
    # a union, such as a list of positions or one position: what its members declare together
    axes = None
    at = None
    items = None
    for member in map(_axes_of_hint, get_args(hint)):
        if axes is None:
            axes = member.axes
        if at is None:
            at = member.at
        if items is None:
            items = member.items
    return Axes(axes, at, items)


def _part_errors(part: Part, lengths: Lengths, path: str) -> Iterator[DocumentError]:
    """Yield the errors in a part of a document and in all parts within it, (place, message) each.

    lengths: those of axes that were met before; lengths of this part are added.
    path: where the part is, such as `layers[0]`; "" for the document itself.
    """
    kind = type(part)
    # both are in the order of the declaration: the names in JSON, and the fields with their axes
    for name, (field_name, declaration) in zip(
        kind.__struct_encode_fields__, axes_of(kind).items(), strict=True
    ):
        yield from _value_errors(
            getattr(part, field_name), declaration, lengths, f"{path}.{name}" if path else name
        )
    for place, wrong in part.validation_errors():
        yield f"{path}.{place}" if path else place, wrong


def _value_errors(
    value: Any, declaration: Axes, lengths: Lengths, place: str
) -> Iterator[DocumentError]:
    """Yield the errors in the value of a field and within it, (place, message) each.

    declaration: the axes that the field declares.
    lengths: those of axes that were met before; lengths of this value are added.
    place: the path of the field, such as `layers[0].heads`.
    """
    match value:
        case Part():
            yield from _part_errors(value, lengths, place)
        case np.ndarray():
            yield from _array_errors(value, declaration, lengths, place)
        case list():
            if declaration.axes is not None:
                axis = declaration.axes[0]  # the one that the list runs along
                if wrong := lengths.length_error(axis, len(value), place):
                    yield place, wrong
            # items are looked at where they declare axes, or may be parts that do
            items = declaration.items or Axes()
            if items != Axes() or (value and not isinstance(value[0], str | float)):
                for number, item in enumerate(value):
                    yield from _value_errors(item, items, lengths, f"{place}[{number}]")
        case dict():
            for name, item in value.items():
                yield from _value_errors(
                    item, declaration.items or Axes(), lengths, f"{place}[{name!r:.40}]"
                )
        case int() if declaration.at is not None and declaration.at in lengths.by_axis:
            length, source = lengths.by_axis[declaration.at]
            if isinstance(length, int) and not 0 <= value < length:
                wrong = message(
                    "position {value} lies beyond the axis {at}, and {source} has {length}",
                    value=value,
                    at=repr(declaration.at),
                    source=source,
                    length=length,
                )
                yield place, wrong
        case _:
            pass


def _array_errors(
    array: Numbers, declaration: Axes, lengths: Lengths, place: str
) -> Iterator[DocumentError]:
    """Yield the errors of an array whose axes are not as its field declares, or disagree with
    others of the same name, (place, message) each; none where the field declares no axes.

    declaration: what the field declares.
    lengths: those of axes that were met before; lengths of this array are added.
    place: the path of the field, such as `layers[0].heads[1].weights`.
    """
    if declaration.axes is None:
        return
    if array.ndim != len(declaration.axes):
        declared = listing(declaration.axes)
        yield (
            place,
            message(
                "an array of {ndim} axes, and [{axes}] is declared", ndim=array.ndim, axes=declared
            ),
        )
        return
    for axis, length in zip(declaration.axes, array.shape, strict=True):
        if wrong := lengths.length_error(axis, length, place):
            yield place, wrong
