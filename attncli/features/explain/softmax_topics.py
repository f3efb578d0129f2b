"""Topics of `attn explain` that need no model: softmax by hand, by rows, over a matrix, scaling,
order, metrics.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Selection
from attncli.arrays.numpy_backend import normal
from attncli.documents.header import Heading, attention_part, header, refuse_lost_rows, token_rows
from attncli.errors import InputError, LimitError, UsageError
from attncli.features.explain.document import (
    MatrixSoftmaxTopic,
    MetricExample,
    MetricTopic,
    OrderRow,
    OrderTopic,
    ScaleSoftmax,
    ScaleVariance,
    ScalingTopic,
    SoftmaxTopic,
)
from attncli.inputs.token import Token
from attncli.inputs.word_groups import token_notes
from attncli.language import listing, message
from attncli.measure.layer_metrics import EVERY_METRIC, KIND_METRICS
from attncli.measure.metric import METRICS, Metric, measure
from attncli.measure.row_facts import Floats
from attncli.mechanism.attention import attention
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.projection import alibi_slopes
from attncli.mechanism.spec import Alibi
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model
from attncli.version import __version__


class SoftmaxSteps(Struct, frozen=True):
    """One row of softmax with every step, as Python floats.

    scores: what enters, None where hidden.
    highest: the largest visible score, None if nothing is visible.
    shifted_scores: score − highest, in (−∞, 0].
    exponentials: of these, in [0, 1], 0 where hidden.
    sink: the exponential of a learned sink, None without one.
    total: the sum of all of these.
    weights: exponential / total, in [0, 1], sum 1 (less with a sink, 0 if nothing is visible).
    """

    scores: tuple[float | None, ...]
    highest: float | None
    shifted_scores: tuple[float | None, ...]
    exponentials: tuple[float, ...]
    sink: float | None
    total: float
    weights: tuple[float, ...]

    @property
    def entropy(self) -> float:
        """−Σ w ln w in nats, 0 to ln(number of scores); 0 if nothing is visible."""
        return -sum(weight * math.log(weight) for weight in self.weights if weight > 0)

    @property
    def gradient(self) -> float:
        """The Frobenius norm of the softmax's derivative diag(w) − w·wᵀ, 0 to ½·√2; 0 where one
        weight is 1.
        """
        squares = sum(w * w for w in self.weights)
        cubes = sum(w * w * w for w in self.weights)
        # Σ of the squared entries w_i(δ_ij − w_j); rounding may leave it a little below 0
        return math.sqrt(max(squares - 2 * cubes + squares**2, 0.0))


def softmax_steps(scores: Sequence[float | None], *, sink: float | None = None) -> SoftmaxSteps:
    """Compute the softmax of one row of scores with every step.

    scores: None for a hidden key.
    sink: a learned logit that takes part in the sum but gets no output weight; None without one.

    Source: the maximum is subtracted first, as every implementation does, so that no exponential
    overflows.
    """
    visible = [score for score in scores if score is not None]
    if not visible:
        zeros = (0.0,) * len(scores)
        return SoftmaxSteps(
            scores=tuple(scores),
            highest=None,
            shifted_scores=(None,) * len(scores),
            exponentials=zeros,
            sink=None,
            total=0.0,
            weights=zeros,
        )
    highest = max(visible)
    sink_weight = None
    if sink is not None:
        highest = max(highest, sink)
        sink_weight = math.exp(sink - highest)
    shifted_scores = tuple(None if score is None else score - highest for score in scores)
    exponentials = tuple(
        0.0 if difference is None else math.exp(difference) for difference in shifted_scores
    )
    # without a sink nothing is added to the sum
    total = math.fsum(exponentials) + (sink_weight or 0.0)
    weights = tuple(value / total for value in exponentials)
    return SoftmaxSteps(
        scores=tuple(scores),
        highest=highest,
        shifted_scores=shifted_scores,
        exponentials=exponentials,
        sink=sink_weight,
        total=total,
        weights=weights,
    )


SIGNS_OF_LISTS = str.maketrans({"−": "-", **dict.fromkeys("[](){},;、【】", " ")})
"""What stands around and between numbers in a list; the sign of printed negative numbers."""
WIDE_LETTERS: dict[int, str | int] = {
    0x3000: " ",
    # from ！ to ～, in the order of ! to ~
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
}
"""The letters and signs of Chinese input methods, as wide as a character, and what they stand for."""
NEXT_ROW = re.compile(r"[\])}][\s,;]*[\[({]")
"""Between two rows of a matrix, as programs write one."""


def parse_scores(numbers: Sequence[str]) -> list[float]:
    """Parse the numbers of `attn explain softmax`, given as separate words, joined by commas of any
    script, or as the list that a program prints.

    Raises InputError for none, for what is no finite number, and for several rows.
    """
    scores = []
    text = " ".join(numbers).translate(WIDE_LETTERS)
    # several rows, such as [[1, 2], [3, 4]]
    rows = NEXT_ROW.split(text)
    if len(rows) > 1:
        raise InputError(
            "these are {count} rows of numbers",
            expected="one row: softmax is taken of each row alone",
            hint=f"attn explain softmax {' '.join(rows[0].translate(SIGNS_OF_LISTS).split())}",
            count=len(rows),
        )
    for piece in text.translate(SIGNS_OF_LISTS).split():
        try:
            value = float(piece)
        except ValueError:
            value = math.nan  # refused like "nan" and "inf", which Python reads as numbers
        if not math.isfinite(value):
            what = message("{piece} is no finite number", piece=repr(piece))
            raise InputError(
                what,
                expected="numbers, such as 2.0 1.0 0.1",
                hint="attn explain softmax 2.0 1.0 0.1",
            )
        scores.append(value)
    if not scores:
        raise InputError(
            "there are no scores",
            expected="at least one number",
            hint="attn explain softmax 2.0 1.0 0.1",
        )
    return scores


@checked
def softmax_document(scores: Sequence[float], temperature: float = 1.0) -> SoftmaxTopic:
    """Build the document of topic "softmax": scores divided by the temperature, then their softmax
    with and without the maximum subtracted.

    Args:
        scores: The numbers.
        temperature: What they are divided by, above 0.

    Returns:
        What `attn explain softmax --json` writes. `exponentials` and `sum` are null where they
        leave the range of a float.

    Raises:
        UsageError: For a temperature that is not a positive number.
        InputError: For a score that leaves the range of a float when it is divided.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(
            "{option} is {value}",
            expected="a positive number",
            option="--temperature",
            value=temperature,
        )
    divided_scores = [score / temperature for score in scores]
    if not all(map(math.isfinite, divided_scores)):
        raise InputError(
            "a score divided by the temperature {temperature:g} is too large for a float",
            expected="smaller scores",
            temperature=temperature,
        )
    steps = softmax_steps(divided_scores)

    # the same without subtracting the maximum; None where a float cannot hold it
    plain = [_exp(score) for score in divided_scores]
    finite = [value for value in plain if value is not None]
    total: float | None = None
    if len(finite) == len(plain):
        try:
            total = math.fsum(finite)
        except OverflowError:  # each exponential is a float, but not their sum
            total = None
    return SoftmaxTopic(
        version=__version__,
        topic="softmax",
        numbers=list(scores),
        temperature=temperature,
        scores=divided_scores,
        exponentials=plain,
        sum=total,
        highest=max(divided_scores),
        shifted=list(steps.shifted_scores),
        shifted_exponentials=list(steps.exponentials),
        shifted_sum=steps.total,
        weights=list(steps.weights),
        entropy=steps.entropy,
        gradient=steps.gradient,
        agreement=max(
            abs(a - b) for a, b in zip(steps.weights, softmax_of(divided_scores), strict=True)
        ),
        warnings=[],
    )


