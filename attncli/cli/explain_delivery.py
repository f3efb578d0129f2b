"""How a topic of `attn explain` is answered: at once, or step by step at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from attncli.cli import delivery as answer
from attncli.cli import svg_output as picture
from attncli.cli.explain_options import ExplainOutput
from attncli.cli.output import Environment
from attncli.cli.pause import paused
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.explain import ExplainDocument
    from attncli.render.view import View


def give_topic(ctx: typer.Context, document: ExplainDocument, output: ExplainOutput) -> None:
    """Answer with the document of a topic."""
    environment: Environment = ctx.obj
    check_steps(output, environment)
    give(document, output, environment, answer.check(output, environment, heeded=("max_output",)))


def give(document: ExplainDocument, output: ExplainOutput, environment: Environment, how: View) -> None:
    """Answer with an explanation: one step after each key with `--step`, else at once."""
    if output.step:
        _by_steps(document, environment, how)
        return
    picture.give([document], output, environment, how)


def check_steps(output: ExplainOutput, environment: Environment) -> None:
    """Raise UsageError where `--step` has no one to wait for, or goes with what is no screen."""
    if not output.step:
        return
    given = {"--json": output.json, "--ndjson": output.ndjson, "--plain": output.plain, "--brief": output.brief}
    given |= {"--output": output.file is not None, "--figure": output.svg is not None}
    other = next((name for name, value in given.items() if value), None)
    if other is not None:
        raise UsageError(f"--step waits between the steps of a screen, and {other} has none", expected="one of them")
    if not (environment.stdin_is_terminal and environment.stdout_is_terminal) or environment.keys is None:
        raise UsageError("--step waits for a key, and nobody is at a terminal", expected="a terminal, or no --step")


def _by_steps(document: ExplainDocument, environment: Environment, how: View) -> None:
    from attncli.render.screens.explain import explain_blocks

    for at, block in enumerate(block for block in explain_blocks(document, how) if block.rows):
        if at:
            environment.write(b"\n")
            if paused("step.wait", how, environment):
                return
        environment.write(answer.printed(block, how, environment).encode())
