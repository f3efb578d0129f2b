"""How much memory a sweep takes, how many branches run together within it, and roughly how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import assert_never

from msgspec import Struct

from attncli.analysis.effects.measures import LOGITS_AT_ONCE
from attncli.analysis.effects.places import Place, attentions
from attncli.arrays.backend import SCORE_ITEM
from attncli.mechanism.spec import Block, Experts, Mlp, Spec
from attncli.models.estimate import Work, estimate, seconds_of, work_of

ROWS_AT_ONCE = 1024
"""Vectors that one matrix product takes: more of them make it no faster."""
SCORES = 3
"""Arrays of the size of a branch's scores that are alive at once."""
LOGITS = 3
"""Arrays of the size of a portion of logits that are alive at once."""
SHARE = 0.5
"""How much of the memory given is for the vectors of branches that wait; the rest is for those that run."""


class Room(Struct, frozen=True):
    """How branches fit. at_once: how many run together. waiting: how many may have left and wait for the next layer.
    bytes: what the sweep takes at the peak, besides the program itself."""

    at_once: int
    waiting: int
    bytes: int

    def groups(self, places: Sequence[Place], variants: int) -> Iterator[list[Place]]:
        """The places by sweeps, in order; each begins at the layer of its first place."""
        size = max(self.waiting // variants, 1)
        for start in range(0, len(places), size):
            yield list(places[start : start + size])


def room(spec: Spec, count: int, branches: int, dtype: str, memory: int | None, *, predicts: bool = False) -> Room:
    """The room that `branches` branches of a text of `count` tokens have in `memory` bytes, None for any amount.

    predicts: whether next tokens are measured, which takes the output head and a portion of logits. At least one branch
    at a time runs, whatever the memory: `least` tells what that takes.
    """
    item = SCORE_ITEM[dtype]
    one = count * spec.d_model * item
    running = running_bytes(spec, count, dtype)
    base = _base(spec, count, dtype) + (_head(spec, dtype) if predicts else 0)
    wished = max(min(-(-ROWS_AT_ONCE // count), branches), 1)
    if memory is None:
        return Room(wished, max(branches, 1), base + wished * running + branches * one)
    free = max(memory - base, 0)
    at_once = max(min(int(free * SHARE) // running, wished), 1)
    waiting = max(min((free - at_once * running) // one, branches), 1)
    return Room(at_once, waiting, base + at_once * running + waiting * one)


def least(spec: Spec, count: int, dtype: str, *, predicts: bool = False) -> int:
    """Bytes that a sweep takes that runs one branch at a time. predicts: as of `room`."""
    return room(spec, count, 1, dtype, 0, predicts=predicts).bytes


class Foretold(Struct, frozen=True):
    """What measuring effects will take: how many branches, rough seconds, bytes at the peak besides the program."""

    branches: int
    seconds: float
    bytes: int


def foretell(
    spec: Spec, count: int, places: Sequence[Place], dtype: str, memory: int, *, predicts: bool = False, draws: int = 0
) -> Foretold:
    """What a sweep over these places takes for a text of `count` tokens in `memory` bytes. predicts: as of `room`.

    draws: how many random changes follow, for the heads that are compared with them: which those are is not known yet,
    so that they count as evenly spread over the places.
    """
    seconds = seconds_of(sweep_work(spec, count, places, 1), dtype)
    if draws:
        seconds += seconds_of(sweep_work(spec, count, places, 1), dtype) * draws / len(places)
    widest = max(len(places), draws)
    return Foretold(len(places), seconds, room(spec, count, widest, dtype, memory, predicts=predicts).bytes)


def running_bytes(spec: Spec, count: int, dtype: str) -> int:
    """Bytes that one branch takes while it goes through a layer: its vectors, the feed-forward part's, its scores."""
    width = max(3 * _inner(block) + 4 * spec.d_model + _heads_wide(block) for block in spec.blocks)
    heads = max(attention.heads for block in spec.blocks for _, attention in attentions(block))
    return count * (width + SCORES * heads * count) * SCORE_ITEM[dtype]


def _base(spec: Spec, count: int, dtype: str) -> int:
    """What the own run takes, one layer's weights, and what enters each layer."""
    own = estimate(spec, count, kept=2, dtype=dtype).peak
    layer = max(work_of(spec, [block], count).weights for block in spec.blocks)
    return own + (layer + len(spec.blocks) * count * spec.d_model) * SCORE_ITEM[dtype]


def _head(spec: Spec, dtype: str) -> int:
    """What an output head takes, and the logits that are in memory at once with what becomes of them."""
    rows = 0 if spec.head is None else spec.vocabulary * spec.d_model * SCORE_ITEM[dtype]
    return rows + LOGITS * min(LOGITS_AT_ONCE, ROWS_AT_ONCE * spec.vocabulary) * 8


def _inner(block: Block) -> int:
    match block.mlp:
        case Mlp(width):
            return width
        case Experts(_, chosen, width):
            return chosen * width
        case None:
            return 0
        case _:
            assert_never(block.mlp)


def _heads_wide(block: Block) -> int:
    return sum(
        2 * one.heads * (one.head_dim + one.v_dim) + 2 * one.kv_heads * (one.head_dim + one.v_dim)
        for _, one in attentions(block)
    )


def sweep_work(spec: Spec, count: int, places: Sequence[Place], variants: int) -> Work:
    """What there is to compute for these places: each one's branches go through its own layer and those above."""
    layers = [work_of(spec, [block], count) for block in spec.blocks]
    each = [
        Work(0, sum(one.products for one in layers[at:]), sum(one.scores for one in layers[at:]))
        for at in range(len(layers))
    ]
    own = work_of(spec, spec.blocks, count)
    branches = [
        (each[layer], variants * len(list(group))) for layer, group in groupby(places, key=lambda place: place.layer)
    ]
    return Work(
        own.weights,
        own.products + sum(one.products * times for one, times in branches),
        own.scores + sum(one.scores * times for one, times in branches),
    )
