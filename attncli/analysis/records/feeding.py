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
    block_heads = range(block.first_head, block.first_head + len(block.stages["weights"]))
    local_heads = [head - block_heads.start for head in records.head_numbers if head in block_heads]
    rows = records.rows(block.high)
    if local_heads:
        stages = {name: backend.numpy(array)[local_heads] for name, array in block.stages.items() if name in SQUARE}
        visibility = None if block.visibility is None else backend.numpy(block.visibility)
        if visibility is not None and visibility.ndim == 3 and visibility.shape[0] > 1:
            visibility = visibility[local_heads]
        bias = stages["biased"] - stages["capped"] if "biased" in stages and "capped" in stages else None
        lse, first = (
            backend.numpy(block.lse)[local_heads],
            sum(head < block_heads.start for head in records.head_numbers),
        )
        rows.add(block.start, block.low, np.nan_to_num(stages["weights"]), lse, visibility, bias, first=first)
    records.feeder.on_block(block)


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def feed_whole(backend: Backend, records: LayerRecords, stages: Mapping[str, Array], words: Words | None) -> None:
    """All rows of a layer at once: weights, and masked, capped and biased where there are any. words: what tokens are
    merged to."""
    arrays = {
        name: backend.numpy(stages[name])[records.head_numbers]
        for name in ("weights", "masked", "capped", "biased")
        if name in stages
    }
    weights = np.nan_to_num(arrays["weights"])  # what is no number is told by a warning of the run
    visibility = arrays["masked"] != -np.inf if "masked" in arrays else np.ones(weights.shape, bool)
    if words is not None:
        weights, visibility = words.merge(weights).astype(np.float32), words.merge_visible(visibility)
    lse = np.full(weights.shape[:2], np.nan, np.float32)
    if words is None and "masked" in arrays:
        strongest = weights.argmax(-1)[..., None]
        score, most = (np.take_along_axis(arrays[name], strongest, -1)[..., 0] for name in ("masked", "weights"))
        lse = np.where(most > 0, score - np.log(most), -np.inf).astype(np.float32)
    bias = arrays["biased"] - arrays["capped"] if "biased" in arrays and "capped" in arrays else None
    shared_visibility = (
        visibility[0] if bool((visibility == visibility[:1]).all()) else visibility
    )  # heads that see the same
    records.rows(weights.shape[-1]).add(0, 0, weights, lse, None if visibility.all() else shared_visibility, bias)
    keys = records.keys
    records.feeder.whole(weights[..., :keys].astype(np.float64), visibility[..., :keys])


def arithmetic(backend: Backend, stages: Mapping[str, Array], scale: float, softcap: float | None) -> Arithmetic | None:
    """A layer's queries and keys with what turns them into scores; None where they were not kept, or are not all."""
    if "q" not in stages or "k" not in stages or "global_q" in stages:
        return None
    q, k = (np.asarray(backend.numpy(stages[name]), np.float32) for name in ("q", "k"))
    return Arithmetic(q, k, scale, softcap)
