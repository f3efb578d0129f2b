"""`Layout`: one way in which a file may spell an attention, the tensors that it names, their sizes; its embeddings."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from attncli.errors import InputError, UsageError
from attncli.inputs.files import refuse_half_characters
from attncli.inputs.token import Token

# The tensors of one attention as a file names them, with the prefixes of the modules around it taken off.

Array = np.ndarray[Any, Any]

AROUND = frozenset(
    ("module", "model", "transformer", "encoder", "decoder", "block", "self", "sa", "mha", "attn", "attention",
    "self_attn",
     "self_attention", "multihead_attn", "multihead_attention", "multi_head_attention")
)  # fmt: skip
"""Modules that people wrap around an attention; they say nothing about how it spells its tensors."""

STACKED = frozenset(("layers", "layer", "blocks", "h"))
"""Lists of layers: what follows is a number."""

LEAVES = frozenset(("weight", "bias", "kernel"))

NAMED_MOST = 12


class Tensors(Struct, frozen=True, eq=False):
    """Tensors by plain name; `file_names` gives the name in the file. where: the file."""

    arrays: Mapping[str, Array]
    file_names: Mapping[str, str]
    where: str

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def read(self, name: str, *shape: int | None) -> Array:
        """A tensor as float32 or float64. shape: what it must be, None for any size; no shape at all for any.

        Raises InputError for another shape, naming both, and for an empty tensor.
        """
        array = self.arrays[name]
        fits = not shape or (
            len(shape) == array.ndim
            and all(size in (None, real) for size, real in zip(shape, array.shape, strict=True))
        )
        if not fits or array.size == 0:
            expected = (
                "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
                if shape
                else "at least one number"
            )
            raise InputError(
                f"{self.file_names[name]} has shape {list(array.shape)}", where=self.where, expected=expected
            )
        # float64 holds what float32 cannot: whole numbers of 32 bits; bfloat16 and float16 fit float32 exactly
        wide = array.dtype.kind in "biu" or array.dtype == np.float64
        return array.astype(np.float64 if wide else np.float32, copy=False)


def plain(arrays: Mapping[str, Array], where: str, prefix: str = "") -> Tensors:
    """The tensors under plain names: `module.self_attn.in_proj_weight` is `in_proj_weight`, `mha/query/kernel:0`
    `query.kernel`.

    prefix: take only tensors whose name begins so. Raises InputError when none does, and when two
    tensors come to the same name because the file holds several attentions.
    """
    names = [name for name in arrays if name.startswith(prefix)]
    if not names:
        raise InputError(
            f"no tensor's name begins with {prefix!r}" if prefix else "the file holds no tensors",
            where=where,
            expected=f"one of {listing(arrays)}" if arrays else "the weights of one attention",
        )
    parts = {name: name[len(prefix) :].removesuffix(":0").replace("/", ".").strip(".").split(".") for name in names}
    short = _without_shared({name: ".".join(_bare(path)) for name, path in parts.items()})
    twice = [name for name, count in Counter(short.values()).items() if count > 1]
    if twice:
        pair = [name for name in names if short[name] == twice[0]]
        raise InputError(
            f"the file holds more than one attention: {pair[0]} and {pair[1]}",
            where=where,
            expected="the tensors of one",
            hint=f"attn weights convert --prefix {_stem(pair[0], twice[0])} FILE one.safetensors",
        )
    return Tensors({short[name]: arrays[name] for name in names}, {short[name]: name for name in names}, where)


def _bare(path: list[str]) -> list[str]:
    index = 0
    while index < len(path) - 1:
        if path[index] in AROUND:
            index += 1
        elif path[index] in STACKED and index + 2 < len(path) and path[index + 1].isdecimal():
            index += 2
        else:
            break
    return path[index:]


def _without_shared(names: dict[str, str]) -> dict[str, str]:
    """The names without a first part that all share, unless it is a projection's own or counts something."""
    pairs = [short.split(".", 2)[:2] for short in names.values()]
    is_own = any(len(pair) < 2 or pair[1] in LEAVES or pair[1].isdecimal() for pair in pairs)
    if is_own or len({first for first, _ in pairs}) > 1:
        return names
    return _without_shared({name: short.partition(".")[2] for name, short in names.items()})


