"""What a layer is given besides its input: weights by role, positions, what to keep, change and watch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import EVERY_STAGE, RowBlock
from attncli.mechanism.intervention import Interventions


class Weights(Protocol):
    """The weights of one layer by role, such as "attn.q.weight" ([out, in]); None where the model has none."""

    def __call__(self, role: str, /) -> Array | None: ...


class ReadWeights(ABC):
    """`Weights` that are read when they are asked for."""

    @abstractmethod
    def __call__(self, role: str, /) -> Array | None: ...

    @abstractmethod
    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """x·Wᵀ + b, [row, out], with the roles `name`.weight and `name`.bias, multiplied with while the weight is read;
        None where it is not the next one in line or is to be asked for whole. x: [..., in], of so many rows in all."""


class Context(Struct, frozen=True, eq=False):
    """What a layer must know besides its weights and input.

    positions: absolute position of each token, integers [token]; length: positions in all.
    key_lengths: real keys per batch entry, integers [batch, 1, 1, 1]; None if all are real.
    memory: the encoder's output [..., token, width] for cross-attention; memory_lengths likewise.
    past: keys and values of earlier positions by layer, extended in place while generating.
    keep: which n × n stages to keep. rows: None for dense attention; else how many query rows
    to compute at a time, each block handed to `on_block(layer, kind, block)` with kind "self" or "cross".
    interventions: what is changed on the way. asking: positions within the text, start to stop, that are computed as
    queries and leave the layer, None where none are singled out; the others only lend their keys and values.
    on_activation: handed the layer, a norm's place with what enters it, or "mlp" with what the feed-forward part gives.
    """

    positions: np.ndarray[Any, Any]
    length: int
    key_lengths: Array | None = None
    memory: Array | None = None
    memory_lengths: Array | None = None
    past: dict[int, tuple[Array, Array]] | None = None
    keep: frozenset[str] = EVERY_STAGE
    rows: int | None = None
    on_block: Callable[[int, str, RowBlock], None] | None = None
    interventions: Interventions = field(default_factory=dict)
    asking: slice | None = None
    on_activation: Callable[[int, str, Array], None] | None = None
