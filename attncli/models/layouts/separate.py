"""Layouts with one tensor per projection: `nn.Linear` modules, bare matrices of the formula X·W, Keras kernels."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec import Struct

from attncli.models.layouts.layout import Asked, Layout, Orientation, Read
from attncli.models.layouts.named_tensors import Array, Tensors

ROLES = ("q", "k", "v", "o")


class Spelling(Struct, frozen=True):
    """What the projections are called. o: the names that the output projection may have."""

    q: str
    k: str
    v: str
    o: tuple[str, ...]
    says: str = "separate projections"


SPELLINGS = (
    Spelling("q", "k", "v", ("o",), "canonical names"),
    Spelling("WQ", "WK", "WV", ("WO",), "single-head class"),
    Spelling("W_Q", "W_K", "W_V", ("W_O",)),
    Spelling("W_q", "W_k", "W_v", ("W_o",)),
    Spelling("Wq", "Wk", "Wv", ("Wo",)),
    Spelling("wq", "wk", "wv", ("wo",)),
    Spelling("w_q", "w_k", "w_v", ("w_o", "w_concat")),
    Spelling("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj")),
    Spelling("q_lin", "k_lin", "v_lin", ("out_lin",)),
    Spelling("q_linear", "k_linear", "v_linear", ("o_linear", "out_linear", "out")),
    Spelling("query", "key", "value", ("output", "output.dense", "dense", "out", "out_proj", "attention_output")),
    Spelling("to_q", "to_k", "to_v", ("to_out.0", "to_out")),
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


def _layout(spelling: Spelling, output: str, form: str) -> Layout:
    names = dict(zip(ROLES, (spelling.q, spelling.k, spelling.v, output), strict=True))
    shown = " ".join(names[role] for role in "qkv")
    match form:
        case "linear":
            weights, biases = {r: f"{n}.weight" for r, n in names.items()}, {r: f"{n}.bias" for r, n in names.items()}
            says = f"{spelling.says} {shown}, [out, in]"
        case "kernel":
            weights, biases = {r: f"{n}.kernel" for r, n in names.items()}, {r: f"{n}.bias" for r, n in names.items()}
            says = f"Keras kernels {shown}, [in, out]"
        case _:
            weights, biases = names, {r: _bias_of(n) for r, n in names.items()}
            says = f"matrices {shown} of X·W"
    needs = {weights[role]: f"{role}.weight" for role in "qkv"}
    may = {weights["o"]: "o.weight"} | {biases[role]: f"{role}.bias" for role in ROLES}
    return Layout(says, needs, may, partial(_read, weights=weights, biases=biases, form=form))


def _bias_of(name: str) -> str:
    """`b_Q` for `W_Q`, `bq` for `Wq`; `q_bias` for names that hold no W."""
    return f"b{name[1:]}" if name[0] in "Ww" else f"{name}_bias"


def _read(tensors: Tensors, asked: Asked, *, weights: dict[str, str], biases: dict[str, str], form: str) -> Read:
    found = {role: tensors.read(name) for role, name in weights.items() if name in tensors}
    notes: tuple[str, ...] = ()
    heads = None
    if found["q"].ndim == 3:
        heads = _heads_of(tensors, weights, form)
        flat = {role: _flat(tensors, weights[role], array, role, form, heads) for role, array in found.items()}
    else:
        plain = {role: tensors.read(weights[role], None, None) for role in found}
        flat, notes = oriented(
            plain, "out-in" if form == "linear" else "in-out", asked, [weights[role] for role in plain]
        )
    read = {f"{role}.weight": array for role, array in flat.items()}
    for role, name in biases.items():
        if name in tensors and role in flat:
            read[f"{role}.bias"] = _flat_bias(tensors, name, flat[role].shape[0])
    return Read(read, heads, notes=notes, either_way=heads is None)


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


def oriented(
    found: dict[str, Array], usual: Orientation, asked: Asked, names: list[str]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Matrices by role as [out, in], and what to say about it.

    usual: how this layout stores them. Taken as usual unless the asker says otherwise or the
    shapes (or the asker's d_model) allow only the other way.
    """
    other: Orientation = "out-in" if usual == "in-out" else "in-out"
    fits = [way for way in (usual, other) if _agrees(found, way, asked.d_model)]
    taken = asked.orientation or (fits[0] if fits else usual)
    turned = {role: array if taken == "out-in" else np.ascontiguousarray(array.T) for role, array in found.items()}
    notes: tuple[str, ...] = ()
    named = " ".join(names)
    if asked.orientation is None and taken != usual:
        notes = (f"{named}: the shapes only fit as {_words(taken)}, so they are read so",)
    elif asked.orientation is None and usual == "in-out" and len(fits) == 2:
        notes = (f"{named}: the shapes also fit as {_words(other)}; read as {_words(taken)} "
                 f"(the other way: attn weights convert --orientation {other})",)  # fmt: skip
    return turned, notes


def _words(way: Orientation) -> str:
    return "[in, out], multiplied as X·W" if way == "in-out" else "[out, in], multiplied as X·Wᵀ"


def _agrees(found: dict[str, Array], way: Orientation, d_model: int | None) -> bool:
    into, out = (0, 1) if way == "in-out" else (1, 0)
    widths = {found[role].shape[into] for role in "qkv"}
    if (
        len(widths) > 1
        or (d_model is not None and widths != {d_model})
        or found["q"].shape[out] != found["k"].shape[out]
    ):
        return False
    return "o" not in found or (found["o"].shape[into] == found["v"].shape[out] and found["o"].shape[out] in widths)
