"""How often a scan's intervals hold the mean: `python intervals.py SCAN [TRIALS]`, of a scan with `--rows` of many texts.

Its texts are the truth; scans of fewer are drawn from them, with replacement. Beside `attn`'s intervals, which have
none where a text or two make the spread or texts hardly differ, stand those of 200 Poisson replicates, percentile, and a plain Student's t.
Clusters are eight texts that follow each other in the order of a head's entropy, as texts of one document are alike.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from attncli.measure.row_facts import Bools, Floats
from attncli.scan.intake import REPLICATES
from attncli.scan.shard_files import KEY_COLUMNS
from attncli.scan.statistics import clusters, mean_interval, reach
from attncli.scan.totals import least_deviation, scale_named

SIZES = (5, 10, 20, 30, 40, 60, 100, 300, 1000)
CLUSTER = 8


def values_of(folder: Path) -> tuple[list[str], Floats]:
    """The columns of a scan's rows, and their numbers [text, column, head]; offsets are left out, as they repeat."""
    tables = [parquet.read_table(path) for path in sorted(folder.glob("shards/*/*.rows.parquet"))]
    names = [name for name in tables[0].column_names if name not in KEY_COLUMNS and not name.startswith("offset")]
    heads = len({*zip(*(tables[0].column(name).to_pylist() for name in ("layer", "head")), strict=True)})
    parts = [
        np.stack([np.asarray(table.column(name), np.float64).reshape((-1, heads)) for name in names], 1)
        for table in tables
    ]
    return names, np.concatenate(parts)


def held(between: Floats, truth: Floats) -> tuple[Bools, Bools]:
    """Which intervals are there, and which hold the truth."""
    there = ~np.isnan(between[0])
    return there, there & (between[0] <= truth) & (truth <= between[1])


def ours(names: list[str], mean: Floats, deviation: Floats, skew: Floats, units: Floats) -> Floats:
    """The intervals that a scan has; of fewer texts than it has any for, those that it would have."""
    found = []
    for at, name in enumerate(names):
        share, least = scale_named(name).kind == "share", least_deviation(name)
        found.append(mean_interval(mean[at], deviation[at], skew[at], units[at], share=share, least=least))
    return np.stack(found, 1)


def tried(names: list[str], values: Floats, count: int, trials: int) -> dict[str, tuple[Floats, Floats]]:
    """Of each method how often every number had an interval, and how often it held the truth, [column, head]."""
    drawn, truth = np.random.default_rng(count), values.mean(0)
    found: dict[str, tuple[Floats, Floats]] = {}
    order = values[:, 0, 0].argsort(kind="stable")

    def add(name: str, between: Floats) -> None:
        there, hit = held(between, truth)
        before = found.get(name, (0.0, 0.0))
        found[name] = before[0] + there / trials, before[1] + hit / trials

    for _ in range(trials):
        texts = values[drawn.integers(0, len(values), count)]
        mean, deviation = texts.mean(0), texts.std(0, ddof=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            skew = ((texts - mean) ** 3).mean(0) / texts.std(0) ** 3
        times = drawn.poisson(1, (REPLICATES, count)).astype(float)
        times = times[times.sum(1) > 0]
        means = np.tensordot(times / times.sum(1, keepdims=True), texts, 1)
        add("percentile", np.percentile(means, (2.5, 97.5), axis=0))
        half = reach(count - 1) * deviation / np.sqrt(count)
        add("Student's t", np.stack([mean - half, mean + half]))
        add("attn", ours(names, mean, deviation, skew, np.full(mean.shape, float(count))))
        firsts = drawn.integers(0, len(values) - CLUSTER, count)
        grouped = values[order[firsts[:, None] + np.arange(CLUSTER)]].mean(1)  # [cluster, column, head]
        times = drawn.poisson(1, (REPLICATES, count)).astype(float)
        means = np.tensordot(times / times.sum(1, keepdims=True), grouped, 1)
        units = clusters(np.array(float(CLUSTER * count)), CLUSTER * times.sum(1))
        spread = means.std(0, ddof=1) * np.sqrt(units * units / (units - 1))
        add("attn, clusters", ours(names, grouped.mean(0), spread, 0 * spread, np.full(spread.shape, float(units))))
    return found


def main() -> None:
    names, values = values_of(Path(sys.argv[1]))
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    print(f"{len(values):,} texts, {len(names)} metrics × {values.shape[2]} heads, {trials} scans of each size")
    for count in SIZES:
        for name, (there, hit) in tried(names, values, count, trials).items():
            if not there.any():
                continue
            metrics = hit.sum(1) / there.sum(1)
            single = np.sort((hit[there > 0.1] / there[there > 0.1]).ravel())
            print(
                f"{count:5} texts  {name:14} shown {there.mean():6.1%}  hold {hit.sum() / there.sum():6.1%}  "
                f"metric {names[int(metrics.argmin())]} {metrics.min():6.1%}  "
                f"number in a hundred {single[len(single) // 100]:6.1%}  worst {single[0]:6.1%}"
            )


if __name__ == "__main__":
    main()
