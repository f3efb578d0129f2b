"""The layouts that are known: one tensor per projection, q, k and v in one tensor, and classes of tutorials."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import numpy as np
from msgspec import Struct

from attncli.errors import InputError
from attncli.models.layout import Array, Layout, LayoutRequest, LayoutWeights, Orientation, OwnScale, Tensors

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


# Layouts with q, k and v in one tensor: `torch.nn.MultiheadAttention`, `c_attn`, `qkv`.

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


# Layouts of classes that tutorials build by hand: a list of heads, and one projection shared by all heads.

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
