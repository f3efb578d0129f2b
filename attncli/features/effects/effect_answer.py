"""What the screens of effects share: their answers in words, their parts, the grid of all heads.

Each sentence has its rule; none says more than the numbers of the document hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.draw.columns import bar_column, column_table, text_column
from attncli.draw.lines import Lines, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import times_words, writer
from attncli.draw.safe import cells
from attncli.draw.sentence import not_learned_note, sentence, shaded_sentence, words
from attncli.draw.shaded_matrix import draw_grid, head_grid
from attncli.draw.tables import table
from attncli.draw.token_names import (
    capitalize_sentences,
    quote_text,
    quoted_token,
    quoted_word,
    resting_key,
    short,
)
from attncli.draw.view import View
from attncli.features.effects.difference_answer import (
    difference_sentences,
    probability_sentence,
    together_sentence,
)
from attncli.features.effects.document import (
    LENS_STAGES,
    AblateDocument,
    AttentionKind,
    EffectRow,
    LensRow,
    LogitPart,
    LogitsDocument,
    Measure,
    Measures,
    TokenPlace,
    reading_of,
    readings_of,
    telling_look,
)
from attncli.features.effects.head_phrase import AnyHead, head_phrase
from attncli.features.find.document import FindDocument
from attncli.inputs.token import joined_text
from attncli.language import Message, message, say
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_label, spoken_head

TIMES = 2.0
"""A first effect of at least so many times the second is said to be that many times it."""
ALIKE = 0.8
"""A head looks at a key about as much as another one where the smaller weight is at least this
share of the larger."""
FAR_LESS = 0.25
"""An effect of at most this share of the largest is far less."""
HARDLY = 0.1
"""An effect of at most this share of the largest hardly matters, unless it is of probabilities and
above `NOTICEABLE`."""
NOTICEABLE = 0.05
"""Nats from which a change of a log-probability, or of a difference of logits, matters: it makes 5%
of a probability."""
LITTLE = 0.005
"""A change of a vector, 1 − cosine, below this is called little: it turns by less than 6°."""
NEGLIGIBLE = 1e-12
"""Effects below this are none."""
ABOVE = 2.0
"""An effect of at most so many times that of a random change of the same size is set beside it in a
sentence."""


GRID_TITLES = {
    "vector": message("change of the last vector, 1 − cosine"),
    "logprob": message("change of the log-probability, nats"),
    "kl": message("change of the next token's distribution, KL in nats"),
    "difference": message("what the difference of two logits loses"),
}
"""The title of a grid of all heads, by what is measured."""
MEASURE_COLUMNS = {
    "vector": message("change"),
    "logprob": message("log p"),
    "kl": message("KL"),
    "difference": message("lost"),
}
"""The column of a measure."""
SUBJECTS = {
    "logprob": message("the log-probability of {token}"),
    "every": message("the mean log-probability of the text"),
    "kl": message("the next token's distribution"),
    "difference": message("the difference of two logits"),
}
"""What is measured, where it is a prediction; "every": of each token."""


def effect_size(effect: EffectRow | Measures, document: AblateDocument) -> float | None:
    """The number of an effect by the document's first measure (of "vector": 1 − cosine); None where
    it is undefined.
    """
    return reading_of(effect, readings_of(document.measures)[0])


def _defined_size(effect: EffectRow, document: AblateDocument) -> float:
    """As `effect_size`, of an effect that is not undefined."""
    size = effect_size(effect, document)
    assert size is not None
    return size


def effect_text(value: float) -> str:
    """An effect as sentences write it: with three digits after the point, and below 0.1 with two
    significant ones."""
    if abs(value) >= 0.0995:  # what two digits round to 0.1 already
        return f"{value:.3f}"
    return f"{value or 0.0:.2g}"  # `or`, so that -0.0 is written 0


DIGITS = 3
"""Digits after the point in tables of effects."""
FEW_UNITS = 5
"""Units of the last digit below which a column gets a digit more."""


SIZES = {
    "vector": message("{size} (1 − cosine)"),
    "logprob": message("{size} nats"),
    "kl": message("{size} nats"),
    "difference": message("{size} logits"),
}
"""How an effect is written with its unit, by what is measured."""


def size_text(value: float, measure: Measure, view: View) -> str:
    """An effect as sentences write it, with its unit; that on a log-probability, which may rise or
    fall, with its sign."""
    text = effect_text(value)
    if measure == "logprob" and value > 0:
        text = f"+{text}"
    return say(view, SIZES[measure], size=text)


def _directed_size(value: float, measure: Measure, view: View) -> str:
    """An effect as sentences write it, with its unit, and of a log-probability in words whether what
    was measured becomes likelier."""
    size = size_text(value, measure, view)
    if measure != "logprob" or abs(value) < NEGLIGIBLE:
        return size
    if value > 0:
        return say(view, "{size}, likelier", size=size)
    return say(view, "{size}, less likely", size=size)


SIGN_NOTES = {
    "logprob": message("log p: + likelier without it, - less likely"),
    "difference": message(
        "lost: of the difference of the two logits; - where that grows without it"
    ),
}
"""What the sign of a measure's column means, for the measures that have one."""


