"""The vectors that enter layer 0: where each token stands, added to what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.position import sinusoidal, timescales
from attncli.mechanism.spec import Embedding


def with_positions(
    backend: Backend,
    embedding: Embedding,
    x: Array,
    positions: Sequence[int],
    learned_rows: Callable[[], Array],
    *,
    stored: bool = False,
) -> Array:
    """Token vectors [token, width] with their positions added as the embedding says; themselves where it adds none.

    positions: the row of each token in a table of positions, in which `padding` is that of padding.
    learned_rows: the rows of a learned table, [token, width], for a model that has one. stored: whether it has a table
    of what could be computed, which then counts: it was perhaps rounded.
    """
    match embedding.positions:
        case "learned":
            return x + learned_rows()
        case "sinusoidal":
            return x + backend.array(sinusoidal(np.asarray(positions), x.shape[-1]))
        case "halves" if stored:
            return x + learned_rows()
        case "halves":
            vectors = sinusoidal(np.asarray(positions), x.shape[-1])
            # float32, as the models that use it hold their table
            return x + backend.array(np.concatenate([vectors[:, 0::2], vectors[:, 1::2]], -1).astype(np.float32))
        case "timescales":
            vectors = timescales(np.asarray(positions), x.shape[-1])
            if embedding.padding is not None:
                vectors[np.asarray(positions) == embedding.padding] = 0.0
            return x + backend.array(vectors.astype(np.float32))
        case None:
            return x
        case _:
            assert_never(embedding.positions)
