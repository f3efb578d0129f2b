"""How often a scan's intervals hold the mean: `python intervals.py SCAN [TRIALS [CORPUS FIELD]]`,
of a scan with `--rows` of many texts.

Its texts are the truth; scans of fewer are drawn from them, with replacement. Beside `attn`'s
intervals, which have none where a text or two make the spread or texts hardly differ, stand those
of 200 Poisson replicates, percentile, and a plain Student's t. Then scans of clusters are drawn:
eight texts that follow each other in the order of a head's entropy, as texts of one document are
alike, and, of a corpus of JSON lines, the documents that its field names, of whatever size they
are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from attncli.measure.row_facts import Floats, Ints
from attncli.scan.intake import REPLICATES
from attncli.scan.shard_files import KEY_COLUMNS
from attncli.scan.statistics import EVENER, clusters, mean_interval, reach, rests_on_few
from attncli.scan.totals import least_deviation, scale_named

SIZES = (5, 10, 20, 30, 40, 60, 100, 300, 1000)
CLUSTER = 8


def rows_of(folder: Path) -> tuple[list[str], Floats, Ints]:
    """The columns of a scan's rows by number, their values [text, number] and the line of each
    text; what any text has no value of is left out, and so are offsets, as they repeat."""
    tables = [parquet.read_table(path) for path in sorted(folder.glob("shards/*/*.rows.parquet"))]
    names = [
        name
        for name in tables[0].column_names
        if name not in KEY_COLUMNS and not name.startswith("offset")
    ]
    heads = len(
        {*zip(*(tables[0].column(name).to_pylist() for name in ("layer", "head")), strict=True)}
    )
    parts = [
        np.stack(
            [np.asarray(table.column(name), np.float64).reshape((-1, heads)) for name in names], 1
        )
        for table in tables
    ]
    values = np.concatenate(parts).reshape((-1, len(names) * heads))
    lines = np.concatenate(
        [np.asarray(table.column("line")).reshape((-1, heads))[:, 0] for table in tables]
    )
    there = ~np.isnan(values).any(0)
    return list(np.repeat(names, heads)[there]), values[:, there], lines


def documents_of(lines: Ints, corpus: Path, field: str) -> list[Ints]:
    """The texts of each document."""
    names = [json.loads(line)[field] for line in corpus.read_text("utf-8").splitlines()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    owner = np.array([numbers[names[line]] for line in lines])
    return [np.flatnonzero(owner == number) for number in sorted(set(owner.tolist()))]


def skewness(count: Floats, mean: Floats, square: Floats, cube: Floats) -> Floats:
    """Of the moments around 0 of so many values."""
    spread = square - mean * mean
    with np.errstate(invalid="ignore", divide="ignore"):
        skew = (cube - 3 * mean * square + 2 * mean**3) / np.maximum(spread, 0) ** 1.5
    return np.where(spread > 1e-14, skew, np.nan)


class Measured:
    """How often each number had an interval of a method, and how often it held the truth."""

    def __init__(self, names: Sequence[str], truth: Floats) -> None:
        self.truth, self.is_share = (
            truth,
            np.array([scale_named(name).kind == "share" for name in names]),
        )
        self.least = np.array([least_deviation(name) for name in names])
        self.shown: dict[str, Floats] = {}
        self.hold: dict[str, Floats] = {}

    def add(self, method: str, low: Floats, high: Floats) -> None:
        shown = ~np.isnan(low)
        hold = shown & (low <= self.truth) & (self.truth <= high)
        self.shown[method] = self.shown.get(method, 0.0) + shown
        self.hold[method] = self.hold.get(method, 0.0) + hold

    def add_ours(
        self,
        method: str,
        mean: Floats,
        deviation: Floats,
        skew: Floats,
        units: float,
        means: Floats | None = None,
    ) -> None:
        """The intervals that a scan has. means: of its replicates, where clusters count."""
        is_doubtful = np.zeros(mean.size, bool)
        if means is not None:
            is_doubtful = rests_on_few(means) | (self.is_share & (deviation < EVENER * self.least))
        bounds = np.full((2, mean.size), np.nan)
        for share in (True, False):
            at = (self.is_share == share) & (deviation >= self.least)
            numbers = mean[at], deviation[at], skew[at], np.full(int(at.sum()), units)
            bounds[:, at] = mean_interval(*numbers, share=share, is_doubtful=is_doubtful[at])
        self.add(method, *bounds)


def drawn_texts(names: Sequence[str], values: Floats, count: int, trials: int) -> Measured:
    """Scans of `count` texts."""
    drawn, measured = np.random.default_rng(count), Measured(names, values.mean(0))
    for _ in range(trials):
        texts = values[drawn.integers(0, len(values), count)]
        mean, deviation = texts.mean(0), texts.std(0, ddof=1)
        times = drawn.poisson(1, (REPLICATES, count)).astype(float)
        times = times[times.sum(1) > 0]
        measured.add(
            "percentile",
            *np.percentile(times / times.sum(1, keepdims=True) @ texts, (2.5, 97.5), axis=0),
        )
        half = reach(count - 1) * deviation / np.sqrt(count)
        measured.add("Student's t", mean - half, mean + half)
        around = texts - mean
        skew = skewness(count, around.mean(0), (around**2).mean(0), (around**3).mean(0))
        measured.add_ours("attn", mean, deviation, skew, count)
    return measured


def drawn_clusters(
    names: Sequence[str], values: Floats, groups: Sequence[Ints], count: int, trials: int
) -> Measured:
    """Scans of the texts of `count` clusters."""
    truth = values[np.concatenate(groups)].mean(0)
    around = values - truth
    sums = [np.stack([(around[group] ** power).sum(0) for group in groups]) for power in (1, 2, 3)]
    sizes = np.array([len(group) for group in groups], float)
    drawn, measured = np.random.default_rng(count), Measured(names, truth)
    for _ in range(trials):
        chosen = drawn.integers(0, len(groups), count)
        total, texts = sizes[chosen].sum(), sizes[chosen]
        mean, square, cube = (part[chosen].sum(0) / total for part in sums)
        times = drawn.poisson(1, (REPLICATES, count)).astype(float)
        times = times[times.sum(1) > 0]
        means = times @ sums[0][chosen] / (times @ texts)[:, None]
        units = float(clusters(np.array(total), times @ texts))
        spread = means.std(0, ddof=1) * np.sqrt(units * units / (units - 1))
        skew = skewness(total, mean, square, cube)
        measured.add_ours("attn", mean + truth, spread, skew, units, means)
        measured.add_ours("whatever few make", mean + truth, spread, skew, units)
    return measured


def tell(what: str, names: Sequence[str], measured: Measured, trials: int) -> None:
    """A line for each method."""
    columns = np.array(names)
    for method, shown in measured.shown.items():
        often = shown > 0.1 * trials
        if not often.any():
            print(f"{what:18} {method:12} none shown", flush=True)
            continue
        hold = measured.hold[method]
        metrics = {
            name: hold[columns == name].sum() / shown[columns == name].sum()
            for name in dict.fromkeys(names)
            if shown[columns == name].sum()
        }
        single = np.sort(hold[often] / shown[often])
        worst = min(metrics, key=metrics.__getitem__)
        print(
            f"{what:18} {method:12} shown {shown.mean() / trials:6.1%}  hold {hold.sum() / shown.sum():6.1%}  "
            f"metric {worst} {metrics[worst]:6.1%}  number in a hundred {single[len(single) // 100]:6.1%}  "
            f"worst {single[0]:6.1%}",
            flush=True,
        )


def main() -> None:
    names, values, lines = rows_of(Path(sys.argv[1]))
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    print(
        f"{len(values):,} texts, {len(names)} numbers of {len({*names})} metrics, {trials} scans of each size"
    )
    order = values[:, 0].argsort(kind="stable")
    alike = [
        order[first : first + CLUSTER] for first in range(0, len(order) - CLUSTER + 1, CLUSTER)
    ]
    documents = documents_of(lines, Path(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 4 else []
    for count in SIZES:
        tell(f"{count} texts", names, drawn_texts(names, values, count, trials), trials)
        for what, groups in (("of 8 alike", alike), ("documents", documents)):
            if groups and count >= 20:
                tell(
                    f"{count} {what}",
                    names,
                    drawn_clusters(names, values, groups, count, trials),
                    trials,
                )


if __name__ == "__main__":
    main()
