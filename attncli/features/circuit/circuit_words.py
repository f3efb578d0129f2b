"""How what a circuit keeps and what a head is worth are said, on screens and pages."""

from __future__ import annotations

from msgspec import UNSET

from attncli.documents.parts import label_name
from attncli.draw.numbers import format_signed, percent
from attncli.draw.safe import label
from attncli.draw.view import View
from attncli.features.circuit.document import CircuitNode, CircuitSize
from attncli.features.effects.difference_answer import loss_text
from attncli.features.effects.document import Difference
from attncli.features.rules.screen import rule_label
from attncli.language import contextual, say

DIGITS = 2
"""Behind the point, of logit differences and scores."""


def kept_text(size: CircuitSize) -> str:
    """The share of the effect that a circuit keeps, with its interval where there is one, such as
    `78% [70%, 86%]`."""
    if size.low is None or size.high is None:
        return share_text(size.faithfulness)
    low, high = share_text(size.low), share_text(size.high)
    return f"{share_text(size.faithfulness)} [{low}, {high}]"


def share_text(share: float) -> str:
    """A share rounded to a tenth of a percent, so that what rounding errors leave reads 0%."""
    # + 0.0 turns -0.0 into 0.0
    return percent(round(share, 3) + 0.0)


def loss_sentence(node: CircuitNode, change: Difference, view: View) -> str:
    """The sentence on how much of the logit difference is lost when a head has its values of the
    corrupt text, and how much of that by what it writes and by moving where later heads look.

    node: the head.
    change: what the logit difference loses, in all and in its two parts.
    """
    # what was not measured counts as 0; where the difference grows, its gain is said, and the parts
    # of that gain are positive numbers
    loss = change.all or 0.0
    sign = 1.0
    if loss < 0:
        sign = -1.0
    return say(
        view,
        "With the values that {head} has in the corrupt text the difference {lost}: {held} by"
        " what it writes, {moved} by moving where later heads look.",
        head=node.id,
        lost=loss_text(loss, view),
        held=format_signed(sign * (change.writes or 0.0), DIGITS),
        moved=format_signed(sign * (change.moved or 0.0), DIGITS),
    )


def looks_like(node: CircuitNode, view: View) -> str:
    """A head's attention in one phrase: its labels, else the strongest rule behind its part of the
    head's weights, such as `0.64 previous token`; "" for neither."""
    if node.labels:
        names = [label_name(name, view.lang) for name in node.labels]
        return say(view, contextual("between", ", ")).join(names)
    if node.rule is UNSET:
        return ""
    return f"{node.rule.weight:.2f} {label(say(view, rule_label(node.rule.rule)))}"
