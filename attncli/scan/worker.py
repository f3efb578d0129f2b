"""`Worker`: computes shards of a plan, batches of texts layer by layer: a function of plan and
number alone.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError, UsageError
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.places import measured_at, places
from attncli.features.effects.sweep import (
    By,
    ByMean,
    ByZero,
    SweepPlan,
    SweepText,
    ablate_heads,
    sweep,
)
from attncli.features.heads.roles import RoleScores, role_scores
from attncli.features.rules.attention_rows import head_places
from attncli.features.rules.rule_file import usable_rules
from attncli.inputs.token import Token, Tokenizer, ignore
from attncli.inputs.word_groups import merged_words, word_starts
from attncli.language import message
from attncli.measure.batch_measure import LengthTally, TextBatch, sight_of
from attncli.measure.beyond_first import (
    BEYOND,
    EVENNESS_BEYOND,
    OFFSETS_BEYOND,
    PUNCTUATION_BEYOND,
)
from attncli.measure.labels import LEAST_ROWS
from attncli.measure.layer_metrics import (
    CORPUS_METRICS,
    MASSIVE,
    MOVED,
    RESTS,
    ROLE_METRICS,
    SINK_RATE,
    OutputNorms,
    column_metric,
    massive_counts,
    moved_norms,
    sink_rates,
)
from attncli.measure.metric import Metric, Tally
from attncli.measure.metric_file import require
from attncli.measure.rest import rest_keys
from attncli.measure.row_facts import (
    Bools,
    Exclusion,
    Floats,
    Ints,
    TokenFacts,
    WordPieces,
    exclusion,
    token_facts,
)
from attncli.measure.row_stream import RowFeeder
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.context import Context
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import HeadSelection, Norm, Place, head_name
from attncli.mechanism.trace import LayerTrace, head_outputs
from attncli.models.load import hold_weights
from attncli.models.model import Model
from attncli.models.run import embed_texts, rows_for, run_layers
from attncli.scan import intake, shard_files
from attncli.scan.condition_counts import ConditionCounts, Places
from attncli.scan.frequent_links import ShardLinks, choosing_of_texts
from attncli.scan.intake import Record, read_duplicates, text_hash
from attncli.scan.plan import COPIES, EFFECT, LABEL_COLUMNS, ScanPlan, planned_rules
from attncli.scan.rule_rows import ShardRules, ShardText
from attncli.scan.shard_files import (
    LinkTable,
    RowTable,
    ShardState,
    TextPlace,
    parse_heads,
    row_writer,
    save_state,
)
from attncli.scan.statistics import to_fixed
from attncli.scan.text_sample import DRAWN, TextSample
from attncli.scan.totals import NONE, Examples, Tallies, TextValues, strongest_links
from attncli.scan.why_shares import WhyShares, WhyTallies

# Batches of texts with equal token counts: nothing is padded, so nothing is computed for nothing.

MOST_TOKENS = 1024
"""Tokens of a batch, at most, unless one text has more."""
MOST_WEIGHTS = 6_300_000
"""Weights of a layer of a batch (texts · heads · tokens²), at most, unless one text has more."""


class CountedText(Struct, frozen=True, eq=False):
    """A text that is counted; its record holds only the beginning that is tokenized.

    tokens: how many it has, at most what the model takes.
    hash: of its cluster, or of the text where it has none; decides how often it counts in
        replicates.
    seeded_hash, plain_hash: of the whole text, with the scan's seed and without.
    """

    record: Record
    tokens: int
    hash: int
    seeded_hash: int
    plain_hash: int

    @property
    def content(self) -> str:
        """What the text says, as far as it is tokenized."""
        assert self.record.text is not None  # records without a text are not counted
        return self.record.text


class TokenizedText(NamedTuple):
    """A text with its tokens."""

    text: CountedText
    tokens: Sequence[Token]


def batches(texts: Sequence[CountedText], heads: int) -> Iterator[list[CountedText]]:
    """Yield the texts in batches of one length in tokens each, short texts first, then in the order
    of the corpus.

    heads: how many heads the layer with the most has; bounds the size of a batch.
    """
    # texts of a length come in the order of the corpus, so that every run has the same batches
    sorted_texts = sorted(texts, key=lambda text: (text.tokens, text.record.file, text.record.line))
    for count, same_length in groupby(sorted_texts, key=lambda text: text.tokens):
        texts_of_length = list(same_length)
        most = max(min(MOST_TOKENS // count, MOST_WEIGHTS // (heads * count * count)), 1)
        yield from (
            texts_of_length[start : start + most] for start in range(0, len(texts_of_length), most)
        )


STAGES = frozenset({"weights", "entropy"})

OnLayer = Callable[[int, Array | None, Floats, Floats, Ints, Floats], None]
"""Told each layer's number, weights [text, head, query, key] (None where they went by in blocks),
value and norm [text, head, metric], rows [metric], baseline [text, metric]."""

OnTrace = Callable[[LayerTrace], None]
"""Told each layer's trace of a batch, before `OnLayer`."""

OnWeights = Callable[[int, Array, int, int], None]
"""Told each layer's number and a block of its weights [text, head, row, key], with its first row
and first head.
"""


