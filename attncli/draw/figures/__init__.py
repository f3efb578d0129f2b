"""Figures as SVG, PNG and PDF: maps, rankings and curves of what a document holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, assert_never

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.documents import Document, Numbers
from attncli.documents.parts import Metrics, RegionPart
from attncli.draw.figures.charts import (
    RANKED,
    Bar,
    FigureHead,
    FigureMap,
    bar_of,
    draw_bars,
    draw_curves,
    draw_links,
    draw_maps,
    draw_metrics,
    draw_sentence,
    draw_title,
    model_note,
    names_of,
    text_note,
)
from attncli.draw.figures.drawing import LIGHT, Drawing, Theme, broken_to_fit
from attncli.draw.numbers import format_period, percent, writer
from attncli.draw.page.page_words import PAGE_WORDS
from attncli.draw.region_tables import region_order
from attncli.draw.safe import label, safe
from attncli.draw.shaded_matrix import as_matrix, head_grid, visible
from attncli.draw.token_names import (
    key_names,
    name_tokens,
    quote_text,
    quoted_token,
    quoted_word,
    region_name,
)
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.features.cache.document import CacheDocument
from attncli.features.compare.document import ComparedHead, CompareDocument
from attncli.features.cost.document import CostDocument, variant_name
from attncli.features.cross.document import CrossDocument
from attncli.features.effects.document import (
    LENS_STAGES,
    AblateDocument,
    LensRow,
    LogitsDocument,
    PatchDocument,
    logit_part_name,
    reading_of,
    readings_of,
)
from attncli.features.find.document import FindDocument, PairLink
from attncli.features.heads.document import HeadMetrics, HeadsDocument
from attncli.features.learn.document import LearnDocument, curve_note, reference_name, score_name
from attncli.features.mask.document import MaskDocument
from attncli.features.run.document import RunDocument
from attncli.features.series.document import SeriesDocument, curve_points, has_steps, metric_name
from attncli.features.tensors.document import TensorsDocument
from attncli.features.why.document import (
    WhyDocument,
    WhyPart,
    earlier_heads,
    part_title,
    ranked_parts,
    source_of,
)
from attncli.language import contextual, listing, message, plural, say
from attncli.measure.metric import METRIC_TITLES
from attncli.measure.run_record import check_heads
from attncli.mechanism.spec import head_name, spoken_head

# The figure of the weights of heads: a map of each; with one query its sentence; their metrics.

WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""
AboutHeads = RunDocument | HeadsDocument | CrossDocument | TensorsDocument


@dataclass(frozen=True)
class HeadWeights:
    """The weights of one head as a document holds them, with its scores if known. layer: of
    captured arrays the place in the batch, None in a batch of one. pool: tokens pooled into one
    cell, along either axis."""

    name: str
    layer: int | None
    head: int
    weights: Numbers
    scores: Numbers | UnsetType = UNSET
    pool: int = 1


def draw_regions(
    drawing: Drawing,
    document: RunDocument | HeadsDocument,
    part: RegionPart,
    top: float,
    view: View,
) -> float:
    """Draw how much of the query's attention goes to each region (a named set of tokens), the
    largest first, beside uniform attention; then maps of layers × regions and regions × regions.

    top: where the drawing begins, in points. Returns where it ends.
    """
    names = [region_name(region.name, view) for region in document.regions or ()]
    token = quoted_token(document.tokens, part.query, view)
    drawing.text(
        0,
        top + 10,
        say(view, "of what {token} looks at; line: even attention", token=token),
        quiet=True,
    )
    order = [place for place in region_order(part) if np.isfinite(part.share[place])]
    bars = [
        Bar(
            names[place],
            float(part.share[place]),
            percent(float(part.share[place]), 1),
            float(part.even[place]),
        )
        for place in order
    ]
    top = draw_bars(drawing, bars, top + 20, most=1.0) + 24
    maps = [FigureMap(say(view, "region to region"), part.between, names, names)]
    if len(part.layers) > 1:
        layers = [say(view, "layer {layer}", layer=layer) for layer in part.layers]
        maps.insert(0, FigureMap(say(view, "regions by layer"), part.by_layer, layers, names))
    return draw_maps(drawing, maps, top, view, scale="linear")


def draw_heads(drawing: Drawing, document: AboutHeads, scale: str, view: View) -> None:
    """Draw a map of the weights of every head, with one query its tinted sentence, with one head of
    a short text its links; then the heads' metrics.

    Raises:
        InputError: the document was shortened, and holds neither weights nor metrics.
        LimitError: it holds more heads than anybody waits for.
    """
    weights = list(_head_weights(document, view))
    head_metrics = document.heads if isinstance(document, HeadsDocument) else []
    check_heads(max(len(weights), len(head_metrics)))
    if not weights and not head_metrics:
        raise InputError(
            "this document holds no weights to draw",
            expected="one that was not shortened by --show",
        )
    top = draw_title(
        drawing, _title(document), model_note(document, view) if weights else say(view, "metrics")
    )
    if isinstance(document, HeadsDocument) and document.region_shares is not UNSET:
        top = draw_regions(drawing, document, document.region_shares, top, view) + 20
    if weights:
        top = _draw_maps(drawing, document, weights, top, scale, view)
    if head_metrics:
        names = head_metrics[0].metrics
        titles = {
            name: say(view, METRIC_TITLES[name]) if name in METRIC_TITLES else name
            for name in names
        }
        heads = [_figure_head(metrics, view) for metrics in head_metrics]
        note = say(view, "line: what uniform weights would give")
        draw_metrics(drawing, heads, titles, top + (20 if weights else 0), line_note=note)


def _mean_of_visible(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean weight of each key over the heads that see it; 0 where none does. weights: [head,
    key], NaN is hidden.
    """
    visible = np.isfinite(weights)
    return np.where(visible, weights, 0.0).sum(0) / np.maximum(visible.sum(0), 1)


