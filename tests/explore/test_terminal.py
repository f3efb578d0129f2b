"""The command in a real terminal, which tmux gives: start, keys, a new size, and every way out;
where there is none.
"""

from __future__ import annotations

import os
import pty
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from asking import ask
from processes import attn, finish
from textual import events
from textual.drivers.linux_driver import LinuxDriver

from attncli.explore.explorer import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
PATIENCE = 180.0
FAILING = """
import sys
from attncli.explore import actions
def broken(walk):
    raise RuntimeError("a test broke this")
actions.ACTIONS["save"] = broken
from attncli.__main__ import main
sys.exit(main())
"""


class Pane:
    """A shell in a terminal of its own, 80 × 24."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tmux = ["tmux", "-S", str(folder / "socket"), "-f", os.devnull]
        self.tell(
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "env",
            "PS1=$ ",
            "bash",
            "--norc",
            "--noprofile",
        )

    def tell(self, *words: str) -> str:
        return finish([*self._tmux, *words], {"TERM": "xterm-256color"}).stdout

    def text(self) -> str:
        return self.tell("capture-pane", "-p")

    def start(self, command: list[str]) -> None:
        quoted = " ".join(f"'{part}'" for part in command)
        self.keys(
            f"clear; {quoted}; echo ended $? $(stty -a | grep -o -e '-*icanon' -e '-*echo ')",
            "Enter",
        )

    def keys(self, *keys: str) -> None:
        self.tell("send-keys", *keys)

    def until(self, part: str, gone: str = "\0") -> str:
        """The screen once it has this part, and the other no more."""
        stop = time.monotonic() + PATIENCE
        while part not in (found := self.text()) or gone in found:
            assert time.monotonic() < stop, found
            time.sleep(0.1)
        return found

    def explored(self) -> str:
        """The explorer's screen once all heads are there."""
        return self.until("strongest links", gone="running")

    def ended(self, code: int) -> str:
        """That the command ended so, and the terminal is as it was: lines are read and echoed, the
        cursor is there, the mouse is not listened to, and the first screen is back."""
        found = self.until(f"ended {code}")
        assert f"ended {code} icanon echo" in found, found
        told = self.tell(
            "display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}"
        )
        assert told.split() == ["0", "1", "0"]
        return found

    def program(self) -> int:
        """The process that runs in the shell."""
        shell = self.tell("display-message", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[0])


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    made = Pane(tmp_path)
    yield made
    made.tell("kill-server")


@pytest.mark.thorough
def test_keys_a_new_size_and_the_way_out(pane: Pane) -> None:
    pane.start(attn("explore", "humpty dumpty sat on"))
    found = pane.explored()
    assert "1 layer × 8 heads · 4 tokens" in found
    assert "humpty" in found
    pane.keys("Home", "Right", "Right")
    pane.until("layer 0 head 2\n")
    pane.keys("2")
    pane.until("links · where the word looks")
    pane.tell("resize-window", "-x", "120", "-y", "40")
    stop = time.monotonic() + PATIENCE
    while len(pane.text().rstrip("\n").split("\n")) != 40 or "i new text" not in pane.text():
        assert time.monotonic() < stop
        time.sleep(0.1)
    pane.keys("q")
    assert "links" not in pane.ended(0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SIGTERM", 143),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in (("SIGHUP", 129), ("SIGINT", 130))
        ),
    ],
)
def test_signals_put_the_screen_away(pane: Pane, name: str, code: int) -> None:
    pane.start(attn("explore", "humpty dumpty sat on"))
    pane.until("q quit")
    os.kill(pane.program(), getattr(signal, name))
    pane.ended(code)


@pytest.mark.thorough
@pytest.mark.parametrize("ignores", [False, True])
def test_a_terminal_that_goes_away_ends_it(ignores: bool) -> None:
    child, end = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores else signal.SIG_DFL)
        command = attn("explore", "humpty dumpty sat on")
        os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color"})
    screen = b""
    while b"humpty" not in screen:
        screen += os.read(end, 1 << 16)
    os.close(end)
    stop = time.monotonic() + PATIENCE
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > stop:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)
    assert os.waitstatus_to_exitcode(ended[1]) == 129


@pytest.mark.thorough
def test_an_error_is_told_once_on_the_first_screen(pane: Pane) -> None:
    from sys import executable

    (pane.folder / "failing.py").write_text(FAILING)
    pane.start([executable, str(pane.folder / "failing.py"), "explore", "humpty dumpty"])
    pane.until("q quit")
    pane.keys("s")
    found = pane.ended(1)
    assert found.count("a test broke this") == 1
    assert "Traceback" not in found


@pytest.mark.thorough
def test_a_piped_text_leaves_the_keys_to_the_terminal(pane: Pane) -> None:
    command = " ".join(f"'{part}'" for part in attn("explore"))
    pane.keys(
        f"clear; echo five words come from here | {command} 2>/dev/null; echo ended $?", "Enter"
    )
    pane.until("5 tokens")
    pane.keys("C-c")
    pane.until("ended 130")


def test_without_a_terminal_it_says_what_to_do_instead() -> None:
    done = finish(attn("explore", "a b"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard output is none" in done.stderr
    assert "attn run" in done.stderr
    assert ask("explore", "a b", terminal=True, TERM="dumb").code == 2
    said = ask("explore", "a b", "--lang", "zh", terminal=True, TERM="dumb").err
    assert said.startswith("错误：attn explore 占满终端的屏幕")


@pytest.mark.parametrize("length", [1, 99, 100, 101, 5000])
def test_no_more_keys_wait_than_a_hundred(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast they come, in the application or in the line to type in; but Ctrl-C always."""
    handed_on: list[str] = []
    monkeypatch.setattr(
        LinuxDriver, "process_message", lambda self, message: handed_on.append(message.key)
    )
    terminal = Terminal.__new__(Terminal)
    waiting = SimpleNamespace(keys_taken=0, line=SimpleNamespace(message_queue_size=0))
    terminal._keys, terminal._explorer = 0, waiting
    for _ in range(length):
        terminal.process_message(events.Key("x", "x"))
    terminal.process_message(events.Key("ctrl+c", None))
    assert handed_on == ["x"] * min(length, 100) + ["ctrl+c"]
    waiting.keys_taken = len(handed_on)
    waiting.line.message_queue_size = 100
    terminal.process_message(events.Key("y", "y"))
    assert handed_on[-1] == "ctrl+c"
    waiting.line.message_queue_size = 0
    terminal.process_message(events.Key("y", "y"))
    assert handed_on[-1] == "y"