class Layers:
    """Runs batches of texts through a model's layers and measures the weights."""

    def __init__(
        self,
        model: Model,
        metrics: Sequence[str | Metric],
        *,
        words: bool,
        exclude: Sequence[str] = (),
        all_vectors: bool,
        between: Callable[[], None],
    ) -> None:
        """Prepare to run a model; no text is run yet.

        metrics: names, or metrics themselves.
        words: whether subword tokens are merged to words.
        exclude: kinds of pairs of query and key that no number counts.
        all_vectors: whether the last layer's output vectors are computed too.
        between: called after each layer.
        """
        self.spec = model.spec
        self.store = model.store
        self.backend = model.backend
        # the last layer's weights are all that is measured of it: what comes after them is left
        # out, its feed-forward network and all its norms but the one in front of attention
        if not all_vectors:
            last = self.spec.blocks[-1]
            norm_before: dict[Place, Norm] = {
                place: norm for place, norm in last.norms.items() if place == "attn.in"
            }
            blocks = (*self.spec.blocks[:-1], replace(last, mlp=None, norms=norm_before))
            self.spec = replace(self.spec, blocks=blocks)
        self.metrics = tuple(map(column_metric, metrics))
        self.words = words
        self.exclude = tuple(exclude)
        self._between = between
        self._needs_words = any(metric.needs == "words" for metric in self.metrics)
        # by a mask's repr, what the texts of the present length share; see `_length_tally`
        self._lengths: dict[str, LengthTally] = {}
        self._on_trace: OnTrace | None = None

    def runs_together(self, count: int) -> bool:
        """Whether texts of `count` tokens are run as one batch; else each is run alone: by blocks
        of query rows where it is long, with its tokens merged to words, or without the pairs of its
        tokens that `exclude` leaves out."""
        return not self.exclude and self.is_whole(count)

    def is_whole(self, count: int) -> bool:
        """Whether the weights of a text of `count` tokens are measured as one whole array, with
        tokens that are not merged to words."""
        return not self.words and LengthTally.fits(self.metrics, count)

    def run(
        self,
        batch: Sequence[TokenizedText],
        on_layer: OnLayer,
        on_weights: OnWeights | None,
        on_trace: OnTrace | None = None,
    ) -> None:
        """Run a batch of texts of one length, calling `on_layer` and `on_trace` once for each layer;
        the batch is a single text where `runs_together` is false.

        on_weights: called with each layer's weights, whole or in blocks of rows; not called where
            tokens are merged to words, or where pairs are left out of a text that is measured
            whole. It serves `--find` and `--rules`, which commands refuse beside these.
        """
        self._on_trace = on_trace
        # the usual way: all texts at once, each layer's weights as one array
        if self.runs_together(len(batch[0].tokens)):
            self._run_together(batch, on_layer, on_weights)
            return
        (text,) = batch
        if self.words:
            # `--words`: weights are measured after tokens were merged to words
            self._run_merged(text, on_layer)
        elif self.is_whole(len(text.tokens)):
            # `--exclude`, and weights that fit in one array: measured without the pairs left out
            self._run_excluded(text, on_layer)
        else:
            # a text too long for one array of weights: they go by in blocks of query rows
            self._run_by_rows(text, on_layer, on_weights)

    def _run_together(
        self, batch: Sequence[TokenizedText], on_layer: OnLayer, on_weights: OnWeights | None
    ) -> None:
        """Run texts of one length as one batch, calling `on_layer` and `on_weights` for each
        layer."""
        count = len(batch[0].tokens)
        facts_of_texts = [self._token_facts(text) for text in batch]
        text_batches: dict[str, TextBatch] = {}  # by a mask's repr: layers with one mask share it
        token_lists = [text.tokens for text in batch]
        for trace in self._layer_traces(token_lists, rows=None, on_block=None):
            mask = self.spec.blocks[trace.layer].attention.mask
            if repr(mask) not in text_batches:
                length_tally = self._length_tally(mask, count)
                text_batches[repr(mask)] = TextBatch(length_tally, facts_of_texts)
            # some models have a learned key behind those of the tokens: its weight is left out, and
            # the entropy that the attention step computed would include it
            whole = trace.stages["weights"]
            weights = whole[..., :count]
            entropy = None
            if whole.shape[-1] == count:
                entropy = trace.stages["entropy"]
            sums = text_batches[repr(mask)].sums(self.backend, weights, entropy)
            if on_weights is not None:
                on_weights(trace.layer, weights, 0, 0)  # from row 0 and head 0 on
            on_layer(trace.layer, weights, sums.value, sums.norm, sums.rows, sums.baseline)

    def _run_merged(self, text: TokenizedText, on_layer: OnLayer) -> None:
        """Run one text, and measure its weights with subword tokens merged to words, as `attn
        heads` does.
        """
        count = len(text.tokens)
        word_merge = merged_words(text.tokens, text.text.content)
        word_count = len(word_merge.words)
        # a merged word is one piece of its own
        text_facts = token_facts(word_merge.words, WordPieces(np.arange(word_count), word_count))
        for trace in self._layer_traces([text.tokens], rows=None, on_block=None):
            mask = self.spec.blocks[trace.layer].attention.mask
            # the masks of models that can be scanned are the same for all heads
            visible = sight_of(mask, count).visibility_matrix(count)[0]
            every = np.asarray(self.backend.numpy(trace.stages["weights"][0]), np.float64)
            weights = every[..., :count]  # without a learned key
            tally, feeder = self._new_tally(
                trace.layer, text_facts, word_count, self._left_out(word_merge.words)
            )
            feeder.take_layer(
                word_merge.merge(weights),
                word_merge.merge_visible(np.broadcast_to(visible, weights.shape)),
            )
            self._report_tally(trace.layer, tally, on_layer)

    def _run_excluded(self, text: TokenizedText, on_layer: OnLayer) -> None:
        """Run one text, and measure its weights without the pairs that `exclude` leaves out, as
        `attn heads` does.
        """
        count = len(text.tokens)
        text_facts = self._token_facts(text)
        left_out = exclusion(self.exclude, text.tokens)
        # 1 for pairs that count, 0 for the others, [query, key]
        kept = self.backend.array_as_is(~left_out.rows(np.arange(count)))
        for trace in self._layer_traces([text.tokens], rows=None, on_block=None):
            mask = self.spec.blocks[trace.layer].attention.mask
            visible = sight_of(mask, count).visibility_matrix(count)
            weights = trace.stages["weights"][..., :count]  # without a learned key
            tally, feeder = self._new_tally(trace.layer, text_facts, count, left_out)
            feeder.take_layer(np.asarray(self.backend.numpy(weights[0]), np.float64), visible)
            self._report_tally(trace.layer, tally, on_layer, weights * kept)

    def _run_by_rows(
        self, text: TokenizedText, on_layer: OnLayer, on_weights: OnWeights | None
    ) -> None:
        """Run one long text by blocks of query rows, so that no array is tokens × tokens."""
        count = len(text.tokens)
        text_facts = self._token_facts(text)
        tallies: dict[int, tuple[Tally, RowFeeder]] = {}

        def on_block(layer: int, kind: str, rows: RowBlock) -> None:
            """Measure one block of query rows, [head, row, key], of a layer's self-attention."""
            if kind != "self":
                return
            if layer not in tallies:
                tallies[layer] = self._new_tally(
                    layer, text_facts, count, self._left_out(text.tokens)
                )
            if on_weights is not None:
                on_weights(layer, _pad_keys(self.backend, rows, count), rows.start, rows.first_head)
            _, feeder = tallies[layer]
            feeder.on_block(_drop_batch_axis(rows))

        for trace in self._layer_traces([text.tokens], rows_for(self.spec, count), on_block):
            tally, _ = tallies.pop(trace.layer)  # all the layer's blocks have come
            self._report_tally(trace.layer, tally, on_layer)

    def _token_facts(self, text: TokenizedText) -> TokenFacts:
        """What metrics need to know of a text's tokens; where a metric needs words, also which
        tokens make up each word.
        """
        if not self._needs_words:
            return token_facts(text.tokens)
        starts = word_starts(text.tokens, text.text.content)
        return token_facts(text.tokens, WordPieces(np.array(starts, np.int64), len(text.tokens)))

    def _left_out(self, tokens: Sequence[Token]) -> Exclusion | None:
        """The pairs of query and key that `exclude` leaves out of a text with these tokens or
        merged words; None where it leaves out nothing."""
        if not self.exclude:
            return None
        return exclusion(self.exclude, tokens)

    def _new_tally(
        self, layer: int, text_facts: TokenFacts, count: int, left_out: Exclusion | None
    ) -> tuple[Tally, RowFeeder]:
        """A new, empty tally of the metrics of a layer's heads for a text of `count` tokens, and
        the feeder that adds rows of weights to it, without the pairs that are left out."""
        heads = self.spec.blocks[layer].attention.heads
        tally = Tally(heads, self.metrics, text_facts)
        feeder = RowFeeder(
            self.backend, [tally], text_facts, count, heads=range(heads), exclusion=left_out
        )
        return tally, feeder

    def _report_tally(
        self, layer: int, tally: Tally, on_layer: OnLayer, weights: Array | None = None
    ) -> None:
        """Call `on_layer` with the sums of a layer of a single text that was measured by rows.

        weights: those of the layer, [1, head, query, key], without left-out pairs; None where they
            went by in blocks.
        """
        value, norm, row_counts, baseline = tally.totals()
        # with an axis of texts, of which there is one
        on_layer(layer, weights, value[None], norm[None], row_counts, baseline[None])

    def _layer_traces(
        self,
        texts: Sequence[Sequence[Token]],
        rows: int | None,
        on_block: Callable[[int, str, RowBlock], None] | None,
    ) -> Iterator[LayerTrace]:
        """Run texts of one length, and yield each attention layer's intermediate results in order;
        layers that mix tokens by other means than attention (`instead`) yield none.

        rows: how many query rows are computed at once, None for all.
        on_block: called with (layer, kind of attention, rows) for each block of so many rows; None
            where all rows are computed at once.
        """
        count = len(texts[0])  # tokens of each
        context = Context(np.arange(count), count, keep=STAGES, rows=rows, on_block=on_block)
        vectors = embed_texts(self.store, self.backend, texts)
        hidden = vectors.reshape((len(texts), count, vectors.shape[-1]))
        for trace in run_layers(
            self.spec, self.store, self.backend, hidden, context, range(len(self.spec.blocks))
        ):
            if not self.spec.blocks[trace.layer].instead:
                if self._on_trace is not None:
                    self._on_trace(trace)
                yield trace
            self._between()

    def _length_tally(self, mask: Mask, count: int) -> LengthTally:
        """What the metrics precompute for texts of `count` tokens under a mask; cached until texts
        of another length come."""
        # batches come by length: a length that is over does not come again in this shard
        if any(length.count != count for length in self._lengths.values()):
            self._lengths.clear()
        if repr(mask) not in self._lengths:
            self._lengths[repr(mask)] = LengthTally(self.metrics, mask, count)
        return self._lengths[repr(mask)]


