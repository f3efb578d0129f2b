"""Interventions: what is changed in one attention while a text runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, assert_never

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend

Kind: TypeAlias = Literal["self", "cross"]
"""Which attention of a layer: over the text itself, or over another one."""


class Zero(Struct, frozen=True):
    """What these heads mix becomes 0. Source: Michel et al., Are sixteen heads really better than one?, 2019."""

    heads: tuple[int, ...]


class Replace(Struct, frozen=True, eq=False):
    """What these heads mix becomes `values`, [..., one of the heads, token, v_dim].

    Leading axes are variants: the run has them from here on. Also called activation patching.
    """

    heads: tuple[int, ...]
    values: Array


class KnockOut(Struct, frozen=True):
    """The scores of these queries for these keys become −∞ in these heads, before the softmax; rows renormalise.

    queries, keys: absolute positions; every pair of them is cut. A row left with nothing is an empty row. Learned sinks
    stay. Source: Geva et al., Dissecting recall of factual associations, 2023.
    """

    heads: tuple[int, ...]
    queries: tuple[int, ...]
    keys: tuple[int, ...]


Intervention: TypeAlias = Zero | Replace | KnockOut
Interventions: TypeAlias = Mapping[tuple[int, Kind], Sequence[Intervention]]
"""What is changed in which layer's attention; in the order in which it is done."""
NOTHING: Interventions = {}


def visible_links(
    backend: Backend, interventions: Sequence[Intervention], heads: int, positions: np.ndarray[Any, Any], keys: int
) -> Array | None:
    """Which links are left, booleans [head, query, key]; None where none is cut.

    positions: absolute position of each query, [query]. keys: how many keys there are.
    """
    knock_outs = [intervention for intervention in interventions if isinstance(intervention, KnockOut)]
    if not knock_outs:
        return None
    visible = np.ones((heads, len(positions), keys), bool)
    for knock_out in knock_outs:
        rows = np.flatnonzero(np.isin(positions, knock_out.queries))
        visible[np.ix_(np.asarray(knock_out.heads), rows, np.asarray(knock_out.keys))] = False
    return backend.array(visible)


def apply_interventions(backend: Backend, interventions: Sequence[Intervention], mixed: Array) -> Array:
    """What the heads pass on, [..., head, token, v_dim], after what is put in its place."""
    for intervention in interventions:
        match intervention:
            case Zero(heads):
                is_zero = np.zeros((mixed.shape[-3], 1, 1), bool)
                is_zero[list(heads)] = True
                mixed = backend.where(backend.array(is_zero), 0.0, mixed)
            case Replace(heads, values):
                mixed = _replace_heads(backend, heads, values, mixed)
            case KnockOut():
                pass  # it has been at work before the softmax
            case _:
                assert_never(intervention)
    return mixed


def _replace_heads(backend: Backend, heads: Sequence[int], values: Array, mixed: Array) -> Array:
    if tuple(heads) == tuple(range(mixed.shape[-3])):
        return values
    variants = np.broadcast_shapes(tuple(values.shape[:-3]), tuple(mixed.shape[:-3]))
    parts = []
    for head in range(mixed.shape[-3]):
        source, place = (values, list(heads).index(head)) if head in heads else (mixed, head)
        part = source[..., place : place + 1, :, :]
        parts.append(backend.broadcast(part, (*variants, *part.shape[-3:])))
    return backend.concat(parts, -3)
