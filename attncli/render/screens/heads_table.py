"""The table of `attn.heads/1` for `--plain`: a line for each head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.analysis.documents.heads import HeadsDocument, MetricValue


def heads_rows(document: HeadsDocument) -> Iterator[Sequence[object]]:
    """One row per head as a table for `--plain`, its first row the names of the columns."""
    names = list(dict.fromkeys(name for head in document.heads for name in head.metrics))
    yield ("layer", "head", *names, "top_query", "top_key", "top_weight", "labels")
    for head in document.heads:
        link = head.top_link
        metrics = (metric_value(head.metrics.get(name)) for name in names)
        yield (
            head.layer,
            head.head,
            *metrics,
            *((None, None, None) if link is None else (link.query, link.key, link.weight)),
            ",".join(head.labels or ()),
        )


def metric_value(metric: MetricValue | None) -> float | None:
    """The number of a metric; None where there is none."""
    return None if metric is None else metric.value
