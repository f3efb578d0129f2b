"""Work that would not fit into memory is refused with exit 5 before it starts, by every command
that runs a model.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from asking import ask
from msgspec.structs import replace
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
