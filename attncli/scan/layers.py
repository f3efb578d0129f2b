"""Batches of texts through the model, layer by layer: heads are measured, or taken away and their effects measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.errors import UsageError
from attncli.features.effects.changes import By, ByMean, ByZero, ablate_heads
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.places import HeadSelection, measured_at, places
from attncli.features.effects.sweep import SweepPlan, SweepText, memory_budget, sweep
from attncli.inputs.token import Token
from attncli.inputs.word_groups import merged_words
from attncli.measure.batch_measure import LengthTally, TextBatch, sight_of
from attncli.measure.exclusion import is_punctuation
from attncli.measure.head_measure import Tally
from attncli.measure.row_facts import TokenFacts, TokenPairs
from attncli.measure.row_stream import RowFeeder
from attncli.measure.visible_keys import Floats, Ints
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.context import Context
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Norm, Place, Spec
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model
from attncli.models.run import Store, rows_for, run_layers
from attncli.scan.conditions import parse_heads
from attncli.scan.corpus import Record

# Batches of texts with equal token counts: nothing is padded, so nothing is computed for nothing.

MOST_TOKENS = 1024
"""Tokens of a batch, at most, unless one text has more."""
MOST_WEIGHTS = 6_300_000
"""Weights of a layer of a batch (texts · heads · tokens²), at most, unless one text has more."""


@dataclass(frozen=True, eq=False)
class CountedText:
    """A text that counts; its record holds what matters of it. tokens: how many it is cut into, at most what the model
    takes. hash: what decides its counts. own, name: hashes of the whole text, with the scan's seed and without."""

    record: Record
    tokens: int
    hash: int
    own: int
    name: int


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text of a batch, cut into its tokens. hash, own, name: as of `CountedText`."""

    record: Record
    tokens: tuple[Token, ...]
    hash: int
    own: int
    name: int


def batches(texts: Sequence[CountedText], heads: int) -> Iterator[list[CountedText]]:
    """The texts in batches of one length each, shortest first, in the order of (tokens, file, line)."""
    sorted_texts = sorted(texts, key=lambda text: (text.tokens, text.record.file, text.record.line))
    batch: list[CountedText] = []
    for text in sorted_texts:
        count = text.tokens
        full = batch and (
            batch[0].tokens != count
            or (len(batch) + 1) * count > MOST_TOKENS
            or (len(batch) + 1) * heads * count * count > MOST_WEIGHTS
        )
        if full:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


STAGES = frozenset({"weights", "entropy"})

OnLayer = Callable[[int, Array | None, Floats, Floats, Ints, Floats], None]
"""Told each layer's number, weights [text, head, query, key] (None where they went by in blocks), value and norm
[text, head, metric], rows [metric], baseline [text, metric]."""

OnWeights = Callable[[int, Array, int, int], None]
"""Told each layer's number and a block of its weights [text, head, row, key], with its first row and first head."""


def about(tokens: Sequence[Token]) -> TokenFacts:
    """What the metrics may know of a text's tokens."""
    return TokenFacts(
        TokenPairs([token.text if token.id is None else token.id for token in tokens]),
        np.array([token.special for token in tokens]),
        np.array([is_punctuation(token) for token in tokens]),
    )


