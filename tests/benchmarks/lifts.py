"""How often the interval of a lift holds it: `python lifts.py CORPUS FIELD [TRIALS]`, of JSON
lines, MiniLM.

The texts of all documents, which FIELD names, are the truth: the 20 commonest pairs of tokens of
each head and their lifts. Scans of fewer texts, and of the texts of fewer documents, are drawn from
them with replacement. An interval is over texts with tokens as frequent as in the scan. It is held
against the lift that such texts have if each row of the query's token links as often as in all
texts; and, as "of all", against the lift in all texts: a token that few texts have by the dozen is
more frequent in a scan that shows it, and its lift is less there.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import attncli
from attncli.measure.row_facts import Floats, Ints
from attncli.scan.frequent_links import PairCount
from attncli.scan.intake import REPLICATES
from attncli.scan.report import FREQUENT, lift_interval
from attncli.scan.statistics import clusters

SIZES = (30, 100, 300, 1000)
LONGEST = 8
"""Texts of a document, at most."""


class Pairs(NamedTuple):
    """What texts have of each pair. links: [text, pair]. asking: rows of the pair's query token,
    [text, pair]; even: the weight on its key token were all rows even, [text, pair]; rows: of each
    text."""

    links: Ints
    asking: Ints
    even: Floats
    rows: Ints


def pairs_of(texts: Sequence[str]) -> Pairs:
    """Of the commonest pairs of each head."""
    model = attncli.load("minilm", backend="torch", hold=True)
    ids, codes = [], []
    for text in texts:
        tokens = model.encode(text)
        numbers = np.array([token.id for token in tokens], np.int64)
        keys = [
            np.asarray(trace.stages["weights"]).argmax(-1)
            for trace in model.trace(tokens, keep=("weights",))
        ]
        ids.append(numbers)
        codes.append((numbers << 32) + numbers[np.concatenate(keys)])
    common = []
    for head in range(len(codes[0])):
        counts = Counter(np.concatenate([of_text[head] for of_text in codes]).tolist())
        common += [(head, code) for code, _ in counts.most_common(FREQUENT)]
    heads, chosen = (np.array(column) for column in zip(*common, strict=True))
    queries, keys_of = chosen >> 32, chosen & ((1 << 32) - 1)
    links, asking, even = (
        np.zeros((len(texts), len(common)), kind) for kind in (np.int64, np.int64, np.float64)
    )
    for number, (numbers, of_text) in enumerate(zip(ids, codes, strict=True)):
        links[number] = (of_text[heads] == chosen[:, None]).sum(-1)
        asking[number] = (numbers == queries[:, None]).sum(-1)
        even[number] = (numbers == keys_of[:, None]).sum(-1)
    return Pairs(links, asking, even, np.array([len(numbers) for numbers in ids]))


def scan_of(
    pairs: Pairs, texts: Ints, alone: float, truth: Floats, rate: Floats
) -> tuple[Floats, Floats, Floats]:
    """Of a scan of these texts: which pairs have an interval, and which of these hold the lift of
    texts with tokens as frequent, and that of all texts. truth: the latter. rate: links of each
    pair for each row of its query's token."""
    links = pairs.links[texts]
    sums, having, squares = links.sum(0), (links > 0).sum(0), (links**2).sum(0)
    asking = pairs.asking[texts].sum(0)
    chances = asking * pairs.even[texts].sum(0) / pairs.rows[texts].sum()
    shown, hold, hold_all = np.zeros((3, len(truth)))
    for place, lift in enumerate(truth.tolist()):
        count, chance = int(sums[place]), float(chances[place])
        pair = PairCount(0, 0, count, count, int(having[place]), int(squares[place]), chance)
        ends = lift_interval(pair, len(texts), alone)
        if ends is not None:
            shown[place] = 1
            hold[place] = ends[0] <= asking[place] * rate[place] / chance <= ends[1]
            hold_all[place] = ends[0] <= lift <= ends[1]
    return shown, hold, hold_all


def tell(what: str, counted: Sequence[tuple[Floats, Floats, Floats]]) -> None:
    shown, hold, hold_all = (sum(column) for column in zip(*counted, strict=True))
    often = np.asarray(shown) > 0.1 * len(counted)
    if not often.any():
        print(f"{what:16} none shown", flush=True)
        return
    single = np.sort(np.asarray(hold)[often] / np.asarray(shown)[often])
    print(
        f"{what:16} shown {np.mean(shown) / len(counted):6.1%}  hold {np.sum(hold) / np.sum(shown):6.1%}  "
        f"pair in a hundred {single[len(single) // 100]:6.1%}  worst {single[0]:6.1%}  "
        f"of all {np.sum(hold_all) / np.sum(shown):6.1%}",
        flush=True,
    )


def main() -> None:
    records: list[dict[str, Any]] = [
        json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()
    ]
    field, trials = sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100
    by_document: dict[str, list[str]] = {}
    for record in records:
        by_document.setdefault(record[field], []).append(record["text"])
    texts, groups = [], []
    for of_document in by_document.values():
        groups.append(np.arange(len(texts), len(texts) + len(of_document[:LONGEST])))
        texts += of_document[:LONGEST]
    pairs = pairs_of(texts)
    truth = pairs.links.sum(0) * pairs.rows.sum() / (pairs.asking.sum(0) * pairs.even.sum(0))
    rate = pairs.links.sum(0) / pairs.asking.sum(0)
    print(
        f"{len(texts):,} texts of {len(groups)} documents, {len(truth):,} pairs, {trials} scans of each size"
    )
    sizes = np.array([len(group) for group in groups])
    for count in SIZES:
        drawn = np.random.default_rng(count)
        scans = [
            scan_of(pairs, drawn.integers(0, len(texts), count), 1.0, truth, rate)
            for _ in range(trials)
        ]
        tell(f"{count} texts", scans)
        scans = []
        for _ in range(trials):
            chosen = drawn.integers(0, len(groups), count)
            total = float(sizes[chosen].sum())
            times = drawn.poisson(1, (REPLICATES, count)) @ sizes[chosen]
            units = float(clusters(np.array(total), times.astype(float)))
            scans.append(
                scan_of(
                    pairs, np.concatenate([groups[at] for at in chosen]), units / total, truth, rate
                )
            )
        tell(f"{count} documents", scans)


if __name__ == "__main__":
    main()
