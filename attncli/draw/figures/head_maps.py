"""Maps of the weights of heads, as figures draw them: one for each head, of a single query one for
all; above the links of a single head of a short text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.documents import ModelPart, Numbers, TokenRow
from attncli.draw.figures.charts import (
    FigureMap,
    draw_links,
    draw_maps,
    draw_sentence,
    map_kinds,
)
from attncli.draw.figures.drawing import BOLD, Drawing, shorten_to_fit
from attncli.draw.figures.head_table import draw_head_table, layers_and_heads
from attncli.draw.figures.map_edges import bands_of
from attncli.draw.shaded_matrix import as_matrix, visible
from attncli.draw.token_names import key_names, quoted_word
from attncli.draw.view import View
from attncli.errors import InputError, UsageError
from attncli.inputs.token import Token, choose_token, ignore
from attncli.language import say
from attncli.measure.run_record import check_heads
from attncli.mechanism.spec import head_name

WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""


class HeadWeights(Struct, frozen=True):
    """The weights of one head as a document holds them, with its scores if known.

    layer: of captured arrays the place in the batch, None in a batch of one.
    is_captured: whether they are of such arrays.
    pool: tokens pooled into one cell, along either axis.
    """

    name: str
    layer: int | None
    head: int
    weights: Numbers
    scores: Numbers | UnsetType = UNSET
    pool: int = 1
    is_captured: bool = False


def _mean_of_visible(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean weight of each key over the heads that see it; 0 where none does.

    weights: [head, key], NaN is hidden.
    """
    visible = np.isfinite(weights)
    return np.where(visible, weights, 0.0).sum(0) / np.maximum(visible.sum(0), 1)


def _joined_map(
    maps: Sequence[FigureMap], query: str, keys: Sequence[str], view: View
) -> FigureMap:
    """Join maps that have a single row, the same query's, into one map whose rows are the heads."""
    names = [figure_map.short_name or figure_map.caption for figure_map in maps]
    caption = say(view, "where {query} looks, by layer and head", query=quoted_word(query, view))
    values = np.concatenate([figure_map.values for figure_map in maps])
    return FigureMap(caption, values, names, keys, meaning=maps[0].meaning, row_positions=())


def _map_of_head(
    head: HeadWeights, rows: Sequence[str], keys: Sequence[str], view: View
) -> FigureMap:
    """The map of a head's weights; its caption is the head's name and how many cells are pooled.

    rows, keys: the words of the queries and of the keys.
    """
    name = head.name
    if head.pool > 1:
        name += say(view, ", pooled {pool}×", pool=head.pool)
    if head.layer is None:
        layer = ""
    else:
        layer = str(head.layer)
    values = visible(head.weights, head.scores)
    mark = "L"  # stands before a layer; of captured arrays that number is an entry of the batch
    if head.is_captured:
        mark = ""
    return FigureMap(
        name,
        values,
        rows,
        keys,
        short=(layer, str(head.head)),
        mark=mark,
        axes=attention_axes(view),
        meaning=say(view, "attention weight"),
    )


def attention_axes(view: View) -> tuple[str, str]:
    """What the rows and the columns of a map of attention weights are, in the language shown."""
    return say(view, "query"), say(view, "key")


def _follows_directly(tokens: Sequence[TokenRow], count: int) -> list[bool]:
    """For each of the first `count` tokens, whether it begins where the one before ends, without a
    space; False beyond the last token."""
    shown = tokens[:count]
    follows = [False]
    for previous, token in pairwise(shown):
        follows.append(token.start is not None and token.start == previous.end)
    # there may be fewer tokens than are asked for, or none
    follows += [False] * count
    return follows[:count]


def check_maps(weights: Sequence[HeadWeights], measured: int = 0) -> None:
    """Refuse to draw a document without weights, or with more heads than anybody waits for.

    measured: heads whose metrics are drawn, with or without their weights.

    Raises:
        InputError: The document was shortened, and holds neither weights nor metrics.
        LimitError: It holds too many heads.
    """
    check_heads(max(len(weights), measured))
    if not weights and not measured:
        raise InputError(
            "this document holds no weights to draw",
            expected="one that was not shortened by --show",
        )


