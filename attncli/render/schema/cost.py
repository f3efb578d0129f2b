"""`attn.cost/1`: operations, memory and pairs, computed and measured."""

from __future__ import annotations

from attncli.render.schema import parts
from attncli.render.schema.parts import COUNT, NUMBER, SIZE, TEXT, described, listed, or_null, record

VARIANT = record(
    {
        "name": {"enum": ["full", "causal", "window", "mask", "lsh", "rnn"]},
        "spec": TEXT,
        "pairs": described(COUNT, "Visible pairs per head."),
        "multiply_adds": described(COUNT, "Of all heads; without the projections."),
        "score_bytes": described(COUNT, "All scores of all heads at once."),
        "streamed_bytes": described(COUNT, "Those of `rows` query rows."),
        "steps": described(COUNT, "Sequential steps."),
        "path": described(
            {"type": ["integer", "null"]},
            "Layers, for the rnn steps, between the most distant tokens; null where chance decides.",
        ),
        "grows": or_null(TEXT),
    }
)
LAYER = record(
    {
        "layer": COUNT,
        "mask": TEXT,
        "position": TEXT,
        "heads": SIZE,
        "kv_heads": SIZE,
        "pairs": COUNT,
        "multiply_adds": COUNT,
        "projections": COUNT,
        "score_bytes": COUNT,
        "streamed_bytes": described(COUNT, "Scores of `rows` query rows."),
        "cache_bytes": described(COUNT, "Keys and values kept while generating."),
    }
)
SCHEMA = record(
    {
        "schema": parts.named("attn.cost/1"),
        "version": parts.VERSION,
        "n": SIZE,
        "d_model": SIZE,
        "heads": SIZE,
        "d_k": SIZE,
        "d_v": SIZE,
        "dtype": TEXT,
        "window": described(SIZE, "Keys of the window, the query's own included."),
        "chunk": SIZE,
        "rounds": SIZE,
        "rows": described(SIZE, "Query rows at a time when streaming."),
        "projections": described(COUNT, "Multiply-adds of the projections to q, k, v and back."),
        "variants": listed(VARIANT),
        "growth": listed(record({"n": SIZE, "multiply_adds": {"type": "object", "additionalProperties": COUNT}})),
        "model": or_null(parts.MODEL),
        "layers": listed(LAYER),
        "total": or_null(
            record(
                {
                    "multiply_adds": COUNT,
                    "projections": COUNT,
                    "cache_bytes": COUNT,
                    "score_bytes": COUNT,
                    "streamed_bytes": COUNT,
                }
            )
        ),
        "measured": listed(
            record(
                {"name": TEXT, "backend": TEXT, "seconds": NUMBER, "repeats": SIZE, "ratio": NUMBER, "computed": NUMBER}
            ),
            "Median times on this machine; ratios to `full` of the same backend, and the same ratios of multiply-adds.",
        ),
        "warnings": parts.WARNINGS,
    },
    says="What attention over n tokens costs.",
)
