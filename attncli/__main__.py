"""The command `attn`, also called `python -m attncli`: the first of our lines that its process runs."""

from __future__ import annotations

import os

# `signal` itself imports for a millisecond
from _signal import SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]


def _leave(number: int, frame: object) -> None:
    """End at once: nothing has been begun that would have to be put away."""
    del frame
    os._exit(128 + number)


if getsignal(SIGINT) is default_int_handler:  # who started us may have it ignored
    # an interrupt while modules are imported would otherwise be a traceback through them
    signal(SIGINT, _leave)


def main() -> int:
    """Run the command line of this process and return its exit code."""
    from attncli.cli import main as answered
    from attncli.errors import ExitCode

    code = answered()
    if code == ExitCode.INTERRUPTED:
        # CPython remembers an interrupt inside an exec of text (which is how dataclasses are made) and would end
        # `python -m` by the signal in place of this code; the next exec makes it forget.
        exec("pass")
    return code


if __name__ == "__main__":
    import sys

    sys.exit(main())
