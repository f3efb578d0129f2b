"""Blocks of data in a page: deflated, in base64, each in an element of its own that runs nothing."""

from __future__ import annotations

import zlib
from base64 import b64encode
from typing import Any

import numpy as np

from attncli.analysis.records.recipe import Exact, QueryKeyRecipe, Roots
from attncli.analysis.records.whole_numbers import FixedPoint, Floats


def deflate(data: bytes) -> bytes:
    """Raw deflate, as a browser's DecompressionStream reads it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def element(name: str, data: bytes) -> bytes:
    """A block as an element that a script finds by its id."""
    return b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), b64encode(data))


def planes(codes: np.ndarray[Any, Any]) -> bytes:
    """16-bit numbers with all high bytes before all low ones: the former repeat, and deflate better by themselves."""
    flat = codes.reshape(-1)
    return (flat >> 8).astype(np.uint8).tobytes() + (flat & 255).astype(np.uint8).tobytes()


def vectors(numbers: FixedPoint | Floats) -> bytes:
    """Vectors [row, dim]: low and step of each dimension before the codes; or float32 as they are."""
    if isinstance(numbers, FixedPoint):
        return little(numbers.low) + little(numbers.step) + planes(numbers.codes)
    return little(numbers)


def queries(products: QueryKeyRecipe) -> bytes:
    """What a head alone has of its scores: log-sum-exp by row, bias by distance, queries."""
    bias = b"" if products.bias is None else little(products.bias)
    return little(products.lse) + bias + vectors(products.q)


def weights(recipe: Exact | Roots) -> bytes:
    """Weights that are kept as such."""
    return little(recipe.weights) if isinstance(recipe, Exact) else planes(recipe.codes)


def little(array: np.ndarray[Any, Any]) -> bytes:
    """float32, least byte first."""
    return np.ascontiguousarray(array, "<f4").tobytes()
