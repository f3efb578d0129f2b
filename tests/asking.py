"""Run the whole command line in process, with streams of the test's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any

from attncli.cli import main
from attncli.cli.output import Environment


@dataclass(frozen=True)
class Answer:
    """What a command line answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def ask(
    *arguments: str, stdin: bytes | None = None, terminal: bool = False, width: int = 80, **variables: str
) -> Answer:
    """Run `attn ARGUMENTS`. stdin: what a pipe holds; None is a terminal. terminal: whether stdout is one."""
    out, err = BytesIO(), StringIO()
    environment = Environment(
        stdin=BytesIO(stdin or b""),
        stdout=out,
        stderr=err,
        variables={"LANG": "C.UTF-8", "XDG_CACHE_HOME": "/dev/null", **variables},
        stdin_is_terminal=stdin is None,
        stdout_is_terminal=terminal,
        width=width,
    )
    code = main(list(arguments), environment)
    return Answer(int(code), out.getvalue().decode(), err.getvalue())