def _stem(name: str, short: str) -> str:
    start = re.sub(r"[/:]", ".", name.removesuffix(":0")).find(short)
    return name[:start] if start > 0 else name


def listing(names: Iterable[str], most: int = NAMED_MOST) -> str:
    """Names for a message, the first `most` of them, each cut to a readable length."""
    every = list(names)
    text = " ".join(name if len(name) <= 60 else f"{name[:59]}…" for name in every[:most])
    return text + (f" … ({len(every)} in all)" if len(every) > most else "")


Orientation = Literal["in-out", "out-in"]
"""How a matrix is stored: [in, out] is multiplied as X·W, [out, in] as X·Wᵀ (`nn.Linear`)."""


class OwnScale(Struct, frozen=True):
    """The scale of a class that does not use 1/√d_k. spelling: as `--scale` takes it. description: what to tell the
    reader."""

    spelling: str
    description: str


class LayoutWeights(Struct, frozen=True):
    """What a layout gives.

    weights: canonical names (`q.weight` …), each weight [out, in]. heads: how many the tensors
    tell of; None where they do not. scale: the class's own, where it is not 1/√d_k.
    notes: what the reader should know, in sentences. either_way: whether its matrices may be stored in both ways.
    """

    weights: dict[str, Array]
    heads: int | None = None
    scale: OwnScale | None = None
    notes: tuple[str, ...] = ()
    either_way: bool = False


class LayoutRequest(Struct, frozen=True):
    """What the asker says of a file: sizes it may not tell, or must agree with. None: nothing said.

    orientation: how its matrices are stored, where that differs from their layout's custom.
    prefix: take only the tensors whose name begins so.
    """

    d_model: int | None = None
    heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    orientation: Orientation | None = None
    prefix: str = ""


EMPTY_REQUEST = LayoutRequest()


class Layout(Struct, frozen=True):
    """description: the layout in words. needs: the tensors it must have, by plain name, with the role each plays
    (`q.weight`; several roles are apart by spaces). may: those it can have; a role "" is not used."""

    description: str
    needs: Mapping[str, str]
    may: Mapping[str, str]
    read: Callable[[Tensors, LayoutRequest], LayoutWeights]

    @property
    def knows(self) -> dict[str, str]:
        """Every tensor of the layout with its role."""
        return {**COMMON, **self.may, **self.needs}


COMMON = {name: name for name in ("norm.weight", "norm.bias", "embedding.weight", "bias_k", "bias_v")}
"""Tensors that may stand beside the projections in every layout."""


# The sizes that a file's tensors state, checked against each other and against what the asker says.


class LayoutSizes(Struct, frozen=True):
    """Sizes of the attention in a file. bias, output_projection, layer_norm: whether it holds their tensors."""

    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    d_v: int
    bias: bool
    output_projection: bool
    layer_norm: bool


def facts_of(
    weights: Mapping[str, Array],
    file_names: Mapping[str, str],
    metadata: Mapping[str, str],
    where: str,
    head_count: int | None,
    request: LayoutRequest,
) -> tuple[LayoutSizes, tuple[str, ...]]:
    """The sizes, and what to say about an assumption that was made.

    file_names: the file's own names by canonical name, for messages. head_count: the heads that the tensors tell of.
    Raises InputError for shapes that do not fit together, UsageError for sizes asked for that are not the file's.
    """
    label = _Labels(file_names, where)
    q, k, v = (weights[f"{role}.weight"] for role in "qkv")
    width = q.shape[1]
    for role, array in (("k", k), ("v", v)):
        if array.shape[1] != width:
            raise label.wrong(f"{role}.weight", array, f"{width} inputs, as {label.of('q.weight')} has")
    _check_option("--d-model", request.d_model, width, where)
    count, note = _heads(weights, metadata, where, head_count, request)
    if q.shape[0] % count:
        raise UsageError(
            f"the queries are {q.shape[0]} wide ({label.of('q.weight')}), which {count} heads cannot share",
            where=where,
            expected="a number of heads that divides the width",
            hint=f"--num-heads {max(n for n in range(1, min(count, q.shape[0]) + 1) if q.shape[0] % n == 0)}",
        )
    dim = q.shape[0] // count
    _check_option("--d-k", request.d_k, dim, where)
    kv_heads = k.shape[0] // dim
    if k.shape[0] % dim or count % kv_heads:
        raise label.wrong(
            "k.weight", k, f"rows for kv heads of width {dim}, as the queries have, that {count} heads can share"
        )
    if v.shape[0] % kv_heads:
        raise label.wrong("v.weight", v, f"rows that {kv_heads} heads can share")
    v_dim = v.shape[0] // kv_heads
    _check_option("--d-v", request.d_v, v_dim, where)
    _check_rest(weights, label, count * v_dim, width)
    _check_learned(weights, label, where, {"bias_k": kv_heads * dim, "bias_v": kv_heads * v_dim})
    biased = any(f"{role}.bias" in weights for role in "qkvo")
    return LayoutSizes(
        width, count, kv_heads, dim, v_dim, biased, "o.weight" in weights, "norm.weight" in weights
    ), note


