"""Two scans against each other: effect sizes first, then which differences chance would hardly make."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from attncli import __version__
from attncli.analysis.documents.scan_compare import ScanCompareDocument, ScanDifference
from attncli.analysis.visible_keys import Floats
from attncli.errors import InputError, UsageError
from attncli.scan.plan import read
from attncli.scan.report import scan_document
from attncli.scan.statistics import benjamini_hochberg, cliffs_delta, cohens_d, interval, two_sided
from attncli.scan.tallies import STRATA, bins_of
from attncli.scan.totals import Totals, total


def compare_document(a: Path, b: Path) -> ScanCompareDocument:
    """The `attn.scan_compare/1` document of two scans' folders.

    Means are compared within strata of length that both have, as many numbers depend on it. Raises InputError for an
    unfinished scan, UsageError for scans that share no heads or metrics.
    """
    first, second = (_finished(folder) for folder in (a, b))
    if first.plan.model.heads != second.plan.model.heads:
        raise UsageError(
            f"one scan has {len(first.plan.heads)} heads, the other {len(second.plan.heads)}",
            expected="models of as many layers and heads",
        )
    common = [name for name in first.plan.metrics if name in second.plan.metrics]
    if not common:
        raise UsageError("the scans have no metric in common", expected=", ".join(first.plan.metrics))
    paired = _texts_of(first) == _texts_of(second)
    sides = _Sides(first, second, paired)
    found = [
        row for name in common for place in range(len(first.plan.heads)) if (row := sides.row(name, place)) is not None
    ]
    adjusted = iter(benjamini_hochberg([row[1] for row in found if row[1] is not None]))
    rows = [_with(row, None if p is None else next(adjusted)) for row, p in found]
    rows.sort(key=lambda row: (-abs(row.cliffs_delta or 0.0), -abs(row.difference), row.layer, row.head, row.metric))
    return ScanCompareDocument(
        version=__version__,
        a=scan_document(first).plan,
        b=scan_document(second).plan,
        texts=[first.counts["texts"], second.counts["texts"]],
        paired=paired,
        strata=[STRATA[at] if at < len(STRATA) else None for at in sides.strata],
        differences=rows,
        warnings=[] if first.plan.dtype == second.plan.dtype else ["the scans computed in different types"],
    )


def _texts_of(totals: Totals) -> tuple[object, ...]:
    """What decides which texts a scan counted, and how often each counts in a replicate."""
    plan, choice = totals.plan, totals.plan.choice
    files = tuple((file.sha256, file.size) for file in plan.files)
    drawn = (choice.sample, choice.threshold, choice.duplicates, choice.cluster)
    return files, plan.seed, drawn, len(totals.done), totals.counts["texts"]


def _finished(folder: Path) -> Totals:
    found = total(read(folder), folder)
    if not found.done and found.broken:
        shard, reason = min(found.broken.items())
        raise InputError(f"no shard of this scan can be read; shard {shard}: {reason}", where=str(folder))
    if not found.done:
        raise InputError("nothing of this scan is done", where=str(folder), expected="a scan with finished shards")
    return found


def _with(row: ScanDifference, q: float | None) -> ScanDifference:
    import msgspec

    return msgspec.structs.replace(row, q=q)


class _Sides:
    """Both scans, by metric and head. strata: those that both have texts in."""

    def __init__(self, a: Totals, b: Totals, paired: bool) -> None:
        self.sides, self.paired = (a, b), paired
        counted = [side.counted("strata_texts").max(axis=(1, 2)) for side in self.sides]
        self.strata = [at for at in range(len(counted[0])) if counted[0][at] and counted[1][at]]
        self._texts = [side.counted("strata_texts") for side in self.sides]
        self._value = [side.whole("strata_value") for side in self.sides]
        self._square = [side.whole("strata_square") for side in self.sides]
        with np.errstate(invalid="ignore", divide="ignore"):  # a replicate without texts has no mean
            self._replicates = [side.whole("replicate_value") / side.whole("replicate_texts") for side in self.sides]
        self._histogram = [side.counted("histogram") for side in self.sides]
        self._bins = [bins_of(side.columns) for side in self.sides]

    def row(self, name: str, place: int) -> tuple[ScanDifference, float | None] | None:
        """One head's difference and its probability; None where a side has no such number."""
        at = [side.columns.index(name) for side in self.sides]
        texts = [self._texts[side][self.strata, at[side], place].astype(np.float64) for side in (0, 1)]
        value = [self._value[side][self.strata, at[side], place] for side in (0, 1)]
        square = [self._square[side][self.strata, at[side], place] for side in (0, 1)]
        shared = (texts[0] > 0) & (texts[1] > 0)
        if not shared.any():
            return None
        share = (texts[0] + texts[1])[shared]
        share /= share.sum()
        means = [float((value[side][shared] / texts[side][shared] * share).sum()) for side in (0, 1)]
        spreads = [_deviation(value[side][shared], square[side][shared], texts[side][shared]) for side in (0, 1)]
        counts = [int(texts[side][shared].sum()) for side in (0, 1)]
        drawn: Floats = self._replicates[0][:, at[0], place] - self._replicates[1][:, at[1], place]
        centre = float(drawn.mean())
        difference = means[0] - means[1]
        low, high = (float(one) - centre + difference for one in interval(drawn))
        error = float(drawn.std(ddof=1))
        z = difference / error if error > 0 else None
        delta = cliffs_delta(*(self._histogram[side][place, self._bins[side][at[side]]] for side in (0, 1)))
        layer, head = self.sides[0].plan.heads[place]
        probability = None if z is None else two_sided(z)
        row = ScanDifference(
            layer=layer,
            head=head,
            metric=name,
            a=means[0],
            b=means[1],
            difference=difference,
            ci95=None if math.isnan(low) else [low, high],
            cohens_d=cohens_d((means[0], means[1]), (spreads[0], spreads[1]), (counts[0], counts[1])),
            cliffs_delta=None if delta is None else delta[0],
            cliffs_error=None if delta is None else delta[1],
            z=z,
            p=probability,
            q=None,
        )
        return row, probability


def _deviation(value: Floats, square: Floats, texts: Floats) -> float:
    """The standard deviation of a side's texts, with n − 1."""
    count = texts.sum()
    mean = value.sum() / count
    return float(np.sqrt(max(square.sum() / count - mean * mean, 0.0) * count / max(count - 1, 1)))