def _draw_maps(
    drawing: Drawing,
    document: AboutHeads,
    head_weights: list[HeadWeights],
    top: float,
    scale: str,
    view: View,
) -> float:
    """The maps of heads, below the sentence of a single query, above the links of a single head.
    Returns where they end.
    """
    first = visible(head_weights[0].weights, head_weights[0].scores)
    rows, keys = _row_and_column_words(document)
    keys = key_names(keys, first)
    maps = [_map_of_head(head, rows, keys, view) for head in head_weights]
    average = document.average if isinstance(document, HeadsDocument) else None
    if average and len(maps) > 1:
        maps.append(FigureMap(say(view, "average"), as_matrix(average.weights), rows, keys))
    if isinstance(document, RunDocument) and document.queries and len(keys) <= WORDS:
        mean = _mean_of_visible(np.stack([head.values[0] for head in maps]))
        high = float(mean.max()) or 1.0
        shares = [float(weight) / high for weight in mean]
        follows_directly = _follows_directly(document, len(keys))
        top = draw_sentence(drawing, keys, follows_directly, shares, document.queries[0], top) + 14
    if len(rows) == 1 and len(maps) > 1:
        maps = [_map_of_heads(maps, rows[0], keys, view)]
        return draw_maps(drawing, maps, top, view, scale=scale)
    across = 8
    if len(maps) > 3:
        layers = Counter(head.layer for head in head_weights if head.layer is not None)
        most = max(layers.values(), default=3)
        if 4 <= most <= 16:
            across = most
    top = draw_maps(drawing, maps, top, view, scale=scale, across=across)
    if len(maps) == 1 and max(len(rows), len(keys)) <= WORDS and len(rows) > 1:
        values = np.nan_to_num(maps[0].values)
        links = [(int(i), int(j), float(values[i, j])) for i, j in np.argwhere(values > 0.02)]
        top = draw_links(drawing, links, rows, keys, top + 16)
    return top


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
    layer = "" if head.layer is None else str(head.layer)
    values = visible(head.weights, head.scores)
    return FigureMap(name, values, rows, keys, short=(layer, str(head.head)))


def _title(document: AboutHeads) -> str:
    """What a document of heads is about: its text, or the name of the file that its tensors are
    from.
    """
    match document:
        case CrossDocument():
            return document.query_text
        case TensorsDocument():
            return PurePath(document.file).name
        case _:
            return document.text