def are_named(weights: Sequence[HeadWeights], model: ModelPart) -> bool:
    """Whether the user named single heads: then some layer has fewer heads here than in the model."""
    counts = Counter(head.layer for head in weights)
    return any(count < model.heads for count in counts.values())


def heads_of_style(drawing: Drawing, weights: Sequence[HeadWeights]) -> list[HeadWeights]:
    """The heads that `--figure-style heads=…` names, in that order; all heads where it names none.
    Raises UsageError for a head that the figure does not have."""
    drawing.offered.add("heads")  # this figure can use the word; where none can, it is refused
    if not drawing.choice.heads:
        return list(weights)
    # heads without a layer (None) are named as of layer 0
    by_layer_and_head = {(head.layer or 0, head.head): head for head in weights}
    chosen = []
    for pair in drawing.choice.heads:
        if pair not in by_layer_and_head:
            raise UsageError(
                "--figure-style heads: this figure has no head {head}",
                expected="{first} to {last}",
                head=head_name(*pair),
                first=head_name(*min(by_layer_and_head)),
                last=head_name(*max(by_layer_and_head)),
            )
        chosen.append(by_layer_and_head[pair])
    return chosen


def _chosen_rows(drawing: Drawing, rows: Sequence[str]) -> list[int]:
    """The positions of the rows of a map that `--figure-style rows=…` names, in that order; of all
    rows where it names none. Raises InputError for a row that does not exist.

    rows: the words of the rows.
    """
    drawing.offered.add("rows")  # this figure can use the word; where none can, it is refused
    names = drawing.choice.rows
    if not names:
        return list(range(len(rows)))
    # "␣" shows a space at a token's edge: the user names the token without it
    tokens = [
        Token(place, word.strip("␣"), id=None, start=None, end=None)
        for place, word in enumerate(rows)
    ]
    return list(dict.fromkeys(choose_token(tokens, name, ignore) for name in names))


class MapAxes(Struct, frozen=True):
    """The words along the edges of all maps of a figure.

    rows, keys: the words at the rows (queries) and the columns (keys).
    queries: the tokens that the rows are, by their positions in the text; None for one after the
        other.
    regions: named sets of tokens, each with its tokens' positions.
    """

    rows: Sequence[str]
    keys: Sequence[str]
    queries: Sequence[int] | None = None
    regions: Sequence[tuple[str, Sequence[int]]] = ()


def _below_sentence(end: float, top: float) -> float:
    """Where to go on below a sentence that began at `top` and ends at `end`; at `top` if it drew
    nothing.
    """
    if end > top:
        return end + 14
    return top


def draw_head_maps(
    drawing: Drawing,
    head_weights: Sequence[HeadWeights],
    axes: MapAxes,
    top: float,
    view: View,
    *,
    scale: str,
    average: Numbers | None = None,
    text: Sequence[TokenRow] = (),
    query: int | None = None,
    chosen_heads: bool = False,
) -> float:
    """Draw maps of heads; above them the shaded sentence of a single query, below them the links of
    a single head. Returns where they end.

    axes: the words along the edges of all maps.
    top: where they begin, in points from the upper edge.
    scale: how weights become colours.
    average: the weights of all heads together, drawn as a map of its own.
    text: the tokens of the sentence that is shaded by where the token at `query` looks; none is
        drawn where that is None.
    chosen_heads: whether the user named these heads, so that up to a dozen are drawn large. Heads
        that the figure's style names are drawn large as well.

    Raises:
        UsageError: For heads or rows of the figure's style that are not there.
    """
    # which heads and rows, and their maps
    head_weights = heads_of_style(drawing, head_weights)
    # all heads have the keys of the first, as the maps below have its bands
    keys = key_names(axes.keys, visible(head_weights[0].weights, head_weights[0].scores))
    row_places = _chosen_rows(drawing, axes.rows)
    rows = [axes.rows[place] for place in row_places]
    maps = _maps_of_heads(drawing, head_weights, axes, keys, row_places, average, view)

    # the sentence, the maps, the links
    if query is not None and len(keys) <= WORDS:
        top = _draw_mean_sentence(drawing, maps, keys, text, query, top)
    # maps of a single row each become one map, a row for each head
    if len(rows) == 1 and len(maps) > 1:
        one_map = _joined_map(maps, rows[0], keys, view)
        bands = maps[0].column_bands
        top = draw_maps(drawing, [replace(one_map, column_bands=bands)], top, view, scale=scale)
        if not drawing.is_asked_for("links"):
            return top
        return _draw_all_links(drawing, maps, top + 16, view)
    for kind in _kinds_of_maps(drawing, len(maps), len(head_weights), chosen_heads):
        if kind == "grid" and layers_and_heads(maps) is not None:
            end = draw_head_table(drawing, maps, top, view, scale=scale)
        else:
            across = _maps_across(head_weights, maps)
            end = draw_maps(drawing, maps, top, view, scale=scale, across=across, part=kind)
        top = end + 16
    return _draw_all_links(drawing, maps, top, view)


