"""`attn tokens`: what the tokenizer makes of a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import request
from attncli.cli.declarations import LongTableOutput, ModelOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import only
from attncli.cli.output import validate_options, write_documents

if TYPE_CHECKING:
    from attncli.features.tokens.compute import TokensDocument
    from attncli.inputs.token import Tokenizer


def tokens(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, only("model")],
    output: LongTableOutput,
) -> None:
    """Tokens, ids, spans and bytes of a text.

    attn tokens "The animal didn't cross the street"

    attn tokens --tokenizer byte 计划
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)

    def documents() -> Iterator[TokensDocument]:
        """One document per text: its tokens."""
        from attncli.features.tokens.compute import tokens as compute_tokens

        checkpoint = request.model_name(environment, RunSetup(model), text.tokenizer)
        tokenizer = _tokenizer(environment, checkpoint, text.tokenizer or "word")
        for source_text in request.texts(environment, text, tokenizer=tokenizer):
            token_list = request.encode_text(tokenizer, source_text)
            yield compute_tokens(
                source_text.text, tokenizer, name=checkpoint or "", tokens=token_list
            )

    write_documents(documents(), output, environment, view, several=text.lines)


def _tokenizer(environment: Environment, checkpoint: str | None, name: str) -> Tokenizer:
    """The tokenizer of a checkpoint, which reads none of its weights; without one, the tokenizer
    called `name`.

    checkpoint: its name or folder, None for none.
    """
    from attncli.inputs.tokenize import tokenizer as tokenizer_named

    if checkpoint is not None:
        from attncli.cli.progress import downloads
        from attncli.models.load import load_tokenizer

        with downloads(environment) as on_progress:
            return load_tokenizer(
                checkpoint,
                note=environment.notes,
                watch=on_progress,
                variables=environment.variables,
            )
    return tokenizer_named(name)


tokens_app = command_app(
    tokens, essentials="--model --tokenizer --file --lines --json --plain --full"
)
