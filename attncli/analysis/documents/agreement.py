"""Whether a document's sizes fit each other: lists and arrays along one axis are of one length, positions lie on their
axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import Meta, Struct, field

from attncli.analysis.documents.declaration import Document, Part

DocumentError = tuple[str, str]
"""A place in a document, and what is wrong there."""


class Axes(Struct, frozen=True):
    """What a field's type says about sizes. axes: of an array, or of a list the one it runs along. at: the axis that a
    position lies on. items: the same of what a list or dictionary holds."""

    axes: tuple[str, ...] | None = None
    at: str | None = None
    items: Axes | None = None


SIZE_FIELDS = ("axes", "at", "items")


class Lengths(Struct, frozen=True):
    """Axes by name: how long, and which place says so."""

    by_axis: dict[str, tuple[int | range, str]] = field(default_factory=dict)

    def length_error(self, axis: str, length: int, place: str) -> str:
        """What is wrong with an axis of this length; "" where it fits, or is the first."""
        if not axis:
            return ""
        declared_length, source = self.by_axis.setdefault(axis, (length, place))
        if isinstance(declared_length, range) and length in declared_length:
            self.by_axis[axis] = (length, place)
        elif declared_length != length:
            length_text = (
                f"{declared_length.start} to {declared_length.stop - 1}"
                if isinstance(declared_length, range)
                else declared_length
            )
            return f"{length} along the axis {axis!r}, and {source} has {length_text}"
        return ""


def first_error(document: Document) -> DocumentError | None:
    """The first place that contradicts the rest of the document, None for none."""
    lengths = Lengths({axis: (length, "the document") for axis, length in document.lengths().items()})
    return next(_part(document, lengths, ""), None)


@cache
def axes_of(kind: type[Part]) -> Mapping[str, Axes]:
    """The sizes that the fields of a part declare, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _axes_of_hint(hints[name]) for name in kind.__struct_fields__}


def _axes_of_hint(hint: Any) -> Axes:
    if get_origin(hint) is Annotated:
        inner, *details = get_args(hint)
        sizes = _axes_of_hint(inner)
        for item in details:
            if isinstance(item, Meta) and item.extra:
                sizes = Axes(item.extra.get("axes", sizes.axes), item.extra.get("at", sizes.at), sizes.items)
        return sizes
    if get_origin(hint) in (list, dict):
        return Axes(items=_axes_of_hint(get_args(hint)[-1]))
    if get_origin(hint) is np.ndarray:
        return Axes()
    of_each = [_axes_of_hint(item) for item in get_args(hint)]  # a union: a list of positions, or one position
    return Axes(
        *(
            next((details for item in of_each if (details := getattr(item, name)) is not None), None)
            for name in SIZE_FIELDS
        )
    )


def _part(part: Part, lengths: Lengths, path: str) -> Iterator[DocumentError]:
    kind = type(part)
    for name, (field_name, sizes) in zip(kind.__struct_encode_fields__, axes_of(kind).items(), strict=True):
        yield from _value(getattr(part, field_name), sizes, lengths, f"{path}.{name}" if path else name)
    for place, wrong in part.validation_errors():
        yield f"{path}.{place}" if path else place, wrong


def _value(value: Any, sizes: Axes, lengths: Lengths, place: str) -> Iterator[DocumentError]:
    match value:
        case Part():
            yield from _part(value, lengths, place)
        case np.ndarray():
            yield from _array_errors(value, sizes, lengths, place)
        case list():
            if sizes.axes is not None and (wrong := lengths.length_error(sizes.axes[0], len(value), place)):
                yield place, wrong
            items = sizes.items or Axes()
            if items != Axes() or (value and not isinstance(value[0], str | float)):
                for number, item in enumerate(value):
                    yield from _value(item, items, lengths, f"{place}[{number}]")
        case dict():
            for name, item in value.items():
                yield from _value(item, sizes.items or Axes(), lengths, f"{place}[{name!r:.40}]")
        case int() if sizes.at is not None and sizes.at in lengths.by_axis:
            length, source = lengths.by_axis[sizes.at]
            if isinstance(length, int) and not 0 <= value < length:
                yield place, f"position {value} lies beyond the axis {sizes.at!r}, and {source} has {length}"
        case _:
            pass


def _array_errors(array: Any, sizes: Axes, lengths: Lengths, place: str) -> Iterator[DocumentError]:
    if sizes.axes is None:
        return
    if array.ndim != len(sizes.axes):
        yield place, f"an array of {array.ndim} axes, and [{', '.join(sizes.axes)}] is declared"
        return
    for axis, length in zip(sizes.axes, array.shape, strict=True):
        if wrong := lengths.length_error(axis, length, place):
            yield place, wrong
