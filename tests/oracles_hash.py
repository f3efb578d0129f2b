"""Reformer's hash attention as loops over sorted lists, with dictionaries instead of sorted arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from oracles import Matrix, Vector, dot

ITSELF = -1e5


def hash_keys(vectors: Matrix) -> Matrix:
    """x / √(mean(x²) + 1e-6) / √d."""
    found = []
    for row in vectors:
        size = math.sqrt(math.fsum(x * x for x in row) / len(row) + 1e-6)
        found.append([x / size / math.sqrt(len(row)) for x in row])
    return found


def reformer_head(
    q: Matrix,
    v: Matrix,
    buckets: list[list[int]],
    chunk: int,
    sees: Callable[[int, int], bool] = lambda i, j: True,
) -> dict[str, Any]:
    """One head. q: [token][dim], shared by queries and keys. buckets: [round][token].

    Rounds stand one after another in one sorted sequence, each filled up with empty places to
    whole chunks; a chunk looks at itself and at the one before it, the first at the last.
    """
    n, k = len(q), hash_keys(q)
    if n <= chunk:
        rounds, chunks = 1, [list(range(n))]
        looks = {0: chunks[0]}
        where = {(0, token): 0 for token in range(n)}
    else:
        rounds, chunks, where = len(buckets), [], {}
        for turn, own in enumerate(buckets):
            order: list[int | None] = sorted(range(n), key=lambda token: (own[token], token))
            order += [None] * (-n % chunk)
            for start in range(0, len(order), chunk):
                for token in order[start : start + chunk]:
                    if token is not None:
                        where[turn, token] = len(chunks)
                chunks.append(order[start : start + chunk])
        looks = {
            at: [t for t in chunks[at - 1] + chunks[at] if t is not None]
            for at in range(len(chunks))
        }
    weights: list[Vector] = []
    mixed: Matrix = []
    compared: list[list[bool]] = []
    for i in range(n):
        by_round = []
        for turn in range(rounds):
            keys = [j for j in looks[where[turn, i]] if sees(i, j)]
            scores = [ITSELF if j == i else dot(q[i], k[j]) for j in keys]
            top = max(scores, default=0.0)
            total = math.fsum(math.exp(x - top) for x in scores)
            lse = top + math.log(total) if scores else -math.inf
            by_round.append(
                (lse, [(j, math.exp(x - top) / total) for j, x in zip(keys, scores, strict=True)])
            )
        best = max(lse for lse, _ in by_round)
        shares = [0.0 if best == -math.inf else math.exp(lse - best) for lse, _ in by_round]
        row, met = [0.0] * n, [False] * n
        for share, (_, pairs) in zip(shares, by_round, strict=True):
            for j, weight in pairs:
                row[j] += share / math.fsum(shares) * weight
                met[j] = True
        weights.append(row)
        compared.append(met)
        mixed.append([math.fsum(row[j] * v[j][c] for j in range(n)) for c in range(len(v[0]))])
    return {"weights": weights, "mixed": mixed, "compared": compared}
