"""Without torch: what does not need it answers, what does is refused with the command that installs
it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from processes import finish

from attncli.extras import install_command

ROOT = Path(__file__).parents[2]
TEXT = "it was too tired"
ANSWERED = (
    ("run", TEXT), ("run", TEXT, "--model", "minilm", "--json"), ("run", TEXT, "--html", "page.html"),
    ("run", TEXT, "--figure", "run.png"), ("run", TEXT, "--save", "run.safetensors"), ("view", "run.safetensors"),
    ("run", "--lines", "--file", "sentences.txt", "--model", "minilm", "--ndjson"),
    ("heads", TEXT, "--labels"),
    ("explain", TEXT), ("explain", "softmax", "2", "1"), ("explain", "scaling"), ("explain", "metric", "entropy"),
    ("find", TEXT, "--from", "it", "--to", "was"), ("find", TEXT, "--from", "it", "--to", "was", "--effect"),
    ("ablate", TEXT), ("cache", TEXT, "--mask", "causal"), ("compare", TEXT, "it was tired"),
    ("patch", TEXT, "he was too tired"), ("cross", TEXT, "the animal"),
    ("tensors", "captured.npz", "--mask", "causal"), ("mask", "causal"), ("cost", "-n", "32"),
    ("cost", "-n", "32", "--measure"), ("tokens", TEXT),
    ("weights", "init", "w.npz"), ("weights", "show", "w.npz"), ("weights", "convert", "w.npz", "w.safetensors"),
    ("models", "list"), ("models", "show", "minilm"), ("schema", "attn.run/1"), ("guide", "learners"),
)  # fmt: skip
REFUSED = (
    ("run", TEXT, "--backend", "torch"), ("run", TEXT, "--weights", "single_head.pt"),
    ("scan", "minilm", "sentences.txt", "-o", "scan"), ("models", "verify", "minilm", TEXT),
)  # fmt: skip
PROGRAM = """
import json, sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] == "torch" else find(name, *rest)
from io import BytesIO, StringIO
from attncli.cli import main
from attncli.cli.environment import Environment

def ask(line):
    err = StringIO()
    streams = dict(stdin=BytesIO(), stdout=BytesIO(), stderr=err, stdin_is_terminal=True)
    return main(line, Environment(variables={"LANG": "C.UTF-8"}, **streams)), err.getvalue()

print(json.dumps([ask(line) for line in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, str]]:
    """The exit code and standard error of every line, all in one process that cannot import torch."""
    folder = tmp_path_factory.mktemp("without_torch")
    shutil.copytree(ROOT / "sample_inputs", folder, dirs_exist_ok=True)
    lines = [*ANSWERED, *REFUSED]
    done = finish([sys.executable, "-c", PROGRAM], given=json.dumps(lines).encode(), cwd=folder)
    return {
        line: (code, err) for line, (code, err) in zip(lines, json.loads(done.stdout), strict=True)
    }


@pytest.mark.many
@pytest.mark.parametrize("line", ANSWERED, ids=" ".join)
def test_what_does_not_need_torch_answers(
    line: tuple[str, ...], answers: dict[tuple[str, ...], tuple[int, str]]
) -> None:
    code, err = answers[line]
    assert code == 0, err


@pytest.mark.parametrize("line", REFUSED, ids=" ".join)
def test_what_needs_torch_says_how_to_install_it(
    line: tuple[str, ...], answers: dict[tuple[str, ...], tuple[int, str]]
) -> None:
    code, err = answers[line]
    assert code == 4, err
    assert f"try: {install_command('torch')}" in err
