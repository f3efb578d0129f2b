"""Start the program as a process with an environment of its own, whatever the tests themselves were
started with.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pytest

WAYS = ({}, {"PYTHONUNBUFFERED": "1"})
BUFFERINGS = pytest.mark.parametrize("buffering", WAYS, ids=["buffered", "unbuffered"])
"""Python's own buffers hide, or bring about, what goes wrong on standard output: both ways are
tested.
"""


FORKS = """
import json, os, resource, sys, tempfile
from attncli.__main__ import main
import numpy, attncli.features.run.command, attncli.features.heads.command, attncli.features.run.compute
# most command lines import these, too
import attncli.cli.output, attncli.models.load, attncli.features.run.screen, attncli.features.explain.screen
import attncli.draw.lines, orjson, rich.console, rich.padding, rich.table
from importlib import import_module
lines, ways, limit, further = json.loads(sys.argv[1])
for name in further:
    import_module(name)
ended = []
for how, arguments in ((how, line) for how in ways for line in lines):
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as file:
        reading = None
        if how == "limited":
            out = os.dup(file.fileno())
        elif how == "full":
            out = os.open("/dev/full", os.O_WRONLY)
        else:
            reading, out = os.pipe()
        if how == "closed":
            os.close(reading)
        child = os.fork()
        if not child:
            if how == "one line":
                os.close(reading)
            os.dup2(out, 1)
            os.dup2(told.fileno(), 2)
            os.close(out)
            if how == "limited":
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            sys.argv[:] = ["attn", *arguments]
            sys.exit(main())
        os.close(out)
        taken = 0
        if how == "one line":
            with os.fdopen(reading, "rb") as stream:
                taken = len(stream.readline())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told.seek(0)
        ended.append((code, told.read().decode(), taken or os.fstat(file.fileno()).st_size))
os.write(1, json.dumps(ended).encode())
"""
"""A process in which the program is imported once, and which parts into one for each command line:
from there on each runs, and ends, as the program started by itself would. Told are the exit codes,
what stood on standard error, and how many bytes were taken."""

LIMIT = 2560
"""Bytes that a limited file takes."""


class Ended(NamedTuple):
    """code: the exit code. told: standard error. taken: bytes that were read from the pipe, or
    stand in the file.
    """

    code: int
    told: str
    taken: int


Out = Literal["closed", "one line", "full", "limited"]
"""Standard output: a pipe that nobody reads, one that closes after a line was read, a device that
is full, or a file that takes `LIMIT` bytes."""


def fork_each(
    lines: Sequence[Sequence[str]],
    ways: Sequence[Out],
    variables: Mapping[str, str],
    further: Sequence[str] = (),
) -> dict[Out, list[Ended]]:
    """How each command line (without `attn`) ends, by what it writes to. further: modules that are
    imported once for all of them."""
    # a limit would cut Python's own caches short, too, and break on them the next time
    uncached = {"PYTHONDONTWRITEBYTECODE": "1"} if "limited" in ways else {}
    done = finish(
        [sys.executable, "-c", FORKS, json.dumps([lines, ways, LIMIT, further])],
        {"OPENBLAS_NUM_THREADS": "1", **uncached, **variables},
    )
    assert done.returncode == 0, done.stderr
    ended = [Ended(*one) for one in json.loads(done.stdout)]
    return {way: ended[at * len(lines) : (at + 1) * len(lines)] for at, way in enumerate(ways)}


OURS = ("PYTHON", "ATTN_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "LC_", "LANG")
"""How the names begin of variables that change what the program does."""


def clean_environment(**variables: str) -> dict[str, str]:
    """The variables of this process without those that change the program, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "LANG": "C.UTF-8", **variables}


def attn(*arguments: str) -> list[str]:
    """The command line that starts the program with the Python of the tests."""
    return [sys.executable, "-m", "attncli", *arguments]


def start(
    command: Sequence[str], variables: Mapping[str, str] | None = None, **how: Any
) -> subprocess.Popen[bytes]:
    """Start a command in a clean environment; how: as for Popen. The signals that end it are not
    ignored.
    """
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.Popen(
        command, env=clean_environment(**(variables or {})), preexec_fn=_heed, **how
    )


def finish(
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    given: bytes | None = None,
    **how: Any,
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
    return subprocess.CompletedProcess(
        command, process.returncode, (out or b"").decode(), (err or b"").decode()
    )


def _heed() -> None:
    """What a shell's `&` or `nohup` has ignored is ignored by all that is started below."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
