"""Every kind of mask beside the function of (i, j) that says the same, for `n` keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import oracles

from attncli.mechanism.mask import (
    AllOf,
    AnyOf,
    BigBird,
    Blocks,
    Causal,
    Chunk,
    Dilated,
    Documents,
    Everywhere,
    Global,
    Mask,
    MatrixMask,
    Padding,
    Prefix,
    Streaming,
    Window,
)  # fmt: skip

Sees = Callable[[int, int], bool]


def pairs(n: int) -> list[tuple[Mask, Sees]]:
    """Masks with their meaning, for a text of n tokens."""
    ids = tuple(i // 3 % 2 for i in range(n))
    table = np.random.default_rng(n).random((n, n)) < 0.4
    row = np.random.default_rng(n).random(n) < 0.6
    simple: list[tuple[Mask, Sees]] = [
        (Everywhere(), lambda i, j: True),
        (Causal(), oracles.causal),
        (Window(0, 0), oracles.window(0, 0)),
        (Window(2, 0), oracles.decoder_window(3)),
        (Window(1, 3), oracles.window(1, 3)),
        (Window(None, 2), oracles.window(n + 9, 2)),
        (Window(2, None), oracles.window(2, n + 9)),
        (Window(None, None), lambda i, j: True),
        (Dilated(1, 1), oracles.dilated(1, 1)),
        (Dilated(5, 2), oracles.dilated(5, 2)),
        (Dilated(7, 3), oracles.dilated(7, 3)),
        (Global((0,)), oracles.global_tokens(0)),
        (Global((2, 5)), oracles.global_tokens(2, 5)),
        (Prefix(0), oracles.prefix(0)),
        (Prefix(3), oracles.prefix(3)),
        (Prefix(n + 5), oracles.prefix(n + 5)),
        (Chunk(1), oracles.chunk(1)),
        (Chunk(3), oracles.chunk(3)),
        (Blocks(4), oracles.block(4)),
        (Documents(ids), oracles.documents(*ids)),
        (Streaming(1, 2), oracles.streaming(1, 2)),
        (Streaming(0, 3), oracles.streaming(0, 3)),
        (BigBird(1, 1, 7), oracles.bigbird(1, 1, 7, n)),
        (BigBird(2, 0, 0), oracles.bigbird(2, 0, 0, n)),
        (BigBird(64, 3, 0), oracles.bigbird(64, 3, 0, n)),
        (
            BigBird(1, 0, 0, longest=3),
            lambda i, j: n <= 3 or (0 <= i < n and (bool({i, j} & {0, n - 1}) or abs(i - j) <= 1)),
        ),
        (Padding(0), oracles.padding(0, n)),
        (Padding(2), oracles.padding(2, n)),
        (Padding(n + 1), oracles.padding(n + 1, n)),
        (MatrixMask(table), lambda i, j: bool(table[i, j])),
        (MatrixMask(row), lambda i, j: bool(row[j])),
    ]
    joined = [(6, 17), (1, 25), (3, 22), (4, 14), (9, 1), (20, 26), (5, 6), (28, 1), (0, 2)]
    for a, b in joined:
        (one, sees_one), (other, sees_other) = simple[a], simple[b]
        simple.append((AllOf((one, other)), oracles.intersection(sees_one, sees_other)))
        simple.append((AnyOf((one, other)), oracles.union(sees_one, sees_other)))
    nested = AnyOf((AllOf((Window(2, 2), Causal())), AllOf((Global((1,)), Padding(2)))))
    simple.append(
        (
            nested,
            oracles.union(
                oracles.intersection(oracles.window(2, 2), oracles.causal),
                oracles.intersection(oracles.global_tokens(1), oracles.padding(2, n)),
            ),
        )
    )
    return simple
