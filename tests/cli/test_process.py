"""What only a whole process shows: imports, pipes that close, interrupts, unwritable places."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SENTENCE = "The animal didn't cross the street because it was too tired"
LOADED = """
import gc, json, sys
from attncli.cli import main
code = main(sys.argv[1:])
assert gc.get_freeze_count() or "--version" in sys.argv  # nothing is searched for garbage on the way out
heavy = ("torch", "numpy", "rich.console", "tokenizers", "transformers", "_hashlib", "attncli.models.one_layer")
print(json.dumps([code, sorted(name for name in heavy if name in sys.modules)]), file=sys.stderr)
"""


def loaded(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    code, names = json.loads(done.stderr.splitlines()[-1])
    return code, names


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("run", "--help"), ("heads", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments) == (0, [])


@pytest.mark.parametrize("command", ["run", "heads", "tokens"])
def test_small_jobs_load_neither_torch_nor_rich(command: str) -> None:
    code, names = loaded(command, SENTENCE)
    assert code == 0
    assert set(names) <= {"numpy", "_hashlib", "attncli.models.one_layer"}


def test_a_trained_model_loads_no_more_than_it_needs() -> None:
    code, names = loaded("run", SENTENCE, "--model", "minilm", "--json")
    assert code == 0
    assert set(names) - {"_hashlib"} == {"numpy", "tokenizers"}  # _hashlib: the first time, for the digests


def attn(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "attncli", *arguments]


def test_a_closed_pipe_ends_quietly() -> None:
    text = " ".join(f"word{n}" for n in range(97))  # several times what a pipe holds
    process = subprocess.Popen(attn("run", text, "--plain"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b"layer")
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 0


def test_lines_are_answered_while_the_pipe_is_open() -> None:
    process = subprocess.Popen(attn("run", "--lines", "--ndjson"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["text"] == "one two"
    process.stdin.close()
    assert process.wait(30) == 0


def test_ctrl_c_ends_with_130_and_leaves_no_half_written_file(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    process = subprocess.Popen(
        attn("run", "--lines", "--ndjson", "--output", str(target)), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    for _ in range(200):
        if any(tmp_path.iterdir()):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            attn("run", SENTENCE), stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_traceback_only_when_asked_for() -> None:
    quiet = subprocess.run(attn("run", "x", "--query", "y"), capture_output=True, text=True, check=False, timeout=60)
    loud = subprocess.run(
        attn("run", "x", "--query", "y"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "ATTN_DEBUG": "1"},
    )
    assert (quiet.returncode, "Traceback" in quiet.stderr) == (3, False)
    assert "Traceback" in loud.stderr
