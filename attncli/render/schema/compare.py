"""`attn.compare/1`: what differs between two runs, B minus A."""

from __future__ import annotations

from attncli.render.schema import parts
from attncli.render.schema.parts import COUNT, MATRIX, NUMBER, TEXT, described, listed, or_null, record

SIDE = record({"name": TEXT, "text": TEXT, "tokens": parts.TOKENS, "model": parts.MODEL, "attention": parts.ATTENTION})
PLACE = record({"layer": COUNT, "head": COUNT})
PAIR = record({"a": COUNT, "b": COUNT})
HEAD = record(
    {
        "a": PLACE,
        "b": PLACE,
        "max_difference": described(
            record({"value": NUMBER, "query": COUNT, "key": COUNT}),
            "The weight that differs most, signed; positions in A.",
        ),
        "mean_difference": described(NUMBER, "Mean of |B - A|."),
        "js": described(or_null(NUMBER), "Mean Jensen-Shannon divergence of the rows in nats, 0 to 0.6931."),
        "js_rows": described(COUNT, "Rows that it was taken over."),
        "outside": described(record({"a": NUMBER, "b": NUMBER}), "Mean weight on tokens that the other text lacks."),
        "pairs": described(or_null(PAIR), "Visible pairs."),
        "kept": described(or_null(NUMBER), "Share of A's weight on keys that B sees."),
        "output_error": described(or_null(NUMBER), "|O_B - O_A| / |O_A|."),
        "weights_a": described(MATRIX, "[aligned query, aligned key]; null where hidden."),
        "weights_b": MATRIX,
        "difference": MATRIX,
    }
)
MOVED = record(
    {"layer": COUNT, "head": COUNT, "query": COUNT, "key": COUNT, "a": NUMBER, "b": NUMBER, "difference": NUMBER}
)
SCHEMA = record(
    {
        "schema": parts.named("attn.compare/1"),
        "version": parts.VERSION,
        "a": SIDE,
        "b": SIDE,
        "differs": described(listed(TEXT), "In what the sides differ."),
        "aligned": described(listed(listed(COUNT)), "Positions of the tokens that both have: [in A, in B]."),
        "only": record({"a": listed(COUNT), "b": listed(COUNT)}),
        "heads": listed(HEAD),
        "summary": record({"max_difference": NUMBER, "mean_difference": NUMBER, "js": or_null(NUMBER)}),
        "moved": listed(MOVED, "The weights that differ most, largest first."),
        "warnings": parts.WARNINGS,
    },
    says="Two runs compared, B minus A.",
)
