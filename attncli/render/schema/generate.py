"""`attn.generate/1`: a text continued by a decoder, and what each new token looks at."""

from __future__ import annotations

from attncli.render.schema import parts

SHARES = {
    "context": parts.described(parts.WEIGHT, "Attention on the prompt."),
    "generated": parts.described(parts.WEIGHT, "Attention on what was generated, the token itself included."),
    "lookback": parts.described(parts.WEIGHT, "context / (context + generated)."),
    "lookback_per_key": parts.described(parts.WEIGHT, "The same of the means per key (Chuang et al. 2024)."),
}
HEAD = parts.record(
    {
        "layer": parts.COUNT,
        "head": parts.COUNT,
        **SHARES,
        "top": parts.record({"key": parts.COUNT, "weight": parts.WEIGHT}),
        "weights": parts.described(parts.VECTOR, "[key]: the token's row over the prompt and what was generated."),
    },
    optional=("weights",),
)
STEP = parts.record(
    {
        "token": parts.described(parts.COUNT, "Position of the new token."),
        "probability": parts.described(parts.WEIGHT, "Its probability when it was chosen, at the temperature used."),
        **SHARES,
        "heads": parts.listed(HEAD),
    }
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.generate/1"),
        "version": parts.VERSION,
        "text": parts.TEXT,
        "tokens": parts.described(parts.TOKENS, "The prompt's tokens."),
        "model": parts.MODEL,
        "attention": parts.ATTENTION,
        "generated": parts.described(parts.TOKENS, "The new tokens; positions go on from the prompt."),
        "continuation": parts.described(parts.TEXT, "The new tokens' texts, joined."),
        "temperature": parts.described(parts.NUMBER, "0 for the likeliest token each time."),
        "sample_seed": {"type": ["integer", "null"], "description": "Seed of the draws; null without any."},
        "ended": parts.described(parts.FLAG, "Whether the text ended by itself, at a token that ends texts."),
        "steps": parts.listed(STEP, "One per new token, in order; shares are means over the layers and heads kept."),
        "warnings": parts.WARNINGS,
    },
    says="A text continued by a decoder. Positions, layers and heads count from 0.",
)
