"""Saved documents changed at random are shown or refused in every view, never a traceback. Each change is told by its
seed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from asking import ask
from mutating import mutated

COMMANDS = {
    "run": ("run", "a b c a", "--num-heads", "2", "--mask", "causal"),
    "heads": ("heads", "a b c a", "--num-heads", "2", "--labels", "--across", "rollout,similarity"),
    "find": ("find", "a b c", "--from", "c", "--to", "a"),
    "tokens": ("tokens", "a b"),
    "mask": ("mask", "causal", "--bias", "alibi", "-n", "5"),
    "cost": ("cost", "-n", "50"),
    "cross": ("cross", "a b", "c d e"),
    "compare": ("compare", "a b c", "a b d"),
    "explain": ("explain", "a b c", "--query", "c"),
    "softmax": ("explain", "softmax", "2.0", "1.0"),
    "tensors": ("tensors", str(Path(__file__).parents[2] / "sample_inputs" / "captured.npz")),
}
VIEWS = ((), ("--plain",), ("--json",), ("--as", "heads"), ("--ascii", "--show", "all", "--full"), ("--lang", "zh"))
EACH = 25


@pytest.mark.parametrize("name", COMMANDS)
def test_a_changed_document_is_shown_or_refused(name: str, tmp_path: Path) -> None:
    document: dict[str, Any] = ask(*COMMANDS[name], "--json").json
    path = tmp_path / "changed.json"
    for seed in range(EACH):
        path.write_text(json.dumps(mutated(document, seed)))
        view = Random(seed).choice(VIEWS)
        answer = ask("view", str(path), *view)
        refused = answer.code == 2 and "--show" in view  # a screen without parts
        assert answer.code in (0, 3) or refused, (seed, view, answer.err)
        assert "unexpected" not in answer.err
        assert "Traceback" not in answer.err
