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
"""Runs in float32 that the one in float64 and its gradients take as long as, measured on SmolLM2."""
VECTORS, INNER, SCORES = 8, 6, 4
"""Arrays that gradients keep of each layer: of vectors, of the feed-forward part, of scores."""
WIDE = 8
"""Bytes of a float64."""


def word_cost(model: Model, count: int, running: CostEstimate) -> CostEstimate:
    """What the sum over words of a text of `count` tokens takes, and taking words out to check it.

    running: what one run takes.
    """
    spec = model.spec
    layers = 0
    for block in spec.blocks:
        if isinstance(block.mlp, Mlp):
            inner = block.mlp.width
        else:
            inner = 0
        numbers = INNER * inner + VECTORS * spec.d_model
        layers += count * (numbers + SCORES * block.attention.heads * count)
    weights = work_of(spec, spec.blocks, count).weights
    kept = WIDE * (weights + layers + spec.vocabulary * spec.d_model)
    repeated = with_runs(running, 1 + WIDE_RUNS)
    seconds = repeated.seconds + seconds_of_passes(model, deletion_passes(count))
    return replace(repeated, seconds=seconds, memory={**running.memory, "gradients": kept})


def deletion_passes(count: int) -> list[PassCount]:
    """The runs of a text of `count` tokens with words taken out, of which it has `STEPS` or more, all
    as long: the whole one, and the rest of each order at each step."""
    left = [round(count * (STEPS - step) / STEPS) for step in range(1, STEPS + 1)]
    return [
        PassCount(1, count, 0),
        *(PassCount(1 + DRAWS, max(tokens, 1), 0) for tokens in left),
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

    Raises UnsupportedError for models that are not linear with all of that held, LimitError for a
    text whose layers are not kept whole.
    """
    model = text.model
    _refuse(model, len(text.tokens))
    backend = frozen_backend()
    store = model.store
    plain = numpy_backend("float64")
    entering = Variable(np.asarray(plain.numpy(store.embed(plain, text.tokens)), np.float64))
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
    slopes = gradients(logit, [entering, *biases])
    by_token = (slopes[0] * entering.value).sum(-1)
    bias = sum(
        float((slope * variable.value).sum())
        for slope, variable in zip(slopes[1:], biases, strict=True)
    )
    return WordSum(_word_parts(text.tokens, source, by_token), bias, value)


def _refuse(model: Model, count: int) -> None:
    """Raise where a logit is no sum over words: other texts, recurrences, bounds, layers that run
    whole; and for a text that is too long."""
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
    """A layer's weights in float64, its gates' matrices held and its biases as variables, which are
    added to `biases` as they are read."""
    known: dict[str, Array | None] = {}

    def role(name: str) -> Array | None:
        """The weight of this role."""
        if name not in known:
            array = weights(name)
            known[name] = None if array is None else _freeze_weight(name, array, biases)
        return known[name]

    return role


def _freeze_weight(name: str, array: Array, biases: list[Variable]) -> Array:
    """One weight: a variable if it is added to something, a held matrix if it is a gate's."""
    numbers = np.asarray(array, np.float64)
    part = name.rpartition(".")[2]
    if "bias" in part or part == "offsets":
        biases.append(Variable(numbers))
        return cast("Array", biases[-1])
    if name.endswith((".gate.weight", "experts.gate")) and not name.startswith("attn"):
        return cast("Array", numbers.view(GateMatrix))
    return cast("Array", numbers)


def _logit(spec: Spec, backend: Backend, weights: Weights, last: Array, entry: int) -> Array:
    """The logit of one entry before a soft cap, an array of one number."""
    assert spec.head is not None
    without_softcap = replace(spec, head=replace(spec.head, softcap=None))
    return logits(without_softcap, weights, backend, last, slice(entry, entry + 1))


def _word_parts(tokens: Sequence[Token], source: str, by_token: Floats) -> list[WordPart]:
    """The sum of each word's tokens, in the order of the text."""
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
    """The measure with the words that add most taken out, and with as many random ones, the mean of
    `DRAWS` orders. The word after which it is measured, and special tokens, stay."""
    free = [
        word
        for word in words
        if not word.first <= position <= word.last
        and word.first < position
        and not any(tokens[place].special for place in range(word.first, word.last + 1))
    ]
    order = sorted(free, key=lambda word: -word.value)
    most = len(free)
    counts = sorted({round(most * step / STEPS) for step in range(STEPS + 1)})
    shuffled = [
        [free[place] for place in integers(0, f"deletion\0{draw}", most).argsort(kind="stable")]
        for draw in range(DRAWS)
    ]
    steps = []
    for number, count in enumerate(counts):
        values = [
            _measure_without(model, tokens, row[:count], position, target, versus)
            for row in ([order, *shuffled] if count else [order])
        ]
        by_order = values[1:] or values * DRAWS
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
    """The measure after the last token of the text up to `position`, with some words deleted: the
    logit of `target`, less that of `versus`."""
    gone = {place for word in words for place in range(word.first, word.last + 1)}
    left = [token for place, token in enumerate(tokens[: position + 1]) if place not in gone]
    text = [replace(token, index=index) for index, token in enumerate(left)]
    last = len(model.spec.blocks) - 1
    (trace,) = model.trace(text, layers=[last], keep=(), idle=True)
    weights = model.store.outer(model.backend)
    ends = [
        float(
            model.backend.numpy(
                _logit(model.spec, model.backend, weights, trace.after[-1:], entry)
            ).reshape(())
        )
        for entry in (target, versus)
        if entry is not None
    ]
    return ends[0] - (ends[1] if len(ends) > 1 else 0.0)
