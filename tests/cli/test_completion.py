"""What bash, zsh and fish make of a tab: the real shells, where they are installed."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from asking import ask
from processes import clean_environment, finish

PATIENCE = 60.0
TYPED = {
    "attn gui": "attn guide ",
    "attn run --adap": "attn run --adapter ",
    "attn run --mask win": "attn run --mask window:",
    "attn run --mask=win": "attn run --mask=window:",
    "attn heads --head L7": "attn heads --head L7H",
    "attn heads --sort entropy:d": "attn heads --sort entropy:desc ",
    "attn heads --sort=entropy:d": "attn heads --sort=entropy:desc ",
    "attn run --figure-style=dark,85": "attn run --figure-style=dark,85mm ",
    'attn find "the cat sat" --from ca': 'attn find "the cat sat" --from cat ',
    'attn find "the cat sat" --from=ca': 'attn find "the cat sat" --from=cat ',
}
"""What is typed before the tab, and what then stands there, the blank behind it included."""
SET_UPS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "PS1='$ '; source {script}"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PS1='$ '; autoload -U compinit; compinit -u -d {folder}/dump; source {script}",
    ),
}


def needs(shell: str) -> None:
    if shutil.which(shell) is None or sys.platform == "win32":
        pytest.skip(f"{shell} is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the command as `attn`, and each shell's script."""
    command = tmp_path / "attn"
    run = "import sys; from attncli.__main__ import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c \'{run}\' "$@"\n')
    command.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / f"completion.{shell}").write_text(ask("--show-completion", shell).out)
    return tmp_path


def variables(folder: Path) -> dict[str, str]:
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return clean_environment(PATH=path, TERM="dumb", HOME=str(folder))


@contextmanager
def terminal(shell: str, folder: Path) -> Iterator[int]:
    """A shell in a terminal of its own, set up for completion: the descriptor to type into and to
    read from.
    """
    import pty

    words, set_up = SET_UPS[shell]
    child, keyboard = pty.fork()
    if not child:
        os.execvpe(words[0], words, variables(folder))
    try:
        script = folder / f"completion.{shell}"
        os.write(
            keyboard,
            f"stty columns 200; {set_up.format(script=script, folder=folder)}; echo rea''dy\n".encode(),
        )
        read_until(keyboard, "ready\r\n")
        yield keyboard
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(keyboard)


def read_until(keyboard: int, text: str) -> None:
    """Read what the terminal shows until this is there."""
    stop, shown = time.monotonic() + PATIENCE, b""
    while text.encode() not in shown:
        assert time.monotonic() < stop, (text, shown)
        if select.select([keyboard], [], [], 0.1)[0]:
            shown += os.read(keyboard, 65536)


@pytest.mark.thorough
@pytest.mark.parametrize("shell", list(SET_UPS))
def test_a_shell_completes_values_with_colons_and_equals_signs(shell: str, folder: Path) -> None:
    needs(shell)
    with terminal(shell, folder) as keyboard:
        for typed, completed in TYPED.items():
            # a mark typed behind it shows where the blank is; then the line is printed as it stands
            os.write(keyboard, f"{typed}\t%%".encode())
            read_until(keyboard, "%%")
            os.write(keyboard, b"\x01printf '<%s>' '\x05'\n")
            read_until(keyboard, f"<{completed}%%>")


@pytest.mark.thorough
def test_fish_completes_values_behind_an_equals_sign(folder: Path) -> None:
    needs("fish")
    script = f"source {folder / 'completion.fish'}\n" + "".join(
        f"complete --do-complete '{typed}'\n" for typed in TYPED
    )
    found = finish(["fish", "--no-config", "-c", script], variables(folder))
    offered = {line.partition("\t")[0] for line in found.stdout.splitlines()}
    for completed in TYPED.values():
        assert any(value.startswith(completed.split()[-1]) for value in offered), (
            offered,
            found.stderr,
        )


def test_the_script_of_any_shell_is_told_in_any_other(folder: Path) -> None:
    needs("bash")
    found = finish(
        ["bash", "--norc", "-c", "attn --show-completion fish; attn --show-completion=zsh"],
        variables(folder),
    )
    assert "complete --command attn" in found.stdout
    assert "#compdef attn" in found.stdout
