"""Blocks of query rows: the same numbers as dense attention, whatever the mask and the block size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from comparing import LIBRARIES, case, on, plain, row_blocks
from masks import pairs
from msgspec.structs import replace

from attncli.arrays.backend import backend_of
from attncli.arrays.numpy_backend import dtype_named
from attncli.mechanism import attend as attend_module
from attncli.mechanism.attend import (
    EVERY_STAGE,
    Rule,
    attend,
    common_span,
    compute_attention,
    gather_blocks,
    ignore_block,
    span,
)
from attncli.mechanism.mask import AllOf, AnyOf, Causal, Hashed, Window
from attncli.mechanism.projection import alibi

N = 13
BLOCKS = [1, 2, 3, 5, N, N + 4]


@pytest.mark.parametrize("n", [1, 2, 7, N])
def test_no_visible_key_is_cut_and_no_hidden_one_is_sure(n):
    for mask, sees in pairs(n):
        rows_only = "MatrixMask" in repr(mask)
        for first in range(0 if rows_only else -3, n if rows_only else n + 3):
            for last in range(first, min(first + 6, n if rows_only else n + 3)):
                low, high = span(mask, first, last, n)
                assert 0 <= low <= high <= n
                sure_low, sure_high = common_span(mask, first, last, n)
                for i in range(first, last + 1):
                    seen = {j for j in range(n) if sees(i, j)}
                    assert seen <= set(range(low, high)), (mask, first, last)
                    assert set(range(sure_low, sure_high)) <= seen, (mask, first, last)


def test_spans_are_as_narrow_as_the_work_they_save():
    assert span(Causal(), 3, 5, 99) == (0, 6)
    assert span(Window(4, 0), 10, 12, 99) == (6, 13)
    assert span(AllOf((Causal(), Window(4, 7))), 10, 12, 99) == (6, 13)
    assert span(AnyOf((Window(0, 0), Window(2, 2))), 10, 12, 99) == (8, 15)
    assert common_span(Causal(), 3, 5, 99) == (0, 4)
    assert common_span(AllOf((Causal(), Window(4, 7))), 10, 12, 99) == (8, 11)
    assert common_span(Window(0, 0), 3, 5, 99) == (0, 0)


def check(library, rule, *, kv_heads=2, queries=N, rows=BLOCKS, seed=0, poison=False) -> None:
    """Every block size against dense: weights in place, 0 outside, mixed, empty rows, lse."""
    q, k, v = case(seed, queries=queries, keys=N, kv_heads=kv_heads)
    if poison:
        v[:, 3] = np.nan
    q, k, v = (on(library, x) for x in (q, k, v))
    backend = backend_of(q, k, v)
    dense = attend(backend, q, k, v, rule(backend, q, k))
    for size in rows:
        kept, mixed, empty = gather_blocks(
            backend, q, k, v, rule(backend, q, k), keep=("weights",), block=4 * size * N
        )
        assert np.allclose(
            plain(kept["weights"]), plain(dense.stages["weights"]), rtol=1e-12, atol=1e-14
        )
        assert np.allclose(
            plain(mixed), plain(dense.mixed), rtol=1e-12, atol=1e-13, equal_nan=poison
        )
        assert np.array_equal(plain(empty), plain(dense.empty))
        blocks = list(row_blocks(backend, q, k, v, rule(backend, q, k), rows=size))
        assert [block.start for block in blocks] == list(range(0, queries, size))
        assert all(one.stop == other.start for one, other in pairwise(blocks))
        for block in blocks:
            part = slice(block.start, block.stop)
            weights = np.zeros((4, block.stop - block.start, N))
            weights[..., block.low : block.high] = plain(block.stages["weights"])
            masked = plain(dense.stages["masked"])[:, part]
            assert np.allclose(
                weights, plain(dense.stages["weights"])[:, part], rtol=1e-12, atol=1e-14
            )
            assert np.allclose(
                plain(block.mixed),
                plain(dense.mixed)[:, part],
                rtol=1e-12,
                atol=1e-13,
                equal_nan=poison,
            )
            assert np.array_equal(plain(block.empty), plain(dense.empty)[:, part])
            near = masked[..., block.low : block.high]
            seen = True if block.visibility is None else plain(block.visibility)
            assert np.array_equal(np.broadcast_to(seen, near.shape), near > -np.inf)
            with np.errstate(divide="ignore"):
                assert np.allclose(plain(block.lse), np.log(np.exp(masked).sum(-1)), rtol=1e-12)


@pytest.mark.many
@pytest.mark.parametrize("library", LIBRARIES)
def test_blocks_are_dense_under_every_mask(library):
    for mask, _ in pairs(N):
        check(library, lambda backend, q, k: Rule(0.5, mask=mask), rows=[1, 3, N])  # noqa: B023


def test_large_dense_attention_is_gathered_from_blocks(monkeypatch):
    q, k, v = (np.asarray(x) for x in case(0, queries=N, keys=N, kv_heads=2))
    backend, rule = backend_of(q, k, v), Rule(0.5, mask=Causal())
    blocks: list[int] = []
    monkeypatch.setattr(attend_module, "gather_blocks", lambda *_, **__: blocks.append(1))

    def dense(*keep: str) -> int:
        compute_attention(backend, q, k, v, rule, rows=None, keep=keep, on_block=ignore_block)
        return len(blocks)

    assert dense("weights") == 0
    monkeypatch.setattr(attend_module, "GATHERED_FROM", 4 * N * N)
    assert dense("weights") == 1
    assert dense() == 2
    assert dense("weights", "masked") == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gathered_weights_are_of_the_type_that_dense_ones_are(dtype):
    q, k, v = (np.asarray(x, dtype_named(dtype)) for x in case(0, queries=N, keys=N, kv_heads=2))
    backend, rule = backend_of(q, k, v), Rule(0.5, mask=Causal())
    dense = attend(backend, q, k, v, rule)
    kept, mixed, _ = gather_blocks(backend, q, k, v, rule, keep=("weights",), block=4 * 3 * N)
    assert kept["weights"].dtype == dense.stages["weights"].dtype
    assert mixed.dtype == dense.mixed.dtype
    assert np.allclose(kept["weights"], dense.stages["weights"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", BLOCKS)
def test_block_sizes(library, rows):
    for mask in (Causal(), Window(3, 1), AllOf((Causal(), Window(2, 5)))):
        for poison in (False, True):
            check(library, lambda backend, q, k: Rule(0.5, mask=mask), rows=[rows], poison=poison)  # noqa: B023


RULES = {
    "cap": lambda backend, q, k: Rule(0.7, softcap=2.0, mask=Causal()),
    "offset": lambda backend, q, k: Rule(0.7, mask=Causal(), offset=-4),
    "later": lambda backend, q, k: Rule(0.7, mask=Window(2, 0), offset=6),
    "offsets": lambda backend, q, k: Rule(
        0.7, mask=Causal(), offset=backend.array_as_is(np.array(2)).reshape((1, 1, 1))
    ),
    "lengths": lambda backend, q, k: Rule(
        0.7, mask=Causal(), key_lengths=backend.array_as_is(np.array(5)).reshape((1, 1, 1))
    ),
    "none": lambda backend, q, k: Rule(
        0.7, key_lengths=backend.array_as_is(np.array(0)).reshape((1, 1, 1))
    ),
    "alibi": lambda backend, q, k: Rule(
        0.7,
        mask=Causal(),
        position_bias=lambda i, j, heads=slice(None): alibi(
            backend.array(np.arange(4.0))[heads], i, j, symmetric=False
        ),
    ),
    "given": lambda backend, q, k: Rule(
        0.7, visibility=backend.array_as_is(np.random.default_rng(1).random((N, N)) < 0.4)
    ),
    "bias": lambda backend, q, k: Rule(
        0.7, bias=backend.array_as_is(np.where(np.eye(N) > 0, -np.inf, 1.0))
    ),
    "lsh": lambda backend, q, k: Rule(0.7, mask=Hashed(4, 2, 1).bind(backend, q, k, 0.7, None)),
    "lsh or window": lambda backend, q, k: Rule(
        0.7, mask=AnyOf((Hashed(4), Window(1, 0))).bind(backend, q, k, 0.7, None)
    ),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", RULES)
def test_blocks_are_dense_under_every_rule(library, name):
    check(library, RULES[name])


@pytest.mark.parametrize("library", LIBRARIES)
def test_sinks_and_learned_keys_by_blocks(library):
    for rule in (Rule(0.7, sinks=None, extra_keys=1, mask=Causal()), Rule(0.7, mask=Causal())):
        q, k, v = (on(library, x) for x in case(queries=N, keys=N, kv_heads=4))
        backend = backend_of(q)
        sunk = replace(rule, sinks=backend.array_as_is(np.array([0.0, 1.0, -1.0, 5.0])))
        dense = attend(backend, q, k, v, sunk)
        blocks = list(row_blocks(backend, q, k, v, sunk, rows=3))
        assert np.allclose(
            np.concatenate([plain(block.mixed) for block in blocks], -2),
            plain(dense.mixed),
            rtol=1e-12,
        )
        lse = np.concatenate([plain(block.lse) for block in blocks], -1)
        with np.errstate(divide="ignore"):
            sums = (
                np.exp(plain(dense.stages["masked"])).sum(-1)
                + np.exp([0.0, 1.0, -1.0, 5.0])[:, None]
            )
        assert np.allclose(lse, np.log(sums), rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_kept_does_not_change_the_numbers(library):
    q, k, v = (on(library, x) for x in case(queries=N, keys=N, kv_heads=4))
    backend = backend_of(q)
    rule = Rule(0.5, softcap=2.0, mask=Causal(), bias=backend.array_as_is(np.ones(N)))
    every = attend(backend, q, k, v, rule)
    for keep in [frozenset({name}) for name in EVERY_STAGE] + [
        frozenset(),
        frozenset({"raw", "masked"}),
        frozenset({"scaled", "biased"}),
    ]:
        some = attend(backend, q, k, v, rule, keep=keep)
        assert np.array_equal(plain(some.mixed), plain(every.mixed))
        assert set(some.stages) == keep
        for name, found in some.stages.items():
            assert np.array_equal(plain(found), plain(every.stages[name]))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("sinks", [None, np.array([0.0, 3.0, -np.inf, -2.0])])
def test_the_entropy_of_each_row(library, sinks):
    q, k, v = (on(library, x * 3) for x in case(queries=N, keys=N, kv_heads=4))
    backend = backend_of(q)
    rule = Rule(
        2.0, mask=Causal(), offset=-2, sinks=None if sinks is None else backend.array_as_is(sinks)
    )
    weights = plain(attend(backend, q, k, v, rule).stages["weights"])
    wanted = -np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0).sum(-1)
    for size in (1, 5, N):
        blocks = row_blocks(backend, q, k, v, rule, rows=size, keep=("weights", "entropy"))
        found = np.concatenate([plain(block.stages["entropy"]) for block in blocks], -1)
        assert np.allclose(found.reshape(wanted.shape), wanted, rtol=1e-12, atol=1e-13)
    assert not wanted[:, :2].any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_offsets_and_lengths_of_each_batch_entry_by_blocks(library):
    q, k, v = (on(library, x) for x in case(batch=(3,), queries=N, keys=N))
    backend = backend_of(q)
    offset, lengths = (
        backend.array_as_is(np.array(x)).reshape((3, 1, 1, 1)) for x in ([-5, 0, 4], [2, 7, N])
    )
    for mask in (Causal(), Window(2, 1)):
        for rule in (
            Rule(0.5, mask=mask, offset=offset),
            Rule(0.5, mask=mask, offset=offset, key_lengths=lengths),
        ):
            dense = attend(backend, q, k, v, rule)
            for size in (1, 5):
                blocks = list(row_blocks(backend, q, k, v, rule, rows=size))
                assert np.allclose(
                    np.concatenate([plain(b.mixed) for b in blocks], -2),
                    plain(dense.mixed),
                    rtol=1e-12,
                    atol=1e-13,
                )
                assert np.array_equal(
                    np.concatenate([plain(b.empty) for b in blocks], -1), plain(dense.empty)
                )


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_sink_far_above_the_scores_overflows_nothing(library):
    q, k, v = (on(library, x) for x in case(kv_heads=4))
    backend = backend_of(q)
    block = next(
        row_blocks(
            backend,
            q,
            k,
            v,
            Rule(1.0, sinks=backend.array_as_is(np.full(4, 2000.0))),
            rows=7,
            keep=("weights", "entropy"),
        )
    )
    assert np.allclose(plain(block.lse), 2000)
    assert not plain(block.stages["weights"]).any()
    assert not plain(block.stages["entropy"]).any()
