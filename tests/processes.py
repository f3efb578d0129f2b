"""Start the program as a process with an environment of its own, whatever the tests themselves were started with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

WAYS = ({}, {"PYTHONUNBUFFERED": "1"})
BUFFERINGS = pytest.mark.parametrize("buffering", WAYS, ids=["buffered", "unbuffered"])
"""Python's own buffers hide, or bring about, what goes wrong on standard output: both ways are tested."""


def bufferings(commands: Iterable[str], *both: str) -> pytest.MarkDecorator:
    """Every command with buffers and without; without them only a few, `both`, where time is short."""
    cases = [
        pytest.param(
            command, way, marks=pytest.mark.thorough if way and command not in both else (), id=f"{command}-{name}"
        )
        for command in commands
        for name, way in zip(("buffered", "unbuffered"), WAYS, strict=True)
    ]
    return pytest.mark.parametrize(("command", "buffering"), cases)


OURS = ("PYTHON", "ATTN_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "LC_", "LANG")
"""How the names begin of variables that change what the program does."""


def clean_environment(**variables: str) -> dict[str, str]:
    """The variables of this process without those that change the program, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "LANG": "C.UTF-8", **variables}


def attn(*arguments: str) -> list[str]:
    """The command line that starts the program with the Python of the tests."""
    return [sys.executable, "-m", "attncli", *arguments]


def start(command: Sequence[str], variables: Mapping[str, str] | None = None, **how: Any) -> subprocess.Popen[bytes]:
    """Start a command in a clean environment; how: as for Popen. The signals that end it are not ignored."""
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.Popen(command, env=clean_environment(**(variables or {})), preexec_fn=_heed, **how)


def finish(
    command: Sequence[str], variables: Mapping[str, str] | None = None, *, given: bytes | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, a minute at most. given: what its standard input holds."""
    if given is not None:
        how["stdin"] = subprocess.PIPE
    with start(command, variables, **how) as process:
        try:
            out, err = process.communicate(given, timeout=60)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, (out or b"").decode(), (err or b"").decode())


def _heed() -> None:
    """What a shell's `&` or `nohup` has ignored is ignored by all that is started below."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
