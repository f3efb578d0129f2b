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
    """Tensors by plain name; `spelled` gives the name in the file. where: the file."""

    arrays: Mapping[str, Array]
    spelled: Mapping[str, str]
    where: str

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def read(self, name: str, *shape: int | None) -> Array:
        """A tensor as float32 or float64. shape: what it must be, None for any size; no shape at all for any.

        Raises InputError for another shape, naming both, and for an empty tensor.
        """
        found = self.arrays[name]
        fits = not shape or (
            len(shape) == found.ndim
            and all(size in (None, real) for size, real in zip(shape, found.shape, strict=True))
        )
        if not fits or found.size == 0:
            wanted = (
                "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
                if shape
                else "at least one number"
            )
            raise InputError(f"{self.spelled[name]} has shape {list(found.shape)}", where=self.where, expected=wanted)
        # float64 holds what float32 cannot: whole numbers of 32 bits; bfloat16 and float16 fit float32 exactly
        wide = found.dtype.kind in "biu" or found.dtype == np.float64
        return found.astype(np.float64 if wide else np.float32, copy=False)


def plain(arrays: Mapping[str, Array], where: str, prefix: str = "") -> Tensors:
    """The tensors under plain names: `module.self_attn.in_proj_weight` is `in_proj_weight`, `mha/query/kernel:0`
    `query.kernel`.

    prefix: take only tensors whose name begins so. Raises InputError when none does, and when two
    tensors come to the same name because the file holds several attentions.
    """
    chosen = [name for name in arrays if name.startswith(prefix)]
    if not chosen:
        raise InputError(
            f"no tensor's name begins with {prefix!r}" if prefix else "the file holds no tensors",
            where=where,
            expected=f"one of {listing(arrays)}" if arrays else "the weights of one attention",
        )
    parts = {name: name[len(prefix) :].removesuffix(":0").replace("/", ".").strip(".").split(".") for name in chosen}
    short = _without_shared({name: ".".join(_bare(path)) for name, path in parts.items()})
    twice = [name for name, count in Counter(short.values()).items() if count > 1]
    if twice:
        pair = [name for name in chosen if short[name] == twice[0]]
        raise InputError(
            f"the file holds more than one attention: {pair[0]} and {pair[1]}",
            where=where,
            expected="the tensors of one",
            hint=f"attn weights convert --prefix {_stem(pair[0], twice[0])} FILE one.safetensors",
        )
    return Tensors({short[name]: arrays[name] for name in chosen}, {short[name]: name for name in chosen}, where)


def _bare(path: list[str]) -> list[str]:
    at = 0
    while at < len(path) - 1:
        if path[at] in AROUND:
            at += 1
        elif path[at] in STACKED and at + 2 < len(path) and path[at + 1].isdecimal():
            at += 2
        else:
            break
    return path[at:]


def _without_shared(names: dict[str, str]) -> dict[str, str]:
    """The names without a first part that all share, unless it is a projection's own or counts something."""
    pairs = [short.split(".", 2)[:2] for short in names.values()]
    own = any(len(pair) < 2 or pair[1] in LEAVES or pair[1].isdecimal() for pair in pairs)
    if own or len({first for first, _ in pairs}) > 1:
        return names
    return _without_shared({name: short.partition(".")[2] for name, short in names.items()})


def _stem(name: str, short: str) -> str:
    found = re.sub(r"[/:]", ".", name.removesuffix(":0")).find(short)
    return name[:found] if found > 0 else name


def listing(names: Iterable[str], most: int = NAMED_MOST) -> str:
    """Names for a message, the first `most` of them, each cut to a readable length."""
    every = list(names)
    shown = " ".join(name if len(name) <= 60 else f"{name[:59]}…" for name in every[:most])
    return shown + (f" … ({len(every)} in all)" if len(every) > most else "")
