"""A dose curve: what comes next as attention on a region is weighed by one factor after another,
beside as many random tokens.

Every number is that of a whole run. Source of the intervention: Zhang et al., Tell your model where
to attend, 2023 (arXiv 2311.02262).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.numpy_backend import integers
from attncli.errors import InputError
from attncli.features.effects.measures import log_softmax
from attncli.features.effects.targets import target_token
from attncli.features.effects.weighing import Weighing
from attncli.features.next.document import Dose
from attncli.features.next.masked_word import token_logits
from attncli.inputs.token import Token
from attncli.measure.rest import resting_keys
from attncli.mechanism.context import NO_INTERVENTIONS, Interventions, Past
from attncli.models.model import Model
from attncli.models.passes import PassCount
from attncli.models.run import keeps_past

Floats = np.ndarray[Any, np.dtype[Any]]

FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The doses of every curve; a factor that is asked for comes to them."""
DRAWS = 5
"""Draws of random tokens at each dose."""
CONTINUED = 8
"""Tokens by which the text goes on at each dose."""


class AnswerPlace(Struct, frozen=True):
    """Where the probability of a vocabulary's `entry` is read: after the token at `position`, or
    at it, where it is masked."""

    position: int
    entry: int
    masked: bool = False


def factors_of(weighing: Weighing) -> list[float]:
    """The factors of the curve of a weighing, ascending: those of every curve and its own."""
    return sorted({*FACTORS, weighing.factor})


def dose_passes(
    model: Model, tokens: Sequence[Token], weighing: Weighing, position: int, *, masked: bool
) -> list[PassCount]:
    """The runs that a curve takes at most: one at each dose, one for each draw of random tokens at
    each dose but the one that changes nothing, and those of the continuations.

    position: of the token after which the next is measured, or of a mask.
    masked: whether it is a mask; then the text is not continued.
    """
    # the last token that is read: an encoder also reads those behind the mask
    last = position
    if masked:
        last = len(tokens) - 1
    factors = factors_of(weighing)
    draw_count = len(list(random_keys(model, tokens, weighing, last)))
    changing = sum(factor != 1.0 for factor in factors)  # weighing by 1 needs no run of its own
    passes = [PassCount(len(factors) + draw_count * changing, len(tokens))]
    if masked:
        return passes
    text_length = position + 1
    for step in range(_room(model, text_length)):
        running = text_length + step  # tokens that this step runs
        if step > 0 and keeps_past(model.spec, running - 1, running):
            running = 1  # the newest one: keys and values of those before it are kept
        passes.append(PassCount(len(factors), running))
    return passes


def doses(
    model: Model,
    tokens: Sequence[Token],
    weighing: Weighing,
    place: AnswerPlace,
    rows: int | None,
    progress: Callable[[float], None],
) -> list[Dose]:
    """The curve of a weighing: at each factor the probability of the vocabulary's entry at a place,
    that with random tokens weighed in place of the region, and how the text goes on.

    rows: query rows at a time, None for all.
    progress: called with the share that is done, 0 to 1.
    """
    # an encoder reads the tokens behind the mask, too
    last = place.position
    if place.masked:
        last = len(tokens) - 1
    draws = list(random_keys(model, tokens, weighing, last))
    result = []
    factors = factors_of(weighing)
    for number, factor in enumerate(factors, 1):
        weighed = replace(weighing, factor=factor)
        logits = logits_of(model, tokens, weighed, place, rows)
        probability = _probability(logits, place.entry)

        # the same with random tokens weighed; the factor 1 changes nothing, whatever is weighed
        draw_probabilities = []
        for keys in draws:
            if factor == 1.0:
                draw_probabilities.append(probability)
                continue
            random_weighing = replace(weighed, keys=keys)
            draw_logits = logits_of(model, tokens, random_weighing, place, rows)
            draw_probabilities.append(_probability(draw_logits, place.entry))

        if place.masked:
            text = _word(model, logits)
        else:
            text = continuation(model, tokens[: place.position + 1], weighed)
        has_draws = bool(draw_probabilities)
        result.append(
            Dose(
                factor=factor,
                probability=probability,
                random=float(np.mean(draw_probabilities)) if has_draws else None,
                random_low=min(draw_probabilities) if has_draws else None,
                random_high=max(draw_probabilities) if has_draws else None,
                text=text,
            )
        )
        progress(number / len(factors))
    return result


