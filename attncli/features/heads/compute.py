"""The document of `attn heads`: every head on one text, with its metrics, labels and strongest
link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.documents import EmptyRow, LeftOutKind, RegionRow
from attncli.documents.header import empty_rows, header, notes, overflow, resources
from attncli.documents.parts import RegionPart
from attncli.errors import UsageError
from attncli.features.heads.across_heads import AcrossHeads, with_flow
from attncli.features.heads.document import (
    AverageHead,
    Excluded,
    ExcludedKind,
    HeadMetrics,
    HeadsDocument,
    LayerMassive,
    MovedMetrics,
    Order,
)
from attncli.features.heads.roles import ROLES, RoleScores, rank_roles, role_scores, with_roles
from attncli.features.rules.document import HeadMixture, RulesDocument
from attncli.features.rules.saved_rules import mixtures_of
from attncli.features.run.compute import RunRequest, cost, region_part
from attncli.inputs.regions import Region, word_regions
from attncli.inputs.token import Token, ignore
from attncli.inputs.word_groups import Words, identities, merged_words, word_starts
from attncli.language import listing, message
from attncli.measure.labels import NEEDED, RepeatScores, label_text, labels_of, row_entropy
from attncli.measure.layer_metrics import (
    CORPUS_METRICS,
    MASSIVE,
    ROLE_METRICS,
    SINK_RATE,
    column_metric,
    massive_counts,
    measure_layer,
)
from attncli.measure.metric import DEFAULT, Measured, Metric, Tally
from attncli.measure.region_sums import RegionShares, RegionSums
from attncli.measure.rest import is_separator, resting_keys
from attncli.measure.row_facts import (
    Bools,
    Exclusion,
    Floats,
    TokenFacts,
    TokenPairs,
    WordPieces,
    exclusion,
    is_punctuation,
)
from attncli.measure.row_stream import (
    CELLS,
    Consumer,
    LinkCollector,
    PooledMaps,
    RowFeeder,
    kinds_left_out,
    share,
)
from attncli.measure.run_record import metric_values
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.head_choice import NamedHeads, pairs_of
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import CostEstimate
from attncli.models.model import Model
from attncli.models.run import LONG, rows_for

if TYPE_CHECKING:
    from attncli.measure.run_record import Recording  # only a page needs it


REGION_LINKS = 10
"""Links between regions that a document holds."""


class HeadsRequest(Struct, frozen=True):
    """What `attn heads` measures, and what of it goes into the document.

    layers, heads: which.
    metrics: names.
    maps: whether the weights themselves are held.
    all_links: whether a head's top link may be an uninformative one.
    exclude: what is left out of everything, out of `row_facts.KINDS`.
    renormalise: whether rows are scaled to sum to 1 again.
    words: whether pieces are merged.
    moved: whether the same is also told of what heads move (weights times the size of the
        transformed values).
    labels: whether heads are labelled.
    across: out of `ACROSS`.
    directions: of which heads, layer and number.
    sort: the metric that orders the heads, None for layer and head.
    rising: the smallest first.
    regions: named sets of tokens.
    """

    layers: Selection = EVERY
    heads: Selection = EVERY
    metrics: Sequence[str | Metric] = DEFAULT
    maps: bool = True
    all_links: bool = False
    exclude: Sequence[str] = ()
    renormalise: bool = False
    words: bool = False
    moved: bool = False
    labels: bool = False
    across: frozenset[str] = frozenset()
    directions: tuple[tuple[int, int], ...] = ()
    sort: str | Metric | None = None
    rising: bool = False
    regions: tuple[Region, ...] = ()

    @property
    def metrics_needed(self) -> list[Metric]:
        """The metrics asked for and the one that heads are sorted by, each once. Raises UsageError
        for an unknown name.
        """
        names = list(self.metrics)
        if self.sort:
            names.append(self.sort)
        by_name = {metric.name: metric for metric in map(column_metric, names)}
        return list(by_name.values())

    @property
    def needs_whole_weights(self) -> bool:
        """Whether this needs the whole weights of a layer at once, and so cannot run by blocks of
        rows.
        """
        return self.words or self.moved or bool(self.across)


class _LayerTally:
    """The metrics, links, maps and shares of regions of one layer's heads. Its `feeder` is fed the
    weights, whole or by blocks of rows; `parts` then gives the results.

    heads: their numbers.
    side: cells of the side of a pooled map; None for no pooled maps.
    """

    def __init__(
        self,
        model: Model,
        tokens: Sequence[Token],
        facts: TokenFacts,
        request: HeadsRequest,
        layer: int,
        heads: Sequence[int],
        *,
        side: int | None,
    ) -> None:
        """Prepare what collects a layer's rows of weights: metrics, links, and where they are asked
        for pooled maps and regions.

        side: the most cells of a pooled map along either axis; None for no such maps.
        """
        self.layer = layer
        self.heads = heads

        # metrics that are computed from rows of weights, and those that others are made from
        names = [metric.name for metric in request.metrics_needed]
        of_weights: list[str | Metric] = [
            metric
            for metric in request.metrics_needed
            if metric.name not in CORPUS_METRICS and metric.name not in ROLE_METRICS
        ]
        if request.labels:
            of_weights += NEEDED  # labels are given by the values of these metrics
        if SINK_RATE in names:
            of_weights.append("sink")  # of which the rate is made
        self.tally = Tally(len(heads), of_weights, facts)

        # all that is fed each row, the tally first
        self.links = LinkCollector(tokens, top=1, leave_out=_leave_out(model, tokens, request))
        self.maps: PooledMaps | None = None
        if side is not None:
            self.maps = PooledMaps(len(heads), len(tokens), len(tokens), side=side)
        self.regions: RegionSums | None = None
        consumers: list[Consumer] = [self.tally, self.links.consumer(layer, heads)]
        if self.maps is not None:
            consumers.append(self.maps)
        if request.regions:
            # the last token's row is also kept by itself
            self.regions = RegionSums(
                heads=len(heads),
                regions=request.regions,
                count=len(tokens),
                query=len(tokens) - 1,
                rest=resting_keys(tokens, model.identity.source),
            )
            consumers.append(self.regions)
        self.left_out: Exclusion | None = None
        if request.exclude:
            # keys that are left out of everything, or of which rows are scaled to sum to 1 again
            self.left_out = exclusion(request.exclude, tokens, renormalise=request.renormalise)
        self.feeder = RowFeeder(
            model.backend, consumers, facts, len(tokens), heads=heads, exclusion=self.left_out
        )

    def parts(
        self,
        model: Model,
        trace: LayerTrace,
        request: HeadsRequest,
        repeats: RepeatScores | None,
        scores: RoleScores | None = None,
    ) -> list[HeadMetrics]:
        """Return one part of the document for each head, once all rows of the layer were fed.

        trace: of the layer, for metrics that are computed from more than its weights.
        repeats: scores of random repeats for the labels; None where no labels are asked for.
        scores: scores by role, which belong to the model; None where none are asked for.
        """
        # the results of all metrics by name, each an array [head]; some are made from others, so
        # that those of weights come first
        results: dict[str, Measured] = self.tally.result()
        if scores is not None:
            results |= {
                metric.name: scores.measure(metric.name, self.layer, self.heads)
                for metric in request.metrics_needed
                if metric.name in ROLE_METRICS
            }
        results |= measure_layer(
            model, trace, self.heads, [metric.name for metric in request.metrics_needed], results
        )

        # those that the document shows; massive activations are a layer's, not a head's
        names = dict.fromkeys(column_metric(metric).name for metric in request.metrics)  # each once
        metric_results = {name: results[name] for name in names if name != MASSIVE}
        sort_name = None
        if request.sort is not None:
            sort_name = column_metric(request.sort).name

        head_parts = []
        overview = self.links.overview()  # an entry for each head, with its strongest link
        for place, (head, entry) in enumerate(zip(self.heads, overview, strict=True)):
            sort_value: float | UnsetType | None = UNSET
            if sort_name is not None:
                sort_results = metric_values({sort_name: results[sort_name]}, place, "value")
                sort_value = sort_results[sort_name].value
            label_scores = None
            if request.labels:
                repeat_score = None
                if repeats is not None:
                    repeat_score = repeats[self.layer, head]
                label_scores = labels_of(results, head=place, repeats=repeat_score)
            head_parts.append(
                HeadMetrics(
                    layer=self.layer,
                    head=head,
                    metrics=metric_values(metric_results, place, "value"),
                    baseline=metric_values(metric_results, place, "baseline"),
                    top_link=entry.link,
                    sorted_by=sort_value,
                    labels=UNSET if label_scores is None else list(map(label_text, label_scores)),
                    label_scores=UNSET if label_scores is None else label_scores,
                    pool=UNSET if self.maps is None else self.maps.pool,
                    weights=UNSET if self.maps is None else self.maps.values[place],
                )
            )
        return head_parts


@checked
def heads(
    model: Model,
    text: str,
    *,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    metrics: Sequence[str | Metric] = DEFAULT,
    maps: bool = True,
    all_links: bool = False,
    exclude: Sequence[str] = (),
    renormalise: bool = False,
    words: bool = False,
    moved: bool = False,
    labels: bool = False,
    across: Iterable[str] = (),
    directions: NamedHeads = (),
    sort: str | Metric | None = None,
    rising: bool = False,
    top: int | None = None,
    roles: bool = False,
    regions: Sequence[Region] = (),
    tokens: Sequence[Token] | None = None,
    repeats: RepeatScores | None = None,
    scores: RoleScores | None = None,
    rules: RulesDocument | None = None,
    whole: bool = False,
    request: HeadsRequest | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] | None = None,
    recording: Recording | None = None,
) -> HeadsDocument:
    """Compare all heads on a text: metrics, maps, labels, the strongest link of each.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        metrics: Names of metrics, see `attncli.metrics`; or metrics themselves, your own too.
        maps: Whether the document holds each head's weights; of a long text they are pooled.
        all_links: Whether strongest links may be those that say little: special tokens, self.
        exclude: Keys to leave out: "first", "special", "self", "neighbours", "punctuation",
            "separators".
        renormalise: Whether what is left of a row is scaled to sum to 1.
        words: Whether pieces are merged to words first.
        moved: Whether also to measure weight × size of the transformed value.
        labels: Whether to name what heads do, which runs texts of repeated random tokens, too.
        across: Analyses over heads and layers: "rollout", "flow", "similarity", "circuits".
        directions: Heads whose strongest singular directions are described by tokens, with their
            layers: "L5H11" or (5, 11), several as "L5H11,L3H1" or in a list.
        sort: A metric to sort heads by, the largest first; None keeps layers and heads in order.
        rising: Whether the smallest comes first.
        top: How many of the sorted heads to keep, without an order those of the strongest links;
            None for all.
        roles: Whether to score heads by role, and to rank them by each.
        regions: Named sets of tokens, as `attncli.inputs.regions.find_regions` returns them: the
            document then has the attention of each head from the last token to each region, and
            between regions.
        tokens: The tokens of the text; None to let the model's tokenizer find them.
        repeats: The scores of random repeats for the labels, which belong to the model; None runs
            them.
        scores: The scores of roles, which belong to the model; None measures those asked for.
        rules: What `attncli.rules` returned for the model, so that the document has the rules of
            each head; None for no rules.
        whole: Whether every row is computed at once, also of a long text.
        request: What is measured, in place of the keywords up to `rising` and of `regions`.
        on_cost: Called before the run starts with its estimated cost and the number of tokens.
        progress: Called with the share of the run that is done, 0 to 1.
        recording: Runs the text in place of the model, and keeps its heads for a page; None to run
            it without a page.

    Returns:
        What `attn heads --json` writes. A head whose rows are all masked has metrics that are null.

    Raises:
        UsageError: For a metric of an unknown name.
        InputError: For layers or heads that are not there, and for rules of another model.
    """
    # the rules of each head, and what is measured
    mixtures = _mixtures(rules, model)
    if request is None:
        request = HeadsRequest(
            layers=layers,
            heads=heads,
            metrics=metrics,
            maps=maps,
            all_links=all_links,
            exclude=exclude,
            renormalise=renormalise,
            words=words,
            moved=moved,
            labels=labels,
            across=frozenset(across),
            directions=pairs_of(model.spec, directions),
            sort=sort,
            rising=rising,
            regions=tuple(regions),
        )
    if roles:
        with_roles_too = tuple(dict.fromkeys((*request.metrics, *ROLES.values())))
        request = replace(request, metrics=with_roles_too)
    if tokens is None:
        tokens = model.encode(text)

    # what it costs; a long text runs by blocks of rows, unless whole weights are needed
    rows = None
    if len(tokens) > LONG and not (whole or request.needs_whole_weights):
        rows = rows_for(model.spec, len(tokens))
    run_request = RunRequest(request.layers, request.heads, matrices=request.maps and rows is None)
    expected = cost(model, len(tokens), run_request, is_saved=False, rows=rows)
    role_metrics = [metric.name for metric in request.metrics_needed if metric.name in ROLE_METRICS]
    if role_metrics and scores is None:
        expected = with_roles(expected, model, role_metrics)
    if "flow" in request.across:
        expected = with_flow(expected, len(tokens), len(model.spec.attending(request.layers)))
    on_cost(expected, len(tokens))

    # scores of the model, then the run of the text; what both read is told as resources
    bytes_before = model.store.bytes_read()
    _check_repeats(repeats, model, request)
    if request.labels and repeats is None:
        from attncli.measure.labels import repeat_scores  # only labels need them

        repeats = repeat_scores(model, request.layers)
    if role_metrics and scores is None:
        scores = role_scores(model, role_metrics, layers=request.layers, repeats=repeats)
    document = _measured_heads(
        model,
        text,
        tokens,
        request,
        repeats=repeats,
        scores=scores,
        rows=rows,
        progress=progress,
        recording=recording,
    )

    # what is added to the document or left out of it; roles rank all heads, so --top comes last
    document = replace(document, resources=resources(model, bytes_before, expected.peak))
    if roles:
        document = replace(document, roles=rank_roles(document.heads))
    document = _with_rules(document, mixtures)
    if top is not None and top < len(document.heads):
        document = replace(
            document, heads_in_all=len(document.heads), heads=_first_heads(document, top)
        )
    return document


def _mixtures(rules: RulesDocument | None, model: Model) -> Mapping[tuple[int, int], HeadMixture]:
    """The rules that describe each head, by (layer, head); {} for None. Raises InputError for rules
    of another model.
    """
    if rules is None:
        return {}
    return mixtures_of(rules, model)


def _with_rules(
    document: HeadsDocument, mixtures: Mapping[tuple[int, int], HeadMixture]
) -> HeadsDocument:
    """The document with its rules in each head's part; unchanged without any rules."""
    if not mixtures:
        return document
    heads = [
        replace(head, rules=mixtures.get((head.layer, head.head), UNSET)) for head in document.heads
    ]
    return replace(document, heads=heads)


