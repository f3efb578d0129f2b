"""Every family gives the same numbers on a graphics processor as on the processor: each head's
weights and each layer's vectors. Skipped where torch finds none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from side_by_side import both_sides, side_by_side
from tiny_checkpoints import CASES, make
from tiny_two_sided import TWO_SIDED

import attncli
from attncli.models import estimate
from attncli.models.model import Model
from attncli.models.verify import ReferenceSide

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
TARGET = (2, 17, 33, 8, 40, 6, 19)
STATES = np.random.default_rng(2).standard_normal((9, 30))
READING = ("whisper",)
APART = {"float64": 1e-10, "float32": 1e-3}
"""The largest difference relative to the largest number of an array; tiny random models magnify
single roundings of float32.
"""


def opened(folder: Path, backend: str, device: str | None, dtype: str) -> Model:
    """The checkpoint; a decoder alone with something to read."""
    model = attncli.load(folder, backend=backend, device=device, dtype=dtype)
    return model.decoder_over(STATES) if model.spec.family in READING else model


def sides_of(name: str, model: Model) -> tuple[ReferenceSide, ...]:
    return both_sides(model, IDS, TARGET if CASES[name].model_type in TWO_SIDED else None)


@pytest.mark.thorough
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device here")
@pytest.mark.parametrize("dtype", APART)
@pytest.mark.parametrize("name", CASES)
def test_a_device_gives_the_processors_numbers(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(CASES[name], tmp_path)
    expected = sides_of(name, opened(folder, "numpy", None, "float64"))
    monkeypatch.setattr(estimate, "WIDE_UP_TO", 0.0)
    model = opened(folder, "torch", "cuda", dtype)
    assert model.compute_backend(len(IDS)).device == "cuda"
    found = list(side_by_side(sides_of(name, model), expected))
    assert found
    assert max(pair.apart for pair in found) < APART[dtype]
