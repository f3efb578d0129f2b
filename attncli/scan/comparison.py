"""Two scans against each other: effect sizes first, then which differences chance would hardly make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attncli import __version__
from attncli.errors import InputError, UsageError
from attncli.measure.visible_keys import Floats
from attncli.scan.document import LEAST_TEXTS, ScanCompareDocument, ScanDifference
from attncli.scan.plan import read
from attncli.scan.report import scan_document
from attncli.scan.statistics import (
    benjamini_hochberg,
    cliffs_delta,
    clusters,
    cohens_d,
    correlation,
    design_effect,
    deviate,
    mean_variance,
    reach,
    two_sided,
    variance,
)
from attncli.scan.totals import STRATA, Totals, bins_of, total

FEWER = 0.75
"""What replicates of single texts may tell of their number by chance, as a share."""


def compare_document(a: Path, b: Path) -> ScanCompareDocument:
    """The `attn.scan_compare/1` document of two scans' folders.

    Means are compared within strata of length that both have, as many numbers depend on it. Raises InputError for an
    unfinished scan, UsageError for scans that share no heads or metrics.
    """
    first, second = (_totals_of(folder) for folder in (a, b))
    if first.plan.model.heads != second.plan.model.heads:
        raise UsageError(
            f"one scan has {len(first.plan.heads)} heads, the other {len(second.plan.heads)}",
            expected="models of as many layers and heads",
        )
    common = [name for name in first.plan.metrics if name in second.plan.metrics]
    if not common:
        raise UsageError("the scans have no metric in common", expected=", ".join(first.plan.metrics))
    is_paired = _texts_of(first) == _texts_of(second)
    sides = _Sides(first, second, is_paired)
    row_pairs = [
        row for name in common for place in range(len(first.plan.heads)) if (row := sides.row(name, place)) is not None
    ]
    q_values = iter(benjamini_hochberg([row[1] for row in row_pairs if row[1] is not None]))
    rows = [_with(row, None if p is None else next(q_values)) for row, p in row_pairs]
    rows.sort(key=lambda row: (-abs(row.cliffs_delta or 0.0), -abs(row.difference), row.layer, row.head, row.metric))
    return ScanCompareDocument(
        version=__version__,
        a=scan_document(first).plan,
        b=scan_document(second).plan,
        texts=[first.counts["texts"], second.counts["texts"]],
        paired=is_paired,
        strata=[STRATA[stratum] if stratum < len(STRATA) else None for stratum in sides.strata],
        differences=rows,
        warnings=[] if first.plan.dtype == second.plan.dtype else ["the scans computed in different types"],
    )


def _texts_of(totals: Totals) -> tuple[object, ...]:
    """What decides which texts a scan counted, and how often each counts in a replicate."""
    plan, choice = totals.plan, totals.plan.choice
    files = tuple((file.sha256, file.size) for file in plan.files)
    selection = (choice.sample, choice.threshold, choice.duplicates, choice.cluster)
    return files, plan.seed, selection, len(totals.done_shards), totals.counts["texts"]


def _totals_of(folder: Path) -> Totals:
    totals = total(read(folder), folder)
    if not totals.done_shards and totals.broken:
        shard, reason = min(totals.broken.items())
        raise InputError(f"no shard of this scan can be read; shard {shard}: {reason}", where=str(folder))
    if not totals.done_shards:
        raise InputError("nothing of this scan is done", where=str(folder), expected="a scan with finished shards")
    return totals


def _with(row: ScanDifference, q: float | None) -> ScanDifference:
    import msgspec

    return msgspec.structs.replace(row, q=q)


class _Sides:
    """Both scans, by metric and head. strata: those that both have texts in."""

    def __init__(self, a: Totals, b: Totals, is_paired: bool) -> None:
        self.sides, self.is_paired = (a, b), is_paired
        counts = [side.count_total("strata_texts").max(axis=(1, 2)) for side in self.sides]
        self.strata = [stratum for stratum in range(len(counts[0])) if counts[0][stratum] and counts[1][stratum]]
        self._texts = [side.count_total("strata_texts").astype(np.float64) for side in self.sides]
        self._value = [side.whole("strata_value") for side in self.sides]
        self._square = [side.strata_square for side in self.sides]
        self._times = [side.whole("replicate_texts") for side in self.sides]
        self._composition = [side.whole("replicate_strata") for side in self.sides]
        with np.errstate(invalid="ignore", divide="ignore"):  # a replicate without texts has no mean
            self._replicates = [
                side.whole("replicate_value") / times for side, times in zip(self.sides, self._times, strict=True)
            ]
        self._histogram = [side.count_total("histogram") for side in self.sides]
        self._bins = [bins_of(side.columns) for side in self.sides]

    def row(self, name: str, place: int) -> tuple[ScanDifference, float | None] | None:
        """One head's difference and its probability; None where a side has no such number."""
        columns = [side.columns.index(name) for side in self.sides]
        every = [
            np.stack([whole[side][:, columns[side], place] for whole in (self._texts, self._value, self._square)])
            for side in (0, 1)
        ]
        strata = [stratum for stratum in self.strata if every[0][0, stratum] and every[1][0, stratum]]
        if not strata:
            return None
        within = [sums[:, strata] for sums in every]
        share = within[0][0] + within[1][0]
        share /= share.sum()
        means = [float((sums[1] / sums[0] * share).sum()) for sums in within]
        difference = means[0] - means[1]
        replicates = [self._replicates[side][:, columns[side], place] for side in (0, 1)]
        fewest = min(sums[0].sum() for sums in every)
        if fewest < LEAST_TEXTS or np.isnan(replicates).any():
            z, between = None, None
        elif self.is_paired:
            units = clusters(every[0][0].sum(keepdims=True), self._times[0][:, columns[0], place])
            z, between = _of_pairs(replicates[0] - replicates[1], difference, float(units[0]))
        else:
            times = [self._times[side][:, columns[side], place] for side in (0, 1)]
            replicates = [
                replicates[side] - self._composition_sums(side, columns[side], every[side]) / times[side]
                for side in (0, 1)
            ]
            z, between = self._apart(every, within, share, replicates, times, difference)
        delta = cliffs_delta(*(self._histogram[side][place, self._bins[side][columns[side]]] for side in (0, 1)))
        spreads = [float(np.sqrt(variance(*sums.sum(1)))) for sums in within]
        counts = [int(sums[0].sum()) for sums in within]
        layer, head = self.sides[0].plan.heads[place]
        probability = None if z is None else two_sided(z)
        row = ScanDifference(
            layer=layer,
            head=head,
            metric=name,
            a=means[0],
            b=means[1],
            difference=difference,
            ci95=between,
            cohens_d=cohens_d((means[0], means[1]), (spreads[0], spreads[1]), (counts[0], counts[1])),
            cliffs_delta=None if delta is None else delta[0],
            cliffs_error=None if delta is None else delta[1],
            z=z,
            p=probability,
            q=None,
        )
        return row, probability

    def _composition_sums(self, side: int, column: int, strata: Floats) -> Floats:
        """What each replicate would add up to if each of its texts were the mean of the text's stratum."""
        means = strata[1] / np.maximum(strata[0], 1)
        sums: Floats = self._composition[side][:, :, column] @ means
        return sums

    def _apart(
        self,
        every: Sequence[Floats],
        within: Sequence[Floats],
        share: Floats,
        replicates: Sequence[Floats],
        times: Sequence[Floats],
        difference: float,
    ) -> tuple[float | None, list[float] | None]:
        """z of a difference within strata and its 95% interval; of scans that are no pair.

        every, within: texts, sum and sum of squares of each side's strata, of all and of the shared ones. drawn,
        times: each side's replicates, their means around those of the strata and how many texts they hold. None where
        texts are too few.
        Source of the degrees of freedom: Satterthwaite, An approximate distribution of estimates of variance, 1946.
        """
        variances, doubt = [], 0.0
        for side, plain, sums, means in zip(self.sides, every, within, replicates, strict=True):
            spread, uncertainty = mean_variance(share, sums[0], variance(*sums))
            effect = design_effect(means, _alone(plain)) if side.plan.choice.cluster else 1.0
            variances.append(float(spread) * effect)
            doubt += float(uncertainty) * effect**2
        total = variances[0] + variances[1]
        if math.isnan(total):
            return None, None
        covariance = 2 * correlation(replicates, times) * math.sqrt(variances[0] * variances[1])
        error = math.sqrt(max(total - covariance, 0.0))
        free = total * total / doubt if doubt > 0 else math.inf
        width = reach(free) * error if error > 0 else 0.0
        if math.isinf(width):
            return None, None
        z = deviate(difference / error, free) if error > 0 else None
        return z, [difference - width, difference + width]


def _alone(strata: Floats) -> float:
    """The variance that the mean of a side's texts around those of their strata has if its texts come one by one."""
    there = strata[:, strata[0] > 0]
    return float(mean_variance(there[0] / there[0].sum(), there[0], variance(*there))[0])


def _of_pairs(differences: Floats, difference: float, units: float) -> tuple[float | None, list[float] | None]:
    """z of pairs' difference and its 95% interval, from the differences of replicates. units: texts, or clusters of
    them; None for both where these are too few."""
    if units < LEAST_TEXTS * FEWER:
        return None, None
    free = units - 1
    error = float(differences.std(ddof=1)) * math.sqrt(units / free)
    width = reach(free) * error
    z = deviate(difference / error, free) if error > 0 else None
    return z, [difference - width, difference + width]
