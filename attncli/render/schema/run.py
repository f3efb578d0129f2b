"""`attn.run/1`: attention on one text."""

from __future__ import annotations

from attncli.render.schema import parts

STAGES = {
    "type": "object",
    "additionalProperties": {"$ref": "#/$defs/nested"},
    "description": "With --stages all: every stage by name.",
}
HEAD = parts.record(
    {
        "head": parts.COUNT,
        "scores": parts.described(parts.MATRIX, "[query, key]: what enters the softmax; null where masked."),
        "weights": parts.described(
            parts.MATRIX,
            "[query, key]: each row sums to 1, to less with a learned sink, or is all 0 where nothing is visible.",
        ),
        "output": parts.described(parts.MATRIX, "[query, d_v]: weights times values."),
        "stages": STAGES,
    },
    optional=("scores", "weights", "output", "stages"),
)
TOP = parts.record({"query": parts.COUNT, "key": parts.COUNT, "weight": parts.WEIGHT})
LAYER = parts.record(
    {
        "layer": parts.COUNT,
        "heads": parts.listed(HEAD),
        "output": parts.described(parts.MATRIX, "[query, width]: the output of the attention."),
        "stages": STAGES,
        "hidden": parts.described(parts.MATRIX, "[token, d_model]: what leaves the layer."),
    },
    optional=("output", "stages", "hidden"),
)
SCHEMA = {
    **parts.record(
        {
            "schema": parts.named("attn.run/1"),
            "version": parts.VERSION,
            "text": parts.TEXT,
            "tokens": parts.TOKENS,
            "model": parts.MODEL,
            "attention": parts.ATTENTION,
            "shapes": parts.SHAPES,
            "overview": parts.listed(
                parts.record({"layer": parts.COUNT, "head": parts.COUNT, "link": parts.or_null(TOP)}),
                "The strongest link of every head that ran; with --query, of that query's row.",
            ),
            "layers": parts.listed(LAYER),
            "links": parts.listed(parts.LINK, "The strongest links, strongest first."),
            "average": parts.described(
                parts.VECTOR, "[key], with --query: its row of weights, averaged over the layers and heads that ran."
            ),
            "pieces": parts.described(
                parts.TOKENS, "With --words: the tokens that were merged; `tokens` holds the words."
            ),
            "maps": parts.listed(
                parts.record({"layer": parts.COUNT, "head": parts.COUNT, "pool": parts.SIZE, "weights": parts.MATRIX}),
                "Of a text too long for full matrices: each cell is the largest of pool × pool weights.",
            ),
            "links_leave_out": parts.listed(
                parts.TEXT, "Kinds of link that `links` and `overview` leave out; absent when all count."
            ),
            "queries": parts.listed(
                parts.COUNT, "With --query: the positions of the rows; absent when every token has its row."
            ),
            "resources": parts.RESOURCES,
            "empty_rows": parts.EMPTY_ROWS,
            "warnings": parts.WARNINGS,
        },
        optional=("overview", "queries", "average", "pieces", "maps", "resources", "links_leave_out"),
        says="Attention on one text. Positions, layers and heads count from 0.",
    ),
    "$defs": {"nested": parts.NESTED},
}
