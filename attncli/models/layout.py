"""`Layout`: one way in which a file may spell an attention, its tensors and their sizes; and all
that are known.

Known are one tensor per projection, q, k and v in one tensor, and classes of tutorials. A file's
embeddings are by token text where it names them, else by token id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from attncli.errors import InputError, UsageError
from attncli.language import message, term

# The tensors of one attention as a file names them, with the prefixes of the modules around it
# taken off.

Array = np.ndarray[Any, Any]

WRAPPERS = frozenset(
    ("module", "model", "transformer", "encoder", "decoder", "block", "self", "sa", "mha", "attn", "attention",
    "self_attn",
     "self_attention", "multihead_attn", "multihead_attention", "multi_head_attention")
)  # fmt: skip
"""Modules that people wrap around an attention; they say nothing about how it spells its tensors.
"""

LAYER_LISTS = frozenset(("layers", "layer", "blocks", "h"))
"""Lists of layers: what follows is a number."""

LEAVES = frozenset(("weight", "bias", "kernel"))

NAMED_MOST = 12


ANY_LENGTH = None
"""For `Tensors.read`: an axis may have any length."""


class Tensors(Struct, frozen=True, eq=False):
    """Tensors by plain name; `file_names` gives the name in the file.

    where: the file.
    """

    arrays: Mapping[str, Array]
    file_names: Mapping[str, str]
    where: str

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def read(self, name: str, *shape: int | None) -> Array:
        """A tensor by plain name as float32 or float64.

        shape: the length that each axis must have, None for any; without it, every shape is right.
        Raises InputError for another shape, naming both, and for an empty tensor.
        """
        array = self.arrays[name]
        # without a shape, there is nothing to compare
        same_axes = len(shape) in (0, array.ndim)
        lengths = zip(shape, array.shape, strict=False)
        same_lengths = all(length in (ANY_LENGTH, real) for length, real in lengths)
        if not same_axes or not same_lengths or array.size == 0:
            sizes = ", ".join("any" if size is None else str(size) for size in shape)
            what = message(
                "{file_names} has shape {shape}",
                file_names=self.file_names[name],
                shape=list(array.shape),
            )
            raise InputError(
                what,
                where=self.where,
                expected=f"[{sizes}]" if shape else message("at least one number"),
            )
        # whole numbers (b, i, u) of 32 bits need float64; bfloat16 and float16 fit float32 exactly
        wide = array.dtype.kind in "biu" or array.dtype == np.float64
        return array.astype(np.float64 if wide else np.float32, copy=False)


HEADS_UNKNOWN = message("the file does not say how many heads it has; read as 1 (--num-heads N)")
"""The note on weights of which the user should know that their heads may be wrong."""


def bare_names(arrays: Mapping[str, Array], where: str, prefix: str = "") -> Tensors:
    """The tensors of a file by plain names, without the modules around the attention:
    `module.self_attn.in_proj_weight` is `in_proj_weight`, `mha/query/kernel:0` `query.kernel`.

    prefix: take only tensors whose name begins so. Raises InputError when none does, and when two
    tensors come to the same name because the file holds several attentions.
    """
    names = [name for name in arrays if name.startswith(prefix)]
    if not names:
        if prefix:
            what = message("no tensor's name begins with {prefix}", prefix=repr(prefix))
        else:
            what = message("the file holds no tensors")
        if arrays:
            expected = message("one of {arrays}", arrays=names_text(arrays))
        else:
            expected = message("the weights of one attention")
        raise InputError(what, where=where, expected=expected)

    plain_names = {}  # by the name in the file
    for name in names:
        # TensorFlow separates modules by / and appends the number of an operation's output
        dotted = name[len(prefix) :].removesuffix(":0").replace("/", ".")
        path = dotted.strip(".").split(".")
        plain_names[name] = ".".join(_without_wrappers(path))
    plain_names = _without_shared(plain_names)

    # two tensors that come to one plain name belong to two attentions
    repeated = [plain for plain, count in Counter(plain_names.values()).items() if count > 1]
    if repeated:
        pair = [name for name in names if plain_names[name] == repeated[0]]
        raise InputError(
            "the file holds more than one attention: {pair} and {pair_2}",
            where=where,
            expected="the tensors of one",
            hint=(
                f"attn weights convert --prefix {_prefix_of(pair[0], repeated[0])} FILE"
                " one.safetensors"
            ),
            pair=pair[0],
            pair_2=pair[1],
        )
    return Tensors(
        arrays={plain_names[name]: arrays[name] for name in names},
        file_names={plain_names[name]: name for name in names},
        where=where,
    )


def _without_wrappers(path: list[str]) -> list[str]:
    """The parts of a tensor's name, cut at dots, without leading ones that name modules around the
    attention, such as "layers", "0", "self_attn"."""
    index = 0
    while index < len(path) - 1:  # the last part is the tensor's own
        if path[index] in WRAPPERS:
            index += 1
        # a list of layers and a number, with a name behind them
        elif path[index] in LAYER_LISTS and index + 2 < len(path) and path[index + 1].isdecimal():
            index += 2
        else:
            break
    return path[index:]


def _without_shared(names: dict[str, str]) -> dict[str, str]:
    """The plain names without first parts that all of them share: "net.q.weight" and "net.k.weight"
    become "q.weight" and "k.weight". A first part stays where it may name a projection, that is,
    where "weight", "bias" or a number follows.

    names: plain name by file name; so is what comes back.
    """
    # the first two parts of each name, or its only one
    pairs = [plain.split(".", 2)[:2] for plain in names.values()]
    is_projection = any(len(pair) < 2 or pair[1] in LEAVES or pair[1].isdecimal() for pair in pairs)
    if is_projection or len({first for first, _ in pairs}) > 1:
        return names
    # all share the first part; without it they may share the next
    return _without_shared({name: plain.partition(".")[2] for name, plain in names.items()})


def _prefix_of(name: str, short: str) -> str:
    """What to pass as `--prefix` to choose this tensor: the part of its name in the file before its
    plain name `short`; the whole name where there is none.
    """
    # TensorFlow writes a/b:0; with dots, the plain name "b" is found at the same index
    start = re.sub(r"[/:]", ".", name.removesuffix(":0")).find(short)
    if start > 0:
        return name[:start]
    return name


def names_text(names: Iterable[str], most: int = NAMED_MOST) -> str:
    """Names joined by blanks for a message: the first `most` of them, each cut to 60 characters."""
    every = list(names)
    text = " ".join(name if len(name) <= 60 else f"{name[:59]}…" for name in every[:most])
    if len(every) > most:
        return message("{names} … ({count} in all)", names=text, count=len(every))
    return text


# Masks that a class keeps beside its matrices, as buffers: no weights.

MASK_NAMES = frozenset(("mask", "attn_mask", "causal_mask", "tril", "triu"))


class MaskBuffers(Struct, frozen=True):
    """The masks that a file holds beside the matrices.

    names: of all of them, as the file has them.
    causal: the name of one that hides every later token; "" where none does.
    """

    names: frozenset[str]
    causal: str


def mask_buffers(arrays: Mapping[str, Array], prefix: str = "") -> MaskBuffers:
    """The names of tensors in a file that are masks rather than weights, judged by name and shape:
    square in the last two axes, with leading axes of size 1. A tensor called `bias` is a mask if it
    has four axes; `masked_bias` if it is a single number.

    The first that hides later tokens is the causal one; "" where none does.
    prefix: look only at tensors whose name begins with it.
    """
    candidates = [name for name in arrays if name.startswith(prefix)]
    names = [name for name in candidates if is_mask(name, arrays[name])]
    causal_names = [name for name in names if _hides_later(arrays[name])]
    return MaskBuffers(frozenset(names), causal=[*causal_names, ""][0])


def is_mask(name: str, array: Array) -> bool:
    """Whether a tensor is a mask that a class keeps as a buffer, judged by name and shape: square in
    its last two axes, with axes of length 1 before them; or `masked_bias`, the single number that
    GPT-2 writes over hidden scores."""
    last = name.rpartition(".")[2]
    if last == "masked_bias":
        return array.size == 1
    if last != "bias" and last not in MASK_NAMES:
        return False
    least_axes = 4 if last == "bias" else 2  # fewer axes are a bias of numbers
    shape = array.shape
    return (
        least_axes <= len(shape) <= 4
        and shape[-1] == shape[-2] > 0
        and all(size == 1 for size in shape[:-2])
    )


def _hides_later(mask: Array) -> bool:
    """Whether a mask has one value up to each token and another after it, as a causal mask has,
    whichever of the two means hidden."""
    if mask.size < 4:  # fewer than two tokens: none is later
        return False
    square = mask.reshape(mask.shape[-2:])  # [query, key]
    # the first query sees itself and no later key
    visible_value = square[0, 0]
    hidden_value = square[0, 1]
    return bool(visible_value != hidden_value) and all(
        bool((row[: query + 1] == visible_value).all() and (row[query + 1 :] == hidden_value).all())
        for query, row in enumerate(square)
    )


Orientation = Literal["in-out", "out-in"]
"""How a matrix is stored: [in, out] is multiplied as X·W, [out, in] as X·Wᵀ (`nn.Linear`)."""


class OwnScale(Struct, frozen=True):
    """The scale of a known class that does not, or may not, multiply q·k by 1/√d_k.

    spelling: a value of `--scale`.
    description: a sentence for the user.
    """

    spelling: str
    description: str


class LayoutWeights(Struct, frozen=True):
    """What reading a file in one layout gives: weights by canonical name, and what the tensors tell
    about heads and scale.

    weights: canonical names (`q.weight` …), each weight [out, in].
    heads: how many the tensors tell of; None where they do not.
    scale: the class's own, where it is not 1/√d_k for certain.
    notes: what the reader should know, in sentences.
    either_way: whether its matrices may be stored in both ways.
    looks_back: a sentence where classes with these names usually have a causal mask; else "".
    """

    weights: dict[str, Array]
    heads: int | None = None
    scale: OwnScale | None = None
    notes: tuple[str, ...] = ()
    either_way: bool = False
    looks_back: str = ""


class LayoutRequest(Struct, frozen=True):
    """What the user states about a weight file: sizes that the file may not tell or must agree
    with; None where nothing is stated.

    d_model: the width of the vectors that enter. heads: how many. d_k, d_v: of each head.
    orientation: how its matrices are stored, where that differs from their layout's custom.
    prefix: take only the tensors whose name begins so.
    input_width: columns of the X that will run, which tell how bare matrices are stored.
    """

    d_model: int | None = None
    heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    orientation: Orientation | None = None
    prefix: str = ""
    input_width: int | None = None


EMPTY_REQUEST = LayoutRequest()


class Layout(Struct, frozen=True):
    """One way in which programs store the weights of an attention: tensor names, their roles, and a
    function that reads them.

    description: it in words.
    needs: the tensors it must have, by plain name, with the role each plays (`q.weight`; several
        roles are apart by spaces).
    may: those it can have; a role "" is not used.
    """

    description: str
    needs: Mapping[str, str]
    may: Mapping[str, str]
    read: Callable[[Tensors, LayoutRequest], LayoutWeights]

    @property
    def knows(self) -> dict[str, str]:
        """Every tensor of the layout with its role."""
        return {**COMMON, **self.may, **self.needs}


COMMON = {
    name: name for name in ("norm.weight", "norm.bias", "embedding.weight", "bias_k", "bias_v")
}
"""Tensors that may stand beside the projections in every layout."""


# The sizes that a file's tensors state, checked against each other and against what the asker says.


class LayoutSizes(Struct, frozen=True):
    """Sizes of the attention in a file.

    d_model: the width of the vectors that enter it.
    heads, kv_heads: of queries, and of keys and values.
    d_k, d_v: the width of one head's queries and keys, and of its values.
    bias, output_projection, layer_norm: whether it holds their tensors.
    """

    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    d_v: int
    bias: bool
    output_projection: bool
    layer_norm: bool


def sizes_of(
    weights: Mapping[str, Array],
    file_names: Mapping[str, str],
    metadata: Mapping[str, str],
    where: str,
    head_count: int | None,
    request: LayoutRequest,
) -> tuple[LayoutSizes, tuple[str, ...]]:
    """The sizes of the attention that these canonical weights form, and notes for the user on what
    was assumed.

    weights: by canonical name, such as "q.weight", each [out, in].
    file_names: the file's own names by canonical name, for messages.
    where: the file, for messages.
    head_count: the number of heads that the tensors tell of; None where they do not.
    request: what the user states about the file.

    Raises InputError for shapes that do not fit together, UsageError for sizes asked for that are
    not the file's.
    """
    label = _Labels(weights, file_names, where)
    q, k, v = (weights[f"{role}.weight"] for role in "qkv")

    # each matrix is [out, in]: its columns are the model's width
    width = q.shape[1]
    for role in ("k.weight", "v.weight"):
        if weights[role].shape[1] != width:
            raise label.wrong(role, f"{width} inputs, as {label.of('q.weight')} has")
    _check_option("--d-model", request.d_model, width, where)

    # its rows are shared by the heads: heads · d_k for queries, kv_heads · d_k and kv_heads · d_v
    count, notes = _head_count(weights, metadata, where, head_count, request)
    if q.shape[0] % count:
        # the hint: the largest number of heads, up to the one given, that divides the width
        divisors = (n for n in range(1, min(count, q.shape[0]) + 1) if q.shape[0] % n == 0)
        raise UsageError(
            "the queries are {shape} wide ({of}), which {count} heads cannot share",
            where=where,
            expected="a number of heads that divides the width",
            hint=f"--num-heads {max(divisors)}",
            shape=q.shape[0],
            of=label.of("q.weight"),
            count=count,
        )
    dim = q.shape[0] // count
    _check_option("--d-k", request.d_k, dim, where)
    kv_heads = k.shape[0] // dim
    if k.shape[0] % dim or count % kv_heads:  # (fewer rows than one head has leave a remainder)
        expected = message(
            "rows for kv heads of width {dim}, as the queries have, that {count} heads can share",
            dim=dim,
            count=count,
        )
        raise label.wrong("k.weight", expected)
    if v.shape[0] % kv_heads:
        raise label.wrong(
            "v.weight", message("rows that {kv_heads} heads can share", kv_heads=kv_heads)
        )
    v_dim = v.shape[0] // kv_heads
    _check_option("--d-v", request.d_v, v_dim, where)

    _check_output_and_widths(weights, label, count * v_dim)
    _check_learned(weights, label, where, {"bias_k": kv_heads * dim, "bias_v": kv_heads * v_dim})
    sizes = LayoutSizes(
        d_model=width,
        heads=count,
        kv_heads=kv_heads,
        d_k=dim,
        d_v=v_dim,
        bias=any(f"{role}.bias" in weights for role in "qkvo"),
        output_projection="o.weight" in weights,
        layer_norm="norm.weight" in weights,
    )
    return sizes, notes


class _Labels:
    """Names of weights for error messages, as the file spells them."""

    def __init__(
        self, weights: Mapping[str, Array], file_names: Mapping[str, str], where: str
    ) -> None:
        # a fused tensor has several roles: "q.weight k.weight v.weight"
        self._file_names = {
            role: name for roles, name in file_names.items() for role in roles.split()
        }
        self._weights = weights
        self._where = where

    def of(self, role: str) -> str:
        """The tensor's name in the file for a role such as "q.weight"; the role itself where the
        file has no such tensor."""
        return self._file_names.get(role, role)

    def wrong(self, role: str, expected: str) -> InputError:
        """Return, not raise, the InputError that the weight of a role has another shape than
        `expected`.
        """
        array = self._weights[role]
        return InputError(
            (
                "{role} has shape {shape} as [out, in]"
                if array.ndim == 2
                else "{role} has shape {shape}"
            ),
            where=self._where,
            expected=expected,
            role=self.of(role),
            shape=list(array.shape),
        )


def _check_option(option: str, option_value: int | None, file_value: int, where: str) -> None:
    """Raise UsageError where an option states another size than the file has."""
    if option_value not in (None, file_value):
        raise UsageError(
            "{option} is {option_value}, the file's is {file_value}",
            where=where,
            expected="{option} {file_value}, or none",
            option=option,
            option_value=option_value,
            file_value=file_value,
        )


def _head_count(
    weights: Mapping[str, Array],
    metadata: Mapping[str, str],
    where: str,
    heads: int | None,
    request: LayoutRequest,
) -> tuple[int, tuple[str, ...]]:
    """The number of heads, and notes for the user: from the tensors (`heads`, None where they do not
    tell), else the user's option, else the metadata, else what a stated d_k gives, else 1."""
    metadata_count = metadata.get("num_heads", "")
    # the tensors tell
    if heads is not None:
        _check_option("--num-heads", request.heads, heads, where)
        return heads, ()

    # the user says
    if request.heads is not None:
        if request.heads < 1:
            raise UsageError(
                "{option} is {value}",
                expected="a whole number, at least 1",
                option="--num-heads",
                value=request.heads,
            )
        if metadata_count in ("", str(request.heads)):
            return request.heads, ()
        note = message(
            "the file's metadata give {metadata_count} heads; read as {heads}, as --num-heads says",
            metadata_count=repr(metadata_count[:40]),
            heads=request.heads,
        )
        return request.heads, (note,)

    # the metadata say, or what the user says of d_k
    rows = weights["q.weight"].shape[0]
    if metadata_count:
        # of at most 9 digits, as any text may stand there
        is_count = (
            metadata_count.isdecimal() and len(metadata_count) <= 9 and int(metadata_count) >= 1
        )
        if not is_count or rows % int(metadata_count):
            what = message(
                "the file's metadata give {metadata_count} heads",
                metadata_count=repr(metadata_count[:40]),
            )
            raise InputError(
                what, where=where, expected=message("a divisor of {rows} rows", rows=rows)
            )
        return int(metadata_count), ()

    if request.d_k is not None and request.d_k > 0 and rows % request.d_k == 0:
        return rows // request.d_k, ()
    if "o.weight" not in weights:  # classes of several heads have one
        return 1, ()
    return 1, (HEADS_UNKNOWN,)


