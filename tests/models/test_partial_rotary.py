"""`partial_rotary_factor`, family by family: what transformers makes of it, and a note where it
plays no part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import UnsupportedError
from attncli.models.verify import reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
WHOLE = (
    *(
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "gemma2",
        "embedding gemma",
        "olmo2",
    ),
    *("cohere", "smollm3", "falcon", "modernbert"),
)
PARTLY = ("phi", "phi3", "gpt_neox", "stablelm")
SPELLINGS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "outside": lambda told: {**told, "partial_rotary_factor": 0.4},
    "inside": lambda told: {**told, "rope_parameters": _inside(told.get("rope_parameters") or {})},
}


def _inside(parameters: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(value, dict) for value in parameters.values()):
        return {kind: {**own, "partial_rotary_factor": 0.4} for kind, own in parameters.items()}
    return {**parameters, "partial_rotary_factor": 0.4}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def rewritten(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], to: Path) -> Path:
    told = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(change(told)))
    (to / "model.safetensors").hardlink_to(folder / "model.safetensors")
    return to


def weights(folder: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    model = attncli.load(folder, backend="numpy", dtype="float64")
    traces = model.trace(model.tokenizer.ids_to_tokens(IDS))
    return np.stack([trace.stages["weights"] for trace in traces]), model.warnings


@pytest.mark.many
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", [*WHOLE, *PARTLY])
def test_what_transformers_makes_of_it(
    name: str, spelling: str, saved: Callable, tmp_path: Path
) -> None:
    folder = rewritten(saved(name), SPELLINGS[spelling], tmp_path)
    found, warnings = weights(folder)
    (side,) = reference(folder, IDS)
    assert np.abs(found - np.stack(side.weights)).max() < 1e-10
    noted = [text for text in warnings if "partial_rotary_factor" in text]
    assert len(noted) == (
        name in WHOLE or (name, spelling) == ("gpt_neox", "outside")
    )  # which it calls rotary_pct
    assert all("plays no part" in text for text in noted)
    assert len(warnings) == len(noted)


def test_scaling_of_a_share_of_heads_is_no_model(saved: Callable, tmp_path: Path) -> None:
    """transformers fails to run it; a share of heads, unscaled, would be another model."""
    folder = rewritten(saved("llama linear"), SPELLINGS["outside"], tmp_path)
    with pytest.raises(
        UnsupportedError, match=r"scales the rotary embedding \('linear'\) of the share 0.4"
    ):
        attncli.load(folder)
