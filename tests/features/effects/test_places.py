"""What may be left out of runs of a changed model: tokens before the change, and queries that
nobody asks for.
"""

from __future__ import annotations

import numpy as np
import pytest

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.features.effects.places import may_query_some, may_start_late
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import AllOf, Causal, Mask, MatrixMask, parse_mask
from attncli.models.one_layer import Settings, seeded_model

TABLE = MatrixMask(np.tril(np.ones((4, 4), bool)))


@pytest.mark.parametrize(
    ("mask", "late", "some"),
    [
        (parse_mask("causal"), True, True),
        (parse_mask("window:3"), True, True),
        (parse_mask("none"), False, True),
        (parse_mask("window:3,1"), False, True),
        (AllOf((Causal(), parse_mask("padding:1"))), False, False),
        (AllOf((Causal(), parse_mask("lsh:2"))), False, False),
        (AllOf((Causal(), TABLE)), False, False),
    ],
)
def test_masks_that_count_rows_or_look_at_vectors_need_every_token(
    mask: Mask, late: bool, some: bool
) -> None:
    settings = Settings(d_model=8, heads=2, mask=mask)
    spec = seeded_model(settings, 0, "seeded", tokenizer("word"), NumpyBackend("float32")).spec
    assert (may_start_late(spec), may_query_some(spec)) == (late, some)
