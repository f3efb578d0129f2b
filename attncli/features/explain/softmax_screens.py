"""The screens of the topics of `attn explain` that need no query: softmax, scaling, matrix softmax, order, metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import Lines, heading, localize, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import adding_digits, bar, brief, format_fixed, percent
from attncli.draw.safe import cells, label, spell
from attncli.draw.screen_header import fact, header
from attncli.draw.sentence import shaded_sentence
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import ledger, table
from attncli.draw.token_names import position_and_text, quoted_token
from attncli.draw.view import View
from attncli.features.explain.document import MatrixSoftmaxTopic, OrderRow, OrderTopic, ScalingTopic, SoftmaxTopic
from attncli.language import say, say_each

if TYPE_CHECKING:
    from attncli.features.explain.document import (
        MatrixSoftmaxTopic,
        MetricTopic,
        OrderRow,
        OrderTopic,
        ScalingTopic,
        SoftmaxTopic,
    )


# The last lines of the topics of `attn explain`: what their numbers say, in words. Each sentence has its rule.

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


OUTPUTS = 8
"""Tokens whose outputs are shown in both orders."""


def softmax_blocks(document: SoftmaxTopic, view: View) -> Sequence[Lines]:
    """Scores, exponentials, sum, quotients; and the same with the maximum subtracted."""
    scores, weights = document.scores, document.weights
    at_one = document.temperature == 1
    note = say(view, "numbers.note") if at_one else say(view, "numbers.temperature.note", brief(document.temperature))
    name = "numbers" if at_one else "numbers.temperature"
    title = say(view, name, len(scores), *([] if at_one else [brief(document.temperature)]))
    columns = [
        "",
        *([] if at_one else [spell("score", ascii=view.ascii)]),
        "s",
        "exp(s)",
        "s − max",
        "exp(s − max)",
        "w",
    ]
    digits = adding_digits([(weights, 1.0)], view.precision)
    sums = [document.exponentials, document.shifted_exponentials]
    totals = [document.sum, document.shifted_sum]
    widths = [
        view.precision
        if total is None or None in terms
        else adding_digits([([term for term in terms if term is not None], total)], view.precision)
        for terms, total in zip(sums, totals, strict=True)
    ]
    rows = []
    for index, score in enumerate(scores):
        given_scores = [] if at_one else [format_fixed(document.numbers[index], view.precision)]
        plain = (
            format_fixed(document.exponentials[index], widths[0]) if document.exponentials[index] is not None else "inf"
        )
        shifted_score = format_fixed(document.shifted[index], view.precision)
        shifted_exponential = format_fixed(document.shifted_exponentials[index], widths[1])
        rows.append(
            [
                str(index),
                *given_scores,
                format_fixed(score, view.precision),
                plain,
                shifted_score,
                shifted_exponential,
                format_fixed(weights[index], digits),
            ]
        )
    ends = [" " * (width - view.precision) for width in (*widths, digits)]
    total = [
        say(view, "sum"),
        *([] if at_one else [""]),
        "",
        ("inf" if totals[0] is None else format_fixed(totals[0], view.precision) + ends[0]),
        "",
    ]
    total += [format_fixed(totals[1], view.precision) + ends[1], format_fixed(1.0, view.precision) + ends[2]]
    body = ledger(
        columns,
        rows,
        total,
        view,
        title=title,
        note=note,
        strong=int(max(range(len(weights)), key=weights.__getitem__)),
    )
    highest = format_fixed(document.highest, view.precision)
    shift = say(view, "numbers.shift", highest) if totals[0] is not None else say(view, "numbers.overflow", highest)
    most = math.log(len(scores))
    facts = say(
        view,
        "numbers.facts",
        *(format_fixed(value, view.precision) for value in (max(weights), document.entropy, most, document.gradient)),
    )
    return (stack((body, remark(shift, view), remark(facts, view))), softmax_answer(document, view))


def scaling_blocks(document: ScalingTopic, view: View) -> Sequence[Lines]:
    """Measured variance beside theory, and the softmax unscaled and scaled."""
    d_k = document.d_k
    columns = ["", say(view, "measured"), say(view, "error"), say(view, "theory")]
    rows = [
        [
            _scaled_name(row.scale, document, view, "var(q·k)"),
            *(format_fixed(getattr(row, name), view.precision) for name in ("variance", "variance_error", "theory")),
        ]
        for row in document.variance
    ]
    note = say(view, "scaling.measured", document.samples, document.seed)
    first = document.variance[0]
    agree = say(view, "scaling.agree", f"{first.standard_errors:.1f}") if first.standard_errors is not None else ""
    variance = stack((ledger(columns, rows, [], view, title="var(q·k)", note=note), remark(agree, view)))
    softmax_table_rows = [
        [
            say(view, "scaling.uniform")
            if row.scale == "uniform"
            else _scaled_name(row.scale, document, view, "softmax"),
            format_fixed(row.largest, view.precision),
            bar(row.largest, max(min(view.width - 64, 24), 0), ascii=view.ascii),
            *(format_fixed(getattr(row, name), view.precision) for name in ("entropy", "gradient")),
        ]
        for row in document.softmax
    ]
    head = ["", say(view, "largest"), "", say(view, "entropy"), say(view, "gradient")]
    note = say(view, "scaling.softmax.note", document.queries)
    softmax = table(
        head,
        softmax_table_rows,
        view,
        align=["left", "right", "left", "right", "right"],
        title=say(view, "scaling.softmax", document.keys),
        note=note,
        bars=2,
    )
    claim = stack((heading(say(view, "scaling"), "", view), remark(say(view, "scaling.claim", d_k), view, style="")))
    return (claim, variance, softmax, scaling_answer(document, view))


def _scaled_name(name: str, document: ScalingTopic, view: View, what: str) -> str:
    inner = what.removeprefix("var(").removesuffix(")")
    divisor = {"none": "", "sqrt-dk": f" / √{document.d_k}", "sqrt-dmodel": f" / √{document.d_model}"}[name]
    return spell(f"var({inner}{divisor})" if what.startswith("var") else f"q·k{divisor}", ascii=view.ascii)


def matrix_softmax_blocks(document: MatrixSoftmaxTopic, view: View) -> Sequence[Lines]:
    """The same scores through a softmax of each row and through one of the whole matrix."""
    texts = [token.text for token in document.tokens]
    keys = texts + [f"bias_k {index}" for index in range(len(document.scores[0]) - len(texts))]
    sums = [float(value) for value in document.row_sums]
    rows = matrix(document.rows, texts, keys, view, title=say(view, "matrix.rows"), note=say(view, "matrix.rows.note"))
    whole = matrix(
        document.whole, texts, keys, view, title=say(view, "matrix.whole"), note=say(view, "matrix.whole.note")
    )
    digits = adding_digits([(sums, sum(sums))], view.precision)
    cells = [
        [position_and_text(index, text, 14, view), format_fixed(1.0, view.precision), format_fixed(sums[index], digits)]
        for index, text in enumerate(texts)
    ]
    total = [
        say(view, "sum"),
        format_fixed(float(len(texts)), view.precision),
        format_fixed(sum(sums), view.precision) + " " * (digits - view.precision),
    ]
    sum_table = ledger(
        ["", say(view, "matrix.rows"), say(view, "matrix.whole")], cells, total, view, title=say(view, "row.sum")
    )
    return (
        header(document, view),
        stack((heading(say(view, "matrix"), "", view), rows)),
        whole,
        sum_table,
        matrix_answer(document, view),
    )


def order_blocks(document: OrderTopic, view: View) -> Sequence[Lines]:
    """Both orders, then per position encoding and mask how much the outputs differ."""
    texts = [token.text for token in document.tokens]
    gap = " " if not all(len(text) == 1 for text in texts) else ""
    after = [texts[index] for index in document.order]
    lines = [
        fact(say(view, name), [label(gap.join(words), ascii=view.ascii)], view)
        for name, words in (("order.from", texts), ("order.to", after))
    ]
    columns = say_each(view, "order", "position", "mask", "greatest", "where", "verdict")
    rows = [
        [
            convention(row.position, view) + ("" if row.order == document.order else " *"),
            convention(row.mask, view),
            f"{row.max_difference:.{max(view.precision - 1, 1)}e}",
            position_and_text(row.token, texts[row.token], 12, view),
            say(view, "order.same" if row.equal else "order.differs"),
        ]
        for row in document.rows
    ]
    body = table(
        columns, rows, view, align=["left", "left", "right"], title=say(view, "order"), note=say(view, "order.note")
    )
    other_orders = dict.fromkeys(tuple(row.order) for row in document.rows if row.order != document.order)
    order_notes = [
        remark(say(view, "order.other", label(gap.join(texts[index] for index in order), ascii=view.ascii)), view)
        for order in other_orders
    ]
    sides = [_side_by_side(document, row, view) for row in _worth_seeing(document)]
    return (header(document, view), stack(lines), *sides, stack((body, *order_notes)), order_answer(document, view))


def _worth_seeing(document: OrderTopic) -> list[OrderRow]:
    """The rows whose outputs are shown: the first, without positions where it ran so, and the first that differs."""
    rows = [row for row in document.rows if row.order == document.order and row.outputs is not UNSET]
    return [*rows[:1], *[row for row in rows[1:] if not row.equal and rows[0].equal][:1]]


def _side_by_side(document: OrderTopic, row: OrderRow, view: View) -> Lines:
    """The first entries of each token's output in both orders."""
    assert row.outputs is not UNSET
    assert row.moved_outputs is not UNSET
    texts = [token.text for token in document.tokens]
    tokens_shown = range(len(texts) if view.full else min(len(texts), OUTPUTS))
    names = [position_and_text(index, texts[index], 12, view) for index in tokens_shown]
    before, after = as_matrix(row.outputs), as_matrix(row.moved_outputs)
    wide = view.precision + 7
    most = max((view.width - max(map(cells, names)) - 2) // (2 * wide), 1)
    entries = range(min(most, before.shape[1]))
    sides = [say(view, name) for name in ("order.from", "order.to")]
    columns = [say(view, "column.key.token"), *(f"{side} {index}" for side in sides for index in entries)]
    lines = [
        [
            name,
            *(
                format_fixed(float(values[index, entry]), view.precision)
                for values in (before, after)
                for entry in entries
            ),
        ]
        for index, name in zip(tokens_shown, names, strict=True)
    ]
    verdict = say(view, "order.same" if row.equal else "order.differs")
    title = say(view, "order.outputs", *(convention(name, view) for name in (row.position, row.mask)), verdict)
    more = say(view, "order.outputs.more", len(texts) - len(tokens_shown)) if len(tokens_shown) < len(texts) else ""
    note = say(view, "order.outputs.note", len(entries))
    return stack((ledger(columns, lines, [], view, title=title, note=note), remark(more, view)))


def softmax_rows(document: SoftmaxTopic) -> Iterable[list[object]]:
    """The numbers of a softmax by hand, a row for each score, for `--plain`."""
    yield ["index", "score", "exponential", "shifted", "shifted_exponential", "weight"]
    columns = ("scores", "exponentials", "shifted", "shifted_exponentials", "weights")
    for index in range(len(document.scores)):
        yield [index, *(getattr(document, name)[index] for name in columns)]


def scaling_rows(document: ScalingTopic) -> Iterable[list[object]]:
    """How softmax behaves under each scale, a row for each, for `--plain`."""
    yield ["scale", "variance", "variance_error", "theory", "largest", "entropy", "gradient"]
    for row, soft in zip(document.variance, document.softmax, strict=False):
        yield [row.scale, row.variance, row.variance_error, row.theory, soft.largest, soft.entropy, soft.gradient]


def matrix_rows(document: MatrixSoftmaxTopic) -> Iterable[list[object]]:
    """Row-wise softmax beside softmax over the whole matrix, a row for each entry, for `--plain`."""
    yield ["query", "key", "row_softmax", "matrix_softmax"]
    for query, (row, whole) in enumerate(zip(document.rows, document.whole, strict=True)):
        for key, (weight, share) in enumerate(zip(row, whole, strict=True)):
            yield [query, key, float(weight), float(share)]


def order_rows(document: OrderTopic) -> Iterable[list[object]]:
    """How far outputs move when the words are reordered, a row for each position and mask, for `--plain`."""
    yield ["position", "mask", "order", "max_difference", "token", "tolerance", "equal"]
    for row in document.rows:
        values = [getattr(row, name) for name in ("max_difference", "token", "tolerance", "equal")]
        yield [row.position, row.mask, " ".join(map(str, row.order)), *values]


# The screen of the topic "metric": what a metric means, and its value for a small example.

TOKENS = "abcdefgh"
"""How the example's tokens are called."""


def metric_blocks(document: MetricTopic, view: View) -> Sequence[Lines]:
    """What a metric means, and its value for the example matrix and for uniform attention."""
    fields = ("formula", "range", "unit", "rows", "note", "source", "needs")
    parts = [
        fact(say(view, f"metric.{name}"), [getattr(document, name)], view) for name in fields if getattr(document, name)
    ]
    example = document.example
    texts = list(TOKENS[: len(example.weights)])
    visible_weights = [
        [weight if key <= query else None for key, weight in enumerate(row)]
        for query, row in enumerate(example.weights)
    ]
    example_matrix = matrix(
        visible_weights, texts, texts, replace(view, precision=2), title=say(view, "metric.example")
    )
    values = [
        [say(view, "metric.value"), _value(example.value, view)],
        [say(view, "metric.uniform"), _value(example.uniform, view)],
    ]
    body = table(["", document.name], values, view, align=["left", "right"])
    rows_note = say(view, "metric.left", example.rows, len(texts))
    return (
        heading(document.name, document.says, view),
        stack(parts),
        example_matrix,
        stack((body, remark(rows_note, view))),
        metric_answer(document, view),
    )


def _value(value: float | None, view: View) -> str:
    return "-" if value is None else format_fixed(value, view.precision)


def metric_rows(document: MetricTopic) -> Iterable[list[object]]:
    """What a metric means and its value for the example, a row for each fact, for `--plain`."""
    yield ["field", "value"]
    for name in ("name", "says", "formula", "range", "unit", "rows", "note", "source"):
        yield [name, getattr(document, name)]
    yield ["value", document.example.value]
    yield ["uniform", document.example.uniform]


# Every metric with a line: what bare `attn explain metric` shows.


def metrics_screen(meanings: Mapping[str, str], view: View) -> Lines:
    """Every metric with a line of what a high value means, and how to ask for more; brief, their names."""
    if view.brief:
        return remark(say(view, "metrics.brief", len(meanings), say(view, "list").join(meanings)), view, style="")
    rows = [[name, localize(meaning, view)] for name, meaning in meanings.items()]
    answer = remark(say(view, "metrics.answer", len(meanings)), view, style="")
    return stack_spaced((table(["metric", "a high value means"], rows, view), answer))
