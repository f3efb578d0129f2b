"""`attn.tokens/1`: how a text is cut."""

from __future__ import annotations

from attncli.render.schema import parts

BYTES = parts.listed({"type": "integer", "minimum": 0, "maximum": 255}, "The UTF-8 bytes of the token.")
TOKEN = parts.record({**parts.TOKEN["properties"], "bytes": BYTES}, optional=("bytes",))
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.tokens/1"),
        "version": parts.VERSION,
        "text": parts.TEXT,
        "tokenizer": parts.TEXT,
        "tokens": parts.listed(TOKEN, "The tokens in order."),
        "warnings": parts.WARNINGS,
    },
    says="The tokens of one text. Positions count characters from 0.",
)
