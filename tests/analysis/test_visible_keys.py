"""What rows see, against loops over their keys."""

from __future__ import annotations

import masks
import numpy as np
import pytest

from attncli.analysis.row_facts import About, WeightRows
from attncli.analysis.visible_keys import Sight, of_mask, sight
from attncli.arrays.numpy_backend import NumpyBackend

LOW, HIGH, ROWS = 3, 10, 5


def check(found: Sight, seen: np.ndarray) -> None:
    """seen: what the rows see by definition, [head, row, key] from key `LOW` on."""
    heads, rows, width = seen.shape
    for head in range(heads):
        for row in range(rows):
            keys = [LOW + j for j in range(width) if seen[head, row, j]]
            assert found.count[head, row] == len(keys)
            assert found.empty[head, row] == (not keys)
            if keys:
                assert (found.first[head, row], found.last[head, row]) == (keys[0], keys[-1])
            else:
                assert found.first[head, row] > found.last[head, row]
            for key in range(LOW - 2, LOW + width + 2):
                assert found.at(np.full(rows, key))[head, row] == (key in keys)
    assert np.array_equal(np.broadcast_to(found.shown(LOW + width), seen.shape), seen)


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.8, 1.0])
def test_sight_of_a_block(heads: int | None, share: float) -> None:
    shape = (ROWS, HIGH - LOW) if heads is None else (heads, ROWS, HIGH - LOW)
    seen = np.random.default_rng(2).random(shape) < share
    found = sight(seen, ROWS, LOW, HIGH)
    check(found, seen.reshape(-1, ROWS, HIGH - LOW))
    assert (found.seen is None) == (share in (0.0, 1.0))  # ranges need no list of keys
    if found.seen is None:
        with pytest.raises(ValueError, match="closed forms"):
            found.spread()
    else:
        even = found.spread()
        np.testing.assert_allclose(even.sum(-1), ~found.empty)
        assert ((even == 0) | seen).all()


def test_all_is_visible_where_no_mask_is() -> None:
    check(sight(None, ROWS, LOW, HIGH), np.ones((1, ROWS, HIGH - LOW), bool))


@pytest.mark.parametrize("n", [1, 7, 13])
def test_masks_that_are_ranges_are_not_looked_at_key_by_key(n: int) -> None:
    i, ranges = np.arange(n), set()
    for mask, sees in masks.pairs(n):
        found = of_mask(mask, i, n)
        if found is None:
            continue
        ranges.add(type(mask).__name__)
        for row in range(n):
            keys = [j for j in range(n) if sees(row, j)]
            assert found.count[0, row] == len(keys), mask
            assert (found.first[0, row], found.last[0, row]) == ((keys[0], keys[-1]) if keys else (0, -1)), mask
            assert not keys or found.low <= keys[0], mask
    assert ranges >= {"Everywhere", "Causal", "Window", "Prefix", "Padding", "Chunk", "AllOf"}


def test_weights_at_a_distance_and_on_a_key() -> None:
    weights, i = np.random.default_rng(1).random((2, ROWS, HIGH - LOW)), np.arange(4, 4 + ROWS)
    rows = WeightRows(NumpyBackend("float64"), weights, i, LOW, sight(None, ROWS, LOW, HIGH), About())

    def weight(head: int, row: int, key: int) -> float:
        return weights[head, row, key - LOW] if LOW <= key < HIGH else 0.0

    for offset in range(-9, 10):
        wanted = [[weight(head, row, i[row] + offset) for row in range(ROWS)] for head in range(2)]
        assert rows.at(offset).tolist() == wanted, offset
        assert rows.at(offset).tolist() == wanted, offset  # kept from the first time
    for key in range(13):
        assert rows.key(key).tolist() == [[weight(head, row, key) for row in range(ROWS)] for head in range(2)]
