"""What a shard adds up: integer arrays that do not depend on the order of texts, and that add up with other shards'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from attncli.analysis.labels import LABELS, decide
from attncli.analysis.measure import known
from attncli.analysis.metrics import OFFSETS
from attncli.analysis.visible_keys import Floats, Ints
from attncli.scan.fixed_point import Scale, fixed, halves, scale_of, squares
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
    return Scale("share") if column == POSITIONAL else scale_of(known(column))


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
    found: dict[str, tuple[int, ...]] = dict.fromkeys(plain, shape)
    found["row_value"] = (2, *shape)
    found["histogram"] = (heads, bins_of(columns)[-1].stop)
    found |= dict.fromkeys(("strata_texts", "strata_value"), (len(STRATA) + 1, *shape))
    found["strata_square"] = (3, len(STRATA) + 1, *shape)
    found |= dict.fromkeys(("replicate_texts", "replicate_value"), (REPLICATES, *shape))
    found["replicate_strata"] = (REPLICATES, len(STRATA) + 1, len(columns))
    if labels:
        found |= {"label_texts": (len(METRIC_LABELS), heads), "label_offsets": (heads, len(OFFSETS))}
    return found


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
        self._held: Floats = np.empty((FLUSH, len(columns), heads))
        self._hashes: list[int] = []
        self._strata: list[int] = []

    def add(self, batch: TextValues) -> None:
        """Take a batch of texts of equal length."""
        mean = batch.mean
        there = ~np.isnan(mean)
        arrays = self.arrays
        value = fixed(mean)
        arrays["texts"] += there.sum(0)
        arrays["value"] += value.sum(0)
        arrays["row_value"] += halves(fixed(np.where(there, batch.value, 0.0)))
        arrays["row_norm"] += fixed(np.where(there, batch.norm, 0.0)).sum(0)
        arrays["rows"] += batch.rows * there.sum(0)
        arrays["baseline"] += fixed(np.where(there, batch.baseline, 0.0)).sum(0)
        stratum = int(np.searchsorted(STRATA, batch.tokens))
        arrays["strata_texts"][stratum] += there.sum(0)
        arrays["strata_value"][stratum] += value.sum(0)
        arrays["strata_square"][:, stratum] += squares(value)
        if self.labels:
            self._label(mean, batch)
        for start in range(0, len(mean), FLUSH):
            some = mean[start : start + FLUSH]
            if len(self._hashes) + len(some) > FLUSH:
                self.flush()
            self._held[len(self._hashes) : len(self._hashes) + len(some)] = some
            self._hashes += batch.hashes[start : start + FLUSH]
            self._strata += [stratum] * len(some)

    def _label(self, mean: Floats, batch: TextValues) -> None:
        value = {name: mean[:, at] for at, name in enumerate(self.columns)}
        even = {name: batch.baseline[:, at] for at, name in enumerate(self.columns)}
        rows: dict[str, Any] = {name: batch.rows[None, at] for at, name in enumerate(self.columns)}
        for place, label in enumerate(METRIC_LABELS):
            found = decide(label, value, even, rows)
            self.arrays["label_texts"][place] += found.earned.sum(0)
            if found.offset is not None:
                for offset in range(len(OFFSETS)):
                    self.arrays["label_offsets"][:, offset] += (found.earned & (found.offset == offset)).sum(0)

    def flush(self) -> None:
        """Add what is held to histograms and replicates."""
        if not self._hashes:
            return
        mean, times = self._held[: len(self._hashes)], counts(self._hashes)
        own = np.eye(len(STRATA) + 1)[self._strata]
        self._hashes, self._strata = [], []
        there = ~np.isnan(mean)
        for column, (scale, where) in enumerate(self._scales):
            bins = scale.bins(mean[:, column]) + np.arange(self.heads) * scale.count
            known = bins[there[:, column]]
            added = np.bincount(known, minlength=self.heads * scale.count)
            self.arrays["histogram"][:, where] += added.reshape((self.heads, scale.count))
        # products of whole numbers far below 2**53 are exact in float64, which multiplies matrices quickly
        weights = times.T.astype(np.float64)
        present: Any = there.any(-1)
        strata = own[:, :, None] * present[:, None, :]
        every = ("replicate_value", fixed(mean)), ("replicate_texts", there), ("replicate_strata", strata)
        for name, values in every:
            flat = values.reshape((len(mean), -1)).astype(np.float64)
            self.arrays[name] += (weights @ flat).astype(np.int64).reshape(self.arrays[name].shape)
