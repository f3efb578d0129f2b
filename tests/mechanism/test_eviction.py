"""Masks of full caches against loops: which keys are forgotten, query by query, head by head."""

from __future__ import annotations

import numpy as np
import pytest
from oracles_cache import forgetting_online, voting_window

from attncli.arrays.backend import choose
from attncli.errors import InputError, UsageError
from attncli.mechanism.attend import Rule, attend, attend_rows
from attncli.mechanism.mask import AllOf, Causal, Mask, parse_mask, visible

KV, GROUP, COUNT, WIDTH = 2, 3, 17, 5
SCALE, CAP = 0.7, 2.0


def vectors(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return tuple(draw.normal(0, 1.5, (heads, COUNT, WIDTH)) for heads in (KV * GROUP, KV, KV))  # type: ignore[return-value]


def shown(mask: Mask, cap: float | None) -> np.ndarray:
    backend = choose("numpy", device="cpu", dtype="float64")
    q, k, _ = vectors()
    bound = mask.bind(backend, q, k, SCALE, cap)
    i, j = np.arange(COUNT)[:, None], np.arange(COUNT)[None]
    return np.asarray(visible(bound, i, j, keys=COUNT, backend=backend))


@pytest.mark.parametrize("cap", [None, CAP])
@pytest.mark.parametrize(
    ("spec", "kind", "budget", "recent"),
    [("h2o:6,2", "h2o", 6, 2), ("h2o:5", "h2o", 5, 2), ("h2o:4,4", "h2o", 4, 4), ("h2o:1", "h2o", 1, 1),
     ("tova:6", "tova", 6, 1), ("tova:1", "tova", 1, 1), ("random:5,9", "random", 5, 1), ("h2o:17,3", "h2o", 17, 3)],
)  # fmt: skip
def test_a_cache_forgets_what_the_loops_forget(
    spec: str, kind: str, budget: int, recent: int, cap: float | None
) -> None:
    found = shown(parse_mask(spec), cap)
    q, k, _ = vectors()
    expected = forgetting_online(kind, q, k, SCALE, budget, recent=recent, cap=cap, seed=9)
    for kv in range(KV):
        for group in range(GROUP):
            rows = [set(np.flatnonzero(row).tolist()) for row in found[kv * GROUP + group]]
            assert rows == expected[kv]
            assert max(map(len, rows)) == min(budget, COUNT)
    pairs = parse_mask(spec).pairs(COUNT)
    assert pairs == sum(map(len, expected[0]))


@pytest.mark.parametrize("cap", [None, CAP])
@pytest.mark.parametrize(
    ("budget", "window", "pool"), [(7, 3, 1), (8, 2, 5), (6, 6, 3), (17, 4, 5), (9, 1, 3)]
)
def test_a_window_votes_as_the_loops_vote(
    budget: int, window: int, pool: int, cap: float | None
) -> None:
    found = shown(parse_mask(f"snapkv:{budget},{window},{pool}"), cap)
    q, k, _ = vectors()
    expected = voting_window(q, k, SCALE, budget, window, pool, cap=cap)
    for head in range(KV * GROUP):
        for i in range(COUNT):
            assert set(np.flatnonzero(found[head, i]).tolist()) == expected[head // GROUP][i]


@pytest.mark.parametrize("spec", ["h2o:6,2", "tova:6", "random:5", "snapkv:7,3,1"])
def test_blocks_of_rows_see_the_same(spec: str) -> None:
    backend = choose("numpy", device="cpu", dtype="float64")
    q, k, v = vectors()
    mask = AllOf((Causal(), parse_mask(spec))).bind(backend, q, k, SCALE, None)
    rule = Rule(SCALE, mask=mask)
    whole = attend(backend, q, k, v, rule)
    for start, stop in ((0, 4), (4, 11), (11, COUNT)):
        block = attend_rows(backend, q, k, v, rule, start, stop, keep=("weights",))
        assert np.allclose(
            block.stages["weights"], whole.stages["weights"][:, start:stop, block.low : block.high]
        )
    halves = mask.of_heads(slice(3, 6))
    i, j = np.arange(COUNT)[:, None], np.arange(COUNT)[None]
    assert np.array_equal(
        visible(halves, i, j, keys=COUNT, backend=backend),
        visible(mask, i, j, keys=COUNT, backend=backend)[3:6],
    )


def test_torch_forgets_the_same() -> None:
    torch = pytest.importorskip("torch")
    backend = choose("torch", device="cpu", dtype="float64")
    q, k, _ = (torch.from_numpy(array) for array in vectors())
    for spec in ("h2o:6,2", "tova:6", "random:5", "snapkv:7,3,1"):
        bound = parse_mask(spec).bind(backend, q, k, SCALE, None)
        i, j = torch.arange(COUNT)[:, None], torch.arange(COUNT)[None]
        assert np.array_equal(
            visible(bound, i, j, keys=COUNT, backend=backend).numpy(), shown(parse_mask(spec), None)
        )


@pytest.mark.parametrize(
    "spec", ["h2o:0", "h2o:4,5", "h2o", "tova", "tova:0", "random:0", "snapkv:4,5", "snapkv:4,2,2"]
)
def test_numbers_that_do_not_go_together_are_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        parse_mask(spec)


def test_a_budget_above_the_length_is_refused() -> None:
    for spec in ("h2o:18", "tova:18", "random:18", "snapkv:18,2"):
        with pytest.raises(InputError, match=r"keeps 18 keys, and the text has 17"):
            parse_mask(spec).check_size(17, 17)
        parse_mask(spec).check_size(18, 18)
    with pytest.raises(TypeError):
        visible(
            parse_mask("tova:3"),
            np.arange(3)[:, None],
            np.arange(3)[None],
            keys=3,
            backend=choose("numpy", device="cpu", dtype="float64"),
        )
