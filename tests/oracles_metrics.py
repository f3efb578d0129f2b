"""Metrics of heads as loops over single weights; nothing here comes from attncli."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Matrix = Sequence[Sequence[float]]
Seen = Sequence[Sequence[bool]]
Found = tuple[float, int]
"""A metric's value (NaN over no rows) and how many rows it is over."""


def visible_keys(seen: Seen, i: int) -> list[int]:
    return [j for j in range(len(seen[i])) if seen[i][j]]


def mean(values: Sequence[float]) -> Found:
    return (sum(values) / len(values) if values else math.nan, len(values))


def row_entropy(row: Sequence[float]) -> float:
    return sum(-a * math.log(a) for a in row if a > 0)


def per_row(
    weights: Matrix, seen: Seen, of: Callable[[int, list[int]], float], least: int = 1
) -> Found:
    rows = [(i, visible_keys(seen, i)) for i in range(len(weights))]
    return mean([of(i, keys) for i, keys in rows if len(keys) >= least])


def at_offset(weights: Matrix, seen: Seen, offset: int) -> Found:
    return mean(
        [
            weights[i][i + offset]
            for i in range(len(weights))
            if 0 <= i + offset < len(seen[i]) and seen[i][i + offset]
        ]
    )


def pattern(weights: Matrix, seen: Seen, shown: Callable[[int, int], bool]) -> Found:
    above = below = 0.0
    rows = 0
    for i in range(len(weights)):
        rows += bool(visible_keys(seen, i))
        for j in range(1, len(weights[i])):
            if j != i:
                below += weights[i][j]
                above += weights[i][j] if shown(i, j) else 0.0
    return (above / below if below else math.nan, rows)


def metrics(
    weights: Matrix,
    seen: Seen,
    tokens: Sequence[object],
    special: Sequence[bool],
    punctuation: Sequence[bool],
    band: int = 2,
    separators: Sequence[bool] | None = None,
) -> dict[str, Found]:
    """Every metric of one head by name; weights must be 0 where not seen. separators: of each key;
    none is one where it is None."""
    if separators is None:
        separators = [False] * len(weights)

    def moment(i: int, of: Callable[[int], float]) -> float:
        return sum(weights[i][j] * of(j - i) for j in range(len(weights[i])))

    def again(i: int, j: int) -> bool:
        return j < i and tokens[j] == tokens[i]

    def after_again(i: int, j: int) -> bool:
        return 0 < j <= i and again(i, j - 1)

    def informative(i: int) -> list[int]:
        """The keys that a row sees, but the first, the query, special ones and separators."""
        return [
            j
            for j in visible_keys(seen, i)
            if j > 0 and j != i and not special[j] and not separators[j]
        ]

    w = weights
    return {
        "entropy": per_row(w, seen, lambda i, _: row_entropy(w[i])),
        "normalised_entropy": per_row(
            w, seen, lambda i, keys: row_entropy(w[i]) / math.log(len(keys)), 2
        ),
        "effective_keys": per_row(w, seen, lambda i, _: math.exp(row_entropy(w[i]))),
        "confidence": per_row(w, seen, lambda i, _: max(w[i])),
        "confidence_beyond_first": per_row(w, seen, lambda i, _: max(w[i][1:], default=0.0)),
        "strongest_link": (
            mean(
                [
                    max(w[i][j] for j in informative(i))
                    for i in range(len(w))
                    if not special[i] and informative(i)
                ]
            )[0],
            sum(bool(visible_keys(seen, i)) for i in range(len(w))),
        ),
        "distance": per_row(w, seen, lambda i, _: moment(i, abs)),
        "signed_distance": per_row(w, seen, lambda i, _: moment(i, float)),
        "previous": at_offset(w, seen, -1),
        "self": at_offset(w, seen, 0),
        "next": at_offset(w, seen, 1),
        "sink": mean([w[i][0] for i in range(1, len(w)) if visible_keys(seen, i)]),
        "special": per_row(
            w, seen, lambda i, _: sum(a for a, s in zip(w[i], special, strict=True) if s)
        ),
        "punctuation": per_row(
            w, seen, lambda i, _: sum(a for a, s in zip(w[i], punctuation, strict=True) if s)
        ),
        "diagonality": per_row(
            w, seen, lambda i, keys: 1 - moment(i, abs) / max(abs(i - j) for j in keys), 2
        ),
        "band": per_row(
            w, seen, lambda i, _: sum(a for j, a in enumerate(w[i]) if abs(i - j) <= band)
        ),
        "previous_pattern": pattern(w, seen, lambda i, j: j == i - 1),
        "duplicate_pattern": pattern(w, seen, again),
        "induction_pattern": pattern(w, seen, after_again),
        "missing": per_row(w, seen, lambda i, _: 1 - sum(w[i])),
    }


def beyond_first(
    weights: Matrix, seen: Seen, punctuation: Sequence[bool], reach: int = 5
) -> dict[str, Found]:
    """The scores without the first key, each a share of the weight beside it, over rows after the
    first that see two other keys, and how many these are."""
    rows = [i for i in range(1, len(weights)) if len([j for j in visible_keys(seen, i) if j]) >= 2]
    others = {i: [j for j in visible_keys(seen, i) if j > 0] for i in rows}

    def share(of: Callable[[int], float], used: list[int]) -> Found:
        below = sum(weights[i][j] for i in used for j in others[i])
        return (sum(map(of, used)) / below if below else math.nan, len(used))

    def evenness(i: int) -> float:
        total = sum(weights[i][j] for j in others[i])
        part = [weights[i][j] / total for j in others[i]]
        return total * row_entropy(part) / math.log(len(part))

    scores = {
        f"offset{offset:+d}_beyond_first": share(
            lambda i, offset=offset: weights[i][i + offset],
            [i for i in rows if i + offset in others[i]],
        )
        for offset in range(-reach, reach + 1)
    }
    scores["punctuation_beyond_first"] = share(
        lambda i: sum(weights[i][j] for j in others[i] if punctuation[j]), rows
    )
    scores["normalised_entropy_beyond_first"] = share(evenness, rows)
    return scores


def uniform(seen: Seen) -> list[list[float]]:
    """Weights spread evenly over what each row sees."""
    return [[1 / sum(row) if one else 0.0 for one in row] for row in seen]


def rollout(layers: Sequence[Sequence[Matrix]]) -> list[list[float]]:
    """Abnar and Zuidema 2020: heads averaged, half of it identity, layers multiplied. layers:
    [layer][head][query][key]."""
    n = len(layers[0][0])
    total = [[float(i == j) for j in range(n)] for i in range(n)]
    for heads in layers:
        step = [
            [
                sum(head[i][j] for head in heads) / len(heads) / 2 + (0.5 if i == j else 0)
                for j in range(n)
            ]
            for i in range(n)
        ]
        step = [[a / sum(row) for a in row] for row in step]
        total = [
            [sum(step[i][k] * total[k][j] for k in range(n)) for j in range(n)] for i in range(n)
        ]
    return total


def jensen_shannon(p: Sequence[float], q: Sequence[float]) -> float:
    """In nats."""

    def against(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(x * math.log(x / y) for x, y in zip(a, b, strict=True) if x > 0)

    m = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
    return (against(p, m) + against(q, m)) / 2
