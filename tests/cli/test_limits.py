"""Work that would not fit into memory is refused with exit 5 before it starts, by every command
that runs a model.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from asking import ask
from commands import commands
from msgspec.structs import replace
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

SAMPLES = Path(__file__).parent.parent.parent / "sample_inputs"
TEXT = "the cat sat"

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", TEXT),
    "heads": ("heads", TEXT),
    "find": ("find", TEXT, "--from", "#1", "--to", "#0"),
    "explain": ("explain", TEXT),
    "matrix-softmax": ("explain", "matrix-softmax", TEXT),
    "order": ("explain", "order", TEXT),
    "compare": ("compare", TEXT, "the dog sat"),
    "generate": ("run", TEXT, "--generate", "2"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made("gpt2 with head", tmp_path_factory.mktemp("gpt2"))


def _made(name: str, folder: Path) -> Path:
    """A small checkpoint with the sample tokenizer."""
    pytest.importorskip("transformers")
    case = CASES[name]
    made = make(replace(case, config={**case.config, "vocab_size": 320}), folder)
    shutil.copy(SAMPLES / "tokenizer.json", made / "tokenizer.json")
    return made


@pytest.mark.parametrize("command", COMMANDS)
def test_a_checkpoint_that_would_not_fit_is_refused(command: str, folder: Path) -> None:
    question = (*COMMANDS[command], "--model", str(folder))
    found = ask(*question, "--max-memory", "1kB")
    assert (found.code, found.out) == (5, "")
    assert "the limit is 1.0 kB (--max-memory)" in found.err
    assert ask(*question, "--max-memory", "1GB") == ask(*question)
    assert ask(*question, "--max-memory", "much").code == 2


def test_two_texts_that_would_not_fit_are_refused(tmp_path: Path) -> None:
    question = (
        "cross",
        TEXT,
        "the dog",
        "--model",
        str(_made("t5", tmp_path)),
        "--show",
        "alignment",
    )
    found = ask(*question, "--max-memory", "1kB")
    assert (found.code, found.out) == (5, "")
    assert ask(*question, "--max-memory", "1GB").code == 0
    toy = (
        "cross",
        "one " * 90,
        "two " * 90,
        "--num-heads",
        "8",
        "--show",
        "alignment",
        "--max-memory",
    )
    assert [ask(*toy, limit).code for limit in ("1MB", "9MB")] == [5, 0]


def test_generating_counts_the_keys_that_are_kept(folder: Path) -> None:
    question = ("run", TEXT, "--model", str(folder), "--generate")
    assert ask(*question, "1", "--max-memory", "165kB").code == 0
    assert ask(*question, "20", "--max-memory", "165kB").code == 5


LESS = {
    **COMMANDS,
    "why": ("why", TEXT, "--from", "#2", "--to", "#1"),
    "ablate": ("ablate", TEXT),
    "logits": ("logits", TEXT),
    "patch": ("patch", TEXT, "the cab sat"),
    "next": ("next", TEXT),
    "answer": ("answer", TEXT, "--region", "r=tokens:0-1"),
    "cache": ("cache", TEXT, "--budget", "2"),
}


@pytest.mark.parametrize("command", LESS)
def test_what_takes_less_names_options_that_are_there(command: str, tmp_path: Path) -> None:
    """Of the command, and of the model: one layer of one head has no other layers or heads to
    choose."""
    options = {
        name
        for path, inner in commands()
        if path in (LESS[command][0], " ".join(LESS[command][:2]))
        for parameter in inner.params
        for name in parameter.opts
    }
    for layers, heads in ((1, 1), (2, 3)):
        folder = small_gpt2(tmp_path / f"of {layers}", layers=layers)
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**settings, "n_head": heads}))
        told = ask(*LESS[command], "--model", str(folder), "--max-memory", "1kB").err
        (less,) = [line for line in told.splitlines() if line.startswith("try: ")]
        named = set(re.findall(r"--[a-z-]+", less))
        assert named <= options, less
        assert "shorter text" in less or named
        if layers == heads == 1:
            assert not named & {"--layer", "--head"}, less
