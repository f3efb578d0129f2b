"""How far genuine float32, bfloat16 and float16 computation is from float64, beside transformers'
own.

Short texts are computed in float64 whatever is asked for; here that is switched off. A few families
whose layers are put together in different ways; `tests/benchmarks/accuracy.py` goes through all.
"""

from __future__ import annotations

from functools import cache

import pytest
from far_from_float64 import AS_FAR, checkpoint, distance, weights, weights_of_transformers

CASES = [
    *((family, dtype) for family in ("llama", "gpt2", "bert") for dtype in AS_FAR),
    *((family, dtype) for family in ("gemma2", "t5", "bloom") for dtype in ("float32", "bfloat16")),
]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory):
    return cache(lambda family: checkpoint(family, tmp_path_factory.mktemp(family)))


@pytest.fixture(scope="module")
def theirs(folder_of):
    return cache(lambda family, dtype: weights_of_transformers(folder_of(family), dtype))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        pytest.param(*case, marks=[] if case == ("llama", "float16") else [pytest.mark.thorough])
        for case in CASES
    ],
)
def test_no_farther_from_float64_than_transformers(
    folder_of, theirs, family, library, dtype, monkeypatch
):
    monkeypatch.setattr("attncli.models.model.compute_dtype", lambda spec, tokens, asked: asked)
    exact = theirs(family, "float64")
    ours, other = (
        distance(weights(folder_of(family), library, dtype), exact),
        distance(theirs(family, dtype), exact),
    )
    assert other / 20 < ours  # it is the type asked for, not a wider one
    assert ours <= AS_FAR[dtype] * other, (
        f"{ours:.3g} against {other:.3g}: {ours / other:.2f} times"
    )
