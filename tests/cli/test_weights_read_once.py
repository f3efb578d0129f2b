"""Commands that run a model many times read each of its weights once."""

import re
from pathlib import Path

import pytest
from asking import ask
from small_gpt2 import small_gpt2

LINES = {
    "run": ("run", "a b a"),
    "generate": ("run", "a b a", "--generate", "3"),
    "ablate": ("ablate", "a b a"),
    "patch": ("patch", "a b a", "a b c"),
    "cache": ("cache", "a b a b"),
    "find --effect": ("find", "a b a", "--from", "#2", "--to", "#1", "--effect"),
}
UNITS = {"kB": 1e3, "MB": 1e6}


def bytes_read(model: Path, line: tuple[str, ...]) -> float:
    """How many bytes of weights a command says it read."""
    answered = ask(*line, "--model", str(model), "--verbose")
    assert answered.code == 0, answered.err
    told = re.search(r"([\d.]+) (kB|MB) of weights read", answered.err)
    assert told is not None
    return float(told[1]) * UNITS[told[2]]


@pytest.mark.parametrize("name", LINES)
def test_each_weight_is_read_once(name: str, tmp_path: Path) -> None:
    model = small_gpt2(tmp_path / "gpt2", layers=4)
    size = (model / "model.safetensors").stat().st_size
    # rows of the table of tokens may be read beside the table, which predicts
    assert bytes_read(model, LINES[name]) <= size * 1.05