def softmax_of(scores: Sequence[float]) -> list[float]:
    """The softmax of numbers as the package's own attention computes it, to compare with the worked
    steps.
    """
    # one query of width 1 that is 1, and the scores as keys: q·k are the scores
    keys = np.asarray(scores, np.float64)[None, :, None]
    weights = attention(np.ones((1, 1, 1)), keys, np.zeros_like(keys), scale=1.0).weights
    return [float(weight) for weight in weights[0, 0]]


def _exp(value: float) -> float | None:
    """e to the power of `value`; None where that overflows a float."""
    try:
        return math.exp(value)
    except OverflowError:
        return None


# One layer of a run in float64, and the softmax of rows of scores that no run has taken, through
# the package's own.


def float64_of(model: Model, array: Array) -> Floats:
    """An array of a model's backend as float64 on the CPU."""
    return np.asarray(model.backend.numpy(array), np.float64)


def layer_trace(
    model: Model,
    tokens: Sequence[Token],
    layer: int,
    keep: Collection[str],
    heads: Selection = EVERY,
) -> LayerTrace:
    """Run a model on tokens and return the trace of one layer.

    keep: the names of the n × n stages that the trace is to hold; smaller ones are always there.
    heads: which heads.

    Raises InputError for numbers that left the range of their type.
    """
    # one layer runs, and gives one trace
    trace = next(iter(model.trace(tokens, layers=[layer], heads=heads, keep=keep)))
    return refuse_lost_rows(model.backend, trace)


