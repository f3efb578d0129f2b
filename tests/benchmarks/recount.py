"""Counts a scan again: `python recount.py CORPUS [TEXTS]`, of MiniLM, labels and lifts, with NumPy
and loops alone.

A scan in float64 of so many texts (300), beside every head's weights of each text, one after the
other. What is said of a label (its score, the share of texts that earn it, whether the head earns
it) and of a pair of tokens (its links, how many chance makes, its lift) is made again from these
weights by the formulas of the guide, sums in multiples of 2⁻²⁴ as a scan keeps them. Told is how
far any number is from the scan's: 0, or some 1e-16.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attncli
from attncli.measure.labels import LABELS, LEAST_ROWS, MARGIN
from attncli.measure.rest import rest_keys
from attncli.measure.row_facts import is_punctuation
from attncli.scan import plan, report
from attncli.scan.totals import Totals
from attncli.scan.worker import Worker

UNIT = 2.0**24
OFFSETS = tuple(range(-5, 6))
PLAIN = {"previous-token": -1, "next-token": 1, "self": 0}


def numbers_of(weights: Any, special: Any, punctuation: Any) -> dict[str, Any]:
    """By label: each head's number, what uniform attention would have, and over how many rows.
    weights: [head, i, j].
    """
    count = weights.shape[-1]
    nothing = np.full(len(weights), np.nan), np.nan, 0
    others = weights[:, 1:, 1:]  # rows and keys beside the first token, where heads rest
    beside = others.sum(-1)

    def at(offset: int) -> tuple[Any, float, int]:
        i = np.arange(max(0, -offset), min(count - 1, count - 1 - offset))
        if count < 3 or not i.size:
            return nothing
        share = others[:, i, i + offset].sum(-1) / beside[:, i].sum(-1)
        return share, 1 / (count - 1), i.size

    told = {name: at(offset) for name, offset in PLAIN.items()}
    there = [at(offset) for offset in OFFSETS]
    table = np.stack(
        [value if rows >= LEAST_ROWS else np.full(len(weights), np.nan) for value, _, rows in there]
    )
    most = max(rows for _, _, rows in there)
    best = np.where(np.isnan(table), -np.inf, table).max(0)
    told["positional"] = np.where(np.isinf(best), np.nan, best), 1 / max(count - 1, 1), most
    told["first-token sink"] = (weights[:, 1:, 0].mean(-1), 1 / count, count - 1)
    told["special-token"] = (weights[:, :, special].sum(-1).mean(-1), special.mean(), count)
    told["punctuation"] = told["broad"] = nothing
    if count >= 3:
        total = beside.sum(-1)
        marks = others[:, :, punctuation[1:]].sum((-1, -2)) / total
        told["punctuation"] = marks, punctuation[1:].mean(), count - 1
        part = others / beside[..., None]
        entropy = -np.where(part > 0, part * np.log(np.where(part > 0, part, 1)), 0).sum(-1)
        evenness = (entropy * beside).sum(-1) / np.log(count - 1) / total
        told["broad"] = evenness, 1.0, count - 1
    return told


def main() -> None:
    torch.set_num_threads(1)
    lines = (
        Path(sys.argv[1])
        .read_text("utf-8")
        .splitlines()[: int(sys.argv[2]) if len(sys.argv) > 2 else 300]
    )
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder) / "corpus.txt", Path(folder) / "scan"
        corpus.write_text("\n".join(lines), "utf-8")
        model = attncli.load("minilm", backend="torch", dtype="float64")
        asked = plan.ScanRequest((str(corpus),), ("entropy",))
        made = plan.write(plan.make_plan(asked, model, "minilm", out, stdin=io.BytesIO()), out)
        totals = Totals(made)
        totals.add(0, Worker(made, out, model).compute(0)[0])
        document = report.scan_document(totals)
    exact = attncli.load("minilm", backend="numpy", dtype="float64")
    sums: dict[tuple[int, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    links: dict[tuple[int, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    asking: Counter[int] = Counter()
    even: Counter[int] = Counter()
    rows = 0
    for line in lines:
        tokens = exact.encode(line)
        ids = [int(token.id or 0) for token in tokens]
        special = np.array([token.special for token in tokens])
        punctuation = np.array([is_punctuation(token) for token in tokens])
        awake = np.flatnonzero(~rest_keys(tokens))
        if len(awake) >= 2:
            rows += len(ids)
            asking.update(ids)
            received = float(np.rint(len(ids) / len(awake) * UNIT))
            for place in awake:
                even[ids[place]] += received
        for trace in exact.trace(tokens, keep=("weights",)):
            weights = np.asarray(trace.stages["weights"])
            for name, (value, uniform, used) in numbers_of(weights, special, punctuation).items():
                threshold = LABELS[name].threshold
                least = threshold if name == "broad" else max(threshold, MARGIN * uniform)
                for head in range(len(weights)):
                    if np.isnan(value[head]):
                        continue
                    entry = sums[trace.layer, head, name]
                    entry[0] += 1
                    entry[1] += np.rint(value[head] * UNIT)
                    entry[2] += used >= LEAST_ROWS and value[head] >= least
                    entry[3] += np.rint(uniform * UNIT)
            for head, table in enumerate(weights if len(awake) >= 2 else ()):
                links[trace.layer, head].update(
                    (ids[i], ids[awake[int(row[awake].argmax())]]) for i, row in enumerate(table)
                )
    far = dict.fromkeys(("score", "share of texts", "links", "chance", "lift"), 0.0)
    labels = pairs = wrong = 0
    for head in document.heads:
        told = {label.name: label for label in head.labels}
        for name in LABELS:
            texts, total, earned, uniform = sums[head.layer, head.head, name]
            if not texts:
                continue  # on random repeats
            score = total / UNIT / texts
            least = (
                LABELS[name].threshold
                if name == "broad"
                else max(LABELS[name].threshold, MARGIN * uniform / UNIT / texts)
            )
            label = told.get(name)
            wrong += (label is not None and label.earned) != (score >= least) or (
                label is None and earned > 0
            )
            if label is not None:
                labels += 1
                far["score"] = max(far["score"], abs(label.score - score))
                far["share of texts"] = max(
                    far["share of texts"], abs(label.texts - earned / texts)
                )
        counts = links[head.layer, head.head]
        for link in head.links:
            pairs += 1
            pair = (link.query.id, link.key.id)
            chance = asking[pair[0]] * even[pair[1]] / UNIT / rows
            far["links"] = max(far["links"], abs(link.links - counts[pair]))
            far["chance"] = max(far["chance"], abs(link.chance - chance) / chance)
            far["lift"] = max(far["lift"], abs(link.lift - counts[pair] / chance) / link.lift)
        top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: len(head.links)]
        wrong += [pair for pair, _ in top] != [(link.query.id, link.key.id) for link in head.links]
    print(
        f"{len(lines)} texts, {rows} tokens, {labels} labels and {pairs} pairs of {len(document.heads)} heads"
    )
    for name, distance in far.items():
        print(f"{name:15} at most {distance:.1e} from the scan's")
    print(f"{wrong} labels or orders of pairs are others")


if __name__ == "__main__":
    main()