def effect_columns(*columns: Sequence[float | None]) -> list[list[str]]:
    """Format columns of effects with one common number of digits, as cells; `-` for None."""
    write = effect_writer(value for column in columns for value in column)
    return [[write(value) for value in column] for column in columns]


def effect_writer(effects: Iterable[float | None]) -> Callable[[float | None], str]:
    """A function that writes each of these effects with one common number of digits, and `-` for
    None."""
    values = [value for value in effects if value is not None]
    largest = max(map(abs, values), default=0.0)
    digits = DIGITS
    # where `DIGITS` leave the largest effect only one digit, such as 0.003, most of the smaller
    # ones would be 0.000: one more digit tells them apart; below half a unit all are 0.000
    if 0.5 <= largest * 10.0**DIGITS < FEW_UNITS:
        digits += 1
    write_number = writer(values, digits)

    def write(value: float | None) -> str:
        """An effect as text."""
        if value is None:
            return "-"
        return write_number(value)

    return write


def range_text(low: str, high: str) -> str:
    """Join the written ends of an interval as "low … high"; "-" where an end is "-"."""
    if "-" in (low, high):
        return "-"
    return f"{low} … {high}"


def interval_column(ends: Iterable[tuple[object, object]]) -> dict[str, list[str]]:
    """A column of 95% intervals, cells by title, from their low and high ends (None or UNSET where
    there is none), "-" for one without; no column where none has any."""
    lows: list[float | None] = []
    highs: list[float | None] = []
    for low, high in ends:
        lows.append(low if isinstance(low, float) else None)
        highs.append(high if isinstance(high, float) else None)
    if all(low is None for low in lows):
        return {}
    low_cells, high_cells = effect_columns(lows, highs)
    return {message("95% interval"): list(map(range_text, low_cells, high_cells))}


@capitalize_sentences
def cut_link_sentences(document: FindDocument, view: View) -> Iterator[str]:
    """The answer of `attn find --effect`: in which head cutting the found link changes the measure
    most, and what cutting it in all heads changes."""
    effects = [
        (head.effect, head)
        for head in document.heads
        if head.effect is not UNSET and head.effect is not None
    ]
    if not effects:
        return
    query_text = quoted_token(document.tokens, document.query, view)
    effect, first = max(effects, key=lambda pair: pair[0])
    head = say(view, spoken_head(first.layer, first.head))
    is_only_head = len(document.heads) == 1
    if effect >= NEGLIGIBLE:
        size = size_text(effect, "vector", view)
        name = "alone" if is_only_head else "most"
        yield say(view, LINK_SENTENCES[name], head=head, subject=query_text, size=size)
        if effect < LITTLE:
            degrees = math.degrees(math.acos(1 - effect))
            yield say(view, "That is little: the vector turns by {degrees:.1f}°.", degrees=degrees)
    else:
        name = "unchanged" if is_only_head else "nothing"
        yield say(view, LINK_SENTENCES[name], head=head, subject=query_text)
    is_same = len(effects) == 1  # what is cut together is the one head's link
    if (
        document.effect_together is not UNSET
        and document.effect_together is not None
        and not is_same
    ):
        together = size_text(document.effect_together, "vector", view)
        count = len(effects)
        yield say(view, LINK_SENTENCES["together"], size=together, count=count)


