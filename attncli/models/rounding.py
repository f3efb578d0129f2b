"""From the type that a run computes in to the type of its results: every number is rounded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.attention.attend import RowBlock
from attncli.attention.trace import LayerTrace

See = Callable[[int, str, RowBlock], None]


@np.errstate(over="ignore")  # a number too large for the results' type is infinite there, as it would have been all along
def rounded(backend: Backend, trace: LayerTrace) -> LayerTrace:
    """The trace with its arrays in `backend.dtype`; stages that share an array go on sharing it."""
    distinct = {id(array): array for array in trace.stages.values()}
    once = {key: backend.cast(array, backend.dtype) for key, array in distinct.items()}
    return replace(
        trace,
        stages={name: once[id(array)] for name, array in trace.stages.items()},
        before=backend.cast(trace.before, backend.dtype),
        after=backend.cast(trace.after, backend.dtype),
        cross=None if trace.cross is None else rounded(backend, trace.cross),
    )


def seeing_rounded(backend: Backend, see: See) -> See:
    """`see`, handed blocks whose arrays are in `backend.dtype`."""

    def cast(array: Array) -> Array:
        return backend.cast(array, backend.dtype)

    @np.errstate(over="ignore")
    def seen(layer: int, kind: str, block: RowBlock) -> None:
        stages = {name: cast(array) for name, array in block.stages.items()}
        see(layer, kind, replace(block, stages=stages, mixed=cast(block.mixed), lse=cast(block.lse)))

    return seen
