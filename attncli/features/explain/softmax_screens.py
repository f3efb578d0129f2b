"""The screens of the topics of `attn explain` that need no query: softmax, scaling, matrix softmax, order, metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attncli.draw.lines import Lines, heading, localize, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import adding_digits, bar, brief, format_fixed, percent, times_words
from attncli.draw.safe import spell
from attncli.draw.screen_header import fact, header
from attncli.draw.sentence import shaded_sentence
from attncli.draw.shaded_matrix import matrix
from attncli.draw.tables import ledger, table
from attncli.draw.token_names import position_and_text
from attncli.draw.view import View
from attncli.features.explain.document import MatrixSoftmaxTopic, ScalingTopic, SoftmaxTopic
from attncli.language import contextual, message, plural, say

if TYPE_CHECKING:
    from attncli.features.explain.document import MatrixSoftmaxTopic, MetricTopic, ScalingTopic, SoftmaxTopic


# The last lines of the topics of `attn explain`: what their numbers say, in words. Each sentence has its rule.

SAME = 1e-12
"""Weights that differ by no more are called equal."""
TIMES = 1e6
"""How many times the next weight the largest is at most said to be."""


def softmax_answer(document: SoftmaxTopic, view: View) -> Lines:
    """What the largest score gets, and how many times the next one's weight that is."""
    first, *other_weights = sorted(document.weights, reverse=True)
    if not other_weights:
        return sentences([say(view, "A score alone gets all of the weight.")], view)
    if first - other_weights[-1] <= SAME:
        return sentences(
            [
                say(
                    view,
                    "All scores are equal, and so are their weights: {weight} each.",
                    weight=format_fixed(first, view.precision),
                )
            ],
            view,
        )
    highest, share = brief(document.highest), percent(first)
    if other_weights[0] * TIMES <= first:
        return sentences(
            [say(view, "The largest score, {highest}, gets {share} of the weight.", highest=highest, share=share)], view
        )
    return sentences(
        [
            say(
                view,
                "The largest score, {highest}, gets {share} of the weight, {times} times what the next one gets.",
                highest=highest,
                share=share,
                times=times_words(first / other_weights[0], 3),
            )
        ],
        view,
    )


def scaling_answer(document: ScalingTopic, view: View) -> Lines:
    """The largest weight and the gradient with and without scaling, where scaling brings the gradient back."""
    plain, scaled = document.softmax[:2]
    if plain.gradient >= scaled.gradient:
        return sentences(
            [say(view, "For so small a d_k the difference is slight: scaling matters more the larger d_k is.")], view
        )
    values = {
        "largest": plain.largest, "gradient": plain.gradient,
        "scaled_largest": scaled.largest, "scaled_gradient": scaled.gradient,
    }  # fmt: skip
    numbers = {name: format_fixed(value, 2) for name, value in values.items()}
    return sentences(
        [
            say(
                view,
                "Unscaled, the largest weight is {largest} on average and the gradient {gradient}; "
                "scaled, {scaled_largest} and {scaled_gradient}: the softmax stays where it can "
                "learn.",
                **numbers,
            )
        ],
        view,
    )


def matrix_answer(document: MatrixSoftmaxTopic, view: View) -> Lines:
    """The sentence, tinted by what each word's weights sum to where the softmax runs over all of them; the least and
    the most."""
    sums = [float(value) for value in document.row_sums]
    sums_sentence = say(
        view,
        "Over the whole matrix one query gets {least} of the weight and another {most}; by "
        "rows each gets 1. Attention always uses rows.",
        least=format_fixed(min(sums), view.precision),
        most=format_fixed(max(sums), view.precision),
    )
    shares = np.divide(sums, max(sums, default=0.0) or 1.0)
    return stack(
        (
            shaded_sentence(
                document.text,
                document.tokens,
                shares,
                view,
                query=None,
                tint=message(
                    ("tint: what the word gets as a query over the whole matrix, against the one that gets most")
                ),
            ),
            sentences([sums_sentence], view),
        )
    )


