"""`attn.error`: what a failure looks like in JSON mode, on standard error."""

from __future__ import annotations

from typing import Annotated, Literal

from attncli.analysis.documents.declaration import Part, describe


class Failure(Part, frozen=True, kw_only=True):
    """What went wrong."""

    code: Annotated[
        Literal[1, 2, 3, 4, 5], describe("1 failure, 2 usage, 3 bad input, 4 not supported, 5 over a limit.")
    ]
    message: str
    hint: Annotated[str | None, describe("A command or option to try.")]


class ErrorDocument(Part, frozen=True, kw_only=True):
    """A failure in JSON mode, on standard error."""

    error: Failure
