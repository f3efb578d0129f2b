"""What a metric means, as a document: topic "metric" of `attn.explain/1`."""

from __future__ import annotations

from difflib import get_close_matches

import numpy as np

from attncli import __version__
from attncli.analysis.documents.explain import MetricExample, MetricTopic
from attncli.analysis.measure import measure
from attncli.analysis.metrics import METRICS, Metric
from attncli.errors import UsageError

EXAMPLE = ((1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.2, 0.3, 0.5, 0.0), (0.1, 0.15, 0.5, 0.25))
"""A causal head of four tokens, worked by hand in the tests: rows are queries, columns keys."""


def metric_names() -> list[str]:
    """Every metric, in the order of the tables."""
    return list(METRICS)


def metric_meanings() -> dict[str, str]:
    """What a high value of each metric means, in a line, in the order of the tables."""
    return {name: metric.says for name, metric in METRICS.items()}


def metric_document(name: str) -> MetricTopic:
    """A metric's declaration, its value for `EXAMPLE` and for uniform attention over what a causal query of it may see.

    Both values are null for a metric that needs tokens. Raises UsageError for an unknown name.
    """
    if name not in METRICS:
        close = get_close_matches(name, METRICS, 1)
        hint = f"attn explain metric {close[0]}" if close else "attn explain metric"
        raise UsageError(f"there is no metric {name!r}", expected=", ".join(METRICS), hint=hint)
    metric = METRICS[name]
    causal = np.tril(np.ones((4, 4), bool))
    result = measure(np.asarray([EXAMPLE]), causal, metrics=(metric.name,))[metric.name]
    value, uniform = (None if np.isnan(number[0]) else float(number[0]) for number in (result.value, result.baseline))
    rows = int(result.rows[0])
    return MetricTopic(
        version=__version__,
        topic="metric",
        name=metric.name,
        says=metric.says,
        formula=metric.formula,
        low=metric.low,
        high=metric.high,
        range=range_text(metric),
        unit=metric.unit or "share",
        rows=metric.rows,
        note=metric.note or None,
        source=metric.source,
        needs=metric.needs or None,
        example=MetricExample(weights=np.asarray(EXAMPLE), value=value, uniform=uniform, rows=rows),
        warnings=[],
    )


def range_text(metric: Metric) -> str:
    """The range in words, such as "0 to 1" or "from 0"."""
    match (metric.low, metric.high):
        case (None, None):
            return "any number"
        case (low, None):
            return f"from {low:g}"
        case (None, high):
            return f"up to {high:g}"
        case (low, high):
            return f"{low:g} to {high:g}"
