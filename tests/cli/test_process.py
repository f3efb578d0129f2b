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
heavy = ("torch", "numpy", "rich.console", "tokenizers", "transformers", "_hashlib", "pydantic")
heavy += ("attncli.models.one_layer",)
told = []
for line in json.loads(sys.argv[1]):
    code = main(line)
    assert gc.get_freeze_count() or "--version" in line  # nothing is searched for garbage on the way out
    told.append([code, sorted(name for name in heavy if name in sys.modules)])
    gc.unfreeze()
print(json.dumps(told), file=sys.stderr)
"""
"""Runs command lines one after the other; each loads its own beside what those before it did."""


def loaded(*lines: tuple[str, ...]) -> list[set[str]]:
    """What is loaded after each of these command lines, which are answered."""
    done = finish([sys.executable, "-c", LOADED, json.dumps(lines)], stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert {code for code, _ in told} == {0}
    return [set(names) for _, names in told]


def test_help_loads_nothing_heavy() -> None:
    assert loaded(("--version",), ("--help",), ("run", "--help"), ("heads", "--help"))[-1] == set()


@pytest.mark.parametrize("command", ["run", "heads", "tokens"])
def test_small_jobs_load_no_torch_and_documents_for_machines_no_rich(command: str) -> None:
    machines = [(command, SENTENCE, form) for form in ("--json", "--plain")]
    *documents, screen = loaded(*machines, (command, SENTENCE))
    assert documents[-1] <= {"numpy", "_hashlib", "pydantic", "attncli.models.one_layer"}
    assert screen - documents[-1] <= {"rich.console"}


FILES = 70
"""Files of the package that a small run may pass through: a reader follows it in an afternoon."""


def test_a_small_run_passes_through_few_files() -> None:
    code = """
import ast
import sys
from attncli.cli import main
code = main(["run", "one two three four five six"])
modules = [module for name, module in sys.modules.items() if name.startswith("attncli")]
files = {getattr(module, "__file__", None) for module in modules} - {None}
# the docstring of a folder says what belongs there and runs nothing
files = {file for file in files if len(ast.parse(open(file, encoding="utf8").read()).body) > 1}
print(code, *sorted(files), sep="\\n", file=sys.stderr)
"""
    done = finish([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
    code_line, *files = done.stderr.splitlines()
    assert code_line == "0"
    assert 40 < len(files) <= FILES, files


def test_a_trained_model_loads_no_more_than_it_needs() -> None:
    (names,) = loaded(("run", SENTENCE, "--model", "minilm", "--json"))
    assert names - {"_hashlib"} == {
        "numpy",
        "tokenizers",
    }  # _hashlib: the first time, for the digests


def test_lines_are_answered_while_the_pipe_is_open() -> None:
    process = start(attn("run", "--lines", "--ndjson"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["text"] == "one two"
    process.stdin.close()
    assert process.wait(180) == 0


def test_a_traceback_only_when_asked_for() -> None:
    quiet = finish(attn("run", "x", "--query", "y"))
    loud = finish(attn("run", "x", "--query", "y"), {"ATTN_DEBUG": "1"})
    assert (quiet.returncode, "Traceback" in quiet.stderr) == (3, False)
    assert "Traceback" in loud.stderr


ENDED = """
import atexit, sys
import attncli.cli as cli
from attncli.__main__ import main
cli.main = lambda: print("said", end="") or 3
class Kept:
    def __del__(self):
        print("taken down", file=sys.stderr)
atexit.register(lambda: print("put away", file=sys.stderr))
kept = Kept()
if sys.argv[1] == "torch":
    sys.modules["torch"] = sys
sys.exit(main())
"""
"""A process that holds torch, or none, and what must be put away."""


@pytest.mark.parametrize(
    ("held", "told"), [("torch", ["put away"]), ("none", ["put away", "taken down"])]
)
def test_a_process_ends_with_all_it_said_and_what_it_holds_of_torch(
    held: str, told: list[str]
) -> None:
    done = finish([sys.executable, "-c", ENDED, held], stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr.split("\n")[:-1]) == (3, "said", told)
