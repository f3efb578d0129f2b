"""Weights that transformers gives by distance, as for windows, or by blocks, brought into rows and columns."""

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
    architectures = getattr(model.config, "architectures", None) or ()
    return (0,) if any(name.endswith("ForSequenceClassification") for name in architectures) else ()


def by_key(near: Floats, tokens: Sequence[int], apart: Floats | None) -> Floats:
    """The weights [head, query, key] of a layer of windows with global tokens.

    near: [head, query, global + window]: of the global tokens first, then by j − i, whose middle is the query itself;
    rows of global tokens are 0. tokens: their positions, ascending. apart: [head, key, global], their own rows; None
    without any.
    """
    heads, count, columns = near.shape
    first = len(tokens)
    reach = (columns - first) // 2
    weights = np.zeros((heads, count, count), near.dtype)
    for query in range(count):
        low, high = max(query - reach, 0), min(query + reach + 1, count)
        weights[:, query, low:high] = near[:, query, first + low - query + reach : first + high - query + reach]
        weights[:, query, list(tokens)] = near[:, query, :first]
    if apart is not None:
        weights[:, list(tokens)] = apart[:, :count].swapaxes(1, 2)
    return weights


def by_blocks(model: Any) -> bool:
    """Whether a model of transformers has just run by blocks of a text that it lengthened to whole ones."""
    return getattr(model, "attention_type", "") == "block_sparse"


def whole_if_short(model: Any, count: int) -> None:
    """Have a model of blocks run a text of `count` tokens whole where it would, which it notices too late to give its
    weights."""
    if by_blocks(model) and count <= (5 + 2 * model.config.num_random_blocks) * model.config.block_size:
        model.set_attention_type("original_full")


def whole_weights(model: Any, weights: Floats, count: int) -> Floats:
    """The weights [head, query, key] of a layer that ran by blocks, with all that a key was given.

    weights: of the lengthened text; a key of the first block that stood in the softmax several times has what it was
    given once.
    """
    size, again = model.config.block_size, model.config.num_random_blocks
    last = (weights.shape[1] // size - 1) * size
    result = weights.copy()
    result[:, size:last, :size] *= 1 + again
    return result[:, :count, :count]
