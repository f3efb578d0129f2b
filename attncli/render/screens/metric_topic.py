"""The screen of the topic "metric": what a metric means, and its value for a small example."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attncli.render.headings import heading, remark
from attncli.render.lines import Lines, stack
from attncli.render.matrix import matrix
from attncli.render.numbers import format_fixed
from attncli.render.phrases import say
from attncli.render.screens.header import fact
from attncli.render.screens.topic_answers import metric_answer
from attncli.render.tables import table
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.explain import MetricTopic


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
    yield ["field", "value"]
    for name in ("name", "says", "formula", "range", "unit", "rows", "note", "source"):
        yield [name, getattr(document, name)]
    yield ["value", document.example.value]
    yield ["uniform", document.example.uniform]
