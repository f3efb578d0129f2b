"""What even attention would give to regions: a share of the keys that each query sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.arrays.backend import numpy_backend
from attncli.mechanism.mask import Mask, visible
from attncli.mechanism.spec import Spec

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def even_shares(
    spec: Spec, regions: Sequence[Sequence[int]], queries: range, rest: Bools
) -> Floats:
    """The share of attention that each region would get if every query spread its weight evenly,
    [region]: of the keys that a query sees, without resting keys, the part that lies in the region.
    It is a mean over queries and over layers, each with its own mask.

    regions: the token indices of each region.
    queries: their positions; the keys are all tokens up to the last of them.
    rest: which keys are resting keys (the first and special tokens, on which heads put weight when
        they look for nothing), booleans [key].
    """
    # most layers have the same mask: the shares are computed once for each mask
    by_mask: dict[str, Floats] = {}
    total = np.zeros(len(regions))
    attending = spec.attending()
    for layer in attending:
        mask = spec.blocks[layer].attention.mask
        name = mask.spec()
        if name not in by_mask:
            sees = _visible(mask, queries) & ~rest
            counts = np.maximum(sees.sum(-1), 1)  # 0 / 1 of a query that sees resting keys alone
            by_mask[name] = np.array(
                [(sees[..., list(region)].sum(-1) / counts).mean() for region in regions]
            )
        total += by_mask[name]
    return total / max(len(attending), 1)  # 0 for a model without attention


def _visible(mask: Mask, queries: range) -> Bools:
    """Which keys each query sees, booleans [query, key], or [head, query, key] where heads differ.
    A mask that depends on the vectors (hash attention) counts as causal: every key up to the query.
    """
    positions = np.array(queries)
    keys = np.arange(queries.stop)[None, :]
    causal = np.asarray(keys <= positions[:, None])
    if mask.depends_on == "vectors":
        return causal
    backend = numpy_backend("float64")
    i = backend.array(positions[:, None])
    sees = np.asarray(visible(mask, i, backend.array(keys), keys=queries.stop, backend=backend))
    head_axis = sees.shape[:-2]  # (heads,) of a mask that differs by head, else ()
    return np.broadcast_to(sees, (*head_axis, *causal.shape)) & causal
