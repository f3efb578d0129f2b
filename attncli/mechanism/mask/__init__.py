"""Masks: which keys a query may see. A kind is one class, and its class is all that there is of it.

To add a kind, write its class in the file that it belongs to, with a meaning in loops beside it in the tests.
"""

from __future__ import annotations

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.mask.absolute import Blocks, Chunk, Documents, Global, Padding, Prefix
from attncli.mechanism.mask.by_content import Hashed, MatrixMask, SameBucket
from attncli.mechanism.mask.kind import Mask, Pairs
from attncli.mechanism.mask.relative import AllOf, AnyOf, Causal, Dilated, Everywhere, Window, both
from attncli.mechanism.mask.sparse import BigBird, Streaming

__all__ = [
    "AllOf", "AnyOf", "BigBird", "Blocks", "Causal", "Chunk", "Dilated", "Documents", "Everywhere", "Global", "Hashed",
    "Mask", "MatrixMask", "Padding", "Pairs", "Prefix", "SameBucket", "Streaming", "Window", "both", "shows_all",
    "visible",
]  # fmt: skip


def visible(mask: Mask, i: Array, j: Array, *, keys: int, backend: Backend, row: Array | None = None) -> Array:
    """Whether query i sees key j; the arguments are those of `Pairs`, row None if the queries' numbers are i.

    Returns booleans that broadcast to [..., rows, columns], with a leading head axis for masks that differ by head.
    `Hashed` must have been bound first (TypeError otherwise).
    """
    return mask.sees(Pairs(i, j, i if row is None else row, keys, backend))


def shows_all(mask: Mask) -> bool:
    """Whether the mask hides nothing, known without looking at any position."""
    return isinstance(mask, Everywhere) or mask == Window(None, None)
