"""`attn.explain/1`: one query's derivation, or another topic explained; `topic` tells which."""

from __future__ import annotations

from attncli.render.schema import parts
from attncli.render.schema.parts import (
    COUNT,
    FLAG,
    MATRIX,
    NUMBER,
    SIZE,
    TEXT,
    VECTOR,
    described,
    listed,
    or_null,
    record,
)

COMMON = {"schema": parts.named("attn.explain/1"), "version": parts.VERSION}
RUN = {"text": TEXT, "tokens": parts.TOKENS, "model": parts.MODEL, "attention": parts.ATTENTION}
NUMBERS = listed(NUMBER)


def _topic(name: str) -> parts.Schema:
    return {"topic": {"const": name}}


def _step(name: str, **members: parts.Schema) -> parts.Schema:
    return record({"step": {"const": name}, "formula": TEXT, **members})


STEPS = listed(
    {
        "anyOf": [
            _step("projections", x=VECTOR, q=VECTOR, k=MATRIX, v=MATRIX),
            _step(
                "similarity",
                products=described(MATRIX, "[key, dim]: q_i·k_ji."),
                raw=described(VECTOR, "[key]: their sums."),
            ),
            _step(
                "scores",
                scale=NUMBER,
                softcap=or_null(NUMBER),
                scaled=VECTOR,
                capped=or_null(VECTOR),
                bias=or_null(VECTOR),
                visible=listed(FLAG),
                scores=described(VECTOR, "[key]: what enters the softmax; null where hidden."),
            ),
            _step(
                "softmax",
                highest=or_null(NUMBER),
                shifted=VECTOR,
                exponentials=VECTOR,
                sink=described(or_null(NUMBER), "Exponential of a learned sink."),
                sum=NUMBER,
                weights=VECTOR,
            ),
            _step(
                "output", terms=described(MATRIX, "[key, dim]: w_j·v_j."), output=described(VECTOR, "[dim]: their sum.")
            ),
        ]
    },
    "The steps in order; keys in the order of the text.",
)
ATTENTION = record(
    {
        **COMMON,
        **RUN,
        **_topic("attention"),
        "layer": COUNT,
        "head": COUNT,
        "query": COUNT,
        "extra_keys": described(COUNT, "Learned keys after those of the tokens."),
        "rotated": described(FLAG, "Whether q and k are shown after rotation by position."),
        "shapes": parts.SHAPES,
        "steps": STEPS,
        "matrices": record({"scores": MATRIX, "weights": MATRIX, "output": MATRIX}),
        "agreement": described(NUMBER, "Largest difference between the steps and the run's own numbers."),
        "empty_rows": parts.EMPTY_ROWS,
        "warnings": parts.WARNINGS,
    },
    says="One query's attention, step by step.",
)
SOFTMAX = record(
    {
        **COMMON,
        **_topic("softmax"),
        "given": NUMBERS,
        "temperature": NUMBER,
        "scores": described(NUMBERS, "What was given, divided by the temperature."),
        "exponentials": described(VECTOR, "exp of the scores; null where too large for a float."),
        "sum": or_null(NUMBER),
        "highest": NUMBER,
        "shifted": VECTOR,
        "shifted_exponentials": VECTOR,
        "shifted_sum": NUMBER,
        "weights": NUMBERS,
        "entropy": described(NUMBER, "Nats."),
        "gradient": described(NUMBER, "Frobenius norm of diag(w) - w·wT."),
        "agreement": NUMBER,
        "warnings": parts.WARNINGS,
    },
    says="Softmax of given numbers.",
)
SCALE = {"scale": TEXT}
SCALING = record(
    {
        **COMMON,
        **_topic("scaling"),
        "d_k": SIZE,
        "d_model": {"type": ["integer", "null"]},
        "samples": SIZE,
        "keys": SIZE,
        "queries": SIZE,
        "seed": COUNT,
        "variance": listed(
            record(
                {
                    **SCALE,
                    "mean": NUMBER,
                    "mean_error": NUMBER,
                    "variance": NUMBER,
                    "variance_error": described(NUMBER, "Standard error of the variance."),
                    "theory": NUMBER,
                    "standard_errors": or_null(NUMBER),
                }
            )
        ),
        "softmax": listed(
            record({**SCALE, "largest": NUMBER, "entropy": NUMBER, "gradient": NUMBER}), "Means over the queries."
        ),
        "warnings": parts.WARNINGS,
    },
    says="The variance of q·k, and a softmax with and without scaling.",
)
WHOLE = record(
    {
        **COMMON,
        **RUN,
        **_topic("matrix-softmax"),
        "layer": COUNT,
        "head": COUNT,
        "scores": MATRIX,
        "rows": described(MATRIX, "Softmax of each row."),
        "whole": described(MATRIX, "Softmax over all entries."),
        "row_sums": described(VECTOR, "Of `whole`."),
        "warnings": parts.WARNINGS,
    },
    says="Softmax by rows and over the whole matrix.",
)
ORDER = record(
    {
        **COMMON,
        **RUN,
        **_topic("order"),
        "layer": COUNT,
        "order": described(listed(COUNT), "For each new place the position of the token that moves there."),
        "reversed": described(
            FLAG, "Whether the other order is the tokens read backwards, which keeps every distance."
        ),
        "moved": parts.TOKENS,
        "rows": listed(
            record(
                {
                    "position": TEXT,
                    "mask": TEXT,
                    "dtype": TEXT,
                    "order": described(listed(COUNT), "For each new place the position of the token that moves there."),
                    "max_difference": NUMBER,
                    "token": COUNT,
                    "tolerance": described(NUMBER, "What float rounding may make of equal outputs."),
                    "equal": FLAG,
                    "per_token": VECTOR,
                }
            )
        ),
        "warnings": parts.WARNINGS,
    },
    says="The same tokens in two orders.",
)
METRIC = record(
    {
        **COMMON,
        **_topic("metric"),
        "name": TEXT,
        "says": TEXT,
        "formula": TEXT,
        "low": or_null(NUMBER),
        "high": or_null(NUMBER),
        "range": TEXT,
        "unit": TEXT,
        "rows": TEXT,
        "note": or_null(TEXT),
        "source": TEXT,
        "needs": or_null(TEXT),
        "example": record({"weights": MATRIX, "value": or_null(NUMBER), "uniform": or_null(NUMBER), "rows": COUNT}),
        "warnings": parts.WARNINGS,
    },
    says="What a metric means.",
)
SCHEMA = {
    "description": "An explanation with its numbers; `topic` tells which kind it is.",
    "oneOf": [ATTENTION, SOFTMAX, SCALING, WHOLE, ORDER, METRIC],
}
