"""The parts of an answer's screen that prove what it rests on: the heads that carry a region, and a
dose of attention on one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import UNSET

from attncli.draw.columns import Column, column_table, columns_that_fit
from attncli.draw.lines import Lines
from attncli.draw.numbers import format_fixed, format_signed, percent
from attncli.draw.safe import spell
from attncli.draw.token_names import quote_text, region_name
from attncli.draw.view import View
from attncli.features.answer.answer_words import quoted_leaf, share_text
from attncli.features.answer.document import (
    LITTLE,
    AnswerDocument,
    AnswerDose,
    AnswerDoses,
    AnswerEffect,
    CarryingHead,
    CarryingHeads,
)
from attncli.language import Message, choice, listing, message, plural, say
from attncli.mechanism.spec import head_name, spoken_head

LEAST_STEP = 0.01
"""A change in nats from dose to dose that two decimals always show."""
LONGEST = 20
"""Cells of the longest bar."""


def has_carriers(document: AnswerDocument, view: View) -> bool:
    """Whether the document says which heads carry a region."""
    return document.carriers is not UNSET


def has_doses(document: AnswerDocument, view: View) -> bool:
    """Whether attention on a region was weighed."""
    return document.doses is not UNSET


def _effect_of(document: AnswerDocument, region: int) -> AnswerEffect:
    """The document's row on the region of this number, as `regions` counts them."""
    return next(effect for effect in document.effects if effect.region == region)


def carrier_table(document: AnswerDocument, view: View) -> Lines:
    """A row for each head that was cut by itself: its attention on the region, the estimate, and what
    the answer loses. Empty without --each-head."""
    carriers = document.carriers
    if carriers is UNSET:
        return Lines()
    greatest = max((-row.change for row in carriers.heads), default=0.0)

    def part(row: CarryingHead) -> float:
        """A head's loss as a part of the largest, 0 to 1: the length of its bar."""
        if greatest <= 0:
            return 0.0
        return max(-row.change, 0.0) / greatest

    # a narrow screen leaves out the column of `leave_out` 2 first, then that of 1
    columns = [
        Column[CarryingHead](message("layer"), lambda row: str(row.layer)),
        Column[CarryingHead](message("head"), lambda row: str(row.head)),
        Column[CarryingHead](
            message("attention"), lambda row: percent(row.attention, 1), leave_out=2
        ),
        Column[CarryingHead](
            message("estimate"), lambda row: format_signed(row.estimate, 3), leave_out=1
        ),
        Column[CarryingHead](message("change"), lambda row: format_signed(row.change, 3)),
        Column[CarryingHead](share=part, longest=LONGEST, align="left"),
    ]
    effect = _effect_of(document, carriers.region)
    note = message(
        "change of the mean log probability a token, in nats, by a run of its own; the estimate by"
        " its slope chose these of {count} heads; attention on the region",
        count=carriers.count,
    )
    # a narrow screen leaves columns out; its note does not speak of them
    names = {column.name for column in columns_that_fit(columns, carriers.heads, view)}
    if "attention" not in names:
        note = message(
            "change of the mean log probability a token, in nats, by a run of its own; the estimate"
            " by its slope chose these of {count} heads",
            count=carriers.count,
        )
    return column_table(
        columns,
        carriers.heads,
        view,
        title=message(
            "the answer's queries cut off from {region} in one head",
            region=quoted_leaf(document, effect, view),
        ),
        note=note,
    )


def carrier_sentences(document: AnswerDocument, view: View) -> Iterator[str]:
    """Yield what the answer loses with the links to a region cut in the chosen heads at once, in all
    heads, and in the first head alone. Nothing without --each-head."""
    carriers = document.carriers
    if carriers is UNSET:
        return
    effect = _effect_of(document, carriers.region)
    yield say(view, _together_sentence(document, carriers, effect, view))
    if view.brief and len(carriers.heads) > 1:  # their table is left out
        names = [head_name(row.layer, row.head) for row in carriers.heads]
        yield say(view, "These heads are {heads}.", heads=listing(names))
    # what the region's whole cut loses beyond the cut of the answer's own links in all heads
    missing = carriers.every - effect.change
    if document.cut == "links" and carriers.every < 0 and missing >= LITTLE:
        yield say(view, "What is missing to that is not by these links alone.")
    yield from _single_head_sentences(carriers, view)