def subject(document: AblateDocument, view: View) -> str:
    """What an ablation measures, as a noun phrase: a token's vector, the mean of all vectors, a
    log-probability or a next-token distribution."""
    first = document.measures[0]
    if first != "vector":
        name = "every" if document.every else first
        return say(view, SUBJECTS[name], token=_target_word(document, view))
    if document.place == "mean":
        return say(view, "the mean of all vectors")
    tokens = document.tokens[document.place.token : _last_token(document.place) + 1]
    if len(tokens) == 1:
        return quoted_token(document.tokens, document.place.token, view)
    # tokens that do not say where in the text they stand are named by their own texts
    start, end = tokens[0].start, tokens[-1].end
    if start is None or end is None or not document.text:
        return quote_text(" ".join(token.text for token in tokens), view)
    return quoted_word(document.text[start:end], view)


def _last_token(place: TokenPlace) -> int:
    """The position of the last token measured at: that of a span, else of the only token."""
    if place.last is UNSET:
        return place.token
    return place.last


def _target_word(document: AblateDocument, view: View) -> str:
    """The token or the answer that a log-probability is about, in quotes; "" without one."""
    target = document.target
    if document.answer is not UNSET:
        return quote_text(joined_text(token.text for token in document.answer), view)
    if target is None:
        return ""
    return quote_text(target.text, view)


@capitalize_sentences
def effect_sentences(document: AblateDocument, view: View) -> Iterator[str]:
    """Yield the answer of `attn ablate` in sentences: which head changes the measure most, how far
    it stands out, and what all heads together change."""
    effects = [effect for effect in document.effects if effect_size(effect, document) is not None]
    together = effect_size(document.together, document)
    changed = {"subject": subject(document, view)}
    yield from _resting_link_sentences(document, view)
    yield from probability_sentence(document, view)
    if document.measures[0] == "difference":
        yield from _random_probability_sentences(document, view)
        caveats: list[str] = []
        if effects:
            caveats = _random_sentences(document, effects[0], view)
        yield from difference_sentences(document, caveats, view)
        return

    # single heads
    if document.link is not None:
        templates = LINK_SENTENCES
    else:
        templates = HEAD_SENTENCES
    if effects:
        yield from _single_sentences(document, effects, templates, view)

    # all heads together, in probabilities where the first sentence speaks of them
    has_probabilities = document.predictions is not UNSET and document.measures[0] == "logprob"
    if len(document.effects) != 1:  # of one head it is the same
        if has_probabilities and document.effects:
            yield from together_sentence(document, view)
        elif together is not None:
            if document.effects:
                name = "together"
            else:
                name = "all"
            size = _directed_size(together, document.measures[0], view)
            count = len(document.effects)
            yield say(view, templates[name], **changed, size=size, count=count)
        elif document.link is None:  # an effect is undefined where the vector becomes 0
            yield say(
                view, "Without any of these heads {subject} is 0 and has no direction.", **changed
            )
    elif not effects and document.link is None:
        yield say(view, "Without this head {subject} is 0 and has no direction.", **changed)
    if len(effects) > 1:
        yield say(view, templates["apart"])


def _resting_link_sentences(document: AblateDocument, view: View) -> Iterator[str]:
    """Yield why the weight of a cut link says little, where its key is one token on which heads put
    weight when they look for nothing (the first one, a special one); nothing for any other link.
    """
    link = document.link
    if link is None or not isinstance(link.key, int) or link.attention is not UNSET:
        return
    if resting_keys(document.tokens, document.model.source)[link.key]:
        yield resting_key(document.tokens, link.key, view)


def _single_sentences(
    document: AblateDocument,
    effects: Sequence[EffectRow],
    templates: Mapping[str, str],
    view: View,
) -> Iterator[str]:
    """Yield what single heads change: the largest effect, beside random changes and beside a head
    that looks at the same.

    effects: the largest first, none of them undefined; not empty.
    templates: of the sentences, by what they say, such as "most" or "nothing".
    """
    if document.link is not None and not any(row.weight for row in effects):
        yield say(view, templates["hidden"])  # by a mask
        return
    if abs(_defined_size(effects[0], document)) < NEGLIGIBLE:
        name = "unchanged" if len(document.effects) == 1 else "nothing"
        head = head_phrase(effects[0], view)
        yield say(view, templates[name], head=head, subject=subject(document, view))
        return
    if document.predictions is UNSET or document.measures[0] != "logprob":
        yield _largest_sentence(document, effects, templates, view)
    yield from _random_sentences(document, effects[0], view)
    yield from _alike_sentences(document, effects, view)


