"""`attn.verify/1`: a checkpoint's run compared with transformers' own."""

from __future__ import annotations

from attncli.render.schema import parts

LAYER = parts.record(
    {
        "side": {"enum": ["self", "encoder", "decoder"]},
        "layer": parts.COUNT,
        "weights": parts.described(parts.listed(parts.NUMBER), "Largest difference of the weights, by head."),
        "cross": parts.described(parts.listed(parts.NUMBER), "The same of the cross-attention; empty without one."),
        "hidden": parts.described(
            parts.or_null(parts.NUMBER), "Largest difference of the vectors that leave the layer."
        ),
        "relative": parts.described(
            parts.NUMBER, "The largest difference, relative to the largest number of its array or 1."
        ),
    }
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.verify/1"),
        "version": parts.VERSION,
        "name": parts.TEXT,
        "folder": parts.TEXT,
        "text": parts.TEXT,
        "tokens": parts.SIZE,
        "backend": parts.TEXT,
        "layers": parts.listed(LAYER, "Differences in float64."),
        "float64": parts.record({"worst": parts.NUMBER, "limit": parts.NUMBER}),
        "float32": parts.record(
            {"ours": parts.NUMBER, "theirs": parts.NUMBER, "ratio": parts.or_null(parts.NUMBER), "limit": parts.NUMBER},
            says="Root mean square distances from the float64 reference, of attn's and of transformers' float32, and their ratio.",
        ),
        "passed": parts.described(parts.FLAG, "Whether both limits hold."),
    },
    says="A checkpoint's run compared with transformers' own.",
)
