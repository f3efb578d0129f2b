"""Places: the heads that an effect is measured of, and the order in which they come."""

from __future__ import annotations

from msgspec import Struct

from attncli.arrays.backend import numbers_of
from attncli.errors import InputError
from attncli.language import message
from attncli.mechanism.attend import span
from attncli.mechanism.context import Kind
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import HeadSelection, Spec, attentions, most_heads
from attncli.models.run import check_indices

READ = 2
"""Keys that a first query may see in a text that is read from left to right: with two, it sees one.
"""


class HeadAddress(Struct, frozen=True):
    """The address of one head: layer, kind of attention ("self" or "cross") and number."""

    layer: int
    kind: Kind
    head: int


def places(spec: Spec, selection: HeadSelection) -> list[HeadAddress]:
    """The addresses of the selected heads, by layer, self before cross, by number. Raises
    InputError where there are none."""
    check_indices(
        "layer", sorted(set(numbers_of(selection.layers, len(spec.blocks)))), len(spec.blocks)
    )
    addresses = [
        HeadAddress(layer, kind, head)
        for layer, block in enumerate(spec.blocks)
        for kind, attention in attentions(block)
        for head in range(attention.heads)
        if selection.has(layer, head)
    ]
    if not addresses:
        spec.attending(selection.layers)  # its error names chosen layers that have no attention
        expected = message(
            "heads 0 to {last} of layers 0 to {last_2}",
            last=most_heads(spec) - 1,
            last_2=len(spec.blocks) - 1,
        )
        raise InputError("no head is chosen", expected=expected)
    return addresses


def reads_on(spec: Spec) -> bool:
    """Whether every layer is causal: a token sees only itself and earlier ones. Such a model is a
    decoder.
    """
    # the first of two queries sees the keys 0 to 1, itself alone, only under a causal mask
    return all(span(block.attention.mask, 0, 0, READ) == (0, 1) for block in spec.blocks)


def measured_at(spec: Spec, count: int) -> tuple[int, ...]:
    """The default positions whose mean vector is measured in a text of `count` tokens: the last of
    a decoder, all of an encoder (special tokens included), as sentence encoders pool."""
    if reads_on(spec):
        return (count - 1,)
    return tuple(range(count))


def may_start_late(spec: Spec) -> bool:
    """Whether tokens before a changed one need not be computed again: the model is causal, and its
    masks depend on positions alone."""
    return reads_on(spec) and not any(
        _depends_on_more(block.attention.mask) for block in spec.blocks
    )


def may_query_some(spec: Spec) -> bool:
    """Whether the last layer's attention can be computed for some queries alone: its mask depends
    on positions alone, and it does not group tokens by hashes of their vectors."""
    last = spec.blocks[-1].attention
    return last.hashing is None and not _depends_on_more(last.mask)


def _depends_on_more(mask: Mask) -> bool:
    """Whether any part of a mask depends on more than token positions, such as the vectors or the
    words.
    """
    return any(part.depends_on != "positions" for part in mask.parts_of())