def _largest_sentence(
    document: AblateDocument,
    effects: Sequence[EffectRow],
    templates: Mapping[str, str],
    view: View,
) -> str:
    """A sentence on the head that changes the measure most, and how many times as much as the next
    head.

    effects: the largest first, none of them undefined; not empty.
    templates: of the sentences, by what they say, such as "most" or "times".
    """
    largest = _defined_size(effects[0], document)
    second = 0.0
    if len(effects) > 1:
        second = abs(_defined_size(effects[1], document))
    name = "most"
    ratio = ""
    if second > 0 and abs(largest) / second >= TIMES:
        name = "times"
        ratio = say(view, "{ratio} times", ratio=times_words(abs(largest) / second, 2))
    if len(document.effects) == 1:  # there is no other that it changes more than
        name = "alone"
    return say(
        view,
        templates[name],
        subject=subject(document, view),
        head=head_phrase(effects[0], view),
        size=_directed_size(largest, document.measures[0], view),
        times=ratio,
    )


HEAD_SENTENCES = {
    "nothing": message("Taking away a single head changes nothing in {subject}."),
    "unchanged": message("Taking away {head} changes nothing in {subject}."),
    "alone": message("Taking away {head} changes {subject}: {size}."),
    "most": message("Taking away {head} changes {subject} most: {size}."),
    "times": message("Taking away {head} changes {subject} most: {size}, {times} the next head."),
    "together": message("The {count} heads taken away together: {size}."),
    "all": message("Taking away the chosen heads, all at once, changes {subject} by {size}."),
    "apart": message("Heads are taken away one at a time: these numbers do not add up."),
}
"""What is said of heads that are taken away."""
LINK_SENTENCES = {
    "hidden": message("This link has no weight in any of these heads: there is nothing to cut."),
    "nothing": message("Cutting this link in a single head changes nothing in {subject}."),
    "unchanged": message("Cutting this link in {head} changes nothing in {subject}."),
    "alone": message("Cutting this link in {head} changes {subject}: {size}."),
    "most": message("Cutting this link in {head} changes {subject} most: {size}."),
    "times": message(
        "Cutting this link in {head} changes {subject} most: {size}, {times} the next head."
    ),
    "together": message("The link cut in the {count} heads together: {size}."),
    "all": message(
        "Cutting this link in all of the chosen heads at once changes {subject} by {size}."
    ),
    "apart": message("The link is cut in one head at a time: these numbers do not add up."),
}
"""The same of a link that is cut."""


def _alike_sentences(
    document: AblateDocument, effects: Sequence[EffectRow], view: View
) -> list[str]:
    """One sentence on a head that looks at the same key as the most important one about as much but
    hardly changes the measure; empty where there is none.

    effects: the largest first, none of them undefined; not empty.
    """
    first = effects[0]
    keys = document.keys(first.attention)
    if first.looks is None or first.looks.key >= len(keys):  # nothing, or a learned key: no word
        return []
    # weight on a resting key (the first token, a special one) means that a head looks for nothing
    rest = resting_keys(keys, document.model.source)
    if rest[first.looks.key] or keys[first.looks.key].unknown:
        return []

    first_size = abs(_defined_size(first, document))
    alike_heads: list[tuple[EffectRow, float]] = []
    for effect in effects[1:]:
        looks = effect.looks
        if looks is None or effect.attention != first.attention or looks.key != first.looks.key:
            continue
        has_like_weight = ALIKE <= looks.weight / first.looks.weight <= 1 / ALIKE
        size = abs(_defined_size(effect, document))
        if has_like_weight and size <= FAR_LESS * first_size:
            alike_heads.append((effect, looks.weight))
    if not alike_heads:
        return []

    effect, weight = max(alike_heads, key=lambda pair: pair[1])
    return [
        say(
            view,
            _alike_template(document, first, effect),
            head=head_phrase(effect, view),
            key=quoted_token(keys, first.looks.key, view),
            weight=f"{weight:.2f}",
            strongest=f"{first.looks.weight:.2f}",
            effect=_effect_in_brackets(_defined_size(effect, document), document, view),
        )
    ]