def _check_output_and_widths(weights: Mapping[str, Array], label: _Labels, mixed: int) -> None:
    """Raise InputError for a bias, output projection or norm of another width than what it is
    applied to. The output may have another width than the attention's input.

    label: names tensors as the file does.
    mixed: the width of what the heads put out side by side, heads · d_v.
    """
    output = weights.get("o.weight")
    if output is not None and output.shape[1] != mixed:
        raise label.wrong("o.weight", f"{mixed} inputs, heads × d_v")
    # how many numbers each vector must have
    widths = {
        f"{role}.bias": weights[f"{role}.weight"].shape[0]
        for role in "qkvo"
        if f"{role}.weight" in weights
    }
    if output is None:
        output_width = mixed
    else:
        output_width = output.shape[0]
    widths |= {"norm.weight": output_width, "norm.bias": output_width}
    for role, width in widths.items():
        if role in weights and weights[role].shape != (width,):
            raise label.wrong(role, f"[{width}]")
    if "o.bias" in weights and output is None:
        raise label.wrong("o.bias", message("an output projection beside its bias"))
    if "norm.bias" in weights and "norm.weight" not in weights:
        raise label.wrong("norm.bias", message("norm.weight beside it"))


def _check_learned(
    weights: Mapping[str, Array], label: _Labels, where: str, sizes: Mapping[str, int]
) -> None:
    """Raise InputError where only one of the learned key and value that torch's module appends to
    the sequence is there, or one has another size.

    sizes: the numbers that "bias_k" and "bias_v" must have.
    """
    present = [name for name in sizes if name in weights]
    if len(present) == 1:
        what = message("the file has {present} alone", present=label.of(present[0]))
        raise InputError(what, where=where, expected="both bias_k and bias_v, or neither")
    for name in present:
        if weights[name].size != sizes[name]:
            raise label.wrong(name, f"{sizes[name]} numbers")