def slopes_of(model: Model, layer: int) -> Floats | UnsetType:
    """What a step of distance takes off a score in each head of a layer whose positions are ALiBi,
    [head]; UNSET with other positions."""
    spec = model.spec.blocks[layer].attention
    if isinstance(spec.position, Alibi):
        return spec.position.factor * alibi_slopes(spec.heads)
    return UNSET


def row_softmax(scores: Floats) -> Floats:
    """Softmax of each row of scores, [row, key], where entries that are not finite count as hidden
    and a row without a finite score is all 0."""
    # attention with queries of width 1 that are 1, and scores as keys: q·k are the scores
    is_finite = np.isfinite(scores)
    keys = np.where(is_finite, scores, 0.0)[:, None, :, None]
    queries = np.ones((len(scores), 1, 1, 1))
    result = attention(
        queries, keys, np.zeros_like(keys), scale=1.0, mask=is_finite[:, None, None, :]
    )
    return np.asarray(result.weights[:, 0, 0], np.float64)


# Softmax by rows against softmax over the whole matrix: topic "matrix-softmax" of `attn.explain/1`.


@checked
def matrix_softmax_document(
    model: Model, text: str, tokens: Sequence[Token], *, layer: int, head: int
) -> MatrixSoftmaxTopic:
    """Build the document of topic "matrix-softmax": softmax by rows, as attention does it, beside
    softmax over all entries of a head's scores at once.

    Args:
        model: As `attncli.load` returns it.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        head: The head's number in its layer.

    Returns:
        What `attn explain matrix-softmax --json` writes. `row_sums` are those of the second; the
        first ones are 1. Both come from the package's own softmax.

    Raises:
        InputError: For a layer or head that is not there.
    """
    # of the one head that ran, [query, key]
    trace = layer_trace(model, tokens, layer, ("masked", "weights"), [head])
    scores, weights = (float64_of(model, trace.stages[name])[0] for name in ("masked", "weights"))
    whole = row_softmax(scores.reshape(1, -1)).reshape(scores.shape)
    return MatrixSoftmaxTopic(
        **header(model, text, tokens),
        topic="matrix-softmax",
        layer=layer,
        head=head,
        scores=scores,
        row_softmax=weights,
        whole=whole,
        row_sums=whole.sum(axis=1),
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


# Why scores are divided by √d_k, measured on seeded random vectors: topic "scaling" of
# `attn.explain/1`.

MOST_NUMBERS = 2 * 10**8
"""Random numbers of all q, or of all k, at most: about half a minute of one core."""
CHUNK = 2**22
"""Random numbers drawn at a time, which bounds the memory."""


@checked
def scaling_document(
    d_k: int = 64,
    *,
    samples: int = 4096,
    keys: int = 10,
    seed: int = 0,
    d_model: int | None = None,
) -> ScalingTopic:
    """Build the document of topic "scaling": the measured variance of q·k for random vectors, and
    what scaling does to a softmax.

    Args:
        d_k: The width of the vectors.
        samples: How many independent pairs of standard normal vectors are drawn.
        keys: Over how many keys the softmax runs, for samples // keys queries (at least 1).
        seed: Of the pairs.
        d_model: Also scale by 1/√d_model; None for not.

    Returns:
        What `attn explain scaling --json` writes. The standard error of a variance s² of N numbers
        with fourth moment m₄ is √((m₄ − s⁴)/N).

    Raises:
        UsageError: For sizes below 1 (2 samples).
        LimitError: For too much work.
    """
    # each option with its value and its least
    sizes = [("d-k", d_k, 1), ("samples", samples, 2), ("keys", keys, 1)]
    if d_model is not None:
        sizes.append(("d-model", d_model, 1))
    for name, value, least in sizes:
        if value < least:
            raise UsageError(
                "--{name} is {value}",
                expected="at least {least}",
                name=name,
                value=value,
                least=least,
            )
    if d_k * samples > MOST_NUMBERS:
        raise LimitError(
            "{samples} pairs of width {d_k} are {numbers:,} random numbers",
            expected="at most {most_numbers:,}",
            hint=f"--samples {max(MOST_NUMBERS // d_k, 2)}",
            samples=samples,
            d_k=d_k,
            numbers=2 * d_k * samples,
            most_numbers=2 * MOST_NUMBERS,
        )

    products = _dot_products(d_k, samples, seed)
    scales = [("none", 1.0), ("sqrt-dk", d_k**-0.5)]
    if d_model is not None:
        scales.append(("sqrt-dmodel", d_model**-0.5))
    queries = max(samples // keys, 1)
    return ScalingTopic(
        version=__version__,
        topic="scaling",
        d_k=d_k,
        d_model=d_model,
        samples=samples,
        keys=keys,
        queries=queries,
        seed=seed,
        variance=[
            _measured_variance(name, products * scale, d_k * scale**2) for name, scale in scales
        ],
        softmax=_mean_peakedness(d_k, scales, queries, keys, seed),
        warnings=[],
    )


def _dot_products(d_k: int, samples: int, seed: int) -> Floats:
    """q·k of independent pairs of standard normal vectors of width d_k, [samples], float64."""
    # in chunks, which bound the memory
    rows = max(CHUNK // d_k, 1)
    parts = []
    for start in range(0, samples, rows):
        shape = (min(rows, samples - start), d_k)
        q, k = (
            normal(seed, f"scaling\0{name}\0{start}", shape).astype(np.float64) for name in "qk"
        )
        parts.append((q * k).sum(axis=1))
    return np.concatenate(parts)


def _measured_variance(scale: str, values: Floats, theory: float) -> ScaleVariance:
    """The mean and variance of scaled dot products, [samples], with their standard errors, beside
    the variance that theory gives."""
    deviations = values - values.mean()
    variance = float((deviations**2).sum() / (len(values) - 1))
    # the standard error of a variance s² of N numbers is √((m₄ − s⁴) / N)
    fourth_moment = float((deviations**4).mean())
    error = math.sqrt(max(fourth_moment - variance**2, 0.0) / len(values))
    standard_errors = None
    if error > 0:
        standard_errors = abs(variance - theory) / error
    return ScaleVariance(
        scale=scale,
        mean=float(values.mean()),
        mean_error=math.sqrt(variance / len(values)),
        variance=variance,
        variance_error=error,
        theory=theory,
        standard_errors=standard_errors,
    )


def _mean_peakedness(
    d_k: int, scales: list[tuple[str, float]], queries: int, keys: int, seed: int
) -> list[ScaleSoftmax]:
    """Largest weight, entropy (nats) and softmax gradient norm, averaged over random queries, for
    each scale (name, factor) and for uniform weights."""
    # in chunks, which bound the memory; sums of the three measures by scale
    sums = {name: np.zeros(3) for name, _ in scales}
    rows = max(CHUNK // (d_k * keys), 1)
    for start in range(0, queries, rows):
        count = min(rows, queries - start)
        # batches of one query and its keys: [query, head, token, d_k], of one head each
        q = normal(seed, f"scaling\0query\0{start}", (count, 1, 1, d_k)).astype(np.float64)
        k = normal(seed, f"scaling\0keys\0{start}", (count, 1, keys, d_k)).astype(np.float64)
        for name, scale in scales:
            weights = attention(q, k, np.zeros((count, 1, keys, 1)), scale=scale).weights
            sums[name] += peakedness(weights[:, 0, 0]).sum(axis=0)
    means = {name: total / queries for name, total in sums.items()}
    # one row of even weights has the measures of all such rows
    means["uniform"] = peakedness(np.full((1, keys), 1 / keys))[0]
    return [
        ScaleSoftmax(
            scale=name, largest=float(largest), entropy=float(entropy), gradient=float(gradient)
        )
        for name, (largest, entropy, gradient) in means.items()
    ]


def peakedness(weights: Floats) -> Floats:
    """Largest weight, entropy in nats, and the norm of the softmax's derivative, [row, 3], for
    weights [row, key].

    The derivative with respect to the scores is diag(w) − w·wᵀ; its norm is Frobenius', 0 where one
    weight is 1.
    """
    # 0·ln 0 counts as 0
    logs = np.log(np.where(weights > 0, weights, 1.0))
    entropies = -(weights * logs).sum(axis=1)
    # Σ of the squared entries w_i(δ_ij − w_j); rounding may leave it a little below 0
    squares = (weights**2).sum(axis=1)
    cubes = (weights**3).sum(axis=1)
    norms = np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0.0))
    return np.stack([weights.max(axis=1), entropies, norms], axis=1)


# Whether attention sees the order of its tokens: topic "order" of `attn.explain/1`.

ENTRIES = 8
"""Entries of each output that the document holds."""
ROUNDING = 64
"""Outputs count as equal when they differ by at most this many units in the last place of the
largest.
"""
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The unit in the last place of 1, by type."""


def reversed_order(tokens: Sequence[Token]) -> list[int]:
    """The positions of the tokens read backwards, special tokens left where they are."""
    words = [token.index for token in tokens if not token.special]
    order = list(range(len(tokens)))
    for place, source in zip(words, reversed(words), strict=True):
        order[place] = source
    return order


def order_of(tokens: Sequence[Token], reordered: Sequence[Token]) -> list[int]:
    """For each token of `reordered` the position of the same token in `tokens`; equal tokens are
    taken in order.

    Raises InputError unless both texts hold the same tokens equally often.
    """
    # of each text its positions, the last first, so that `pop` gives the first one left
    places: defaultdict[str, list[int]] = defaultdict(list)
    for token in reversed(tokens):
        places[token.text].append(token.index)
    order = []
    for token in reordered:
        if not places[token.text]:
            raise InputError(
                "the second text has {token} more often than the first",
                expected="the same tokens in another order",
                token=repr(token.text),
            )
        order.append(places[token.text].pop())
    if len(order) < len(tokens):
        extra = next(token for token in tokens if token.index not in order)
        what = message(
            "the first text has {extra} more often than the second", extra=repr(extra.text)
        )
        raise InputError(what, expected="the same tokens in another order")
    return order


@checked
def order_document(
    models: Iterable[Model],
    text: str,
    tokens: Sequence[Token],
    order: Sequence[int],
    *,
    layer: int = 0,
) -> OrderTopic:
    """Build the document of topic "order": how far each token's attention output changes when the
    tokens are put in another order.

    Args:
        models: The models; each runs the tokens in both orders.
        text: The text.
        tokens: Its tokens.
        order: For each new place the position of the token that moves there.
        layer: The layer's number.

    Returns:
        What `attn explain order --json` writes. A row's `equal` says whether the largest difference
        is within float rounding. Where ALiBi does not see a reversal, a further row moves the first
        token to the end instead, which it does see.

    Raises:
        InputError: For an order in which the tokens read the same.
    """
    _refuse_same_order(tokens, order)
    heading: Heading | None = None
    rows: list[OrderRow] = []
    is_reversal = list(order) == list(range(len(tokens)))[::-1]
    for model in models:
        heading = heading or header(model, text, tokens)
        row = _order_row(model, tokens, order, layer)
        rows.append(row)
        # symmetric ALiBi adds |i − j|, which a reversal keeps: the first token moved to the end, too
        if is_reversal and row.position == "alibi" and row.equal and len(tokens) > 2:
            rows.append(_order_row(model, tokens, [*range(1, len(tokens)), 0], layer))
    assert heading is not None, "there is at least one model"
    return OrderTopic(
        **heading,
        topic="order",
        layer=layer,
        order=list(order),
        reversed=is_reversal,
        moved=token_rows(_reorder(tokens, order)),
        query=first_word(tokens),
        order_rows=rows,
        warnings=token_notes(text, tokens),
    )


def _refuse_same_order(tokens: Sequence[Token], order: Sequence[int]) -> None:
    """Raise InputError where the tokens read the same in the other order."""
    texts = [token.text for token in tokens]
    if [texts[place] for place in order] != texts:
        return
    words = [token.text for token in tokens if not token.special]
    if len(set(words)) > 1:  # the first text again, or one that reads the same backwards
        raise InputError(
            "the other order is the same order",
            expected="the same tokens in another order",
            hint="attn explain order TEXT OTHER",
        )
    what = message("one token has no other order")
    if len(words) > 1:
        what = message("tokens that are all the same have no other order")
    raise InputError(what, expected="at least two different tokens", hint="--tokenizer char")


def _order_row(model: Model, tokens: Sequence[Token], order: Sequence[int], layer: int) -> OrderRow:
    """Run the tokens in both orders, and measure how far a layer's outputs differ, each token against
    itself, and whether that is rounding alone.

    order: for each new place the old position of the token that moves there.
    """
    traces = [
        layer_trace(model, text_tokens, layer, ("weights",))
        for text_tokens in (tokens, _reorder(tokens, order))
    ]
    before, after = (float64_of(model, trace.stages["out"]) for trace in traces)

    # the weights of the first word in the first head in both orders, by keys in the first order and
    # without learned keys; argsort of the order gives for each old place the new one
    word = first_word(tokens)
    weights: Floats | UnsetType = UNSET
    moved_weights: Floats | UnsetType = UNSET
    if all("weights" in trace.stages for trace in traces):
        first, second = (
            float64_of(model, trace.stages["weights"])[0][:, : len(tokens)] for trace in traces
        )
        weights = first[word]
        moved_weights = second[list(order).index(word)][np.argsort(order)]

    # differences by new place; what a type's rounding explains counts as none
    difference = np.abs(after - before[list(order)]).max(axis=1)
    greatest = int(difference.argmax())
    tolerance = ROUNDING * EPSILON[model.backend.dtype] * float(np.abs(before).max(initial=0.0))
    ran = attention_part(model, model.backend)
    return OrderRow(
        mask=ran.mask,
        position=ran.position,
        dtype=ran.dtype,
        order=list(order),
        max_difference=float(difference[greatest]),
        token=int(order[greatest]),
        tolerance=tolerance,
        equal=bool(difference[greatest] <= tolerance),
        per_token=difference[np.argsort(order)],
        outputs=before[:, :ENTRIES],
        moved_outputs=after[np.argsort(order), :ENTRIES],
        weights=weights,
        moved_weights=moved_weights,
        slopes=slopes_of(model, layer),
    )


def first_word(tokens: Sequence[Token]) -> int:
    """The position of the first token that is not special; 0 where all are."""
    return next((place for place, token in enumerate(tokens) if not token.special), 0)


def _reorder(tokens: Sequence[Token], order: Sequence[int]) -> list[Token]:
    """The tokens in another order, with new positions.

    order: for each new place the old position of the token that moves there.
    """
    return [replace(tokens[source], index=place) for place, source in enumerate(order)]


# What a metric means, as a document: topic "metric" of `attn.explain/1`.

EXAMPLE = ((1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.2, 0.3, 0.5, 0.0), (0.1, 0.15, 0.5, 0.25))
"""A causal head of four tokens, worked by hand in the tests: rows are queries, columns keys."""


@checked
def metric_document(name: str) -> MetricTopic:
    """Build the document that explains a metric: its definition, its value for the head `EXAMPLE`,
    and that for uniform attention.

    Args:
        name: The name of one of `EVERY_METRIC`.

    Returns:
        What `attn explain metric NAME --json` writes. Uniform is over what a causal query may see.
        Both values are null for a metric that needs tokens, texts or vectors.

    Raises:
        UsageError: For an unknown name.
    """
    if name not in EVERY_METRIC:
        hint = " ".join(["attn explain metric", *get_close_matches(name, EVERY_METRIC, n=1)])
        raise UsageError(
            "there is no metric {name}", expected=listing(EVERY_METRIC), hint=hint, name=repr(name)
        )
    metric = EVERY_METRIC[name]

    # its value for the example; metrics of texts and vectors have none for a matrix alone
    value = None
    uniform = None
    rows = 0
    if name in {**METRICS, **KIND_METRICS}:
        # the example is one head of four tokens
        causal = np.tril(np.ones((4, 4), bool))
        result = measure(np.asarray([EXAMPLE]), causal, metrics=(metric,))[metric.name]
        if not np.isnan(result.value[0]):
            value = float(result.value[0])
        if not np.isnan(result.baseline[0]):
            uniform = float(result.baseline[0])
        rows = int(result.rows[0])
    return MetricTopic(
        version=__version__,
        topic="metric",
        name=metric.name,
        says=metric.says,
        formula=metric.formula,
        low=metric.low,
        high=metric.high,
        range=range_text(metric),
        unit=metric.unit or "share",
        row_kind=metric.rows,
        note=metric.note or None,
        source=metric.source,
        needs=metric.needs or None,
        example=MetricExample(weights=np.asarray(EXAMPLE), value=value, uniform=uniform, rows=rows),
        warnings=[],
    )


def range_text(metric: Metric) -> str:
    """The range of a metric's values in words, such as "0 to 1" or "from 0"."""
    match (metric.low, metric.high):
        case (None, None):
            return message("any number")
        case (low, None):
            return message("from {low:g}", low=low)
        case (None, high):
            return message("up to {high:g}", high=high)
        case (low, high):
            return message("{lowest:g} to {highest:g}", lowest=low, highest=high)
