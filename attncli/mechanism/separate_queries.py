"""Queries of an attention that meet keys and values of their own. Source: Beltagy et al., Longformer, 2020."""

from __future__ import annotations

from msgspec import Struct

from attncli.arrays.backend import Array, Backend


class Apart(Struct, frozen=True, eq=False):
    """Queries that have keys and values to themselves.

    rows: which of the queries, ascending. q: theirs, [..., head, one of them, dim]. k, v: [..., kv, key, dim or v_dim].
    """

    rows: tuple[int, ...]
    q: Array
    k: Array
    v: Array


def apart_in(backend: Backend, apart: Apart | None, dtype: str, where: tuple[int, int, int, int]) -> Apart | None:
    """Those of a block of rows, counted within it, over its range of keys; None where there are none."""
    start, stop, low, high = where
    places = [] if apart is None else [place for place, row in enumerate(apart.rows) if start <= row < stop]
    if apart is None or not places:
        return None
    return Apart(
        tuple(apart.rows[place] - start for place in places),
        backend.cast(apart.q[..., places, :], dtype),
        backend.cast(apart.k[..., low:high, :], dtype),
        backend.cast(apart.v[..., low:high, :], dtype),
    )
