"""`attn circuit`: which parts of a decoder carry an answer, through which edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import DrawnTableOutput, RunSetup
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import only, subject_number, subject_option
from attncli.cli.output import keeping_runs, validate_options, write_with_figure
from attncli.errors import UsageError
from attncli.language import message

if TYPE_CHECKING:
    from attncli.models.estimate import CostEstimate

MODEL_AND_COMPUTE = ("model", "ignore_config", "adapter", "dtype", "max_memory")
"""The options of a checkpoint that is run over NumPy: seeded weights predict no next token."""
MOST_STEPS = 100


def circuit(
    ctx: typer.Context,
    output: DrawnTableOutput,
    setup: Annotated[RunSetup, only(*MODEL_AND_COMPUTE)],
    pairs: Annotated[str | None, declarations.PAIRS] = None,
    count: Annotated[int | None, declarations.PAIR_COUNT] = None,
    size: Annotated[
        str | None,
        subject_option(
            help="Edges of the circuit, 200 or 2%. [default: the smallest that keeps 80%]",
            metavar="N|PCT",
        ),
    ] = None,
    holdout: Annotated[
        int | None,
        subject_number("--holdout", help="Pairs that circuits are tested on. [default: half]"),
    ] = None,
    steps: Annotated[
        int | None,
        subject_number(
            "--steps", help="Inputs at which gradients are taken. [default: 5]", most=MOST_STEPS
        ),
    ] = None,
    seed: Annotated[int, declarations.SEED_NUMBER] = 0,
) -> None:
    """Find the edges between heads and feed-forward parts that carry an answer, and test them.

    attn circuit --model smollm2 --pairs indirect-object

    attn circuit --model smollm2 --pairs pairs.jsonl --size 2% --json -o circuit.json

    attn circuit --model smollm2 --pairs indirect-object --figure circuit.svg --html circuit.html
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, "circuit")
    if pairs is None:
        raise UsageError(
            "attn circuit needs pairs of texts",
            expected="--pairs with a file or a task: indirect-object, greater-than, agreement",
            hint="attn circuit --model MODEL --pairs indirect-object",
        )
    loaded_model = request.model(environment, setup, many_runs=True)
    from attncli.cli.progress import LONG_WORK, progress
    from attncli.draw.numbers import size_words
    from attncli.features.circuit.compute import STEPS
    from attncli.features.circuit.compute import circuit as compute_circuit
    from attncli.inputs.hub import own_cache_folder
    from attncli.models.estimate import duration_words

    def on_cost(expected: CostEstimate, tokens: int) -> None:
        """Refuse what memory does not hold, and note what it will take."""
        smaller = message("--steps with a smaller number, or pairs of shorter texts")
        request.refuse_memory(expected.peak, setup.compute, smaller)
        if expected.seconds < LONG_WORK:
            return
        environment.note(
            message(
                "pairs of up to {tokens:,} tokens: about {seconds} and {memory} of memory; what"
                " takes less: --count with fewer pairs; after Ctrl-C the same command goes on",
                tokens=tokens,
                seconds=duration_words(expected.seconds),
                memory=size_words(expected.peak),
            )
        )

    with (
        keeping_runs(output, environment, view) as kept_runs,
        progress(environment, "testing edges") as on_progress,
    ):
        document = compute_circuit(
            loaded_model,
            pairs,
            count=count,
            size=size,
            holdout=holdout,
            steps=STEPS if steps is None else steps,
            seed=seed,
            kept=own_cache_folder(environment.variables) / "circuits",
            on_cost=on_cost,
            on_result=kept_runs.count,
            progress=on_progress,
        )
    write_with_figure([document], output, environment, view)


circuit_app = command_app(
    circuit, essentials="--model --pairs --count --size --holdout --full --json --figure --html"
)
