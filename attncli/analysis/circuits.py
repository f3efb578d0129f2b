"""Circuits: what the weights of a head do by themselves, before any text.

Source: Elhage et al., A mathematical framework for transformer circuits, 2021. W_QK = W_Q W_Kᵀ·scale says
which tokens look at which, W_OV = W_V W_O what is moved when they do. Both are low rank and never
multiplied out: norms and eigenvalues come from matrices of the head's width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from attncli.analysis.visible_keys import Floats
from attncli.mechanism.random_streams import normal

DRAWS = 4


class HeadMatrices(Struct, frozen=True, eq=False):
    """The weights of one head, applied to row vectors: q = x·w_q.

    w_q, w_k: [width, dim]. w_v: [width, v_dim]. w_o: [v_dim, width]. scale: of the scores.
    """

    layer: int
    head: int
    w_q: Floats
    w_k: Floats
    w_v: Floats
    w_o: Floats
    scale: float = 1.0


def copying(head: HeadMatrices) -> float:
    """Re Σλ / Σ|λ| over the eigenvalues of W_OV: 1 for a head that copies, −1 for one that negates; NaN for a zero
    matrix.

    W_V W_O and W_O W_V have the same eigenvalues but for zeros.
    """
    values = np.linalg.eigvals(head.w_o @ head.w_v)
    size = np.abs(values).sum()
    return float(values.sum().real / size) if size > 0 else float("nan")


def norms(head: HeadMatrices) -> tuple[float, float]:
    """Frobenius norms of W_QK and W_OV."""
    return head.scale * _norm(head.w_q, head.w_k.T), _norm(head.w_v, head.w_o)


def composition(before: HeadMatrices, after: HeadMatrices) -> dict[str, float]:
    """How strongly a later head reads what an earlier one writes, through its queries, keys and values: "q", "k", "v".

    ‖W_OV·M‖ / (‖W_OV‖‖M‖), M being W_QK, W_QKᵀ and W_OV of the later head: 0 to 1. NaN for a zero matrix.
    """
    write = (before.w_v, before.w_o)
    return {
        "q": _product(write, (after.w_q, after.w_k.T)),
        "k": _product(write, (after.w_k, after.w_q.T)),
        "v": _product(write, (after.w_v, after.w_o)),
    }


def random_composition(before: HeadMatrices, after: HeadMatrices) -> dict[str, float]:
    """The composition of standard normal matrices of the same shapes, mean of `DRAWS` seeded draws: what chance
    gives."""
    compositions_found = []
    for draw in range(DRAWS):
        random_heads = [_random_head(head, draw, name) for name, head in (("before", before), ("after", after))]
        compositions_found.append(composition(*random_heads))
    return {way: float(np.mean([strengths[way] for strengths in compositions_found])) for way in ("q", "k", "v")}


def _random_head(head: HeadMatrices, seed: int, name: str) -> HeadMatrices:
    """Standard normal matrices of the shapes of a head's."""

    def like(part: str, matrix: Floats) -> Floats:
        return normal(seed, f"circuits\0{name}\0{part}", matrix.shape).astype(np.float64)

    return HeadMatrices(
        head.layer,
        head.head,
        like("w_q", head.w_q),
        like("w_k", head.w_k),
        like("w_v", head.w_v),
        like("w_o", head.w_o),
    )


def compositions(heads: Sequence[HeadMatrices]) -> list[tuple[int, int, dict[str, float]]]:
    """The composition of every pair of heads of which one is in an earlier layer: places in `heads`, earlier first."""
    return [
        (a, b, composition(before, after))
        for a, before in enumerate(heads)
        for b, after in enumerate(heads)
        if before.layer < after.layer
    ]


def _norm(a: Floats, b: Floats) -> float:
    """‖a·b‖ for a [width, small] and b [small, width]: ‖ab‖² = tr((aᵀa)(bbᵀ))."""
    return float(np.sqrt(max(np.sum((a.T @ a) * (b @ b.T)), 0.0)))


def _product(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> float:
    below = _norm(*first) * _norm(*second)
    between = first[1] @ second[0]
    return _norm(first[0] @ between, second[1]) / below if below > 0 else float("nan")
