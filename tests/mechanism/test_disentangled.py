"""Scores of content and position, told apart: against loops, dense and by blocks of rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from comparing import LIBRARIES
from msgspec.structs import replace
from oracles import dot
from oracles_layers import layer_norm, linear, softmax, split

from attncli.arrays.backend import choose
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context
from attncli.mechanism.projection import CONTENT_POSITION, POSITION_CONTENT, distance_buckets
from attncli.mechanism.spec import Attention, Block, Disentangled, Norm

TOKENS, WIDTH, HEADS, DIM, SPAN, FURTHEST = 9, 6, 2, 3, 4, 20
NORM = Norm("layer", 1e-2)
OWN = Disentangled(SPAN, FURTHEST, asks=True, answers=True, own=True, norm=None)
KINDS = {
    "own projections": OWN,
    "the content's projections": replace(OWN, own=False),
    "a normed table": replace(OWN, own=False, norm=NORM),
    "each distance": replace(OWN, furthest=None),
    "queries alone": replace(OWN, answers=False),
    "keys alone": replace(OWN, asks=False),
}
RANDOM = np.random.default_rng(5)
SQUARE = ("attn.q", "attn.k", "attn.v", "attn.o", "attn.relative_k", "attn.relative_q")
WEIGHTS = {f"{name}.weight": RANDOM.standard_normal((WIDTH, WIDTH)) for name in SQUARE}
WEIGHTS |= {
    f"{name}.bias": RANDOM.standard_normal(WIDTH) for name in (*SQUARE, "attn.relative_norm")
}
WEIGHTS |= {
    "attn.relative.weight": RANDOM.standard_normal((2 * SPAN, WIDTH)),
    "attn.relative_norm.weight": 1 + RANDOM.standard_normal(WIDTH),
}
HIDDEN = RANDOM.standard_normal((TOKENS, WIDTH))
SCALE = 0.3


def row_of(distance: int, furthest: int | None) -> int:
    """The bucket of a distance, by comparing powers: no logarithm."""
    far, exact = abs(distance), SPAN // 2
    if furthest is not None and far > exact:
        steps = 0
        while far ** (exact - 1) * exact**steps > (furthest - 1) ** steps * exact ** (exact - 1):
            steps += 1
        far = exact + steps
    return min(max(far * (1 if distance > 0 else -1) + SPAN, 0), 2 * SPAN - 1)


def loops(position: Disentangled) -> dict[str, np.ndarray]:
    roles = {name: array.tolist() for name, array in WEIGHTS.items()}
    rows, table = HIDDEN.tolist(), roles["attn.relative.weight"]
    if position.norm is not None:
        norm = roles["attn.relative_norm.weight"], roles["attn.relative_norm.bias"]
        table = [layer_norm(row, position.norm.eps, *norm) for row in table]
    q, k = (split([linear(roles, f"attn.{name}", row) for row in rows], HEADS) for name in "qk")
    as_key, as_query = (
        ("attn.relative_k", "attn.relative_q") if position.own else ("attn.k", "attn.q")
    )
    keys = split([linear(roles, as_key, row) for row in table], HEADS)
    queries = split([linear(roles, as_query, row) for row in table], HEADS)
    found: dict[str, list] = {
        name: [] for name in ("scaled", CONTENT_POSITION, POSITION_CONTENT, "weights")
    }
    for head in range(HEADS):
        for i in range(TOKENS):
            places = [row_of(i - j, position.furthest) for j in range(TOKENS)]
            alone = [SCALE * dot(q[head][i], k[head][j]) for j in range(TOKENS)]
            asked = [SCALE * dot(q[head][i], keys[head][place]) * position.asks for place in places]
            answered = [
                SCALE * dot(k[head][j], queries[head][place]) * position.answers
                for j, place in enumerate(places)
            ]
            total = [math.fsum(three) for three in zip(alone, asked, answered, strict=True)]
            for name, row in zip(found, (alone, asked, answered, softmax(total)), strict=True):
                found[name].append(row)
    return {name: np.array(rows).reshape(HEADS, TOKENS, TOKENS) for name, rows in found.items()}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_every_score(kind: str, rows: int | None, library: str) -> None:
    backend = choose(library, device=None, dtype="float64")
    position = KINDS[kind]
    block = Block(Attention(HEADS, HEADS, DIM, DIM, SCALE, position=position), residual=False)
    weights = {name: backend.array(array) for name, array in WEIGHTS.items()}
    found = np.zeros((HEADS, TOKENS, TOKENS))

    def see(layer: int, side: str, part: RowBlock) -> None:
        first, told = part.first_head, backend.numpy(part.stages["weights"])
        found[first : first + told.shape[0], part.start : part.stop, part.low : part.high] = told

    context = Context(np.arange(TOKENS), TOKENS, rows=rows, on_block=see)
    stages = run_block(backend, block, weights.get, backend.array(HIDDEN), context, 0).stages
    wanted = loops(position)
    for name in (CONTENT_POSITION, POSITION_CONTENT):
        assert (name in stages) == (
            rows is None and (position.asks if name == CONTENT_POSITION else position.answers)
        )
    if rows is not None:
        assert np.allclose(found, wanted["weights"], rtol=1e-10, atol=1e-12)
        return
    for name, theirs in wanted.items():
        if name in stages:
            assert np.allclose(backend.numpy(stages[name]), theirs, rtol=1e-10, atol=1e-12), name


def test_buckets_of_far_distances() -> None:
    distances = np.arange(-60, 61)
    wide = Disentangled(8, 40, asks=True, answers=True, own=False, norm=None)
    found = distance_buckets(distances, wide)
    assert found[np.abs(distances) <= 4].tolist() == list(range(4, 13))
    assert found.min() == 0
    assert found.max() == 15
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(
    ("span", "furthest"), [(4, 8), (6, 6), (16, 10), (100, 100), (256, 130), (256, 512)]
)
def test_the_furthest_distance_is_the_last_step(span: int, furthest: int) -> None:
    position = Disentangled(span, furthest, asks=True, answers=True, own=False, norm=None)
    ends = distance_buckets(np.array([1 - furthest, furthest - 1]), position)
    assert ends.tolist() == [1, 2 * span - 1]
