"""The document of `attn heads`: every head on one text, with its metrics, labels and strongest link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace as changed

from attncli.analysis.across_heads import Across
from attncli.analysis.document import empty_rows, header, notes, overflow
from attncli.analysis.documents.heads import (
    AverageHead,
    Excluded,
    ExcludedKind,
    HeadMetrics,
    HeadsDocument,
    MetricValue,
    MovedMetrics,
    Order,
)
from attncli.analysis.documents.parts import EmptyRow, LeftOutKind
from attncli.analysis.exclusion import Exclusion, exclusion, is_punctuation
from attncli.analysis.labels import NEEDED, labels_of, rows
from attncli.analysis.links import Links, kinds_left_out
from attncli.analysis.long_run import SIDE
from attncli.analysis.measure import Measured, Tally, known
from attncli.analysis.metrics import DEFAULT
from attncli.analysis.pairs import Pairs
from attncli.analysis.pooled import PooledMaps
from attncli.analysis.random_repeats import Scores
from attncli.analysis.row_consumers import Watch, share
from attncli.analysis.row_facts import About
from attncli.analysis.similarity import row_entropy
from attncli.analysis.value_norms import shares, sizes_by_query
from attncli.analysis.visible_keys import Bools, Floats
from attncli.analysis.words import Words, identities, merged_words
from attncli.arrays.selection import EVERY, Selection, selected
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model

if TYPE_CHECKING:
    from attncli.analysis.records.recording import Recording  # only a page needs it


class Compared(Struct, frozen=True):
    """What of a comparison goes into its document.

    layers, heads: which. metrics: names. maps: whether the weights themselves are held.
    all_links: whether a head's top link may be an uninformative one. exclude: what is left out of
    everything, out of `exclusion.KINDS`; renormalise: whether rows are scaled to sum to 1 again.
    words: whether pieces are merged. moved: whether the same is also told of what heads move
    (weights times the size of the transformed values). labels: whether heads are labelled; across: out of
    `across_heads.ACROSS`. sort: the metric that orders the heads, None for layer and head; rising: the smallest first.
    """

    layers: Selection = EVERY
    heads: Selection = EVERY
    metrics: Sequence[str] = DEFAULT
    maps: bool = True
    all_links: bool = False
    exclude: Sequence[str] = ()
    renormalise: bool = False
    words: bool = False
    moved: bool = False
    labels: bool = False
    across: frozenset[str] = frozenset()
    sort: str | None = None
    rising: bool = False

    @property
    def whole(self) -> bool:
        """Whether this needs the whole weights of a layer at once, and so cannot run by blocks of rows."""
        return self.words or self.moved or bool(self.across)


class _Layer:
    """What one layer's heads add up to."""

    def __init__(
        self,
        model: Model,
        tokens: Sequence[Token],
        pairs: Pairs,
        wanted: Compared,
        layer: int,
        heads: Sequence[int],
        *,
        side: int | None,
    ) -> None:
        self.layer, self.heads = layer, heads
        about = About(
            pairs, np.array([token.special for token in tokens]), np.array([is_punctuation(token) for token in tokens])
        )
        names = dict.fromkeys(
            (*wanted.metrics, *((wanted.sort,) if wanted.sort else ()), *(NEEDED if wanted.labels else ()))
        )
        self.tally = Tally(len(heads), tuple(names), about)
        links = Links(tokens, top=1, leave_out=_leave_out(model, tokens, wanted))
        self.links = links
        self.maps = None if side is None else PooledMaps(len(heads), len(tokens), len(tokens), side=side)
        consumers = [self.tally, links.consumer(layer, heads), *(() if self.maps is None else (self.maps,))]
        left_out: Exclusion | None = None
        if wanted.exclude:
            left_out = exclusion(wanted.exclude, tokens, renormalise=wanted.renormalise)
        self.watch = Watch(model.backend, consumers, about, len(tokens), heads=heads, exclusion=left_out)

    def parts(self, wanted: Compared, repeats: Scores | None) -> list[HeadMetrics]:
        """One part of the document for each head."""
        measured = self.tally.result()
        shown = {name: measured[name] for name in wanted.metrics}
        found = []
        for place, (head, top) in enumerate(zip(self.heads, self.links.overview(), strict=True)):
            earned = []
            if wanted.labels:
                earned = labels_of(measured, head=place, repeats=None if repeats is None else repeats[self.layer, head])
            by = wanted.sort
            found.append(
                HeadMetrics(
                    layer=self.layer,
                    head=head,
                    metrics=numbers(shown, place, "value"),
                    baseline=numbers(shown, place, "baseline"),
                    top_link=top.link,
                    sorted_by=UNSET if by is None else numbers({by: measured[by]}, place, "value")[by].value,
                    labels=[f"{one.name} {one.detail}".rstrip() for one in earned] if wanted.labels else UNSET,
                    label_scores=rows(earned) if wanted.labels else UNSET,
                    pool=UNSET if self.maps is None else self.maps.pool,
                    weights=UNSET if self.maps is None else self.maps.values[place],
                )
            )
        return found


