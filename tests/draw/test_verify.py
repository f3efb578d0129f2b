"""The screen of `attn models verify` where float32 gave something, or nothing."""

from __future__ import annotations

import pytest
from draw.shown import verify_screen

from attncli.draw.view import View


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "says"),
    [
        (
            3e-8,
            6e-7,
            0.05,
            "3.0e-08 from float64 (root mean square), 0.05 times transformers' own 6.0e-07, allowed 2 times.",
        ),
        (3e-8, 0.0, None, "unboundedly many times transformers' own 0.0e+00"),
        (3e-8, 0.0, float("inf"), "unboundedly many times"),
        (None, 6e-7, None, "some numbers are too large for it."),
        (float("nan"), float("nan"), float("nan"), "some numbers are too large for it."),
    ],
)
def test_float32(ours: float | None, theirs: float, ratio: float | None, says: str) -> None:
    document = {
        "name": "m", "text": "a b", "tokens": 2, "backend": "numpy", "passed": False,
        "layers": [{"side": "self", "layer": 0, "weights": [1e-15], "cross": [], "hidden": 1e-15, "relative": 1e-15}],
        "float64": {"worst": 1e-15, "limit": 1e-10}, "float32": {"run_distance": ours,
        "reference_distance": theirs, "ratio": ratio, "limit": 2.0},
    }  # fmt: skip
    assert says in verify_screen(document, View(width=200)).plain
