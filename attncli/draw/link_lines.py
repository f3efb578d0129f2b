"""Links: which query looks at which key, with its weight as a number and a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from attncli.draw.headings import FAINT, heading, remark
from attncli.draw.lines import Line, Lines, fit_to_view, stack
from attncli.draw.numbers import writer
from attncli.draw.plot import bar, bar_pieces
from attncli.draw.safe import cells, pad, spell
from attncli.draw.token_names import Ends, position_and_text
from attncli.draw.view import View

LONGEST = 32
"""Cells of the longest bar."""


class WeightedLink(Ends, Protocol):
    """What every link has."""

    @property
    def weight(self) -> float:
        """How much of its attention it gives, 0 to 1."""


class PlacedLink(Protocol):
    """A link whose head is known."""

    @property
    def layer(self) -> int:
        """From 0."""

    @property
    def head(self) -> int:
        """From 0."""


AnyLink = TypeVar("AnyLink", bound=WeightedLink)


def links(
    all_links: Sequence[AnyLink],
    queries: Sequence[str],
    view: View,
    *,
    place: Callable[[AnyLink], str] | None,
    keys: Sequence[str] | None = None,
    title: str = "",
    note: str = "",
) -> Lines:
    """Links, `view.top` of them in the order given: place, `it → animal`, weight, bar from 0 to 1.

    all_links: links with what `place` reads. queries, keys: the token texts by
    position; keys are the queries where None. place: which head a link is from, in words; None where
    there is only one or it does not matter. No links: "(none)".
    """
    top = heading(title, note, view)
    shown_links = all_links if view.full else all_links[: view.top]
    if not shown_links:
        return stack((top, remark("(none)", view)))
    name = max((view.width - 30) // 2, 4)
    rows = [_parts(link, queries, keys or queries, name, view, place(link) if place else "") for link in shown_links]
    widths = [max(cells(row[index]) for row in rows) for index in range(3)]
    write = writer([link.weight for link in shown_links], view.precision)
    arrow = spell(" → ", ascii=view.ascii)
    numbers = [write(link.weight) for link in shown_links]
    digits = max(map(len, numbers))
    room = min(view.width - sum(widths) - len(arrow) - digits - 5, LONGEST)
    lines: list[Line] = []
    for link, (place_text, query, key), number in zip(shown_links, rows, numbers, strict=True):
        bar_text = bar(link.weight, room, ascii=view.ascii) if room >= 4 else ""
        where = pad(place_text, widths[0]) + ("  " if widths[0] else "")
        ends = (pad(query, widths[1], "right"), ""), (arrow, FAINT), (pad(key, widths[2]), "")
        lines.append(((where, FAINT), *ends, (f"  {pad(number, digits, 'right')} ", "bold"), *bar_pieces(bar_text)))
    more = ""
    if len(shown_links) < len(all_links):
        more = f"{len(shown_links)} of the {len(all_links)} strongest links shown; --top {len(all_links)} shows them"
    block = stack((top, Lines(tuple(lines)), remark(more, view)))
    return fit_to_view(block, view)


def layer_and_head(link: PlacedLink) -> str:
    """Such as `L5 H11`."""
    return f"L{link.layer} H{link.head}"


def _parts(
    link: WeightedLink, queries: Sequence[str], keys: Sequence[str], name: int, view: View, place: str
) -> tuple[str, str, str]:
    ends = ((link.query, queries), (link.key, keys))
    query, key = (position_and_text(index, texts[index], name, view) for index, texts in ends)
    return place, query, key


if __name__ == "__main__":
    from attncli.documents.parts import LinkRow
    from attncli.draw.lines import show

    sample = [LinkRow(layer=layer, head=head, query=2, key=1, weight=0.65) for layer, head in ((5, 11), (3, 1))]
    show(links(sample, ["The", "animal", "it"], View(color=True), place=layer_and_head, title="strongest links"))