def _first_heads(document: HeadsDocument, count: int) -> list[HeadMetrics]:
    """The first `count` heads in the order that the document is sorted by; in one that is not
    sorted, those with the strongest links."""
    if document.sort:
        return document.heads[:count]
    return sorted(document.heads, key=_link_order)[:count]


def _link_order(head: HeadMetrics) -> float:
    """The key that sorts heads by the weight of their strongest link, the largest first."""
    if not head.top_link:
        return 0.0
    return -head.top_link.weight


def _check_repeats(repeats: RepeatScores | None, model: Model, request: HeadsRequest) -> None:
    """Raise UsageError where the scores of random repeats that a caller gives lack a head that is
    asked for."""
    if repeats is None:
        return
    for layer in model.spec.attending(request.layers):
        for head in _select_heads(model, request, layer):
            if (layer, head) not in repeats:
                raise UsageError(
                    "repeats lacks layer {layer} head {head}",
                    expected="scores of every head asked for, by layer and head",
                    layer=layer,
                    head=head,
                )


def _measured_heads(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    request: HeadsRequest,
    *,
    repeats: RepeatScores | None = None,
    scores: RoleScores | None = None,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
    recording: Recording | None = None,
) -> HeadsDocument:
    """Run a text and return its `attn.heads/1` document: metrics with rows used and uniform
    baseline, per head.

    `average` in it is the mean of the chosen heads' weights in the last layer that ran.

    repeats: scores of random repeats for the labels.
    scores: scores by role.
    rows: None for whole weights; else how many query rows to compute at a time: nothing is n × n
        then, and maps are pooled.
    progress: called with the share of the run that is done, where `rows` is given, and then with
        that of attention flow.
    recording: runs the text in place of the model, and keeps its heads for a page.

    Raises UsageError for an order by `massive`, which is a layer's.
    """
    if request.sort is not None and column_metric(request.sort).name == MASSIVE:
        raise UsageError(
            "massive is a layer's, and heads have none to be sorted by", expected="another metric"
        )
    collector = _HeadCollector(model, text, tokens, request, is_blockwise=rows is not None)
    layers = model.spec.attending(request.layers)

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Called with each block of query rows while the text runs: feed it to its layer's metrics,
        and report the share of the run that is done.

        kind: "self", or "cross" for attention to another text, which has no metrics here.
        """
        if kind == "self":
            collector.tally_of(layer).feeder.on_block(block)
            if progress is not None:
                heads = model.spec.blocks[layer].attention.heads
                # whole layers that ran, and the share of this one, of all up to the last chosen
                progress((layer + share(block, heads, len(tokens))) / (max(layers) + 1))

    source = recording or model
    if rows is None:
        # the scores behind the mask tell which keys a query sees
        traces = source.trace(tokens, layers=layers, keep=("masked", "weights"))
    else:
        # the blocks themselves go to `on_block`
        traces = source.trace(
            tokens,
            layers=layers,
            keep=("weights", "entropy", "peak"),
            rows=rows,
            on_block=on_block,
        )
    for trace in traces:
        collector.add_layer(trace, repeats, scores)
    document = collector.document()
    if request.directions:
        from attncli.features.heads.across_heads import head_directions  # few ask for them

        document = replace(document, directions=head_directions(model, request.directions))
    if collector.across is None:
        return document
    return collector.across.add_parts(
        document, model, list(layers), request.heads, progress or ignore
    )


class _HeadCollector:
    """What the layers of a run say of the heads, layer by layer, and at the end the document.

    is_blockwise: Whether layers come by blocks of rows, so that nothing is n × n.
    """

    def __init__(
        self,
        model: Model,
        text: str,
        tokens: Sequence[Token],
        request: HeadsRequest,
        *,
        is_blockwise: bool,
    ) -> None:
        """Prepare what layers are collected in: parts of the document, and sums over layers.

        is_blockwise: whether layers come by blocks of query rows, so that no whole weights are
            known.
        """
        self.model = model
        self.text = text
        self.tokens = tokens
        # rows and columns are tokens, or with --words the words that they are merged to
        self.words: Words | None = None
        self.row_tokens: Sequence[Token] = tokens
        if request.words:
            self.words = merged_words(tokens, text)
            self.row_tokens = self.words.words
            regions = word_regions(request.regions, self.words.starts.tolist())
            request = replace(request, regions=tuple(regions))
        self.request = request
        self.is_blockwise = is_blockwise
        self.facts = self._token_facts()

        # what layers add to
        self.across: AcrossHeads | None = None
        if request.across:
            layers = model.spec.attending(request.layers)
            self.across = AcrossHeads(request.across, len(self.row_tokens), len(layers))
        self.tallies: dict[int, _LayerTally] = {}
        self.head_rows: list[HeadMetrics] = []
        self.empty: list[EmptyRow] = []
        self.massive: list[LayerMassive] = []
        self.warnings: list[str] = notes(model, text, tokens)
        self.region_shares: list[tuple[int, list[int], RegionShares]] = []
        self.average: AverageHead | None = None

    def _token_facts(self) -> TokenFacts:
        """What metrics have to know of the tokens, or of the words that they are merged to: which
        are the same, special, punctuation or separators, and where words begin."""
        # only some metrics need to know which tokens are pieces of one word
        pieces: WordPieces | None = None
        if any(metric.needs == "words" for metric in self.request.metrics_needed):
            if self.words is None:
                starts: Sequence[int] = word_starts(self.tokens, self.text)
            else:
                starts = range(len(self.row_tokens))
            pieces = WordPieces(np.array(starts, np.int64), len(self.row_tokens))
        return TokenFacts(
            TokenPairs(identities(self.tokens, self.words)),
            np.array([token.special for token in self.row_tokens]),
            np.array([is_punctuation(token) for token in self.row_tokens]),
            words=pieces,
            separators=np.array([is_separator(token) for token in self.row_tokens], bool),
        )

    def tally_of(self, layer: int) -> _LayerTally:
        """The tally of a layer's heads, made when it is first asked for."""
        if layer not in self.tallies:
            heads = _select_heads(self.model, self.request, layer)
            side = None  # cells along a pooled map; whole weights need none
            if self.is_blockwise and self.request.maps:
                side = CELLS
            self.tallies[layer] = _LayerTally(
                self.model, self.row_tokens, self.facts, self.request, layer, heads, side=side
            )
        return self.tallies[layer]

    def add_layer(
        self, trace: LayerTrace, repeats: RepeatScores | None, scores: RoleScores | None
    ) -> None:
        """Collect the results of a layer that has run: its heads' parts of the document, warnings,
        massive activations, shares of regions, and rows that see nothing.

        repeats: scores of random repeats for the labels; None without labels.
        scores: scores by role; None where none are asked for.
        """
        heads = _select_heads(self.model, self.request, trace.layer)
        tally = self.tally_of(trace.layer)
        weights: Floats | None = None
        if not self.is_blockwise:
            weights = self._take_weights(trace, heads, tally)
        self.warnings += overflow(self.model.backend, trace)
        parts = tally.parts(self.model, trace, self.request, repeats, scores)
        if any(metric.name == MASSIVE for metric in self.request.metrics_needed):
            # one count for each text that ran, and there is one
            count = int(massive_counts(self.model.backend, trace)[0])
            self.massive.append(LayerMassive(layer=trace.layer, massive=count))
        if weights is not None and self.request.maps:
            parts = [replace(part, weights=weights[place]) for place, part in enumerate(parts)]
        if weights is not None and self.request.moved:
            moved_metrics = _moved_metrics(
                self.model, trace, self.row_tokens, self.facts, self.request, heads, self.words
            )
            parts = [
                replace(part, moved=head_moved)
                for part, head_moved in zip(parts, moved_metrics, strict=True)
            ]
        if tally.regions is not None:
            self.region_shares.append((trace.layer, heads, tally.regions.shares()))
        self.head_rows += parts
        all_heads = range(trace.empty_rows.shape[-2])  # all ran, whichever are chosen
        self.empty += [
            row for row in empty_rows(self.model.backend, trace, all_heads) if row.head in heads
        ]

    def _take_weights(self, trace: LayerTrace, heads: Sequence[int], tally: _LayerTally) -> Floats:
        """Feed a layer's whole weights to its metrics, and keep their average over heads in place of
        that of the layer before, so that the last layer's stays. Returns the weights of the chosen
        heads, [head, query, key], without the keys that the user left out.
        """
        weights, visible = _weights_and_visibility(
            self.model, trace, heads, self.words, len(self.tokens)
        )
        tally.feeder.take_layer(weights, visible)
        if self.across is not None:
            self.across.add(trace.layer, heads, weights, visible)
        if tally.left_out is not None:
            weights = tally.left_out.without(weights, np.arange(len(self.row_tokens)))
        elif self.words is None:
            # metrics were of the tokens alone; in the document a learned extra key keeps its column
            weights = _matrices_of(heads, self.model.backend.numpy(trace.stages["weights"]))
        if self.request.maps:
            average = weights.mean(0)
            entropies = [_mean_entropy(head_weights) for head_weights in weights]
            self.average = AverageHead(
                weights=average,
                entropy=_mean_entropy(average),
                heads_entropy=float(np.mean(entropies)),
            )
        return weights

    def document(self) -> HeadsDocument:
        """The document of all layers that were added, its heads sorted where that was asked for."""
        request = self.request
        excluded: Excluded | UnsetType = UNSET
        if request.exclude:
            kinds = [kind for kind in get_args(ExcludedKind) if kind in request.exclude]
            excluded = Excluded(names=kinds, renormalised=request.renormalise)
        region_rows = [
            RegionRow(name=region.name, tokens=list(region.tokens)) for region in request.regions
        ]
        region_shares: RegionPart | UnsetType = UNSET
        if self.region_shares:
            region_shares = region_part(
                self.region_shares, len(self.row_tokens) - 1, request.regions, REGION_LINKS
            )
        order: Order | UnsetType = UNSET
        if request.sort is not None:
            order = Order(metric=column_metric(request.sort).name, rising=request.rising)
            self.head_rows.sort(key=partial(_metric_order, rising=request.rising))
        return HeadsDocument(
            **header(self.model, self.text, self.tokens, self.words),
            heads=self.head_rows,
            layers=self.massive or UNSET,
            average=self.average,
            empty_rows=self.empty,
            warnings=[*self.warnings, *self._mixing_warnings()],
            links_leave_out=list(_leave_out(self.model, self.row_tokens, request)) or UNSET,
            excluded=excluded,
            regions=region_rows or UNSET,
            region_shares=region_shares,
            sort=order,
        )

    def _mixing_warnings(self) -> list[str]:
        """The warning that rollout and flow leave out layers that mix tokens by other means than
        attention; [] where there are none, or neither was asked for."""
        blocks = enumerate(self.model.spec.blocks)
        mixing = [layer for layer, block in blocks if block.mixer is not None]
        if not mixing or not self.request.across & {"rollout", "flow"}:
            return []
        numbers = listing(map(str, mixing))
        return [
            message(
                "rollout and flow follow heads; what layers {numbers} mix by other means is"
                " left out",
                numbers=numbers,
            )
        ]