def _maps_of_heads(
    drawing: Drawing,
    head_weights: Sequence[HeadWeights],
    axes: MapAxes,
    keys: Sequence[str],
    row_places: Sequence[int],
    average: Numbers | None,
    view: View,
) -> list[FigureMap]:
    """The maps to draw: one of each head and, last, one of their average; with the chosen rows, and
    with bands for regions.

    axes: the words along the edges.
    keys: the words at the columns, those of learned keys included.
    row_places: the positions of the chosen rows.
    average: the weights of all heads together; None for no map of them.
    """
    maps = [_map_of_head(head, axes.rows, keys, view) for head in head_weights]
    # (heads that the style names are not all of those that the average is of)
    if average is not None and len(maps) > 1 and not drawing.choice.heads:
        average_map = replace(
            maps[0],
            caption=say(view, "average"),
            values=as_matrix(average),
            short=("", ""),
        )
        maps.append(average_map)
    if drawing.choice.rows:
        maps = [_with_rows(figure_map, row_places, axes.rows) for figure_map in maps]
    queries = axes.queries
    if queries is None:  # the rows are tokens one after the other, from the first
        queries = range(len(axes.rows))
    positions = [queries[place] for place in row_places]
    maps = [replace(figure_map, row_positions=positions) for figure_map in maps]
    return [_with_bands(figure_map, axes, positions) for figure_map in maps]


def _draw_mean_sentence(
    drawing: Drawing,
    maps: Sequence[FigureMap],
    keys: Sequence[str],
    text: Sequence[TokenRow],
    query: int,
    top: float,
) -> float:
    """Draw the sentence, shaded by where the token at `query` looks on average over the maps (their
    first row), most strongly at the word it looks at most. Returns where what follows begins.

    keys: the words of the sentence.
    text: their tokens, which say where no space stands between two words.
    top: where the sentence begins, in points from the upper edge.
    """
    mean = _mean_of_visible(np.stack([head.values[0] for head in maps]))
    high = float(mean.max()) or 1.0  # 1, to divide by, where all are 0
    shares = [float(weight) / high for weight in mean]
    follows = _follows_directly(text, len(keys))
    end = draw_sentence(drawing, keys, follows, shares, query, top)
    return _below_sentence(end, top)


def _kinds_of_maps(drawing: Drawing, maps: int, heads: int, chosen_heads: bool) -> list[str]:
    """Whether maps are drawn small, large or both, in the words of `map_kinds`. Of heads that the
    user named, a map of their average does not count.

    maps, heads: how many there are.
    """
    if chosen_heads or drawing.choice.heads:
        return map_kinds(drawing, heads, chosen_heads=True)
    return map_kinds(drawing, maps)


def _with_rows(figure_map: FigureMap, chosen: Sequence[int], rows: Sequence[str]) -> FigureMap:
    """The map with the chosen rows only. Raises UsageError where a cell of it is several pooled
    tokens, so that a token has no row of its own.

    chosen: positions of the rows.
    rows: the words of all rows.
    """
    if len(figure_map.values) != len(rows):
        raise UsageError(
            "--figure-style rows: the cells of this map hold several tokens each",
            expected="a shorter text, or --layer and --head",
        )
    return replace(
        figure_map, values=figure_map.values[list(chosen)], rows=[rows[place] for place in chosen]
    )


def _with_bands(figure_map: FigureMap, axes: MapAxes, positions: Sequence[int]) -> FigureMap:
    """The map with coloured bands along its edges that show which tokens are in which region.

    positions: of the tokens that the map's rows are.
    """
    if not axes.regions:
        return figure_map
    return replace(
        figure_map,
        row_bands=bands_of(axes.regions, positions),
        column_bands=bands_of(axes.regions, range(len(axes.keys))),
    )


