"""`attn.weights/1`: the tensors of a weight file, and what layout they are read as."""

from __future__ import annotations

from attncli.render.schema import parts

STATISTIC = parts.or_null(parts.NUMBER)
TENSOR = parts.record(
    {
        "name": parts.TEXT,
        "dtype": parts.TEXT,
        "shape": parts.listed(parts.COUNT),
        "bytes": parts.described(
            parts.or_null(parts.COUNT), "Size of the data in bytes; null for a data type NumPy has no numbers for."
        ),
        "role": parts.described(
            parts.or_null(parts.TEXT), "What the tensor is used as, apart by spaces; null if it is not used."
        ),
        "min": parts.described(STATISTIC, "Over the finite values; null where the numbers were not read."),
        "mean": STATISTIC,
        "max": STATISTIC,
        "std": STATISTIC,
    },
)
SIZES = parts.record(
    {
        "d_model": parts.SIZE,
        "heads": parts.SIZE,
        "kv_heads": parts.SIZE,
        "d_k": parts.SIZE,
        "d_v": parts.SIZE,
        "bias": parts.FLAG,
        "output_projection": parts.FLAG,
        "layer_norm": parts.FLAG,
    }
)
EMBEDDING = parts.record(
    {"rows": parts.COUNT, "by": {"enum": ["text", "id"], "description": "Whether rows go by token text or token id."}}
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.weights/1"),
        "version": parts.VERSION,
        "file": parts.TEXT,
        "layout": parts.described(parts.or_null(parts.TEXT), "The recognised layout in words; null if none was."),
        "digest": parts.described(parts.or_null(parts.TEXT), "sha256 of the weights, as in every document about them."),
        "sizes": parts.described(parts.or_null(SIZES), "Sizes of the attention; null if no layout was recognised."),
        "embedding": parts.described(parts.or_null(EMBEDDING), "The embeddings in the file, if any."),
        "metadata": {"type": "object", "additionalProperties": parts.TEXT, "description": "Texts stored in the file."},
        "tensors": parts.listed(TENSOR),
        "warnings": parts.WARNINGS,
    },
    says="A weight file: its tensors and how they are read.",
)
