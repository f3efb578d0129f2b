"""From the type that a run computes in to the type of its results: every number is rounded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.trace import SQUARE, Later, LayerTrace

OnBlock = Callable[[int, str, RowBlock], None]


@np.errstate(
    over="ignore"
)  # a number too large for the results' type is infinite there, as it would have been all along
def round_trace(backend: Backend, trace: LayerTrace) -> LayerTrace:
    """The trace with its arrays in `backend.dtype`; stages that share an array go on sharing it."""
    distinct = {id(array): name for name, array in trace.stages.items()}
    leaving = trace.leaving

    @np.errstate(over="ignore")
    def after() -> Array:
        return backend.cast(leaving(), backend.dtype)

    once = {key: _round_stage(backend, name, trace.stages[name]) for key, name in distinct.items()}
    return replace(
        trace,
        stages={name: once[id(array)] for name, array in trace.stages.items()},
        before=backend.cast(trace.before, backend.dtype),
        leaving=Later(after),
        cross=None if trace.cross is None else round_trace(backend, trace.cross),
    )


def round_blocks(backend: Backend, on_block: OnBlock) -> OnBlock:
    """`on_block`, handed blocks whose arrays are in `backend.dtype`."""

    def cast(array: Array) -> Array:
        return backend.cast(array, backend.dtype)

    @np.errstate(over="ignore")
    def round_block(layer: int, kind: str, block: RowBlock) -> None:
        stages = {name: _round_stage(backend, name, array) for name, array in block.stages.items()}
        on_block(layer, kind, replace(block, stages=stages, mixed=cast(block.mixed), lse=cast(block.lse)))

    return round_block


def _round_stage(backend: Backend, name: str, array: Array) -> Array:
    """The stage rounded. A finite score stays finite, the largest that there is: an infinite one is what a mask
    hides."""
    result = backend.cast(array, backend.dtype)
    lost = backend.isfinite(array) & ~backend.isfinite(result) if name in SQUARE else None
    if lost is None or not bool(lost.any()):
        return result
    largest = float(np.finfo(backend.dtype).max)
    return backend.where(lost, backend.cast(backend.where(array > 0, largest, -largest), backend.dtype), result)