def _metric_order(part: HeadMetrics, *, rising: bool) -> tuple[bool, float]:
    """The key that sorts heads by their metric, the largest value first, or the smallest if
    `rising`; heads without a value come last."""
    value = part.sorted_by
    if value is UNSET or value is None:
        return True, 0.0
    if not rising:
        value = -value
    return False, value


def _leave_out(
    model: Model, tokens: Sequence[Token], request: HeadsRequest
) -> tuple[LeftOutKind, ...]:
    """Which kinds of uninformative link, out of `kinds_left_out`, cannot be a head's strongest;
    none with `all_links`."""
    if request.all_links:
        return ()
    return kinds_left_out(tokens, is_learned=model.identity.source == "checkpoint")


def _mean_entropy(weights: np.ndarray[Any, Any]) -> float:
    """Mean entropy −Σ A ln A, in nats, of the rows [query, key] that see something; 0 without any."""
    matrix = np.asarray(weights, np.float64)
    sees_any = matrix.sum(-1) > 0
    if sees_any.any():
        return float(row_entropy(matrix)[sees_any].mean()) + 0.0  # + 0.0 makes −0.0 plain 0
    return 0.0


def _select_heads(model: Model, request: HeadsRequest, layer: int) -> list[int]:
    """The numbers of the chosen heads of a layer, ascending."""
    return sorted(set(numbers_of(request.heads, model.spec.blocks[layer].attention.heads)))


