"""What a shard adds up: integer arrays that do not depend on the order of texts, and that add up with other shards'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from attncli.analysis.labels import LABELS, decide
from attncli.analysis.measure import metric_of
from attncli.analysis.metrics import OFFSETS
from attncli.analysis.visible_keys import Floats, Ints
from attncli.scan.fixed_point import Scale, halves, scale_of, squares, to_fixed
from attncli.scan.text_hash import REPLICATES, counts

STRATA = (16, 32, 64, 128, 256, 512, 1024)
"""Most tokens of the texts in each stratum but the last, which has no bound."""
POSITIONAL = "positional"
"""The largest offset mass of a head, which its label is decided by; a column beside the metrics."""
EFFECT = "effect"
"""How far a text's last vector turns without the head; a column beside the metrics, for chosen heads."""
METRIC_LABELS = tuple(label for label in LABELS.values() if not label.score.startswith("repeats_"))
FLUSH = 512
"""Texts that are held before they are added up: fewer would cost more steps."""


@dataclass(frozen=True, eq=False)
class TextValues:
    """One batch's numbers. value, norm: float64 [text, column, head]; a column's number is value / norm. baseline: of
    uniform attention, as value. rows: query rows used, integers [column, head]. tokens: of each text. hashes: what
    decides how often each counts in a replicate."""

    value: Floats
    norm: Floats
    baseline: Floats
    rows: Ints
    tokens: int
    hashes: Sequence[int]

    @cached_property
    def mean(self) -> Floats:
        """Each text's number, [text, column, head]; NaN where it has none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.norm > 0, self.value / self.norm, np.nan)


def columns_of(metrics: Sequence[str], *, labels: bool, effects: bool) -> tuple[str, ...]:
    """The columns: metrics, with labels the score that no metric is, and what taking heads away changes."""
    return (*metrics, *([POSITIONAL] if labels else []), *([EFFECT] if effects else []))


def scale_named(column: str) -> Scale:
    """The histogram's scale of a column."""
    if column == EFFECT:
        return Scale("size")
    return Scale("share") if column == POSITIONAL else scale_of(metric_of(column))


def least_deviation(column: str) -> float:
    """The deviation of texts from which on a column's mean has an interval. Heads whose texts differ less have rare
    texts that differ by far: before one is seen, an interval would hold the mean in half of scans or fewer, and to
    look at skewness does not help, as it shows only once one is seen (`tests/benchmarks/intervals.py`)."""
    if column == EFFECT:
        return 0.0
    return 0.002 if scale_named(column).kind == "share" else 0.05


