"""Edits: what a function of the user's makes of a layer's vectors or scores, while a text runs.

Addresses are named as in the field: `resid_post.10` is what leaves layer 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.language import message
from attncli.mechanism.spec import Block

Site = Literal[
    "resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "z", "scores", "pattern"
]
"""A place in a layer: the residual stream before attention, between attention and the feed-forward
part, and after it, [token, width]; what attention and the feed-forward part add to it,
[token, width]; what each head mixes, [head, token, v_dim]; scores before the softmax, −∞ where a
key is hidden, and attention weights, [head, query, key].
"""
SITES: tuple[Site, ...] = get_args(Site)


Floats = np.ndarray[Any, np.dtype[Any]]


class Edit(Struct, frozen=True, eq=False):
    """A function that is called with what a layer computes at one place, and whose result stands
    there from then on.

    layer: Counted from 0.
    site: "resid_pre", "resid_mid" or "resid_post" for the residual stream before attention, between
        attention and the feed-forward part, and after it, [token, width]; "attn_out" or "mlp_out"
        for what they add to it, [token, width], after a norm of their own; "z" for what each head
        mixes, [head, token, v_dim]; "scores" for what enters the softmax, −∞ where a key is hidden,
        or "pattern" for attention weights, [head, query, key].
    function: Takes the array (NumPy or torch, as the model computes) and returns one of the same
        shape; it may return what it got, if it only wants to see it. A row of scores that are all
        −∞ has weights 0.

    Source: Nanda and Bloom, TransformerLens, 2022, for the names.
    """

    layer: int
    site: Site
    function: Callable[[Any], Any]

    def __post_init__(self) -> None:
        """Raise UsageError for a layer that is no whole number, and for what cannot be called."""
        # Python's and NumPy's whole numbers alike have `__index__`
        if isinstance(self.layer, bool) or not hasattr(self.layer, "__index__"):
            raise UsageError(
                "the layer of an edit is {value}, of type {kind}",
                expected="a whole number, 0 for the first layer",
                value=_short_repr(self.layer),
                kind=type(self.layer).__name__,
            )
        if not callable(self.function):
            raise UsageError(
                "the function of an edit is {value}, of type {kind}",
                expected="a function that takes an array and returns one of the same shape",
                value=_short_repr(self.function),
                kind=type(self.function).__name__,
            )

    @property
    def address(self) -> str:
        """The name of the place: "resid_post.10"."""
        return f"{self.site}.{self.layer}"


SHOWN = 80
"""Characters of a value that an error shows."""


def _short_repr(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    text = repr(value)
    if len(text) > SHOWN:
        text = f"{text[: SHOWN - 1]}…"
    return text


Edits: TypeAlias = Mapping[tuple[int, str], Sequence[Edit]]
"""What is edited, by layer and site; in the order in which it is done."""


def edits_by_place(edits: Sequence[Edit], blocks: Sequence[Block], last: int) -> Edits:
    """Sort edits by layer and site, after checking each.

    Args:
        edits: Of any layers.
        blocks: Those of the model, a layer each.
        last: The number of the last layer that runs.

    Returns:
        The edits of each place, in their order.

    Raises:
        UsageError: For what is no list of edits, or has something else in it, for one of an
            unknown site, and one of a layer that does not run.
        InputError: For a layer that is not there.
        UnsupportedError: For a site that this layer of the model does not have.
    """
    if isinstance(edits, Edit) or not isinstance(edits, Iterable):
        raise UsageError(
            "edits is {value}, and no list",
            expected="edits=[attncli.Edit(layer, site, function)]",
            value=_short_repr(edits),
        )
    by_place: dict[tuple[int, str], list[Edit]] = {}
    for edit in edits:
        if not isinstance(edit, Edit):
            raise UsageError(
                "{value} is no edit",
                expected="attncli.Edit(layer, site, function)",
                value=_short_repr(edit),
            )
        if edit.site not in SITES:
            raise UsageError(
                "there is no site {name}", expected=", ".join(SITES), name=repr(edit.site)
            )
        if not 0 <= edit.layer < len(blocks):
            raise InputError(
                "there is no layer {number}",
                expected="0 to {last} ({count} layers)",
                number=edit.layer,
                last=len(blocks) - 1,
                count=len(blocks),
            )
        if edit.layer > last:
            raise UsageError(
                "layer {number} is edited, and does not run",
                expected="layers that reach it: the last to run is {last}",
                number=edit.layer,
                last=last,
            )
        if edit.site in _missing_sites(blocks[edit.layer]):
            raise UnsupportedError("this model has no {address}", address=edit.address)
        by_place.setdefault((edit.layer, edit.site), []).append(edit)
    return by_place


def _missing_sites(block: Block) -> set[Site]:
    """The sites that a layer does not have."""
    missing: set[Site] = set()
    if block.mlp is None:
        missing.add("mlp_out")
    if block.parallel and block.mlp is not None:
        # attention and the feed-forward part read the same vectors
        missing.add("resid_mid")
    if block.instead:  # no attention
        missing |= {"z", "scores", "pattern"}
    if block.attention.hashing is not None:
        missing |= {"scores", "pattern"}
    return missing


def stages_to_edit(edits: Edits, layer: int) -> frozenset[str]:
    """The stages of an attention that edits of scores or weights need, as `keep` names them; none
    where neither is edited.

    Args:
        edits: By layer and site.
        layer: The layer.
    """
    if (layer, "scores") in edits or (layer, "pattern") in edits:
        return frozenset(("masked", "weights"))
    return frozenset()


def apply_edits(backend: Backend, edits: Edits, layer: int, site: Site, array: Array) -> Array:
    """What the edits of a place make of an array; the array itself where there are none.

    Args:
        backend: What the layer is computed in.
        edits: By layer and site.
        layer: The layer.
        site: The place in it.
        array: What the layer computed there, in the axes of the site.

    Returns:
        An array of the same shape and data type.

    Raises:
        UsageError: Where a function returns an array of another shape, or none, complex numbers,
            or numbers that are not finite where it got finite ones.
    """
    for edit in edits.get((layer, site), ()):
        result = edit.function(array)
        shape = getattr(result, "shape", None)
        if shape is None or tuple(shape) != tuple(array.shape):
            returned = type(result).__name__
            if shape is not None:
                returned = str(list(shape))
            raise UsageError(
                "the edit of {address} returned {returned}",
                expected="an array of the shape {shape}",
                address=edit.address,
                returned=returned,
                shape=str(list(array.shape)),
            )
        if "complex" in str(result.dtype):
            raise UsageError(
                "the edit of {address} returned {returned}",
                expected="real numbers, such as {dtype}",
                address=edit.address,
                returned=str(result.dtype),
                dtype=backend.dtype_of(array),
            )
        changed = backend.cast(backend.array(result), backend.dtype_of(array))
        _refuse_what_is_not_finite(edit, backend.numpy(array), backend.numpy(changed))
        array = changed
    return array


def _not_finite(site: Site, numbers: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which numbers at a site are NaN or infinite; −∞ is a score that hides a key."""
    if site == "scores":
        return np.isnan(numbers) | (numbers == np.inf)
    return ~np.isfinite(numbers)


def _refuse_what_is_not_finite(edit: Edit, before: Floats, after: Floats) -> None:
    """Raise UsageError where an edit has made NaN or an infinite number of what had none."""
    wrong = _not_finite(edit.site, after)
    if not wrong.any() or _not_finite(edit.site, before).any():
        return
    expected = message("finite numbers")
    if edit.site == "scores":
        expected = message("finite numbers, or −inf for a key that is hidden")
    place = np.argwhere(wrong)[0].tolist()
    raise UsageError(
        "the edit of {address} returned {returned} at {place}",
        expected=expected,
        address=edit.address,
        returned=str(after[tuple(place)]),
        place=str(place),
    )
