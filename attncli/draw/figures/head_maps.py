"""Maps of the weights of heads, as figures draw them: one for each head, of a single query one for
all; above the links of a single head of a short text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from attncli.documents import Numbers, TokenRow
from attncli.draw.figures.charts import (
    FigureMap,
    draw_links,
    draw_maps,
    draw_sentence,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.shaded_matrix import as_matrix, visible
from attncli.draw.token_names import key_names, quoted_word
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.language import say
from attncli.measure.run_record import check_heads

WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""


class HeadWeights(Struct, frozen=True):
    """The weights of one head as a document holds them, with its scores if known.

    layer: of captured arrays the place in the batch, None in a batch of one.
    pool: tokens pooled into one cell, along either axis.
    """

    name: str
    layer: int | None
    head: int
    weights: Numbers
    scores: Numbers | UnsetType = UNSET
    pool: int = 1


def _mean_of_visible(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean weight of each key over the heads that see it; 0 where none does.

    weights: [head, key], NaN is hidden.
    """
    visible = np.isfinite(weights)
    return np.where(visible, weights, 0.0).sum(0) / np.maximum(visible.sum(0), 1)


def _map_of_heads(
    maps: Sequence[FigureMap], query: str, keys: Sequence[str], view: View
) -> FigureMap:
    """The maps of a single query as one, whose rows are the heads."""
    names = [".".join(filter(None, figure_map.short)) or figure_map.caption for figure_map in maps]
    caption = say(view, "where {query} looks, by layer and head", query=quoted_word(query, view))
    values = np.concatenate([figure_map.values for figure_map in maps])
    return FigureMap(caption, values, names, keys)


def _map_of_head(
    head: HeadWeights, rows: Sequence[str], keys: Sequence[str], view: View
) -> FigureMap:
    """A head's weights under its name, with the number of cells that are pooled in one."""
    name = head.name
    if head.pool > 1:
        name += say(view, ", pooled {pool}×", pool=head.pool)
    if head.layer is None:
        layer = ""
    else:
        layer = str(head.layer)
    values = visible(head.weights, head.scores)
    return FigureMap(name, values, rows, keys, short=(layer, str(head.head)))


def _follows_directly(tokens: Sequence[TokenRow], count: int) -> list[bool]:
    """Which words follow the one before without a space, of as many as are shown."""
    shown = tokens[:count]
    ends = [None, *(token.end for token in shown)]
    follows = [
        token.start is not None and token.start == end
        for token, end in zip(shown, ends, strict=False)
    ]
    return follows + [False] * (count - len(follows))


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


def draw_head_maps(
    drawing: Drawing,
    head_weights: Sequence[HeadWeights],
    rows: Sequence[str],
    keys: Sequence[str],
    top: float,
    view: View,
    *,
    scale: str,
    average: Numbers | None = None,
    text: Sequence[TokenRow] = (),
    query: int | None = None,
) -> float:
    """The maps of heads, below the sentence of a single query, above the links of a single head.
    Returns where they end.

    rows, keys: the words at the rows (queries) and the columns (keys).
    average: the weights of all heads together, drawn as a map of its own.
    text: the tokens of the sentence that is shaded by where the token at `query` looks; none is
        drawn where that is None.
    """
    keys = key_names(keys, visible(head_weights[0].weights, head_weights[0].scores))
    maps = [_map_of_head(head, rows, keys, view) for head in head_weights]
    if average is not None and len(maps) > 1:
        maps.append(FigureMap(say(view, "average"), as_matrix(average), rows, keys))
    if query is not None and len(keys) <= WORDS:
        mean = _mean_of_visible(np.stack([head.values[0] for head in maps]))
        high = float(mean.max()) or 1.0
        shares = [float(weight) / high for weight in mean]
        follows = _follows_directly(text, len(keys))
        top = draw_sentence(drawing, keys, follows, shares, query, top) + 14
    if len(rows) == 1 and len(maps) > 1:
        maps = [_map_of_heads(maps, rows[0], keys, view)]
        return draw_maps(drawing, maps, top, view, scale=scale)
    top = draw_maps(drawing, maps, top, view, scale=scale, across=_maps_across(head_weights, maps))
    if len(maps) == 1 and max(len(rows), len(keys)) <= WORDS and len(rows) > 1:
        values = np.nan_to_num(maps[0].values)
        links = [(int(i), int(j), float(values[i, j])) for i, j in np.argwhere(values > 0.02)]
        top = draw_links(drawing, links, rows, keys, top + 16)
    return top


def _maps_across(head_weights: Sequence[HeadWeights], maps: Sequence[FigureMap]) -> int:
    """Maps side by side: the heads of a layer where they fit, else 8."""
    if len(maps) <= 3:
        return 8
    layers = Counter(head.layer for head in head_weights if head.layer is not None)
    most = max(layers.values(), default=3)
    if 4 <= most <= 16:
        return most
    return 8