def _pad_keys(backend: Backend, rows: RowBlock, count: int) -> Array:
    """A block's weights [text, head, row, key] with all `count` keys, 0 for those that the block
    leaves out.
    """
    weights = rows.stages["weights"]
    if rows.low > 0 or rows.high < count:
        dtype = backend.dtype_of(weights)
        before = backend.full((*weights.shape[:-1], rows.low), 0.0, dtype)
        # a block may end behind the tokens, with a learned key, which is cut off below
        after = backend.full((*weights.shape[:-1], max(count - rows.high, 0)), 0.0, dtype)
        weights = backend.concat([before, weights, after], -1)
    return weights[..., :count]


def _drop_batch_axis(rows: RowBlock) -> RowBlock:
    """The block of a batch's only text, without the batch axis."""

    def find_visibility() -> Array | None:
        """Which keys the rows see, without the batch axis where it has one; None where all is
        visible."""
        visibility = rows.visibility
        if visibility is None or visibility.ndim < 4:
            return visibility
        return visibility[0]

    stages = {name: stage[0] for name, stage in rows.stages.items()}
    return replace(
        rows,
        stages=stages,
        mixed=rows.mixed[0],
        find_visibility=find_visibility,
        empty=rows.empty[0],
        lse=rows.lse[0],
    )


# What taking chosen heads away changes in each text of a corpus.

WAYS: dict[str, By] = {"zero": ByZero(), "mean": ByMean()}
"""What stands for a head that is taken away; the mean is over the text's own tokens."""


