"""Watch: from blocks of query rows, as the attention step yields them, to what consumers add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from attncli.analysis.exclude import Exclusion
from attncli.analysis.row_facts import About, WeightRows, portions
from attncli.analysis.visible_keys import Bools, Floats, Ints, Sight, of_mask, sight
from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.mechanism.attend import RowBlock, Rule
from attncli.mechanism.mask import Mask


class Consumer(Protocol):
    """Something that grows row by row and needs no row twice: `Tally`, `TopLinks`, `PooledMaps`."""

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Take rows of heads first_head, first_head + 1, …"""


class Watch:
    """Hands blocks of one attention to consumers as `WeightRows`.

    about: what is known of the keys. keys: how many keys are tokens; learned keys beyond them are
    cut off. offset: position of query 0. heads: which heads of a block, None for all.
    exclusion: pairs to leave out before anything is counted. mask: the mask, where it alone
    decides what is visible; saves looking at each pair.
    """

    def __init__(
        self,
        backend: Backend,
        consumers: Sequence[Consumer],
        about: About,
        keys: int,
        *,
        offset: int = 0,
        heads: Sequence[int] | None = None,
        exclusion: Exclusion | None = None,
        mask: Mask | None = None,
    ) -> None:
        self._backend, self._consumers, self._about, self._keys = backend, consumers, about, keys
        self._offset, self._heads, self._exclusion, self._mask = offset, heads, exclusion, mask
        self._i: Ints = np.empty(0, np.int64)
        self._known: Sight | None = None

    def whole(self, weights: Floats, visible: Bools) -> None:
        """Take all rows at once: weights [head, query, key] in NumPy, and visibility that broadcasts to them."""
        shown = np.broadcast_to(visible, weights.shape)
        for head, row in portions(*weights.shape):
            i = np.arange(row.start, row.stop) + self._offset
            see = sight(shown[head, row], i.size, 0, weights.shape[-1])
            self._hand(numpy_backend("float64"), weights[head, row], i, 0, see, None, head.start)

    def see(self, block: RowBlock, *, first_head: int = 0) -> None:
        """Take a block [head, row, key] of the heads first_head, first_head + 1, …"""
        i = self._positions(block)
        high = min(block.high, self._keys)
        weights = block.stages["weights"]
        if self._heads is not None:
            weights = weights[list(self._heads)]
        if high < block.high:
            weights = weights[..., : high - block.low]
        see = self._sight(block, i, high)
        backend = self._backend
        entropy = block.stages.get("entropy") if high == block.high else None
        if entropy is not None and self._heads is not None:
            entropy = entropy[list(self._heads)]
        self._hand(backend, weights, i, block.low, see, entropy, first_head)

    def _hand(
        self, backend: Backend, weights: Array, i: Ints, low: int, see: Sight, entropy: Array | None, first_head: int
    ) -> None:
        """Hand rows to the consumers, without what is excluded."""
        high = low + weights.shape[-1]
        if self._exclusion is not None:
            weights = self._exclusion.without(backend.numpy(weights).astype(np.float64), i, low)
            see = sight(~self._exclusion.rows(i)[:, low:high] & see.shown(high), i.size, low, high)
            backend, entropy = numpy_backend("float64"), None
        rows = WeightRows(backend, weights, i, low, see, self._about, entropy=entropy)
        for consumer in self._consumers:
            consumer.add(rows, first_head=first_head)

    def _positions(self, block: RowBlock) -> Ints:
        """The rows' positions: the same array for the same rows of the next heads, which spares repeating work."""
        first, stop = block.start + self._offset, block.stop + self._offset
        if not self._i.size or (int(self._i[0]), int(self._i[-1]) + 1) != (first, stop):
            self._i = np.arange(first, stop)
            ranges = self._mask is not None and self._exclusion is None
            self._known = of_mask(self._mask, self._i, self._keys) if ranges and self._mask is not None else None
        return self._i

    def _sight(self, block: RowBlock, i: Ints, high: int) -> Sight:
        if self._known is not None:
            return self._known
        if block.seen is None:
            return sight(None, i.size, block.low, high)
        seen = self._backend.numpy(block.seen)
        if self._heads is not None and seen.ndim == 3 and seen.shape[0] > 1:
            seen = seen[list(self._heads)]
        return sight(seen if seen.shape[-1] == 1 else seen[..., : high - block.low], i.size, block.low, high)


def mask_alone(rule: Rule) -> Mask | None:
    """The rule's mask if nothing else decides what a query sees; else None."""
    others = (rule.given, rule.bias, rule.key_lengths)
    return (
        rule.mask
        if all(part is None for part in others) and not rule.extra_keys and isinstance(rule.offset, int)
        else None
    )
