"""Metrics that take more than a head's weights: what it looks at by kind of token, in how many
texts it rests, what it writes beside its neighbours, and how large a layer's vectors grow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import UsageError
from attncli.language import message
from attncli.measure.metric import (
    ALL_ROWS,
    FILE_METRICS,
    METRICS,
    OFFSETS,
    Measured,
    Metric,
    PerRow,
    metric_of,
    row_mean,
)
from attncli.measure.row_facts import AttentionRows, Bools, Floats
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model
from attncli.models.run import Store

SINK_RATE, MOVED, MASSIVE = "sink_rate", "moved_norm", "massive"
RESTS = 0.3
"""The mean weight on the first token beyond which a head rests there. Source: Gu et al. 2024."""
LARGE, TIMES = 100.0, 1000.0
"""What a massive activation is above: in itself, and in times the median. Source: Sun et al. 2024.
"""


def _refuse_rows(rows: AttentionRows) -> PerRow:
    """Stands in for the formula of a metric that rows of attention weights alone cannot give,
    because it is measured on whole texts or on texts of its own. Always raises UsageError.
    """
    raise UsageError("only attn heads and attn scan measure this")


CORPUS_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            SINK_RATE, "share of texts with mean A_{i,0} > 0.3, i > 0", 0, 1, "",
            "in most texts attention rests on the first token", "texts with rows i > 0",
            "Gu et al. 2024, When attention sink emerges in language models", _refuse_rows,
        ),
        Metric(
            MOVED, "mean_i ‖Σ_j A v_j W_O‖ / its mean over the layer's heads", 0, None, "",
            "the head writes more than those beside it; near 0 it is inactive", ALL_ROWS,
            "Sandoval-Segura et al. 2025, Identifying and evaluating inactive heads in pretrained LLMs", _refuse_rows,
            "of ‖Σ_j A v_j‖ where there is no W_O; biases of W_O are no head's",
        ),
        Metric(
            MASSIVE, "|x| > 100 and > 1,000 median |x| among the numbers x that leave the layer", 0, None,
            "numbers", "few numbers of the layer's vectors are far larger than all others", "tokens × width of a text",
            "Sun et al. 2024, Massive activations in large language models", _refuse_rows,
        ),
    )
}  # fmt: skip
"""By name, what is not of the weights alone; `massive` is a layer's."""


REPEATED = message("random words, twice over")
ROLE_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "induction", "mean A_{i,i−r+1}, words repeated after r", 0, 1, "",
            "the head looks at what followed the same word before", REPEATED,
            "Olsson et al. 2022, In-context learning and induction heads", _refuse_rows,
            "belongs to the model, whatever the text",
        ),
        Metric(
            "duplicate", "mean A_{i,i−r}, words repeated after r", 0, 1, "",
            "the head looks at the same word before", REPEATED,
            "Wang et al. 2022, Interpretability in the wild", _refuse_rows,
            "belongs to the model, whatever the text",
        ),
        Metric(
            "retrieval", "share of an answer's tokens with max_j A on that token in the needle", 0, 1, "",
            "the head looks at the fact that comes next, wherever it stands", "tokens of needles in haystacks",
            "Wu et al. 2024, Retrieval head mechanistically explains long-context factuality", _refuse_rows,
            "belongs to the model; nothing for a model that does not do the task",
        ),
        Metric(
            "copying", "share of tokens t that x_t W_V W_O writes towards most, of 128 drawn", 0, 1, "",
            "what the head looks at becomes likelier", "drawn tokens",
            "Wang et al. 2022, Interpretability in the wild, with the first of 128 in place of the first five of all",
            _refuse_rows, "x_t is what leaves layer 0 of the token alone; norms as it enters them",
        ),
        Metric(
            "successor", "share of tokens t for which x_t W_V W_O writes most towards the next of its sequence", 0, 1,
            "", "what follows the word looked at becomes likelier: Monday, Tuesday",
            "numbers, days, months and letters of one token", "Gould et al. 2023, Successor heads", _refuse_rows,
            "x_t is what leaves layer 0 of the token alone; norms as it enters them",
        ),
    )
}  # fmt: skip
"""By name, scores of a head's role, which belong to a model and not to a text."""


def _word_start(rows: AttentionRows) -> Floats:
    """Each row's weight on tokens that begin a word, [head, row]; the text's first token, special
    tokens and punctuation are left out."""
    about = rows.about
    assert about.words is not None
    assert about.special is not None
    assert about.punctuation is not None
    keys = about.words.is_start & ~about.special & ~about.punctuation
    keys[:1] = False
    return rows.mass(keys)


