"""How attention under test is compared with the loops: one batch entry at a time, every stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import oracles

import attncli
from attncli.mechanism.attend import RowBlock, Rule, attend_rows

STAGES = ("raw", "scaled", "capped", "biased", "masked", "weights", "mixed")
LIBRARIES = ("numpy", "torch")


def on(library: str, array: Any) -> Any:
    """The array, or a tensor with the same numbers."""
    if array is None or library == "numpy":
        return array
    import torch

    return torch.from_numpy(np.array(array))


def plain(array: Any) -> np.ndarray:
    return (
        array.float().numpy()
        if str(getattr(array, "dtype", "")) == "torch.bfloat16"
        else np.asarray(array)
    )


def case(
    seed: int = 0,
    *,
    batch: tuple[int, ...] = (),
    heads: int = 4,
    kv_heads: int = 2,
    queries: int = 7,
    keys: int = 11,
    dim: int = 5,
    v_dim: int = 3,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v in float64, large enough that the softmax is far from uniform."""
    random = np.random.default_rng(seed)
    return tuple(
        random.standard_normal((*batch, *shape)) * 1.5
        for shape in ((heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, v_dim))
    )


def row_blocks(
    backend: Any, q: Any, k: Any, v: Any, rule: Rule, *, rows: int, keep=("weights",)
) -> Iterator[RowBlock]:
    """Attention by blocks of so many query rows, each in memory of its own."""
    finite = bool(backend.isfinite(v).all())
    for start in range(0, q.shape[-2], rows):
        stop = min(start + rows, q.shape[-2])
        yield attend_rows(backend, q, k, v, rule, start, stop, keep=keep, finite=finite)


def loops(q: np.ndarray, k: np.ndarray, v: np.ndarray, **options: Any) -> dict[str, np.ndarray]:
    """The oracle's stages, stacked over the leading axes. mask and bias broadcast; offset and
    key_lengths per entry.
    """
    batch = q.shape[:-3]
    square = (*batch, q.shape[-3], q.shape[-2], k.shape[-2])
    entries = []
    for at in np.ndindex(batch):
        own = dict(options)
        for name in ("mask", "bias"):
            if own.get(name) is not None:
                own[name] = np.broadcast_to(own[name], square)[at].tolist()
        if "offset" in own:
            own["offset"] = int(np.broadcast_to(own["offset"], batch)[at])
        lengths = own.pop("key_lengths", None)
        if lengths is not None:
            own["key_length"] = int(np.broadcast_to(lengths, batch)[at])
        if own.get("sinks") is not None:
            own["sinks"] = list(own["sinks"])
        entries.append(oracles.attention(q[at].tolist(), k[at].tolist(), v[at].tolist(), **own))
    return {
        name: np.array([entry[name] for entry in entries]).reshape(
            *batch, *np.shape(entries[0][name])
        )
        for name in entries[0]
    }


def agree(
    trace: Any,
    reference: dict[str, np.ndarray],
    *,
    tolerance: float = 1e-10,
    stages: tuple[str, ...] = STAGES,
) -> None:
    """Every stage within a relative tolerance, infinities in the same places, the same empty rows."""
    assert np.array_equal(plain(trace.empty_rows), reference["empty_rows"])
    for name in stages:
        found, wanted = plain(getattr(trace, name)).astype(np.float64), reference[name]
        assert found.shape == wanted.shape, f"{name}: {found.shape} is not {wanted.shape}"
        finite = np.isfinite(wanted)
        assert np.array_equal(np.isfinite(found), finite), name
        assert np.array_equal(found[~finite], wanted[~finite]), name
        size = max(1.0, np.abs(wanted[finite]).max(initial=0.0))
        assert np.abs(found[finite] - wanted[finite]).max(initial=0.0) <= tolerance * size, name


def attend(library: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, **options: Any) -> Any:
    for name in ("mask", "bias", "sinks"):
        if options.get(name) is not None:
            options[name] = on(library, options[name])
    return attncli.attention(on(library, q), on(library, k), on(library, v), **options)