def random_keys(
    model: Model, tokens: Sequence[Token], weighing: Weighing, position: int
) -> Iterator[tuple[int, ...]]:
    """Yield random sets of tokens up to `position`, each of as many tokens as are weighed, as
    controls; none where there are too few. Tokens where heads rest whatever the text says (the
    first one and the like) are drawn only if they are among the weighed ones, because weakening
    them changes everything."""
    rest = resting_keys(tokens, model.identity.source)
    may_rest = any(rest[key] for key in weighing.keys)
    others = [
        place
        for place in range(position + 1)
        if place not in weighing.keys and (may_rest or not rest[place])
    ]
    count = sum(key <= position for key in weighing.keys)  # later ones are not read
    if not 0 < count <= len(others):
        return
    for draw in range(DRAWS):
        # seed 0: the same tokens at each dose, so that doses differ by the factor alone
        order = integers(0, f"doses\0{draw}", len(others)).argsort(kind="stable")
        yield tuple(sorted(others[place] for place in order[:count].tolist()))


def logits_of(
    model: Model,
    tokens: Sequence[Token],
    weighing: Weighing,
    place: AnswerPlace,
    rows: int | None,
) -> Floats:
    """Run a text with attention weighed, and return the logits at a place, [vocabulary].

    rows: query rows at a time, None for all.
    """
    changes = weighing.interventions(model.spec)
    last = len(model.spec.blocks) - 1
    # idle: the last layer counts even where it does not attend, as in hybrids
    (trace,) = model.trace(
        list(tokens), layers=[last], keep=(), rows=rows, interventions=changes, idle=True
    )
    position = place.position
    return token_logits(model, trace.after[position : position + 1], masked=place.masked)[0]


def _probability(logits: Floats, entry: int) -> float:
    """The probability of a vocabulary's entry by these logits."""
    return float(np.exp(log_softmax(logits))[entry])


def _room(model: Model, count: int) -> int:
    """How many tokens a text of `count` tokens, which the model has run, is continued by:
    `CONTINUED`, or fewer where it has no more positions."""
    limit = model.spec.max_positions
    if limit is None:
        return CONTINUED
    return min(CONTINUED, limit - count)


def _word(model: Model, logits: Floats) -> str:
    """The text of the likeliest token behind a mask, by its logits [vocabulary]."""
    return target_token(model, int(logits.argmax())).text


def continuation(model: Model, tokens: Sequence[Token], weighing: Weighing) -> str:
    """How a text goes on with a weighing, the likeliest token each time, at most `CONTINUED`; ""
    for a tokenizer that cannot write text, and where there are no positions left."""
    changes: Interventions = NO_INTERVENTIONS
    if weighing.factor != 1.0:
        changes = weighing.interventions(model.spec)
    past: Past = {}  # keys and values of the tokens that have run
    running = list(tokens)  # those to run next
    ids = [token.id for token in tokens if token.id is not None]
    new: list[int] = []
    last = len(model.spec.blocks) - 1
    for step in range(_room(model, len(tokens))):
        # this adds the keys and values of `running` to `past`
        (trace,) = model.trace(
            running, layers=[last], keep=(), past=past, interventions=changes, idle=True
        )
        number = int(token_logits(model, trace.after[-1:], masked=False)[0].argmax())
        if number in model.ends:
            break
        try:
            (token,) = model.tokenizer.ids_to_tokens([number])
        except InputError:  # a padded vocabulary has entries without a token
            break
        new.append(number)
        running = [replace(token, index=len(tokens) + step)]
        # where a longer text turns earlier keys otherwise, all tokens run anew
        if not keeps_past(model.spec, len(tokens) + step, len(tokens) + step + 1):
            past = {}
            entries = model.tokenizer.ids_to_tokens(new)
            new_tokens = [
                replace(entry, index=index) for index, entry in enumerate(entries, len(tokens))
            ]
            running = [*tokens, *new_tokens]

    # decoded together with what is before them, since blanks depend on it
    before = model.tokenizer.text_of(ids)
    return model.tokenizer.text_of([*ids, *new])[len(before) :]
