"""The topics of `attn.explain/1` that need no query: softmax, scaling, matrix-softmax, order, metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import UNSET

from attncli.analysis.documents.explain import MatrixSoftmaxTopic, OrderRow, OrderTopic, ScalingTopic, SoftmaxTopic
from attncli.render.bars import bar
from attncli.render.glyphs import spell
from attncli.render.headings import heading, remark
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix, matrix
from attncli.render.numbers import brief, format_fixed
from attncli.render.phrases import say, say_each
from attncli.render.safe import cells, label
from attncli.render.screens.header import fact, header
from attncli.render.screens.topic_answers import convention, matrix_answer, order_answer, scaling_answer, softmax_answer
from attncli.render.tables import ledger, table
from attncli.render.term_digits import adding_digits
from attncli.render.token_names import position_and_text
from attncli.render.view import View

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
    yield ["index", "score", "exponential", "shifted", "shifted_exponential", "weight"]
    columns = ("scores", "exponentials", "shifted", "shifted_exponentials", "weights")
    for index in range(len(document.scores)):
        yield [index, *(getattr(document, name)[index] for name in columns)]


def scaling_rows(document: ScalingTopic) -> Iterable[list[object]]:
    yield ["scale", "variance", "variance_error", "theory", "largest", "entropy", "gradient"]
    for row, soft in zip(document.variance, document.softmax, strict=False):
        yield [row.scale, row.variance, row.variance_error, row.theory, soft.largest, soft.entropy, soft.gradient]


def matrix_rows(document: MatrixSoftmaxTopic) -> Iterable[list[object]]:
    yield ["query", "key", "row_softmax", "matrix_softmax"]
    for query, (row, whole) in enumerate(zip(document.rows, document.whole, strict=True)):
        for key, (weight, share) in enumerate(zip(row, whole, strict=True)):
            yield [query, key, float(weight), float(share)]


def order_rows(document: OrderTopic) -> Iterable[list[object]]:
    yield ["position", "mask", "order", "max_difference", "token", "tolerance", "equal"]
    for row in document.rows:
        values = [getattr(row, name) for name in ("max_difference", "token", "tolerance", "equal")]
        yield [row.position, row.mask, " ".join(map(str, row.order)), *values]
