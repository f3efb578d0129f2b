"""What only a whole process shows: what it imports, that it answers at once, where tracebacks are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from processes import attn, finish, start

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
    done = finish([sys.executable, "-c", LOADED, *arguments], stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    code, names = json.loads(done.stderr.splitlines()[-1])
    return code, names


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("run", "--help"), ("heads", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments) == (0, [])


@pytest.mark.parametrize("command", ["run", "heads", "tokens"])
def test_small_jobs_load_no_torch_and_documents_for_machines_no_rich(command: str) -> None:
    for machine in ([], ["--json"], ["--plain"]):
        code, names = loaded(command, SENTENCE, *machine)
        assert code == 0
        rich = set() if machine else {"rich.console"}
        assert set(names) <= {"numpy", "_hashlib", "attncli.models.one_layer"} | rich


def test_a_trained_model_loads_no_more_than_it_needs() -> None:
    code, names = loaded("run", SENTENCE, "--model", "minilm", "--json")
    assert code == 0
    assert set(names) - {"_hashlib"} == {"numpy", "tokenizers"}  # _hashlib: the first time, for the digests


def test_lines_are_answered_while_the_pipe_is_open() -> None:
    process = start(attn("run", "--lines", "--ndjson"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["text"] == "one two"
    process.stdin.close()
    assert process.wait(30) == 0


def test_a_traceback_only_when_asked_for() -> None:
    quiet = finish(attn("run", "x", "--query", "y"))
    loud = finish(attn("run", "x", "--query", "y"), {"ATTN_DEBUG": "1"})
    assert (quiet.returncode, "Traceback" in quiet.stderr) == (3, False)
    assert "Traceback" in loud.stderr
