"""`attn pairs`: pairs of texts for experiments, checked against a model."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import LongTableOutput, RunSetup
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import argument, only
from attncli.cli.output import validate_options, write_documents
from attncli.language import message

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


def check(
    ctx: typer.Context,
    output: LongTableOutput,
    setup: Annotated[RunSetup, only(*MODEL_AND_COMPUTE)],
    file: Annotated[
        str,
        argument("A file of pairs, or a task: indirect-object, greater-than, agreement.", "FILE"),
    ],
    count: Annotated[int | None, declarations.PAIR_COUNT] = None,
) -> None:
    """Say which pairs fit a model, what is wrong with the others, and how often it is right.

    attn pairs check indirect-object --model gpt2

    attn pairs check pairs.jsonl --model gpt2 --json
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    loaded_model = request.model(environment, setup, many_runs=True)
    from attncli.cli.progress import progress
    from attncli.errors import VerdictError
    from attncli.features.pairs.compute import pairs as compute_pairs

    with progress(environment, "running pairs") as on_progress:
        document = compute_pairs(
            loaded_model,
            file,
            count=count,
            progress=on_progress,
            on_cost=partial(
                request.refuse_cost, environment, setup.compute, message("shorter texts")
            ),
        )
    write_documents([document], output, environment, view)
    if document.faults:
        whole = len(document.pairs) + len(document.faults)
        what = message(
            "{faults} of {pairs} pairs do not fit this model",
            faults=len(document.faults),
            pairs=whole,
        )
        raise VerdictError(what, expected="texts of equal length and answers of one token")


pairs_app = command_app(
    check,
    help="""Pairs of texts that differ in one fact, with two answers: files for experiments.

    attn pairs check indirect-object --model gpt2
    """,
    essentials={"check": "--model --count --full --json --plain --brief"},
)
