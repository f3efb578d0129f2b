"""The layers and heads that `--layer` and `--head` name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncli.arrays.selection import EVERY, Selection
from attncli.cli import request
from attncli.cli.options import ModelOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.mechanism.spec import Spec
    from attncli.models.model import Model

PAIR = re.compile(r"[Ll](\d+)[Hh](\d+)")


def layers_and_heads(model: Model, asked: ModelOptions) -> tuple[Selection, Selection]:
    """Which layers, and which heads of each of them; `--head L5H11,L5H3` names both at once.

    Raises UsageError for what is neither, or for pairs that are not the same heads in each of their layers; InputError
    for a layer or head that is not there.
    """
    blocks = model.spec.blocks
    named = parts(asked.head)
    if are_pairs(named):
        chosen = pairs(model.spec, named, asked.layer)
        layers, heads = sorted({layer for layer, _ in chosen}), sorted({head for _, head in chosen})
        if len(layers) * len(heads) != len(set(chosen)):
            raise UsageError(
                f"--head {','.join(named)} names other heads in each layer",
                expected="the same heads in every layer named here; attn ablate and attn patch take any",
                hint=f"--head {named[0]}",
            )
        return layers, heads
    layers_named = request.numbers(asked.layer, "layer", len(blocks))
    return layers_named, request.numbers(asked.head, "head", min(block.attention.heads for block in blocks))


def parts(values: Sequence[str] | None) -> list[str]:
    """What an option that may be repeated, or hold commas, names."""
    return [part.strip() for part in ",".join(values or ()).split(",")]


def are_pairs(named: Sequence[str]) -> bool:
    """Whether heads are named with their layers, such as L5H11."""
    return any(part[:1] in ("L", "l") for part in named)


def pairs(spec: Spec, named: Sequence[str], layers: Sequence[str] | None) -> list[tuple[int, int]]:
    """Layer and head of each name, such as L5H11. Raises as `layers_and_heads`."""
    from attncli.analysis.effects.places import heads_of

    if layers:
        raise UsageError("--head names layers, and so does --layer", expected="one or the other")
    found = []
    for part in named:
        pair = PAIR.fullmatch(part)
        if pair is None:
            raise UsageError(f"--head {part!r} is no layer and head", expected="each with its layer: L5H11,L3H1")
        layer = _only(request.numbers([pair[1]], "layer", len(spec.blocks)))
        found.append((layer, _only(request.numbers([pair[2]], "head", heads_of(spec.blocks[layer])))))
    return found


def _only(selection: Selection) -> int:
    assert selection is not EVERY
    (number,) = selection
    return number
