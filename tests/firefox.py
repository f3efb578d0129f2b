"""Firefox without a screen, driven by its own remote protocol, Marionette: pages, scripts, keys and
a mouse.

Source of the protocol: Mozilla, Marionette's protocol documentation; the commands are W3C
WebDriver's.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from processes import start

FIREFOX = which("firefox-esr") or which("firefox")
PATIENCE = 120
KEYS = {
    "ArrowRight": "\ue014",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowDown": "\ue015",
    "Escape": "\ue00c",
}
KEYS |= {"Enter": "\ue007", "Tab": "\ue004"}


class Firefox:
    """A window of Firefox that listens on a port."""

    def __init__(self, port: int) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                break
            except OSError:
                assert time.monotonic() < end, "Firefox did not listen"
                time.sleep(0.2)
        self._rest, self._number = b"", 0
        self._receive()
        self.ask("WebDriver:NewSession", {})
        self.ask("WebDriver:SetTimeouts", {"script": PATIENCE * 1000})
        self.ask("WebDriver:SetWindowRect", {"width": 1280, "height": 1000})

    def _receive(self) -> Any:
        while b":" not in self._rest:
            self._rest += self._socket.recv(1 << 16)
        size, _, self._rest = self._rest.partition(b":")
        while len(self._rest) < int(size):
            self._rest += self._socket.recv(1 << 16)
        raw, self._rest = self._rest[: int(size)], self._rest[int(size) :]
        return json.loads(raw)

    def ask(self, command: str, values: dict[str, Any]) -> Any:
        """What a command answers."""
        self._number += 1
        raw = json.dumps([0, self._number, command, values]).encode()
        self._socket.sendall(b"%d:%s" % (len(raw), raw))
        _, _, error, answer = self._receive()
        assert error is None, error
        return answer

    def go(self, address: str) -> None:
        """Open a page."""
        self.ask("WebDriver:Navigate", {"url": address})

    def value(self, script: str, *given: Any) -> Any:
        """What the body of a function gives in the page."""
        return self.ask("WebDriver:ExecuteScript", {"script": script, "args": list(given)})["value"]

    def later(self, script: str) -> Any:
        """What the body of a function tells its last argument in the page."""
        return self.ask("WebDriver:ExecuteAsyncScript", {"script": script, "args": []})["value"]

    def press(self, *keys: str) -> None:
        """Press and let go of keys, one after the other."""
        actions = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self.ask(
            "WebDriver:PerformActions",
            {"actions": [{"type": "key", "id": "keys", "actions": actions}]},
        )

    def drag(self, places: Sequence[tuple[float, float]]) -> None:
        """Press the mouse at the first place of the window, move it along the others and let go at
        the last.
        """
        moves = [
            {
                "type": "pointerMove",
                "x": round(x),
                "y": round(y),
                "duration": 20,
                "origin": "viewport",
            }
            for x, y in places
        ]
        actions = [
            moves[0],
            {"type": "pointerDown", "button": 0},
            *moves[1:],
            {"type": "pointerUp", "button": 0},
        ]
        self._point("mouse", actions)

    def tap(self, x: float, y: float) -> None:
        """Touch a place of the window with a finger."""
        move = {
            "type": "pointerMove",
            "x": round(x),
            "y": round(y),
            "duration": 20,
            "origin": "viewport",
        }
        self._point(
            "touch",
            [move, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}],
        )

    def _point(self, kind: str, actions: Sequence[dict[str, Any]]) -> None:
        pointer = {
            "type": "pointer",
            "id": kind,
            "parameters": {"pointerType": kind},
            "actions": actions,
        }
        self.ask("WebDriver:PerformActions", {"actions": [pointer]})

    def printed(self) -> bytes:
        """The page on paper, as PDF."""
        return b64decode(self.ask("WebDriver:Print", {"background": True})["value"])


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """Firefox with a profile of its own in a folder. Skips where there is none."""
    if FIREFOX is None:
        pytest.skip("no firefox-esr here (a Debian package)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    profile = folder / "profile"
    profile.mkdir()
    (profile / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
    command = [FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with start(command, {"HOME": str(folder)}, **silent) as started:
        try:
            yield Firefox(port)
        finally:
            started.terminate()