def _same_word(rows: AttentionRows) -> Floats:
    """Each row's weight on the other tokens of the query's word, [head, row]; the text's first token
    is left out."""
    assert rows.about.words is not None
    queries, keys = rows.about.words.of(rows.i)
    return rows.at_pairs(queries[keys > 0], keys[keys > 0])


def _weight_at(least: int, most: int) -> Callable[[AttentionRows], Floats]:
    """Make a function of rows for each row's weight, [head, row], on keys from `least` to `most`
    tokens away, before and after the query together. The first token is left out, since heads put
    weight on it however far it is."""
    steps = range(least, most + 1)
    offsets = sorted({*steps, *(-step for step in steps)})

    def weight(rows: AttentionRows) -> Floats:
        """The weight of each row, summed over the offsets."""
        beyond_first = (
            np.where(rows.i + offset != 0, rows.at_offset(offset), 0.0) for offset in offsets
        )
        return sum(beyond_first, np.zeros(()))  # from an array, so that the sum's type is one

    return weight


MIDDLE = 16
"""Tokens away that are far beyond."""
CLARK = message("Clark et al. 2019, What does BERT look at?")
KIND_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "word_start", "mean Σ_{j>0 starts a word} A", 0, 1, "", "attention goes to where words start", ALL_ROWS,
            CLARK, row_mean(_word_start), "the first token, special tokens and punctuation are left out",
            needs="words",
        ),
        Metric(
            "same_word", "mean Σ_{j>0, j ≠ i in the word of i} A", 0, 1, "",
            "attention goes to the other pieces of the token's own word", ALL_ROWS, CLARK,
            row_mean(_same_word), "0 for words of one piece; the first token is left out", needs="words",
        ),
        *(
            Metric(
                name, f"mean Σ_{{j>0, {span}}} A", 0, 1, "", message("attention goes {span} tokens away", span=steps),
                ALL_ROWS, CLARK, row_mean(value), "the first token is left out",
            )
            for name, span, steps, value in (
                ("distance_1", "|i−j|=1", "1", _weight_at(1, 1)),
                ("distance_2_4", "2≤|i−j|≤4", "2–4", _weight_at(2, 4)),
                ("distance_5_16", f"5≤|i−j|≤{MIDDLE}", f"5–{MIDDLE}", _weight_at(5, MIDDLE)),
                ("distance_17", f"|i−j|>{MIDDLE}", f"> {MIDDLE}", lambda rows: rows.rest - _weight_at(1, MIDDLE)(rows)),
            )
        ),
    )
}  # fmt: skip
"""By name: what a head looks at by kind of token and by distance; of `special`, `punctuation` and
`self`, which every command has, the scan tells beside them."""


TEXT_METRICS = {**METRICS, **KIND_METRICS, **CORPUS_METRICS}
"""By name, all that is measured in texts: what `--metric all` means."""
EVERY_METRIC = {**TEXT_METRICS, **ROLE_METRICS}
"""By name, all that can be measured of a head: what `attn explain metric` lists."""


def column_metric(name: str | Metric, *, option: str = "--metric") -> Metric:
    """The metric of that name, or itself if it is a metric already, out of all that a scan can
    measure, plugins' among them.

    option: the command line's, for the hint of an error.

    Raises UsageError for an unknown name, and for a caller's own metric that has a built-in one's
    name; PluginError for a plugin that fails.
    """
    scan_metrics = {**KIND_METRICS, **CORPUS_METRICS, **ROLE_METRICS}
    if isinstance(name, str):
        if name in scan_metrics:
            return scan_metrics[name]
        # one that nobody knows may be a plugin's, which is registered so that `metric_of` finds it
        if name not in {**METRICS, **OFFSETS, **FILE_METRICS}:
            from attncli.measure.plugin_metrics import load_plugin_metric

            load_plugin_metric(name)
    return metric_of(name, option=option, more=tuple(scan_metrics))