def _matrices_of(heads: Sequence[int], every: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The matrices of the chosen heads, [head, query, key]; no copy where all are chosen.

    every: the matrices of all heads.
    """
    if len(heads) == len(every):
        return every
    return every[list(heads)]


def _weights_and_visibility(
    model: Model, trace: LayerTrace, heads: Sequence[int], words: Words | None, count: int
) -> tuple[Floats, Bools]:
    """The chosen heads' weights and, as booleans, which keys each query sees, both [head, query,
    key]. Learned keys behind the tokens are left out.

    words: merges pieces to words; None keeps tokens.
    count: tokens.
    """
    weights, scores = (
        _matrices_of(heads, model.backend.numpy(trace.stages[name]))[..., :count]
        for name in ("weights", "masked")
    )
    visible = scores != -np.inf
    if words is None:
        return (weights, visible)
    return (words.merge(weights), words.merge_visible(visible))


def _moved_metrics(
    model: Model,
    trace: LayerTrace,
    tokens: Sequence[Token],
    facts: TokenFacts,
    request: HeadsRequest,
    heads: Sequence[int],
    words: Words | None,
) -> list[MovedMetrics]:
    """Measure each head's metrics and strongest link once more on what it moves: weight × size of
    the transformed value, rows scaled to sum to 1, in place of the weights.

    tokens, facts: of the rows, which are words if `words` merges tokens to them.
    """
    count = trace.stages["weights"].shape[-2]
    # by token first: words are merged after values were weighed
    weights, visible = _weights_and_visibility(model, trace, heads, words=None, count=count)
    moved_weights = shares(
        weights.astype(np.float64), sizes_by_query(model, trace)[list(heads), :, :count]
    )
    if words is not None:
        moved_weights = words.merge(moved_weights)
        visible = words.merge_visible(visible)

    # metrics of the rows alone, with the same keys left out
    measured_request = HeadsRequest(
        metrics=[
            metric
            for metric in map(column_metric, request.metrics)
            if metric.name not in CORPUS_METRICS and metric.name not in ROLE_METRICS
        ],
        all_links=request.all_links,
        exclude=request.exclude,
        renormalise=request.renormalise,
        maps=False,
    )
    layer = _LayerTally(model, tokens, facts, measured_request, trace.layer, heads, side=None)
    layer.feeder.take_layer(moved_weights, visible)
    parts = layer.parts(model, trace, measured_request, repeats=None)
    return [MovedMetrics(metrics=part.metrics, top_link=part.top_link) for part in parts]


# What a head moves: attention weights times the size of the vector that each key would add to the
# output.


def sizes_by_query(model: Model, trace: LayerTrace) -> Floats:
    """‖v_j · W_O‖ of each head, query and key j, [head, query, key]; the query axis is 1 long
    unless a gate, or global tokens with values of their own, make queries differ.

    trace: of a layer, with the values of all heads.
    """
    if "gate" in trace.stages:
        return _gated_sizes(model, trace)
    sizes = value_sizes(model, trace)[:, None, :]
    if "global_v" not in trace.stages:
        return sizes
    # global tokens, as in Longformer, attend to values from a projection of their own; the model
    # names positions, and a short text may not reach all of them
    global_tokens = [
        token
        for token in model.spec.blocks[trace.layer].attention.own_global or ()
        if token < sizes.shape[-1]
    ]
    sizes_of_queries = np.repeat(sizes, trace.stages["q"].shape[-2], 1)
    sizes_of_queries[:, global_tokens] = value_sizes(model, trace, "global_v")[:, None, :]
    return sizes_of_queries


def _gated_sizes(model: Model, trace: LayerTrace) -> Floats:
    """‖(v_j ⊙ g_i) · W_O‖ of each head, query i and key j, [head, query, key], g_i being the
    query's gate on the output."""
    backend = model.backend
    attention = model.spec.blocks[trace.layer].attention
    v, gate = (backend.numpy(trace.stages[name]).astype(np.float64) for name in ("v", "gate"))
    matrix = model.store.layer(backend, trace.layer)("attn.o.weight")
    assert matrix is not None, "a gate stands before an output projection"
    # [width, head, v_dim]
    w_o = backend.numpy(matrix).astype(np.float64).reshape((-1, attention.heads, attention.v_dim))
    sizes = []
    for head in range(attention.heads):
        # ‖x·W_O‖² = x·(W_OᵀW_O)·xᵀ, whose inner matrix is small
        gram = w_o[:, head].T @ w_o[:, head]
        # v is [kv head, key, v_dim]: heads of a group share values
        values = v[head * len(v) // attention.heads]
        sizes_of_queries = []
        for query_gate in gate[head]:
            gated = values * query_gate
            squares = ((gated @ gram) * gated).sum(-1)
            sizes_of_queries.append(np.sqrt(np.maximum(squares, 0.0)))
        sizes.append(np.stack(sizes_of_queries))
    return np.stack(sizes)


def value_sizes(model: Model, trace: LayerTrace, stage: str = "v") -> Floats:
    """‖v_j · W_O‖ of each head and key, [head, key], float64; ‖v_j‖ where the model has no output
    projection. Biases of the projections are part of v; the bias of W_O is not counted.

    trace: of a layer, with the stage named below for all heads.
    stage: which one holds the values, "v" or "global_v".
    """
    backend = model.backend
    attention = model.spec.blocks[trace.layer].attention
    v = backend.numpy(trace.stages[stage]).astype(np.float64)  # [kv, key, v_dim]
    output_weight = model.store.layer(backend, trace.layer)("attn.o.weight")
    # heads of a group share keys and values: head h reads those of h · kv / heads
    if output_weight is None:
        sizes = np.linalg.norm(v, axis=-1)
        return sizes[np.arange(attention.heads) * len(v) // attention.heads]
    # [width, head, v_dim]
    w_o = (
        backend.numpy(output_weight)
        .astype(np.float64)
        .reshape((-1, attention.heads, attention.v_dim))
    )
    kv_heads = (head * len(v) // attention.heads for head in range(attention.heads))
    return np.stack(
        [np.linalg.norm(v[kv] @ w_o[:, head].T, axis=-1) for head, kv in enumerate(kv_heads)]
    )


def shares(weights: Floats, sizes: Floats) -> Floats:
    """Weight × size of each key as a share of its row's sum, [head, query, key]; rows sum to 1, or
    are 0.

    weights: [head, query, key].
    sizes: of the same shape, or [head, 1, key] where they are the same for all queries.
    """
    products = np.asarray(weights, np.float64) * sizes
    sums = products.sum(-1, keepdims=True)
    share_values: Floats = products / np.where(sums > 0, sums, 1.0)
    return share_values