ROLES = ("q", "k", "v", "o")


class ProjectionNames(Struct, frozen=True):
    """What the projections are called.

    q, k, v: the names of queries', keys' and values'.
    o: the names that the output projection may have.
    description: what a layout with these names is called.
    """

    q: str
    k: str
    v: str
    o: tuple[str, ...]
    description: str = message("separate projections")


SPELLINGS = (
    ProjectionNames("q", "k", "v", ("o",), message("canonical names")),
    ProjectionNames("WQ", "WK", "WV", ("WO",), "single-head class"),
    ProjectionNames("W_Q", "W_K", "W_V", ("W_O",)),
    ProjectionNames("W_q", "W_k", "W_v", ("W_o",)),
    ProjectionNames("Wq", "Wk", "Wv", ("Wo",)),
    ProjectionNames("wq", "wk", "wv", ("wo", "dense")),
    ProjectionNames("w_q", "w_k", "w_v", ("w_o", "w_concat")),
    ProjectionNames("W_query", "W_key", "W_value", ("out_proj", "W_out")),
    ProjectionNames("linears.0", "linears.1", "linears.2", ("linears.3",)),
    ProjectionNames("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj")),
    ProjectionNames("q_lin", "k_lin", "v_lin", ("out_lin",)),
    ProjectionNames("q_linear", "k_linear", "v_linear", ("o_linear", "out_linear", "out")),
    ProjectionNames(
        "query",
        "key",
        "value",
        ("output", "output.dense", "dense", "out", "out_proj", "attention_output"),
    ),
    ProjectionNames("to_q", "to_k", "to_v", ("to_out.0", "to_out")),
)


