"""Where a model of transformers' own takes positions from, measured on a text of one token said several times.

Whatever differs from token to token in such a text is position: in the vectors that enter the first layer, in queries
and keys where the values do not differ, in what is added to the scores.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from attncli.mechanism.spec import Alibi, Position, RelativeBuckets, Rope

Floats = np.ndarray[Any, Any]

SAME = 1e-4
"""Vectors whose largest difference is below this share of their largest number are the same, but for rounding."""


def varies(rows: Floats) -> bool:
    """Whether vectors [..., token, width] differ from token to token."""
    return bool(np.abs(rows - rows[..., :1, :]).max(initial=0) > SAME * max(np.abs(rows).max(initial=0), 1e-30))


def added_positions(hf_model: Any, entering: Floats) -> Literal["learned", "sinusoidal"] | None:
    """How positions are added to the embedding, by the vectors that enter the first layer [token, width]."""
    if not varies(entering):
        return None
    modules = [(name.rsplit(".", 1)[-1].lower(), module) for name, module in hf_model.named_modules()]
    tables = [module for name, module in modules if "pos" in name or name == "wpe"]
    learned_tables = [module for module in tables if "sinusoid" not in type(module).__name__.lower()]
    return (
        "learned" if any(True for module in learned_tables for _ in module.parameters(recurse=False)) else "sinusoidal"
    )


def position_encoding(
    config: Any, layer: int, q: Floats, v: Floats, bias: Floats | None, *, rotating: bool
) -> Position:
    """The position encoding of one attention: q, v [head, token, dim]; bias [head, query, key] or None.

    rotating: whether the module was handed angles; counts where the values differ by token, as after a recurrence.
    """
    if bias is not None:
        finite_bias = np.where(np.isfinite(bias), bias, 0.0)
        if np.abs(finite_bias).max(initial=0) > 0:
            return Alibi() if _linear(bias) else RelativeBuckets(0, 0, bidirectional=False)
    if rotating if varies(v) else varies(q):
        return Rope(q.shape[-1], _theta(config, layer))
    return None


def _linear(bias: Floats) -> bool:
    """Whether what is added grows evenly with the distance wherever it is finite, as ALiBi's does."""
    last = bias[..., -1, :]
    steps = np.diff(last[:, np.isfinite(last).all(0)], axis=-1)
    return steps.shape[-1] > 1 and bool(np.abs(np.diff(steps, axis=-1)).max() < SAME * max(np.abs(steps).max(), 1e-30))


def _theta(config: Any, layer: int) -> float:
    """The base of the angles as the library settled it; 10000 where it says nothing."""
    rope_parameters = getattr(config, "rope_parameters", None) or {}
    kinds = getattr(config, "layer_types", None) or ()
    if layer < len(kinds) and isinstance(rope_parameters.get(kinds[layer]), dict):
        rope_parameters = rope_parameters[kinds[layer]]
    base = rope_parameters.get("rope_theta")
    return float(base) if isinstance(base, (int, float)) else 10000.0
