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
from attncli.errors import ExitCode
from attncli.language import listing, message


def check(
    ctx: typer.Context,
    output: Annotated[TableOutput, without("quiet")],
    answers: Annotated[
        Path | None,
        argument(
            "Answers as JSON, by the number of the question; - reads standard input; none lists the"
            " questions.",
            "FILE",
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
    from attncli.inputs.files import JSON_LIMIT, parse_object, read_object, read_pipe

    if answers is None:
        document = compute_check()
    else:
        what = message(
            'answers as JSON, the number of a question in double quotes, such as {"1": 0.5}'
        )
        if str(answers) == "-":
            name: str = message("standard input")
            raw = read_pipe(environment.stdin, name, limit=JSON_LIMIT)
            document = compute_check(parse_object(raw, name, what), name=name)
        else:
            document = compute_check(read_object(answers, what=what), name=answers.name)
    write_documents([document], output, environment, view)
    wrong = [str(mark.number) for mark in document.answers if mark.is_right is False]
    if wrong:  # a verdict on the answers, no error of the program
        environment.note(
            message(
                "not right yet: {numbers}; so the exit code is {code}",
                numbers=listing(wrong),
                code=int(ExitCode.FAILURE),
            )
        )
        raise typer.Exit(ExitCode.FAILURE)


check_app = command_app(check, essentials="--brief --json --plain --lang")
