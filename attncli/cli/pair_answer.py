"""The answer over pairs of texts, which `--pairs` asks of several commands in place of one text."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from attncli.cli import request
from attncli.cli.output import validate_options, write_with_figure
from attncli.cli.output_conflicts import refuse_beside
from attncli.cli.progress import progress
from attncli.errors import UsageError
from attncli.language import message, plural

if TYPE_CHECKING:
    from attncli.cli.declarations import OutputOptions, PairOptions, RunSetup
    from attncli.cli.environment import Environment
    from attncli.documents import Document
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model

PAIR_SUBJECTS = (
    "pairs", "count", "layer", "head",
    "brief", "ascii", "show", "full", "top",
    "model", "backend", "device", "dtype", "max_memory", "ignore_config", "adapter",
)  # fmt: skip
"""What work over pairs takes in every command, besides how its answer looks."""


def is_over_pairs(options: PairOptions, text: str | None) -> bool:
    """Whether pairs are asked about. Raises UsageError for pairs beside a text, and for their count
    without them."""
    if options.pairs is not None and text is not None:
        raise UsageError("a text and --pairs contradict each other", expected="one of them")
    if options.pairs is None and options.count is not None:
        raise UsageError("--count is about pairs", expected="--pairs FILE as well")
    return options.pairs is not None


def write_pair_answer(
    environment: Environment,
    setup: RunSetup,
    output: OutputOptions,
    compute: Callable[[Model, Callable[[float], None]], Document],
    *,
    command: str,
    label: str,
    subjects: Collection[str],
) -> None:
    """Compute one document over pairs of texts and write it.

    compute: called with the model and a function to report the share done, 0 to 1; returns the
        document.
    command: the name of the command, whose screen is drawn.
    label: of the progress bar.
    subjects: the parameters that go with pairs; others are refused.

    Raises UsageError for other parameters, and for `--html`, whose page shows one text.
    """
    refuse_beside(environment, "--pairs", subjects)
    if "html" in environment.explicit_options:
        raise UsageError("--html shows one text", expected="--figure or --json beside --pairs")
    view = validate_options(output, environment, command)
    loaded_model = request.model(environment, setup, many_runs=True)
    with progress(environment, label) as on_progress:
        document = compute(loaded_model, on_progress)
    write_with_figure([document], output, environment, view)


PATIENCE = 3.0
"""Seconds above which it is said before it starts what a measurement will take."""


def foretell(environment: Environment, expected: CostEstimate, count: int) -> None:
    """Note the expected time and memory of a measurement that takes more than `PATIENCE` seconds.

    count: tokens of the text.
    """
    if expected.seconds > PATIENCE:
        from attncli.draw.numbers import size_words
        from attncli.models.estimate import duration_words

        time = duration_words(expected.seconds)
        size = size_words(expected.peak)
        if not expected.branches:  # work that takes no heads away one by one
            note = message(
                "{tokens} tokens: about {time} and {bytes} of memory",
                tokens=count,
                time=time,
                bytes=size,
            )
        else:
            note = plural(
                "{count} head, {tokens} tokens: about {time} and {bytes} of memory",
                "{count} heads, {tokens} tokens: about {time} and {bytes} of memory",
                count=expected.branches,
                tokens=count,
                time=time,
                bytes=size,
            )
        environment.note(note)