def separate_layouts() -> list[Layout]:
    """The layouts with one tensor per projection: for each set of names, as `nn.Linear` modules,
    bare matrices and kernels, with each name of the output projection."""
    forms = ("linear", "matrix", "kernel")
    return [
        _separate_layout(spelling, output, form)
        for spelling in SPELLINGS
        for output in spelling.o
        for form in forms
    ]


def _separate_layout(spelling: ProjectionNames, output: str, form: str) -> Layout:
    """The layout with one tensor per projection.

    output: what the output projection is called.
    form: "linear", "matrix" or "kernel".
    """
    # by role: what the projection is called, then the tensors of its weight and bias
    names = dict(zip(ROLES, (spelling.q, spelling.k, spelling.v, output), strict=True))
    qkv_names = " ".join(names[role] for role in "qkv")
    match form:
        case "linear":
            weights = {role: f"{name}.weight" for role, name in names.items()}
            biases = {role: f"{name}.bias" for role, name in names.items()}
            description: str = message(
                "{kind} {names}, [out, in]", kind=term(spelling.description), names=qkv_names
            )
        case "kernel":
            weights = {role: f"{name}.kernel" for role, name in names.items()}
            biases = {role: f"{name}.bias" for role, name in names.items()}
            description = message("Keras kernels {names_text}, [in, out]", names_text=qkv_names)
        case _:  # "matrix": a bare tensor, not a module's
            weights = names
            biases = {role: _bias_name(name) for role, name in names.items()}
            description = message("matrices {names_text} of X·W", names_text=qkv_names)

    # what it must have, and what it may have, by the file's name
    needs = {weights[role]: f"{role}.weight" for role in "qkv"}
    may = {weights["o"]: "o.weight"} | {biases[role]: f"{role}.bias" for role in ROLES}
    return Layout(
        description,
        needs,
        may,
        partial(_read_projections, weights=weights, biases=biases, form=form),
    )


