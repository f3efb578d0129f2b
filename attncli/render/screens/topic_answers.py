"""The last lines of the topics of `attn explain`: what their numbers say, in words. Each sentence has its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attncli.render.headings import localize, remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.numbers import brief, format_fixed, percent
from attncli.render.phrases import say
from attncli.render.screens.shading import shaded_sentence
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
    first, *other_weights = sorted(document.weights, reverse=True)
    if not other_weights:
        return sentences([say(view, "numbers.alone")], view)
    if first - other_weights[-1] <= SAME:
        return sentences([say(view, "numbers.even", format_fixed(first, view.precision))], view)
    highest, share = brief(document.highest), percent(first)
    if other_weights[0] * TIMES <= first:
        return sentences([say(view, "numbers.answer", highest, share)], view)
    return sentences([say(view, "numbers.answer.times", highest, share, f"{first / other_weights[0]:.3g}")], view)


def scaling_answer(document: ScalingTopic, view: View) -> Lines:
    """The largest weight and the gradient with and without scaling, where scaling brings the gradient back."""
    plain, scaled = document.softmax[:2]
    if plain.gradient >= scaled.gradient:
        return sentences([say(view, "scaling.small")], view)
    values = [format_fixed(value, 2) for value in (plain.largest, plain.gradient, scaled.largest, scaled.gradient)]
    return sentences([say(view, "scaling.answer", *values)], view)


def matrix_answer(document: MatrixSoftmaxTopic, view: View) -> Lines:
    """The sentence, tinted by what each word's weights sum to where the softmax runs over all of them; the least and
    the most."""
    sums = [float(value) for value in document.row_sums]
    sums_sentence = say(
        view, "matrix.said", format_fixed(min(sums), view.precision), format_fixed(max(sums), view.precision)
    )
    shares = np.divide(sums, max(sums, default=0.0) or 1.0)
    return stack(
        (
            shaded_sentence(document.text, document.tokens, shares, view, query=None, tint="matrix.tint"),
            sentences([sums_sentence], view),
        )
    )


def order_answer(document: OrderTopic, view: View) -> Lines:
    """The sentence, tinted by how far each word's output moves without positions, or as the model ran; whether the
    order is seen: what holds of every way of telling places, or of the one that ran."""
    rows = [row for row in document.rows if row.order == document.order]
    plain = next((row for row in rows if (row.position, row.mask) == ("none", "none")), None)
    answer_sentences = []
    if plain is not None and plain.equal:
        answer_sentences.append(say(view, "order.said", _size(plain.max_difference)))
        changed_rows = [row for row in rows if not row.equal]
        if changed_rows:
            names = [way_name(row) for row in changed_rows]
            sizes = [row.max_difference for row in changed_rows]
            row_names = say(view, "list.comma").join(names)
            answer_sentences.append(say(view, "order.broken", row_names, _size(min(sizes)), _size(max(sizes))))
        if any(row.order != document.order and not row.equal for row in document.rows):
            answer_sentences.append(say(view, "order.alibi"))
    main_row = plain or document.rows[0]
    if not answer_sentences:
        known_indices = [index for index in range(len(main_row.per_token)) if not document.tokens[index].unknown] or [
            main_row.token
        ]
        most_moved = max(known_indices, key=lambda index: main_row.per_token[index])
        word, size = quoted_token(document.tokens, most_moved, view), _size(float(main_row.per_token[most_moved]))
        answer_sentences.append(say(view, "order.unseen") if main_row.equal else say(view, "order.seen", word, size))
    way = (convention(main_row.position, view), convention(main_row.mask, view))
    if main_row.equal:  # nothing moves, so nothing is tinted
        shares, tint = None, remark(say(view, "order.untinted", *way), view)
    else:
        shares, tint = np.divide(main_row.per_token, main_row.max_difference), Lines()
    tinted_sentence = shaded_sentence(
        document.text, document.tokens, shares, view, query=None, tint="order.tint", values=way
    )
    return stack((tinted_sentence, tint, sentences(answer_sentences, view)))


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
    answer_sentences = []
    if example.value is not None and example.uniform is not None:
        values = (format_fixed(example.value, view.precision), format_fixed(example.uniform, view.precision))
        answer_sentences.append(say(view, "metric.answer", document.name, *values))
    return sentences([*answer_sentences, say(view, "metric.high", localize(document.says, view))], view)
