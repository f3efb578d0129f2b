"""The linter, the formatter and the strict type checker, over the checkout that holds these tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        pytest.param(["mypy"], marks=pytest.mark.thorough),  # which takes a quarter of a minute
    ],
    ids=" ".join,
)
def test_passes(command: list[str]) -> None:
    pytest.importorskip(command[0])
    pytest.importorskip("torch")  # whose types the checker reads
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
