"""`attn answer`: which regions of the prompt the answer used."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, cast

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import OutputOptions, RegionOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import only, redeclare, subject_number, subject_option, without
from attncli.cli.output import (
    PageOptions,
    keeping_runs,
    validate_options,
    validate_page,
    write_document_page,
    write_with_figure,
)
from attncli.errors import UsageError
from attncli.language import message

MODEL_AND_COMPUTE = (
    "model", "ignore_config", "adapter", "backend", "device", "dtype", "max_memory",
)  # fmt: skip
"""The options of a checkpoint that is run: seeded weights predict no next token."""
WAYS = ("links", "text")
MOST = 4096
"""Tokens of an answer."""


def answer(
    ctx: typer.Context,
    text: Annotated[TextOptions, without("tokenizer", "lines")],
    regions: RegionOptions,
    setup: Annotated[RunSetup, only(*MODEL_AND_COMPUTE)],
    output: Annotated[OutputOptions, without("precision", "top", "scale_colors", "max_output")],
    page: PageOptions,
    target: Annotated[
        str | None,
        redeclare(
            declarations.TARGET,
            help="The answer that is measured. [default: what the model writes]",
            metavar="TEXT",
        ),
    ] = None,
    length: Annotated[
        int,
        subject_number("--tokens", help="Tokens that the model writes at most.", most=MOST),
    ] = 64,
    cut: Annotated[
        str,
        subject_option(
            values=WAYS,
            help="links: no token sees a region's keys, in any head; text: it is left out.",
        ),
    ] = "links",
    subsets: Annotated[
        int,
        subject_number(
            "--subsets",
            help="Random sets of regions taken away together, for what says the same twice. [none]",
            least=0,
            most=MOST,
        ),
    ] = 0,
    each_head: Annotated[
        bool,
        subject_option(
            "--each-head", help="Also which heads carry the region that the answer rests on."
        ),
    ] = False,
    weigh: Annotated[
        str | None,
        redeclare(
            declarations.WEIGH,
            help=(
                "Also the answer with attention on a region or word weighed: NAME=×4, 0 to 100; ×4"
                " alone for the region that it loses most without."
            ),
            metavar="NAME=×N",
        ),
    ] = None,
    weigh_heads: Annotated[list[str] | None, declarations.WEIGH_HEADS] = None,
    seed: Annotated[int, declarations.SEED_NUMBER] = 0,
) -> None:
    """Let a model answer a prompt, and tell which regions of it the whole answer used.

    attn answer --model smollm2 --chat chat.json --region "doc1=[[doc1]]…[[/doc1]]"

    attn answer --model smollm2 --chat chat.json --regions regions.json --subsets 32

    attn answer --model smollm2 --chat chat.json --regions regions.json --each-head --weigh ×0.5

    attn answer --model gpt2 "The code is 7. The sky is blue. The code is" --region code=/code is 7/
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, "answer", files={"--html": page.html})
    validate_page(page)
    if target is not None and "length" in environment.explicit_options:
        raise UsageError(
            "--tokens is about what the model writes, and --target is an answer that is given",
            expected="one or the other",
        )
    loaded_model = request.model(environment, setup, many_runs=True)
    weigh_in = request.weighed_heads(loaded_model.spec, weigh, weigh_heads)
    from attncli.cli.progress import progress
    from attncli.features.answer.compute import answer as compute_answer
    from attncli.inputs.hub import own_cache_folder

    hint = message("a shorter text, or fewer regions")
    # no note that regions share tokens: documents within a message are what this command is for
    quiet = environment.without_notes()
    source = request.one_text(environment, text)
    with request.errors_located_in(source):
        tokens = request.tokens_of(loaded_model, source)
        text_regions = request.regions_of(quiet, regions, source, tokens)
        with (
            keeping_runs(output, environment, view) as kept_runs,
            progress(environment, "cutting regions off") as on_progress,
        ):
            document = compute_answer(
                loaded_model,
                source.text,
                text_regions,
                target=target,
                length=length,
                cut=cast(Literal["links", "text"], cut),
                subsets=subsets,
                each_head=each_head,
                weigh=weigh,
                weigh_in=weigh_in,
                seed=seed,
                tokens=tokens,
                kept=own_cache_folder(environment.variables) / "answers",
                note=environment.note,
                on_cost=partial(request.refuse_cost, environment, setup.compute, hint),
                on_result=kept_runs.count,
                on_interruption=kept_runs.documents.append,
                progress=on_progress,
            )
    if page.html is not None:
        write_document_page(loaded_model, source, document, page, view.lang, alone=True)
    write_with_figure([document], output, environment, view)


answer_app = command_app(
    answer,
    essentials="--model --chat --region --regions --target --tokens --cut --subsets --brief --json",
)
