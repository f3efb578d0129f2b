"""Masks against loops: visibility on both libraries, by rows, by offset, and beyond the text."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from masks import pairs

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.arrays.torch_backend import TorchBackend
from attncli.errors import InputError, LimitError
from attncli.mechanism.mask import (
    AllOf,
    AnyOf,
    BigBird,
    Causal,
    Documents,
    Everywhere,
    Hashed,
    MatrixMask,
    Padding,
    SameBucket,
    Window,
    intersection,
    pattern,
    shows_all,
    visible,
)  # fmt: skip

BACKENDS = [NumpyBackend("float32"), TorchBackend("float32")]
SIZES = [1, 2, 7, 13, 23]


def shown(mask, first, stop, low, high, keys, backend, *, row=None) -> np.ndarray:
    i, j = backend.arange(first, stop)[:, None], backend.arange(low, high)[None, :]
    found = visible(mask, i, j, keys=keys, backend=backend, row=row)
    return np.broadcast_to(backend.numpy(found), (stop - first, high - low))


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("n", SIZES)
def test_every_mask_is_its_definition(backend, n):
    for mask, sees in pairs(n):
        wanted = np.array([[sees(i, j) for j in range(n)] for i in range(n)])
        assert np.array_equal(shown(mask, 0, n, 0, n, n, backend), wanted), mask


def test_the_definitions_differ_from_each_other():
    n, backend = 13, BACKENDS[0]
    found = {}
    for mask, _ in pairs(n)[:29]:
        found.setdefault(shown(mask, 0, n, 0, n, n, backend).tobytes(), []).append(mask)
    alike = [masks for masks in found.values() if len(masks) > 1]
    # everything in three spellings and one long prefix, one short bigbird, no padding; one key in
    # three; causal as prefix 0
    assert sum(len(masks) - 1 for masks in alike) <= 8, alike


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
def test_part_of_the_rows_and_columns(backend):
    n = 13
    for mask, _ in pairs(n):
        whole = shown(mask, 0, n, 0, n, n, backend)
        assert np.array_equal(shown(mask, 5, 11, 3, 8, n, backend), whole[5:11, 3:8]), mask


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
def test_positions_before_and_after_the_keys(backend):
    n = 7
    for mask, sees in pairs(n):
        if "MatrixMask" in repr(mask):
            continue  # lists rows, not positions
        wanted = np.array([[sees(i, j) for j in range(n)] for i in range(-3, 11)])
        assert np.array_equal(shown(mask, -3, 11, 0, n, n, backend), wanted), mask


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
def test_masks_that_list_queries_go_by_row_not_by_position(backend):
    table = np.random.default_rng(0).random((3, 5)) < 0.5
    assert np.array_equal(
        shown(MatrixMask(table), 4, 7, 0, 5, 5, backend, row=backend.arange(0, 3)[:, None]), table
    )
    query, key = np.array([[[0, 1, 1]]]), np.array([[[1, 0, 1, 2, 0]]])
    bound = SameBucket(Hashed(4), backend.array_as_is(query), backend.array_as_is(key))
    wanted = query[0, 0][:, None] == key[0, 0][None, :]
    i, j, row = (
        backend.arange(4, 7)[:, None],
        backend.arange(0, 5)[None, :],
        backend.arange(0, 3)[:, None],
    )
    assert np.array_equal(
        backend.numpy(visible(bound, i, j, keys=5, backend=backend, row=row))[0], wanted
    )
    inside = AllOf((bound, Everywhere()))
    assert np.array_equal(
        backend.numpy(visible(inside, i, j, keys=5, backend=backend, row=row))[0], wanted
    )


def test_a_mask_by_head():
    table = np.random.default_rng(0).random((2, 3, 5)) < 0.5
    for backend in BACKENDS:
        i, j = backend.arange(0, 3)[:, None], backend.arange(0, 5)[None, :]
        assert np.array_equal(
            backend.numpy(visible(MatrixMask(table), i, j, keys=5, backend=backend)), table
        )


def test_hashed_must_be_bound():
    with pytest.raises(TypeError):
        shown(Hashed(4), 0, 2, 0, 2, 2, BACKENDS[0])


def test_bigbird_draws_without_replacement_and_reproducibly():
    table = pattern.block_visibility(31, 3, 5)
    assert table[[0, -1]].all()
    assert table[:, [0, -1]].all()
    assert (table[1:-1, 1:-1].sum(-1) == [5, *[6] * 27, 5]).all()
    assert np.array_equal(
        table,
        np.array([[oracles.bigbird(1, 3, 5, 31)(i, j) for j in range(31)] for i in range(31)]),
    )
    assert not np.array_equal(table, pattern.block_visibility(31, 3, 6))
    assert pattern.block_visibility(7, 10**9, 0).all()
    with pytest.raises(LimitError, match="5,000"):
        pattern.block_visibility(5000, 3, 0)
    assert shown(BigBird(), 0, 1, 0, 704, 704, BACKENDS[0]).all()
    assert not shown(BigBird(), 64, 65, 0, 705, 705, BACKENDS[0]).all()


def test_both_flattens_and_drops_what_shows_everything():
    assert intersection() == Everywhere()
    assert intersection(Everywhere(), Causal()) == Causal()
    assert intersection(Causal(), Padding(1)) == AllOf((Causal(), Padding(1)))
    assert shows_all(Window(None, None))
    assert not shows_all(Causal())


def test_masks_that_list_positions_must_fit():
    AnyOf((MatrixMask(np.ones((3, 5), bool)), Documents((0,) * 5))).check_size(3, 5)
    MatrixMask(np.ones(5, bool)).check_size(3, 5)
    for mask, found, wanted in (
        (MatrixMask(np.ones((3, 4), bool), "m.npy"), r"\[3, 4\]", "[3, 5]"),
        (MatrixMask(np.ones((2, 5), bool)), r"\[2, 5\]", "[3, 5]"),
        (AllOf((Causal(), MatrixMask(np.ones(4, bool)))), r"\[4\]", "[5]"),
        (Documents((0, 1)), "2 document ids for 5 tokens", "one id per token"),
    ):
        with pytest.raises(InputError, match=found) as caught:
            mask.check_size(3, 5)
        assert wanted in caught.value.expected


def test_a_short_text_is_wholly_visible_to_random_blocks():
    mask = BigBird(3, 2)
    everything, more = (5 + 2 * 2) * 3, (5 + 2 * 2) * 3 + 1
    assert shown(mask, 0, everything, 0, everything, everything, BACKENDS[0]).all()
    assert not shown(mask, 0, more, 0, more, more, BACKENDS[0]).all()
    assert (mask.pairs(everything), mask.pairs(more)) == (everything**2, None)
