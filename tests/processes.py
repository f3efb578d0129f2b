"""Start the program as a process with an environment of its own, whatever the tests themselves were started with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pytest

WAYS = ({}, {"PYTHONUNBUFFERED": "1"})
BUFFERINGS = pytest.mark.parametrize("buffering", WAYS, ids=["buffered", "unbuffered"])
"""Python's own buffers hide, or bring about, what goes wrong on standard output: both ways are tested."""


FORKS = """
import json, os, sys, tempfile
from attncli.__main__ import main
import numpy, attncli.cli.run, attncli.cli.heads, attncli.analysis.run
ended = []
for arguments in json.loads(sys.argv[2]):
    if sys.argv[1] == "closed":
        reading, out = os.pipe()
        os.close(reading)
    else:
        out = os.open("/dev/full", os.O_WRONLY)
    with tempfile.TemporaryFile() as told:
        child = os.fork()
        if not child:
            os.dup2(out, 1)
            os.dup2(told.fileno(), 2)
            sys.argv[:] = ["attn", *arguments]
            sys.exit(main())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(out)
        told.seek(0)
        ended.append((code, told.read().decode()))
os.write(1, json.dumps(ended).encode())
"""
"""A process in which the program is imported once, and which parts into one for each command line: from there on each
runs, and ends, as the program started by itself would. Told are the exit codes and what stood on standard error."""


def fork_each(
    lines: Iterable[Sequence[str]], out: Literal["closed", "full"], variables: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Exit code and standard error of each command line (without `attn`), with standard output a pipe that nobody
    reads, or a device that is full."""
    done = finish(
        [sys.executable, "-c", FORKS, out, json.dumps(list(lines))], {"OPENBLAS_NUM_THREADS": "1", **variables}
    )
    assert done.returncode == 0, done.stderr
    return [(code, told) for code, told in json.loads(done.stdout)]


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
    """Run a command to its end, four minutes at most. given: what its standard input holds."""
    if given is not None:
        how["stdin"] = subprocess.PIPE
    with start(command, variables, **how) as process:
        try:
            out, err = process.communicate(given, timeout=240)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, (out or b"").decode(), (err or b"").decode())


def _heed() -> None:
    """What a shell's `&` or `nohup` has ignored is ignored by all that is started below."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
