"""From the type that a run computes in to the type of its results: every number is rounded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.trace import SQUARE, Later, LayerTrace

See = Callable[[int, str, RowBlock], None]


@np.errstate(
    over="ignore"
)  # a number too large for the results' type is infinite there, as it would have been all along
def rounded(backend: Backend, trace: LayerTrace) -> LayerTrace:
    """The trace with its arrays in `backend.dtype`; stages that share an array go on sharing it."""
    distinct = {id(array): name for name, array in trace.stages.items()}
    leaving = trace.leaving

    @np.errstate(over="ignore")
    def after() -> Array:
        return backend.cast(leaving(), backend.dtype)

    once = {key: _stage(backend, name, trace.stages[name]) for key, name in distinct.items()}
    return replace(
        trace,
        stages={name: once[id(array)] for name, array in trace.stages.items()},
        before=backend.cast(trace.before, backend.dtype),
        leaving=Later(after),
        cross=None if trace.cross is None else rounded(backend, trace.cross),
    )


def seeing_rounded(backend: Backend, see: See) -> See:
    """`see`, handed blocks whose arrays are in `backend.dtype`."""

    def cast(array: Array) -> Array:
        return backend.cast(array, backend.dtype)

    @np.errstate(over="ignore")
    def seen(layer: int, kind: str, block: RowBlock) -> None:
        stages = {name: _stage(backend, name, array) for name, array in block.stages.items()}
        see(layer, kind, replace(block, stages=stages, mixed=cast(block.mixed), lse=cast(block.lse)))

    return seen


def _stage(backend: Backend, name: str, array: Array) -> Array:
    """The stage rounded. A finite score stays finite, the largest that there is: an infinite one is what a mask
    hides."""
    found = backend.cast(array, backend.dtype)
    lost = backend.isfinite(array) & ~backend.isfinite(found) if name in SQUARE else None
    if lost is None or not bool(lost.any()):
        return found
    largest = float(np.finfo(backend.dtype).max)
    return backend.where(lost, backend.cast(backend.where(array > 0, largest, -largest), backend.dtype), found)
