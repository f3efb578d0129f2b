"""Decoders that a config turns into encoders: `is_causal` false lets every token see later ones."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal, Everywhere, Mask, Window
from attncli.mechanism.spec import Block, Spec
from attncli.models.config import Config

KEY = "is_causal"


def seen_both_ways(config: Config, spec: Spec) -> Spec:
    """The model as it is, or, where its config says that it is not causal, with queries that see later tokens too.

    A layer with a window of W keys, the query's own counted, sees W tokens on either side, as transformers has it.
    Raises UnsupportedError for a mask of which that is not said.
    """
    if spec.decoder is not None or KEY in config.read_keys or config.flag(KEY, default=True):
        return spec
    return replace(spec, blocks=tuple(_both_ways(config, block) for block in spec.blocks))


def _both_ways(config: Config, block: Block) -> Block:
    mask = mirror_mask(block.attention.mask)
    if mask is None:
        raise config.refuse(KEY, f"true: the mask {block.attention.mask.spec()} has no form that sees later tokens")
    return replace(block, attention=replace(block.attention, mask=mask))


def mirror_mask(mask: Mask) -> Mask | None:
    """The mask that sees as far ahead as back; None for one of which that is not said."""
    match mask:
        case Causal() | Everywhere():
            return Everywhere()
        case Window(left=int(left), right=0):
            return Window(left + 1, left + 1)
        case Window(left=left, right=right) if left == right:
            return mask
        case _:
            return None
