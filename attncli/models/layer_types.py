"""Layers that look everywhere and layers that look nearby, as configs list them."""

from __future__ import annotations

from collections.abc import Callable

from attncli.errors import InputError
from attncli.mechanism.mask import Causal, Mask, Window
from attncli.models.config import Config

LOCAL = "sliding_attention"
GLOBAL = "full_attention"


def layer_types(config: Config, count: int, local: Callable[[int], bool]) -> list[str]:
    """The type of each layer: what `layer_types` says, else what the function `local` of its index says.

    Raises UnsupportedError for a type other than full and sliding attention.
    """
    kinds = config.many("layer_types", kind=str, count=count)
    if kinds is None:
        return [LOCAL if local(layer) else GLOBAL for layer in range(count)]
    for kind in kinds:
        if kind not in (LOCAL, GLOBAL):
            raise config.refuse("layer_types", f"{GLOBAL} and {LOCAL}, found {kind!r}")
    return kinds


def layer_mask(config: Config, kind: str, window: int | None) -> Mask:
    """A decoder's mask for a layer of that type. Raises InputError for a local layer without a window."""
    if kind == LOCAL and window is None:
        raise InputError(
            "config.json has layers with a window and does not say how wide",
            where=config.where,
            expected="sliding_window",
        )
    return causal(window if kind == LOCAL else None)


def causal(window: int | None) -> Mask:
    """A decoder's mask; a window of W keys counts the query's own."""
    return Causal() if window is None else Window(window - 1, 0)
