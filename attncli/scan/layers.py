"""One batch through the model: each layer's heads measured as it goes by, nothing kept of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.analysis.batch_measure import Length, Texts, sight_of
from attncli.analysis.exclusion import is_punctuation
from attncli.analysis.measure import Tally
from attncli.analysis.pairs import Pairs
from attncli.analysis.row_consumers import Watch
from attncli.analysis.row_facts import About
from attncli.analysis.visible_keys import Floats, Ints
from attncli.analysis.words import merged_words
from attncli.arrays.backend import Array, Backend
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.context import Context
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Norm, Place, Spec
from attncli.mechanism.trace import LayerTrace
from attncli.models.row_blocks import rows_for
from attncli.models.run import Store, through
from attncli.scan.batches import Cut

STAGES = frozenset({"weights", "entropy"})

Seen = Callable[[int, Array | None, Floats, Floats, Ints, Floats], None]
"""Told each layer's number, weights [text, head, query, key] (None where they went by in blocks), value and norm
[text, head, metric], rows [metric], baseline [text, metric]."""

Look = Callable[[int, Array, int, int], None]
"""Told each layer's number and a block of its weights [text, head, row, key], with its first row and first head."""


def about(tokens: Sequence[Token]) -> About:
    """What the metrics may know of a text's tokens."""
    return About(
        Pairs([token.text if token.id is None else token.id for token in tokens]),
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
        self._lengths: dict[str, Length] = {}

    def together(self, count: int) -> bool:
        """Whether texts of `count` tokens run as one batch; else each goes by blocks of rows, alone."""
        return not self.words and Length.fits(self.metrics, count)

    def run(self, batch: Sequence[Cut], see: Seen, look: Look | None) -> None:
        """Run texts of one length through all layers; a single text where they do not go `together`."""
        count = len(batch[0].tokens)
        if self.together(count):
            self._together(batch, see, look)
            return
        (cut,) = batch
        if self.words:
            self._words(cut, see)
        else:
            self._by_rows(cut, see, look)

    def _together(self, batch: Sequence[Cut], see: Seen, look: Look | None) -> None:
        count = len(batch[0].tokens)
        abouts = [about(cut.tokens) for cut in batch]
        texts: dict[str, Texts] = {}
        for trace in self._through([cut.tokens for cut in batch], None, None):
            mask = self.spec.blocks[trace.layer].attention.mask
            if repr(mask) not in texts:
                texts[repr(mask)] = Texts(self._length(mask, count), abouts)
            whole = trace.stages["weights"]
            weights = whole[..., :count]
            # where a learned key takes part, which is no token, the step's entropy is not of the tokens alone
            entropy = trace.stages["entropy"] if whole.shape[-1] == count else None
            found = texts[repr(mask)].sums(self.backend, weights, entropy)
            if look is not None:
                look(trace.layer, weights, 0, 0)
            see(trace.layer, weights, found.value, found.norm, found.rows, found.baseline)

    def _words(self, cut: Cut, see: Seen) -> None:
        """A text whose pieces are merged to words: as `attn heads` does it."""
        count, merged = len(cut.tokens), merged_words(cut.tokens, cut.record.text or "")
        known = about(merged.words)
        for trace in self._through([cut.tokens], None, None):
            shown = sight_of(self.spec.blocks[trace.layer].attention.mask, count).shown(count)[0]
            weights = np.asarray(self.backend.numpy(trace.stages["weights"][0]), np.float64)[..., :count]
            tally, watch = self._watch(trace.layer, known, len(merged.words))
            watch.whole(merged.merge(weights), merged.merge_visible(np.broadcast_to(shown, weights.shape)))
            self._added(trace.layer, tally, see)

    def _by_rows(self, cut: Cut, see: Seen, look: Look | None) -> None:
        """A long text, by blocks of query rows: nothing is n × n."""
        count, known = len(cut.tokens), about(cut.tokens)
        watches: dict[int, tuple[Tally, Watch]] = {}

        def block(layer: int, kind: str, rows: RowBlock) -> None:
            if kind != "self":
                return
            if layer not in watches:
                watches[layer] = self._watch(layer, known, count)
            if look is not None:
                look(layer, _padded(self.backend, rows, count), rows.start, rows.first_head)
            watches[layer][1].see(_first(rows))

        for trace in self._through([cut.tokens], rows_for(self.spec, count), block):
            self._added(trace.layer, watches.pop(trace.layer)[0], see)

    def _watch(self, layer: int, known: About, count: int) -> tuple[Tally, Watch]:
        heads = self.spec.blocks[layer].attention.heads
        tally = Tally(heads, self.metrics, known)
        return tally, Watch(self.backend, [tally], known, count, heads=range(heads))

    def _added(self, layer: int, tally: Tally, see: Seen) -> None:
        value, norm, used, baseline = tally.added()
        see(layer, None, value[None], norm[None], used, baseline[None])

    def _through(
        self, texts: Sequence[Sequence[Token]], rows: int | None, block: Callable[[int, str, RowBlock], None] | None
    ) -> Iterator[LayerTrace]:
        count = len(texts[0])
        context = Context(np.arange(count), count, keep=STAGES, rows=rows, see=block)
        hidden = self._embedded(texts)
        for trace in through(self.spec, self.store, self.backend, hidden, context, range(len(self.spec.blocks))):
            yield trace
            self._between()

    def _embedded(self, texts: Sequence[Sequence[Token]]) -> Array:
        """The vectors that enter layer 0, [text, token, width]."""
        if self.spec.embedding.padding is None:  # each token's vector depends on itself and its position alone
            found = self.store.embed(self.backend, [token for tokens in texts for token in tokens])
        else:
            found = self.backend.concat([self.store.embed(self.backend, tokens) for tokens in texts], 0)
        return found.reshape((len(texts), len(texts[0]), found.shape[-1]))

    def _length(self, mask: Mask, count: int) -> Length:
        """A length's coefficients under a mask, held until texts of another length come: a shard's go up."""
        if any(held.count != count for held in self._lengths.values()):
            self._lengths.clear()
        if repr(mask) not in self._lengths:
            self._lengths[repr(mask)] = Length(self.metrics, mask, count)
        return self._lengths[repr(mask)]


def _padded(backend: Backend, rows: RowBlock, count: int) -> Array:
    """A block's weights [text, head, row, key] over all of a text's keys: 0 where the block leaves them out."""
    weights = rows.stages["weights"]
    if rows.low > 0 or rows.high < count:
        dtype = backend.dtype_of(weights)
        sides = [(*weights.shape[:-1], rows.low), (*weights.shape[:-1], max(count - rows.high, 0))]
        before, after = (backend.full(side, 0.0, dtype) for side in sides)
        weights = backend.concat([before, weights, after], -1)
    return weights[..., :count]


def _first(rows: RowBlock) -> RowBlock:
    """The block of a batch's only text, without the batch axis."""

    def look() -> Array | None:
        seen = rows.seen
        return seen if seen is None or seen.ndim < 4 else seen[0]

    stages = {name: stage[0] for name, stage in rows.stages.items()}
    return replace(rows, stages=stages, mixed=rows.mixed[0], look=look, empty=rows.empty[0], lse=rows.lse[0])
