"""From blocks of rows and from whole stages to the records of a layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attncli.analysis.records.head import Arithmetic, LayerRecords
from attncli.analysis.words import Words
from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.trace import SQUARE


@np.errstate(invalid="ignore", over="ignore")  # a score that is no number is found by the check of what is made again
def feed(backend: Backend, records: LayerRecords, block: RowBlock) -> None:
    """A block of rows with the stages weights, and capped and biased where they were kept."""
    held = range(block.first_head, block.first_head + len(block.stages["weights"]))
    chosen = [head - held.start for head in records.chosen if head in held]
    rows = records.gathered(block.high)
    if chosen:
        stages = {name: backend.numpy(array)[chosen] for name, array in block.stages.items() if name in SQUARE}
        seen = None if block.seen is None else backend.numpy(block.seen)
        if seen is not None and seen.ndim == 3 and seen.shape[0] > 1:
            seen = seen[chosen]
        bias = stages["biased"] - stages["capped"] if "biased" in stages and "capped" in stages else None
        lse, first = backend.numpy(block.lse)[chosen], sum(head < held.start for head in records.chosen)
        rows.add(block.start, block.low, np.nan_to_num(stages["weights"]), lse, seen, bias, first=first)
    records.watch.see(block)


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def feed_whole(backend: Backend, records: LayerRecords, stages: Mapping[str, Array], words: Words | None) -> None:
    """All rows of a layer at once: weights, and masked, capped and biased where there are any. words: what tokens are
    merged to."""
    held = {
        name: backend.numpy(stages[name])[records.chosen]
        for name in ("weights", "masked", "capped", "biased")
        if name in stages
    }
    weights = np.nan_to_num(held["weights"])  # what is no number is told by a warning of the run
    seen = held["masked"] != -np.inf if "masked" in held else np.ones(weights.shape, bool)
    if words is not None:
        weights, seen = words.merge(weights).astype(np.float32), words.merge_visible(seen)
    lse = np.full(weights.shape[:2], np.nan, np.float32)
    if words is None and "masked" in held:
        strongest = weights.argmax(-1)[..., None]
        score, most = (np.take_along_axis(held[name], strongest, -1)[..., 0] for name in ("masked", "weights"))
        lse = np.where(most > 0, score - np.log(most), -np.inf).astype(np.float32)
    bias = held["biased"] - held["capped"] if "biased" in held and "capped" in held else None
    shown = seen[0] if bool((seen == seen[:1]).all()) else seen  # heads that see the same
    records.gathered(weights.shape[-1]).add(0, 0, weights, lse, None if seen.all() else shown, bias)
    keys = records.keys
    records.watch.whole(weights[..., :keys].astype(np.float64), seen[..., :keys])


def arithmetic(backend: Backend, stages: Mapping[str, Array], scale: float, softcap: float | None) -> Arithmetic | None:
    """A layer's queries and keys with what turns them into scores; None where they were not kept, or are not all."""
    if "q" not in stages or "k" not in stages or "global_q" in stages:
        return None
    q, k = (np.asarray(backend.numpy(stages[name]), np.float32) for name in ("q", "k"))
    return Arithmetic(q, k, scale, softcap)