def bins_of(columns: Sequence[str]) -> list[slice]:
    """Where the bins of each column are among those of a head."""
    ends = np.cumsum([0, *(scale_named(column).count for column in columns)]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def tally_shapes(columns: Sequence[str], heads: int, *, labels: bool) -> dict[str, tuple[int, ...]]:
    """The sizes of what is added up, by name."""
    shape = (len(columns), heads)
    plain = ("texts", "value", "row_norm", "rows", "baseline")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(plain, shape)
    shapes["row_value"] = (2, *shape)
    shapes["histogram"] = (heads, bins_of(columns)[-1].stop)
    shapes |= dict.fromkeys(("strata_texts", "strata_value"), (len(STRATA) + 1, *shape))
    shapes["strata_square"] = (3, len(STRATA) + 1, *shape)
    shapes |= dict.fromkeys(("replicate_texts", "replicate_value"), (REPLICATES, *shape))
    shapes["replicate_strata"] = (REPLICATES, len(STRATA) + 1, len(columns))
    if labels:
        shapes |= {"label_texts": (len(METRIC_LABELS), heads), "label_offsets": (heads, len(OFFSETS))}
    return shapes


class Tallies:
    """Adds up batches. columns: `columns_of`; heads: how many heads in all, over all layers.

    arrays: integers by name: `texts value row_norm rows baseline` [column, head];
    `row_value` [2, column, head], see `halves`;
    `histogram` [head, bin], where `bins_of` tells; `strata_texts strata_value` [stratum, column, head];
    `strata_square` [3, stratum, column, head], see `squares`;
    `replicate_texts replicate_value` [replicate, column, head]; `replicate_strata` [replicate, stratum, column], texts
    that any head has the number of; `label_texts` [label, head];
    `label_offsets` [head, offset]. Sums of values are in multiples of 2⁻²⁴.
    """

    def __init__(self, columns: Sequence[str], heads: int, *, labels: bool) -> None:
        self.columns, self.heads, self.labels = tuple(columns), heads, labels
        shapes = tally_shapes(columns, heads, labels=labels)
        self.arrays: dict[str, Ints] = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        self._scales = list(zip(map(scale_named, columns), bins_of(columns), strict=True))
        # one array for all that is held: pieces of their own, living side by side with a batch's, would scatter memory
        self._means: Floats = np.empty((FLUSH, len(columns), heads))
        self._hashes: list[int] = []
        self._strata: list[int] = []

    def add(self, batch: TextValues) -> None:
        """Take a batch of texts of equal length."""
        mean = batch.mean
        there = ~np.isnan(mean)
        arrays = self.arrays
        value = to_fixed(mean)
        arrays["texts"] += there.sum(0)
        arrays["value"] += value.sum(0)
        arrays["row_value"] += halves(to_fixed(np.where(there, batch.value, 0.0)))
        arrays["row_norm"] += to_fixed(np.where(there, batch.norm, 0.0)).sum(0)
        arrays["rows"] += batch.rows * there.sum(0)
        arrays["baseline"] += to_fixed(np.where(there, batch.baseline, 0.0)).sum(0)
        stratum = int(np.searchsorted(STRATA, batch.tokens))
        arrays["strata_texts"][stratum] += there.sum(0)
        arrays["strata_value"][stratum] += value.sum(0)
        arrays["strata_square"][:, stratum] += squares(value)
        if self.labels:
            self._label(mean, batch)
        for start in range(0, len(mean), FLUSH):
            part = mean[start : start + FLUSH]
            if len(self._hashes) + len(part) > FLUSH:
                self.flush()
            self._means[len(self._hashes) : len(self._hashes) + len(part)] = part
            self._hashes += batch.hashes[start : start + FLUSH]
            self._strata += [stratum] * len(part)

    def _label(self, mean: Floats, batch: TextValues) -> None:
        value = {name: mean[:, column] for column, name in enumerate(self.columns)}
        even = {name: batch.baseline[:, column] for column, name in enumerate(self.columns)}
        rows: dict[str, Any] = {name: batch.rows[None, column] for column, name in enumerate(self.columns)}
        for place, label in enumerate(METRIC_LABELS):
            decision = decide(label, value, even, rows)
            self.arrays["label_texts"][place] += decision.is_earned.sum(0)
            if decision.offset is not None:
                for offset in range(len(OFFSETS)):
                    self.arrays["label_offsets"][:, offset] += (decision.is_earned & (decision.offset == offset)).sum(0)

    def flush(self) -> None:
        """Add what is held to histograms and replicates."""
        if not self._hashes:
            return
        mean, times = self._means[: len(self._hashes)], counts(self._hashes)
        stratum_flags = np.eye(len(STRATA) + 1)[self._strata]
        self._hashes, self._strata = [], []
        there = ~np.isnan(mean)
        for column, (scale, where) in enumerate(self._scales):
            bins = scale.bins(mean[:, column]) + np.arange(self.heads) * scale.count
            present_bins = bins[there[:, column]]
            bin_counts = np.bincount(present_bins, minlength=self.heads * scale.count)
            self.arrays["histogram"][:, where] += bin_counts.reshape((self.heads, scale.count))
        # products of whole numbers far below 2**53 are exact in float64, which multiplies matrices quickly
        weights = times.T.astype(np.float64)
        present: Any = there.any(-1)
        strata = stratum_flags[:, :, None] * present[:, None, :]
        every = ("replicate_value", to_fixed(mean)), ("replicate_texts", there), ("replicate_strata", strata)
        for name, values in every:
            flat = values.reshape((len(mean), -1)).astype(np.float64)
            self.arrays[name] += (weights @ flat).astype(np.int64).reshape(self.arrays[name].shape)
