"""The command `attn`, also called `python -m attncli`: the first of our lines that its process
runs.
"""

from __future__ import annotations

import atexit
import os
import sys

# `signal` itself imports for a millisecond
from _signal import SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]


def _leave(number: int, frame: object) -> None:
    """Handler of an interrupt until the command line is running: end the process at once, with exit
    code 128 + `number`."""
    del frame
    os._exit(128 + number)


if getsignal(SIGINT) is default_int_handler:  # who started us may have it ignored
    # an interrupt while modules are imported would otherwise be a traceback through them
    signal(SIGINT, _leave)


ROOM = 2**24
"""Bytes that a disk takes on where Python keeps modules compiled: several times the largest."""


def _disk_has_room() -> bool:
    """Whether files of `ROOM` bytes can be written where this package is; true where the system
    does not tell."""
    try:
        import resource

        place = os.statvfs(__file__)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    except (ImportError, OSError):
        return True
    is_limited = limit != resource.RLIM_INFINITY and limit < ROOM
    return not is_limited and place.f_bavail * place.f_frsize >= ROOM


def main() -> int:
    """Run the command line of this process and return its exit code."""
    # Python before 3.12.8 and 3.13.1 keeps a compiled module that the disk cut short, and every
    # later start breaks on it
    sys.dont_write_bytecode = sys.dont_write_bytecode or not _disk_has_room()
    from attncli.cli import main as run_cli
    from attncli.errors import ExitCode

    code = run_cli()
    if code == ExitCode.INTERRUPTED:
        # CPython remembers an interrupt inside an exec of text (which is how dataclasses are made)
        # and would end `python -m` by the signal in place of this code; the next exec makes it
        # forget.
        exec("pass")
    if "torch" in sys.modules:
        _end(code)
    return code


def _end(code: int) -> None:
    """Flush both output streams, run the exit functions and end the process with this exit code,
    without the interpreter's own teardown, which takes a fifth of a second with torch. Returns
    where a stream cannot be flushed.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):
        return  # closed or full: the interpreter's own end tells
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
