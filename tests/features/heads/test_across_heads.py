"""Across layers and heads: rollout, flow, similarity and circuits against loops, full matrices and
known cases.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracles_metrics as oracle
import pytest
from msgspec.structs import replace

from attncli.errors import InputError, LimitError
from attncli.features.heads.across_heads import (
    AttentionRollout,
    HeadMatrices,
    check_flow_size,
    composition,
    compositions,
    copying_score,
    max_flow,
    measure_circuits,
    norms,
    random_composition,
    residual,
)
from attncli.measure.labels import head_distances, jensen_shannon, leaf_order, linkage

G = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.15, 0.5, 0.25]])
CAUSAL = np.tril(np.ones((4, 4), bool))
EVEN = CAUSAL / CAUSAL.sum(-1, keepdims=True)


def some(*shape: int, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).random(shape) ** 3
    return raw / raw.sum(-1, keepdims=True)


def test_rollout_of_the_golden_matrix_twice() -> None:
    found = AttentionRollout(4)
    for _ in range(2):
        found.add(G[None], CAUSAL)
    expected = [
        [1, 0, 0, 0],
        [0.4375, 0.5625, 0, 0],
        [0.2125, 0.225, 0.5625, 0],
        [0.125, 0.140625, 0.34375, 0.390625],
    ]
    np.testing.assert_allclose(found.result, expected, atol=1e-12)
    np.testing.assert_allclose(found.uniform, oracle.rollout([[EVEN.tolist()]] * 2), atol=1e-12)


def test_rollout_is_the_loop() -> None:
    layers = some(3, 2, 7, 7)
    found = AttentionRollout(7)
    for layer in layers:
        found.add(layer)
    np.testing.assert_allclose(found.result, oracle.rollout(layers.tolist()), atol=1e-12)
    np.testing.assert_allclose(found.result.sum(-1), 1)
    assert (
        np.abs(found.result - oracle.rollout(layers[::-1].tolist())).max() > 1e-3
    )  # the order of layers matters
    less = layers[0] * np.linspace(0.2, 1, 7)[:, None]  # rows that a sink or an exclusion took from
    np.testing.assert_allclose(residual(less.mean(0)).sum(-1), 1)
    empty = AttentionRollout(3)
    empty.add(np.zeros((1, 3, 3)), np.zeros((3, 3), bool))
    np.testing.assert_array_equal(empty.result, np.eye(3))


def cut(steps: list[np.ndarray], query: int, key: int) -> float:
    """The minimum cut by trying every cut: equal to the maximum flow (Ford and Fulkerson)."""
    count, depth = len(steps[0]), len(steps)
    inner = [(d, i) for d in range(1, depth) for i in range(count)]
    least = math.inf
    for chosen in itertools.product((False, True), repeat=len(inner)):
        side = {(0, query): True, **dict(zip(inner, chosen, strict=True))}
        for i in range(count):
            side.setdefault((0, i), False)
            side[depth, i] = False
        total = 0.0
        for d in range(depth):
            for i in range(count):
                for j in range(count):
                    if d == depth - 1 and j != key:
                        continue  # only the key is the sink; other inputs lead nowhere
                    if side[d, i] and not side[d + 1, j]:
                        total += steps[d][i, j]
        least = min(least, total)
    return least


def test_flow_is_the_minimum_cut() -> None:
    layers = list(some(3, 3, 3, seed=4))
    steps = [residual(layer) for layer in reversed(layers)]
    expected = np.array([[cut(steps, query, key) for key in range(3)] for query in range(3)])
    np.testing.assert_allclose(
        max_flow(layers, range(3)), expected / expected.sum(-1, keepdims=True), atol=1e-8
    )


def test_flow_through_one_layer_is_that_layer() -> None:
    np.testing.assert_allclose(max_flow([G], [3]), residual(G)[3:], atol=1e-8)


def test_flow_refuses_what_would_take_long() -> None:
    with pytest.raises(LimitError, match="maximum-flow"):
        check_flow_size(100, 12, 100)
    check_flow_size(11, 6, 11)
    check_flow_size(100, 3, 1)  # 3,000,000: the most that is allowed
    with pytest.raises(LimitError):
        check_flow_size(100, 4, 1)


def test_jensen_shannon_of_the_golden_matrix() -> None:
    assert float(jensen_shannon(G, EVEN)) == pytest.approx(0.015352, abs=1e-6)
    table = head_distances(np.stack([G, EVEN]))
    rows = [oracle.jensen_shannon(a, b) for a, b in zip(G.tolist(), EVEN.tolist(), strict=True)]
    assert float(jensen_shannon(G, EVEN)) == pytest.approx(sum(rows) / 4)
    np.testing.assert_allclose(table, [[0, 0.148824], [0.148824, 0]], atol=1e-6)


def test_jensen_shannon_bounds_and_empty_rows() -> None:
    apart = np.eye(2)
    assert float(jensen_shannon(apart, apart[::-1])) == pytest.approx(math.log(2))
    assert float(jensen_shannon(apart, apart)) == 0
    assert math.isnan(jensen_shannon(np.zeros((2, 2)), np.zeros((2, 2))))
    half = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert float(jensen_shannon(half, half[:, ::-1])) == pytest.approx(math.log(2))
    # a mask says which rows count: one that sees something counts though its weights are 0, in
    # every head it holds for
    seen = np.array([[True, False], [False, True]])
    assert float(jensen_shannon(half, half[:, ::-1], seen)) == pytest.approx(math.log(2) / 2)
    assert float(jensen_shannon(half, half[:, ::-1], seen & [[True], [False]])) == pytest.approx(
        math.log(2)
    )
    assert float(jensen_shannon(half, half[:, ::-1], seen & [[False], [True]])) == 0
    np.testing.assert_allclose(
        jensen_shannon(half[None], np.stack([half, half[:, ::-1]]), seen), [0, math.log(2) / 2]
    )
    with pytest.raises(InputError, match="cannot be compared"):
        jensen_shannon(G, apart)


def test_distances_are_each_pair() -> None:
    heads = some(5, 7, 7, seed=2)
    table = head_distances(heads)
    for a in range(5):
        for b in range(5):
            assert table[a, b] == pytest.approx(
                math.sqrt(float(jensen_shannon(heads[a], heads[b])) / math.log(2)), abs=1e-7
            )
    with pytest.raises(LimitError):
        head_distances(np.zeros((2000, 30, 30)))


def test_the_tree_joins_the_nearest_first() -> None:
    points = np.array([0.0, 10.0, 1.0, 11.0, 30.0])
    table = np.abs(points[:, None] - points[None, :])
    merges = linkage(table)
    assert [(one.a, one.b, one.height) for one in merges] == [
        (0, 2, 1.0),
        (1, 3, 1.0),
        (5, 6, 10.0),
        (4, 7, 24.5),
    ]
    leaves = leaf_order(merges, 5)
    assert sorted(leaves) == list(range(5))
    assert abs(leaves.index(0) - leaves.index(2)) == 1
    assert leaf_order([], 1) == [0]


def a_head(seed: int, width: int = 13, dim: int = 5, layer: int = 0) -> HeadMatrices:
    rng = np.random.default_rng(seed)
    shapes = ((width, dim), (width, dim), (width, dim + 2), (dim + 2, width))
    return HeadMatrices(layer, 0, *(rng.standard_normal(shape) for shape in shapes), 0.3)


def test_circuits_are_those_of_the_full_matrices() -> None:
    before, after = a_head(1), a_head(2, layer=1)
    ov = {head: head.w_v @ head.w_o for head in (before, after)}
    qk = after.w_q @ after.w_k.T
    values = np.linalg.eigvals(ov[before])
    assert copying_score(before) == pytest.approx(values.sum().real / np.abs(values).sum())
    assert norms(after) == pytest.approx((0.3 * np.linalg.norm(qk), np.linalg.norm(ov[after])))
    found = composition(before, after)
    for way, matrix in (("q", qk), ("k", qk.T), ("v", ov[after])):
        expected = (
            np.linalg.norm(ov[before] @ matrix)
            / np.linalg.norm(ov[before])
            / np.linalg.norm(matrix)
        )
        assert found[way] == pytest.approx(expected)


def test_a_head_of_zeros_has_no_composition_and_orders_no_other() -> None:
    heads = [a_head(seed, layer=seed) for seed in range(4)]
    idle = replace(a_head(9, layer=1), w_o=np.zeros((7, 13)))
    with_idle = measure_circuits([*heads[:2], idle, *heads[2:]]).compositions
    strengths = [row.strength for row in with_idle]
    assert strengths == sorted(strengths, reverse=True)
    alone = [row.strength for row in measure_circuits(heads).compositions]
    assert set(alone) <= set(strengths)


def test_copying_heads_and_their_opposite() -> None:
    side = np.linalg.qr(np.random.default_rng(0).standard_normal((13, 13)))[0][:, :5]
    for sign in (1, -1):
        assert copying_score(HeadMatrices(0, 0, side, side, side, sign * side.T)) == pytest.approx(
            sign
        )
    assert math.isnan(copying_score(HeadMatrices(0, 0, side, side, 0 * side, side.T)))


def test_composition_stands_out_against_chance() -> None:
    before = a_head(3)
    reads = a_head(4, layer=1)
    tuned = HeadMatrices(
        1,
        0,
        reads.w_q,
        before.w_o.T @ np.random.default_rng(1).standard_normal((7, 5)),
        reads.w_v,
        reads.w_o,
    )
    chance = random_composition(before, tuned)
    assert composition(before, tuned)["k"] > 1.3 * chance["k"]
    assert composition(before, reads)["q"] == pytest.approx(chance["q"], abs=0.25)
    assert random_composition(before, tuned) == chance
    pairs = compositions([before, tuned, reads])
    assert [(a, b) for a, b, _ in pairs] == [(before, tuned), (before, reads)]


def test_no_heads_have_no_distances() -> None:
    assert head_distances(np.zeros((0, 5, 5))).shape == (0, 0)
