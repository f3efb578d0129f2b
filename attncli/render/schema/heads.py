"""`attn.heads/1`: all heads compared on one text."""

from __future__ import annotations

from attncli.render.schema import parts

METRIC = {
    "anyOf": [
        {"type": ["number", "null"]},
        parts.record(
            {"value": parts.or_null(parts.NUMBER), "rows": parts.described(parts.COUNT, "Rows that the mean is over.")}
        ),
    ],
    "description": "A metric's value, null where no row could be used; or the value with the number of rows used.",
}
METRICS = {
    "type": "object",
    "additionalProperties": METRIC,
    "description": "Metrics by name; `attn explain metric NAME` defines them.",
}
TOP_LINK = parts.record({"query": parts.COUNT, "key": parts.COUNT, "weight": parts.WEIGHT})
LABEL = parts.record(
    {
        "name": parts.TEXT,
        "score": parts.NUMBER,
        "threshold": parts.NUMBER,
        "detail": parts.described(parts.or_null(parts.TEXT), "Such as −3."),
    }
)
HEAD = parts.record(
    {
        "layer": parts.COUNT,
        "head": parts.COUNT,
        "pool": parts.described(
            parts.SIZE, "Of a text too long for whole weights: each cell is the largest of pool × pool weights."
        ),
        "weights": parts.described(parts.MATRIX, "[query, key], without what was excluded; or cells of pool × pool."),
        "metrics": METRICS,
        "baseline": parts.described(METRICS, "The same metrics if every row were uniform over what it may see."),
        "top_link": parts.or_null(TOP_LINK),
        "sorted_by": parts.or_null(parts.NUMBER),
        "labels": parts.listed(parts.TEXT, "With --labels: what the head looks like, such as previous-token."),
        "label_scores": parts.listed(LABEL, "The score that earned each label."),
        "moved": parts.described(
            parts.record({"metrics": METRICS, "top_link": parts.or_null(TOP_LINK)}),
            "With --moved: the same with weight × size of the transformed value in place of weight, rows scaled to sum to 1.",
        ),
    },
    optional=("pool", "weights", "baseline", "sorted_by", "labels", "label_scores", "moved"),
)
WHICH = parts.record({"layer": parts.COUNT, "head": parts.COUNT})
ACROSS = {
    "rollout": parts.described(
        parts.record({"weights": parts.MATRIX, "uniform": parts.MATRIX}),
        "[query, key]: layers multiplied; and the same of uniform attention.",
    ),
    "flow": parts.described(
        parts.record({"weights": parts.MATRIX}),
        "[query, key]: maximum flow through the layers, rows scaled to sum to 1.",
    ),
    "similarity": parts.record(
        {
            "heads": parts.listed(WHICH, "The heads in the order of the rows of `distances`."),
            "distances": parts.described(parts.MATRIX, "√(Jensen–Shannon / ln 2) between heads, 0 to 1."),
            "order": parts.listed(parts.COUNT, "Rows in the order of the tree's leaves."),
            "tree": parts.listed(
                parts.record({"a": parts.COUNT, "b": parts.COUNT, "height": parts.NUMBER}),
                "Average linkage: rows, then earlier merges, join.",
            ),
        }
    ),
    "circuits": parts.record(
        {
            "heads": parts.listed(
                parts.record(
                    {
                        "layer": parts.COUNT,
                        "head": parts.COUNT,
                        "copying": parts.described(parts.or_null(parts.NUMBER), "Re Σλ / Σ|λ| of W_OV, −1 to 1."),
                        "qk_norm": parts.described(parts.NUMBER, "‖W_QK‖, scale included."),
                        "ov_norm": parts.described(parts.NUMBER, "‖W_OV‖."),
                    }
                )
            ),
            "compositions": parts.listed(
                parts.record(
                    {
                        "way": {"enum": ["q", "k", "v"]},
                        "strength": parts.or_null(parts.NUMBER),
                        "from": WHICH,
                        "to": WHICH,
                    }
                ),
                "The strongest between heads of different layers.",
            ),
            "chance": parts.described(
                parts.or_null(parts.record(dict.fromkeys(("q", "k", "v"), parts.NUMBER))),
                "The composition of random matrices.",
            ),
        }
    ),
}
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.heads/1"),
        "version": parts.VERSION,
        "text": parts.TEXT,
        "tokens": parts.TOKENS,
        "model": parts.MODEL,
        "attention": parts.ATTENTION,
        "heads": parts.listed(HEAD),
        "average": parts.or_null(
            parts.record(
                {
                    "weights": parts.MATRIX,
                    "entropy": parts.described(
                        parts.NUMBER, "Of the average, in nats, mean over rows that see something."
                    ),
                    "heads_entropy": parts.described(
                        parts.NUMBER,
                        "Of its heads, their mean; `entropy` less this is what averaging hides, 0 where all are alike.",
                    ),
                },
                optional=("entropy", "heads_entropy"),
                says="The mean of the heads' weights of the last layer.",
            )
        ),
        "empty_rows": parts.EMPTY_ROWS,
        "warnings": parts.WARNINGS,
        "pieces": parts.described(parts.TOKENS, "With --words: the tokens that were merged; `tokens` holds the words."),
        "links_leave_out": parts.listed(parts.TEXT, "Kinds of link that `top_link` leaves out; absent when all count."),
        "excluded": parts.described(
            parts.record({"names": parts.listed(parts.TEXT), "renormalised": parts.FLAG}),
            "With --exclude: what no number here counts.",
        ),
        "sort": parts.record({"metric": parts.TEXT, "rising": parts.FLAG}, says="With --sort: the order of `heads`."),
        "resources": parts.RESOURCES,
        "heads_in_all": parts.described(
            parts.SIZE, "With --top: how many heads there were; `heads` holds the first of them."
        ),
        **ACROSS,
    },
    optional=(
        "average",
        "empty_rows",
        "pieces",
        "links_leave_out",
        "excluded",
        "sort",
        "resources",
        "heads_in_all",
        *ACROSS,
    ),
    says="Heads compared on one text. Positions, layers and heads count from 0.",
)