class Layers:
    """Runs batches. store: the weights, held. metrics: names. words: whether pieces are merged to words.

    between: called after each layer.
    """

    def __init__(
        self,
        spec: Spec,
        store: Store,
        backend: Backend,
        metrics: Sequence[str],
        *,
        words: bool,
        between: Callable[[], None],
    ) -> None:
        # what the last layer does with its weights is not asked for
        last = spec.blocks[-1]
        entering: dict[Place, Norm] = {place: norm for place, norm in last.norms.items() if place == "attn.in"}
        blocks = (*spec.blocks[:-1], replace(last, mlp=None, norms=entering))
        self.spec, self.store, self.backend = replace(spec, blocks=blocks), store, backend
        self.metrics, self.words, self._between = tuple(metrics), words, between
        self._lengths: dict[str, LengthTally] = {}

    def together(self, count: int) -> bool:
        """Whether texts of `count` tokens run as one batch; else each goes by blocks of rows, alone."""
        return not self.words and LengthTally.fits(self.metrics, count)

    def run(self, batch: Sequence[TokenizedText], on_layer: OnLayer, on_weights: OnWeights | None) -> None:
        """Run texts of one length through all layers; a single text where they do not go `together`."""
        count = len(batch[0].tokens)
        if self.together(count):
            self._together(batch, on_layer, on_weights)
            return
        (text,) = batch
        if self.words:
            self._words(text, on_layer)
        else:
            self._by_rows(text, on_layer, on_weights)

    def _together(self, batch: Sequence[TokenizedText], on_layer: OnLayer, on_weights: OnWeights | None) -> None:
        count = len(batch[0].tokens)
        abouts = [about(text.tokens) for text in batch]
        texts: dict[str, TextBatch] = {}
        for trace in self._through([text.tokens for text in batch], None, None):
            mask = self.spec.blocks[trace.layer].attention.mask
            if repr(mask) not in texts:
                texts[repr(mask)] = TextBatch(self._length(mask, count), abouts)
            whole = trace.stages["weights"]
            weights = whole[..., :count]
            # where a learned key takes part, which is no token, the step's entropy is not of the tokens alone
            entropy = trace.stages["entropy"] if whole.shape[-1] == count else None
            sums = texts[repr(mask)].sums(self.backend, weights, entropy)
            if on_weights is not None:
                on_weights(trace.layer, weights, 0, 0)
            on_layer(trace.layer, weights, sums.value, sums.norm, sums.rows, sums.baseline)

    def _words(self, text: TokenizedText, on_layer: OnLayer) -> None:
        """A text whose pieces are merged to words: as `attn heads` does it."""
        count, word_merge = len(text.tokens), merged_words(text.tokens, text.record.text or "")
        text_facts = about(word_merge.words)
        for trace in self._through([text.tokens], None, None):
            visible = sight_of(self.spec.blocks[trace.layer].attention.mask, count).visibility_matrix(count)[0]
            weights = np.asarray(self.backend.numpy(trace.stages["weights"][0]), np.float64)[..., :count]
            tally, watch = self._new_watch(trace.layer, text_facts, len(word_merge.words))
            watch.whole(word_merge.merge(weights), word_merge.merge_visible(np.broadcast_to(visible, weights.shape)))
            self._report_tally(trace.layer, tally, on_layer)

    def _by_rows(self, text: TokenizedText, on_layer: OnLayer, on_weights: OnWeights | None) -> None:
        """A long text, by blocks of query rows: nothing is n × n."""
        count, text_facts = len(text.tokens), about(text.tokens)
        watches: dict[int, tuple[Tally, RowFeeder]] = {}

        def block(layer: int, kind: str, rows: RowBlock) -> None:
            if kind != "self":
                return
            if layer not in watches:
                watches[layer] = self._new_watch(layer, text_facts, count)
            if on_weights is not None:
                on_weights(layer, _pad_keys(self.backend, rows, count), rows.start, rows.first_head)
            watches[layer][1].on_block(_drop_batch_axis(rows))

        for trace in self._through([text.tokens], rows_for(self.spec, count), block):
            self._report_tally(trace.layer, watches.pop(trace.layer)[0], on_layer)

    def _new_watch(self, layer: int, text_facts: TokenFacts, count: int) -> tuple[Tally, RowFeeder]:
        heads = self.spec.blocks[layer].attention.heads
        tally = Tally(heads, self.metrics, text_facts)
        return tally, RowFeeder(self.backend, [tally], text_facts, count, heads=range(heads))

    def _report_tally(self, layer: int, tally: Tally, on_layer: OnLayer) -> None:
        value, norm, row_counts, baseline = tally.totals()
        on_layer(layer, None, value[None], norm[None], row_counts, baseline[None])

    def _through(
        self, texts: Sequence[Sequence[Token]], rows: int | None, block: Callable[[int, str, RowBlock], None] | None
    ) -> Iterator[LayerTrace]:
        count = len(texts[0])
        context = Context(np.arange(count), count, keep=STAGES, rows=rows, on_block=block)
        hidden = self._embed(texts)
        for trace in run_layers(self.spec, self.store, self.backend, hidden, context, range(len(self.spec.blocks))):
            yield trace
            self._between()

    def _embed(self, texts: Sequence[Sequence[Token]]) -> Array:
        """The vectors that enter layer 0, [text, token, width]."""
        if self.spec.embedding.padding is None:  # each token's vector depends on itself and its position alone
            vectors = self.store.embed(self.backend, [token for tokens in texts for token in tokens])
        else:
            vectors = self.backend.concat([self.store.embed(self.backend, tokens) for tokens in texts], 0)
        return vectors.reshape((len(texts), len(texts[0]), vectors.shape[-1]))

    def _length(self, mask: Mask, count: int) -> LengthTally:
        """A length's coefficients under a mask, held until texts of another length come: a shard's go up."""
        if any(length.count != count for length in self._lengths.values()):
            self._lengths.clear()
        if repr(mask) not in self._lengths:
            self._lengths[repr(mask)] = LengthTally(self.metrics, mask, count)
        return self._lengths[repr(mask)]


