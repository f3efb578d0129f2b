"""Layers without attention: what commands tell of them, and their one recurrence against its triangle of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

from attncli.arrays.backend import numpy_backend
from attncli.mechanism.mixer import recur


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make(CASES["lfm2"], tmp_path_factory.mktemp("checkpoint")))


def test_they_are_named_and_have_nothing_to_show(folder: str) -> None:
    told = ask("run", "--model", folder, "--ids", "7 3 50", "--json").json
    assert told["model"]["idle"] == {"short convolution": [0, 2]}
    assert [layer["layer"] for layer in told["layers"]] == [1]
    assert told["warnings"] == ["layers 0, 2 (short convolution): no attention to show"]
    assert "1 of 3 layers attend × 6 heads" in ask("heads", "--model", folder, "--ids", "7 3 50").out
    refused = ask("ablate", "--model", folder, "--ids", "7 3 50", "--layer", "0")
    assert refused.code == 3
    assert "layer 0 attends to nothing" in refused.err


def test_a_model_of_such_layers_alone_is_refused(tmp_path: Path) -> None:
    made = make(replace(CASES["lfm2"], config={**CASES["lfm2"].config, "layer_types": ["conv"] * 3}), tmp_path / "made")
    refused = ask("run", "--model", str(made), "--ids", "7 3 50")
    assert refused.code == 4
    assert "no layer of this 'lfm2' model attends" in refused.err


def test_what_they_add_is_counted(folder: str) -> None:
    told = ask("logits", "--model", folder, "--ids", "7 3 50", "--json").json
    assert sum(part["part"] == "mixer" for part in told["parts"]) == 2
    assert sum(part["value"] for part in told["parts"]) == pytest.approx(told["logit"], abs=1e-6)
    assert "mixers" in ask("logits", "--model", folder, "--ids", "7 3 50").out


@pytest.mark.parametrize("strong", [False, True])
def test_the_recurrence_is_a_triangle_without_a_softmax(strong: bool) -> None:
    """Of tokens' numbers, multiplied out pair by pair; of the delta rule through the inverse of a triangle."""
    draw, count = np.random.default_rng(3), 7
    k, q, v = (draw.standard_normal((count, 1, width)) for width in (4, 4, 3))
    rate, step = -np.abs(draw.standard_normal((1, 1, 1))), np.abs(draw.standard_normal((count, 1)))
    strength = draw.uniform(0, 1, (count, 1)) if strong else None
    found = recur(numpy_backend("float64"), rate, step, k, v, q, strength)
    fades, keys = np.zeros((count, count)), np.zeros((count, count))
    for i in range(count):
        for j in range(i + 1):
            fades[i, j] = np.exp(rate[0, 0, 0] * step[j + 1 : i + 1, 0].sum())
            keys[i, j] = k[i, 0] @ k[j, 0]
    weights = fades * (q[:, 0] @ k[:, 0].T)
    if strength is not None:
        held = np.eye(count) + strength * np.tril(fades * keys, -1)
        weights = weights @ np.linalg.inv(held) * strength[:, 0]
    assert np.abs(found[:, 0] - weights @ v[:, 0]).max() < 1e-12
    assert np.abs(found[:, 0] - np.tril(weights, -1) @ v[:, 0]).max() > 1e-3
