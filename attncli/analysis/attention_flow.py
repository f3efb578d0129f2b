"""Attention flow: the most that can flow from an input token to a position, as a maximum flow through the layers.

Source: Abnar and Zuidema, Quantifying attention flow in transformers, 2020. Nodes are positions at
every depth, capacities the residual-adjusted attention; one maximum-flow problem for each pair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from attncli.analysis.rollout import residual
from attncli.analysis.visible_keys import Floats
from attncli.errors import LimitError

LARGEST = 3_000_000
"""Pairs × edges that are still a matter of seconds."""
TINY = 1e-9
"""Capacity that counts as none: less than float32 weights resolve."""


def check_size(count: int, layers: int, queries: int) -> None:
    """Raise LimitError where flow would take too long: it grows with queries · n · layers · n²."""
    work = queries * count * layers * count * count
    if work > LARGEST:
        raise LimitError(
            f"attention flow solves {queries * count:,} maximum-flow problems over {layers * count * count:,} edges",
            expected=f"at most {LARGEST:,} problems × edges, here {work:,}",
            hint="a shorter text, fewer layers, or rollout in place of flow",
        )


def max_flow(layers: Sequence[Floats], queries: Sequence[int]) -> Floats:
    """The maximum flow from each query's position after the last layer to each input token, [query, key].

    layers: mean weights of each layer [query, key], first layer first. Rows are scaled to sum to 1 for
    comparison with rollout. Raises LimitError (see `check_size`).
    """
    count = len(layers[0])
    check_size(count, len(layers), len(queries))
    steps = [residual(layer) for layer in reversed(layers)]
    flows = np.zeros((len(queries), count))
    for row, query in enumerate(queries):
        for key in range(count):
            flows[row, key] = _most(steps, query, key)
    sums = flows.sum(-1, keepdims=True)
    scaled: Floats = flows / np.where(sums > 0, sums, 1)
    return scaled


def _most(steps: Sequence[Floats], source: int, sink: int) -> float:
    """The maximum flow from position `source` above the last layer down to `sink` at the input (Dinic, 1970)."""
    count, depth = len(steps[0]), len(steps)
    capacity = np.zeros((depth + 1, count, count))  # what is left from [depth, i] down to [depth + 1, j]
    capacity[:depth] = steps
    back = np.zeros_like(capacity)  # what can be sent back up from [depth + 1, j] to [depth, i]
    total = 0.0
    while True:
        levels = _levels(capacity, back, depth, count, source)
        if levels[depth][sink] < 0:
            return total
        while (amount := _send(capacity, back, levels, (0, source), (depth, sink), np.inf)) > TINY:
            total += amount


def _levels(capacity: Floats, back: Floats, depth: int, count: int, source: int) -> list[list[int]]:
    levels = [[-1] * count for _ in range(depth + 1)]
    levels[0][source] = 0
    waiting = deque([(0, source)])
    while waiting:
        depth_here, node = waiting.popleft()
        for step, ends in (
            (1, capacity[depth_here, node] if depth_here < depth else ()),
            (-1, back[depth_here - 1, :, node] if depth_here > 0 else ()),
        ):
            for neighbour, room in enumerate(ends):
                if room > TINY and levels[depth_here + step][neighbour] < 0:
                    levels[depth_here + step][neighbour] = levels[depth_here][node] + 1
                    waiting.append((depth_here + step, neighbour))
    return levels


def _send(
    capacity: Floats, back: Floats, levels: list[list[int]], here: tuple[int, int], goal: tuple[int, int], room: float
) -> float:
    """Send as much as fits along one path of rising levels; a dead end is taken off the levels."""
    if here == goal:
        return room
    depth_here, node = here
    depth = goal[0]
    for step, ends in (
        (1, capacity[depth_here, node] if depth_here < depth else ()),
        (-1, back[depth_here - 1, :, node] if depth_here > 0 else ()),
    ):
        for neighbour, free in enumerate(ends):
            if free > TINY and levels[depth_here + step][neighbour] == levels[depth_here][node] + 1:
                amount = _send(capacity, back, levels, (depth_here + step, neighbour), goal, min(room, float(free)))
                if amount > TINY:
                    if step == 1:
                        capacity[depth_here, node, neighbour] -= amount
                        back[depth_here, node, neighbour] += amount
                    else:
                        back[depth_here - 1, neighbour, node] -= amount
                        capacity[depth_here - 1, neighbour, node] += amount
                    return amount
    levels[depth_here][node] = -1
    return 0.0
