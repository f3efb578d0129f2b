"""Why √d_k: measured variance against theory, and the softmax."""

import math

import pytest
from telling import telling

from attncli.errors import LimitError, UsageError
from attncli.features.explain.softmax_topics import scaling_document

scaling_document = telling(scaling_document)


@pytest.mark.parametrize("d_k", [1, 7, 64, 512])
def test_the_measured_variance_is_near_theory(d_k: int) -> None:
    document = scaling_document(d_k, samples=2003, keys=5, seed=0, d_model=4 * d_k)
    for row, theory in zip(document["variance"], (d_k, 1, 0.25), strict=True):
        assert row["theory"] == pytest.approx(theory)
        assert abs(row["variance"] - theory) < 4 * row["variance_error"]
        assert abs(row["mean"]) < 4 * row["mean_error"]


def test_the_standard_error_is_the_spread_of_repeated_measurements() -> None:
    found = [
        scaling_document(11, samples=300, keys=5, seed=seed)["variance"][0] for seed in range(60)
    ]
    mean = sum(row["variance"] for row in found) / 60
    spread = math.sqrt(sum((row["variance"] - mean) ** 2 for row in found) / 59)
    assert spread == pytest.approx(sum(row["variance_error"] for row in found) / 60, rel=0.3)


def test_scaling_keeps_the_softmax_flat_and_its_gradient_alive() -> None:
    unscaled, scaled, uniform = scaling_document(512, samples=1000, keys=10, seed=0)["softmax"]
    assert (
        unscaled["largest"]
        > 0.9
        > 0.5
        > scaled["largest"]
        > uniform["largest"]
        == pytest.approx(0.1)
    )
    assert (
        unscaled["entropy"] < scaled["entropy"] < uniform["entropy"] == pytest.approx(math.log(10))
    )
    assert unscaled["gradient"] < 0.3 * scaled["gradient"]


def test_sizes_are_checked() -> None:
    for sizes in (
        {"d_k": 0, "samples": 9, "keys": 2},
        {"d_k": 1, "samples": 1, "keys": 2},
        {"d_k": 1, "samples": 9, "keys": 0},
    ):
        with pytest.raises(UsageError):
            scaling_document(sizes["d_k"], samples=sizes["samples"], keys=sizes["keys"], seed=0)
    with pytest.raises(LimitError):
        scaling_document(10**6, samples=10**6, keys=2, seed=0)