def heads_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    wanted: Compared,
    *,
    repeats: Scores | None = None,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
    recording: Recording | None = None,
) -> HeadsDocument:
    """Run a text and return its `attn.heads/1` document: metrics with rows used and uniform baseline, per head.

    `average` is the mean of the chosen heads' weights of the last layer that ran, with what it hides of them. repeats:
    scores of random repeats for the labels. rows: None for whole weights; else query rows at a time: nothing is
    n × n then, and maps are pooled. progress: told the share done, where rows are given. recording: takes its heads.
    """
    for name in (*wanted.metrics, *((wanted.sort,) if wanted.sort else ())):
        known(name)
    words = merged_words(tokens, text) if wanted.words else None
    shown: Sequence[Token] = tokens if words is None else words.words
    pairs = Pairs(identities(tokens, words))
    layers = model.spec.attending(wanted.layers)
    across = Across(wanted.across, len(shown), len(layers)) if wanted.across else None
    side = SIDE if rows is not None and wanted.maps else None
    kept: dict[int, _Layer] = {}

    def layer_of(layer: int) -> _Layer:
        if layer not in kept:
            kept[layer] = _Layer(model, shown, pairs, wanted, layer, _chosen(model, wanted, layer), side=side)
        return kept[layer]

    def see(layer: int, kind: str, block: RowBlock) -> None:
        if kind == "self":
            layer_of(layer).watch.see(block)
            if progress is not None:
                heads = model.spec.blocks[layer].attention.heads
                progress((layer + share(block, heads, len(tokens))) / (max(layers) + 1))

    found, empty = list[HeadMetrics](), list[EmptyRow]()
    warnings: list[str] = notes(model, text, tokens)
    average: np.ndarray[Any, Any] | None = None
    spread: list[float] = []
    keep = ("weights", "entropy", "peak") if rows is not None else ("masked", "weights")
    source = recording or model
    for trace in source.trace(tokens, layers=layers, keep=keep, rows=rows, see=None if rows is None else see):
        heads = _chosen(model, wanted, trace.layer)
        now = layer_of(trace.layer)
        moved: list[MovedMetrics] | None = None
        if rows is None:
            weights, visible = _whole(model, trace, heads, words, len(tokens))
            now.watch.whole(weights, visible)
            if across is not None:
                across.add(trace.layer, heads, weights, visible)
            if wanted.exclude:
                left_out = exclusion(wanted.exclude, shown, renormalise=wanted.renormalise)
                weights = left_out.without(weights, np.arange(len(shown)))
            elif words is None:
                # a learned extra key keeps its column
                weights = _of(heads, model.backend.numpy(trace.stages["weights"]))
            average = weights.mean(0)
            spread = [_entropy(each) for each in (average, *weights)] if wanted.maps else []
            moved = _moved(model, trace, shown, pairs, wanted, heads, words) if wanted.moved else None
        warnings += overflow(model.backend, trace)
        parts = now.parts(wanted, repeats)
        if rows is None and wanted.maps:
            parts = [changed(part, weights=weights[place]) for place, part in enumerate(parts)]
        if moved is not None:
            parts = [changed(part, moved=other) for part, other in zip(parts, moved, strict=True)]
        found += parts
        empty += [
            row for row in empty_rows(model.backend, trace, range(trace.empty_rows.shape[-2])) if row.head in heads
        ]
    if wanted.sort is not None:
        found.sort(key=lambda part: _order(None if part.sorted_by is UNSET else part.sorted_by, rising=wanted.rising))
    held = None
    if wanted.maps and spread and average is not None:
        held = AverageHead(weights=average, entropy=spread[0], heads_entropy=float(np.mean(spread[1:])))
    excluded = [kind for kind in get_args(ExcludedKind) if kind in wanted.exclude]
    document = HeadsDocument(
        **header(model, text, tokens, words),
        heads=found,
        average=held,
        empty_rows=empty,
        warnings=warnings,
        links_leave_out=list(_leave_out(model, shown, wanted)) or UNSET,
        excluded=Excluded(names=excluded, renormalised=wanted.renormalise) if wanted.exclude else UNSET,
        sort=UNSET if wanted.sort is None else Order(metric=wanted.sort, rising=wanted.rising),
    )
    return document if across is None else across.added(document, model, list(layers), wanted.heads)