def _head_weights(document: AboutHeads, view: View) -> Iterator[HeadWeights]:
    """The heads whose weights the document holds."""
    match document:
        case RunDocument():
            yield from _run_weights(document, view)
        case CrossDocument():
            for part in document.layers:
                for cross_head in part.heads:
                    name = say(view, spoken_head(part.layer, cross_head.head))
                    yield HeadWeights(
                        name, part.layer, cross_head.head, cross_head.weights, cross_head.scores
                    )
        case HeadsDocument():
            for row in document.heads:
                if row.weights is not UNSET:
                    name = say(view, spoken_head(row.layer, row.head))
                    pool = row.pool or 1
                    yield HeadWeights(name, row.layer, row.head, row.weights, UNSET, pool)
        case TensorsDocument():
            yield from _tensor_weights(document, view)
        case _:
            assert_never(document)


def _run_weights(document: RunDocument, view: View) -> Iterator[HeadWeights]:
    """The heads of a run: those whose weights it holds, or the small maps of all."""
    for layer in document.layers:
        for head in layer.heads:
            if head.weights is not UNSET:
                name = say(view, spoken_head(layer.layer, head.head))
                yield HeadWeights(name, layer.layer, head.head, head.weights, head.scores)
    if any(layer.heads for layer in document.layers):
        return
    for pooled in document.maps or ():
        name = say(view, spoken_head(pooled.layer, pooled.head))
        yield HeadWeights(name, pooled.layer, pooled.head, pooled.weights, UNSET, pooled.pool)


def _tensor_weights(document: TensorsDocument, view: View) -> Iterator[HeadWeights]:
    """The heads of a file of tensors, with their place in its batch where that holds several."""
    several = len(document.batch) > 1
    if several:
        template = message("batch {batch} head {head}")
    else:
        template = message("head {head}")
    for place, entry in enumerate(document.batch):
        for head in entry.heads:
            if head.weights is not UNSET:
                batch = ".".join(map(str, entry.index))
                name = say(view, template, batch=batch, head=head.head)
                layer = place if several else None
                yield HeadWeights(name, layer, head.head, head.weights, head.scores)


def _row_and_column_words(document: AboutHeads) -> tuple[list[str], list[str]]:
    """The words at the rows (queries) and the columns (keys) of the document's attention maps."""
    match document:
        case TensorsDocument():
            return [*map(str, range(document.queries))], [*map(str, range(document.keys))]
        case CrossDocument():
            return names_of(document.queries), names_of(document.keys)
        case _:
            keys = names_of(document.tokens)
            queries = document.queries if isinstance(document, RunDocument) else UNSET
            return [keys[index] for index in queries or range(len(keys))], keys


def _follows_directly(document: RunDocument, count: int) -> list[bool]:
    """Which words follow the one before without a space, of as many as are shown."""
    tokens = document.tokens[:count]
    ends = [None, *(token.end for token in tokens)]
    follows = [
        token.start is not None and token.start == end
        for token, end in zip(tokens, ends, strict=False)
    ]
    return follows + [False] * (count - len(follows))


def _figure_head(head: HeadMetrics, view: View) -> FigureHead:
    """A head's metrics and those of uniform weights, as figures draw them."""

    def values(metrics: Metrics | UnsetType) -> dict[str, float | None]:
        """The number of each metric."""
        return {name: metric.value for name, metric in (metrics or {}).items()}

    name = say(view, spoken_head(head.layer, head.head))
    return FigureHead(head.layer, head.head, name, values(head.metrics), values(head.baseline))


# Figures of effects: what heads change, what they bring back, what they add to a logit.

HeadNumber = tuple[int, int, float | None, float | None]
"""Layer, head, the number of it, and the number to compare it with."""


def draw_ablation(drawing: Drawing, document: AblateDocument, view: View) -> None:
    """Draw what removing each head changes in the first measure: a map of layers × heads, and the
    heads of the largest change, with a line where a random change of the same size lies."""
    name = readings_of(document.measures)[0]
    rows = [
        (
            row.layer,
            row.head,
            reading_of(row, name),
            None if row.random is None else reading_of(row.random, name),
        )
        for row in document.effects
        if row.attention == "self"
    ]
    by = _words_of("by", document.by, view)
    measure = _words_of("measure", name, view)
    template = contextual("figure", "what changes when one head is taken away ({by}): {measure}")
    top = draw_title(drawing, document.text, say(view, template, by=by, measure=measure))
    _draw_ranking(drawing, rows, top, view)


