"""The figure of `attn circuit`: the parts that the strongest edges join, layers upward, and below
them what circuits keep over their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from attncli.draw.figures.charts import draw_title
from attncli.draw.figures.drawing import Drawing, broken_to_fit, width
from attncli.draw.numbers import percent
from attncli.draw.safe import label
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.features.circuit.circuit_words import kept_text
from attncli.features.circuit.document import (
    CircuitDocument,
    CircuitEdge,
    CircuitNode,
    CircuitSize,
)
from attncli.language import message, plural, say

DRAWN = 40
"""Edges of a figure, the strongest: more are a tangle."""
WIDE, ROW, TALL, SIZE = 460.0, 30.0, 12.0, 7.0
"""Points: of the whole, from row to row, of a part, and of its type."""
THICKEST, THINNEST = 4.0, 0.4
GAP, BEND = 38.0, 22.0
"""Points: between parts of a row, at least, and from a part to a line that passes it."""


class GraphLine(Struct, frozen=True):
    """An edge as it is drawn, from a part to a part, with its score."""

    start: str
    end: str
    score: float


def circuit_figure(document: CircuitDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw the strongest edges of the circuit, as thick as their scores, from the embedding below to
    the logits above, and below them the curve over the sizes with its areas.

    An edge to keys or values that several heads share is drawn to each of these heads that is in the
    circuit. Raises InputError for a circuit without edges.
    """
    edges = document.edges[:DRAWN]
    if not edges:
        raise InputError(
            "this circuit has no edges to draw", expected="a larger one, such as --size 2%"
        )
    name = label(document.model.name or document.model.source)
    top = draw_title(drawing, f"{label(document.pairs.name)} · {name}", _subtitle(document, view))
    if drawing.shows("links"):
        top = _draw_graph(document, drawing, top, view) + 16
    if drawing.shows("curve"):
        _draw_curve(document, drawing, top, view)


def _draw_graph(document: CircuitDocument, drawing: Drawing, top: float, view: View) -> float:
    """Draw the strongest edges as lines between boxes with the names of parts, and a legend below.
    Returns where the drawing ends, in points from the top."""
    # stronger edges are thicker and more opaque (`faint` is the opacity); distances are in points
    lines = list(_lines(document, document.edges[:DRAWN]))
    places = _places(document, lines, top, min(WIDE, drawing.room))
    # where all scores are 0, all lines are thin
    largest = max(abs(line.score) for line in lines) or 1.0
    speaks_for, speaks_against = drawing.theme.series[:2]
    # the strongest last, above the others
    for line in sorted(lines, key=lambda line: abs(line.score)):
        share = abs(line.score) / largest
        # below 0, the corrupt text's value lowers the difference: the clean one speaks for the answer
        ink = speaks_against
        if line.score < 0:
            ink = speaks_for
        drawing.path(
            _way(places[line.start], places[line.end]),
            ink,
            thick=THINNEST + (THICKEST - THINNEST) * share,
            faint=0.35 + 0.6 * share,
        )
    for part, (x, y) in places.items():
        wide = width(part, SIZE) + 6
        paper, ink = drawing.theme.paper, drawing.theme.quiet
        drawing.rectangle(x - wide / 2, y, wide, TALL, paper, stroke=ink)
        drawing.text(x, y + 8.5, part, size=SIZE, anchor="middle")
    bottom = max(y for _, y in places.values()) + TALL + 14
    return _draw_legend(drawing, bottom, view)


def _draw_legend(drawing: Drawing, bottom: float, view: View) -> float:
    """Write below the graph what its lines mean, and what each colour means in this colour.

    bottom: where the legend begins, in points from the top. Returns where it ends.
    """
    # distances are in points; a line of small text is 11 high
    note = message("line: as thick as its estimated effect; H is a head, MLP a feed-forward part")
    rows = broken_to_fit(say(view, note), 8, min(WIDE, drawing.room))
    for row, text in enumerate(rows):
        drawing.text(0, bottom + row * 11, text, size=8, quiet=True)
    signs = (message("speaks for the answer"), message("speaks against the answer"))
    for row, (sign, ink) in enumerate(zip(signs, drawing.theme.series, strict=False), len(rows)):
        drawing.text(0, bottom + row * 11, say(view, sign), size=8, ink=ink)
    return bottom + (len(rows) + len(signs)) * 11