def _alike_template(document: AblateDocument, first: EffectRow, effect: EffectRow) -> Message:
    """The sentence on a head that looks at the same key as the first and changes far less: that it
    hardly matters, or that it changes the measure the other way, where one of these holds."""
    first_change = _defined_size(first, document)
    change = _defined_size(effect, document)
    is_small = abs(change) <= HARDLY * abs(first_change)
    is_of_nats = document.measures[0] in ("logprob", "difference")
    if is_small and not (is_of_nats and abs(change) > NOTICEABLE):
        return message(
            "{head} looks at {key} about as much ({weight}; there {strongest}) and hardly"
            " matters here ({effect})."
        )
    if first_change * change < 0:
        return message(
            "{head} looks at {key} about as much ({weight}; there {strongest}) and changes it far"
            " less, and the other way ({effect})."
        )
    return message(
        "{head} looks at {key} about as much ({weight}; there {strongest}) and changes it far less"
        " ({effect})."
    )


def _effect_in_brackets(value: float, document: AblateDocument, view: View) -> str:
    """An effect as a number for a bracket. A size in nats has its unit, because the sentence before
    it speaks of probabilities."""
    measure = document.measures[0]
    if measure == "vector":
        return effect_text(value)
    return size_text(value, measure, view)


def _random_sentences(document: AblateDocument, first: EffectRow, view: View) -> list[str]:
    """One sentence where the largest effect is at most `ABOVE` times that of a random change of the
    same size: less, the same as both are written, or little more; else empty.

    first: the row of the largest effect.
    """
    if first.random is None:
        return []
    random_size = effect_size(first.random, document)
    if random_size is None:
        return []
    size = _defined_size(first, document)
    return _beside_random(size, random_size, document.measures[0], view)


def _random_probability_sentences(document: AblateDocument, view: View) -> list[str]:
    """One sentence as `_random_sentences` says it, of the target's probability, which is told beside
    a difference of two logits; empty where that was not read of random changes."""
    predictions = document.predictions
    if predictions is UNSET or predictions.without is None or predictions.random is UNSET:
        return []
    before = predictions.own.probability
    after = predictions.without.probability
    if not (before > 0 and after > 0):
        return []
    return _beside_random(math.log(after / before), predictions.random, "logprob", view)


def _beside_random(size: float, random_size: float, measure: Measure, view: View) -> list[str]:
    """One sentence where an effect is at most `ABOVE` times that of random changes of the same size
    on average; else empty."""
    if abs(size) > ABOVE * abs(random_size):
        return []
    random_text = size_text(random_size, measure, view)
    if measure == "vector":  # the sentence before has the unit
        random_text = effect_text(random_size)
    if effect_text(abs(size)) == effect_text(abs(random_size)):
        return [
            say(view, "A random change of the same size makes as much ({size}).", size=random_text)
        ]
    if abs(size) < abs(random_size):
        template = message("That is less than a random change of the same size makes ({size}).")
        return [say(view, template, size=random_text)]
    times = times_words(abs(size) / abs(random_size), 2)
    if times == "1":
        template = message("A random change of the same size makes about as much ({size}).")
        return [say(view, template, size=random_text)]
    return [
        say(
            view,
            "That is {times} times what a random change of the same size makes ({size}).",
            times=times,
            size=random_text,
        )
    ]


def ablate_answer(document: AblateDocument, view: View) -> Lines:
    """The text tinted by where the most important head looks, or by the cut link's weight, and the
    answer in sentences below it. Where that head looks at another text, both are shown."""
    tokens = document.tokens
    queries = range(0)  # no token is marked where the mean of all is measured
    if document.place != "mean":
        queries = range(document.place.token, _last_token(document.place) + 1)
    tint, kind, weights = _tinted_keys(document, view)
    keys = document.keys(kind)
    shares = [weights.get(index, 0.0) for index in range(len(keys))]
    if kind == "cross":
        no_shares: list[float | None] = [None] * len(tokens)
        own_lines = sentence(words(document.text, tokens, no_shares, frozenset(queries)), view)
        # the other text is known by its tokens alone: None
        source_lines = shaded_sentence(None, keys, shares, view, query=None, tint=tint)
        text_lines = stack(own_lines, source_lines)
    else:
        text_lines = shaded_sentence(document.text, tokens, shares, view, query=queries, tint=tint)
    return stack(text_lines, sentences(ablate_sentences(document, view), view))


