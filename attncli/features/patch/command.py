"""`attn patch`: which heads carry the difference between two texts."""

from __future__ import annotations

from typing import Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import (
    TEXT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    meaning,
    only,
    option,
    redeclare,
    without,
)
from attncli.cli.output import validate_options, write_with_figure
from attncli.errors import UsageError
from attncli.features.effects import effect_options
from attncli.features.effects.effect_options import QUERY, VERSUS


def patch(
    ctx: typer.Context,
    text: Annotated[TextOptions, only("tokenizer")],
    model: Annotated[ModelOptions, meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("precision", "scale_colors", "max_output")],
    clean: Annotated[
        str,
        typer.Argument(
            help="The text whose answer is wanted; - for standard input.", show_default=False, metavar="CLEAN"
        ),
    ],
    corrupt: Annotated[
        str,
        typer.Argument(
            help="The other text, of as many tokens; - for standard input.", show_default=False, metavar="CORRUPT"
        ),
    ],
    target: Annotated[
        str | None, redeclare(declarations.TARGET, help="The next token that is measured, or id:N.")
    ] = None,
    versus: Annotated[str | None, VERSUS] = None,
    query: Annotated[str | None, QUERY] = None,
    at: Annotated[
        list[str] | None,
        option("--at", help="Tokens that get the clean text's. [default: all]", panel=TEXT, metavar="TOK"),
    ] = None,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
) -> None:
    """Run one text with what each head makes of another, one head at a time: which brings the other's answer back.

    attn patch --model minilm "The cat sat on the mat" "The dog sat on the mat" --query sat
    """
    from attncli.cli.progress import progress
    from attncli.features.effects.changes import same_length
    from attncli.features.patch.compute import PatchRequest, patch_document

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "patch")
    if versus is not None and target is None:
        raise UsageError("--versus is taken from a target", expected="--target TOK as well")
    if clean == corrupt == "-":
        raise UsageError("both texts are -, and standard input is one text", expected="- once")
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )
    clean, corrupt = (request.one_text(environment, TextOptions(text=argument)).text for argument in (clean, corrupt))
    tokens = [loaded_model.encode(argument) for argument in (clean, corrupt)]
    same_length(tokens[0], tokens[1], "the corrupt one")
    patching = PatchRequest.of(
        loaded_model,
        tokens[0],
        effect_options.choose_heads(loaded_model.spec, model),
        positions=[
            place for name in at or () for place in effect_options.span(environment, tokens[0], name, unknown=unknown)
        ],
        query=None if query is None else effect_options.span(environment, tokens[0], query, unknown=unknown),
        target=target,
        versus=versus,
    )
    predicts = patching.measure != "cosine"
    effect_options.foretell(environment, loaded_model, len(tokens[0]), patching.selection, compute, predicts=predicts)
    with progress(environment, "patching heads") as on_progress:
        document = patch_document(
            loaded_model,
            (clean, tokens[0]),
            (corrupt, tokens[1]),
            patching,
            memory=effect_options.memory(compute),
            progress=on_progress,
        )
    write_with_figure([document], output, environment, view)


app = command_app(patch)
