"""The tensors of one attention as a file names them, with the prefixes of the modules around it taken off."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import InputError

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
