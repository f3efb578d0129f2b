"""Metrics of many texts in one model: texts of about one length run together, and are measured
together.

A scan does the same over a corpus, with intervals and examples; this is for a list of texts in a
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from attncli.arrays.backend import EVERY, Array, Selection, backend_of, numbers_of
from attncli.arrays.numpy_backend import take_in_order
from attncli.errors import UnsupportedError
from attncli.inputs.token import Token
from attncli.measure.batch_measure import LengthTally, Sums, TextBatch, sight_of
from attncli.measure.metric import DEFAULT, Measured, Metric, Tally, metrics_of
from attncli.measure.row_facts import Bools, TokenFacts, token_facts
from attncli.measure.row_stream import RowFeeder
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.mask import Mask
from attncli.mechanism.trace import LayerTrace
from attncli.models.load import CachedStore
from attncli.models.model import Model, PaddedTexts

AT_ONCE = 16_384
"""Tokens of texts that are sorted by length together."""
TOGETHER = 1 << 21
"""Weights up to which layers wait to be measured together: for short texts the steps of measuring
take longer than their numbers."""
MOST_THREADS = 4
"""Batches at work together, at most: on two cores two of them, each with one thread for its
products, take 0.62 s where one with two takes 0.71 (100 short texts of MiniLM), whose products are
too small to share."""


@checked
def measure_texts(
    model: Model,
    texts: Iterable[str | Sequence[Token]],
    *,
    metrics: Sequence[str | Metric] = DEFAULT,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
) -> Iterator[dict[str, Measured]]:
    """Metrics of every head for many texts, one dictionary by metric name for each text, in order:
    the same as `attn heads` gives for each alone. A generator: it measures, and refuses, as its
    items are asked for, and is gone through once; `list(measure_texts(…))` keeps them.

    Texts of about one length run together. With `attncli.load(…, hold=True)` the weights are read
    once. Many texts of a float32 checkpoint are computed in float32, where one alone would be in
    float64: values differ by some 1e-6.

    Args:
        model: The model.
        texts: Texts, or their tokens.
        metrics: Names, or metrics of one's own.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.

    Yields:
        For each text its metrics by name; `value` and `baseline` are float64 [layer, head], NaN
        where no row of the text could be used, `rows` integers of that shape.

    Raises:
        InputError: For a text without tokens, or with more than the model has positions for.
        UsageError: For an unknown metric.
        UnsupportedError: Where layers have different numbers of heads.
    """
    chosen_metrics = metrics_of(metrics)
    layer_numbers = sorted(set(model.spec.attending(layers)))
    counts = {
        len(numbers_of(heads, model.spec.blocks[layer].attention.heads)) for layer in layer_numbers
    }
    if len(counts) != 1:
        raise UnsupportedError(
            "the layers have different numbers of heads",
            expected="layers of as many heads: layers=[0, 1]",
        )

    # `keep`: the stages that are needed. A mask that depends on positions alone is computed again;
    # which keys any other hides is read off the masked scores
    attentions = [model.spec.blocks[layer].attention for layer in layer_numbers]
    hashes = any(attention.hashing is not None for attention in attentions)
    masks = [mask for attention in attentions for mask in attention.mask.parts_of()]
    depends_on_vectors = any(mask.depends_on == "vectors" for mask in masks)
    by_position = model.own_layers and not hashes and not depends_on_vectors
    if by_position:
        keep = ("weights", "entropy")
    else:
        keep = ("masked", "weights")
    batch_metrics = _BatchMetrics(
        model, chosen_metrics, heads, layer_numbers, by_position=by_position
    )

    # weights that are read anew for each batch would be in memory once for each thread
    if isinstance(model.store, CachedStore):
        most = MOST_THREADS
    else:
        most = 1
    for group in model.batches(texts, layers=layer_numbers, keep=keep, at_once=AT_ONCE):
        results: dict[int, dict[str, Measured]] = {}
        with model.backend.shared_out(most) as threads:
            works = [partial(batch_metrics.of, batch) for batch in group]
            # with several threads one place more, so that a result is taken while all of them work
            place_count = threads
            if threads > 1:
                place_count += 1
            take_in_order(works, results.update, range(place_count))
        # in the order of the texts, which batches of about one length have changed
        for place in range(len(results)):
            yield results.pop(place)


class _BatchMetrics:
    """Measures the metrics of batches of texts; coefficients that depend on length and mask alone
    are kept for later batches.

    by_position: whether the masks of all layers depend on positions alone.
    """

    def __init__(
        self,
        model: Model,
        metrics: Sequence[Metric],
        heads: Selection,
        layers: Sequence[int],
        *,
        by_position: bool,
    ) -> None:
        """Prepare to measure batches of texts.

        heads, layers: those that are measured; all of these layers have as many heads.
        by_position: whether the masks of these layers depend on positions alone.
        """
        self._model = model
        self._metrics = metrics
        self._heads = heads
        self._layers = layers
        self._by_position = by_position
        self._lengths: dict[tuple[str, int], LengthTally] = {}
        block = model.spec.blocks[layers[0]]
        self._head_numbers = numbers_of(heads, block.attention.heads)

    def of(self, batch: PaddedTexts, thread: int) -> dict[int, dict[str, Measured]]:
        """The metrics of each text of a batch, by its place in it.

        thread: the number of the calling thread, not used. Several threads may call this at once; at
            worst they compute the same coefficients twice.
        """
        del thread
        by_length: dict[int, list[int]] = {}
        for entry, tokens in enumerate(batch.texts):
            by_length.setdefault(len(tokens), []).append(entry)
        facts = [token_facts(tokens) for tokens in batch.texts]

        # results, [metric, text, layer, head]
        shape = (len(self._metrics), len(batch.texts), len(self._layers), len(self._head_numbers))
        value = np.zeros(shape)
        baseline = np.zeros(shape)
        rows = np.zeros(shape, np.int64)
        text_batches: dict[tuple[str, int], TextBatch] = {}
        # of each group of layers, the texts of one length at a time
        for places, mask, traces in self._groups(batch):
            for count, entries in by_length.items():
                own_facts = [facts[entry] for entry in entries]

                # row by row: long texts, and masks that depend on more than positions
                if not self._by_position or not LengthTally.fits(self._metrics, count):
                    for place, trace in zip(places, traces, strict=True):
                        measured = self._measure_by_rows(trace, mask, entries, own_facts, count)
                        for index, entry, result in measured:
                            value[index, entry, place] = result.value
                            baseline[index, entry, place] = result.baseline
                            rows[index, entry, place] = result.rows
                    continue

                # by coefficients: all texts of this length and all layers of the group at once
                key = (repr(mask), count)
                if key not in text_batches:
                    text_batches[key] = TextBatch(self._length_tally(mask, count), own_facts)
                sums = self._sums(text_batches[key], traces, entries)
                with np.errstate(invalid="ignore", divide="ignore"):
                    means = np.where(sums.norm > 0, sums.value / sums.norm, np.nan)
                # from [text, layer · head, metric] to [metric, text, layer, head]
                by_layer = means.reshape((len(entries), len(traces), shape[-1], shape[0]))
                value[:, entries, places.start : places.stop] = np.moveaxis(by_layer, -1, 0)
                baseline[:, entries, places.start : places.stop] = sums.baseline.T[..., None, None]
                rows[:, entries, places.start : places.stop] = sums.rows[:, None, None, None]
        results: dict[int, dict[str, Measured]] = {}
        for entry, text_place in enumerate(batch.places):
            results[text_place] = {}
            for index, metric in enumerate(self._metrics):
                arrays = (value[index, entry], rows[index, entry], baseline[index, entry])
                results[text_place][metric.name] = Measured(metric, *arrays)
        return results

    def _measure_by_rows(
        self,
        trace: LayerTrace,
        mask: Mask,
        entries: Sequence[int],
        facts: Sequence[TokenFacts],
        count: int,
    ) -> Iterator[tuple[int, int, Measured]]:
        """Measure a layer row by row in some texts of `count` tokens; yields the metric's index, the
        text's index in the batch, and the result for the heads.

        mask: the layer's.
        entries: the texts' indices in the batch.
        facts: what is known of the tokens of each of these texts.
        """
        weights = self._stage_of(trace, entries, count)
        visible = self._visible(trace, mask, entries, count)
        for text, entry in enumerate(entries):
            results = measure_rows(weights[text], visible[text], self._metrics, facts[text])
            for index, result in enumerate(results.values()):
                yield index, entry, result

    def _sums(self, texts: TextBatch, traces: Sequence[LayerTrace], entries: Sequence[int]) -> Sums:
        """The sums of metrics over rows for some texts of one length, the heads of these layers one
        after the other on the axis of heads.

        entries: the texts' indices in the batch.
        """
        backend = self._model.backend
        count = texts.length.count
        weights = backend.concat([self._stage_of(trace, entries, count) for trace in traces], 1)
        entropies = [self._entropy(trace, entries, count) for trace in traces]
        present = [entropy for entropy in entropies if entropy is not None]
        if len(present) < len(traces):  # the attention step has not computed all of them
            return texts.sums(backend, weights, entropy=None)
        return texts.sums(backend, weights, backend.concat(present, 1))

    def _groups(self, batch: PaddedTexts) -> Iterator[tuple[range, Mask, list[LayerTrace]]]:
        """Yield the layers of a batch in groups that are measured together, consecutive layers with
        one mask: the layers' indices among those measured, their mask, and their traces."""
        group: list[LayerTrace] = []
        start = 0  # index of the group's first layer
        size = 0  # weights of the group
        mask = None
        for place, trace in enumerate(batch.layers):
            next_mask = self._model.spec.blocks[trace.layer].attention.mask
            # masks are the same where they are written alike
            if mask is not None and group and (size > TOGETHER or repr(next_mask) != repr(mask)):
                yield range(start, place), mask, group
                group = []
                start = place
                size = 0
            group.append(trace)
            mask = next_mask
            size = size + prod(trace.stages["weights"].shape)
        if mask is not None:
            yield range(start, start + len(group)), mask, group

    def _stage_of(
        self, trace: LayerTrace, entries: Sequence[int], count: int, stage: str = "weights"
    ) -> Array:
        """A stage of some texts of one length, [text, head, query, key], with the chosen heads, cut
        to the tokens (no padding, no learned keys).

        entries: the texts' places in the batch.
        count: tokens of each text.
        """
        # a batch is sorted by length: texts of one length stand side by side
        array = trace.stages[stage][entries[0] : entries[-1] + 1]
        if self._heads is not EVERY:
            array = array[:, self._head_numbers]
        return array[:, :, :count, :count]

    def _entropy(self, trace: LayerTrace, entries: Sequence[int], count: int) -> Array | None:
        """The entropy of rows that the attention step computed, [text, head, query], in nats; None
        where it did not or a learned key took part.

        entries: the texts' places in the batch, which follow each other.
        count: tokens of each text.
        """
        entropy = trace.stages.get("entropy")
        weights = trace.stages["weights"]
        # with learned keys, there are more keys than queries
        if entropy is None or weights.shape[-1] != weights.shape[-2]:
            return None
        array = entropy[entries[0] : entries[-1] + 1]
        if self._heads is not EVERY:
            array = array[:, self._head_numbers]
        return array[:, :, :count]

    def _visible(self, trace: LayerTrace, mask: Mask, entries: Sequence[int], count: int) -> Bools:
        """Which keys each query sees, booleans [text, head, query, key].

        entries: the texts' places in the batch.
        count: tokens of each text.
        """
        if "masked" in trace.stages:
            scores = self._stage_of(trace, entries, count, stage="masked")
            return np.asarray(self._model.backend.numpy(scores)) != -np.inf
        matrix = sight_of(mask, count).visibility_matrix(count)[0]  # the same for all heads
        return np.broadcast_to(matrix, (len(entries), len(self._head_numbers), count, count))

    def _length_tally(self, mask: Mask, count: int) -> LengthTally:
        """The coefficients shared by texts of `count` tokens under a mask, computed at the first
        call.
        """
        key = repr(mask), count
        if key not in self._lengths:
            self._lengths[key] = LengthTally(self._metrics, mask, count)
        return self._lengths[key]


def measure_rows(
    weights: Array, visible: Bools, metrics: Sequence[Metric], facts: TokenFacts
) -> dict[str, Measured]:
    """The metrics by name of one text's weights [head, query, key], computed row by row.

    visible: booleans of that shape.
    facts: what is known of the tokens.
    """
    tally = Tally(weights.shape[0], metrics, facts)
    feeder = RowFeeder(
        backend_of(weights), [tally], facts, weights.shape[-1], heads=range(weights.shape[0])
    )
    feeder.take_layer(np.asarray(backend_of(weights).numpy(weights)), visible)
    return tally.result()
