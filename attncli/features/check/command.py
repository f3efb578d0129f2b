"""`attn check`: the worksheet of the lessons, and answers to it marked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attncli.cli.declarations import TableOutput
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import argument, without
from attncli.cli.output import validate_options, write_documents
from attncli.language import message


def check(
    ctx: typer.Context,
    output: Annotated[TableOutput, without("quiet")],
    answers: Annotated[
        Path | None,
        argument(
            "Answers as JSON, by the number of the question; none lists the questions.", "FILE"
        ),
    ] = None,
) -> None:
    """The worksheet of the lessons: questions, and your answers marked.

    attn check

    attn check answers.json
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.features.check.compute import check as compute_check
    from attncli.inputs.files import read_object

    if answers is None:
        document = compute_check()
    else:
        what = message("answers as JSON, by the number of the question")
        document = compute_check(read_object(answers, what=what), name=answers.name)
    write_documents([document], output, environment, view)
    if any(mark.is_right is False for mark in document.answers):
        from attncli.errors import VerdictError

        raise VerdictError(
            message("some answers are not right"), expected="the answers that the commands show"
        )


check_app = command_app(check, essentials="--brief --json --plain --lang")
