"""How much of a difference circuits keep: the curve over sizes, its areas, and single edges cut.

Source: Mueller et al., MIB: a mechanistic interpretability benchmark, 2025 (arXiv 2504.13151) for the
sizes and the areas CPR and CMD; here each measure is taken from that of the corrupt texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.features.circuit.edge_graph import EdgeGraph, Mask, live_edges
from attncli.features.circuit.edge_run import CircuitModel
from attncli.measure.pair_measure import TokenPair

Floats = np.ndarray[Any, np.dtype[Any]]

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The sizes of the curve, as shares of all edges."""
KEEPS = 0.8
"""The share of the difference that a circuit keeps whose size nobody said."""
RUNS_AT_ONCE = 11
"""Circuits beside each other in one run."""


class CircuitMeasures(Struct, frozen=True, eq=False):
    """m, the measure of a pair (such as its answer's logit minus the other's), under circuits.

    corrupt: of the corrupt texts, [pair].
    circuits: [pair, circuit].
    """

    corrupt: Floats
    circuits: Floats

    def difference_kept(self) -> Floats:
        """How much larger the measure m is under each circuit than after the corrupt text,
        [pair, circuit]."""
        return self.circuits - self.corrupt[:, None]


def measure_circuits(
    circuit: CircuitModel,
    pairs: Sequence[TokenPair],
    masks: Sequence[Mask],
    rows_of: Callable[[Sequence[Callable[[], Floats]]], list[Floats]],
) -> CircuitMeasures:
    """Measure m, the logit of a pair's answer minus that of the other, of each pair under each
    circuit, by exact runs.

    masks: the edges of each circuit, [reader, writer].
    rows_of: calls the functions that it is handed, one for each pair, and returns their results in
        that order; it may call several at once and tell how far they are.
    """
    # the same measures as with all edges of a mask, and nothing is run for those that change nothing
    live = np.stack([live_edges(circuit.graph, mask) for mask in masks])
    rows = rows_of([partial(_measured_row, circuit, pair, live) for pair in pairs])
    measured = np.stack(rows)
    return CircuitMeasures(corrupt=measured[:, 0], circuits=measured[:, 1:])


def _measured_row(circuit: CircuitModel, pair: TokenPair, live: Mask) -> Floats:
    """The measure m (the logit difference) of a pair: of its corrupt text, then of each circuit,
    [1 + circuit].

    live: the edges of each circuit, [circuit, reader, writer].
    """
    # at most `RUNS_AT_ONCE` at a time; each part begins with the same corrupt text, kept once
    parts = [
        circuit.measure_circuits(pair, live[first : first + RUNS_AT_ONCE])
        for first in range(0, len(live), RUNS_AT_ONCE)
    ]
    return np.concatenate([parts[0][:1], *(part[1:] for part in parts)])


def areas(shares: Sequence[float], kept: Sequence[float]) -> tuple[float, float]:
    """CPR and CMD of a curve: the areas below it, and between it and 1, by trapezoids.

    shares: of edges, the horizontal axis.
    kept: the share of the effect that a circuit of each size keeps.
    """
    curve = np.asarray(kept)
    steps = np.diff(np.asarray(shares))
    below, between = (
        float((steps * (heights[1:] + heights[:-1]) / 2).sum())
        for heights in (curve, np.abs(1.0 - curve))
    )
    return below, between


def smallest_size(shares: Sequence[float], kept: Sequence[float]) -> int:
    """The index of the smallest size that keeps at least `KEEPS` of the effect; the last where none
    does.

    shares: the sizes, ascending.
    kept: the share of the effect that each keeps.
    """
    for place, value in enumerate(kept):
        if value >= KEEPS:
            return place
    return len(shares) - 1


def without_each(graph: EdgeGraph, edges: Floats) -> list[Mask]:
    """Masks of edges: for each of these edges, all edges but that one; and at the end, all edges.

    edges: (reader, writer) rows.
    """
    masks = []
    for reader, writer in edges.tolist():
        mask = graph.mask  # a new array each time
        mask[reader, writer] = False
        masks.append(mask)
    return [*masks, graph.mask]


def overlap_of_resamples(
    scores: Floats, choose: Callable[[Floats], Mask], weights: Floats
) -> float | None:
    """How stable the choice of a circuit is: circuits are chosen by mean scores over resamples of the
    pairs, and the overlap of two circuits (edges in both / edges in either) is averaged over all
    pairs of circuits. None for fewer than two pairs of texts.

    scores: of edges for each pair of texts, [pair, reader, writer].
    choose: gives the circuit for mean scores, [reader, writer].
    weights: of the pairs in each resample, [draw, pair], rows that sum to 1.
    """
    if len(scores) < 2:
        return None
    means = np.tensordot(weights, scores, 1)
    # a row of 0 and 1 for each circuit, whose products count the edges in common
    chosen = np.stack([choose(mean).ravel() for mean in means]).astype(np.float32)
    both = chosen @ chosen.T
    sizes = chosen.sum(1)
    either = sizes[:, None] + sizes[None, :] - both
    # each pair of circuits once
    first, second = np.triu_indices(len(chosen), 1)
    # two circuits without edges overlap by 0 / 1
    overlaps = both[first, second] / np.maximum(either[first, second], 1.0)
    return float(overlaps.mean())
