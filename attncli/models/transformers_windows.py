"""Weights that transformers gives by distance, as for windows, brought into rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

Floats = np.ndarray[Any, Any]


def by_distance(model: Any) -> bool:
    """Whether a model of transformers gives its weights so, and takes global tokens."""
    return "global_attention_mask" in signature(model.forward).parameters


def usual_globals(model: Any) -> Sequence[int]:
    """The global tokens of a model by the class that saved it: a classifier's first."""
    told = getattr(model.config, "architectures", None) or ()
    return (0,) if any(name.endswith("ForSequenceClassification") for name in told) else ()


def by_key(near: Floats, tokens: Sequence[int], apart: Floats | None) -> Floats:
    """The weights [head, query, key] of a layer of windows with global tokens.

    near: [head, query, global + window]: of the global tokens first, then by j − i, whose middle is the query itself;
    rows of global tokens are 0. tokens: their positions, ascending. apart: [head, key, global], their own rows; None
    without any.
    """
    heads, count, columns = near.shape
    first = len(tokens)
    reach = (columns - first) // 2
    found = np.zeros((heads, count, count), near.dtype)
    for query in range(count):
        low, high = max(query - reach, 0), min(query + reach + 1, count)
        found[:, query, low:high] = near[:, query, first + low - query + reach : first + high - query + reach]
        found[:, query, list(tokens)] = near[:, query, :first]
    if apart is not None:
        found[:, list(tokens)] = apart[:, :count].swapaxes(1, 2)
    return found
