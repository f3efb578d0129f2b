"""Recipes: the ways to keep a head's weights so that they can be computed again, and vectors as whole numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from attncli.measure.visible_keys import Bools, Ints

# Vectors as whole numbers of at most 16 bits, on a scale of their own in every dimension.

Floats = np.ndarray[Any, np.dtype[np.float32]]
Codes = np.ndarray[Any, np.dtype[np.uint16]]

STEPS = 65535


class FixedPoint(Struct, frozen=True, eq=False):
    """A matrix [row, dim] whose entry is low + step · code. low, step: float32 [dim]. codes: 0 to 65,535."""

    codes: Codes
    low: Floats
    step: Floats

    def numbers(self) -> Floats:
        """The matrix again, float32 [row, dim], within half a step of what it was made from."""
        return self.low + self.step * self.codes.astype(np.float32)


def to_fixed_point(values: Floats, steps: int = STEPS) -> FixedPoint:
    """A matrix [row, dim] of finite numbers on even steps from the least to the greatest of each dimension."""
    low = values.min(0)
    step = ((values.max(0) - low) / steps).astype(np.float32)
    codes = np.rint((values - low) / np.where(step > 0, step, 1))
    return FixedPoint(np.clip(codes, 0, steps).astype(np.uint16), low, step)


Roots16 = np.ndarray[Any, np.dtype[np.uint16]]


class QueryKeyRecipe(Struct, frozen=True, eq=False):
    """Queries and keys as they enter q·kᵀ; the weights are exp(score − lse), 0 where hidden.

    q: [query, dim], k: [key, dim], 16-bit or float32. group: which key head k is, for heads that share one.
    lse: log Σ exp of each row's visible scores and its sink, [query]; −inf for a row that sees nothing.
    bias: what is added to the score of query i and key j, at j − i + queries − 1; None for nothing.
    """

    q: FixedPoint | Floats
    k: FixedPoint | Floats
    group: int
    lse: Floats
    bias: Floats | None
    scale: float
    softcap: float | None

    @property
    def width(self) -> int:
        """How many dimensions a query has."""
        return int(numbers(self.q).shape[-1])


class Exact(Struct, frozen=True, eq=False):
    """The weights themselves, float32 [query, key]."""

    weights: Floats


class Roots(Struct, frozen=True, eq=False):
    """65,535 times the square roots of the weights, [query, key]: small weights keep more digits."""

    codes: Roots16


class Absent(Struct, frozen=True):
    """The weights are not kept; the record has the pooled map, the metrics and the strongest links."""


Recipe: TypeAlias = QueryKeyRecipe | Exact | Roots | Absent


def roots(weights: Floats) -> Roots:
    """Weights from 0 to 1, [query, key], as 16-bit square roots; what is no number becomes 0."""
    return Roots(np.rint(np.sqrt(np.clip(np.nan_to_num(weights), 0, 1)) * 65535).astype(np.uint16))


def numbers(matrix: FixedPoint | Floats) -> Floats:
    """A matrix that is kept either way, as float32."""
    return matrix.numbers() if isinstance(matrix, FixedPoint) else matrix


def decode_weights(recipe: QueryKeyRecipe, rows: Ints, visibility: Bools | None) -> Floats:
    """The weights of these query rows from a recipe, float32 [row, key].

    visibility: booleans [row, key], None where nothing is hidden.

    Source: the softmax written with its row's log-sum-exp, as in Dao et al., FlashAttention, 2022.
    """
    scores = numbers(recipe.q)[rows] @ numbers(recipe.k).T * np.float32(recipe.scale)
    if recipe.softcap is not None:
        scores = np.float32(recipe.softcap) * np.tanh(scores / np.float32(recipe.softcap))
    if recipe.bias is not None:
        queries, keys = len(recipe.lse), scores.shape[-1]
        scores = scores + recipe.bias[np.arange(keys) - rows[:, None] + queries - 1]
    lse = recipe.lse[rows][:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.where(np.isneginf(lse), np.float32(0), np.exp(scores - lse))
    return weights if visibility is None else np.where(visibility, weights, np.float32(0))