def _pad_keys(backend: Backend, rows: RowBlock, count: int) -> Array:
    """A block's weights [text, head, row, key] over all of a text's keys: 0 where the block leaves them out."""
    weights = rows.stages["weights"]
    if rows.low > 0 or rows.high < count:
        dtype = backend.dtype_of(weights)
        sides = [(*weights.shape[:-1], rows.low), (*weights.shape[:-1], max(count - rows.high, 0))]
        before, after = (backend.full(side, 0.0, dtype) for side in sides)
        weights = backend.concat([before, weights, after], -1)
    return weights[..., :count]


def _drop_batch_axis(rows: RowBlock) -> RowBlock:
    """The block of a batch's only text, without the batch axis."""

    def find_visibility() -> Array | None:
        visibility = rows.visibility
        return visibility if visibility is None or visibility.ndim < 4 else visibility[0]

    stages = {name: stage[0] for name, stage in rows.stages.items()}
    return replace(
        rows, stages=stages, mixed=rows.mixed[0], find_visibility=find_visibility, empty=rows.empty[0], lse=rows.lse[0]
    )


# What taking chosen heads away changes in each text of a corpus.

WAYS: dict[str, By] = {"zero": ByZero(), "mean": ByMean()}
"""What stands for a head that is taken away; the mean is over the text's own tokens."""


class AblationEffects:
    """Takes heads away one at a time: how far the vector at the end turns, 1 − cos.

    It is that of a decoder's last token, of an encoder the mean over all tokens. way_and_heads: the way, then heads as
    written. store: of the model's weights, held.
    """

    def __init__(self, way_and_heads: Sequence[str], model: Model, store: Store) -> None:
        way, *heads = way_and_heads
        self._by, self._model = WAYS[way], replace(model, store=store)
        pairs = sorted({pair for head_text in heads for pair in parse_heads(head_text)})
        self.places = places(model.spec, HeadSelection((), (), pairs))

    def of(self, tokens: Sequence[Token]) -> Floats:
        """The effect of each place, [place]; NaN where a vector has no direction."""
        text = SweepText(self._model, tokens, self._model.backend)
        spec, count = self._model.spec, len(tokens)
        request = MeasureRequest(("vector",), measured_at(spec, count), count - 1)
        space = memory_budget(spec, count, len(self.places), text.backend.dtype, None)
        cosines = sweep(text, SweepPlan(self.places, ablate_heads(text, self._by)), request, space).readings["cosine"][
            :, 0
        ]
        return np.asarray(cosines, np.float64)


def check_effects(way: str, heads: Sequence[str]) -> tuple[str, ...]:
    """What a plan says of effects: the way, then the heads. Raises UsageError where one lacks the other."""
    if not way and not heads:
        return ()
    if not way:
        raise UsageError("--head chooses heads for --effects", expected="both", hint="--effects zero")
    if not heads:
        raise UsageError("--effects needs the heads to take away", expected="both", hint="--head L5H11")
    return (way, *(f"L{layer}H{head}" for head_text in heads for layer, head in parse_heads(head_text)))
