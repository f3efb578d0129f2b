"""How far queries see under a mask: ranges of keys, so that hidden work is not done."""

from __future__ import annotations

import numpy as np

from attncli.mechanism.mask import Mask


def span(mask: Mask, first: int, last: int, keys: int) -> tuple[int, int]:
    """A range [low, high) of keys outside which no query first..last (inclusive) sees anything.

    It may be wider than needed, never narrower; low = high means that nothing is visible.
    """
    low, high, _ = mask.reach(np.asarray([first, last], np.int64), keys)
    return _within(int(low[0]), int(high[1]), keys)


def common_span(mask: Mask, first: int, last: int, keys: int) -> tuple[int, int]:
    """A range [low, high) of keys that every query first..last (inclusive) sees; low = high if none is known.

    It may be narrower than it could be, never wider.
    """
    low, high, whole = mask.reach(np.asarray([first, last], np.int64), keys)
    return _within(int(low[1]), int(high[0]), keys) if whole else (0, 0)


def _within(low: int, high: int, keys: int) -> tuple[int, int]:
    low, high = max(low, 0), min(high, keys)
    return (low, high) if low < high else (0, 0)