class _Labels:
    """The file's own names in messages."""

    def __init__(self, file_names: Mapping[str, str], where: str) -> None:
        self._file_names = {role: name for roles, name in file_names.items() for role in roles.split()}
        self._where = where

    def of(self, role: str) -> str:
        return self._file_names.get(role, role)

    def wrong(self, role: str, array: Array, expected: str) -> InputError:
        suffix = " as [out, in]" if array.ndim == 2 else ""
        return InputError(
            f"{self.of(role)} has shape {list(array.shape)}{suffix}", where=self._where, expected=expected
        )


def _check_option(option: str, option_value: int | None, file_value: int, where: str) -> None:
    if option_value not in (None, file_value):
        raise UsageError(
            f"{option} is {option_value}, the file's is {file_value}",
            where=where,
            expected=f"{option} {file_value}, or none",
        )


def _heads(
    weights: Mapping[str, Array],
    metadata: Mapping[str, str],
    where: str,
    head_count: int | None,
    request: LayoutRequest,
) -> tuple[int, tuple[str, ...]]:
    """How many heads: what the tensors tell, else the asker, else the metadata, else what d_k gives, else 1."""
    metadata_count = metadata.get("num_heads", "")
    if head_count is not None:
        _check_option("--num-heads", request.heads, head_count, where)
        return head_count, ()
    if request.heads is not None:
        if request.heads < 1:
            raise UsageError(f"--num-heads is {request.heads}", expected="a whole number, at least 1")
        if metadata_count in ("", str(request.heads)):
            return request.heads, ()
        return request.heads, (
            f"the file's metadata give {metadata_count[:40]!r} heads; read as {request.heads}, as --num-heads says",
        )
    rows = weights["q.weight"].shape[0]
    if metadata_count:
        if (
            not metadata_count.isdecimal()
            or len(metadata_count) > 9
            or int(metadata_count) < 1
            or rows % int(metadata_count)
        ):
            raise InputError(
                f"the file's metadata give {metadata_count[:40]!r} heads",
                where=where,
                expected=f"a divisor of {rows} rows",
            )
        return int(metadata_count), ()
    if request.d_k is not None and request.d_k > 0 and rows % request.d_k == 0:
        return rows // request.d_k, ()
    if "o.weight" not in weights:
        return 1, ()
    return 1, ("the file does not say how many heads it has; read as 1 (--num-heads N)",)


