"""The last lines of the topics of `attn explain`: what their numbers say, in words. Each sentence has its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attncli.render.headings import own, remark, sentences
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
        OrderRow,
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
    """The sentence, tinted by how far each word's output moves without positions, or as the model ran; whether the
    order is seen: what holds of every way of telling places, or of the one that ran."""
    rows = [row for row in document.rows if row.order == document.order]
    plain = next((row for row in rows if (row.position, row.mask) == ("none", "none")), None)
    told = []
    if plain is not None and plain.equal:
        told.append(say(view, "order.said", _size(plain.max_difference)))
        seen = [row for row in rows if not row.equal]
        if seen:
            names = [way_name(row) for row in seen]
            sizes = [row.max_difference for row in seen]
            listed = say(view, "list.comma").join(names)
            told.append(say(view, "order.broken", listed, _size(min(sizes)), _size(max(sizes))))
        if any(row.order != document.order and not row.equal for row in document.rows):
            told.append(say(view, "order.alibi"))
    shown = plain or document.rows[0]
    if not told:
        known = [at for at in range(len(shown.per_token)) if not document.tokens[at].unknown] or [shown.token]
        moved = max(known, key=lambda at: shown.per_token[at])
        word, size = quoted_token(document.tokens, moved, view), _size(float(shown.per_token[moved]))
        told.append(say(view, "order.unseen") if shown.equal else say(view, "order.seen", word, size))
    way = (convention(shown.position, view), convention(shown.mask, view))
    if shown.equal:  # nothing moves, so nothing is tinted
        shares, tint = None, remark(say(view, "order.untinted", *way), view)
    else:
        shares, tint = np.divide(shown.per_token, shown.max_difference), Lines()
    tinted = shaded(document.text, document.tokens, shares, view, query=None, tint="order.tint", values=way)
    return stack((tinted, tint, sentences(told, view)))


def way_name(row: OrderRow) -> str:
    """What one row ran with: its position encoding, or its mask where it has none."""
    return row.position if row.position != "none" else row.mask


def convention(name: str, view: View) -> str:
    """A position encoding's or a mask's name, as options spell it; that there is none in the view's language."""
    return say(view, "convention.none") if name == "none" else name


def _size(difference: float) -> str:
    """A difference of outputs in a sentence."""
    return f"{difference:.2g}" if difference < 1e-3 else f"{difference:.3g}"


def metric_answer(document: MetricTopic, view: View) -> Lines:
    """The example's value beside that of even attention, and what a high value means."""
    example = document.example
    told = []
    if example.value is not None and example.uniform is not None:
        values = (fixed(example.value, view.precision), fixed(example.uniform, view.precision))
        told.append(say(view, "metric.answer", document.name, *values))
    return sentences([*told, say(view, "metric.high", own(document.says, view))], view)
