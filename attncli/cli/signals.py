"""What ends a command from outside: Ctrl-C, SIGTERM, SIGHUP. Each puts away what was begun, and has its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from attncli.cli.output import Environment

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class Stopped(BaseException):
    """The process was told to end; no Exception, so that nothing takes it for a failure of its own."""


@contextmanager
def heeded(environment: Environment) -> Iterator[None]:
    """In the block these signals are raised where the program is, and `environment.stopped` says which came.

    What the caller has ignored (`nohup`, or `&` in a script) stays ignored. A second one ends at once, and also then
    no half-written file is left.
    """
    before: dict[int, Any] = {}

    def at_once(number: int, frame: FrameType | None) -> None:
        from attncli.inputs.atomic import discard_all

        discard_all()
        os._exit(128 + number)

    def stop(number: int, frame: FrameType | None) -> None:
        environment.stopped = number
        for each in before:
            signal.signal(each, at_once)
        # what is interrupted in a place where nothing can be raised (a destructor) says so to nobody
        sys.unraisablehook = lambda said: None
        raise KeyboardInterrupt if number == signal.SIGINT else Stopped

    with suppress(ValueError):  # only the main thread hears signals
        for name in NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