def metric_answer(document: MetricTopic, view: View) -> Lines:
    """The example's value beside that of even attention, and what a high value means."""
    example = document.example
    answer_sentences = []
    if example.value is not None and example.uniform is not None:
        value, uniform = (format_fixed(number, view.precision) for number in (example.value, example.uniform))
        answer_sentences.append(
            say(
                view,
                "{metric} is {value} for this head, and {uniform} for one whose rows are spread "
                "evenly over what they see.",
                metric=document.name,
                value=value,
                uniform=uniform,
            )
        )
    return sentences(
        [*answer_sentences, say(view, "A high value means: {meaning}.", meaning=localize(document.says, view))], view
    )


def softmax_blocks(document: SoftmaxTopic, view: View) -> Sequence[Lines]:
    """Scores, exponentials, sum, quotients; and the same with the maximum subtracted."""
    scores, weights = document.scores, document.weights
    at_one = document.temperature == 1
    note = (
        say(view, "w = exp(s) / sum of exp(s)")
        if at_one
        else say(view, "s = score / {temperature}; w = exp(s) / sum of exp(s)", temperature=brief(document.temperature))
    )
    title = say(
        view,
        plural("softmax of {count} number", "softmax of {count} numbers", count=len(scores))
        if at_one
        else plural(
            "softmax of {count} number at temperature {temperature}",
            "softmax of {count} numbers at temperature {temperature}",
            count=len(scores),
            temperature=brief(document.temperature),
        ),
    )
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
    shift = (
        say(
            view,
            "The maximum, {highest}, may be subtracted from every score: numerator and sum "
            "shrink by the same factor exp({highest}), and nothing overflows.",
            highest=highest,
        )
        if totals[0] is not None
        else say(
            view,
            "exp of {highest} is too large for any float: only the subtracted form can be computed.",
            highest=highest,
        )
    )
    values = {
        "largest": max(weights), "entropy": document.entropy,
        "limit": math.log(len(scores)), "gradient": document.gradient,
    }  # fmt: skip
    numbers = {name: format_fixed(value, view.precision) for name, value in values.items()}
    facts = say(
        view,
        "largest weight {largest} · entropy {entropy} nats of at most {limit} · gradient norm {gradient}",
        **numbers,
    )
    return (stack((body, remark(shift, view), remark(facts, view))), softmax_answer(document, view))