def _together_sentence(
    document: AnswerDocument, carriers: CarryingHeads, effect: AnswerEffect, view: View
) -> Message:
    """The sentence on what the answer loses with the links cut in the chosen heads at once, beside
    all heads, and beside the whole cut of the region where that cuts links, not text."""
    is_compared = document.cut == "links"
    # a sentence is given only the values that it has places for
    places: dict[str, object] = {
        "region": quoted_leaf(document, effect, view),
        "together": format_signed(carriers.together, 2),
        "every": format_signed(carriers.every, 2),
        "all": carriers.count,
    }
    if is_compared:
        places["change"] = format_signed(effect.change, 2)
    if len(carriers.heads) > 1:
        places["count"] = len(carriers.heads)
    if is_compared and len(carriers.heads) == 1:
        return message(
            "With the answer's own queries cut off from {region} in the head that the estimate"
            " puts first, its mean log probability changes by {together}, in all {all} heads by"
            " {every}, and by {change} without the region.",
            **places,
        )
    if len(carriers.heads) == 1:
        return message(
            "With the answer's own queries cut off from {region} in the head that the estimate"
            " puts first, its mean log probability changes by {together}, in all {all} heads by"
            " {every}.",
            **places,
        )
    if is_compared:
        return message(
            "With the answer's own queries cut off from {region} in the {count} heads that the"
            " estimate puts first, its mean log probability changes by {together}, in all {all}"
            " heads by {every}, and by {change} without the region.",
            **places,
        )
    return message(
        "With the answer's own queries cut off from {region} in the {count} heads that the"
        " estimate puts first, its mean log probability changes by {together}, in all {all} heads"
        " by {every}.",
        **places,
    )


def _single_head_sentences(carriers: CarryingHeads, view: View) -> Iterator[str]:
    """Yield what the answer loses when the links of a single head are cut: the loss of the first
    head, or that it is small in every head. The heads are there by their loss, the largest first.
    """
    first = carriers.heads[0]
    if first.change > -LITTLE:
        yield say(
            view,
            "None of these heads alone lowers it by as much as {least} nats.",
            least=format_fixed(LITTLE, 2),
        )
    elif len(carriers.heads) > 1:
        yield say(
            view,
            "Cut alone, {head} changes it by {change}.",
            head=say(view, spoken_head(first.layer, first.head)),
            change=format_signed(first.change, 2),
        )


def _dosed_name(doses: AnswerDoses, view: View) -> str:
    """The name of the region or word whose attention is multiplied, in quotes."""
    return quote_text(region_name(doses.weighed.name, view), view)


def dose_table(document: AnswerDocument, view: View) -> Lines:
    """A row for each factor that attention on a region was multiplied by: the mean probability of a
    token of the answer, and the change of its logarithm. Empty without --weigh."""
    doses = document.doses
    if doses is UNSET:
        return Lines()
    columns = [
        Column[AnswerDose](
            message("factor"), lambda row: f"{spell('×', ascii=view.ascii)}{row.factor:g}"
        ),
        Column[AnswerDose](message("a token"), lambda row: share_text(row.logprob)),
        Column[AnswerDose](message("change"), lambda row: format_signed(row.change, 2)),
    ]
    if doses.weighed.heads is None:
        title = message("attention on {name} weighed", name=_dosed_name(doses, view))
    else:
        title = message(
            "attention on {name} weighed in the chosen heads", name=_dosed_name(doses, view)
        )
    return column_table(columns, doses.doses, view, title=title)


def _dose_template(doses: AnswerDoses) -> Message:
    """The sentence on the factor that was asked for, beside unchanged attention (×1) and none (×0);
    where the factor asked for is 0 or 1, on these two alone. Its places are still to be filled.
    """
    is_all = doses.weighed.heads is None
    if doses.weighed.factor in (0.0, 1.0) and is_all:
        return message(
            "With no attention on {name} (×0) the probability of a token of the answer is {none} on"
            " average, as it is (×1) {own}."
        )
    if doses.weighed.factor in (0.0, 1.0):
        return message(
            "With no attention on {name} in the chosen heads (×0) the probability of a token of the"
            " answer is {none} on average, as it is (×1) {own}."
        )
    if is_all:
        return message(
            "With attention on {name} weighed ×{factor} the probability of a token of the answer is"
            " {share} on average, as it is (×1) {own}, with none (×0) {none}."
        )
    return message(
        "With attention on {name} weighed ×{factor} in the chosen heads the probability of a token of"
        " the answer is {share} on average, as it is (×1) {own}, with none there (×0) {none}."
    )


