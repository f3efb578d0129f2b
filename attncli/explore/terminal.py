"""The terminal: where Textual draws, and hears keys."""

from __future__ import annotations

import os
import sys
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


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


def keyboard() -> bool:
    """Take keys from the terminal where standard input was a pipe; whether there is a terminal."""
    if os.isatty(0):
        return True
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(descriptor, 0)
    os.close(descriptor)
    return True
