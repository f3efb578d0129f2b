"""What rows see, against loops over their keys."""

from __future__ import annotations

import masks
import numpy as np
import pytest

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.measure.metric import UniformRows
from attncli.measure.row_facts import (
    Sight,
    TokenFacts,
    TokenPairs,
    WeightRows,
    WordPieces,
    find_sight,
    sight_of_mask,
)
from attncli.mechanism.mask import parse_mask

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
                assert found.has_key(np.full(rows, key))[head, row] == (key in keys)
    assert np.array_equal(np.broadcast_to(found.visibility_matrix(LOW + width), seen.shape), seen)


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.8, 1.0])
def test_sight_of_a_block(heads: int | None, share: float) -> None:
    shape = (ROWS, HIGH - LOW) if heads is None else (heads, ROWS, HIGH - LOW)
    seen = np.random.default_rng(2).random(shape) < share
    found = find_sight(seen, ROWS, LOW, HIGH)
    check(found, seen.reshape(-1, ROWS, HIGH - LOW))
    assert (found.visibility is None) == (share in (0.0, 1.0))  # ranges need no list of keys
    even = found.spread(HIGH)
    np.testing.assert_allclose(even.sum(-1), ~found.empty)
    assert ((even == 0) | seen).all()


def test_all_is_visible_where_no_mask_is() -> None:
    check(find_sight(None, ROWS, LOW, HIGH), np.ones((1, ROWS, HIGH - LOW), bool))


@pytest.mark.parametrize("n", [1, 7, 13])
def test_masks_that_are_ranges_are_not_looked_at_key_by_key(n: int) -> None:
    i, ranges = np.arange(n), set()
    for mask, sees in masks.pairs(n):
        found = sight_of_mask(mask, i, n)
        if found is None:
            continue
        ranges.add(type(mask).__name__)
        for row in range(n):
            keys = [j for j in range(n) if sees(row, j)]
            assert found.count[0, row] == len(keys), mask
            assert (found.first[0, row], found.last[0, row]) == (
                (keys[0], keys[-1]) if keys else (0, -1)
            ), mask
            assert not keys or found.low <= keys[0], mask
    assert ranges >= {"Everywhere", "Causal", "Window", "Prefix", "Padding", "Chunk", "AllOf"}


def test_weights_at_a_distance_and_on_a_key() -> None:
    weights, i = np.random.default_rng(1).random((2, ROWS, HIGH - LOW)), np.arange(4, 4 + ROWS)
    rows = WeightRows(
        NumpyBackend("float64"), weights, i, LOW, find_sight(None, ROWS, LOW, HIGH), TokenFacts()
    )

    def weight(head: int, row: int, key: int) -> float:
        return weights[head, row, key - LOW] if LOW <= key < HIGH else 0.0

    for offset in range(-9, 10):
        wanted = [[weight(head, row, i[row] + offset) for row in range(ROWS)] for head in range(2)]
        assert rows.at_offset(offset).tolist() == wanted, offset
        assert rows.at_offset(offset).tolist() == wanted, offset  # kept from the first time
    for key in range(13):
        assert rows.key(key).tolist() == [
            [weight(head, row, key) for row in range(ROWS)] for head in range(2)
        ]


@pytest.mark.parametrize(
    "spec", ["none", "causal", "window:3,1", "prefix:3", "chunk:3", "padding:2", "padding:9"]
)
def test_uniform_rows_in_closed_form(spec: str) -> None:
    mask, n = parse_mask(spec), 8
    i, chosen = np.arange(n), np.random.default_rng(4).random(n) < 0.5
    about = TokenFacts(TokenPairs("abcaabcc"), chosen, ~chosen)
    see = sight_of_mask(mask, i, n)
    assert see is not None
    weights = np.zeros((1, n, n))
    weights[..., see.low :] = see.visibility_matrix(n) / np.maximum(see.count, 1)[..., None]
    exact = WeightRows(NumpyBackend("float64"), weights, i, 0, see, about)
    closed = UniformRows(i, see, about)
    for name in ("total", "entropy", "peak", "peak_beyond_first", "rest", "moments"):
        np.testing.assert_allclose(
            getattr(closed, name), getattr(exact, name), atol=1e-12, err_msg=name
        )
    for offset in range(-n, n + 1):
        np.testing.assert_allclose(closed.at_offset(offset), exact.at_offset(offset), atol=1e-12)
        np.testing.assert_allclose(closed.key(offset), exact.key(offset), atol=1e-12)
    np.testing.assert_allclose(closed.mass(chosen), exact.mass(chosen), atol=1e-12)
    for pairs in (
        *(about.pairs.of(i, after) for after in (0, 1)),
        WordPieces(np.array([0, 1, 4]), n).of(i),
    ):
        np.testing.assert_allclose(closed.at_pairs(*pairs), exact.at_pairs(*pairs), atol=1e-12)
