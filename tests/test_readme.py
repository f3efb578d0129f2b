"""Every `$ …` block of the README is run, and prints what the README says it prints.

A line `…` in the expected output stands for any number of lines. Blocks under a heading that
names an extra are skipped where that extra is not installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def sessions() -> list[tuple[str, str]]:
    """Each command of the README with the output that follows it."""
    found = []
    for block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert parts[0] == "", f"a console block begins with a command, not with {parts[0]!r}"
        for part in parts[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more.strip()
            found.append((command, output))
    return found


def pattern(expected: str) -> str:
    """The regular expression for an expected output."""
    lines = [".*?" if line.strip() == "…" else re.escape(line) for line in expected.rstrip("\n").split("\n")]
    return "\n".join(lines).replace("\n.*?\n", "\n(?:.*\n)*?").removesuffix("\n.*?") + (
        "(?:\n.*)*" if lines[-1] == ".*?" else ""
    )


@pytest.mark.parametrize(
    ("command", "expected"), sessions(), ids=lambda value: value[:60] if isinstance(value, str) else None
)
def test_block(command: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "sample_inputs").symlink_to(ROOT / "sample_inputs")
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "HOME": str(tmp_path),
        "COLUMNS": "80",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr
    shown = (done.stdout + done.stderr).rstrip("\n")
    assert re.fullmatch(pattern(expected), shown), f"README says:\n{expected}\nit prints:\n{shown}"


def test_the_pattern_can_fail() -> None:
    assert re.fullmatch(pattern("a\n…\nz\n"), "a\nb\nc\nz")
    assert re.fullmatch(pattern("a\n…\n"), "a\nb\nc")
    assert not re.fullmatch(pattern("a\n…\nz\n"), "a\nb\nc")
    assert not re.fullmatch(pattern("a.c\n"), "abc")


def test_every_command_is_documented_and_has_an_example_in_its_help() -> None:
    from asking import ask

    from attncli.cli.app import COMMANDS

    readme = (ROOT / "README.md").read_text("utf-8")
    for name in COMMANDS:
        assert f"attn {name}" in readme, f"the README does not show attn {name}"
        assert f"attn {name}" in ask(name, "--help").out.partition("\n")[2], f"the help of attn {name} has no example"