def _tinted_keys(
    document: AblateDocument, view: View
) -> tuple[Message, AttentionKind, dict[int, float]]:
    """Which keys an answer tints: those of the cut link, or the key that the most important head
    looks at. Returns the remark that explains the tint, "self" for keys of the text or "cross" for
    those of the other text, and the weight of each tinted key by position.
    """
    if not document.effects:
        return message(""), "self", {}
    if document.link is not None:  # every effect has a weight then
        first = max(document.effects, key=lambda effect: effect.weight or 0.0)
        places = document.link.key
        if isinstance(places, int):
            places = [places]
        tint = message("tint: the weight of this link in {head}", head=head_phrase(first, view))
        kind: AttentionKind = "self" if document.link.attention is UNSET else "cross"
        return tint, kind, dict.fromkeys(places, first.weight or 0.0)
    first = document.effects[0]
    looks = telling_look(first)
    if looks is None:
        return look_tint(first, view), "self", {}
    return look_tint(first, view), first.attention, {looks.key: looks.weight}


def look_tint(row: EffectRow | LogitPart, view: View) -> Message:
    """The remark that explains the tint of the word that a head looks at most."""
    name = head_phrase(row, view)
    if row.looks_beyond_rest is UNSET:
        return message("tint: the word looked at most in {head}", head=name)
    return message(
        "tint: the word looked at most in {head}; where heads rest is left out", head=name
    )


def ablate_sentences(document: AblateDocument, view: View) -> list[str]:
    """The answer of an `attn.ablate/1` document in words."""
    return [*effect_sentences(document, view), not_learned_note(document.model, view)]


# What the screens of effects are put together from: their parts in order, the grid of all heads, a
# head's name.

WHOLE = 200
"""Heads up to which a grid shows all of them, in panels where the screen is narrow."""


def grid(
    numbers: Sequence[tuple[int, int, float | None]], view: View, title: str, *, signed: bool
) -> Lines:
    """Draw a layer × head grid of (layer, head, number) triples; no lines for a single layer or a
    single head.

    title: what stands above the grid.
    signed: whether numbers below 0 mean the opposite.
    """
    values = head_grid(numbers)
    if len(values.layers) < 2 or len(values.heads) < 2:
        return Lines()
    is_small = False
    if np.isfinite(values.values).any():
        median = float(np.nanmedian(np.abs(values.values)))
        is_small = median < 0.5 * 10.0**-view.precision
    # where most effects would be rounded to 0, one more digit tells them apart
    precision = view.precision
    if is_small:
        precision += 1
    # a full view draws panels, so that no head is left out
    finer = replace(view, precision=precision, full=view.full or values.values.size <= WHOLE)
    return draw_grid(
        values,
        finer,
        # without colour cells are wide: the zero before the point makes room for the digit
        bare=is_small and not view.color,
        title=title,
        note=say(view, "rows: layers, columns: heads"),
        signed=signed,
    )


def grids(
    numbers_by_kind: Mapping[str, Sequence[tuple[int, int, float | None]]],
    view: View,
    title: str,
    *,
    signed: bool,
) -> Lines:
    """Draw one layer × head grid for each attention, "self" and "cross", that has numbers: (layer,
    head, number) triples.

    numbers_by_kind: the triples of each attention.
    title: above the first grid.
    signed: whether numbers below 0 mean the opposite.
    """
    if numbers_by_kind.get("self"):
        cross_title = say(view, "{title} · cross-attention", title=title)
    else:
        cross_title = title
    blocks: list[Lines] = []
    for kind, kind_title in (("self", title), ("cross", cross_title)):
        numbers = numbers_by_kind.get(kind)
        if numbers:
            blocks.append(grid(numbers, view, kind_title, signed=signed))
    return stack_spaced(*(block for block in blocks if block.rows))


def by_attention(
    rows: Iterable[tuple[AnyHead, float | None]],
) -> dict[str, list[tuple[int, int, float | None]]]:
    """Sort numbers of heads by attention for `grids`: under "self" and "cross" as (layer, head,
    number). Rows that are no head, such as the embedding's part of a logit, are left out."""
    numbers: dict[str, list[tuple[int, int, float | None]]] = {"self": [], "cross": []}
    for head, number_of_head in rows:
        if head.attention is not None and head.layer is not None and head.head is not None:
            numbers[head.attention].append((head.layer, head.head, number_of_head))
    return numbers


WORDS = (message("95% interval"), message("looks most at"))
"""The columns of heads that hold words."""