class AblationEffects:
    """Measures the effect of removing heads one at a time: how far a text's output vector turns, 1
    − cosine. A decoder's output vector is that of the last token, an encoder's the mean over all
    tokens.

    places: the heads that are removed.
    """

    def __init__(self, way_and_heads: Sequence[str], model: Model) -> None:
        """Prepare to remove heads from a model.

        way_and_heads: "zero" or "mean", then heads as written, such as "L5H11"; see `WAYS`.
        model: with its weights in memory, since it is run for every text and head.
        """
        way, *heads = way_and_heads
        self._by = WAYS[way]
        self._model = model
        pairs = sorted({pair for head_text in heads for pair in parse_heads(head_text)})
        self.places = places(model.spec, HeadSelection(pairs=pairs))

    def of_text(self, tokens: Sequence[Token]) -> Floats:
        """The effect (1 − cosine) of removing each head from a text, [head] in the order of
        `places`; NaN where a vector is 0 and has no direction."""
        text = SweepText(self._model, tokens, self._model.backend)
        spec = self._model.spec
        count = len(tokens)
        # a decoder's output vector is that of the last token, an encoder's the mean over all; where
        # the next token would be predicted plays no part in it
        request = MeasureRequest(("vector",), measured_at(spec, count), count - 1)
        # the sweep runs the text once for each head, whose output the function given to it replaces;
        # how that is done does not depend on the weights
        plan = SweepPlan(
            self.places, lambda trace, weights, kind: ablate_heads(text, self._by, trace, kind)
        )
        readings = sweep(text, plan, request, memory=None).readings
        # [head, variant]: here each head is changed in one way
        return np.asarray(readings["cosine"][:, 0], np.float64)


def check_effects(way: str, heads: Sequence[str]) -> tuple[str, ...]:
    """The options `--effect` and `--head` in the form in which a plan holds them: ("zero" or
    "mean", then each head as "L5H11"); () where neither is given. Raises UsageError where one lacks
    the other.

    way: of taking heads away, "" where `--effect` is not given.
    heads: the values of `--head`; one may list several, such as "L5H11,L3H1".
    """
    if not way and not heads:
        return ()
    if not way:
        raise UsageError("--head chooses heads for --effect", expected="both", hint="--effect zero")
    if not heads:
        raise UsageError(
            "--effect needs the heads to take away", expected="both", hint="--head L5H11"
        )
    return (
        way,
        *(head_name(layer, head) for head_text in heads for layer, head in parse_heads(head_text)),
    )


TYPICAL, LONGEST = 8, 128
"""Characters of a token: more than most have, and as many as the longest of any vocabulary in use.
"""
MARGIN = 16
"""Tokens at the end of a piece that may be others in the whole text."""
SKIPPED = ("empty", "long", "undecodable", "duplicate", message("not drawn"))
"""Why a record may not count; each is counted."""
UNKNOWN = "unknown"
"""Why one may not count where --skip-unknown is given; counted only there."""
UNTOKENIZED = "untokenized"
"""Why a text does not count that the tokenizer fails on; counted only where there is one."""


class ShardTakers(Struct, frozen=True, eq=False):
    """The collectors that a shard's batches are added to; None for those that were not asked for.

    counts: of pairs of tokens that strongest links join.
    rows: the table of every text and head.
    links: the table of links that `--find` looks for.
    conditions: counts of these links.
    """

    tallies: Tallies
    examples: Examples
    sample: TextSample
    counts: ShardLinks | None
    rows: RowTable | None
    links: LinkTable | None
    why: WhyTallies | None = None
    rules: ShardRules | None = None
    conditions: ConditionCounts | None = None

    def arrays(self) -> dict[str, Ints]:
        """The arrays that the shard's file keeps, by name."""
        arrays: dict[str, Ints] = {
            **self.tallies.arrays,
            **{f"top_{name}": array for name, array in self.examples.fields.items()},
            **self.sample.arrays,
        }
        for taker in (self.counts, self.rules, self.conditions):
            if taker is not None:
                arrays |= taker.arrays()
        if self.why is not None:
            arrays |= self.why.arrays
        return arrays


class WeightBlock(NamedTuple):
    """Weights of a layer of a batch, [text, head, row, key], from row `first` and head `first_head`
    on."""

    layer: int
    weights: Array
    first: int
    first_head: int


