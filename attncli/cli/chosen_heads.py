"""The layers and heads that `--layer` and `--head` name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncli.arrays.backend import EVERY, Selection
from attncli.cli import request
from attncli.cli.options import ModelOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.mechanism.spec import Spec
    from attncli.models.model import Model

PAIR = re.compile(r"[Ll](\d+)[Hh](\d+)")


def layers_and_heads(model: Model, options: ModelOptions) -> tuple[Selection, Selection]:
    """Which layers, and which heads of each of them; `--head L5H11,L5H3` names both at once.

    Raises UsageError for what is neither, or for pairs that are not the same heads in each of their layers; InputError
    for a layer or head that is not there.
    """
    blocks = model.spec.blocks
    words = parts(options.head)
    if are_pairs(words):
        places = pairs(model.spec, words, options.layer)
        layers, heads = sorted({layer for layer, _ in places}), sorted({head for _, head in places})
        if len(layers) * len(heads) != len(set(places)):
            raise UsageError(
                f"--head {','.join(words)} names other heads in each layer",
                expected="the same heads in every layer named here; attn ablate and attn patch take any",
                hint=f"--head {words[0]}",
            )
        return layers, heads
    layers_named = request.numbers(options.layer, "layer", len(blocks))
    return layers_named, request.numbers(options.head, "head", min(block.attention.heads for block in blocks))


def parts(values: Sequence[str] | None) -> list[str]:
    """What an option that may be repeated, or hold commas, names."""
    return [part.strip() for part in ",".join(values or ()).split(",")]


def are_pairs(words: Sequence[str]) -> bool:
    """Whether heads are named with their layers, such as L5H11."""
    return any(part[:1] in ("L", "l") for part in words)


def pairs(spec: Spec, words: Sequence[str], layers: Sequence[str] | None) -> list[tuple[int, int]]:
    """Layer and head of each name, such as L5H11. Raises as `layers_and_heads`."""
    from attncli.features.effects.places import heads_of

    if layers:
        raise UsageError("--head names layers, and so does --layer", expected="one or the other")
    places = []
    for part in words:
        pair = PAIR.fullmatch(part)
        if pair is None:
            raise UsageError(f"--head {part!r} is no layer and head", expected="each with its layer: L5H11,L3H1")
        layer = _only(request.numbers([pair[1]], "layer", len(spec.blocks)))
        places.append((layer, _only(request.numbers([pair[2]], "head", heads_of(spec.blocks[layer])))))
    return places


def _only(selection: Selection) -> int:
    assert selection is not EVERY
    (number,) = selection
    return number