def measure_layer(
    model: Model,
    trace: LayerTrace,
    heads: Sequence[int],
    names: Collection[str],
    results: Mapping[str, Measured],
) -> dict[str, Measured]:
    """The metrics `sink_rate` and `moved_norm` of a layer's heads in one text, by name, as far as
    they are among `names`.

    heads: the numbers of the heads that are measured.
    results: the text's metrics of weights by name, `sink` among them.
    """
    measured = {}
    if SINK_RATE in names:
        # of one text the share of texts is 0 or 1; NaN where the mean weight is not known
        sink = results["sink"]
        value = np.where(np.isnan(sink.value), np.nan, sink.value > RESTS)
        baseline = np.where(np.isnan(sink.baseline), np.nan, sink.baseline > RESTS)
        measured[SINK_RATE] = Measured(CORPUS_METRICS[SINK_RATE], value, sink.rows, baseline)
    if MOVED in names:
        count = model.spec.blocks[trace.layer].attention.heads
        output_norms = OutputNorms(model.backend, model.store, trace.layer, count)
        row_norms = output_norms.of(trace.stages["mixed"])  # of all heads, [head, row]
        # relative to the mean of all heads of the layer; then those that are measured
        moved = moved_norms(row_norms.sum(-1))[list(heads)]
        rows = np.full(len(heads), row_norms.shape[-1])
        measured[MOVED] = Measured(CORPUS_METRICS[MOVED], moved, rows, np.full(len(heads), np.nan))
    return measured


class OutputNorms:
    """Computes ‖Σ_j A v_j W_O‖, the norm of what each head of a layer adds to its output in each
    row.

    store: where the weights are held.
    """

    def __init__(self, backend: Backend, store: Store, layer: int, heads: int) -> None:
        """store: where W_O of the layer is read. heads: how many the layer has."""
        self._backend = backend
        self._store = store
        self._layer = layer
        self._heads = heads

    @cached_property
    def _gram(self) -> Floats | None:
        """The products W_O·W_Oᵀ of each head's rows of W_O, [head, v_dim, v_dim]; None where the
        layer has no W_O. With them a norm takes v_dim² steps in place of v_dim · width, since
        ‖O·W_O‖² = O·(W_O·W_Oᵀ)·Oᵀ."""
        matrix = self._store.layer(self._backend, self._layer)("attn.o.weight")
        if matrix is None:
            return None
        # stored as [width, head · v_dim]
        stored = np.asarray(self._backend.numpy(matrix), np.float64)
        by_head = stored.reshape((matrix.shape[0], self._heads, -1))
        head_rows = by_head.transpose(1, 2, 0)  # [head, v_dim, width]
        gram: Floats = head_rows @ head_rows.transpose(0, 2, 1)
        return gram

    def of(self, mixed: Array) -> Floats:
        """The norm of what each head adds, [..., head, row].

        mixed: O = A·V of all heads of the layer, [..., head, row, v_dim].
        """
        rows = np.asarray(self._backend.numpy(mixed), np.float64)
        gram = self._gram
        if gram is None:  # without W_O a head adds O itself
            times_gram = rows
        else:
            times_gram = rows @ gram
        # ‖O·W_O‖² = O·(W_O·W_Oᵀ)·Oᵀ, which rounding may leave below 0
        norms: Floats = np.sqrt(np.maximum((times_gram * rows).sum(-1), 0.0))
        return norms


def moved_norms(sizes: Floats) -> Floats:
    """The metric `moved_norm` of each head: the norms of what it writes, `sizes` [text, head], over
    their mean among the heads of the layer; NaN where no head writes anything."""
    mean = sizes.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mean > 0, sizes / mean, np.nan)


def massive_counts(backend: Backend, trace: LayerTrace) -> Floats:
    """How many massive activations (far larger than the median) each text has in the vectors that
    leave a layer, [text]; [1] for a single text."""
    vectors = np.abs(np.asarray(backend.numpy(trace.after), np.float64))
    # [text, all numbers of its vectors]; without a batch axis one text
    numbers = vectors.reshape((len(vectors) if vectors.ndim > 2 else 1, -1))
    least = np.maximum(LARGE, TIMES * np.median(numbers, -1))
    return (numbers > least[:, None]).sum(-1).astype(np.float64)


def sink_rates(sums: Floats, rows: Floats) -> tuple[Floats, Bools]:
    """The metric `sink_rate` of each head in one text, 1 where its mean weight on the first token
    exceeds `RESTS`, else 0; and for which heads it is known, as they have rows.

    sums: the weight on the first token, summed over rows.
    rows: how many rows that are.
    """
    has_rows = rows > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(has_rows & (sums / rows > RESTS), 1.0, 0.0), has_rows


def order_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """A scan's metrics in the order in which they are computed, each once: those of weights first,
    then those computed from others; `sink` is added if `sink_rate` needs it."""
    needed = list(names)
    if SINK_RATE in names:
        needed.append("sink")
    later = {*CORPUS_METRICS, *ROLE_METRICS}
    # a stable sort: the order among either kind stays
    return tuple(dict.fromkeys(sorted(needed, key=lambda name: name in later)))