class Worker:
    """Computes the shards of a scan one after the other, with the model's weights in memory."""

    def __init__(
        self,
        plan: ScanPlan,
        folder: Path,
        model: Model,
        *,
        part: str = "1",
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the model's weights, and prepare what all shards share; none is computed yet.

        model: the plan's model, in the plan's type, on torch.
        folder: the scan's.
        part: which part of the scan this is; it stands in the names of temporary files.
        between: called between layers and between batches, when little memory is held.

        This runs the files of metrics and of rules that the plan names, as code.
        """
        self.plan = plan
        self.folder = folder
        self.model = model
        self.part = part
        measures = plan.measures
        for file in measures.metric_files:
            require(file)
        if measures.rules is None:
            self._rule_places = None
        else:
            self._rule_places = head_places(model)
            self._rules = usable_rules(self._rule_places, planned_rules(measures.rule_files))
        self.columns = plan.columns
        held_model = hold_weights(model)

        # metrics of weights are measured text by text; the others are filled in after them, from
        # vectors, from other columns, or from the model alone
        later_metrics = {*CORPUS_METRICS, *ROLE_METRICS}
        self._weight_metrics = [name for name in plan.metrics if name not in later_metrics]
        role_names = [name for name in plan.metrics if name in ROLE_METRICS]
        self._roles = role_scores(model, role_names) if role_names else None
        all_vectors = MASSIVE in plan.metrics
        # labels are decided by scores without the first token, measured behind the metrics
        label_scores = BEYOND if measures.labels else ()
        self._layers = Layers(
            held_model,
            [*self._weight_metrics, *label_scores],
            words=measures.words,
            exclude=measures.exclude,
            all_vectors=all_vectors,
            between=between,
        )
        # by layer, what measures how far its heads move the state; [] where nobody asks
        self._norms = [
            OutputNorms(model.backend, held_model.store, layer, heads)
            for layer, heads in enumerate(plan.model.heads)
            if MOVED in plan.metrics
        ]
        self._effects = AblationEffects(measures.effects, held_model) if measures.effects else None
        self._why = WhyShares(measures.why, held_model) if measures.why else None

        # tokens of a text at most: those of `--max-tokens` (0 for no limit) and those that the model
        # takes (None for no limit)
        self._limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
        self._between = between
        # each layer's first head among all heads, then the number of all
        self._starts = np.cumsum([0, *plan.model.heads])
        self._conditions = plan.measures.conditions
        # (file, line) of the records that repeat an earlier one
        self._duplicates = read_duplicates(folder, plan.choice.duplicates)

    def shard(
        self,
        number: int,
        progress: Callable[[int], None] = ignore,
        on_work: Callable[[float], None] = ignore,
    ) -> Mapping[str, int]:
        """Compute shard `number`, and write its files. Returns its counts by name, such as "texts".

        progress: called with the number of texts done since its last call; with 0 when the first
            begins.
        on_work: called with the work done since its last call, a share of the shard's records: of a
            shard with 500 records 500 in all, divided among texts by their tokens.
        """
        plan = self.plan
        if plan.measures.rows:
            row_file = row_writer(self.folder, number, self.part, plan.heads, self.columns)
        else:
            row_file = None
        with row_file or nullcontext() as rows:
            state, links = self.compute(number, progress, rows, on_work)
        if links is not None:
            links.save(self.folder, number, self.part)
        save_state(self.folder, number, state, self.part)
        counts: Mapping[str, int] = state.facts["counts"]
        return counts

    def compute(
        self,
        number: int,
        progress: Callable[[int], None] = ignore,
        rows: RowTable | None = None,
        on_work: Callable[[float], None] = ignore,
    ) -> tuple[ShardState, LinkTable | None]:
        """Compute shard `number` without writing its state: (state, links that meet conditions or
        None where there are no conditions).

        rows: receives the shard's rows of numbers.
        progress, on_work: as of `shard`.
        """
        plan = self.plan
        # read all records first: only then is it known that no file has changed
        records = intake.records(
            plan.files, plan.shards[number], self.folder / COPIES, plan.choice.cluster
        )
        counts = dict.fromkeys(("texts", "tokens", "truncated", *SKIPPED), 0)
        texts = list(self._counted_texts(records, counts))
        takers = self._shard_takers(number, texts, rows)

        # `on_work` shares the shard's records out by the tokens of the texts that count, as the time
        # goes by tokens; where no text counts, there are none
        token_count = sum(text.tokens for text in texts)
        records_per_token = self._record_count(number) / max(token_count, 1)
        # run the texts, as many at once as may be
        progress(0)
        for batch in batches(texts, max(plan.model.heads)):
            if self._layers.runs_together(batch[0].tokens):
                groups = [batch]
            else:
                groups = [[text] for text in batch]
            for group in groups:
                self._take_batch([self._tokenize(text) for text in group], takers)
                self._between()
                progress(len(group))
                on_work(sum(text.tokens for text in group) * records_per_token)
        takers.tallies.flush()

        # the shard's arrays, and beside them the texts of its examples and what computed it
        arrays = takers.arrays()
        # (file, line) of the texts that are examples
        example_places = takers.examples.text_places() | takers.sample.text_places()
        counted_records = (text.record for text in texts)
        example_texts = [
            [record.file, record.line, record.text]
            for record in counted_records
            if (record.file, record.line) in example_places
        ]
        # texts of the tokens whose links are counted
        if takers.counts is None:
            token_texts = []
        else:
            token_texts = takers.counts.token_texts(arrays["link_pairs"])
        if takers.conditions is not None:
            counts |= takers.conditions.first_keys()
        facts = {
            "counts": counts,
            "machine": machine(self.model),
            "plan": plan.digest,
            "range": [part.sha256 for part in plan.shards[number]],
            "examples": sorted(example_texts),
            "tokens": token_texts,
        }
        narrow_arrays = {name: _narrow(array) for name, array in arrays.items()}
        # through JSON, so that a shard just computed equals one read from its file (tuples become
        # lists)
        return ShardState(narrow_arrays, json.loads(json.dumps(facts))), takers.links

    def _shard_takers(
        self, number: int, texts: Sequence[CountedText], rows: RowTable | None
    ) -> ShardTakers:
        """New, empty collectors for all that a shard counts.

        number: the shard's.
        rows: the table that gets a row for each text and head; None where none is asked for.
        """
        plan = self.plan
        columns = len(self.columns)
        heads = int(self._starts[-1])
        tallies = Tallies(self.columns, heads, labels=plan.measures.labels)
        examples = Examples(columns, heads, plan.measures.top)
        sample = TextSample(columns, heads, DRAWN * plan.measures.examples)
        if plan.measures.links:
            counts_of_links = ShardLinks(self.model.spec, self._starts)
        else:
            counts_of_links = None
        if self._conditions:
            links = LinkTable()
            conditions = ConditionCounts(self.model.spec, self._conditions, self._starts)
        else:
            links = None
            conditions = None
        if plan.measures.why:
            why = WhyTallies(plan.measures.why)
        else:
            why = None
        rules = self._shard_rules(number, texts)
        return ShardTakers(
            tallies=tallies,
            examples=examples,
            sample=sample,
            counts=counts_of_links,
            rows=rows,
            links=links,
            why=why,
            rules=rules,
            conditions=conditions,
        )

    def _record_count(self, number: int) -> int:
        """How many records of the corpus a shard has."""
        return sum(part.count for part in self.plan.shards[number])

    def _shard_rules(self, number: int, texts: Sequence[CountedText]) -> ShardRules | None:
        """A new collector of what rules are fitted to, chosen by and measured on, for the texts of
        a shard; None where rules are not asked for.
        """
        if self._rule_places is None:
            return None
        places = self._rule_places
        share = self._record_count(number) / self.plan.texts  # of the corpus's records
        shard_texts = [
            ShardText(
                (text.record.file, text.record.line), text.hash, text.seeded_hash, text.tokens
            )
            for text in texts
        ]
        return ShardRules(self._rules, places, shard_texts, share)

    def _counted_texts(
        self, records: Iterator[Record], counts: dict[str, int]
    ) -> Iterator[CountedText]:
        """Yield the texts that are counted. Each record is added to `counts`: as a text with its
        tokens, or else by the reason why it is left out (`SKIPPED`, `UNKNOWN`, `UNTOKENIZED`).
        """
        plan = self.plan
        limit = self._limit
        for record in records:
            if record.text is None:
                counts[record.reason] += 1
                continue
            if (record.file, record.line) in self._duplicates:
                counts["duplicate"] += 1
                continue
            # with `--sample`, the texts with the smallest hashes are drawn
            seeded_hash = text_hash(record.text, plan.seed)
            if plan.choice.sample and seeded_hash > plan.choice.threshold:
                counts["not drawn"] += 1
                continue

            # Does it have tokens, and not too many? A tokenizer that takes too long raises another
            # error, which ends the shard: another machine may be faster.
            try:
                piece, tokens = tokenize_beginning(record.text, self.model.tokenizer, limit)
            except InputError:
                counts[UNTOKENIZED] = counts.get(UNTOKENIZED, 0) + 1
                continue
            if not tokens:
                counts["empty"] += 1
                continue
            # a text of which only the beginning (`piece`) was tokenized is too long in any case
            is_long = len(tokens) > limit or len(piece) < len(record.text)
            if is_long and plan.choice.over != "truncate":
                counts["long"] += 1
                continue
            unknown = sum(token.unknown for token in truncate(tokens, limit))
            if unknown and plan.choice.skip_unknown:
                counts[UNKNOWN] = counts.get(UNKNOWN, 0) + 1
                continue
            if unknown:  # a scan of texts that a model knows has no such counts
                counts["unknown_texts"] = counts.get("unknown_texts", 0) + 1
                counts["unknown_tokens"] = counts.get("unknown_tokens", 0) + unknown

            counts["texts"] += 1
            count = min(len(tokens), limit)
            counts["tokens"] += count
            counts["truncated"] += is_long
            # replicates of the bootstrap draw whole clusters, such as documents, where there are any
            if record.cluster:
                drawn_hash = text_hash(record.cluster, plan.seed)
            else:
                drawn_hash = seeded_hash
            if plan.seed:
                plain_hash = text_hash(record.text)
            else:
                plain_hash = seeded_hash  # the seed is 0
            yield CountedText(
                replace(record, text=piece), count, drawn_hash, seeded_hash, plain_hash
            )

    def _tokenize(self, text: CountedText) -> TokenizedText:
        """A counted text with its tokens, truncated to the limit."""
        return TokenizedText(text, truncate(self.model.tokenizer.encode(text.content), self._limit))

    def _take_batch(self, batch: Sequence[TokenizedText], takers: ShardTakers) -> None:
        """Run texts of one length, and add their numbers to all collectors."""
        count = len(batch[0].tokens)
        texts = [text for text, _ in batch]
        backend = self.model.backend

        # the numbers of the batch, [text, column, head], as of `TextValues`; filled below
        shape = (len(batch), len(self.columns), int(self._starts[-1]))
        value = np.zeros(shape)
        norm = np.zeros(shape)
        baseline = np.full(shape, np.nan)
        row_counts = np.zeros(shape[1:], np.int64)
        places = _places_of(texts)
        names_beyond = []
        if self.plan.measures.labels:
            names_beyond = [metric.name for metric in BEYOND]
        beyond = BeyondFirst.of(len(batch), names_beyond, shape[2])
        # each text's and head's strongest link, [query or key, text, head]; −1 for none, as of long
        # texts whose weights go by in blocks
        strongest = np.full((2, len(batch), shape[2]), -1, np.int64)
        names = [TextPlace(text.plain_hash, text.record.file, text.record.line) for text in texts]

        # what needs runs of its own
        if self._effects is not None:
            self._fill_effects(self._effects, batch, value, norm, row_counts)
        self._take_reasons(batch, takers)

        # tell the collectors of links and rows which texts come
        token_lists = [tokens for _, tokens in batch]
        # [text, key]: the keys on which heads put weight whatever the text says
        rest = np.stack([rest_keys(tokens) for tokens in token_lists])
        condition_places = self._begin_conditions(takers, token_lists, rest)
        # what `ShardLinks.add` needs of the tokens, [text, token]; None where links are not counted
        ids = None
        if takers.counts is not None and self._layers.runs_together(count):
            ids = takers.counts.begin(token_lists)
        if takers.rules is not None:
            takers.rules.begin(_lines_of(texts), token_lists)

        def on_weights(layer: int, weights: Array, first: int, first_head: int) -> None:
            """Keep the links that match a condition, and the rows that rules are compared with,
            from weights [text, head, row, key] of a layer, from row `first` and head `first_head`
            on.
            """
            if takers.rules is not None:
                takers.rules.add(backend, layer, weights, first, first_head)
            block = WeightBlock(layer, weights, first, first_head)
            self._take_links(takers, block, condition_places, names, token_lists)

        def on_layer(
            layer: int,
            weights: Array | None,
            layer_value: Floats,
            layer_norm: Floats,
            layer_rows: Ints,
            layer_baseline: Floats,
        ) -> None:
            """Put a layer's sums over query rows into the arrays of the batch: first those of
            metrics, then the scores without the first token; and count its strongest links. The
            arguments are those of `OnLayer`.
            """
            heads = slice(int(self._starts[layer]), int(self._starts[layer + 1]))
            head_count = heads.stop - heads.start
            metrics = len(self._weight_metrics)
            all_scores = metrics + len(beyond.names)

            # with the axes of the batch's arrays: [text, score, head], and [score, head] for rows
            values = layer_value.transpose(0, 2, 1)
            norms = layer_norm.transpose(0, 2, 1)
            rows = np.broadcast_to(np.asarray(layer_rows), (head_count, all_scores)).T
            # uniform weights may give the same in every head, without an axis of heads
            if layer_baseline.ndim != 3:
                layer_baseline = layer_baseline[:, None, :]
            by_head = np.broadcast_to(layer_baseline, (len(batch), head_count, all_scores))
            baselines = by_head.transpose(0, 2, 1)

            value[:, :metrics, heads] = values[:, :metrics]
            norm[:, :metrics, heads] = norms[:, :metrics]
            row_counts[:metrics, heads] = rows[:metrics]
            baseline[:, :metrics, heads] = baselines[:, :metrics]
            beyond.value[..., heads] = values[:, metrics:]
            beyond.norm[..., heads] = norms[:, metrics:]
            beyond.rows[:, heads] = rows[metrics:]
            beyond.baseline[..., heads] = baselines[:, metrics:]
            if weights is not None:
                mask = self.model.spec.blocks[layer].attention.mask
                # the rows that see two keys or more where heads do not rest, [text, query]
                choosing = choosing_of_texts(mask, rest)
                keys, strongest[..., heads] = strongest_links(backend, weights, choosing, rest)
                if ids is not None and takers.counts is not None:
                    takers.counts.add(ids, layer, keys)

        def on_trace(trace: LayerTrace) -> None:
            """Measure what needs more of a layer than its weights: how far heads move the state,
            and massive activations, which are the layer's and stand in the column of its head 0."""
            start, stop = self._starts[trace.layer : trace.layer + 2]
            if MOVED in self.columns:
                moved = moved_norms(self._norms[trace.layer].of(head_outputs(trace.stages)).sum(-1))
                column = self.columns.index(MOVED)
                value[:, column, start:stop] = np.nan_to_num(moved)
                norm[:, column, start:stop] = ~np.isnan(moved)  # 0: a text without this number
                row_counts[column, start:stop] = count
            if MASSIVE in self.columns:
                column = self.columns.index(MASSIVE)
                value[:, column, start] = massive_counts(backend, trace)
                norm[:, column, start] = 1.0
                row_counts[column, start] = count

        is_traced = not {MOVED, MASSIVE}.isdisjoint(self.columns)
        self._layers.run(
            batch,
            on_layer,
            on_weights if self._conditions or takers.rules is not None else None,
            on_trace if is_traced else None,
        )

        # the remaining columns, then hand all numbers to the collectors
        self._fill_derived(value, norm, baseline, row_counts)
        hashes = [text.hash for text in texts]
        text_values = TextValues(value, norm, baseline, row_counts, count, hashes)
        if self.plan.measures.labels:
            text_values = self._with_label_scores(text_values, beyond)
        takers.tallies.add(text_values)
        # as shards hold numbers: multiples of 2⁻²⁴, and `NONE` where a text has none
        fixed_means = np.where(np.isnan(text_values.mean), NONE, to_fixed(text_values.mean))
        takers.examples.add(fixed_means, places, strongest)
        takers.sample.add(fixed_means, places, strongest)
        if takers.rows is not None:
            takers.rows.add(names, count, text_values.mean, row_counts)

    def _begin_conditions(
        self, takers: ShardTakers, token_lists: Sequence[Sequence[Token]], rest: Bools
    ) -> list[Places]:
        """Find where the tokens of each `--find` condition stand in each text of a batch, and begin
        the batch in the counts of links; returns these places by condition and text.

        rest: the keys of each text where heads rest, booleans [text, key].
        """
        texts = list(zip(token_lists, rest, strict=True))
        places: list[Places] = [
            [shard_files.places_of_condition(condition, *text) for text in texts]
            for condition in self._conditions
        ]
        if takers.conditions is not None:
            first_keys = [
                [shard_files.has_first_key(condition, *text) for text in texts]
                for condition in self._conditions
            ]
            takers.conditions.begin(places, rest.shape[1], first_keys)
        return places

    def _take_links(
        self,
        takers: ShardTakers,
        block: WeightBlock,
        places: Sequence[Places],
        names: Sequence[TextPlace],
        token_lists: Sequence[Sequence[Token]],
    ) -> None:
        """Keep the links of a block of weights that match a condition; nothing where `--find` was
        not given.

        places: by condition and text, where its tokens are.
        names: of each text, what identifies it in the table.
        """
        if takers.links is None or takers.conditions is None:
            return
        conditions = zip(self._conditions, places, strict=True)
        for number, (condition, text_places) in enumerate(conditions):
            matched_links = shard_files.matching_links(
                condition,
                self.model.backend,
                block.weights,
                block.layer,
                text_places,
                first=block.first,
                first_head=block.first_head,
            )
            takers.conditions.add(number, matched_links)
            takers.links.add(
                number, matched_links, names, lambda text, token: token_lists[text][token].text
            )

    def _take_reasons(self, batch: Sequence[TokenizedText], takers: ShardTakers) -> None:
        """Add the parts of the scores of each text's strongest links to the tally of `--why`;
        nothing where that was not asked for.
        """
        if self._why is not None and takers.why is not None:
            for text, tokens in batch:
                self._why.take(tokens, text.hash, takers.why)

    def _fill_effects(
        self,
        effects: AblationEffects,
        batch: Sequence[TokenizedText],
        value: Floats,
        norm: Floats,
        row_counts: Ints,
    ) -> None:
        """Fill the column of effects, for the heads that are removed: what that changes in every
        text. The arrays are those of the batch, [text, column, head].
        """
        column = self.columns.index(EFFECT)
        heads = [int(self._starts[place.layer]) + place.head for place in effects.places]
        changes = np.array([effects.of_text(tokens) for _, tokens in batch])
        value[:, column, heads] = np.nan_to_num(changes)
        norm[:, column, heads] = ~np.isnan(changes)  # 0 for a text without this number
        row_counts[column, heads] = 1  # an effect is one number of a text, not a mean over rows

    def _fill_derived(
        self, value: Floats, norm: Floats, baseline: Floats, row_counts: Ints
    ) -> None:
        """Fill the columns that come from other columns (`sink_rate`) or from the model alone
        (the scores of roles, such as copying), in the arrays of a batch, [text, column, head].
        """
        if SINK_RATE in self.columns:
            self._fill_sink_rates(value, norm, baseline, row_counts)
        if self._roles is not None:
            self._fill_roles(self._roles, value, norm, baseline, row_counts)

    def _fill_sink_rates(
        self, value: Floats, norm: Floats, baseline: Floats, row_counts: Ints
    ) -> None:
        """Fill the column `sink_rate` (1 for a text in which a head rests on the first token) from
        that of `sink` (the mean weight there)."""
        column = self.columns.index(SINK_RATE)
        sink = self.columns.index("sink")
        value[:, column], norm[:, column] = sink_rates(value[:, sink], norm[:, sink])
        # uniform attention rests there where it puts as much on the first token
        baseline[:, column] = baseline[:, sink] > RESTS
        row_counts[column] = row_counts[sink]

    def _fill_roles(
        self, scores: RoleScores, value: Floats, norm: Floats, baseline: Floats, row_counts: Ints
    ) -> None:
        """Fill the columns of the scores of roles, which are the same for every text, in the arrays
        of the batch, [text, column, head]; a number is value / norm, and a norm of 0 means none.
        """
        for name in ROLE_METRICS:
            if name not in self.columns:
                continue
            column = self.columns.index(name)
            for layer, heads in enumerate(self.plan.model.heads):
                place = slice(int(self._starts[layer]), int(self._starts[layer]) + heads)
                measured = scores.measure(name, layer, range(heads))
                has_score = ~np.isnan(measured.value)
                value[:, column, place] = np.nan_to_num(measured.value)
                norm[:, column, place] = has_score
                baseline[:, column, place] = measured.baseline
                row_counts[column, place] = measured.rows * has_score

    def _with_label_scores(self, texts: TextValues, beyond: BeyondFirst) -> TextValues:
        """A batch's numbers with the scores that decide labels, measured without the first token,
        in the columns after the metrics. The positional one is the largest share at one offset,
        over offsets that enough rows have."""
        # the scores of single offsets are the first of `BEYOND`, [text, offset, head]
        offsets = list(OFFSETS_BEYOND)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(beyond.norm > 0, beyond.value / beyond.norm, np.nan)
        has_enough_rows = beyond.rows >= LEAST_ROWS
        offset_means = np.where(has_enough_rows, means, np.nan)[:, : len(offsets)]
        # the index of the offset with the largest mean, [text, head]; the first where none has one
        best = np.where(np.isnan(offset_means), -np.inf, offset_means).argmax(1)

        # by label, the index in `BEYOND` of the score that decides it, [text, head]
        score_indices = {
            "previous-token": np.full_like(best, offsets.index("offset-1")),
            "next-token": np.full_like(best, offsets.index("offset+1")),
            "self": np.full_like(best, offsets.index("offset+0")),
            "positional": best,
            "punctuation": np.full_like(best, BEYOND.index(PUNCTUATION_BEYOND)),
            "broad": np.full_like(best, BEYOND.index(EVENNESS_BEYOND)),
        }
        for name, indices in score_indices.items():
            column = self.columns.index(LABEL_COLUMNS[name])
            for target, source in (
                (texts.value, beyond.value),
                (texts.norm, beyond.norm),
                (texts.baseline, beyond.baseline),
            ):
                # of each text and head the score at its index, [text, head]
                target[:, column] = np.take_along_axis(source, indices[:, None], 1)[:, 0]
            if name == "positional":  # texts differ in their best offset: the most rows of any
                texts.rows[column] = beyond.rows[: len(offsets)].max(0)
            else:  # the same score in every text
                texts.rows[column] = beyond.rows[indices[0, 0]]
        return replace(texts, offsets=best)


def _lines_of(texts: Sequence[CountedText]) -> list[tuple[int, int]]:
    """File and line of each text."""
    return [(text.record.file, text.record.line) for text in texts]


def _places_of(texts: Sequence[CountedText]) -> dict[str, Ints]:
    """The arrays that identify each text, by name, each [text]: its hash, without the highest bit
    so that it fits a signed number, its file, and its line in the file."""
    return {
        "hash": np.array([text.seeded_hash & (2**63 - 1) for text in texts], np.int64),
        "file": np.array([text.record.file for text in texts], np.int64),
        "line": np.array([text.record.line for text in texts], np.int64),
    }


class BeyondFirst(Struct, frozen=True, eq=False):
    """The scores without the first token that decide labels, for a batch of texts.

    names: of the scores, those of `BEYOND`; none where heads are not labelled.
    value, norm, baseline: [text, score, head], and rows: [score, head], as of `TextValues`.
    """

    names: Sequence[str]
    value: Floats
    norm: Floats
    baseline: Floats
    rows: Ints

    @staticmethod
    def of(texts: int, names: Sequence[str], heads: int) -> BeyondFirst:
        """Arrays for the named scores of `texts` texts and `heads` heads, which nothing is added to
        yet."""
        shape = (texts, len(names), heads)
        return BeyondFirst(
            names,
            np.zeros(shape),
            np.zeros(shape),
            np.full(shape, np.nan),
            np.zeros(shape[1:], np.int64),
        )


def tokenize_beginning(text: str, tokenizer: Tokenizer, limit: int) -> tuple[str, list[Token]]:
    """(the beginning of a text, its tokens): enough of the text to know its first `limit` tokens,
    so that a huge text is not tokenized whole; a short text is returned whole.

    A word of millions of characters would take gigabytes, a text of millions of words seconds,
    before all tokens but the first are thrown away.
    """
    size = limit * TYPICAL
    most = limit * LONGEST  # a text's first `limit` tokens have no more characters
    while size < len(text):
        # cut between words where there is a blank
        blank = text.rfind(" ", size - LONGEST, size)
        piece = text[: size if blank < 0 else blank]
        tokens = tokenizer.encode(piece)
        # tokens enough, though the cut may have changed the last few; or as much as is ever read
        if len(tokens) > limit + MARGIN or size == most:
            return piece, tokens
        # much more each time: what is tokenized again adds up to a third of the last piece
        size = min(4 * size, most)
    return text, tokenizer.encode(text)


def truncate(tokens: Sequence[Token], limit: int) -> list[Token]:
    """A text's tokens, shortened to `limit` of them: the first ones, followed by the special tokens
    at its end, which are kept. Indices are numbered anew."""
    if len(tokens) <= limit:
        return list(tokens)
    # where the special tokens at the end begin
    end = len(tokens)
    while end > 0 and tokens[end - 1].special:
        end -= 1
    last_tokens = list(tokens[end:])
    first_tokens = tokens[: max(limit - len(last_tokens), 0)]
    # of a text with more special tokens than `limit`, not even these all
    limited_tokens = [*first_tokens, *last_tokens][:limit]
    return [replace(token, index=index) for index, token in enumerate(limited_tokens)]


def machine(model: Model) -> dict[str, str]:
    """The facts about this machine that the last bits of numbers may depend on, by name: processor,
    instruction set, versions of libraries, device.
    """
    from attncli.arrays.torch_backend import capability

    return {
        "machine": platform.machine(),
        "isa": capability(),
        "numpy": np.__version__,
        "device": model.backend.device,
    }


def _narrow(array: Ints) -> Any:
    """The array as int32 if its values fit, else as int64."""
    fits = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
    if fits:
        return array.astype(np.int32, copy=False)
    return array
