"""`attn.find/1`: which heads send one token to another."""

from __future__ import annotations

from attncli.render.schema import parts

PLACE = {
    "weight": parts.described(parts.WEIGHT, "From the query to the key."),
    "rank": parts.described(
        {"type": ["integer", "null"], "minimum": 1}, "1 if no key of this query has more weight; null if hidden."
    ),
    "visible": parts.described(parts.COUNT, "Keys that this query may see."),
    "top_key": parts.described(
        {"type": ["integer", "null"]}, "The key with the most weight; null if the query sees none."
    ),
}
HEAD = parts.record(
    {
        "layer": parts.COUNT,
        "head": parts.COUNT,
        **PLACE,
        "reverse": parts.record(PLACE, says="The same from `to` to `from`."),
    }
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.find/1"),
        "version": parts.VERSION,
        "text": parts.TEXT,
        "tokens": parts.TOKENS,
        "model": parts.MODEL,
        "attention": parts.ATTENTION,
        "from": parts.described(parts.COUNT, "Index of the query token."),
        "to": parts.described(parts.COUNT, "Index of the key token."),
        "words": parts.described(parts.FLAG, "Whether pieces were merged: then `tokens` are words."),
        "pieces": parts.described(parts.TOKENS, "With --words: the tokens that were merged."),
        "heads": parts.listed(HEAD, "Every head, the largest weight first."),
        "warnings": parts.WARNINGS,
    },
    optional=("pieces",),
    says="Heads ranked by how much of one token's attention goes to another. Positions, layers and heads count from 0.",
)
