"""The tour: the steps from a sentence to one weight and to what the head does, in one list for the explorer and for
pages. The five in the middle have the numbers that `attn explain` gives them."""

from __future__ import annotations

from dataclasses import dataclass

from attncli.language import Message, message


@dataclass(frozen=True)
class TourStep:
    """One step. name: of what is looked at. words: what is to be known of it."""

    name: str
    words: Message


TOUR = (
    TourStep("sentence", message("One word looks at the others: the tint and the curves say how much, in this head.")),
    TourStep(
        "similarity",
        message(
            "The head has a query for the word and a key for each word. Where they are alike "
            "their dot product is large: these are the whole reason why one word looks at "
            "another."
        ),
    ),
    TourStep(
        "scale",
        message(
            "The dot products grow with the vectors' width; the scale takes that back, or the "
            "softmax would give all to one word."
        ),
    ),
    TourStep(
        "mask",
        message("A mask crosses out words that may not be seen, in a decoder those to come: their score becomes −∞."),
    ),
    TourStep(
        "softmax",
        message(
            "The softmax makes shares of the scores. The column of weights sums to 1: what one "
            "word gains, another loses."
        ),
    ),
    TourStep("output", message("The shares weigh the words' values; their sum leaves the head.")),
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
