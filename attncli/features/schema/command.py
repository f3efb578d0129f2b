"""`attn schema`: the JSON Schema of every document."""

from __future__ import annotations

from typing import Annotated

import typer

from attncli.cli import completion
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import argument
from attncli.errors import UsageError
from attncli.language import listing, message


def schema(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        argument("A document, such as attn.run/1; none lists them.", "NAME", completion.schemas),
    ] = None,
) -> None:
    """JSON Schema of every document that attn emits.

    attn schema attn.run/1
    """
    from attncli.documents import SCHEMAS
    from attncli.draw.encoding import json_bytes

    environment: Environment = ctx.obj
    if name is None:
        environment.write("".join(f"{schema_name}\n" for schema_name in SCHEMAS).encode())
        return
    # "run" and "attn.run" stand for attn.run/1, too; attn.error alone has no number
    short = name.removeprefix("attn.").removesuffix("/1")
    document_type = (
        SCHEMAS.get(name) or SCHEMAS.get(f"attn.{short}/1") or SCHEMAS.get(f"attn.{short}")
    )
    if document_type is None:
        from difflib import get_close_matches

        close = get_close_matches(name, SCHEMAS, n=1)
        what = message("no document is called {name}", name=repr(name))
        raise UsageError(
            what, expected=listing(SCHEMAS), hint=f"attn schema {close[0]}" if close else ""
        )
    environment.write(json_bytes(document_type))


schema_app = command_app(schema)