LEAST_LINK = 0.02
"""The weight from which on a link is a line."""
MOST_LINKED = 12
"""Heads whose links are drawn beside each other."""
STRONGEST = 40
"""Links of a text that is too long for all of its words."""


def _draw_all_links(drawing: Drawing, maps: Sequence[FigureMap], top: float, view: View) -> float:
    """Draw weights as lines between words: by itself for a single head of a short text; where the
    user asked for links, for each head, of a long text the strongest. Returns where they end, or 16
    points above `top` (where the maps ended) where none are drawn.

    Raises:
        UsageError: The user asked for them, of more than 12 heads.
    """
    is_asked = drawing.is_asked_for("links")
    fits = len(maps) == 1 and max(len(maps[0].rows), len(maps[0].columns)) <= WORDS
    if not drawing.shows("links") or not (is_asked or (fits and len(maps[0].rows) > 1)):
        return top - 16
    if len(maps) > MOST_LINKED:
        raise UsageError(
            "--figure-parts links: {count} heads are too many for links",
            expected="at most {most}, such as --figure-style heads=L0H0+L0H1",
            count=len(maps),
            most=MOST_LINKED,
        )
    # each head has its column of the paper, 16 points from the next; `left` and `begin` are where
    # one begins, `bottom` is where the lowest ends
    columns = min(drawing.choice.columns or LINKS_ACROSS, len(maps))
    paper = drawing
    if not math.isinf(drawing.room):  # a paper of no fixed width has room for any
        paper = replace(drawing, room=(drawing.room - 16 * (columns - 1)) / columns)
    left = 0.0
    begin = top
    bottom = top
    drawing.breaks.append(top)
    for index, figure_map in enumerate(maps):
        if index and index % columns == 0:
            left = 0.0
            begin = bottom + 12
            drawing.breaks.append(begin)
        upper = begin
        if len(maps) > 1:
            caption = shorten_to_fit(figure_map.caption, 9, paper.room / BOLD)
            drawing.text(left, begin + 9, caption, bold=True)
            upper += 16
        links, queries, keys = _links_of(figure_map)
        right, end = draw_links(paper, links, queries, keys, upper, left=left)
        left = max(right, left + 90) + 16  # at least 90 points: a caption needs them
        bottom = max(bottom, end)
    return bottom


LINKS_ACROSS = 3
"""Heads beside each other whose links are drawn."""


def _links_of(
    figure_map: FigureMap,
) -> tuple[list[tuple[int, int, float]], Sequence[str], Sequence[str]]:
    """The links of a head as (row, column, weight), and the words of these rows and of these columns:
    all words of a short text; of a long one only those of the strongest links, and rows and columns
    then count these."""
    values = np.nan_to_num(figure_map.values)
    links = [(int(i), int(j), float(values[i, j])) for i, j in np.argwhere(values > LEAST_LINK)]
    rows, columns = figure_map.rows, figure_map.columns
    positions = figure_map.row_positions
    if positions is None:
        positions = range(len(rows))
    if max(len(rows), len(columns)) <= WORDS:
        return links, rows, columns
    strongest = sorted(links, key=lambda link: -link[2])[:STRONGEST]  # by weight
    queries = sorted({query for query, _, _ in strongest})
    keys = sorted({key for _, key, _ in strongest})
    links = [(queries.index(query), keys.index(key), weight) for query, key, weight in strongest]
    return (
        links,
        [f"{positions[place]} {rows[place]}" for place in queries],
        [f"{place} {columns[place]}" for place in keys],
    )


USUAL_ACROSS = 8
"""Maps side by side where a layer's heads are too few or too many for a row of the figure."""


def _maps_across(head_weights: Sequence[HeadWeights], maps: Sequence[FigureMap]) -> int:
    """How many maps stand side by side: the heads of a layer where these are 4 to 16, else 8."""
    if len(maps) <= 3:  # in one row in any case
        return USUAL_ACROSS
    counts = Counter(head.layer for head in head_weights if head.layer is not None)
    heads_of_layer = max(counts.values(), default=0)
    if 4 <= heads_of_layer <= 16:
        return heads_of_layer
    return USUAL_ACROSS
