"""`attn.heads/1`: all heads compared on one text."""

from __future__ import annotations

from attncli.render.schema import parts

METRIC = {
    "anyOf": [
        {"type": ["number", "null"]},
        parts.record({"value": parts.or_null(parts.NUMBER), "rows": parts.described(parts.COUNT, "Rows that the mean is over.")}),
    ],
    "description": "A metric's value, null where no row could be used; or the value with the number of rows used.",
}
METRICS = {"type": "object", "additionalProperties": METRIC, "description": "Metrics by name; `attn explain metric NAME` defines them."}
TOP_LINK = parts.record({"query": parts.COUNT, "key": parts.COUNT, "weight": parts.WEIGHT})
HEAD = parts.record(
    {
        "layer": parts.COUNT,
        "head": parts.COUNT,
        "weights": parts.described(parts.MATRIX, "[query, key]"),
        "metrics": METRICS,
        "baseline": parts.described(METRICS, "The same metrics if every row were uniform over what it may see."),
        "top_link": parts.or_null(TOP_LINK),
        "labels": parts.listed(parts.TEXT, "What the head looks like, such as previous-token."),
    },
    optional=("weights", "baseline", "labels"),
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.heads/1"),
        "version": parts.VERSION,
        "text": parts.TEXT,
        "tokens": parts.TOKENS,
        "model": parts.MODEL,
        "attention": parts.ATTENTION,
        "heads": parts.listed(HEAD),
        "average": parts.or_null(parts.record({"weights": parts.MATRIX}, says="The mean of the heads' weights.")),
        "empty_rows": parts.EMPTY_ROWS,
        "warnings": parts.WARNINGS,
    },
    optional=("average", "empty_rows"),
    says="Heads compared on one text. Positions, layers and heads count from 0.",
)
