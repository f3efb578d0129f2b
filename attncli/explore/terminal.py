"""The terminal: where Textual draws and hears keys, and how the screen is left when a signal comes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Terminal(LinuxDriver):
    """Textual's driver on standard output: what goes to standard error may be on its way to a file."""

    def __init__(
        self, app: Any, *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        if sys.__stdout__ is not None:
            self._file = sys.__stdout__

    def stop_application_mode(self) -> None:
        """Leave an empty screen behind: some terminals keep lines of a screen that grew while it was shown."""
        self.write("\x1b[0m\x1b[H\x1b[2J")
        super().stop_application_mode()


@contextmanager
def leaving(leave: Callable[[int], None]) -> Iterator[None]:
    """In the block a signal that ends programs calls `leave` with its number, so that the screen is put away first.

    What the caller has ignored stays ignored.
    """
    before: dict[int, Any] = {}

    def heard(number: int, frame: FrameType | None) -> None:
        del frame
        leave(number)

    with suppress(ValueError):  # only the main thread hears signals
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keyboard() -> bool:
    """Take keys from the terminal where standard input was a pipe; whether there is a terminal."""
    if os.isatty(0):
        return True
    try:
        opened = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(opened, 0)
    os.close(opened)
    return True
