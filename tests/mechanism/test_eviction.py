"""Masks of full caches against loops: which keys are forgotten, query by query, head by head."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attncli.arrays.backend import choose
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError, UsageError
from attncli.mechanism.attend import Rule, attend, attend_rows
from attncli.mechanism.mask import AllOf, Causal, Mask, parse_mask, visible

KV, GROUP, COUNT, WIDTH = 2, 3, 17, 5
SCALE, CAP = 0.7, 2.0


def vectors(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return tuple(draw.normal(0, 1.5, (heads, COUNT, WIDTH)) for heads in (KV * GROUP, KV, KV))  # type: ignore[return-value]


def weights_over(query: np.ndarray, keys: np.ndarray, cached: list[int], cap: float | None) -> dict[int, float]:
    scores = {j: math.fsum(a * b for a, b in zip(query, keys[j], strict=True)) * SCALE for j in cached}
    if cap is not None:
        scores = {j: cap * math.tanh(score / cap) for j, score in scores.items()}
    top = max(scores.values())
    total = math.fsum(math.exp(score - top) for score in scores.values())
    return {j: math.exp(score - top) / total for j, score in scores.items()}


def online(kind: str, budget: int, recent: int, cap: float | None, seed: int = 0) -> list[list[set[int]]]:
    """What each kv head's queries see, [kv][query]: loops over heads, queries and keys."""
    q, k, _ = vectors()
    draws = normal(seed, "cache", (KV, COUNT))
    caches: list[list[int]] = [[] for _ in range(KV)]
    received = [dict.fromkeys(range(COUNT), 0.0) for _ in range(KV)]
    seen: list[list[set[int]]] = [[] for _ in range(KV)]
    for i in range(COUNT):
        looks = []
        for kv in range(KV):
            caches[kv].append(i)
            seen[kv].append(set(caches[kv]))
            looks.append([weights_over(q[kv * GROUP + g, i], k[kv], caches[kv], cap) for g in range(GROUP)])
        for kv in range(KV):
            for j in caches[kv]:
                received[kv][j] += sum(look[j] for look in looks[kv]) / GROUP
            if len(caches[kv]) < budget:
                continue
            if kind == "h2o":
                worth = {j: received[kv][j] / (i - j + 1) if j <= i - recent else math.inf for j in caches[kv]}
            elif kind == "tova":  # the cache is the same for all heads, place by place
                worth = {j: math.inf if j == i else sum(look[j] for part in looks for look in part) for j in caches[kv]}
            else:
                worth = {j: math.inf if j == i else float(draws[kv, j]) for j in caches[kv]}
            caches[kv].remove(min(caches[kv], key=lambda j: worth[j]))
    return seen


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
    expected = online(kind, budget, recent, cap, seed=9)
    for kv in range(KV):
        for group in range(GROUP):
            rows = [set(np.flatnonzero(row).tolist()) for row in found[kv * GROUP + group]]
            assert rows == expected[kv]
            assert max(map(len, rows)) == min(budget, COUNT)
    pairs = parse_mask(spec).pairs(COUNT)
    assert pairs == sum(map(len, expected[0]))


@pytest.mark.parametrize("cap", [None, CAP])
@pytest.mark.parametrize(("budget", "window", "pool"), [(7, 3, 1), (8, 2, 5), (6, 6, 3), (17, 4, 5), (9, 1, 3)])
def test_a_window_votes_as_the_loops_vote(budget: int, window: int, pool: int, cap: float | None) -> None:
    found = shown(parse_mask(f"snapkv:{budget},{window},{pool}"), cap)
    q, k, _ = vectors()
    first = COUNT - window
    for kv in range(KV):
        votes = []
        for g in range(GROUP):
            looks = [weights_over(q[kv * GROUP + g, i], k[kv], list(range(i + 1)), cap) for i in range(first, COUNT)]
            mean = [sum(look[j] for look in looks) / window for j in range(first)]
            votes.append(
                [
                    sum(mean[j + d] for d in range(-(pool // 2), pool // 2 + 1) if 0 <= j + d < first) / pool
                    for j in range(first)
                ]
            )
        worth = [sum(vote[j] for vote in votes) / GROUP for j in range(first)]
        kept = set(sorted(range(first), key=lambda j: -worth[j])[: budget - window])
        for i in range(COUNT):
            expected = set(range(i + 1)) if i < first else kept | set(range(first, i + 1))
            assert set(np.flatnonzero(found[kv * GROUP, i]).tolist()) == expected


@pytest.mark.parametrize("spec", ["h2o:6,2", "tova:6", "random:5", "snapkv:7,3,1"])
def test_blocks_of_rows_see_the_same(spec: str) -> None:
    backend = choose("numpy", device="cpu", dtype="float64")
    q, k, v = vectors()
    mask = AllOf((Causal(), parse_mask(spec))).bind(backend, q, k, SCALE, None)
    rule = Rule(SCALE, mask=mask)
    whole = attend(backend, q, k, v, rule)
    for start, stop in ((0, 4), (4, 11), (11, COUNT)):
        block = attend_rows(backend, q, k, v, rule, start, stop, keep=("weights",))
        assert np.allclose(block.stages["weights"], whole.stages["weights"][:, start:stop, block.low : block.high])
    halves = mask.of_heads(slice(3, 6))
    i, j = np.arange(COUNT)[:, None], np.arange(COUNT)[None]
    assert np.array_equal(
        visible(halves, i, j, keys=COUNT, backend=backend), visible(mask, i, j, keys=COUNT, backend=backend)[3:6]
    )


def test_torch_forgets_the_same() -> None:
    torch = pytest.importorskip("torch")
    backend = choose("torch", device="cpu", dtype="float64")
    q, k, _ = (torch.from_numpy(array) for array in vectors())
    for spec in ("h2o:6,2", "tova:6", "random:5", "snapkv:7,3,1"):
        bound = parse_mask(spec).bind(backend, q, k, SCALE, None)
        i, j = torch.arange(COUNT)[:, None], torch.arange(COUNT)[None]
        assert np.array_equal(visible(bound, i, j, keys=COUNT, backend=backend).numpy(), shown(parse_mask(spec), None))


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
