"""Places: the heads that an effect is measured of, and the order in which they come."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from attncli.arrays.backend import numbers_of
from attncli.errors import InputError
from attncli.mechanism.attend import span
from attncli.mechanism.context import Kind
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Attention, Block, HeadSelection, Spec
from attncli.models.run import check_indices

READ = 2
"""Keys that a first query may see in a text that is read from left to right: with two, it sees one."""


class HeadAddress(Struct, frozen=True):
    """One head: of which layer's attention, over the text itself or over another one."""

    layer: int
    kind: Kind
    head: int


def most_heads(spec: Spec) -> int:
    """How many heads the attention with the most of them has."""
    return max(map(heads_of, spec.blocks))


def heads_of(block: Block) -> int:
    """How many heads the attention of a layer with the most of them has."""
    return max((attention.heads for _, attention in attentions(block)), default=0)


def attentions(block: Block) -> Sequence[tuple[Kind, Attention]]:
    """A layer's attentions in the order in which they run; none of one that does not attend."""
    if block.instead:
        return []
    return [("self", block.attention), *([("cross", block.cross)] if block.cross is not None else [])]  # type: ignore[list-item]


def places(spec: Spec, selection: HeadSelection) -> list[HeadAddress]:
    """The heads chosen, by layer, self before cross, by number. Raises InputError where there are none."""
    check_indices("layer", sorted(set(numbers_of(selection.layers, len(spec.blocks)))), len(spec.blocks))
    addresses = [
        HeadAddress(layer, kind, head)
        for layer, block in enumerate(spec.blocks)
        for kind, attention in attentions(block)
        for head in range(attention.heads)
        if selection.has(layer, head)
    ]
    if not addresses:
        spec.attending(selection.layers)
        raise InputError(
            "no head is chosen",
            expected="heads 0 to {last} of layers 0 to {last_2}",
            last=most_heads(spec) - 1,
            last_2=len(spec.blocks) - 1,
        )
    return addresses


def reads_on(spec: Spec) -> bool:
    """Whether every token sees only what comes before it, itself included: then the model is a decoder."""
    return all(span(block.attention.mask, 0, 0, READ) == (0, 1) for block in spec.blocks)


def measured_at(spec: Spec, count: int) -> tuple[int, ...]:
    """The tokens whose vector is measured unless others are named: a decoder's last, all of an encoder's, special ones
    included, as sentence encoders pool."""
    return (count - 1,) if reads_on(spec) else tuple(range(count))


def may_start_late(spec: Spec) -> bool:
    """Whether tokens before a changed one stay as they were, and masks count by position alone."""
    return reads_on(spec) and not any(_depends_on_more(block.attention.mask) for block in spec.blocks)


def may_query_some(spec: Spec) -> bool:
    """Whether the last layer's attention may run for some queries alone."""
    last = spec.blocks[-1].attention
    return last.hashing is None and not _depends_on_more(last.mask)


def _depends_on_more(mask: Mask) -> bool:
    """Whether a mask hides by more than positions."""
    return any(part.depends_on != "positions" for part in mask.parts_of())
