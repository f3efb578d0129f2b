"""Masks: which keys a query may see, and masks as people write them: `causal`, `window:3`,
`window:2,2|global:0`.

A kind is one class, and its class is all that there is of it. To add a kind, write its class in the
file that it belongs to, with a meaning in loops beside it in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from attncli.arrays.backend import Array, Backend
from attncli.errors import UsageError
from attncli.language import listing, message, term
from attncli.mechanism.mask.eviction import ByChance, Forgotten, HeavyHitters, LastQuery, LastWindow
from attncli.mechanism.mask.kind import (
    AllOf,
    AnyOf,
    Causal,
    Dilated,
    Everywhere,
    Mask,
    Pairs,
    Spelling,
    Window,
    intersection,
)
from attncli.mechanism.mask.pattern import (
    BigBird,
    Blocks,
    Chunk,
    Documents,
    Global,
    Hashed,
    MatrixMask,
    Padding,
    Prefix,
    SameBucket,
    Streaming,
)

__all__ = [
    "AllOf", "AnyOf", "BigBird", "Blocks", "ByChance", "Causal", "Chunk", "Dilated", "Documents",
    "Everywhere", "Forgotten", "Global", "Hashed", "HeavyHitters", "LastQuery", "LastWindow", "Mask",
    "MatrixMask", "Padding", "Pairs", "Prefix", "SameBucket", "Streaming", "Window", "intersection", "shows_all",
    "visible",
]  # fmt: skip


def visible(
    mask: Mask, i: Array, j: Array, *, keys: int, backend: Backend, row: Array | None = None
) -> Array:
    """Whether query i sees key j: booleans that broadcast to [..., rows, columns], with a leading
    head axis for masks that differ by head.

    i: positions of queries, integers [..., rows, 1].
    j: positions of keys, integers [1, columns].
    keys: how many keys there are in all.
    row: the queries' numbers, integers [rows, 1]; None where these are their positions.

    A mask that depends on queries and keys themselves must have been bound to them first; else this
    raises TypeError.
    """
    if row is None:
        row = i
    return mask.sees(Pairs(i, j, row, keys, backend))


def shows_all(mask: Mask) -> bool:
    """True for a mask that is Everywhere or an unbounded window, which hide nothing; False for any
    other, even if it hides nothing here."""
    return isinstance(mask, Everywhere) or mask == Window(None, None)


LARGEST = 10**9


def _spellings(base: type[Mask] = Mask) -> Iterator[tuple[str, tuple[Spelling, type[Mask]]]]:
    """Yield the mask kinds below this class that users can type: (name, (how it is spelled, its
    class))."""
    for kind in base.__subclasses__():
        if kind.spelling is not None:
            yield kind.spelling.name, (kind.spelling, kind)
        yield from _spellings(kind)


KINDS: dict[str, tuple[Spelling, type[Mask]]] = dict(_spellings())
"""Every kind that a SPEC can write, by its name."""


def parse_mask(spec: str, *, seed: int = 0) -> Mask:
    """The mask that a SPEC means; `|` joins several to a union.

    seed: of the random parts of `bigbird` and `lsh`.

    Raises UsageError for an unknown kind or numbers it does not take.
    """
    parts = [_parse_kind(part.strip(), seed) for part in spec.split("|")]
    if len(parts) == 1:
        return parts[0]
    return AnyOf(tuple(parts))


def _parse_kind(spec: str, seed: int) -> Mask:
    """The mask of a SPEC of one kind, such as "window:3". Raises UsageError for what is none."""
    name, colon, rest = spec.partition(":")
    if name not in KINDS:
        close = get_close_matches(name.lower(), KINDS, 1)
        hint = "attn mask --help"
        if close:
            hint = message("did you mean {close}?", close=repr(close[0]))
        expected = message(
            "{kinds}, or a file ending in .npy, .npz, .safetensors, .json or .csv",
            kinds=listing(KINDS),
        )
        raise UsageError("unknown mask {spec}", expected=expected, hint=hint, spec=repr(spec))

    # its numbers: as many as the kind takes, each within bounds
    spelling, kind = KINDS[name]
    if colon:
        texts = rest.split(",")
    else:
        texts = []
    if spelling.counts:
        fits = len(texts) in spelling.counts
    else:  # a kind that takes any number of them
        fits = bool(texts)
    # no text longer than the largest number is read: Python refuses thousands of digits
    numbers = [
        int(text) for text in texts if text.strip().isdecimal() and len(text) <= len(str(LARGEST))
    ]
    if (
        not fits
        or len(numbers) < len(texts)
        or not all(spelling.least <= number <= LARGEST for number in numbers)
    ):
        what = message(
            "mask {spec} does not have the form {form}", spec=repr(spec), form=term(spelling.form)
        )
        raise UsageError(
            what,
            expected=message(
                "whole numbers from {least} to {largest:,}", least=spelling.least, largest=LARGEST
            ),
        )
    return kind.read(spec, numbers, seed)