def _bias_name(name: str) -> str:
    """`b_Q` for `W_Q`, `bq` for `Wq`; `q_bias` for names that hold no W."""
    if name[0] in "Ww":
        return f"b{name[1:]}"
    return f"{name}_bias"


def _read_projections(
    tensors: Tensors,
    request: LayoutRequest,
    *,
    weights: dict[str, str],
    biases: dict[str, str],
    form: str,
) -> LayoutWeights:
    """The weights of a file with one tensor per projection.

    weights, biases: tensor names by role.
    form: "linear", "matrix" or "kernel".
    """
    # the weights that are there: the output projection may be missing; read of any shape first, so
    # that an empty one is refused as empty
    names = {role: name for role, name in weights.items() if name in tensors}
    arrays = {role: tensors.read(name) for role, name in names.items()}
    notes: tuple[str, ...] = ()
    heads = None
    if arrays["q"].ndim == 3:  # an axis of heads: [in, head, dim] in kernels, else [head, in, dim]
        heads = int(arrays["q"].shape[1 if form == "kernel" else 0])
        matrices = {
            role: _flat_projection(tensors, name, role, form, heads) for role, name in names.items()
        }
    else:
        stored = {role: tensors.read(name, ANY_LENGTH, ANY_LENGTH) for role, name in names.items()}
        usual: Orientation = "out-in" if form == "linear" else "in-out"
        matrices, notes = orient(stored, usual, request, list(names.values()))

    result = {f"{role}.weight": matrix for role, matrix in matrices.items()}
    for role, name in biases.items():
        if name in tensors and role in matrices:
            result[f"{role}.bias"] = _flat_bias(tensors, name, matrices[role].shape[0])
    # an axis of heads leaves no doubt about the others
    return LayoutWeights(result, heads, notes=notes, either_way=heads is None)


def _flat_projection(tensors: Tensors, name: str, role: str, form: str, heads: int) -> Array:
    """A projection that is stored with an axis of heads as one [out, in] matrix.

    Bare matrices are [head, in, dim] and [head, dim, out] (TransformerLens), kernels [in, head,
    dim] and [head, dim, out] (Keras MultiHeadAttention).
    name: the tensor. role: "q", "k", "v" or "o". form: "kernel" for Keras.
    """
    if role == "o":
        by_head = tensors.read(name, heads, ANY_LENGTH, ANY_LENGTH)  # [head, dim, out]
        return np.ascontiguousarray(by_head.reshape(-1, by_head.shape[-1]).T)
    by_head = tensors.read(name, ANY_LENGTH, ANY_LENGTH, ANY_LENGTH)
    if form == "kernel":
        by_head = np.moveaxis(by_head, 1, 0)
    # [head, in, dim] → [head, dim, in] → [head · dim, in]
    return np.ascontiguousarray(by_head.transpose(0, 2, 1).reshape(-1, by_head.shape[1]))


