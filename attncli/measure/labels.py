"""What a head looks like: labels, each from one score with a stated threshold, and which heads look alike.

A label needs its score to reach the threshold and to be `MARGIN` times what uniform attention
would score over the same keys, and to be taken over `LEAST_ROWS` rows, so that short texts, where everything
is near, label nothing. A head may have several. Heads are held against each other by the Jensen–Shannon divergence of
their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import InputError, LimitError
from attncli.features.heads.document import LabelScore, Merge
from attncli.measure.metric import OFFSETS, Measured
from attncli.measure.row_facts import Bools, Floats, Ints

MARGIN = 1.5
LEAST_ROWS = 4
"""Fewer query rows than this earn no label: two tokens at a fixed offset are no habit."""
BROAD = 0.9


class Label(Struct, frozen=True):
    """A kind of head. score: which number decides: a metric's name, or a score of random repeats. threshold: its least
    value."""

    name: str
    score: str
    threshold: float


LABELS: Mapping[str, Label] = {
    label.name: label
    for label in (
        Label("previous-token", "previous", 0.4),  # Voita 2019; TransformerLens uses 0.4
        Label("next-token", "next", 0.4),  # Clark 2019
        Label("self", "self", 0.4),  # Kovaleva 2019 (diagonal)
        Label("positional", "positional", 0.4),  # Voita 2019
        Label("first-token sink", "sink", 0.3),  # Gu et al. 2024, threshold 0.3
        Label("special-token", "special", 0.5),  # Clark 2019
        Label("punctuation", "punctuation", 0.4),  # Clark 2019
        Label("duplicate-token", "repeats_duplicate", 0.4),  # Wang et al. 2022, on random repeats
        Label("induction", "repeats_induction", 0.4),  # Olsson et al. 2022, on random repeats
        Label("broad", "normalised_entropy", BROAD),  # Clark 2019
    )
}
"""Every label by name, in the order in which they are told."""

NEEDED = ("previous", "next", "self", "sink", "special", "punctuation", "normalised_entropy", *OFFSETS)
"""The metrics that labels are made from."""


class EarnedLabel(Struct, frozen=True):
    """A label that a head has earned. detail: such as the offset of a positional head, else ""."""

    name: str
    score: float
    threshold: float
    detail: str = ""


class Decision(Struct, frozen=True, eq=False):
    """Whether heads earn a label. score: float64 [...], NaN where not known. is_earned: booleans [...]. offset: which
    of `OFFSETS` a positional head has, integers [...]; None for the other labels."""

    score: Floats
    is_earned: Bools
    offset: Ints | None = None


def decide(
    label: Label, value: Mapping[str, Floats], baseline: Mapping[str, Floats], rows: Mapping[str, Ints]
) -> Decision:
    """Decide a label that is made from metrics: `value`, `baseline` and `rows` by metric, arrays of one shape [...]."""
    names = tuple(OFFSETS) if label.score == "positional" else (label.score,)
    values = np.stack([np.where(rows[name] >= LEAST_ROWS, value[name], np.nan) for name in names])
    place = np.where(np.isnan(values), -np.inf, values).argmax(0)
    score = np.take_along_axis(values, place[None], 0)[0]
    spread = np.stack([np.broadcast_to(baseline[name], score.shape) for name in names])
    even = np.take_along_axis(spread, place[None], 0)[0]
    above = score >= label.threshold
    is_earned = above if label.name == "broad" else above & (score >= MARGIN * even)
    return Decision(score, is_earned, place if label.score == "positional" else None)


def labels_of(
    results: Mapping[str, Measured], head: int, *, repeats: Mapping[str, float] | None = None
) -> list[EarnedLabel]:
    """The labels of one head, in the order of `LABELS`.

    results: the metrics of `NEEDED`, [head]. repeats: the head's `repeats_duplicate` and
    `repeats_induction` (see `random_repeats.scores`), None where random repeats were not run.
    A score that is not known (NaN) earns nothing.
    """
    value = {name: result.value[head] for name, result in results.items()}
    baseline = {name: result.baseline[head] for name, result in results.items()}
    rows = {name: result.rows[head] for name, result in results.items()}
    earned_labels = []
    for label in LABELS.values():
        if label.score.startswith("repeats_"):
            score = (repeats or {}).get(label.score, np.nan)
            if score >= label.threshold:
                earned_labels.append(EarnedLabel(label.name, score, label.threshold))
            continue
        decision = decide(label, value, baseline, rows)
        if decision.is_earned:
            offset = None if decision.offset is None else tuple(OFFSETS)[int(decision.offset)]
            detail = "" if offset is None else offset.removeprefix("offset")
            earned_labels.append(EarnedLabel(label.name, float(decision.score), label.threshold, detail))
    return earned_labels


def rows(labels: Sequence[EarnedLabel]) -> list[LabelScore]:
    """Labels as documents hold them."""
    return [
        LabelScore(
            name=earned_label.name,
            score=earned_label.score,
            threshold=earned_label.threshold,
            detail=earned_label.detail or None,
        )
        for earned_label in labels
    ]


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
