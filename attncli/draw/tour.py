"""The steps from a sentence to one weight and to what the head does: one list for `attn explain`,
the explorer and pages, which name, number and explain them alike."""

from __future__ import annotations

from msgspec import Struct

from attncli.draw.view import View
from attncli.language import Message, message, say


class TourStep(Struct, frozen=True):
    """One step on the way from a sentence to an attention weight and the head's output, as
    explained to a reader. Its place in the list is its number; the first one, the sentence, has
    none.

    name: of what the step is about.
    words: what the reader should know of it.
    title: what it is called.
    part: the part of `attn explain`'s derivation that works it out; "" for none.
    heading: the title of that part, with a place for the query.
    lead: what the step does, in one sentence.
    """

    name: str
    words: Message
    title: Message
    part: str = ""
    heading: Message | None = None
    lead: Message | None = None


TOUR = (
    TourStep(
        "sentence",
        message(
            "One word looks at the others: the tint and the curves say how much, in this head."
        ),
        message("the sentence"),
    ),
    TourStep(
        "similarity",
        message(
            "Where a query and a key are alike their dot product is large: these are the whole"
            " reason why one word looks at another."
        ),
        message("similarity"),
        "similarity",
        message("similarity of {query} with each key"),
        message("Q asks, K answers: q of {query} times each word's k, added up."),
    ),
    TourStep(
        "scale",
        message(
            "The dot products grow with the vectors' width; most models take that back by a scale,"
            " or the softmax would give all to one word."
        ),
        message("scale"),
        "scaled",
        message("scale"),
        message("The sums are brought to a scale that the softmax can use."),
    ),
    TourStep(
        "mask",
        message(
            "A mask crosses out words that may not be seen, in a decoder those to come: their score"
            " becomes −∞."
        ),
        message("mask"),
        "masked",
        message("mask"),
        message("What the mask hides becomes −∞ and drops out of the softmax."),
    ),
    TourStep(
        "softmax",
        message("The softmax makes shares of 1: what one word gains, another loses."),
        message("softmax"),
        "softmax",
        message("softmax of {query}"),
        message("Scores become weights: all at least 0, together 1."),
    ),
    TourStep(
        "output",
        message("The shares weigh the words' values; their sum leaves the head."),
        message("weighted sum"),
        "output",
        message("output of {query}, a weighted sum"),
        message("Each value times its weight, added up: what {query} takes."),
    ),
    TourStep(
        "heads",
        message(
            "Every head has its own opinion. This is the same link in all heads, the strongest"
            " first."
        ),
        message("the other heads"),
    ),
    TourStep(
        "effect",
        message(
            "Looking is not mattering: without the head, how far does the word's last vector turn?"
        ),
        message("without the head"),
    ),
)
"""All steps in order."""
STEP = {step.name: step for step in TOUR}
"""The steps by name."""
STEP_OF_PART = {step.part: step for step in TOUR if step.part}
"""Those that a derivation works out, by its parts."""


def step_title(step: TourStep, view: View) -> str:
    """The title of a step with its number, such as "step 3 of 7: mask"; the first one, the sentence,
    has its title alone."""
    title = say(view, step.title)
    number = TOUR.index(step)
    if number:
        return say(
            view, "step {number} of {total}: {step}", number=number, total=len(TOUR) - 1, step=title
        )
    return title
