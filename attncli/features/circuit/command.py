"""`attn circuit`: which parts of a decoder carry an answer, through which edges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import DrawnTableOutput, RunSetup
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import argument, only, subject_number, subject_option
from attncli.cli.output import keeping_runs, validate_options, write_with_figure
from attncli.cli.output_conflicts import refuse_beside
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
    compared: Annotated[
        list[str] | None,
        argument("compare, and two saved circuits: what they share.", "compare A B"),
    ] = None,
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
    by_position: Annotated[
        bool,
        subject_option(help="Also tell each edge's score token by token, for aligned pairs."),
    ] = False,
    seed: Annotated[int, declarations.SEED_NUMBER] = 0,
    workers: Annotated[
        int,
        subject_number(
            "--workers",
            help="Pairs at a time, in threads; 0 for as many as processors.",
            least=0,
            most=1024,
        ),
    ] = 0,
) -> None:
    """Find the edges between heads and feed-forward parts that carry an answer, and test them.

    attn circuit --model smollm2 --pairs indirect-object

    attn circuit --model smollm2 --pairs pairs.jsonl --size 2% --json -o circuit.json

    attn circuit --model smollm2 --pairs indirect-object --figure circuit.svg --html circuit.html

    attn circuit compare circuit.json other.json
    """
    environment: Environment = ctx.obj
    if compared:
        _compare(environment, compared, output)
        return
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
        """Called before the work with its estimated cost and the tokens of the longest text: refuse
        what does not fit in memory (LimitError), and announce what takes long."""
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
            by_position=by_position,
            seed=seed,
            workers=workers or None,  # 0 is as many as processors, which the function takes as None
            memory=request.memory_limit(setup.compute).bytes,
            kept=own_cache_folder(environment.variables) / "circuits",
            on_cost=on_cost,
            on_result=kept_runs.count,
            progress=on_progress,
        )
    write_with_figure([document], output, environment, view)


def _compare(environment: Environment, words: list[str], output: DrawnTableOutput) -> None:
    """Run `attn circuit compare A B`: what two saved circuits share.

    words: all arguments of the command, "compare" and two files. Raises UsageError for others.
    """
    if words[0] != "compare" or len(words) != 3:
        raise UsageError(
            "attn circuit {words} is none",
            expected="attn circuit compare, and two files",
            hint="attn circuit compare circuit.json other.json",
            words=" ".join(words),
        )
    # all options but these are about finding a circuit
    refuse_beside(environment, "compare", ("compared", "brief", "ascii", "full"))
    view = validate_options(output, environment, "circuit_compare")
    from attncli.features.circuit.circuit_overlap import compare_circuits
    from attncli.features.effects.circuit_heads import read_circuit

    a, b = (read_circuit(Path(word)) for word in words[1:])
    write_with_figure([compare_circuits(a, b, (words[1], words[2]))], output, environment, view)


circuit_app = command_app(
    circuit, essentials="--model --pairs --count --size --holdout --full --json --figure --html"
)
