"""`attn logits`: what each part of a model adds to a token's logit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import (
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    meaning,
    without,
)
from attncli.cli.output import validate_options, write_with_figure
from attncli.features.effects import effect_options
from attncli.features.effects.effect_options import QUERY, VERSUS

if TYPE_CHECKING:
    from attncli.features.logits.document import LogitsDocument
    from attncli.inputs.text import Text
    from attncli.models.model import Model


def logits(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("layer", "head"), meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    target: Annotated[str | None, declarations.TARGET] = None,
    versus: Annotated[str | None, VERSUS] = None,
    query: Annotated[str | None, QUERY] = None,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
) -> None:
    """Split the logit of a next token into what the embedding, each head and each feed-forward part add.

    attn logits --model gpt2 "When Mary and John went to the store, John gave a drink to" --target Mary --versus John
    """

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "logits")
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )

    single = output.json or output.svg is not None

    def documents() -> Iterator[LogitsDocument]:
        for source_text in request.texts(environment, text, single=single):
            with request.errors_located_in(source_text):
                yield _document(environment, loaded_model, source_text, compute, (target, versus), query, unknown)

    write_with_figure(documents(), output, environment, view, several=text.lines)


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    compute: ComputeOptions,
    tokens_named: tuple[str | None, str | None],
    query: str | None,
    unknown: bool,
) -> LogitsDocument:
    from attncli.features.effects.measures import target_id
    from attncli.features.effects.sweep import least
    from attncli.features.logits.compute import logits_document

    tokens = request.tokens_of(model, text)
    request.refuse_memory(least(model.spec, len(tokens), model.backend.dtype, predicts=True), compute, "a shorter text")
    last = len(tokens) - 1
    index = last if query is None else effect_options.span(environment, tokens, query, unknown=unknown)[-1]
    target, versus = (None if name is None else target_id(model, name) for name in tokens_named)
    return logits_document(model, text.text, tokens, index, target, versus)


app = command_app(logits)
