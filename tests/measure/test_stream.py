"""Streaming: every size of block gives what dense attention gives, on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.arrays.torch_backend import TorchBackend
from attncli.inputs.regions import Region
from attncli.measure.metric import METRICS, Tally, measure
from attncli.measure.region_sums import RegionSums
from attncli.measure.row_facts import TokenFacts, TokenPairs, WeightRows, sight_of_mask
from attncli.measure.row_stream import Consumer, PooledMaps, RowFeeder, TopLinks, share
from attncli.mechanism.attend import BLOCK, RowBlock, Rule, attend, rows_within, stream
from attncli.mechanism.mask import (
    AllOf,
    Causal,
    Everywhere,
    Global,
    Hashed,
    Mask,
    MatrixMask,
    Window,
)
from attncli.mechanism.projection import alibi

N, HEADS, KV, DIM = 37, 6, 3, 5
RNG = np.random.default_rng(11)
TOKENS = RNG.integers(0, 7, N).tolist()
SPECIAL = RNG.random(N) < 0.2
GAPS = RNG.random((N, N)) < 0.6
GAPS[17] = False
MASKS: dict[str, Mask] = {
    "all": Everywhere(),
    "causal": Causal(),
    "window": AllOf((Causal(), Window(4, 0))),
    "behind": Window(6, -2),
    "global": AllOf((Causal(), Global((0, 13)))),
    "gaps": MatrixMask(GAPS),
}
BY_HEAD = RNG.random((HEADS, N, N)) < 0.6
MASKS["gaps by head"] = MatrixMask(BY_HEAD)
BACKENDS: list[Backend] = [NumpyBackend("float64"), TorchBackend("float64")]


def inputs(backend: Backend, seed: int = 5) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return tuple(
        backend.array(rng.standard_normal((heads, N, DIM)) * 2) for heads in (HEADS, KV, KV)
    )  # type: ignore[return-value]


def streamed(
    backend: Backend,
    arrays: tuple[Any, Any, Any],
    rule: Rule,
    consumers: list[Consumer],
    about: TokenFacts,
    *,
    rows: int = N,
    told: list[float] | None = None,
) -> Any:
    """The mixed values; every block goes through a `Watch`, and the share done is noted."""
    watch = RowFeeder(backend, consumers, about, N, heads=range(HEADS))

    def see(block: RowBlock) -> None:
        watch.on_block(block)
        if told is not None:
            told.append(share(block, HEADS, N))

    return stream(
        backend, *arrays, rule, rows=rows, keep=("weights", "entropy"), on_block=see
    ).mixed


@pytest.mark.many
@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("rows", [1, 2, 5, N])
def test_blocks_are_dense(backend: Backend, name: str, rows: int) -> None:
    q, k, v = inputs(backend)
    rule = Rule(0.4, mask=MASKS[name])
    dense = attend(backend, q, k, v, rule)
    weights, visible = (
        backend.numpy(dense.stages["weights"]),
        backend.numpy(dense.stages["masked"]) != -np.inf,
    )
    about = TokenFacts(TokenPairs(TOKENS), SPECIAL, SPECIAL[::-1])
    tally, links, maps = (
        Tally(HEADS, tuple(METRICS), about),
        TopLinks(HEADS, 8),
        PooledMaps(HEADS, N, N, side=10),
    )
    told: list[float] = []
    mixed = streamed(backend, (q, k, v), rule, [tally, links, maps], about, rows=rows, told=told)
    np.testing.assert_allclose(backend.numpy(mixed), backend.numpy(dense.mixed), atol=1e-13)
    expected = measure(
        weights,
        visible,
        metrics=tuple(METRICS),
        tokens=TOKENS,
        special=SPECIAL,
        punctuation=SPECIAL[::-1],
    )
    for metric, found in tally.result().items():
        np.testing.assert_allclose(found.value, expected[metric].value, atol=1e-12, err_msg=metric)
        np.testing.assert_allclose(
            found.baseline, expected[metric].baseline, atol=1e-12, err_msg=metric
        )
        assert found.rows.tolist() == expected[metric].rows.tolist(), metric
    for head, found_links in enumerate(links.sorted_links()):
        flat = sorted(
            (-weights[head, i, j], i, j)
            for i in range(N)
            for j in range(N)
            if weights[head, i, j] > 0
        )[:8]
        assert [(i, j) for i, j, _ in found_links] == [(i, j) for _, i, j in flat]
    cell = np.array(
        [
            [weights[:, i : i + 4, j : j + 4].max((1, 2)) for j in range(0, N, 4)]
            for i in range(0, N, 4)
        ]
    )
    np.testing.assert_allclose(maps.values, cell.transpose(2, 0, 1), atol=1e-14)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_the_comparison_notices_a_hidden_key_shown() -> None:
    backend = BACKENDS[0]
    q, k, v = inputs(backend)
    rule = Rule(0.4, mask=Causal())
    dense = attend(backend, q, k, v, replace(rule, mask=Window(None, 1)))
    mixed = streamed(backend, (q, k, v), rule, [], TokenFacts())
    assert np.abs(mixed - dense.mixed).max() > 1e-3


def test_sinks_take_their_share_of_every_row() -> None:
    for backend in BACKENDS:
        q, k, v = inputs(backend)
        rule = Rule(0.4, mask=Causal(), sinks=backend.array(np.linspace(-2, 2, HEADS)))
        dense = attend(backend, q, k, v, rule)
        tally = Tally(HEADS, ("missing", "entropy", "confidence"), TokenFacts())
        streamed(backend, (q, k, v), rule, [tally], TokenFacts(), rows=5)
        expected = measure(
            backend.numpy(dense.stages["weights"]),
            np.tril(np.ones((N, N), bool)),
            metrics=("missing", "entropy", "confidence"),
        )
        for name, found in tally.result().items():
            np.testing.assert_allclose(found.value, expected[name].value, atol=1e-12)
        assert (tally.result()["missing"].value > 0.001).all()


def test_float32_agrees_with_float64_to_single_precision() -> None:
    single, double = TorchBackend("float32"), TorchBackend("float64")
    found = []
    for backend in (single, double):
        tally = Tally(HEADS, tuple(METRICS), TokenFacts(TokenPairs(TOKENS), SPECIAL, SPECIAL[::-1]))
        streamed(backend, inputs(backend), Rule(0.4, mask=Causal()), [tally], tally.about, rows=7)
        found.append(tally.result())
    for name in METRICS:
        np.testing.assert_allclose(
            found[0][name].value, found[1][name].value, rtol=1e-5, atol=1e-6, err_msg=name
        )


def blocks_of(rule: Rule, rows: int, q: Any, k: Any) -> list[RowBlock]:
    found: list[RowBlock] = []
    stream(BACKENDS[0], q, k, k, rule, rows=rows, keep=(), on_block=found.append)
    return found


def test_a_narrow_window_is_cut_into_blocks_about_as_wide_as_itself() -> None:
    q = np.ones((1, 2000, 1))
    assert {
        block.stop - block.start for block in blocks_of(Rule(1.0, mask=Window(99, 0)), 2000, q, q)
    } == {100}
    assert {block.stop - block.start for block in blocks_of(Rule(1.0), 2000, q, q)} == {2000}
    assert rows_within(1, 100_000, 100_000) == BLOCK // 100_000
    assert rows_within(1, 3, 3) == 3


def test_a_block_has_the_heads_of_one_kv_head_and_as_many_more_rows() -> None:
    q, k, _ = inputs(BACKENDS[0])
    found = blocks_of(Rule(1.0), 5, q, k)
    assert [(block.first_head, block.start, block.stop) for block in found] == [
        (first, start, min(start + 15, N)) for start in (0, 15, 30) for first in (0, 2, 4)
    ]


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
def test_what_differs_by_head_is_cut_to_the_heads_of_a_block(backend: Backend) -> None:
    q, k, v = inputs(backend)
    slopes = backend.array(np.linspace(0.1, 2.0, HEADS))

    def position(i: Any, j: Any, /, *, heads: slice = slice(None)) -> Any:
        return alibi(slopes[heads], i, j, symmetric=True)

    for rule in (
        Rule(0.4, position_bias=position),
        Rule(0.4, bias=backend.array(RNG.standard_normal((HEADS, N, N)))),
        Rule(0.4, visibility=backend.array_as_is(BY_HEAD)),
        Rule(0.4, mask=Hashed(4, 2, 3).bind(backend, q, k, 0.4, None)),
        Rule(0.4, mask=AllOf((Causal(), MatrixMask(BY_HEAD)))),
    ):
        dense = attend(backend, q, k, v, rule)
        found = stream(backend, q, k, v, rule, rows=5, keep=(), on_block=lambda block: None)
        np.testing.assert_allclose(
            backend.numpy(found.mixed), backend.numpy(dense.mixed), atol=1e-13
        )
        assert np.array_equal(backend.numpy(found.empty), backend.numpy(dense.empty))


@pytest.mark.parametrize("step", [12, 4])
def test_even_shares_of_regions_are_over_what_a_window_shows(step: int) -> None:
    mask, count = Window(2, 0), 12
    sees = [[j for j in range(count) if i - 2 <= j <= i] for i in range(count)]
    regions = [Region("a", (0, 1, 2, 6)), Region("b", (7, 8, 11))]
    sums = RegionSums(1, regions, count, count - 1, np.zeros(count, bool))
    for start in range(0, count, step):
        i = np.arange(start, start + step)
        low, high = max(start - 2, 0), start + step
        even = np.array(
            [[(j in sees[row]) / len(sees[row]) for j in range(low, high)] for row in i]
        )
        sums.add(
            WeightRows(
                NumpyBackend(), even[None], i, low, sight_of_mask(mask, i, count), TokenFacts()
            )
        )
    shares = sums.shares()
    expected = [
        [
            np.mean([np.mean([j in keys.tokens for j in sees[i]]) for i in queries.tokens])
            for keys in regions
        ]
        for queries in regions
    ]
    np.testing.assert_allclose(shares.between_even[0], expected)
    np.testing.assert_allclose(shares.between[0], expected)
    np.testing.assert_allclose(shares.query_even[0], [0, 1 / 3])
