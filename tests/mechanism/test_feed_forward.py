"""Activations by themselves: what they leave as it was, and the ends of each type's range."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from comparing import LIBRARIES

from attncli.arrays.backend import choose
from attncli.mechanism.feed_forward import activate
from attncli.mechanism.spec import Activation

KINDS = get_args(Activation)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_argument_stays_as_it_was(kind: Activation, library: str) -> None:
    backend = choose(library, device=None, dtype="float64")
    values = np.linspace(-7, 7, 31)
    x = backend.array(values.copy())
    assert not np.array_equal(backend.numpy(activate(backend, kind, x)), values)
    assert np.array_equal(backend.numpy(x), values)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_near_the_end_of_its_range_is_itself_and_nan_is_told(
    kind: Activation, dtype: str, library: str
) -> None:
    backend = choose(library, device=None, dtype=dtype)
    largest = float(np.finfo(dtype).max)
    with np.errstate(over="ignore", invalid="ignore"):
        found = backend.numpy(
            activate(backend, kind, backend.array(np.asarray([largest, 0.75 * largest, -largest, np.nan])))
        )
    assert found[:2].tolist() == [largest, float(np.asarray(0.75 * largest, dtype))]
    assert found[2] == 0
    assert np.isnan(found[3])
