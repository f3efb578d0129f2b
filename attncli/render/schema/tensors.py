"""`attn.tensors/1`: attention over captured q, k and v arrays."""

from __future__ import annotations

from attncli.render.schema import parts

HEAD = parts.record(
    {
        "head": parts.COUNT,
        "scores": parts.described(parts.MATRIX, "[query, key]: what enters the softmax; null where masked."),
        "weights": parts.described(parts.MATRIX, "[query, key]"),
        "output": parts.described(parts.MATRIX, "[query, d_v]"),
        "stages": {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/nested"},
            "description": "With --stages all.",
        },
    },
    optional=("scores", "weights", "output", "stages"),
)
BATCH = parts.record(
    {
        "index": parts.described(parts.listed(parts.COUNT), "Place on the leading axes; empty without any."),
        "heads": parts.listed(HEAD),
    }
)
LINK = parts.record(
    {
        "index": BATCH["properties"]["index"],
        "head": parts.COUNT,
        "query": parts.COUNT,
        "key": parts.COUNT,
        "weight": parts.WEIGHT,
    }
)
SCHEMA = {
    **parts.record(
        {
            "schema": parts.named("attn.tensors/1"),
            "version": parts.VERSION,
            "file": parts.TEXT,
            "queries": parts.described(parts.COUNT, "Number of query rows."),
            "keys": parts.described(parts.COUNT, "Number of keys."),
            "model": parts.MODEL,
            "attention": parts.ATTENTION,
            "shapes": parts.SHAPES,
            "batch": parts.listed(BATCH, "One entry per place on the leading axes."),
            "links": parts.listed(LINK, "The strongest links over all batch entries, strongest first."),
            "empty_rows": parts.EMPTY_ROWS,
            "warnings": parts.WARNINGS,
        },
        says="Attention over arrays from a file; queries and keys have positions, not texts.",
    ),
    "$defs": {"nested": parts.NESTED},
}
