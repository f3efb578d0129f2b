"""Layouts with one tensor per projection: `nn.Linear` modules, bare matrices of the formula X·W, Keras kernels."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec import Struct

from attncli.models.layouts.layout import Layout, LayoutRequest, LayoutWeights, Orientation
from attncli.models.layouts.named_tensors import Array, Tensors

ROLES = ("q", "k", "v", "o")


class ProjectionNames(Struct, frozen=True):
    """What the projections are called. o: the names that the output projection may have."""

    q: str
    k: str
    v: str
    o: tuple[str, ...]
    description: str = "separate projections"


SPELLINGS = (
    ProjectionNames("q", "k", "v", ("o",), "canonical names"),
    ProjectionNames("WQ", "WK", "WV", ("WO",), "single-head class"),
    ProjectionNames("W_Q", "W_K", "W_V", ("W_O",)),
    ProjectionNames("W_q", "W_k", "W_v", ("W_o",)),
    ProjectionNames("Wq", "Wk", "Wv", ("Wo",)),
    ProjectionNames("wq", "wk", "wv", ("wo",)),
    ProjectionNames("w_q", "w_k", "w_v", ("w_o", "w_concat")),
    ProjectionNames("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj")),
    ProjectionNames("q_lin", "k_lin", "v_lin", ("out_lin",)),
    ProjectionNames("q_linear", "k_linear", "v_linear", ("o_linear", "out_linear", "out")),
    ProjectionNames(
        "query", "key", "value", ("output", "output.dense", "dense", "out", "out_proj", "attention_output")
    ),
    ProjectionNames("to_q", "to_k", "to_v", ("to_out.0", "to_out")),
)


def separate_layouts() -> list[Layout]:
    """Every spelling as `nn.Linear` modules, as bare matrices and as kernels, with every name of the output
    projection."""
    return [
        _layout(spelling, output, form)
        for spelling in SPELLINGS
        for output in spelling.o
        for form in ("linear", "matrix", "kernel")
    ]  # fmt: skip


def _layout(spelling: ProjectionNames, output: str, form: str) -> Layout:
    names = dict(zip(ROLES, (spelling.q, spelling.k, spelling.v, output), strict=True))
    names_text = " ".join(names[role] for role in "qkv")
    match form:
        case "linear":
            weights, biases = {r: f"{n}.weight" for r, n in names.items()}, {r: f"{n}.bias" for r, n in names.items()}
            description = f"{spelling.description} {names_text}, [out, in]"
        case "kernel":
            weights, biases = {r: f"{n}.kernel" for r, n in names.items()}, {r: f"{n}.bias" for r, n in names.items()}
            description = f"Keras kernels {names_text}, [in, out]"
        case _:
            weights, biases = names, {r: _bias_of(n) for r, n in names.items()}
            description = f"matrices {names_text} of X·W"
    needs = {weights[role]: f"{role}.weight" for role in "qkv"}
    may = {weights["o"]: "o.weight"} | {biases[role]: f"{role}.bias" for role in ROLES}
    return Layout(description, needs, may, partial(_read_projections, weights=weights, biases=biases, form=form))


def _bias_of(name: str) -> str:
    """`b_Q` for `W_Q`, `bq` for `Wq`; `q_bias` for names that hold no W."""
    return f"b{name[1:]}" if name[0] in "Ww" else f"{name}_bias"


def _read_projections(
    tensors: Tensors, request: LayoutRequest, *, weights: dict[str, str], biases: dict[str, str], form: str
) -> LayoutWeights:
    arrays = {role: tensors.read(name) for role, name in weights.items() if name in tensors}
    notes: tuple[str, ...] = ()
    heads = None
    if arrays["q"].ndim == 3:
        heads = _heads_of(tensors, weights, form)
        flat = {role: _flat(tensors, weights[role], array, role, form, heads) for role, array in arrays.items()}
    else:
        plain = {role: tensors.read(weights[role], None, None) for role in arrays}
        flat, notes = orient(
            plain, "out-in" if form == "linear" else "in-out", request, [weights[role] for role in plain]
        )
    result = {f"{role}.weight": array for role, array in flat.items()}
    for role, name in biases.items():
        if name in tensors and role in flat:
            result[f"{role}.bias"] = _flat_bias(tensors, name, flat[role].shape[0])
    return LayoutWeights(result, heads, notes=notes, either_way=heads is None)


def _heads_of(tensors: Tensors, weights: dict[str, str], form: str) -> int:
    axis = 1 if form == "kernel" else 0
    return int(tensors.read(weights["q"], None, None, None).shape[axis])


def _flat(tensors: Tensors, name: str, array: Array, role: str, form: str, heads: int) -> Array:
    """A projection per head as one [out, in] matrix.

    Bare matrices are [head, in, dim] and [head, dim, out] (TransformerLens), kernels [in, head, dim]
    and [head, dim, out] (Keras MultiHeadAttention).
    """
    if role == "o":
        cube = tensors.read(name, heads, None, None)
        return np.ascontiguousarray(cube.reshape(-1, cube.shape[-1]).T)
    cube = tensors.read(name, None, None, None)
    by_head = np.moveaxis(cube, 1, 0) if form == "kernel" else cube
    return np.ascontiguousarray(by_head.transpose(0, 2, 1).reshape(-1, by_head.shape[1]))


def _flat_bias(tensors: Tensors, name: str, width: int) -> Array:
    bias = tensors.read(name)
    return bias.reshape(-1) if bias.size == width and bias.ndim <= 2 else tensors.read(name, width)


def orient(
    arrays: dict[str, Array], usual: Orientation, request: LayoutRequest, names: list[str]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Matrices by role as [out, in], and what to say about it.

    usual: how this layout stores them. Taken as usual unless the asker says otherwise or the
    shapes (or the asker's d_model) allow only the other way.
    """
    opposite: Orientation = "out-in" if usual == "in-out" else "in-out"
    fits = [way for way in (usual, opposite) if _agrees(arrays, way, request.d_model)]
    orientation = request.orientation or (fits[0] if fits else usual)
    matrices = {
        role: array if orientation == "out-in" else np.ascontiguousarray(array.T) for role, array in arrays.items()
    }
    notes: tuple[str, ...] = ()
    names_text = " ".join(names)
    if request.orientation is None and orientation != usual:
        notes = (f"{names_text}: the shapes only fit as {_words(orientation)}, so they are read so",)
    elif request.orientation is None and usual == "in-out" and len(fits) == 2:
        notes = (f"{names_text}: the shapes also fit as {_words(opposite)}; read as {_words(orientation)} "
                 f"(the other way: attn weights convert --orientation {opposite})",)  # fmt: skip
    return matrices, notes


def _words(way: Orientation) -> str:
    return "[in, out], multiplied as X·W" if way == "in-out" else "[out, in], multiplied as X·Wᵀ"


def _agrees(arrays: dict[str, Array], way: Orientation, d_model: int | None) -> bool:
    into, out = (0, 1) if way == "in-out" else (1, 0)
    widths = {arrays[role].shape[into] for role in "qkv"}
    if (
        len(widths) > 1
        or (d_model is not None and widths != {d_model})
        or arrays["q"].shape[out] != arrays["k"].shape[out]
    ):
        return False
    return "o" not in arrays or (arrays["o"].shape[into] == arrays["v"].shape[out] and arrays["o"].shape[out] in widths)
