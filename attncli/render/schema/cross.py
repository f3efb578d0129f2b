"""`attn.cross/1`: queries from one text, keys and values from another."""

from __future__ import annotations

from attncli.render.schema import parts
from attncli.render.schema.parts import COUNT, MATRIX, TEXT, described, listed, or_null, record

HEAD = record(
    {
        "head": COUNT,
        "scores": described(MATRIX, "[query, key]: what enters the softmax; null where masked."),
        "weights": described(MATRIX, "[query, key]"),
        "output": described(MATRIX, "[query, d_v]: weights times values."),
    }
)
SCHEMA = record(
    {
        "schema": parts.named("attn.cross/1"),
        "version": parts.VERSION,
        "query_text": TEXT,
        "key_text": TEXT,
        "value_text": described(or_null(TEXT), "Where values come from a third text."),
        "queries": described(parts.TOKENS, "The tokens of the query text."),
        "keys": described(parts.TOKENS, "The tokens of the key text."),
        "model": parts.MODEL,
        "attention": parts.ATTENTION,
        "shapes": parts.SHAPES,
        "layers": listed(record({"layer": COUNT, "heads": listed(HEAD), "output": MATRIX})),
        "alignment": listed(
            record(
                {
                    "query": COUNT,
                    "key": described({"type": ["integer", "null"]}, "null where the query sees nothing."),
                    "weight": parts.WEIGHT,
                }
            ),
            "For each query the key with the largest mean weight over the layers and heads of the document.",
        ),
        "links": listed(parts.LINK, "The strongest links, strongest first."),
        "empty_rows": parts.EMPTY_ROWS,
        "warnings": parts.WARNINGS,
    },
    says="Cross-attention between two texts.",
)
