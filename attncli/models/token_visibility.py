"""Changes to what tokens of a model see: global tokens, and decoders that a config turns into encoders."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.mechanism.mask import AnyOf, Causal, Everywhere, Global, Mask, Window
from attncli.mechanism.spec import Attention, Block, Spec
from attncli.models.config import Config


def with_globals(attention: Attention, tokens: Sequence[int]) -> Attention:
    """The attention with these global tokens in place of those that it has; itself where it knows none.

    tokens: positions in the text. Source: Beltagy et al., Longformer, 2020.
    """
    if attention.own_global is None:
        return attention
    near = attention.mask.parts[0] if attention.own_global and isinstance(attention.mask, AnyOf) else attention.mask
    positions = tuple(sorted(set(tokens)))
    return replace(attention, mask=AnyOf((near, Global(positions))) if positions else near, own_global=positions)


def seeing_all(spec: Spec, tokens: Sequence[int]) -> Spec:
    """The model with these global tokens, of its encoder if it has two sides.

    Raises UnsupportedError for a model without such tokens, InputError for a position beyond its longest text.
    """
    if all(block.attention.own_global is None for block in spec.blocks):
        raise UnsupportedError(f"a {spec.family} model has no global tokens", expected="a longformer or led checkpoint")
    limit = spec.max_positions
    if limit is not None and max(tokens, default=0) >= limit:
        raise InputError(f"there is no token {max(tokens)}", expected=f"0 to {limit - 1}: the model's positions")
    blocks = (replace(block, attention=with_globals(block.attention, tokens)) for block in spec.blocks)
    return replace(spec, blocks=tuple(blocks))


def global_tokens(spec: Spec) -> tuple[int, ...]:
    """The positions of a model's global tokens, ascending; none for a model that knows none."""
    return next((block.attention.own_global for block in spec.blocks if block.attention.own_global), ())


# Decoders that a config turns into encoders: `is_causal` false lets every token see later ones.

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
