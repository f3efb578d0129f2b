"""`attn next`: the next word that a decoder would say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.answer import Command, DocumentPage, TextRun, answer_texts
from attncli.cli.declarations import OutputOptions, RegionOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import DOCUMENT, analysis_option, meaning, model_option, only, without
from attncli.cli.output import (
    PageOptions,
    validate_options,
    validate_page,
)
from attncli.errors import UsageError
from attncli.language import message

if TYPE_CHECKING:
    from attncli.features.next.document import NextDocument

FEW = 5
"""Tokens that are told where `--top` does not say how many."""
MODEL_AND_COMPUTE = (
    "model",
    "ignore_config",
    "adapter",
    "backend",
    "device",
    "dtype",
    "max_memory",
)
"""The options of a checkpoint that is run: seeded weights predict no next token."""


def next_word(
    ctx: typer.Context,
    text: Annotated[TextOptions, without("tokenizer")],
    regions: RegionOptions,
    setup: Annotated[RunSetup, only(*MODEL_AND_COMPUTE)],
    output: Annotated[
        OutputOptions,
        without("precision", "scale_colors", "max_output", "figure_parts"),
        meaning(top=DOCUMENT),
    ],
    page: PageOptions,
    target: Annotated[str | None, declarations.TARGET] = None,
    query: Annotated[str | None, declarations.QUERY] = None,
    every_token: Annotated[
        bool,
        analysis_option("--each", help="Also how likely every token was after those before it."),
    ] = False,
    without_heads: Annotated[
        list[str] | None,
        model_option(
            "--without", help="Also with these heads taken away: L5H11,L3H1.", metavar="HEADS"
        ),
    ] = None,
    weigh: Annotated[str | None, declarations.WEIGH] = None,
    weigh_heads: Annotated[list[str] | None, declarations.WEIGH_HEADS] = None,
) -> None:
    """Say what would come next, with probabilities, from which layer on, and without some heads.

    An encoder says what would stand in place of [MASK].

    attn next --model gpt2 "Humpty Dumpty sat on a"

    attn next --model gpt2 "Humpty Dumpty sat on a" --target wall --without L5H11 --each

    attn next --model gpt2 "The code is 7. The code is" --weigh 7=×4

    attn next --model bert-base-uncased "Humpty Dumpty sat on a [MASK]."
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, "next", files={"--html": page.html})
    validate_page(page, lines=text.lines)
    loaded_model = request.model(environment, setup, many_runs=weigh is not None)
    if without_heads is not None and not loaded_model.own_layers:
        raise UsageError("--without needs layers that run one by one", expected="no --without")
    if (regions.region or regions.regions) and weigh is None:
        what = message("--region names tokens, and none is asked for")
        raise UsageError(what, expected="--weigh NAME=×N as well")
    weigh_in = request.weighed_heads(loaded_model.spec, weigh, weigh_heads)
    from attncli.features.next.compute import next_word as compute_next

    heads = []
    if without_heads is not None:
        words = request.comma_parts(without_heads)
        heads = request.head_pairs(loaded_model.spec, words, layers=None, option="--without")
    if "top" in environment.explicit_options:
        top = output.top
    else:
        top = FEW  # the default of `--top` is for links of other commands, and larger

    def compute(run: TextRun) -> NextDocument:
        """The `attn.next/1` document of one text."""
        text_regions = []
        if weigh is not None:
            # the note that regions overlap is left out: only one of them is weighed
            quiet = environment.without_notes()
            text_regions = request.regions_of(quiet, regions, run.source, run.tokens)
        return compute_next(
            loaded_model,
            run.text,
            top=top,
            target=target,
            query=query,
            each_token=every_token,
            without=heads,
            weigh=weigh,
            weigh_in=weigh_in,
            regions=text_regions,
            tokens=run.tokens,
            note=environment.note,
            on_cost=partial(
                request.refuse_cost, environment, setup.compute, message("a shorter text")
            ),
            progress=run.progress,
        )

    command = Command(environment, loaded_model, text, setup, output, page, view)
    # only weighing takes so long that progress is shown
    answer_texts(
        command, compute, page=DocumentPage(alone=True), label=message("weighing attention")
    )


next_app = command_app(
    next_word,
    essentials="--model --target --each --without --weigh --query --top --lines --brief --json",
)
