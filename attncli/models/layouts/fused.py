"""Layouts with q, k and v in one tensor: `torch.nn.MultiheadAttention`, `c_attn`, `qkv`."""

from __future__ import annotations

from functools import partial

import numpy as np

from attncli.errors import InputError
from attncli.models.layouts.layout import Layout, LayoutRequest, LayoutWeights
from attncli.models.layouts.named_tensors import Array, Tensors

TORCH = "torch.nn.MultiheadAttention"
TORCH_SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
ZERO = "whether add_zero_attn was set is not in the file; read as not set"

FUSED = (
    ("c_attn", "c_proj"), ("qkv", "proj"), ("qkv", "out"), ("qkv_proj", "o_proj"), ("qkv_proj", "out_proj"),
    ("Wqkv", "out_proj"), ("Wqkv", "Wo"), ("in_proj", "out_proj"), ("to_qkv", "to_out.0"), ("to_qkv", "to_out"),
)  # fmt: skip
"""What a fused projection and the output projection beside it are called."""


def fused_layouts() -> list[Layout]:
    """torch's module in both of its forms, and the fused projections."""
    may = {"in_proj_bias": "q.bias k.bias v.bias", "out_proj.bias": "o.bias"}
    output = {"out_proj.weight": "o.weight"}
    whole = {"in_proj_weight": "q.weight k.weight v.weight"} | output
    apart = dict(zip(TORCH_SEPARATE, ("q.weight", "k.weight", "v.weight"), strict=True)) | output
    torch = [Layout(TORCH, whole, may, _read_torch), Layout(TORCH, apart, may, _read_torch)]
    return torch + [_fused_layout(name, output) for name, output in FUSED]


def _read_torch(tensors: Tensors, request: LayoutRequest) -> LayoutWeights:
    width = tensors.read("out_proj.weight", None, None).shape[0]
    output = tensors.read("out_proj.weight", width, width)
    if "in_proj_weight" in tensors:
        parts = np.split(tensors.read("in_proj_weight", 3 * width, width), 3)
    else:
        parts = [tensors.read(name, width, width) for name in TORCH_SEPARATE]
    weights = _by_role(parts, "weight") | {"o.weight": output}
    if "in_proj_bias" in tensors:
        weights |= _by_role(np.split(tensors.read("in_proj_bias", 3 * width), 3), "bias")
    if "out_proj.bias" in tensors:
        weights["o.bias"] = tensors.read("out_proj.bias", width)
    return LayoutWeights(weights, notes=(ZERO,))


def _fused_layout(name: str, output: str) -> Layout:
    needs = {f"{name}.weight": "q.weight k.weight v.weight"}
    may = {
        f"{output}.weight": "o.weight",
        f"{name}.bias": "q.bias k.bias v.bias",
        f"{output}.bias": "o.bias",
        "bias": "",
        "masked_bias": "",
    }
    return Layout(f"fused {name} and {output}", needs, may, partial(_read_fused, name=name, output=output))


def _read_fused(tensors: Tensors, request: LayoutRequest, *, name: str, output: str) -> LayoutWeights:
    """q, k and v side by side in one weight: [3·out, in] as `nn.Linear` keeps it, or [in, 3·out] as a convolution of
    width 1 does."""
    whole = tensors.read(f"{name}.weight", None, None)
    d_model = min(whole.shape)
    if set(whole.shape) != {d_model, 3 * d_model}:
        raise InputError(
            f"{tensors.file_names[f'{name}.weight']} has shape {list(whole.shape)}",
            where=tensors.where,
            expected="q, k and v of one size side by side: [3·d_model, d_model] or [d_model, 3·d_model]",
        )
    stored_in_out = whole.shape[0] == d_model
    weights = _by_role(np.split(whole.T if stored_in_out else whole, 3), "weight")
    if f"{name}.bias" in tensors:
        weights |= _by_role(np.split(tensors.read(f"{name}.bias", 3 * d_model), 3), "bias")
    if f"{output}.weight" in tensors:
        square = tensors.read(f"{output}.weight", d_model, d_model)
        weights["o.weight"] = np.ascontiguousarray(square.T if stored_in_out else square)
        if f"{output}.bias" in tensors:
            weights["o.bias"] = tensors.read(f"{output}.bias", d_model)
    causal = "bias" in tensors or "masked_bias" in tensors or name == "c_attn"
    notes = ("models whose projection is called c_attn usually look back only (--mask causal)",) if causal else ()
    return LayoutWeights(weights, notes=notes)


def _by_role(parts: list[Array], kind: str) -> dict[str, Array]:
    return {f"{role}.{kind}": np.ascontiguousarray(part) for role, part in zip("qkv", parts, strict=True)}
