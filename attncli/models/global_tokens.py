"""Global tokens: those that see the whole text and are seen by all of it, where the others see a window."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.mechanism.mask import AnyOf, Global
from attncli.mechanism.spec import Attention, Spec


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