def _draw_curve(document: CircuitDocument, drawing: Drawing, top: float, view: View) -> None:
    """Draw what circuits of each size keep, with its interval, as many random edges beside it, and
    the areas CPR and CMD.

    top: where it begins, in points.
    """
    title = plural(
        "what circuits keep of the difference on {count} held-out pair, by share of edges",
        "what circuits keep of the difference on {count} held-out pairs, by share of edges",
        count=document.pairs.held_out,
    )
    rows = broken_to_fit(say(view, title), 9, min(WIDE, drawing.room))
    rows.append(f"CPR {document.cpr:.3f}, CMD {document.cmd:.3f}")

    # distances are in points; a line of text is 12 high, of small text 11
    for row, text in enumerate(rows):
        drawing.text(0, top + row * 12, text, quiet=True)

    # the frame with its levels
    frame = CurveFrame.of(document, top + len(rows) * 12 + 4, min(WIDE, drawing.room))
    for level in (0.0, 0.5, 1.0):
        y = frame.y(level)
        drawing.path([(LEFT, y), (frame.right, y)], drawing.theme.line, thick=0.5)
        drawing.text(LEFT - 6, y + 3, percent(level), size=8, anchor="end", quiet=True)

    # both curves, and on the circuits' own each size with its interval
    ink, quiet = drawing.theme.series[0], drawing.theme.series[-1]
    random = [(frame.x(place), frame.y(size.random)) for place, size in frame.sizes]
    drawing.path(random, quiet, thick=1)
    curve = [(frame.x(place), frame.y(size.faithfulness)) for place, size in frame.sizes]
    drawing.path(curve, ink, thick=1.6)
    for place, size in frame.sizes:
        x, y = frame.x(place), frame.y(size.faithfulness)
        drawing.rectangle(x - 1.5, y - 1.5, 3, 3, ink)
        if size.low is not None and size.high is not None:
            drawing.path([(x, frame.y(size.low)), (x, frame.y(size.high))], ink, thick=0.8)
        if frame.has_label(place):
            share = percent(size.share)
            drawing.text(x, frame.bottom + 13, share, size=7, anchor="middle", quiet=True)

    # which curve has which colour
    names = (
        (
            ink,
            say(view, "the strongest edges; the chosen {share}: {kept}", **_size_words(document)),
        ),
        (quiet, say(view, "as many random edges")),
    )
    below = frame.bottom + 28
    for colour, name in names:
        for text in broken_to_fit(name, 8, min(WIDE, drawing.room)):
            drawing.text(0, below, text, size=8, ink=colour)
            below += 11


LEFT, CURVE = 34.0, 110.0
"""Points: beside the curve for its numbers, and how tall it is."""
WIDEST = 340.0
"""Points of the widest curve with the numbers beside it: each of ten sizes has a label's room."""
LABEL_ROOM = 26.0
"""Points between sizes from which on each has its share below it."""


class CurveFrame(Struct, frozen=True):
    """Where a curve stands: sizes side by side, each as far from the next, and shares upward.

    sizes: with their places.
    low, high: shares at the bottom and at the top.
    bottom, right: points.
    """

    sizes: Sequence[tuple[int, CircuitSize]]
    low: float
    high: float
    bottom: float
    right: float

    @classmethod
    def of(cls, document: CircuitDocument, top: float, wide: float) -> CurveFrame:
        """The frame in which a document's curve is drawn.

        top: its upper edge, in points from the top.
        wide: the width that it may have, in points.
        """
        values = [0.0, 1.0]
        for size in document.curve:
            # 0, which is in the frame anyway, where there is no interval
            values += [size.faithfulness, size.random, size.low or 0.0, size.high or 0.0]
        sizes = list(enumerate(document.curve))
        # the last 10 points are for half of the label at the right end
        right = min(wide, WIDEST) - 10
        return cls(sizes, min(values), max(values), top + CURVE, right)

    def x(self, place: int) -> float:
        """The horizontal position of the size of this index, in points from the left."""
        # 12 points of the frame stay free at either end
        steps = max(len(self.sizes) - 1, 1)  # a single size stands at the left
        return LEFT + 12 + (self.right - LEFT - 24) * place / steps

    def has_label(self, place: int) -> bool:
        """Whether the share of edges is written below the size of this index: below every second one,
        counted from the last, where they are too close for all."""
        last = len(self.sizes) - 1
        return (last - place) % 2 == 0 or self.x(1) - self.x(0) >= LABEL_ROOM

    def y(self, share: float) -> float:
        """The vertical position of a share of the effect, in points from the top."""
        return self.bottom - CURVE * (share - self.low) / (self.high - self.low)