def _words_of(group: str, name: str, view: View) -> str:
    """The words in the view's language for a name that a document uses, such as a measure (group
    "measure"); the name itself where there are none."""
    words = PAGE_WORDS.get(f"{group}.{name}")
    if words is None:
        return name
    return say(view, words)


def draw_patching(drawing: Drawing, document: PatchDocument, view: View) -> None:
    """Draw how much of the clean text's result each head restores when it is patched into the
    corrupt text: a map of layers × heads, and the largest."""
    measure = _words_of(
        "patch" if document.measure == "cosine" else "measure", document.measure, view
    )
    subtitle = say(
        view,
        "clean into corrupt, one head at a time: what it brings back of {measure}",
        measure=measure,
    )
    top = draw_title(drawing, f"{document.clean}  →  {document.corrupt}", subtitle)
    rows = [
        (row.layer, row.head, row.recovered, None)
        for row in document.effects
        if row.attention == "self"
    ]
    _draw_ranking(drawing, rows, top, view)


def draw_logits(drawing: Drawing, document: LogitsDocument, view: View) -> None:
    """Draw what each head adds to the target's logit as a map of layers × heads, then all parts of
    the model ranked by it, then the logit lens if there is one."""
    heads = [
        (part.layer, part.head, part.value, None)
        for part in document.parts
        if part.attention == "self" and part.layer is not None and part.head is not None
    ]
    place = label(document.tokens[document.position].text)
    target = label(document.target_name())
    logit = f"{document.logit:.3f}"
    subtitle = say(
        view,
        "what adds to the logit of {target} at {place}: {logit}",
        target=target,
        place=place,
        logit=logit,
    )
    top = draw_title(drawing, document.text, subtitle)
    top = _draw_grid(drawing, heads, top, view)
    parts = sorted(document.parts, key=lambda part: -abs(part.value))[:RANKED]
    bars = [bar_of(say(view, logit_part_name(part)), part.value, signed=True) for part in parts]
    top = draw_bars(drawing, bars, top + 16)
    if document.lens is not UNSET:
        _draw_lens(drawing, document.lens, quote_text(document.target.text, view), top + 22, view)


def _draw_lens(
    drawing: Drawing, rows: Sequence[LensRow], target: str, top: float, view: View
) -> None:
    """Draw the logit lens: the target's probability and rank after each part of each layer, and the
    likeliest token there."""
    title = say(
        view, "what each layer would say next, and how likely {target} is there", target=target
    )
    drawing.text(0, top, title, size=9, bold=True)
    bars = []
    for row in rows:
        stage = say(view, LENS_STAGES[row.stage])
        if row.layer is None:
            name = stage
        else:
            name = say(view, "layer {layer} {stage}", layer=row.layer, stage=stage)
        if row.top:
            first = label(row.top[0].token.text)
        else:
            first = ""
        bars.append(
            bar_of(
                name, row.probability, more=say(view, "rank {rank}", rank=row.rank) + f" · {first}"
            )
        )
    draw_bars(drawing, bars, top + 8)


# The figure of why a head looks at a key: both sides ranked, and the earlier heads.


