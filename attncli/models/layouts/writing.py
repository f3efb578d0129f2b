"""Canonical weights under another layout's names: what `attn weights init --layout` and `convert` write."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attncli.errors import UsageError
from attncli.models.layouts.layout import COMMON, Array, LayoutSizes

LAYOUTS = {
    "canonical": "q.weight k.weight v.weight o.weight, [out, in]",
    "torch": "torch.nn.MultiheadAttention: in_proj_weight out_proj.weight",
    "single": "a single head's class: WQ WK WV",
    "heads": "a class with a list of heads: heads.0.WQ … and linear",
    "matrices": "matrices of X·W: W_Q W_K W_V W_O, [in, out]",
    "fused": "c_attn and c_proj, [in, out]",
}
"""The layouts that can be written, with what they hold."""


def layout_tensors(weights: Mapping[str, Array], facts: LayoutSizes, layout: str) -> dict[str, Array]:
    """Canonical weights by the names of another layout. Norms and embeddings keep their names.

    layout: a key of `LAYOUTS`. Raises UsageError for an unknown one, and where the sizes do not fit it.
    """
    beside = {name: array for name, array in weights.items() if name in COMMON}
    projections = {name: array for name, array in weights.items() if name not in COMMON}
    match layout:
        case "canonical":
            return dict(weights)
        case "torch":
            _needs(facts, layout, square=True, output=True)
            return _torch(projections) | beside
        case "single":
            _needs(facts, layout, heads=1)
            return _rename(projections, {"q": "WQ", "k": "WK", "v": "WV", "o": "WO"}) | beside
        case "heads":
            _needs(facts, layout)
            return _list_of_heads(projections, facts) | beside
        case "matrices":
            return {_matrix_name(name): np.ascontiguousarray(array.T) for name, array in projections.items()} | beside
        case "fused":
            _needs(facts, layout, square=True)
            return _fuse(projections) | beside
        case _:
            from difflib import get_close_matches

            close = get_close_matches(layout, LAYOUTS, 1)
            hint = f"--layout {close[0]}" if close else ""
            raise UsageError(f"no layout is called {layout!r}", expected=", ".join(LAYOUTS), hint=hint)


def _needs(
    facts: LayoutSizes, layout: str, *, heads: int | None = None, square: bool = False, output: bool = False
) -> None:
    if facts.kv_heads != facts.heads:
        raise UsageError(
            f"layout {layout} has no shared heads, these are {facts.heads} on {facts.kv_heads}",
            expected="--layout canonical",
        )
    if heads is not None and facts.heads != heads:
        raise UsageError(
            f"layout {layout} holds one head, there are {facts.heads}", expected="--layout heads or canonical"
        )
    widths = (facts.heads * facts.d_k, facts.heads * facts.d_v)
    if square and widths != (facts.d_model, facts.d_model):
        raise UsageError(
            f"layout {layout} has projections from d_model to d_model ({facts.d_model}), these lead to {widths[0]} "
            f"and {widths[1]}",
            expected="heads × d_k = heads × d_v = d_model, or --layout canonical",
        )
    if output and not facts.output_projection:
        raise UsageError(
            f"layout {layout} has an output projection, these weights have none",
            expected="one",
            hint="--output-projection",
        )


def _rename(weights: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    return {f"{names[name[0]]}{name[1:]}": array for name, array in weights.items()}


def _matrix_name(name: str) -> str:
    role, _, kind = name.partition(".")
    return f"{'W' if kind == 'weight' else 'b'}_{role.upper()}"


def _join(weights: Mapping[str, Array], kind: str) -> Array | None:
    """q, k and v one below the other; a bias that is missing beside others is 0. None without any."""
    parts = [weights.get(f"{role}.{kind}") for role in "qkv"]
    if all(part is None for part in parts):
        return None
    rows = [weights[f"{role}.weight"] for role in "qkv"]
    return np.concatenate(
        [np.zeros(row.shape[0], row.dtype) if part is None else part for part, row in zip(parts, rows, strict=True)]
    )


def _torch(weights: Mapping[str, Array]) -> dict[str, Array]:
    bias = _join(weights, "bias")
    output = weights["o.weight"]
    tensors = {"in_proj_weight": _join(weights, "weight"), "in_proj_bias": bias, "out_proj.weight": output}
    if bias is not None or "o.bias" in weights:  # the module has both biases or neither
        zeros = np.zeros(output.shape[0], output.dtype)
        tensors["in_proj_bias"] = np.zeros(3 * output.shape[0], output.dtype) if bias is None else bias
        tensors["out_proj.bias"] = weights.get("o.bias", zeros)
    return {name: array for name, array in tensors.items() if array is not None}


def _fuse(weights: Mapping[str, Array]) -> dict[str, Array]:
    weight, bias = _join(weights, "weight"), _join(weights, "bias")
    assert weight is not None
    tensors = {"c_attn.weight": np.ascontiguousarray(weight.T)}
    tensors |= {} if bias is None else {"c_attn.bias": bias}
    tensors |= {"c_proj.weight": np.ascontiguousarray(weights["o.weight"].T)} if "o.weight" in weights else {}
    return tensors | ({"c_proj.bias": weights["o.bias"]} if "o.bias" in weights else {})


def _list_of_heads(weights: Mapping[str, Array], facts: LayoutSizes) -> dict[str, Array]:
    tensors = {}
    for name, array in weights.items():
        role, _, kind = name.partition(".")
        if role == "o":
            tensors[f"linear.{kind}"] = array
        else:
            for head, part in enumerate(np.split(array, facts.heads)):
                tensors[f"heads.{head}.W{role.upper()}.{kind}"] = np.ascontiguousarray(part)
    return tensors
