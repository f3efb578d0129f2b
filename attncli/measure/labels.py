"""Labels: what a head looks like, each from one score with a stated threshold; a head may have several.

A label needs its score to reach the threshold and to be `MARGIN` times what uniform attention
would score over the same keys, and to be taken over `LEAST_ROWS` rows, so that short texts, where everything
is near, label nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from attncli.features.heads.document import LabelScore
from attncli.measure.head_measure import Measured
from attncli.measure.metric import OFFSETS
from attncli.measure.visible_keys import Bools, Floats, Ints

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
