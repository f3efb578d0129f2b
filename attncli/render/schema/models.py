"""`attn.models/1`: families, aliases and cached models."""

from __future__ import annotations

from attncli.render.schema import parts

FAMILY = parts.described(parts.TEXT, "The `model_type` of config.json.")
ALIAS = parts.record(
    {
        "name": parts.TEXT,
        "hub": parts.described(parts.TEXT, "Its id on the hub."),
        "family": FAMILY,
        "here": parts.described(
            {"enum": ["package", "cache", None]}, "Where it is on this machine; null if it would be fetched."
        ),
    }
)
CACHED = parts.record(
    {
        "name": parts.TEXT,
        "revision": parts.described(parts.TEXT, "The commit."),
        "folder": parts.TEXT,
        "family": parts.or_null(FAMILY),
        "native": parts.described(parts.FLAG, "Whether attn runs the family natively."),
        "bytes": parts.described(parts.COUNT, "Size of its safetensors files."),
        "missing": parts.described(
            parts.listed(parts.TEXT), "Needed files that are not there; empty for a whole model."
        ),
    }
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.models/1"),
        "version": parts.VERSION,
        "families": parts.listed(parts.TEXT, "The families that run natively."),
        "aliases": parts.listed(ALIAS),
        "cache": parts.described(parts.TEXT, "The folder of the hub's local cache."),
        "cached": parts.listed(CACHED),
    },
    says="Which models there are.",
)
