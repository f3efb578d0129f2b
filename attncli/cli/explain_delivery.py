"""How a topic of `attn explain` is answered: at once, or step by step at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from attncli.cli import delivery
from attncli.cli import svg_output as picture
from attncli.cli.explain_options import ExplainOutput
from attncli.cli.output import Environment
from attncli.cli.pause import wait_for_key
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.explain import ExplainDocument
    from attncli.render.view import View


def give_topic(ctx: typer.Context, document: ExplainDocument, output: ExplainOutput) -> None:
    """Answer with the document of a topic."""
    environment: Environment = ctx.obj
    check_steps(output, environment)
    write_explanation(
        document, output, environment, delivery.validate_options(output, environment, document_options=("max_output",))
    )


def write_explanation(document: ExplainDocument, output: ExplainOutput, environment: Environment, view: View) -> None:
    """Answer with an explanation: one step after each key with `--step`, else at once."""
    if output.step:
        _by_steps(document, environment, view)
        return
    picture.write_with_figure([document], output, environment, view)


def check_steps(output: ExplainOutput, environment: Environment) -> None:
    """Raise UsageError where `--step` has no one to wait for, or goes with what is no screen."""
    if not output.step:
        return
    formats = {"--json": output.json, "--ndjson": output.ndjson, "--plain": output.plain, "--brief": output.brief}
    formats |= {"--output": output.file is not None, "--figure": output.svg is not None}
    format_option = next((name for name, value in formats.items() if value), None)
    if format_option is not None:
        raise UsageError(
            f"--step waits between the steps of a screen, and {format_option} has none", expected="one of them"
        )
    if not (environment.stdin_is_terminal and environment.stdout_is_terminal) or environment.keys is None:
        raise UsageError("--step waits for a key, and nobody is at a terminal", expected="a terminal, or no --step")


def _by_steps(document: ExplainDocument, environment: Environment, view: View) -> None:
    from attncli.render.screens.explain import explain_blocks

    for index, block in enumerate(block for block in explain_blocks(document, view) if block.rows):
        if index:
            environment.write(b"\n")
            if wait_for_key("step.wait", view, environment):
                return
        environment.write(delivery.render_text(block, view, environment).encode())
