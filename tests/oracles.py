"""What attention is, written as loops over lists of floats: the oracle of the attention core.

Nothing here is fast and nothing is imported from the package under test. Every function
takes one text: q [head][query][dim], k and v [kv][key][dim], masks as functions of (i, j).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import shake_256
from typing import Any

Vector = list[float]
Matrix = list[Vector]
INF = math.inf


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def softmax(scores: Vector, seen: list[bool], sink: float | None = None) -> Vector:
    """Weights over the seen scores; all 0 where nothing is seen."""
    shown = [score for score, see in zip(scores, seen, strict=True) if see]
    if not shown:
        return [0.0] * len(scores)
    top = max([*shown, *([] if sink is None else [sink])])
    raised = [
        math.exp(score - top) if see else 0.0 for score, see in zip(scores, seen, strict=True)
    ]
    total = math.fsum([*raised, *([] if sink is None else [math.exp(sink - top)])])
    return [x / total for x in raised]


def attention(
    q: list[Matrix],
    k: list[Matrix],
    v: list[Matrix],
    *,
    scale: float | None = None,
    softcap: float | None = None,
    mask: list[list[list[bool]]] | None = None,
    bias: list[list[list[float]]] | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    offset: int = 0,
    key_length: int | None = None,
    sinks: Vector | None = None,
    sees: Callable[[int, int], bool] | None = None,
) -> dict[str, Any]:
    """Every stage of attention, one number at a time. mask and bias: [head][query][key]. sees: a
    mask by positions.
    """
    heads, queries, keys = len(q), len(q[0]), len(k[0])
    scale = 1 / math.sqrt(len(q[0][0])) if scale is None else scale
    found: dict[str, Any] = {
        name: []
        for name in (
            "raw",
            "scaled",
            "capped",
            "biased",
            "masked",
            "weights",
            "mixed",
            "empty_rows",
        )
    }
    for head in range(heads):
        kv = head * len(k) // heads
        rows: dict[str, list[Any]] = {name: [] for name in found}
        for row in range(queries):
            i = row + offset
            raw = [dot(q[head][row], k[kv][j]) for j in range(keys)]
            scaled = [x * scale for x in raw]
            capped = [x if softcap is None else softcap * math.tanh(x / softcap) for x in scaled]
            added = [0.0 if bias is None else bias[head][row][j] for j in range(keys)]
            biased = [x + b for x, b in zip(capped, added, strict=True)]
            seen = []
            for j in range(keys):
                hidden = mask is not None and not mask[head][row][j]
                hidden |= added[j] == -INF
                hidden |= causal and j > i
                if window is not None:
                    left, right = window
                    hidden |= left is not None and j < i - left
                    hidden |= right is not None and j > i + right
                hidden |= key_length is not None and j >= key_length
                hidden |= sees is not None and not sees(i, j)
                seen.append(not hidden)
            weights = softmax(biased, seen, None if sinks is None else sinks[head])
            shown = [j for j in range(keys) if seen[j]]
            rows["raw"].append(raw)
            rows["scaled"].append(scaled)
            rows["capped"].append(capped)
            rows["biased"].append(biased)
            rows["masked"].append([x if see else -INF for x, see in zip(biased, seen, strict=True)])
            rows["weights"].append(weights)
            rows["mixed"].append(
                [math.fsum(weights[j] * v[kv][j][c] for j in shown) for c in range(len(v[0][0]))]
            )
            rows["empty_rows"].append(not shown)
        for name, values in rows.items():
            found[name].append(values)
    return found


def causal(i: int, j: int) -> bool:
    return j <= i


def decoder_window(width: int) -> Callable[[int, int], bool]:
    """`window:W`: W keys, the query's own included."""
    return lambda i, j: i - width < j <= i


def window(left: int, right: int) -> Callable[[int, int], bool]:
    return lambda i, j: i - left <= j <= i + right


def dilated(width: int, step: int) -> Callable[[int, int], bool]:
    return lambda i, j: i - width < j <= i and (i - j) % step == 0


def global_tokens(*tokens: int) -> Callable[[int, int], bool]:
    return lambda i, j: i in tokens or j in tokens


def longformer(width: int, *tokens: int) -> Callable[[int, int], bool]:
    """`attention_window` w: w // 2 keys on either side, and tokens that attend and are attended
    everywhere.
    """
    return lambda i, j: abs(i - j) <= width // 2 or i in tokens or j in tokens


def prefix(length: int) -> Callable[[int, int], bool]:
    return lambda i, j: j < length or j <= i


def chunk(size: int) -> Callable[[int, int], bool]:
    return lambda i, j: j <= i and j // size == i // size


def block(size: int) -> Callable[[int, int], bool]:
    return lambda i, j: j // size == i // size


def documents(*ids: int) -> Callable[[int, int], bool]:
    return lambda i, j: 0 <= i < len(ids) and ids[i] == ids[j]


def streaming(sinks: int, recent: int) -> Callable[[int, int], bool]:
    return lambda i, j: j <= i and (j < sinks or i - j < recent)


def padding(count: int, keys: int) -> Callable[[int, int], bool]:
    return lambda i, j: j < keys - count


def union(*parts: Callable[[int, int], bool]) -> Callable[[int, int], bool]:
    return lambda i, j: any(part(i, j) for part in parts)


def intersection(*parts: Callable[[int, int], bool]) -> Callable[[int, int], bool]:
    return lambda i, j: all(part(i, j) for part in parts)


def stream(seed: int, name: str, count: int) -> list[int]:
    """The package's named stream of 32-bit integers, as its documentation states it."""
    digest = shake_256(f"attn\0{seed}\0{name}".encode()).digest(4 * count)
    return [int.from_bytes(digest[4 * at : 4 * at + 4], "little") for at in range(count)]


def bigbird(size: int, random: int, seed: int, keys: int) -> Callable[[int, int], bool]:
    """Neighbouring blocks, the first, the last, and `random` drawn others; everything in a short
    text.
    """
    if keys <= (5 + 2 * random) * size:
        return lambda i, j: True
    last = (keys - 1) // size
    drawn: dict[int, list[int]] = {}
    for own in range(1, last):
        left = [other for other in range(1, last) if other not in (own - 1, own, own + 1)]
        numbers, drawn[own] = stream(seed, f"bigbird\0{own}", random), []
        for number in numbers:
            if left:
                drawn[own].append(left.pop(number % len(left)))

    def sees(i: int, j: int) -> bool:
        if not 0 <= i < keys:
            return False
        own, other = i // size, j // size
        if own in (0, last) or other in (0, last):
            return True
        return abs(own - other) <= 1 or other in drawn[own]

    return sees


def buckets(vectors: list[Matrix], rotations: list[list[list[Vector]]]) -> list[list[list[int]]]:
    """The hash bucket of each vector, [head][round][token]. rotations: [head][dim][round][half]."""
    found = []
    for head, rows in enumerate(vectors):
        by_round = []
        for turn in range(len(rotations[head][0])):
            half = len(rotations[head][0][turn])
            own = []
            for row in rows:
                sides = [
                    dot(row, [rotations[head][c][turn][at] for c in range(len(row))])
                    for at in range(half)
                ]
                both = [*sides, *(-x for x in sides)]
                own.append(max(range(2 * half), key=lambda at: both[at]))
            by_round.append(own)
        found.append(by_round)
    return found
