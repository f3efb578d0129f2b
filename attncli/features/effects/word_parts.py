"""A logit as an exact sum over the words of the text, with attention weights, the statistics of
norms and gates held as they were in this run; checked by taking words out.

Source: Golden et al., Equivalent linear mappings of large language models, 2025 (arXiv 2505.24293).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.arrays.gradient_backend import Variable, gradients
from attncli.arrays.numpy_backend import integers
from attncli.errors import LimitError, UnsupportedError
from attncli.features.effects.ablation import refuse_foreign, refuse_hashed
from attncli.features.effects.document import DeletionStep, WordPart
from attncli.features.effects.sweep import SweepText
from attncli.inputs.token import Token
from attncli.inputs.word_groups import merged_words
from attncli.language import message
from attncli.measure.row_facts import Floats
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Weights
from attncli.mechanism.frozen_backend import GateMatrix, frozen_backend
from attncli.mechanism.spec import Block, Experts, Mlp, Spec
from attncli.models.estimate import CostEstimate, with_runs, work_of
from attncli.models.model import Model
from attncli.models.passes import PassCount, seconds_of_passes
from attncli.models.run import LONG, cache_weights, logits, no_output_head

STEPS, DRAWS = 6, 4
"""How many texts with words taken out stand on a curve, at most, and random orders beside it."""

WIDE_RUNS = 6
"""How many runs in float32 take as long as the one in float64 with its gradients, measured on
SmolLM2."""
VECTORS, INNER, SCORES = 8, 6, 4
"""Arrays that gradients keep of each layer: of vectors, of the feed-forward part, of scores."""
WIDE = 8
"""Bytes of a float64."""


def word_cost(model: Model, count: int, running: CostEstimate) -> CostEstimate:
    """The estimated cost of the sum over words of a text of `count` tokens, and of taking words out
    to check it.

    running: the cost of one run.
    """
    spec = model.spec
    layer_numbers = 0  # that the gradients keep of all layers
    for block in spec.blocks:
        inner_width = 0  # also of a mixture of experts, whose inner vectors are not estimated
        if isinstance(block.mlp, Mlp):
            inner_width = block.mlp.width
        vectors_of_token = INNER * inner_width + VECTORS * spec.d_model
        scores_of_token = SCORES * block.attention.heads * count  # a row of each head
        layer_numbers += count * (vectors_of_token + scores_of_token)
    weights = work_of(spec, spec.blocks, count).weights
    # in bytes of float64; beside the layers' arrays all weights and the output matrix
    kept = WIDE * (weights + layer_numbers + spec.vocabulary * spec.d_model)
    # one run that tells how likely each target is, and the one with gradients, as long as
    # `WIDE_RUNS` of these
    repeated = with_runs(running, 1 + WIDE_RUNS)
    seconds = repeated.seconds + seconds_of_passes(model, deletion_passes(count))
    return replace(repeated, seconds=seconds, memory={**running.memory, "gradients": kept})


def deletion_passes(count: int) -> list[PassCount]:
    """The runs that `deletion_curve` takes for a text of `count` tokens, for a forecast of their
    time: the whole text once, then at each step what is left of it in each order. Words count as
    equally long, and as `STEPS` or more."""
    left = [round(count * (STEPS - step) / STEPS) for step in range(1, STEPS + 1)]
    return [
        PassCount(1, count, predicted=0),
        *(PassCount(1 + DRAWS, max(tokens, 1), predicted=0) for tokens in left),
    ]


class WordSum(Struct, frozen=True):
    """A logit, or the difference of two, as a sum.

    words: in the order of the text.
    biases: what all biases of the model add.
    logit: the model's own.
    """

    words: list[WordPart]
    biases: float
    logit: float


def word_sum(
    text: SweepText, source: str, position: int, target: int, versus: int | None
) -> WordSum:
    """The logit of `target` after the token at `position`, or its difference from that of `versus`,
    as a sum over the words of the text `source`, in float64.

    With attention weights, norms and gates held as they were, the logit is a linear function of the
    embeddings and the biases: it is the sum of each of these times the logit's gradient to it.

    Raises UnsupportedError for models that are not linear with all of that held, LimitError for a
    text too long for all its layers to be kept.
    """
    model = text.model
    _refuse(model, len(text.tokens))
    # weights and embeddings are read as plain arrays; the run is one of the frozen backend, whose
    # variables, the embeddings and the biases, get gradients
    backend = frozen_backend()
    store = model.store
    plain = numpy_backend("float64")
    entering = Variable(np.asarray(plain.numpy(store.embed(plain, text.tokens)), np.float64))

    # the run; each bias that is read on the way is added to `biases`
    biases: list[Variable] = []
    context = replace(model.context(text.tokens, plain, ()), keep=frozenset())
    hidden: Array = cast("Array", entering)
    store.expect(range(len(model.spec.blocks)))
    for index, block in enumerate(model.spec.blocks):
        weights = _frozen_weights(cache_weights(store.layer(plain, index)), biases)
        hidden = run_block(backend, block, weights, hidden, context, index).after
    outer = _frozen_weights(cache_weights(store.outer(plain)), biases)
    last = hidden[position : position + 1]
    logit = _logit(model.spec, backend, outer, last, target)
    if versus is not None:
        logit = logit - _logit(model.spec, backend, outer, last, versus)
    value = float(backend.numpy(logit).reshape(()))

    # each variable times its gradient
    slopes = gradients(logit, [entering, *biases])
    by_token = (slopes[0] * entering.value).sum(-1)
    bias = sum(
        float((slope * variable.value).sum())
        for slope, variable in zip(slopes[1:], biases, strict=True)
    )
    return WordSum(words=_word_parts(text.tokens, source, by_token), biases=bias, logit=value)


def _refuse(model: Model, count: int) -> None:
    """Raise UnsupportedError for a model in which a logit is no sum over the words of the text (it
    reads another text, has recurrences, cuts numbers off, runs its layers whole, or has no output
    head), and LimitError for a text of more tokens than are kept."""
    refuse_foreign(model)
    refuse_hashed(model)
    spec = model.spec
    if spec.head is None:
        raise no_output_head(spec)
    if any(_is_bound(block) for block in spec.blocks):
        what = message("this {family} model is no sum over words", family=spec.family)
        expected = message(
            "a decoder of one text, without recurrences and without numbers cut off at a bound"
        )
        raise UnsupportedError(what, expected=expected)
    if count > LONG:
        what = message("--by word keeps all layers, and the text has {count:,} tokens", count=count)
        raise LimitError(what, expected=message("at most {most:,}", most=LONG))


def _is_bound(block: Block) -> bool:
    """Whether a layer reads another text, has a recurrence, or cuts numbers off."""
    if block.cross is not None or block.mixer is not None:
        return True
    match block.mlp:
        case Mlp(bounded=bounded) | Experts(bounded=bounded):
            return bounded is not None
        case _:
            return False


def _frozen_weights(weights: Weights, biases: list[Variable]) -> Weights:
    """A layer's weights by role, in float64, marked for the frozen run: matrices of gates as
    `GateMatrix`, and biases as variables of the gradient, which are added to `biases` when they are
    first read."""
    cache: dict[str, Array | None] = {}

    def weight_of_role(role: str) -> Array | None:
        """The weight of a role such as "mlp.up.weight"; None where the layer has none."""
        if role not in cache:
            array = weights(role)
            cache[role] = None if array is None else _freeze_weight(role, array, biases)
        return cache[role]

    return weight_of_role


def _freeze_weight(name: str, array: Array, biases: list[Variable]) -> Array:
    """Mark one weight for the frozen run: a bias becomes a variable, which is added to `biases`; a
    gate's matrix a `GateMatrix`, whose product is held fixed; any other stays an array of float64.

    name: the weight's role, such as "attn.o.bias" or "mlp.gate.weight".
    """
    numbers = np.asarray(array, np.float64)
    part = name.rpartition(".")[2]
    if "bias" in part or part == "offsets":
        biases.append(Variable(numbers))
        return cast("Array", biases[-1])
    if name.endswith((".gate.weight", "experts.gate")) and not name.startswith("attn"):
        return cast("Array", numbers.view(GateMatrix))
    return cast("Array", numbers)


def _logit(spec: Spec, backend: Backend, weights: Weights, last: Array, entry: int) -> Array:
    """The logit of one vocabulary entry before a soft cap, an array of one number.

    last: what leaves the last layer at one token, [1, width].
    """
    assert spec.head is not None
    without_softcap = replace(spec, head=replace(spec.head, softcap=None))
    return logits(without_softcap, weights, backend, last, slice(entry, entry + 1))


def _word_parts(tokens: Sequence[Token], source: str, by_token: Floats) -> list[WordPart]:
    """Sum what each token adds, [token], over the tokens of each word; in the order of the text.

    source: the text itself, by which tokens are joined to words.
    by_token: what each token adds, [token].
    """
    words = merged_words(tokens, source)
    starts = words.starts.tolist()
    stops = [*starts[1:], len(tokens)]
    return [
        WordPart(
            word=word.text, first=first, last=stop - 1, value=float(by_token[first:stop].sum())
        )
        for word, first, stop in zip(words.words, starts, stops, strict=True)
    ]


# The check: what the measure becomes as words are taken out of the text.


def deletion_curve(
    model: Model,
    tokens: Sequence[Token],
    words: Sequence[WordPart],
    position: int,
    target: int,
    versus: int | None,
    progress: Callable[[float], None],
) -> list[DeletionStep]:
    """Measure the logit of `target` (less that of `versus`) as words are taken out of the text: at
    each step the words that add most, and as many in each of `DRAWS` random orders. The word after
    which it is measured, and special tokens, stay.

    words: with what each adds.
    position: the token after which the logit is read.
    progress: called with the share done.
    """
    removable = [
        word
        for word in words
        if word.last < position
        and not any(tokens[place].special for place in range(word.first, word.last + 1))
    ]
    order = sorted(removable, key=lambda word: -word.value)
    counts = sorted({round(len(removable) * step / STEPS) for step in range(STEPS + 1)})
    shuffled = []
    for draw in range(DRAWS):
        # sorting numbers of a named stream gives an order that is the same on every machine
        random_numbers = integers(0, f"deletion\0{draw}", len(removable))
        shuffled.append([removable[place] for place in random_numbers.argsort(kind="stable")])
    steps = []
    for number, count in enumerate(counts):
        orders = [order]
        if count:  # with no word taken out all orders are the same text
            orders += shuffled
        values = [
            _measure_without(model, tokens, row[:count], position, target, versus) for row in orders
        ]
        by_order = values[1:] or values * DRAWS  # with no word out, the one value for each order
        steps.append(
            DeletionStep(
                removed=count,
                value=values[0],
                random=float(np.mean(by_order)),
                random_orders=by_order,
            )
        )
        progress((number + 1) / len(counts))
    return steps


def _measure_without(
    model: Model,
    tokens: Sequence[Token],
    words: Sequence[WordPart],
    position: int,
    target: int,
    versus: int | None,
) -> float:
    """Run the text up to `position` with some words deleted, and return the logit of `target` after
    its last token, less that of `versus` unless that is None."""
    gone = {place for word in words for place in range(word.first, word.last + 1)}
    left = [token for place, token in enumerate(tokens[: position + 1]) if place not in gone]
    text = [replace(token, index=index) for index, token in enumerate(left)]
    last = len(model.spec.blocks) - 1
    # `idle`: the last layer is yielded even if it does not attend
    (trace,) = model.trace(text, layers=[last], keep=(), idle=True)
    weights = model.store.outer(model.backend)

    def logit_of(entry: int) -> float:
        """The logit of one vocabulary entry."""
        logit = _logit(model.spec, model.backend, weights, trace.after[-1:], entry)
        return float(model.backend.numpy(logit).reshape(()))

    if versus is None:
        return logit_of(target)
    return logit_of(target) - logit_of(versus)
