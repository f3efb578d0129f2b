"""The steps from a sentence to one weight and to what the head does: one list for `attn explain`, the explorer and
pages, which name, number and explain them alike."""

from __future__ import annotations

from dataclasses import dataclass

from attncli.language import Message, message


@dataclass(frozen=True)
class TourStep:
    """One step. name: of what is looked at. words: what is to be known of it.

    part: of those in the middle, which part of a derivation works it out; its place in the list is its number. title:
    what it is called, heading: that with its {query}. lead: what it does, in one sentence.
    """

    name: str
    words: Message
    part: str = ""
    title: Message | None = None
    heading: Message | None = None
    lead: Message | None = None


TOUR = (
    TourStep("sentence", message("One word looks at the others: the tint and the curves say how much, in this head.")),
    TourStep(
        "similarity",
        message(
            "Where a query and a key are alike their dot product is large: these are the whole reason why one word "
            "looks at another."
        ),
        "similarity",
        message("similarity"),
        message("similarity of {query} with each key"),
        message("Q asks, K answers: q of {query} times each word's k, added up."),
    ),
    TourStep(
        "scale",
        message(
            "The dot products grow with the vectors' width; the scale takes that back, or the "
            "softmax would give all to one word."
        ),
        "scaled",
        message("scale"),
        message("scale"),
        message("The sums are brought to a scale that the softmax can use."),
    ),
    TourStep(
        "mask",
        message("A mask crosses out words that may not be seen, in a decoder those to come: their score becomes −∞."),
        "masked",
        message("mask"),
        message("mask"),
        message("What the mask hides becomes −∞ and drops out of the softmax."),
    ),
    TourStep(
        "softmax",
        message("The softmax makes shares of 1: what one word gains, another loses."),
        "softmax",
        message("softmax"),
        message("softmax of {query}"),
        message("Scores become weights: all at least 0, together 1."),
    ),
    TourStep(
        "output",
        message("The shares weigh the words' values; their sum leaves the head."),
        "output",
        message("weighted sum"),
        message("output of {query}, a weighted sum"),
        message("Each value times its weight, added up: what {query} takes."),
    ),
    TourStep(
        "heads", message("Every head has its own opinion. This is the same link in all heads, the strongest first.")
    ),
    TourStep(
        "effect", message("Looking is not mattering: without the head, how far does the word's last vector turn?")
    ),
)
"""All steps in order."""
STEP = {step.name: step for step in TOUR}
"""The steps by name."""
STEP_OF_PART = {step.part: step for step in TOUR if step.part}
"""Those that a derivation works out, by its parts."""
