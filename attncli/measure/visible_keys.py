"""What each query row sees: how many keys, from which to which, and whether without a gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from attncli.mechanism.mask import Mask

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Sight(Struct, frozen=True, eq=False):
    """Visibility of a block of query rows.

    count, first, last: integers [head or 1, row]: how many keys a row sees, the first and the
    last of them (absolute positions; first > last where it sees none). visibility: booleans
    [head or 1, row, low..high-1], or None where every row sees all of first..last.
    """

    count: Ints
    first: Ints
    last: Ints
    visibility: Bools | None
    low: int

    @property
    def empty(self) -> Bools:
        """Rows that see nothing, [head or 1, row]."""
        return self.count == 0

    def has_key(self, key: Ints) -> Bools:
        """Whether row r sees key[r]; key: integers [row], any values. Returns [head or 1, row]."""
        inside = (key >= self.first) & (key <= self.last)
        if self.visibility is None:
            return inside
        column = np.clip(key - self.low, 0, self.visibility.shape[-1] - 1)
        return inside & self.visibility[:, np.arange(key.size), column]

    def visibility_matrix(self, high: int) -> Bools:
        """Visibility key by key, [head or 1, row, low..high-1]."""
        if self.visibility is not None:
            return self.visibility
        j = np.arange(self.low, high)
        return (j >= self.first[..., None]) & (j <= self.last[..., None])

    def spread(self) -> Floats:
        """Uniform weights over what each row sees, [head or 1, row, low…]; 0 in empty rows."""
        if self.visibility is None:
            raise ValueError("sight without gaps has closed forms")
        return self.visibility / np.maximum(self.count, 1)[..., None]


def find_sight(visibility: Bools | None, rows: int, low: int, high: int) -> Sight:
    """The sight of `rows` rows over the keys low..high-1.

    visibility: booleans [row, key] or [head, row, key] that broadcast, or None where all is visible.
    """
    if visibility is None:
        shape = (1, rows)
        return Sight(np.full(shape, high - low), np.full(shape, low), np.full(shape, high - 1), None, low)
    matrix = np.broadcast_to(
        visibility if visibility.ndim == 3 else visibility[None],
        (visibility.shape[0] if visibility.ndim == 3 else 1, rows, high - low),
    )
    count = matrix.sum(-1)
    first = np.where(count, low + matrix.argmax(-1), 0)
    last = np.where(count, high - 1 - matrix[..., ::-1].argmax(-1), -1)
    whole = bool((count == last - first + 1).all())
    return Sight(count, first, last, None if whole else matrix, low)


def of_mask(mask: Mask, i: Ints, keys: int) -> Sight | None:
    """The sight of query positions i under a mask whose visible keys are a range, without looking at each key.

    None for masks that are not known to be ranges.
    """
    low, high, whole = mask.reach(i, keys)
    if not whole:
        return None
    first, last = np.maximum(low, 0), np.minimum(high, keys) - 1
    count = np.maximum(last - first + 1, 0)
    none = count == 0
    return Sight(
        count[None], np.where(none, 0, first)[None], np.where(none, -1, last)[None], None, int(first.min(initial=0))
    )
