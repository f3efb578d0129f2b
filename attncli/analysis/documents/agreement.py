"""Whether a document's sizes fit each other: lists and arrays along one axis are of one length, positions lie on their
axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import Meta, Struct, field

from attncli.analysis.documents.declaration import Document, Part

Misfit = tuple[str, str]
"""A place in a document, and what is wrong there."""


class Axes(Struct, frozen=True):
    """What a field's type says about sizes. axes: of an array, or of a list the one it runs along. at: the axis that a
    position lies on. items: the same of what a list or dictionary holds."""

    axes: tuple[str, ...] | None = None
    at: str | None = None
    items: Axes | None = None


SAID = ("axes", "at", "items")


class Lengths(Struct, frozen=True):
    """Axes by name: how long, and which place says so."""

    known: dict[str, tuple[int | range, str]] = field(default_factory=dict)

    def misfit(self, axis: str, length: int, place: str) -> str:
        """What is wrong with an axis of this length; "" where it fits, or is the first."""
        if not axis:
            return ""
        known, said = self.known.setdefault(axis, (length, place))
        if isinstance(known, range) and length in known:
            self.known[axis] = (length, place)
        elif known != length:
            told = f"{known.start} to {known.stop - 1}" if isinstance(known, range) else known
            return f"{length} along the axis {axis!r}, and {said} has {told}"
        return ""


def disagreement(document: Document) -> Misfit | None:
    """The first place that contradicts the rest of the document, None for none."""
    lengths = Lengths({axis: (length, "the document") for axis, length in document.lengths().items()})
    return next(_part(document, lengths, ""), None)


@cache
def axes_of(kind: type[Part]) -> Mapping[str, Axes]:
    """The sizes that the fields of a part declare, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _declared(hints[name]) for name in kind.__struct_fields__}


def _declared(hint: Any) -> Axes:
    if get_origin(hint) is Annotated:
        inner, *said = get_args(hint)
        found = _declared(inner)
        for one in said:
            if isinstance(one, Meta) and one.extra:
                found = Axes(one.extra.get("axes", found.axes), one.extra.get("at", found.at), found.items)
        return found
    if get_origin(hint) in (list, dict):
        return Axes(items=_declared(get_args(hint)[-1]))
    if get_origin(hint) is np.ndarray:
        return Axes()
    of_each = [_declared(one) for one in get_args(hint)]  # a union: a list of positions, or one position
    return Axes(*(next((said for one in of_each if (said := getattr(one, name)) is not None), None) for name in SAID))


def _part(part: Part, lengths: Lengths, path: str) -> Iterator[Misfit]:
    for name, said in axes_of(type(part)).items():
        yield from _value(getattr(part, name), said, lengths, f"{path}.{name}" if path else name)
    for place, wrong in part.misfits():
        yield f"{path}.{place}" if path else place, wrong


def _value(value: Any, said: Axes, lengths: Lengths, place: str) -> Iterator[Misfit]:
    match value:
        case Part():
            yield from _part(value, lengths, place)
        case np.ndarray():
            yield from _array(value, said, lengths, place)
        case list():
            if said.axes is not None and (wrong := lengths.misfit(said.axes[0], len(value), place)):
                yield place, wrong
            items = said.items or Axes()
            if items != Axes() or (value and not isinstance(value[0], str | float)):
                for number, item in enumerate(value):
                    yield from _value(item, items, lengths, f"{place}[{number}]")
        case dict():
            for name, item in value.items():
                yield from _value(item, said.items or Axes(), lengths, f"{place}[{name!r:.40}]")
        case int() if said.at is not None and said.at in lengths.known:
            known, source = lengths.known[said.at]
            if isinstance(known, int) and not 0 <= value < known:
                yield place, f"position {value} lies beyond the axis {said.at!r}, and {source} has {known}"
        case _:
            pass


def _array(array: Any, said: Axes, lengths: Lengths, place: str) -> Iterator[Misfit]:
    if said.axes is None:
        return
    if array.ndim != len(said.axes):
        yield place, f"an array of {array.ndim} axes, and [{', '.join(said.axes)}] is declared"
        return
    for axis, length in zip(said.axes, array.shape, strict=True):
        if wrong := lengths.misfit(axis, length, place):
            yield place, wrong
