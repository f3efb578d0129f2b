"""What runs in a bounded process: one task, within limits of memory and time. It imports what its
task needs and nothing else, since every command with a chat waits for it."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from math import ceil
from typing import Any, cast

MODULES = {
    "template": "attncli.inputs.template_task",
    "pattern": "attncli.inputs.pattern_task",
}
"""Where each task stands: a function `perform` of the request and of a function that writes a line
at once."""
Task = Callable[[Mapping[str, Any], Callable[[object], None]], object]


def main() -> None:
    """Perform the task that standard input holds, and write its result, or how it failed, as the
    last line of standard output.

    The first line that comes in tells where modules are, the task, and its seconds and bytes of
    memory; the second is the request.
    """
    begin = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = begin["path"]
    from attncli.inputs.task_failure import TaskError

    try:
        perform = cast(Task, import_module(MODULES[begin["task"]]).perform)
    except ImportError as error:
        _write({"kind": "lacking", "reason": error.name or str(error), "place": None})
        return
    request = json.loads(sys.stdin.buffer.readline())
    _set_limits(begin["seconds"], begin["memory"])
    try:
        # a task may write lines of its own on the way, by which the parent knows where it was
        _write({"result": perform(request, _write)})
        return
    except TaskError as error:
        failure = {"kind": error.kind, "reason": str(error), "place": error.place}
    except MemoryError as error:
        line = getattr(error, "template_line", None)  # put there by the task "template"
        failure = {"kind": "memory", "reason": "", "place": line}
    # written only here, where the error, and with it what filled the memory, has been freed
    _write(failure)


def _write(value: object) -> None:
    """Write a value as a line of JSON to standard output, and flush it."""
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")
    sys.stdout.buffer.flush()


def _set_limits(seconds: float, memory: int) -> None:
    """Limit this process: it ends once its time is up, with its current line on standard error; its
    memory is bounded, and it may write no file, where the system supports that.

    seconds: until it is ended.
    memory: bytes.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    with suppress(ImportError):  # Windows has none
        import resource

        # a second more than the timer above has, which says what line it stopped
        limits = (("RLIMIT_AS", memory), ("RLIMIT_CPU", ceil(seconds) + 1), ("RLIMIT_FSIZE", 0))
        for name, limit in limits:
            with suppress(AttributeError, ValueError, OSError):  # not known here, or set lower
                resource.setrlimit(getattr(resource, name), (limit, limit))


if __name__ == "__main__":
    main()
