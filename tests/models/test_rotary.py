"""The rotary embedding that a config describes, at the edges of what its numbers may be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.mechanism.projection import frequencies
from attncli.mechanism.spec import LongRope, Rope, Yarn
from attncli.models.config import Config, rope

LISTS = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}


def read(**values: Any) -> Rope:
    return rope(Config({"max_position_embeddings": 64, **values}, "config.json"), 8)


@pytest.mark.parametrize(("factor", "told"), [(0.5, 1.0), (1.0, 1.0), (2.0, 0.1 * math.log(2) + 1)])
def test_yarn_makes_nothing_smaller(factor: float, told: float) -> None:
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 16}
    found = read(rope_scaling=scaling).scaling
    assert isinstance(found, Yarn)
    assert found.magnitude == pytest.approx(told, abs=1e-15)
    assert frequencies(Rope(8, 500.0, scaling=Yarn(factor, 16)), 1)[1] == pytest.approx(
        told, abs=1e-15
    )


@pytest.mark.parametrize(
    ("factor", "told"), [(0.5, 1.0), (1.0, 1.0), (4.0, math.sqrt(1 + math.log(4) / math.log(16)))]
)
def test_longrope_makes_nothing_smaller(factor: float, told: float) -> None:
    scaling = {
        "rope_type": "longrope",
        "factor": factor,
        "original_max_position_embeddings": 16,
        **LISTS,
    }
    found = read(rope_scaling=scaling).scaling
    assert isinstance(found, LongRope)
    assert found.magnitude == pytest.approx(told, abs=1e-15)


@pytest.mark.parametrize("base", [0.5, 1.0])
def test_a_base_of_one_or_less_turns_nothing(base: float) -> None:
    with pytest.raises(InputError, match="with base"):
        read(rope_theta=base)
    assert read(rope_theta=1.5).theta == 1.5


def test_a_ramp_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InputError, match="low_freq_factor"):
        read(
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 2.5,
                "high_freq_factor": 2.0,
                "original_max_position_embeddings": 16,
            }
        )


@pytest.mark.parametrize(("turns", "truncate", "end"), [(16.0, False, 3.25), (47.0, True, 0.0)])
def test_a_ramp_of_yarn_without_width_is_a_step(turns: float, truncate: bool, end: float) -> None:
    found, _ = frequencies(
        Rope(16, 10.0, scaling=Yarn(4.0, 256, fast=turns, slow=turns, truncate=truncate)), 1
    )
    assert abs(end - 16 * math.log(256 / (turns * 2 * math.pi)) / (2 * math.log(10.0))) < (
        0.6 if truncate else 0.01
    )
    plain = 10.0 ** (-np.arange(8) / 8)
    assert np.allclose(found, np.where(np.arange(8) > end, plain / 4, plain), rtol=1e-12)


@pytest.mark.parametrize(("fast", "first"), [(89_000.0, 1), (1e9, 0)])
def test_the_ramp_of_yarn_ends_with_the_dimensions(fast: float, first: int) -> None:
    scaling = Yarn(4.0, 10**6, fast=fast, slow=1.0)
    found, _ = frequencies(Rope(8, 10.0, scaling=scaling), 1)
    plain = 10.0 ** (-np.arange(4) / 4)
    ramp = [
        min(max((k - first) / (7 - first), 0.0), 1.0) for k in range(4)
    ]  # without the bounds it would end at 21
    assert np.allclose(
        found, [f / 4 * r + f * (1 - r) for f, r in zip(plain, ramp, strict=True)], rtol=1e-12
    )
