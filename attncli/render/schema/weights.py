"""`attn.weights/1`: the tensors of a weight file, and what layout they are read as."""

from __future__ import annotations

from attncli.render.schema import parts

TENSOR = parts.record(
    {
        "name": parts.TEXT,
        "dtype": parts.TEXT,
        "shape": parts.listed(parts.COUNT),
        "bytes": parts.described(parts.COUNT, "Size of the data in bytes."),
        "role": parts.described(parts.or_null(parts.TEXT), "What the tensor is used as; null if it is not used."),
    },
    optional=("bytes", "role"),
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.weights/1"),
        "version": parts.VERSION,
        "file": parts.TEXT,
        "layout": parts.described(parts.or_null(parts.TEXT), "The recognised layout in words; null if none was."),
        "metadata": {"type": "object", "additionalProperties": parts.TEXT, "description": "Texts stored in the file."},
        "tensors": parts.listed(TENSOR),
        "warnings": parts.WARNINGS,
    },
    optional=("layout", "metadata"),
    says="A weight file: its tensors and how they are read.",
)
