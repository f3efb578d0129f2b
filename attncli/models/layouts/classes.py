"""Layouts of classes that tutorials build by hand: a list of heads, and one projection shared by all heads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import numpy as np

from attncli.errors import InputError
from attncli.models.layouts.layout import Layout, LayoutRequest, LayoutWeights, OwnScale
from attncli.models.layouts.named_tensors import Array, Tensors

HEAD = re.compile(r"heads\.([0-9]{1,4})\.")
SHARED = {"q": "queries", "k": "keys", "v": "values"}
SCALE = OwnScale(
    "sqrt-dmodel",
    "the scale is 1/√d_model, as this class divides by √embed_size (--scale sqrt-dmodel); --scale sqrt-dk for 1/√d_k",
)


def class_layouts(names: Iterable[str]) -> list[Layout]:
    """The layouts, that of the list of heads for as many heads as the names tell of."""
    numbers = [int(match[1]) for name in names if (match := HEAD.match(name))]
    return [_list_of_heads(max(numbers, default=0) + 1), _shared_projection()]


def _list_of_heads(heads: int) -> Layout:
    """A module list of single heads, each with WQ, WK and WV, and one `linear` over their outputs side by side."""
    modules = [(f"heads.{head}.W{role.upper()}", role) for head in range(heads) for role in "qkv"]
    needs = {f"{name}.weight": f"{role}.weight" for name, role in modules}
    may = {f"{name}.bias": f"{role}.bias" for name, role in modules} | {
        "linear.weight": "o.weight",
        "linear.bias": "o.bias",
    }
    description = "multi-head class heads.i (WQ WK WV) and linear, [out, in]"
    return Layout(description, needs, may, partial(_read_list, heads=heads))


def _read_list(tensors: Tensors, request: LayoutRequest, *, heads: int) -> LayoutWeights:
    weights = {}
    for role in "qkv":
        names = [f"heads.{head}.W{role.upper()}" for head in range(heads)]
        shape = tensors.read(f"{names[0]}.weight", None, None).shape
        weights[f"{role}.weight"] = np.concatenate([tensors.read(f"{name}.weight", *shape) for name in names])
        with_bias = [name for name in names if f"{name}.bias" in tensors]
        if with_bias and len(with_bias) < heads:
            lacks = next(name for name in names if name not in with_bias)
            raise InputError(
                f"{with_bias[0]} has a bias and {lacks} has none",
                where=tensors.where,
                expected="a bias in every head or in none",
            )
        if with_bias:
            weights[f"{role}.bias"] = np.concatenate([tensors.read(f"{name}.bias", shape[0]) for name in names])
    if "linear.weight" in tensors:
        weights["o.weight"] = tensors.read("linear.weight", None, weights["v.weight"].shape[0])
        if "linear.bias" in tensors:
            weights["o.bias"] = tensors.read("linear.bias", weights["o.weight"].shape[0])
    return LayoutWeights(weights, heads)


def _shared_projection() -> Layout:
    needs = {f"{name}.weight": f"{role}.weight" for role, name in SHARED.items()} | {"fc_out.weight": "o.weight"}
    may = {f"{name}.bias": f"{role}.bias" for role, name in SHARED.items()} | {"fc_out.bias": "o.bias"}
    return Layout("multi-head class values keys queries fc_out, [out, in]", needs, may, _read_shared)


def _read_shared(tensors: Tensors, request: LayoutRequest) -> LayoutWeights:
    """A class that cuts each embedding into heads before it projects: one [dim, dim] map serves every head.

    In canonical terms that is a block-diagonal matrix. A later form of the class projects the
    whole embedding first; its matrices are as large as `fc_out`. Both divide the scores by √embed_size.
    """
    output = tensors.read("fc_out.weight", None, None)
    width = output.shape[1]
    side = tensors.read("queries.weight", None, None).shape[1]
    if width % side:
        raise InputError(
            f"{tensors.file_names['queries.weight']} works on {side} entries, {tensors.file_names['fc_out.weight']} on "
            f"{width}",
            where=tensors.where,
            expected="a head's width that divides the embedding's",
        )
    times = width // side
    weights: dict[str, Array] = {"o.weight": output}
    for role, name in SHARED.items():
        weights[f"{role}.weight"] = np.kron(
            np.eye(times, dtype=output.dtype), tensors.read(f"{name}.weight", side, side)
        )
        if f"{name}.bias" in tensors:
            weights[f"{role}.bias"] = np.tile(tensors.read(f"{name}.bias", side), times)
    if "fc_out.bias" in tensors:
        weights["o.bias"] = tensors.read("fc_out.bias", output.shape[0])
    if times == 1:
        return LayoutWeights(weights, None, SCALE)
    return LayoutWeights(
        weights,
        times,
        SCALE,
        (f"each of values, keys and queries is one [{side}, {side}] map that all {times} heads share",),
    )