def heads_table(
    heads: Sequence[AnyHead],
    columns: Mapping[str, Sequence[str]],
    view: View,
    *,
    title: str,
    count: int,
    sizes: Sequence[float] = (),
    longest: int = 0,
) -> Lines:
    """A table of the heads shown, one a row, with a line on how many of `count` heads are not
    shown.

    columns: by English title, the cells after the head's name; the title "" puts in bars of
        `sizes`, the largest `longest` cells long.
    count: heads in all, shown or not.
    """
    table_columns = [text_column(message("head"), [*map(short_name, heads)], align="left")]
    for name, texts in columns.items():
        if not name:
            table_columns.append(bar_column(sizes, longest))
        elif name in WORDS:
            table_columns.append(text_column(name, texts, align="left"))
        else:
            table_columns.append(text_column(name, texts))
    body = column_table(table_columns, range(len(heads)), view, title=title)
    more = say(view, "{count} more heads; --top N or --full shows them", count=count - len(heads))
    return stack(body, remark(more if count > len(heads) else "", view))


def short_name(effect: AnyHead) -> str:
    """A head as tables name it, such as `L5 H11`, of cross-attention `L5 H11 x`."""
    assert effect.layer is not None
    assert effect.head is not None
    label = head_label(effect.layer, effect.head)
    if effect.attention == "cross":
        return f"{label} x"
    return label


# What the logit lens says.

LENS_WORDS, LENS_WORD = 3, 14
"""Tokens that a row of the lens shows, and cells of each."""
LENS_GAP = 2
"""Blanks between columns, and between tokens."""


def _lens_words(row: LensRow, room: int, view: View) -> str:
    """The likeliest tokens of a row with their probabilities, as many as the room has cells for."""
    entries = [
        f"{short(entry.token.text, LENS_WORD, view)} {entry.probability:.2f}"
        for entry in row.top[:LENS_WORDS]
    ]
    gap = " " * LENS_GAP
    while len(entries) > 1 and cells(gap.join(entries)) > room:
        entries.pop()
    return gap.join(entries)


def lens_table(document: LogitsDocument, view: View) -> Lines:
    """A table of the logit lens: for each layer the likeliest next tokens, and the target's rank
    and probability.
    """
    if document.lens is UNSET:
        return Lines()
    rows = [
        [
            "" if row.layer is None else f"L{row.layer}",
            say(view, LENS_STAGES[row.stage]),
            f"{row.rank:,}",
            f"{row.probability:.3f}",
        ]
        for row in document.lens
    ]
    titles = ["", "", say(view, "rank"), say(view, "probability")]
    # the words of a row get the cells that the columns before them leave, each with its gap
    number_width = sum(
        LENS_GAP + max(map(cells, column)) for column in zip(titles, *rows, strict=True)
    )
    for row, cells_of_row in zip(document.lens, rows, strict=True):
        cells_of_row.append(_lens_words(row, max(view.width - number_width, 1), view))
    target = quote_text(document.target.text, view)
    return table(
        [*titles, say(view, "would say next")],
        rows,
        view,
        align=["left", "left", "right", "right", "left"],
        title=say(view, "what each layer would say next, and {target} there", target=target),
    )


def lens_sentences(document: LogitsDocument, view: View) -> list[str]:
    """The logit lens in sentences: from which layer on the target is the likeliest next token to
    the end, or that it never is."""
    if document.lens is UNSET or not document.lens:
        return []
    target = quote_text(document.target.text, view)
    ranks = [row.rank for row in document.lens]
    if ranks[-1] > 1:
        return [
            say(
                view,
                "Read off layer by layer, {target} does not come first in the end.",
                target=target,
            )
        ]
    # the row from which on the target stays first
    start = len(ranks) - 1
    while start > 0 and ranks[start - 1] == 1:
        start -= 1
    row = document.lens[start]
    if row.layer is None:
        return [
            say(
                view,
                "Read off layer by layer, {target} comes first only at the end.",
                target=target,
            )
        ]
    if row.stage == "after attention":
        template = message(
            "Read off layer by layer, {target} comes first from layer {layer} on, after its"
            " attention."
        )
    else:
        template = message(
            "Read off layer by layer, {target} comes first from layer {layer} on, before its"
            " attention."
        )
    return [say(view, template, target=target, layer=row.layer)]
