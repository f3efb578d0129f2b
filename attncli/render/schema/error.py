"""`attn.error`: what a failure looks like in JSON mode, on standard error."""

from __future__ import annotations

from attncli.render.schema import parts

SCHEMA = parts.record(
    {
        "error": parts.record(
            {
                "code": {
                    "enum": [1, 2, 3, 4, 5],
                    "description": "1 failure, 2 usage, 3 bad input, 4 not supported, 5 over a limit.",
                },
                "message": parts.TEXT,
                "hint": parts.described(parts.or_null(parts.TEXT), "A command or option to try."),
            }
        )
    },
    says="A failure in JSON mode, on standard error.",
)