def dose_sentences(document: AnswerDocument, view: View) -> Iterator[str]:
    """Yield what multiplying attention on a region changes, what the same does to random spans, and
    whether the answer's probability rises or falls with the factor. Nothing without --weigh."""
    doses = document.doses
    if doses is UNSET:
        return
    # beside the factor asked for, ×0 and ×1 were always measured
    by_factor = {row.factor: row for row in doses.doses}
    dose = by_factor[doses.weighed.factor]
    yield say(
        view,
        _dose_template(doses),
        name=_dosed_name(doses, view),
        factor=f"{dose.factor:g}",
        share=share_text(dose.logprob),
        own=share_text(by_factor[1.0].logprob),
        none=share_text(by_factor[0.0].logprob),
    )
    if doses.random is not UNSET:
        yield say(
            view,
            plural(
                "The same dose on {count} random span of as many tokens changes its mean log"
                " probability by {most} nats, on {name} by {change}.",
                "The same dose on {count} random spans of as many tokens changes its mean log"
                " probability by at most {most} nats, on {name} by {change}.",
                count=len(doses.random),
                most=format_fixed(max(map(abs, doses.random)), 2),
                name=_dosed_name(doses, view),
                change=format_signed(dose.change, 2),
            ),
        )
    for course in _course(doses):
        yield say(view, course)


def _course(doses: AnswerDoses) -> Iterator[Message]:
    """Yield how the answer's probability goes with the dose: that it hardly changes, that it rises
    and falls, or that it goes one way; and then whether a random span changes it as much.
    """
    changes = [row.change for row in doses.doses]
    if max(changes) - min(changes) < LITTLE:
        yield message(
            "The probability hardly changes with the dose: by less than {least} nats.",
            least=format_fixed(LITTLE, 2),
        )
        return
    steps = [after - before for before, after in pairwise(changes)]
    if min(steps) <= -LEAST_STEP and max(steps) >= LEAST_STEP:
        highest = max(doses.doses, key=lambda row: row.logprob)
        lowest = min(doses.doses, key=lambda row: row.logprob)
        yield message(
            "The probability rises from some doses to the next and falls from others: it is highest"
            " with ×{most} ({high}) and lowest with ×{least} ({low}).",
            most=f"{highest.factor:g}",
            high=share_text(highest.logprob),
            least=f"{lowest.factor:g}",
            low=share_text(lowest.logprob),
        )
        return
    yield _direction(doses, steps)
    dose = next(row for row in doses.doses if row.factor == doses.weighed.factor)
    if doses.random is not UNSET and max(map(abs, doses.random)) >= abs(dose.change):
        yield message("But the same dose on a random span changes it as much.")


def _direction(doses: AnswerDoses, steps: Sequence[float]) -> Message:
    """The sentence on a probability that only rises, or only falls, with the dose, and between which
    factors it does not.

    steps: the changes from each factor to the next, in nats.
    """
    rises = sum(steps) > 0
    flat = [
        message("×{low} to ×{high}", low=f"{before.factor:g}", high=f"{after.factor:g}")
        for (before, after), step in zip(pairwise(doses.doses), steps, strict=True)
        if abs(step) < LEAST_STEP
    ]
    places = choice(flat, last=" and ")
    least = format_fixed(LEAST_STEP, 2)
    if flat and rises:
        return message(
            "The probability rises with the dose, but hardly changes from {places}: by less than"
            " {least} nats.",
            places=places,
            least=least,
        )
    if flat:
        return message(
            "The probability falls with the dose, but hardly changes from {places}: by less than"
            " {least} nats.",
            places=places,
            least=least,
        )
    if rises:
        return message("The probability rises from dose to dose.")
    return message("The probability falls from dose to dose.")
