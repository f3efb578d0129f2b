"""How much memory a sweep takes, how many branches run together within it, and roughly how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import assert_never

from msgspec import Struct

from attncli.analysis.effects.measures import LOGITS_AT_ONCE
from attncli.analysis.effects.places import HeadAddress, attentions
from attncli.arrays.backend import SCORE_ITEM
from attncli.mechanism.spec import Block, Experts, Mlp, Spec
from attncli.models.estimate import ComputeWork, estimate, seconds_of, work_of

ROWS_AT_ONCE = 1024
"""Vectors that one matrix product takes: more of them make it no faster."""
SCORES = 3
"""Arrays of the size of a branch's scores that are alive at once."""
LOGITS = 3
"""Arrays of the size of a portion of logits that are alive at once."""
SHARE = 0.5
"""How much of the memory given is for the vectors of branches that wait; the rest is for those that run."""


class MemoryBudget(Struct, frozen=True):
    """How branches fit. at_once: how many run together. waiting: how many may have left and wait for the next layer.
    bytes: what the sweep takes at the peak, besides the program itself."""

    at_once: int
    waiting: int
    bytes: int

    def groups(self, places: Sequence[HeadAddress], variants: int) -> Iterator[list[HeadAddress]]:
        """The places by sweeps, in order; each begins at the layer of its first place."""
        size = max(self.waiting // variants, 1)
        for start in range(0, len(places), size):
            yield list(places[start : start + size])


def memory_budget(
    spec: Spec, count: int, branches: int, dtype: str, memory: int | None, *, predicts: bool = False
) -> MemoryBudget:
    """The room that `branches` branches of a text of `count` tokens have in `memory` bytes, None for any amount.

    predicts: whether next tokens are measured, which takes the output head and a portion of logits. At least one branch
    at a time runs, whatever the memory: `least` tells what that takes.
    """
    item = SCORE_ITEM[dtype]
    branch_bytes = count * spec.d_model * item
    running = running_bytes(spec, count, dtype)
    base = _base(spec, count, dtype) + (_head(spec, dtype) if predicts else 0)
    most_at_once = max(min(-(-ROWS_AT_ONCE // count), branches), 1)
    if memory is None:
        return MemoryBudget(most_at_once, max(branches, 1), base + most_at_once * running + branches * branch_bytes)
    free = max(memory - base, 0)
    at_once = max(min(int(free * SHARE) // running, most_at_once), 1)
    waiting = max(min((free - at_once * running) // branch_bytes, branches), 1)
    return MemoryBudget(at_once, waiting, base + at_once * running + waiting * branch_bytes)


def least(spec: Spec, count: int, dtype: str, *, predicts: bool = False) -> int:
    """Bytes that a sweep takes that runs one branch at a time. predicts: as of `memory_budget`."""
    return memory_budget(spec, count, 1, dtype, 0, predicts=predicts).bytes


class SweepCost(Struct, frozen=True):
    """What measuring effects will take: how many branches, rough seconds, bytes at the peak besides the program."""

    branches: int
    seconds: float
    bytes: int


def foretell(
    spec: Spec,
    count: int,
    places: Sequence[HeadAddress],
    dtype: str,
    memory: int,
    *,
    predicts: bool = False,
    draws: int = 0,
) -> SweepCost:
    """What a sweep over these places takes for a text of `count` tokens in `memory` bytes.

    predicts: as of `memory_budget`.
    draws: how many random changes follow, for the heads that are compared with them: which those are is not known yet,
    so that they count as evenly spread over the places.
    """
    seconds = seconds_of(sweep_work(spec, count, places, 1), dtype)
    if draws:
        seconds += seconds_of(sweep_work(spec, count, places, 1), dtype) * draws / len(places)
    widest = max(len(places), draws)
    return SweepCost(len(places), seconds, memory_budget(spec, count, widest, dtype, memory, predicts=predicts).bytes)


def running_bytes(spec: Spec, count: int, dtype: str) -> int:
    """Bytes that one branch takes while it goes through a layer: its vectors, the feed-forward part's, its scores."""
    width = max(3 * _inner(block) + 4 * spec.d_model + _heads_wide(block) for block in spec.blocks)
    heads = max(attention.heads for block in spec.blocks for _, attention in attentions(block))
    return count * (width + SCORES * heads * count) * SCORE_ITEM[dtype]


def _base(spec: Spec, count: int, dtype: str) -> int:
    """What the own run takes, one layer's weights, and what enters each layer."""
    run_bytes = estimate(spec, count, kept_stages=2, dtype=dtype).peak
    layer = max(work_of(spec, [block], count).weights for block in spec.blocks)
    return run_bytes + (layer + len(spec.blocks) * count * spec.d_model) * SCORE_ITEM[dtype]


def _head(spec: Spec, dtype: str) -> int:
    """What an output head takes, and the logits that are in memory at once with what becomes of them."""
    rows = 0 if spec.head is None else spec.vocabulary * spec.d_model * SCORE_ITEM[dtype]
    return rows + LOGITS * min(LOGITS_AT_ONCE, ROWS_AT_ONCE * spec.vocabulary) * 8


def _inner(block: Block) -> int:
    match block.mlp:
        case Mlp(width):
            return width
        case Experts(_, per_token, width):
            return per_token * width
        case None:
            return 0
        case _:
            assert_never(block.mlp)


def _heads_wide(block: Block) -> int:
    return sum(
        2 * attention.heads * (attention.head_dim + attention.v_dim)
        + 2 * attention.kv_heads * (attention.head_dim + attention.v_dim)
        for _, attention in attentions(block)
    )


def sweep_work(spec: Spec, count: int, places: Sequence[HeadAddress], variants: int) -> ComputeWork:
    """What there is to compute for these places: each one's branches go through its own layer and those above."""
    layers = [work_of(spec, [block], count) for block in spec.blocks]
    rest_of_run = [
        ComputeWork(0, sum(work.products for work in layers[layer:]), sum(work.scores for work in layers[layer:]))
        for layer in range(len(layers))
    ]
    whole_run = work_of(spec, spec.blocks, count)
    branches = [
        (rest_of_run[layer], variants * len(list(group)))
        for layer, group in groupby(places, key=lambda place: place.layer)
    ]
    return ComputeWork(
        whole_run.weights,
        whole_run.products + sum(work.products * times for work, times in branches),
        whole_run.scores + sum(work.scores * times for work, times in branches),
    )
