"""Heads against each other: Jensen–Shannon divergence of their rows, and a tree of heads that look alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.errors import InputError, LimitError
from attncli.features.heads.document import Merge
from attncli.measure.visible_keys import Bools, Floats

LARGEST = 2_000_000_000
"""Pairs of heads × weights that are still a matter of seconds."""


def row_divergences(p: Floats, q: Floats) -> Floats:
    """½KL(p‖m) + ½KL(q‖m), m = (p + q)/2, of each row, in nats: [..., key] to [...], 0 to ln 2. Rows of zeros give 0.

    By entropies, H(m) − ½H(p) − ½H(q), which is the same. Rows need not sum to 1 exactly. Source: Lin, 1991.
    """
    rows: Floats = np.maximum(row_entropy((p + q) / 2) - (row_entropy(p) + row_entropy(q)) / 2, 0.0)
    return rows


def jensen_shannon(p: Any, q: Any, visible: Any = None) -> Floats:
    """The mean of `row_divergences` over rows, [...]: 0 for equal weights, at most ln 2.

    p, q: weights [..., query, key]. visible: booleans that broadcast to them; rows in which nothing is
    visible are left out. None leaves out rows that are 0 in both. NaN where no row is left. Rows should sum to 1.
    Raises InputError for weights over different queries or keys.
    """
    a, b = np.asarray(p, np.float64), np.asarray(q, np.float64)
    if a.shape[-2:] != b.shape[-2:]:
        raise InputError(
            f"weights of {list(a.shape)} against {list(b.shape)}", expected="equally many queries and keys"
        )
    rows = row_divergences(a, b)
    used_rows = ((a + b).sum(-1) > 0) if visible is None else np.broadcast_to(np.any(visible, -1), rows.shape)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(used_rows, rows, 0).sum(-1) / used_rows.sum(-1)
    return means


def row_entropy(rows: Floats) -> Floats:
    """−Σ w ln w of each row in nats, [..., key] to [...]; 0 for a row of zeros."""
    entropies: Floats = -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1)
    return entropies


def distances(weights: Any, visible: Bools | None = None) -> Floats:
    """√(JS / ln 2) between all pairs of heads, [head, head], 0 to 1. weights: [head, query, key].

    Raises LimitError where there are too many pairs.
    """
    matrices = np.asarray(weights, np.float64)
    heads = len(matrices)
    if heads * heads * matrices[0].size > LARGEST:
        raise LimitError(
            f"comparing {heads} heads on {matrices.shape[-1]} tokens is {heads * heads * matrices[0].size:,} steps",
            expected=f"at most {LARGEST:,}",
            hint="a shorter text, --layer L or --head H",
        )
    table = np.zeros((heads, heads))
    for head in range(heads - 1):
        common_visibility = None if visible is None or visible.ndim < 3 else visible[head + 1 :] & visible[head]
        row = jensen_shannon(
            matrices[head][None], matrices[head + 1 :], visible if common_visibility is None else common_visibility
        )
        table[head, head + 1 :] = table[head + 1 :, head] = np.sqrt(row / np.log(2))
    return table


def tree(table: Floats) -> list[Merge]:
    """Average linkage over a table of distances [head, head]: the nearest two clusters join, until one is left.

    Ties go to the lower numbers. Source: Sokal and Michener, 1958.
    """
    count = len(table)
    near = np.array(table, np.float64)
    np.fill_diagonal(near, np.inf)
    numbers, sizes = list(range(count)), [1] * count
    merges = []
    for step in range(count - 1):
        a, b = sorted(int(index) for index in np.unravel_index(int(np.argmin(near)), near.shape))
        first, last = sorted((numbers[a], numbers[b]))
        merges.append(Merge(a=first, b=last, height=float(near[a, b])))
        mean_distances = (sizes[a] * near[a] + sizes[b] * near[b]) / (sizes[a] + sizes[b])
        near[a], near[:, a] = mean_distances, mean_distances
        near[a, a] = np.inf
        near = np.delete(np.delete(near, b, 0), b, 1)
        sizes[a] += sizes[b]
        numbers[a] = count + step
        del sizes[b], numbers[b]
    return merges


def order(merges: list[Merge], count: int) -> list[int]:
    """The heads in the order of the tree's leaves, so that those that look alike stand together."""
    members: list[list[int]] = [[head] for head in range(count)]
    for merge in merges:
        members.append(members[merge.a] + members[merge.b])
    return members[-1] if members else []