def _check_rest(weights: Mapping[str, Array], label: _Labels, mixed: int, d_model: int) -> None:
    """Biases, output projection, learned key and norm against the widths they meet. mixed: heads · d_v."""
    output = weights.get("o.weight")
    if output is not None and output.shape[1] != mixed:
        raise label.wrong("o.weight", output, f"{mixed} inputs, heads × d_v")
    if output is not None and output.shape[0] != d_model:
        raise label.wrong("o.weight", output, f"{d_model} outputs, as wide as what {label.of('q.weight')} takes")
    widths = {f"{role}.bias": weights[f"{role}.weight"].shape[0] for role in "qkvo" if f"{role}.weight" in weights}
    leaving = mixed if output is None else output.shape[0]
    for role, width in {**widths, "norm.weight": leaving, "norm.bias": leaving}.items():
        if role in weights and weights[role].shape != (width,):
            raise label.wrong(role, weights[role], f"[{width}]")
    if "o.bias" in weights and output is None:
        raise label.wrong("o.bias", weights["o.bias"], "an output projection beside its bias")
    if "norm.bias" in weights and "norm.weight" not in weights:
        raise label.wrong("norm.bias", weights["norm.bias"], "norm.weight beside it")


def _check_learned(weights: Mapping[str, Array], label: _Labels, where: str, sizes: Mapping[str, int]) -> None:
    """The learned key and value that torch's module appends (add_bias_kv)."""
    present = [name for name in sizes if name in weights]
    if len(present) == 1:
        raise InputError(
            f"the file has {label.of(present[0])} alone", where=where, expected="both bias_k and bias_v, or neither"
        )
    for name in present:
        if weights[name].size != sizes[name]:
            raise label.wrong(name, weights[name], f"{sizes[name]} numbers")


TABLE = "embedding.weight"
TOKENS = "tokens"
MOST = 2**24
"""Characters of the token list; a longer one is refused before it is parsed."""


class Vocabulary(Struct, frozen=True, eq=False):
    """rows: [entry, d_model]. places: the row of each token text, None where rows go by token id."""

    rows: np.ndarray[Any, Any]
    places: Mapping[str, int] | None

    def vector(self, token: Token) -> np.ndarray[Any, Any]:
        """The embedding of a token. Raises InputError for one that has none."""
        count = len(self.rows)
        if self.places is not None:
            if token.text not in self.places:
                raise InputError(
                    f"the weight file has no embedding for the token {token.text!r}",
                    where=TABLE,
                    expected=f"one of its {count} tokens: {_first_texts(self.places)}",
                )
            return self.rows[self.places[token.text]]
        if token.id is None:
            raise InputError(
                f"the weight file has embeddings by token id, and the token {token.text!r} has none",
                where=TABLE,
                expected="a tokenizer with ids, or token texts in the file's metadata `tokens`",
                hint="--tokenizer tokenizer.json",
            )
        if not 0 <= token.id < count:
            raise InputError(
                f"the token {token.text!r} has the id {token.id}",
                where=TABLE,
                expected=f"0 to {count - 1}: {count} rows",
            )
        return self.rows[token.id]


def vocabulary_of(rows: np.ndarray[Any, Any], metadata: Mapping[str, str], where: str) -> Vocabulary:
    """The embeddings [entry, d_model] of a file, with the token texts that its metadata entry `tokens` holds as a JSON
    list.

    Raises InputError for a list that is malformed, repeats a text or is not as long as the table.
    """
    if TOKENS not in metadata:
        return Vocabulary(rows, None)
    try:
        texts = json.loads(metadata[TOKENS]) if len(metadata[TOKENS]) <= MOST else None
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError("the metadata `tokens` are no JSON list of texts", where=where, expected='["the", "animal"]')
    refuse_half_characters(texts, f"{where}: {TOKENS}")
    if len(texts) != len(rows):
        raise InputError(
            f"the metadata name {len(texts)} tokens, {TABLE} has {len(rows)} rows",
            where=where,
            expected="one token per row",
        )
    places = {text: place for place, text in enumerate(texts)}
    if len(places) != len(texts):
        twice = next(text for place, text in enumerate(texts) if places[text] != place)
        raise InputError(f"the metadata name the token {twice!r} twice", where=where, expected="each token once")
    return Vocabulary(rows, places)


def tokens_text(texts: Sequence[str]) -> str:
    """Token texts as the metadata entry holds them; lone surrogates are escaped, so any text survives."""
    return json.dumps(list(texts))


def _first_texts(texts: Mapping[str, int], most: int = 12) -> str:
    first = [text for text, _ in zip(texts, range(most), strict=False)]
    return " ".join(first) + (" …" if len(texts) > most else "")
