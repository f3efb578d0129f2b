"""`attn.mask/1`: masks, their intersection, and a score bias."""

from __future__ import annotations

from attncli.render.schema import parts
from attncli.render.schema.parts import COUNT, FLAG, MATRIX, NUMBER, SIZE, TEXT, described, listed, or_null, record

MASK = record(
    {
        "spec": described(TEXT, "As --mask spells it."),
        "says": record({"en": TEXT, "zh": TEXT}),
        "everything": described(FLAG, "Whether nothing is hidden."),
        "pairs": described(COUNT, "Visible pairs."),
        "share": described(NUMBER, "Of all pairs, 0 to 1."),
        "keys_per_query": record({"least": COUNT, "mean": NUMBER, "most": COUNT}),
        "empty_rows": described(listed(COUNT), "Queries that see nothing."),
        "unseen_keys": listed(COUNT),
        "map": record({"block": described(SIZE, "Each cell stands for block × block pairs."), "share": MATRIX}),
        "form": described(TEXT, "How such masks are written."),
    },
    optional=("form",),
)
BIAS = record(
    {
        "name": TEXT,
        "head": COUNT,
        "heads": SIZE,
        "slope": or_null(NUMBER),
        "buckets": described(FLAG, "Whether the values are T5's bucket numbers."),
        "by_distance": listed(
            record({"distance": {"type": "integer"}, "value": NUMBER}), "By key position - query position."
        ),
        "before": described(or_null(MATRIX), "[query, key]; null for many positions."),
        "after": described(or_null(MATRIX), "The same, null where hidden."),
        "weights_before": described(or_null(MATRIX), "Weights of queries and keys that are all alike."),
        "weights_after": or_null(MATRIX),
    }
)
SCHEMA = record(
    {
        "schema": parts.named("attn.mask/1"),
        "version": parts.VERSION,
        "n": described(SIZE, "Number of queries and of keys."),
        "seed": COUNT,
        "gallery": described(FLAG, "Whether this shows one mask of every kind."),
        "masks": listed(MASK),
        "combined": described(or_null(MASK), "What all masks show; null for one."),
        "bias": or_null(BIAS),
        "model": or_null(parts.MODEL),
        "layers": or_null(listed(record({"layer": COUNT, "mask": TEXT, "position": TEXT}))),
        "warnings": parts.WARNINGS,
    },
    says="What masks show. Positions count from 0.",
)
