"""Caches that forget, in loops over heads, queries and keys: what each query still sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attncli.arrays.numpy_backend import normal


def weights_over(
    query: Any, keys: Any, cached: Sequence[int], scale: float, cap: float | None = None
) -> dict[int, float]:
    """The weights of one query over some keys."""
    scores = {
        j: math.fsum(a * b for a, b in zip(query, keys[j], strict=True)) * scale for j in cached
    }
    if cap is not None:
        scores = {j: cap * math.tanh(score / cap) for j, score in scores.items()}
    top = max(scores.values())
    total = math.fsum(math.exp(score - top) for score in scores.values())
    return {j: math.exp(score - top) / total for j, score in scores.items()}


def forgetting_online(
    kind: str,
    q: Any,
    k: Any,
    scale: float,
    budget: int,
    *,
    recent: int = 1,
    cap: float | None = None,
    seed: int = 0,
) -> list[list[set[int]]]:
    """What the queries see, [kv][query]. kind: h2o, tova or random. q: [head, query, dim]; k: [kv,
    key, dim].
    """
    kv_heads, count, group = len(k), len(k[0]), len(q) // len(k)
    draws = normal(seed, "cache", (kv_heads, count))
    caches: list[list[int]] = [[] for _ in range(kv_heads)]
    received = [dict.fromkeys(range(count), 0.0) for _ in range(kv_heads)]
    sight: list[list[set[int]]] = [[] for _ in range(kv_heads)]
    for i in range(count):
        looks = []
        for kv in range(kv_heads):
            caches[kv].append(i)
            sight[kv].append(set(caches[kv]))
            looks.append(
                [
                    weights_over(q[kv * group + g][i], k[kv], caches[kv], scale, cap)
                    for g in range(group)
                ]
            )
        for kv in range(kv_heads):
            for j in caches[kv]:
                received[kv][j] += sum(look[j] for look in looks[kv]) / group
            if len(caches[kv]) < budget:
                continue
            if kind == "h2o":
                worth = {
                    j: received[kv][j] / (i - j + 1) if j <= i - recent else math.inf
                    for j in caches[kv]
                }
            elif kind == "tova":  # the cache is the same for all heads, place by place
                worth = {
                    j: math.inf if j == i else sum(look[j] for part in looks for look in part)
                    for j in caches[kv]
                }
            else:
                worth = {j: math.inf if j == i else float(draws[kv, j]) for j in caches[kv]}
            caches[kv].remove(min(caches[kv], key=lambda j: worth[j]))
    return sight


def voting_window(
    q: Any, k: Any, scale: float, budget: int, window: int, pool: int, *, cap: float | None = None
) -> list[list[set[int]]]:
    """What the queries see where the last `window` of them vote, [kv][query]."""
    kv_heads, count, group = len(k), len(k[0]), len(q) // len(k)
    first = count - window
    sight = []
    for kv in range(kv_heads):
        votes = []
        for g in range(group):
            looks = [
                weights_over(q[kv * group + g][i], k[kv], range(i + 1), scale, cap)
                for i in range(first, count)
            ]
            mean = [sum(look[j] for look in looks) / window for j in range(first)]
            votes.append(
                [
                    sum(
                        mean[j + d]
                        for d in range(-(pool // 2), pool // 2 + 1)
                        if 0 <= j + d < first
                    )
                    / pool
                    for j in range(first)
                ]
            )
        worth = [sum(vote[j] for vote in votes) / group for j in range(first)]
        kept = set(sorted(range(first), key=lambda j: -worth[j])[: budget - window])
        sight.append(
            [
                set(range(i + 1)) if i < first else kept | set(range(first, i + 1))
                for i in range(count)
            ]
        )
    return sight


def sinks_and_recent(kv_heads: int, count: int, sinks: int, recent: int) -> list[list[set[int]]]:
    """What the queries see that see the first and the last keys alone, [kv][query]."""
    rows = [{j for j in range(i + 1) if j < sinks or i - j < recent} for i in range(count)]
    return [rows] * kv_heads
