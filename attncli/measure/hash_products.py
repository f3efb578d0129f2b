"""The numbers by which `lsh` masks put the queries and keys of a text into buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.documents.parts import HashProducts
from attncli.mechanism.mask import Hashed
from attncli.mechanism.mask.pattern import directions, projections_of
from attncli.mechanism.spec import Attention
from attncli.mechanism.trace import LayerTrace

Floats = np.ndarray[Any, np.dtype[np.float64]]


def hash_products(
    backend: Backend, attention: Attention, trace: LayerTrace, heads: Sequence[int]
) -> list[HashProducts]:
    """What decides the buckets of a layer's queries and keys, an entry per mask and head; none
    where no part of the layer's mask is `lsh`.

    Args:
        backend: What the trace's arrays are of.
        attention: The layer's; its mask is not bound to vectors.
        trace: One layer's, with q and k.
        heads: The numbers of the heads that the trace holds, in its order.
    """
    entries = []
    for mask in attention.mask.parts_of():
        if not isinstance(mask, Hashed):
            continue
        q = trace.stages["q"]
        k = trace.stages["k"]
        tokens = q.shape[-2]
        # every head has directions of its own, whichever heads are kept
        width = q.shape[-1]
        every_head = directions(mask.seed, attention.heads, width, mask.rounds, mask.buckets)
        rotations = every_head[list(heads)]
        for place, head in enumerate(heads):
            # several query heads in a row may share one key head
            key_place = place * k.shape[0] // len(heads)
            rotation = backend.array_as_is(rotations[place : place + 1])
            entries.append(
                HashProducts(
                    layer=trace.layer,
                    head=head,
                    query=_products(backend, q[place : place + 1], rotation),
                    # a learned key behind those of the tokens is left out
                    key=_products(backend, k[key_place : key_place + 1, :tokens], rotation),
                )
            )
    return entries


def _products(backend: Backend, vectors: Array, rotation: Array) -> Floats:
    """xR of one head's vectors, [round, token, column of R], as NumPy numbers.

    vectors: [1 head, token, dim].
    rotation: R, [1 head, dim, round, column].
    """
    return np.asarray(backend.numpy(projections_of(backend, vectors, rotation))[0], np.float64)


def buckets_of_products(products: Floats) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bucket of each vector, integers [round, token]: the place of the largest of [xR; −xR].

    Args:
        products: xR, [round, token, column of R].
    """
    return np.concatenate([products, -products], -1).argmax(-1)