def _leave_out(model: Model, tokens: Sequence[Token], wanted: Compared) -> tuple[LeftOutKind, ...]:
    return () if wanted.all_links else kinds_left_out(tokens, learned=model.identity.source == "checkpoint")


def _entropy(weights: np.ndarray[Any, Any]) -> float:
    """Mean −Σ A ln A of the rows [query, key] that see something, in nats; 0 without any."""
    found = np.asarray(weights, np.float64)
    rows = found.sum(-1) > 0
    return float(row_entropy(found)[rows].mean()) + 0.0 if rows.any() else 0.0


def _chosen(model: Model, wanted: Compared, layer: int) -> list[int]:
    return sorted(set(selected(wanted.heads, model.spec.blocks[layer].attention.heads)))


def _of(heads: Sequence[int], every: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The heads asked for, [head, query, key]; no copy where these are all."""
    return every if len(heads) == len(every) else every[list(heads)]


def _whole(
    model: Model, trace: LayerTrace, heads: Sequence[int], words: Words | None, count: int
) -> tuple[Floats, Bools]:
    """A layer's weights and visibility [head, query, key]: only tokens as keys, pieces merged to words if asked."""
    weights, scores = (
        _of(heads, model.backend.numpy(trace.stages[name]))[..., :count] for name in ("weights", "masked")
    )
    visible = scores != -np.inf
    return (weights, visible) if words is None else (words.merge(weights), words.merge_visible(visible))


def _moved(
    model: Model,
    trace: LayerTrace,
    tokens: Sequence[Token],
    pairs: Pairs,
    wanted: Compared,
    heads: Sequence[int],
    words: Words | None,
) -> list[MovedMetrics]:
    """The metrics and strongest link of each head by what is moved in place of weights."""
    count = trace.stages["weights"].shape[-2]
    weights, visible = _whole(model, trace, heads, None, count)
    moved = shares(weights.astype(np.float64), sizes_by_query(model, trace)[list(heads), :, :count])
    if words is not None:
        moved, visible = words.merge(moved), words.merge_visible(visible)
    bare = Compared(
        metrics=wanted.metrics,
        all_links=wanted.all_links,
        exclude=wanted.exclude,
        renormalise=wanted.renormalise,
        maps=False,
    )
    layer = _Layer(model, tokens, pairs, bare, trace.layer, heads, side=None)
    layer.watch.whole(moved, visible)
    return [MovedMetrics(metrics=part.metrics, top_link=part.top_link) for part in layer.parts(bare, None)]


def _order(value: float | None, *, rising: bool) -> tuple[bool, float]:
    return value is None, 0.0 if value is None else value if rising else -value


def numbers(measured: dict[str, Measured], place: int, which: str) -> dict[str, MetricValue]:
    """Measured values as documents hold them. place: of the head; which: "value" or "baseline"."""
    return {
        name: MetricValue(
            value=None if np.isnan(number := float(getattr(one, which)[place])) else number, rows=int(one.rows[place])
        )
        for name, one in measured.items()
    }