def _size_words(document: CircuitDocument) -> dict[str, str]:
    """The values of the sentences on the chosen circuit: its share of all edges, and the share of
    the effect that it keeps."""
    return {"share": percent(document.chosen.share), "kept": kept_text(document.chosen)}


def _subtitle(document: CircuitDocument, view: View) -> str:
    """The subtitle: how many edges are drawn, and of how many."""
    return say(
        view,
        "the {drawn} strongest of the {edges} edges of the circuit",
        drawn=min(DRAWN, len(document.edges)),
        edges=f"{len(document.edges):,}",
    )


def _lines(document: CircuitDocument, edges: Sequence[CircuitEdge]) -> Iterator[GraphLine]:
    """Yield the lines to draw for these edges. An edge to keys or values that several heads share
    becomes a line to each of these heads that is in the circuit."""
    nodes = {node.id: node for node in document.nodes}
    # how many heads share one key-value head; a document that was read from a file may have 0 of
    # these, or more than heads
    group = max(document.model.heads // max(document.model.kv_heads, 1), 1)
    for edge in edges:
        if edge.to in nodes:
            yield GraphLine(edge.writer, edge.to, edge.score)
            continue
        for node in document.nodes:
            if node.kind == "head" and edge.to == shared_name(node, group):
                yield GraphLine(edge.writer, node.id, edge.score)


def shared_name(node: CircuitNode, group: int) -> str:
    """The name of the key-value head whose keys and values a head reads, such as `L5KV2`.

    group: how many heads share one.
    """
    assert node.head is not None
    return f"L{node.layer}KV{node.head // group}"


def _places(
    document: CircuitDocument, lines: Sequence[GraphLine], top: float, wide: float
) -> dict[str, tuple[float, float]]:
    """Where the box of each part stands: the middle of its upper edge, (x, y) in points. A row holds
    the heads of a layer or its feed-forward part above them; later layers stand higher.

    lines: what is drawn; parts without a line get no place.
    top, wide: where the drawing begins, and how wide it is.
    """
    # rows by (layer, whether it is the feed-forward part's), so that sorting gives their order
    drawn = {part for line in lines for part in (line.start, line.end)}
    rows: dict[tuple[int, bool], list[str]] = {}
    for node in document.nodes:
        if node.id not in drawn:
            continue
        if node.kind == "embedding":
            row = (-1, False)
        elif node.layer is None:
            # the logits stand above all layers
            row = (document.model.layers, False)
        else:
            row = (node.layer, node.kind == "mlp")
        rows.setdefault(row, []).append(node.id)
    columns = document.model.heads + 1
    heads = {node.id: node.head for node in document.nodes}
    places = {}
    for level, row in enumerate(sorted(rows, reverse=True)):
        parts = rows[row]
        middles = [_column(heads[part], row, columns) * wide for part in parts]
        gaps = [right - left for left, right in pairwise(middles)]
        if min(gaps, default=GAP) < GAP:  # too many heads for columns of their own
            middles = [wide * (number + 0.5) / len(parts) for number in range(len(parts))]
        for part, x in zip(parts, middles, strict=True):
            places[part] = (x, top + 6 + level * ROW)
    return places


def _column(head: int | None, row: tuple[int, bool], columns: int) -> float:
    """Where in its row a part stands, from 0 to 1: heads by their number, the feed-forward part at
    the right, embedding and logits in the middle.

    row: (layer, whether it is the row of a feed-forward part).
    columns: one for each head, and one for the feed-forward part.
    """
    if head is not None:
        return (head + 0.5) / columns
    _, is_mlp = row
    if is_mlp:
        return 1 - 0.5 / columns
    return 0.5


def _way(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """The points of a line from the upper edge of one part's box to the lower edge of another's. It
    is straight, unless one stands right above the other with parts between them: then it passes
    beside these.

    start, end: the middle of the upper edge of each box.
    """
    x0, y0 = start
    x1, y1 = end[0], end[1] + TALL
    # further than a point apart, it passes no box in between; less than a row, there is none
    if abs(x0 - x1) > 1 or y0 - y1 < ROW:
        return [(x0, y0), (x1, y1)]
    aside = x0 + BEND + 0.03 * (y0 - y1)  # longer ways further aside, so that they part
    return [(x0, y0), (aside, y0 - ROW / 2), (aside, y1 + ROW / 2), (x1, y1)]
