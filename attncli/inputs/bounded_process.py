"""Work that a stranger's input can make endless, such as a chat template or a pattern, done in a
process of its own with a bound on its memory and its time.

A thread would not do: one `sum`, `replace` or pattern can take minutes and gigabytes, and Python
looks at no clock meanwhile. Measured in CPU seconds: 0.05 to start, 0.10 with Jinja, which nothing
else in `attn` then imports.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from attncli.errors import AttnError
from attncli.inputs import bounded_child
from attncli.inputs.task_failure import TaskError
from attncli.language import message

SECONDS = 5.0
"""Time that a task may take; what people write takes milliseconds."""
GRACE = 20.0
"""Seconds beside these after which a process that has not ended itself is killed: it starts in 0.1,
but in many on a machine that is busy."""
MEMORY = 2**28
"""Bytes of memory that a task may take, besides `MEMORY_PER_BYTE` for each byte of its request."""
MEMORY_PER_BYTE = 24
VARIABLES = ("TZ", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Environment variables that Python may need to start, and that say what day it is. The others may hold secrets."""
TEMPLATE_LINE = re.compile(r'File "<template>", line ([0-9]{1,9})')
"""How Python tells, when the time is up, at which line of a compiled template it is."""


def run_bounded(task: str, request: Mapping[str, object]) -> Any:
    """Perform a task in a process of its own, with limits of time and memory, and return its
    result.

    task: its name, as of `attncli.inputs.bounded_child`.
    request: what is asked of it; request and result are plain data, as of JSON.

    Raises TaskError where it fails or takes too much time or memory, AttnError where no process can
    be started. The process is ended with the caller, also where a signal ends that. Python starts
    without its site module there, which takes a fifth of the time.
    """
    line = json.dumps(request).encode()
    memory = MEMORY + MEMORY_PER_BYTE * len(line)
    begin = {
        "path": [place for place in sys.path if place],  # "" is the current folder, anybody's
        "task": task,
        "seconds": SECONDS,
        "memory": memory,
    }
    # only those variables that Python needs: the others may hold secrets
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    try:
        # -I: nothing is imported from the current or the user's folder; -S: without `site`
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", bounded_child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise AttnError(
            "no process can be started: {reason}",
            where=sys.executable,
            reason=reason,
        ) from error
    with process:
        try:
            output, errors = process.communicate(
                # the process ends itself after `SECONDS`; the grace is for its start
                json.dumps(begin).encode() + b"\n" + line + b"\n",
                SECONDS + GRACE,
            )
        except subprocess.TimeoutExpired:
            raise TaskError("time") from None
        finally:
            process.kill()  # no process is left, whatever raised
            process.wait()
    return _answer(output.splitlines(), errors.decode(errors="replace"), process.returncode)


def _answer(lines: list[bytes], errors: str, code: int) -> Any:
    """The result of a task, from what its process wrote.

    lines: its standard output, JSON a line: maybe notes on the way, then {"result": …}, or
        {"kind", "reason", "place"} of a failure.
    errors: its standard error.
    code: its exit code.

    Raises TaskError for a failure, and where the process ended without a result.
    """
    answers = [json.loads(line) for line in lines]
    last = {}
    if answers:
        last = answers[-1]
    if "result" in last:
        return last["result"]
    if "kind" in last:
        raise TaskError(last["kind"], last["reason"], last["place"])

    # without a result: its time was up (faulthandler writes "Timeout"), the system ended it (the
    # exit code is the signal's number below 0), or something else went wrong
    killed = (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0))
    if not errors.startswith("Timeout") and code not in killed:
        raise TaskError(
            "ended", errors.strip().rpartition("\n")[2] or message("exit code {code}", code=code)
        )

    # the template's line at which the time was up, from the line of the Python code that Jinja made
    # of it; the last note on the way holds pairs (line of the template, line of the code)
    template_lines = {code_line: line for line, code_line in last.get("lines", ())}
    match = TEMPLATE_LINE.search(errors)
    before = []
    if match is not None:
        before = [code_line for code_line in template_lines if code_line <= int(match[1])]
    if before:
        place = template_lines[max(before)]
    else:  # of another task: the number of the pattern that was under way
        place = last.get("place")
    raise TaskError("time", place=place)
