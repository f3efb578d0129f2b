"""What ends a command from outside: Ctrl-C, SIGTERM, SIGHUP. Each puts away what was begun, and has its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from attncli.cli.environment import Environment

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class Stopped(BaseException):
    """The process was told to end; no Exception, so that nothing takes it for a failure of its own."""


@contextmanager
def handle_signals(environment: Environment) -> Iterator[None]:
    """In the block these signals are raised where the program is, and `environment.stop_signal` says which came.

    What the caller has ignored (`nohup`, or `&` in a script) stays ignored. A second one ends at once, as
    does one that comes while a module is imported or in a destructor, and also then no half-written file is left.
    """
    caught: dict[int, Any] = {}

    def at_once(number: int, frame: FrameType | None) -> None:
        from attncli.inputs.atomic import discard_all

        discard_all()
        if environment.stderr_is_terminal and environment.variables.get("TERM") != "dumb":
            environment.stderr.write("\x1b[?25h")  # the cursor, which progress hides
        os._exit(128 + number)

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        # raised in a destructor, from which nothing is raised on; what else is said while all ends is for nobody
        if environment.stop_signal is not None and issubclass(unraisable.exc_type, KeyboardInterrupt | Stopped):
            at_once(environment.stop_signal, None)

    def stop(number: int, frame: FrameType | None) -> None:
        environment.stop_signal = number
        for signal_number in caught:
            signal.signal(signal_number, at_once)
        sys.unraisablehook = lost
        if _importing(frame):  # torch imports Python from its C++, which aborts where anything is raised through it
            at_once(number, frame)
        raise KeyboardInterrupt if number == signal.SIGINT else Stopped

    with _catching(stop, caught):
        yield


@contextmanager
def leaving(leave: Callable[[int], None]) -> Iterator[None]:
    """In the block a signal calls `leave` with its number, so that a full screen is put away first."""
    with _catching(lambda number, frame: leave(number), {}):
        yield


@contextmanager
def _catching(heard: Callable[[int, FrameType | None], None], before: dict[int, Any]) -> Iterator[None]:
    """In the block these signals are told to `heard`, but for those that the caller has ignored. before: gets what
    heard each of them until then."""
    with suppress(ValueError):  # only the main thread hears signals
        for name in NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported where the program is."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
