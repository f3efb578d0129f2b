"""The last lines of the topics of `attn explain`: what their numbers say, in words. Each sentence has its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attncli.render.headings import own, sentences
from attncli.render.lines import Lines, stack
from attncli.render.numbers import brief, fixed, percent
from attncli.render.phrases import say
from attncli.render.screens.shading import shaded
from attncli.render.token_names import quoted_token
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.explain import (
        MatrixSoftmaxTopic,
        MetricTopic,
        OrderTopic,
        ScalingTopic,
        SoftmaxTopic,
    )

SAME = 1e-12
"""Weights that differ by no more are called equal."""
TIMES = 1e6
"""How many times the next weight the largest is at most said to be."""


def softmax_answer(document: SoftmaxTopic, view: View) -> Lines:
    """What the largest score gets, and how many times the next one's weight that is."""
    first, *others = sorted(document.weights, reverse=True)
    if not others:
        return sentences([say(view, "numbers.alone")], view)
    if first - others[-1] <= SAME:
        return sentences([say(view, "numbers.even", fixed(first, view.precision))], view)
    highest, share = brief(document.highest), percent(first)
    if others[0] * TIMES <= first:
        return sentences([say(view, "numbers.answer", highest, share)], view)
    return sentences([say(view, "numbers.answer.times", highest, share, f"{first / others[0]:.3g}")], view)


def scaling_answer(document: ScalingTopic, view: View) -> Lines:
    """The largest weight and the gradient with and without scaling, where scaling brings the gradient back."""
    plain, scaled = document.softmax[:2]
    if plain.gradient >= scaled.gradient:
        return sentences([say(view, "scaling.small")], view)
    told = [fixed(value, 2) for value in (plain.largest, plain.gradient, scaled.largest, scaled.gradient)]
    return sentences([say(view, "scaling.answer", *told)], view)


def matrix_answer(document: MatrixSoftmaxTopic, view: View) -> Lines:
    """The sentence, tinted by what each word's weights sum to where the softmax runs over all of them; the least and
    the most."""
    sums = [float(value) for value in document.row_sums]
    said = say(view, "matrix.said", fixed(min(sums), view.precision), fixed(max(sums), view.precision))
    shares = np.divide(sums, max(sums, default=0.0) or 1.0)
    return stack(
        (shaded(document.text, document.tokens, shares, view, query=None, tint="matrix.tint"), sentences([said], view))
    )


def order_answer(document: OrderTopic, view: View) -> Lines:
    """The sentence, tinted by how far each word's output moves where outputs move most; whether the order is seen: what
    holds of every way of telling places, or of the one that ran."""
    equal = {(row.position, row.mask) for row in document.rows if row.equal}
    told = [say(view, "order.said")] if ("none", "none") in equal else []
    told += (
        [say(view, "order.alibi")]
        if any(row.order != document.order and not row.equal for row in document.rows)
        else []
    )
    most = max(document.rows, key=lambda row: row.max_difference)
    if not told:
        known = [at for at in range(len(most.per_token)) if not document.tokens[at].unknown] or [most.token]
        moved = max(known, key=lambda at: most.per_token[at])
        word = quoted_token(document.tokens, moved, view)
        seen = not all(row.equal for row in document.rows)
        told.append(
            say(view, "order.seen", word, f"{most.per_token[moved]:.3g}") if seen else say(view, "order.unseen")
        )
    way = (most.position, most.mask)
    shares = None if most.equal else np.divide(most.per_token, most.max_difference)
    tinted = shaded(document.text, document.tokens, shares, view, query=None, tint="order.tint", values=way)
    return stack((tinted, sentences(told, view)))


def metric_answer(document: MetricTopic, view: View) -> Lines:
    """The example's value beside that of even attention, and what a high value means."""
    example = document.example
    told = []
    if example.value is not None and example.uniform is not None:
        values = (fixed(example.value, view.precision), fixed(example.uniform, view.precision))
        told.append(say(view, "metric.answer", document.name, *values))
    return sentences([*told, say(view, "metric.high", own(document.says, view))], view)