def scaling_blocks(document: ScalingTopic, view: View) -> Sequence[Lines]:
    """Measured variance beside theory, and the softmax unscaled and scaled."""
    d_k = document.d_k
    columns = ["", say(view, "measured"), say(view, "standard error"), say(view, "theory")]
    rows = [
        [
            _scaled_name(row.scale, document, view, "var(q·k)"),
            *(format_fixed(getattr(row, name), view.precision) for name in ("variance", "variance_error", "theory")),
        ]
        for row in document.variance
    ]
    note = say(view, "measured on {pairs} pairs (seed {seed})", pairs=document.samples, seed=document.seed)
    first = document.variance[0]
    agree = (
        say(
            view,
            "The measured variance is {errors} standard errors from theory.",
            errors=f"{first.standard_errors:.1f}",
        )
        if first.standard_errors is not None
        else ""
    )
    variance = stack((ledger(columns, rows, [], view, title="var(q·k)", note=note), remark(agree, view)))
    softmax_table_rows = [
        [
            say(view, "uniform") if row.scale == "uniform" else _scaled_name(row.scale, document, view, "softmax"),
            format_fixed(row.largest, view.precision),
            bar(row.largest, max(min(view.width - 64, 24), 0), ascii=view.ascii),
            *(format_fixed(getattr(row, name), view.precision) for name in ("entropy", "gradient")),
        ]
        for row in document.softmax
    ]
    head = ["", say(view, "largest weight"), "", say(view, "entropy"), say(view, "gradient norm")]
    note = say(view, plural("means over {count} query", "means over {count} queries", count=document.queries))
    softmax = table(
        head,
        softmax_table_rows,
        view,
        align=["left", "right", "left", "right", "right"],
        title=plural(
            "what that does to a softmax over {count} key",
            "what that does to a softmax over {count} keys",
            count=document.keys,
        ),
        note=note,
        bars=2,
    )
    claim = stack(
        (
            heading("why scores are divided by √d_k", "", view),
            remark(
                say(
                    view,
                    "q and k: {d_k} independent entries, mean 0, variance 1. Each product q_i·k_i has "
                    "mean 0 and variance 1, so their sum q·k has variance d_k = {d_k}.",
                    d_k=d_k,
                ),
                view,
                style="",
            ),
        )
    )
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
    rows = matrix(document.row_softmax, texts, keys, view, title="by rows", note="each query spreads 1 over the keys")
    whole = matrix(
        document.whole, texts, keys, view, title="over the whole matrix", note="all queries together share 1"
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
        ["", say(view, "by rows"), say(view, "over the whole matrix")], cells, total, view, title="row sum"
    )
    return (
        header(document, view),
        stack((heading("softmax by rows, and over the whole matrix", "", view), rows)),
        whole,
        sum_table,
        matrix_answer(document, view),
    )


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
    for query, (row, whole) in enumerate(zip(document.row_softmax, document.whole, strict=True)):
        for key, (weight, share) in enumerate(zip(row, whole, strict=True)):
            yield [query, key, float(weight), float(share)]


# The screen of the topic "metric": what a metric means, and its value for a small example.

TOKENS = "abcdefgh"
"""How the example's tokens are called."""


def metric_blocks(document: MetricTopic, view: View) -> Sequence[Lines]:
    """What a metric means, and its value for the example matrix and for uniform attention."""
    fields = (
        (message("formula"), document.formula),
        (message("range"), document.range),
        (message("unit"), document.unit),
        (message("taken over"), document.row_kind),
        (message("note"), document.note),
        (message("source"), document.source),
        (message("needs"), document.needs),
    )
    parts = [fact(name, [value], view) for name, value in fields if value]
    example = document.example
    texts = list(TOKENS[: len(example.weights)])
    visible_weights = [
        [weight if key <= query else None for key, weight in enumerate(row)]
        for query, row in enumerate(example.weights)
    ]
    example_matrix = matrix(
        visible_weights, texts, texts, replace(view, precision=2), title="an example: a causal head of four tokens"
    )
    values = [
        [say(view, "this head"), _value(example.value, view)],
        [say(view, "uniform over the visible keys"), _value(example.uniform, view)],
    ]
    body = table(["", document.name], values, view, align=["left", "right"])
    rows_note = say(view, "{count} of {total} rows used", count=example.rows, total=len(texts))
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
    for name in ("name", "says", "formula", "range", "unit"):
        yield [name, getattr(document, name)]
    yield ["rows", document.row_kind]
    yield ["note", document.note]
    yield ["source", document.source]
    yield ["value", document.example.value]
    yield ["uniform", document.example.uniform]


# Every metric with a line: what bare `attn explain metric` shows.


def metrics_screen(meanings: Mapping[str, str], view: View) -> Lines:
    """Every metric with a line of what a high value means, and how to ask for more; brief, their names."""
    if view.brief:
        return remark(
            say(
                view,
                "{count} metrics: {metrics}.",
                count=len(meanings),
                metrics=say(view, contextual("between", ", ")).join(meanings),
            ),
            view,
            style="",
        )
    rows = [[name, localize(meaning, view)] for name, meaning in meanings.items()]
    answer = remark(
        say(
            view,
            "{count} metrics: attn explain metric NAME tells the formula, the range and an example of one.",
            count=len(meanings),
        ),
        view,
        style="",
    )
    return stack_spaced((table(["metric", message("a high value means")], rows, view), answer))