def _flat_bias(tensors: Tensors, name: str, width: int) -> Array:
    """A bias, perhaps stored as [head, dim], as [width]."""
    bias = tensors.read(name)
    if bias.size == width and bias.ndim <= 2:
        return bias.reshape(-1)
    return tensors.read(name, width)


def orient(
    arrays: dict[str, Array], usual: Orientation, request: LayoutRequest, names: list[str]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The matrices by role turned to [out, in], and notes for the user where shapes allow either
    orientation or rule out the layout's usual one.

    request: what the user states about the file.
    usual: how this layout stores them. Taken as usual unless the user says otherwise or the shapes
        (or the user's d_model) allow only the other way.
    names: the tensors' own, for the notes.
    """
    opposite: Orientation = "out-in" if usual == "in-out" else "in-out"

    # the orientations that the shapes and the user's d_model allow, the usual one first; then those
    # that also take the X that will run; an X that fits neither way is refused where it is read
    fits_model = [way for way in (usual, opposite) if _fits_as(arrays, way, request.d_model)]
    fits_input = [way for way in fits_model if _fits_as(arrays, way, request.input_width)]
    fits = fits_input or fits_model
    if request.orientation is not None:
        orientation = request.orientation
    else:  # shapes that fit neither way are refused when the sizes are checked
        orientation = [*fits, usual][0]
    matrices = arrays
    if orientation == "in-out":
        matrices = {role: np.ascontiguousarray(array.T) for role, array in arrays.items()}

    descriptions = {
        "in-out": message("[in, out], multiplied as X·W"),
        "out-in": message("[out, in], multiplied as X·Wᵀ"),
    }
    every_name = " ".join(names)
    description = descriptions[orientation]
    if request.orientation is None and orientation != usual:
        note = message(
            "{names_text}: the shapes only fit as {orientation}, so they are read so",
            names_text=every_name,
            orientation=description,
        )
        return matrices, (note,)
    # a bare matrix may be stored either way; the weight of an `nn.Linear` is [out, in] for certain
    if request.orientation is None and usual == "in-out" and len(fits) == 2:
        note = message(
            "{names}: the shapes also fit as {opposite}; read as {orientation} "
            "(the other way: attn weights convert --orientation {option})",
            names=every_name,
            opposite=descriptions[opposite],
            orientation=description,
            option=opposite,
        )
        return matrices, (note,)
    return matrices, ()


def _fits_as(arrays: dict[str, Array], way: Orientation, d_model: int | None) -> bool:
    """Whether the shapes of the q, k, v and o matrices, by role, are possible if all are stored in
    orientation `way`.

    d_model: the width that must enter q, k and v; None for any.
    """
    into, out = (0, 1) if way == "in-out" else (1, 0)  # the axes of input and output
    widths = {arrays[role].shape[into] for role in "qkv"}
    # q, k and v read the same vectors, and each query meets keys of its width
    if len(widths) > 1 or d_model not in (None, *widths):
        return False
    if arrays["q"].shape[out] != arrays["k"].shape[out]:
        return False
    if "o" not in arrays:
        return True
    # the output projection leads from the values back to the width of what entered
    return arrays["o"].shape[into] == arrays["v"].shape[out] and arrays["o"].shape[out] in widths


# Layouts with q, k and v in one tensor: `torch.nn.MultiheadAttention`, `c_attn`, `qkv`.

TORCH = "torch.nn.MultiheadAttention"
TORCH_SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
ZERO_NOTE = message("whether add_zero_attn was set is not in the file; read as not set")

FUSED = (
    ("c_attn", "c_proj"), ("qkv", "proj"), ("qkv", "out"), ("qkv_proj", "o_proj"), ("qkv_proj", "out_proj"),
    ("Wqkv", "out_proj"), ("Wqkv", "Wo"), ("in_proj", "out_proj"), ("to_qkv", "to_out.0"), ("to_qkv", "to_out"),
)  # fmt: skip
"""What a fused projection and the output projection beside it are called."""
BY_ROLE_NOTE = message(
    "qkv_proj is read as all queries, then all keys, then all values; some classes have q, k and v"
    " of one head after another, which the file does not say: attn guide weights reorders them"
)


def fused_layouts() -> list[Layout]:
    """The layouts of `torch.nn.MultiheadAttention`, joined or separate, and those with q, k and v
    in one tensor.
    """
    may = {"in_proj_bias": "q.bias k.bias v.bias", "out_proj.bias": "o.bias"}
    output = {"out_proj.weight": "o.weight"}
    whole = {"in_proj_weight": "q.weight k.weight v.weight"} | output
    apart = dict(zip(TORCH_SEPARATE, ("q.weight", "k.weight", "v.weight"), strict=True)) | output
    torch = [Layout(TORCH, whole, may, _read_torch), Layout(TORCH, apart, may, _read_torch)]
    return torch + [_fused_layout(name, output) for name, output in FUSED]


def _read_torch(tensors: Tensors, request: LayoutRequest) -> LayoutWeights:
    """The weights of `torch.nn.MultiheadAttention`, whose q, k and v are one tensor
    (`in_proj_weight`) or three.

    request: not used here.
    """
    # its rows tell the width of all tensors; read again, it is checked to be square
    width = tensors.read("out_proj.weight", ANY_LENGTH, ANY_LENGTH).shape[0]
    output = tensors.read("out_proj.weight", width, width)
    if "in_proj_weight" in tensors:
        parts = np.split(tensors.read("in_proj_weight", 3 * width, width), 3)
    else:
        parts = [tensors.read(name, width, width) for name in TORCH_SEPARATE]
    weights = _arrays_by_role(parts, "weight") | {"o.weight": output}
    if "in_proj_bias" in tensors:
        weights |= _arrays_by_role(np.split(tensors.read("in_proj_bias", 3 * width), 3), "bias")
    if "out_proj.bias" in tensors:
        weights["o.bias"] = tensors.read("out_proj.bias", width)
    return LayoutWeights(weights, notes=(ZERO_NOTE,))


def _fused_layout(name: str, output: str) -> Layout:
    """The layout with q, k and v side by side in one tensor called `name`.

    output: the name of the output projection.
    """
    # from the file's names to the roles; one tensor here has three
    needs = {f"{name}.weight": "q.weight k.weight v.weight"}
    may = {
        f"{output}.weight": "o.weight",
        f"{name}.bias": "q.bias k.bias v.bias",
        f"{output}.bias": "o.bias",
    }
    return Layout(
        f"fused {name} and {output}", needs, may, partial(_read_fused, name=name, output=output)
    )


def _read_fused(
    tensors: Tensors, request: LayoutRequest, *, name: str, output: str
) -> LayoutWeights:
    """The weights of a file with q, k and v side by side in one tensor: [3·out, in] as `nn.Linear`,
    or [in, 3·out] as a convolution of width 1.

    name: the tensor's. output: what the output projection is called.
    """
    whole = tensors.read(f"{name}.weight", ANY_LENGTH, ANY_LENGTH)
    d_model = min(whole.shape)
    if set(whole.shape) != {d_model, 3 * d_model}:
        what = message(
            "{file_names} has shape {shape}",
            file_names=tensors.file_names[f"{name}.weight"],
            shape=list(whole.shape),
        )
        expected = message(
            "q, k and v of one size side by side: [3·d_model, d_model] or [d_model, 3·d_model]"
        )
        raise InputError(what, where=tensors.where, expected=expected)

    stored_in_out = whole.shape[0] == d_model
    weights = _arrays_by_role(np.split(whole.T if stored_in_out else whole, 3), "weight")
    if f"{name}.bias" in tensors:
        weights |= _arrays_by_role(np.split(tensors.read(f"{name}.bias", 3 * d_model), 3), "bias")
    if f"{output}.weight" in tensors:
        square = tensors.read(f"{output}.weight", d_model, d_model)
        weights["o.weight"] = np.ascontiguousarray(square.T if stored_in_out else square)
        if f"{output}.bias" in tensors:
            weights["o.bias"] = tensors.read(f"{output}.bias", d_model)

    # what the file does not tell, by the name that classes give the tensor; of one head, the rows are
    # in the same order either way
    if name == "qkv_proj" and request.heads != 1:
        return LayoutWeights(weights, notes=(BY_ROLE_NOTE,))
    if name != "c_attn":
        return LayoutWeights(weights)
    looks_back = message(
        "models whose projection is called c_attn usually look back only (--mask causal)"
    )
    return LayoutWeights(weights, looks_back=looks_back)


def _arrays_by_role(parts: list[Array], kind: str) -> dict[str, Array]:
    """The arrays of queries, keys and values by canonical name: "q.weight", "k.weight", "v.weight".

    kind: "weight" or "bias".
    """
    return {
        f"{role}.{kind}": np.ascontiguousarray(part)
        for role, part in zip("qkv", parts, strict=True)
    }


# Layouts of classes that tutorials build by hand: a list of heads, and one projection shared by all
# heads.

HEAD = re.compile(r"heads\.([0-9]{1,4})\.")
HEAD_SPELLINGS = (
    ProjectionNames("WQ", "WK", "WV", ("linear",)),
    ProjectionNames("query", "key", "value", ("proj",)),
    ProjectionNames("W_query", "W_key", "W_value", ("out_proj",)),
)
"""What the projections of each head in a list of heads, and the one over all of them, are called.
"""

SHARED_NAMES = {"q": "queries", "k": "keys", "v": "values"}
SCALE_BY_D_MODEL = OwnScale(
    "sqrt-dmodel",
    message(
        "the scale is 1/√d_model, as this class divides by √embed_size (--scale sqrt-dmodel); "
        "--scale sqrt-dk for 1/√d_k"
    ),
)
SCALE_UNSURE = OwnScale(
    "sqrt-dk",
    message("some forms of this class divide by √d_model, not by √d_k (--scale sqrt-dmodel)"),
)


def class_layouts(names: Iterable[str]) -> list[Layout]:
    """The layouts of teaching classes: a module list of single heads, as many as these tensor names
    number, and one [dim, dim] projection shared by all heads."""
    numbers = [int(match[1]) for name in names if (match := HEAD.match(name))]
    heads = max(numbers, default=0) + 1  # one where none is named: then the layout does not fit
    return [*(_list_of_heads(heads, spelling) for spelling in HEAD_SPELLINGS), _shared_projection()]


def _list_of_heads(heads: int, spelling: ProjectionNames) -> Layout:
    """The layout of a module list of single heads, each with the three projections of a spelling,
    and one output projection over their outputs side by side."""
    inner = dict(zip("qkv", (spelling.q, spelling.k, spelling.v), strict=True))
    output = spelling.o[0]  # these spellings have a single name for it
    modules = [
        (f"heads.{head}.{name}", role) for head in range(heads) for role, name in inner.items()
    ]
    needs = {f"{name}.weight": f"{role}.weight" for name, role in modules}
    may = {f"{name}.bias": f"{role}.bias" for name, role in modules}
    may |= {f"{output}.weight": "o.weight", f"{output}.bias": "o.bias"}
    description = message(
        "multi-head class heads.i ({names}) and {output}, [out, in]",
        names=" ".join(inner.values()),
        output=output,
    )
    read = partial(_read_list, heads=heads, inner=inner, output=output)
    return Layout(description, needs, may, read)


def _read_list(
    tensors: Tensors, request: LayoutRequest, *, heads: int, inner: Mapping[str, str], output: str
) -> LayoutWeights:
    """The weights of a file with one module per head, stacked head after head.

    request: not used here.
    inner: what a head's projections are called, by role.
    output: what the output projection is called.
    """
    weights = {}
    for role, inner_name in inner.items():
        names = [f"heads.{head}.{inner_name}" for head in range(heads)]
        # all heads must have the shape of the first
        shape = tensors.read(f"{names[0]}.weight", ANY_LENGTH, ANY_LENGTH).shape
        weights[f"{role}.weight"] = np.concatenate(
            [tensors.read(f"{name}.weight", *shape) for name in names]
        )

        # either every head has a bias, or none
        with_bias = [name for name in names if f"{name}.bias" in tensors]
        if with_bias and len(with_bias) < heads:
            lacks = next(name for name in names if name not in with_bias)
            what = message(
                "{with_bia} has a bias and {lacks} has none", with_bia=with_bias[0], lacks=lacks
            )
            raise InputError(what, where=tensors.where, expected="a bias in every head or in none")
        if with_bias:
            weights[f"{role}.bias"] = np.concatenate(
                [tensors.read(f"{name}.bias", shape[0]) for name in names]
            )

    if f"{output}.weight" in tensors:
        width = weights["v.weight"].shape[0]
        weights["o.weight"] = tensors.read(f"{output}.weight", ANY_LENGTH, width)
        if f"{output}.bias" in tensors:
            weights["o.bias"] = tensors.read(f"{output}.bias", weights["o.weight"].shape[0])
    # classes that call a head's queries so scale their scores in one of two ways
    if inner["q"] == "query":
        return LayoutWeights(weights, heads, SCALE_UNSURE)
    return LayoutWeights(weights, heads)


def _shared_projection() -> Layout:
    """The layout of a teaching class with tensors `values`, `keys`, `queries` and `fc_out`, whose
    projections may each be shared by all heads."""
    needs = {f"{name}.weight": f"{role}.weight" for role, name in SHARED_NAMES.items()} | {
        "fc_out.weight": "o.weight"
    }
    may = {f"{name}.bias": f"{role}.bias" for role, name in SHARED_NAMES.items()} | {
        "fc_out.bias": "o.bias"
    }
    return Layout(
        message("multi-head class values keys queries fc_out, [out, in]"), needs, may, _read_shared
    )


def _read_shared(tensors: Tensors, request: LayoutRequest) -> LayoutWeights:
    """The weights of a class that cuts each embedding into heads and then projects every head by
    the same [dim, dim] matrix.

    In canonical terms that is a block-diagonal matrix. A later form of the class projects the
    whole embedding first; its matrices are as large as `fc_out`. Both divide the scores by
    √embed_size.

    request: not used here.
    """
    output = tensors.read("fc_out.weight", ANY_LENGTH, ANY_LENGTH)
    width = output.shape[1]
    queries = tensors.read("queries.weight", ANY_LENGTH, ANY_LENGTH)
    side = queries.shape[1]  # the map's: a head's width, or in the later form the embedding's
    if width % side:
        raise InputError(
            "{queries_weight} works on {side} entries, {fc_out_weight} on {width}",
            where=tensors.where,
            expected="a head's width that divides the embedding's",
            queries_weight=tensors.file_names["queries.weight"],
            side=side,
            fc_out_weight=tensors.file_names["fc_out.weight"],
            width=width,
        )

    heads = width // side  # that share a map; 1 in the later form, which does not tell its heads
    diagonal = np.eye(heads, dtype=output.dtype)
    weights: dict[str, Array] = {"o.weight": output}
    for role, name in SHARED_NAMES.items():
        # the head's matrix once for each head, along the diagonal
        weights[f"{role}.weight"] = np.kron(diagonal, tensors.read(f"{name}.weight", side, side))
        if f"{name}.bias" in tensors:
            weights[f"{role}.bias"] = np.tile(tensors.read(f"{name}.bias", side), heads)

    if "fc_out.bias" in tensors:
        weights["o.bias"] = tensors.read("fc_out.bias", output.shape[0])
    if heads == 1:
        return LayoutWeights(weights, heads=None, scale=SCALE_BY_D_MODEL)
    note = message(
        "each of values, keys and queries is one [{side}, {side}] map that all {times} heads share",
        side=side,
        times=heads,
    )
    return LayoutWeights(weights, heads, SCALE_BY_D_MODEL, (note,))
