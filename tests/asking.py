"""Run the whole command line in process, with streams of the test's own."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from io import BytesIO, StringIO
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from attncli.cli import app, main
from attncli.cli.environment import Environment

CACHE = TemporaryDirectory(prefix="attn-", ignore_cleanup_errors=True)
"""Where the command remembers files that it has found good, as it does for who uses it: minilm's
are read once by each process of tests, and not for every question."""

kept = cache(app.command)
"""The command line as Typer makes it, kept from one question to the next: making it takes longer
than most answers.
"""


@dataclass(frozen=True)
class Answer:
    """What a command line answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out, parse_constant=_refuse)


def _commands(arguments: tuple[str, ...], variables: dict[str, str]) -> AbstractContextManager[Any]:
    """Commands made before, but where a shell asks: that ends the process, and leaves them as they
    then are.
    """
    return nullcontext() if "_ATTN_COMPLETE" in variables else patch.object(app, "command", kept)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def ask(
    *arguments: str,
    stdin: bytes | None = None,
    terminal: bool = False,
    width: int = 80,
    **variables: str,
) -> Answer:
    """Run `attn ARGUMENTS`. stdin: what a pipe holds; None is a terminal. terminal: whether stdout
    is one.
    """
    out, err = BytesIO(), StringIO()
    environment = Environment(
        stdin=BytesIO(stdin or b""),
        stdout=out,
        stderr=err,
        variables={"LANG": "C.UTF-8", "XDG_CACHE_HOME": CACHE.name, **variables},
        stdin_is_terminal=stdin is None,
        stdout_is_terminal=terminal,
        width=width,
    )
    with _commands(arguments, variables):
        code = main(list(arguments), environment)
    return Answer(int(code), out.getvalue().decode(), err.getvalue())