def draw_why(drawing: Drawing, document: WhyDocument, view: View) -> None:
    """Draw why a head's query looks at a key: the parts of either vector as bars by what they add
    to the score, each with the weight that would be left without it; and the earlier heads by what
    they add. Of a score taken apart by entries of q and k, those alone."""
    link = document.link
    query = label(document.tokens[link.query].text)
    key = label(document.keys[link.key].text)
    total = writer([document.total], 2)(document.total)
    places = {
        "layer": link.layer,
        "head": link.head,
        "weight": f"{document.weight:.2f}",
        "total": total,
    }
    if isinstance(document.centred, str):
        template = message(
            "layer {layer} head {head}, weight {weight}: the score is {total} above what the row"
            " expects"
        )
    else:
        template = message(
            "layer {layer} head {head}, weight {weight}: the score is {total} above that of {other}"
        )
        places["other"] = label(document.keys[document.centred.key].text)
    subtitle = say(view, template, **places)
    top = draw_title(drawing, f"{query}  →  {key}", f"{subtitle}; {text_note(document, view)}")
    if document.dimensions:
        pairs = message("by pairs of entries that are rotated together")
        entries = message("by entries of q and k")
        drawing.text(
            0,
            top + 9,
            say(view, pairs if document.by == "frequency" else entries),
            size=9,
            bold=True,
        )
        bars = []
        for row in sorted(document.dimensions, key=lambda row: -abs(row.contribution))[:RANKED]:
            if row.period is None:
                period = ""
            else:
                period = say(view, "period {period}", period=format_period(row.period))
            bars.append(
                bar_of(
                    ", ".join(map(str, row.dimensions[:2])),
                    row.contribution,
                    signed=True,
                    more=period,
                )
            )
        draw_bars(drawing, bars, top + 16)
        return
    titles = {
        "query": say(view, "what asks: parts of {query}", query=query),
        "key": say(view, "what answers: parts of {key}", key=key),
    }
    sides: tuple[Literal["query", "key"], ...] = ("query", "key")
    for side in sides:
        drawing.text(0, top + 9, titles[side], size=9, bold=True)
        bars = []
        for part, value in ranked_parts(document, side)[: RANKED // 2]:
            without = part.weight_without.query if side == "query" else part.weight_without.key
            if without is None:
                more = ""
            else:
                more = say(view, "without: {weight}", weight=f"{without:.2f}")
            bars.append(bar_of(_part_label(part, document, view), value, signed=True, more=more))
        top = draw_bars(drawing, bars, top + 16) + 14
    heads = earlier_heads(document)
    grid_titles = {
        "self": say(view, "what earlier heads add to the advantage, both sides"),
        "cross": say(
            view, "what earlier heads of {query} add to the advantage: cross-attention", query=query
        ),
        "encoder": say(view, "what the encoder's heads of {key} add to the advantage", key=key),
    }
    if link.attention == "cross":
        grid_titles["self"] = say(
            view, "what earlier heads of {query} add to the advantage", query=query
        )
    for kind in heads:
        drawing.text(0, top + 9, grid_titles[kind], size=9, bold=True)
        top = _draw_grid(drawing, [(*row, None) for row in heads[kind]], top + 24, view) + 14


def _part_label(part: WhyPart, document: WhyDocument, view: View) -> str:
    """A part's name; for one that an earlier head carried from another token, with that token
    behind an arrow.
    """
    name = say(view, part_title(part, document))
    source = source_of(part, document)
    if source is None:
        return name
    return f"{name} ← {label(source[0].text)}{source[1]}"


def _draw_ranking(drawing: Drawing, rows: Sequence[HeadNumber], top: float, view: View) -> None:
    """Draw a map of layers × heads, then the heads of the largest numbers by magnitude as bars.
    rows: layer, head, number, and the number of a random change (None for none)."""
    top = _draw_grid(drawing, rows, top, view)
    ranking = sorted(
        (row for row in rows if row[2] is not None), key=lambda row: -abs(row[2] or 0)
    )[:RANKED]
    bars = [
        bar_of(say(view, spoken_head(layer, head)), value or 0.0, mark=random)
        for layer, head, value, random in ranking
    ]
    if any(bar.mark is not None for bar in bars):
        drawing.text(
            0, top + 20, say(view, "line: a random change of the same size"), size=8.5, quiet=True
        )
        top += 16
    draw_bars(drawing, bars, top + 16)


def _draw_grid(drawing: Drawing, rows: Sequence[HeadNumber], top: float, view: View) -> float:
    """Draw a map of layers × heads of these rows (layer, head, number, and one not drawn here).
    Returns where it ends."""
    grid_map = _grid_map(say(view, "layers × heads"), (row[:3] for row in rows))
    if (
        not grid_map.values.size
    ):  # it tells of heads together, or of those that look at another text
        return top
    is_signed = bool((np.nan_to_num(grid_map.values) < 0).any())
    return draw_maps(drawing, [replace(grid_map, signed=is_signed)], top, view, scale="linear")


def _grid_map(caption: str, numbers: Iterable[tuple[int, int, float | None]]) -> FigureMap:
    """A map of layers × heads from the layer, the head and the number of each."""
    grid = head_grid(numbers)
    return FigureMap(caption, grid.values, [*map(str, grid.layers)], [*map(str, grid.heads)])


def figure(
    document: Document,
    *,
    scale: str = "linear",
    theme: Theme = LIGHT,
    lang: str = "en",
    room: float = math.inf,
) -> Drawing | None:
    """A document's figure as a drawing; None for a kind of document that is words and tables and
    has none. Raises InputError where it holds nothing to draw. scale: of colours, as `normalise`
    takes it. room: points from left to right that it may take (see `Style.room`)."""
    drawing = Drawing(theme, room=room)
    view = View(lang=lang)
    document = name_tokens(document)
    match document:
        case RunDocument() if document.region_shares is not UNSET:
            top = draw_title(drawing, _title(document), model_note(document, view))
            draw_regions(drawing, document, document.region_shares, top, view)
        case RunDocument() | HeadsDocument() | CrossDocument() | TensorsDocument():
            draw_heads(drawing, document, scale, view)
        case CompareDocument():
            _draw_comparison(drawing, document, scale, view)
        case FindDocument():
            _draw_found_heads(drawing, document, view)
        case AblateDocument():
            draw_ablation(drawing, document, view)
        case PatchDocument():
            draw_patching(drawing, document, view)
        case LogitsDocument():
            draw_logits(drawing, document, view)
        case WhyDocument():
            draw_why(drawing, document, view)
        case MaskDocument():
            _draw_masks(drawing, document, view)
        case CostDocument():
            _draw_cost(drawing, document, view)
        case CacheDocument():
            _draw_policies(drawing, document, view)
        case LearnDocument():
            _draw_learning(drawing, document, view)
        case SeriesDocument():
            _draw_series(drawing, document, view)
        case _:
            return None
    return drawing


TITLES = (
    ("text",),
    ("query_text", "key_text"),
    ("clean", "corrupt"),
    ("a.text", "b.text"),
    ("file",),
    ("task",),
)
"""Members of documents that they are about."""


def title_and_description(document: Document, lang: str) -> tuple[str, str]:
    """A title (what a document is about) and a description (what it says), for those who do not see
    its figure.
    """
    from attncli.draw.screen_header import screen_of

    def member(path: str) -> str:
        """The text of a member of the document, found by its path; "" where it has none."""
        value: Any = document
        for name in path.split("."):
            value = getattr(value, name, "")
        if not isinstance(value, str):
            return ""
        if path == "file":
            return PurePath(value).name
        return value

    names = [[text for path in paths if (text := member(path))] for paths in TITLES]
    title = next(
        (" → ".join(dict.fromkeys(texts)) for texts in names if texts), str(document.schema)
    )
    screen = screen_of(document.schema)
    if screen.sentences is not None:
        return title, " ".join(text for text in screen.sentences(document, View(lang=lang)) if text)
    answer = screen.screen(document, View(lang=lang, width=4000, brief=True, color=True))
    return title, " ".join(answer.plain.split())


def _draw_comparison(drawing: Drawing, document: CompareDocument, scale: str, view: View) -> None:
    """Draw a comparison of runs A and B: for the head that differs most the weights of either and B
    − A, then the change of each region, then the largest change of a weight in each head."""

    def size(head: ComparedHead) -> float:
        """The size of a head's largest change of a weight."""
        if head.change:
            return abs(head.change.value)
        return 0.0

    most_changed = max(document.heads, key=size)
    names = names_of(document.a.tokens)
    words = [names[pair[0]] for pair in document.aligned]
    subtitle = say(
        view,
        "{head}, which differs most",
        head=say(view, spoken_head(most_changed.a.layer, most_changed.a.head)),
    )
    texts = [
        side.text if "text" in document.differs else side.name for side in (document.a, document.b)
    ]
    titles = [f"{name}: {text}" for name, text in zip("AB", texts, strict=True)]
    top = draw_title(drawing, "  →  ".join(titles), f"{subtitle}; {model_note(document.a, view)}")
    maps = [
        FigureMap(name, as_matrix(weights), words, words)
        for name, weights in zip(
            "AB", (most_changed.weights_a, most_changed.weights_b), strict=True
        )
    ]
    maps.append(FigureMap("B − A", as_matrix(most_changed.difference), words, words, signed=True))
    top = draw_maps(drawing, maps, top, view, scale=scale)
    if document.region_changes is not UNSET:
        changes = [
            (region_name(region.name, view), region.change.difference)
            for region in document.region_changes
        ]
        if document.region_rest is not UNSET:
            changes.append((say(view, "rest"), document.region_rest.difference))
        bars = [
            bar_of(name, difference, signed=True)
            for name, difference in changes
            if difference is not None
        ]
        drawing.text(
            0, top + 20, say(view, "what goes to each region: B − A"), size=8.5, quiet=True
        )
        top = draw_bars(drawing, bars, top + 30)
    if len(document.heads) > 1:
        heads = sorted(document.heads, key=size, reverse=True)[:RANKED]
        changes_of = [
            (say(view, spoken_head(head.a.layer, head.a.head)), head.change) for head in heads
        ]
        bars = [
            bar_of(name, change.value if change else 0.0, signed=True)
            for name, change in changes_of
        ]
        draw_bars(drawing, bars, top + 16)


def _draw_found_heads(drawing: Drawing, document: FindDocument, view: View) -> None:
    """A bar for the weight of the link in each head, the largest first."""
    if document.pair_links is not UNSET:
        _draw_pair_links(drawing, document.pair_links, view)
        return
    regions = {row.tokens[0]: region_name(row.name, view) for row in document.regions or ()}
    names = dict(enumerate(names_of(document.tokens))) | regions
    top = draw_title(
        drawing, f"{names[document.query]}  →  {names[document.key]}", text_note(document, view)
    )
    bars = []
    for row in document.heads[:RANKED]:
        if row.rank is None:
            rank = ""
        else:
            rank = say(view, "rank {rank}", rank=row.rank)
        bars.append(bar_of(say(view, spoken_head(row.layer, row.head)), row.weight, more=rank))
    draw_bars(drawing, bars, top)


def _draw_pair_links(drawing: Drawing, links: Sequence[PairLink], view: View) -> None:
    """A bar for how much more weight the link has in the clean texts of pairs than in the corrupt
    ones, in each head."""
    title = say(view, "weights of the link, means over pairs, the largest change first")
    top = draw_title(drawing, title, say(view, "clean less corrupt"))
    bars = [
        bar_of(say(view, spoken_head(row.layer, row.head)), row.change, more=percent(row.weight))
        for row in links[:RANKED]
    ]
    draw_bars(drawing, bars, top)


def _draw_masks(drawing: Drawing, document: MaskDocument, view: View) -> None:
    """A map of each mask, and of all together."""
    masks = [*document.masks, *([document.combined] if document.combined else [])]
    if len(masks) > 1:
        title = say(view, "masks")
    else:
        title = masks[0].spec
    note = say(view, contextual("figure", "filled: visible; rows are queries, columns keys"))
    top = draw_title(drawing, title, note)
    maps = []
    for mask in masks:
        values = as_matrix(mask.map.share)
        rows, columns = ([str(index) for index in range(count)] for count in values.shape)
        name = mask.spec or say(view, contextual("figure", "all together"))
        maps.append(FigureMap(f"{name} · {percent(mask.share, 1)}", values, rows, columns))
    shaded = any(not np.isin(figure_map.values, (0.0, 1.0)).all() for figure_map in maps)
    draw_maps(drawing, maps, top, view, scale="linear", legend=shaded)


def _draw_policies(drawing: Drawing, document: CacheDocument, view: View) -> None:
    """Draw how much of the last token's attention each cache policy keeps, as bars; then layers ×
    heads of each policy."""
    about = say(view, "what each policy keeps of what the last token looks at")
    top = draw_title(drawing, document.text, f"{about}; {say(view, 'layers × heads')}")
    names = [safe(policy.policy) for policy in document.policies]
    bars = [
        Bar(name, policy.kept or 0.0, "–" if policy.kept is None else percent(policy.kept, 1))
        for name, policy in zip(names, document.policies, strict=True)
    ]
    top = draw_bars(drawing, bars, top, most=1.0) + 24
    maps = [
        _grid_map(name, ((row.layer, row.head, row.kept) for row in policy.heads))
        for name, policy in zip(names, document.policies, strict=True)
    ]
    draw_maps(drawing, maps, top, view, scale="linear")


def _draw_learning(drawing: Drawing, document: LearnDocument, view: View) -> None:
    """Draw a training: the loss by step beside the losses to compare it with, then for each score
    of heads (such as induction) the head that has most of it, untrained and trained."""
    title = say(view, "learning {task}", task=safe(document.task))
    top = draw_title(drawing, title, say(view, curve_note(document)))
    points = [(point.step, point.loss or 0.0) for point in document.curve]
    ends = (1, max(document.curve[-1].step, 2))
    loss = say(view, "loss")
    flat = [(say(view, "chance"), document.chance)]
    flat += [
        (say(view, reference_name(reference.name)), reference.loss)
        for reference in document.references
    ]
    series = [(loss, points), *((name, [(x, number) for x in ends]) for name, number in flat)]
    top = draw_curves(drawing, series, top, say(view, "step"), loss)
    heads = {(head.layer, head.head): head for head in document.heads}
    bars = []
    for row in document.runs[0].best:
        score = heads[row.layer, row.head].scores[row.score]
        name = f"{safe(say(view, score_name(row.score)))} {head_name(row.layer, row.head)}"
        bars.append(
            Bar(name, score.last, f"{score.first:.2f} → {score.last:.2f}", mark=score.chance)
        )
    end = draw_bars(drawing, bars, top + 10, most=1.0)
    note = message(
        "bar: weight on the keys in question, untrained → trained; line: of a head that looks at"
        " all alike"
    )
    for index, line in enumerate(broken_to_fit(say(view, note), 8, min(460.0, drawing.room))):
        drawing.text(0, end + 12 + index * 11, line, size=8, quiet=True)


def _draw_series(drawing: Drawing, document: SeriesDocument, view: View) -> None:
    """Draw the heads' scores, a curve for each metric, over the training steps of a model's
    checkpoints.
    """
    title = plural("{count} checkpoint", "{count} checkpoints", count=len(document.checkpoints))
    if has_steps(document):
        subtitle = message("scores by step; both axes logarithmic")
        x_name = message("step")
    else:
        subtitle = message("scores by checkpoint, in their order; both axes logarithmic")
        x_name = message("checkpoint")
    top = draw_title(drawing, say(view, title), say(view, subtitle))
    series = [
        (safe(say(view, metric_name(name))), points) for name, points in curve_points(document)
    ]
    if not series:
        raise InputError(
            message(
                "the metrics {names} are no shares, so there is no curve to draw",
                names=listing(document.metrics),
            ),
            expected=message("such as --metric previous,induction"),
        )
    draw_curves(drawing, series, top, say(view, x_name), say(view, "score"))


def _draw_cost(drawing: Drawing, document: CostDocument, view: View) -> None:
    """Draw the multiply-adds of each kind of attention: as curves over text lengths, and as bars
    for the document's length."""
    title = say(view, "cost of attention, n = {n}", n=f"{document.n:,}")
    sizes = say(
        view, "d_model {d_model}, {heads} heads", d_model=document.d_model, heads=document.heads
    )
    top = draw_title(drawing, title, sizes)
    series = []
    for name in (variant.name for variant in document.variants):
        points = [
            (row.n, row.multiply_adds[name]) for row in document.growth if name in row.multiply_adds
        ]
        series.append((variant_name(name, view), points))
    y_name = say(view, contextual("figure", "multiply-adds per layer"))
    top = draw_curves(drawing, series, top, say(view, "tokens"), y_name)
    bars = [
        Bar(
            variant_name(row.name, view),
            row.multiply_adds,
            f"{row.multiply_adds:.3g} · {row.grows}",
        )
        for row in document.variants
    ]
    draw_bars(drawing, bars, top + 16)
