"""How far queries see under a mask: ranges of keys, so that hidden work is not done."""

from __future__ import annotations

from attncli.mechanism.mask import (
    AllOf,
    AnyOf,
    Blocks,
    Causal,
    Chunk,
    Dilated,
    Everywhere,
    Mask,
    Padding,
    Prefix,
    Streaming,
    Window,
)


def span(mask: Mask, first: int, last: int, keys: int) -> tuple[int, int]:
    """A range [low, high) of keys outside which no query first..last (inclusive) sees anything.

    It may be wider than needed, never narrower; low = high means that nothing is visible.
    """
    low, high = 0, keys
    match mask:
        case Causal() | Streaming():
            high = last + 1
        case Window(left, right):
            low = 0 if left is None else first - left
            high = keys if right is None else last + right + 1
        case Dilated(size, _):
            low, high = first - size + 1, last + 1
        case Prefix(length):
            high = max(length, last + 1)
        case Chunk(size):
            low, high = first // size * size, last + 1
        case Blocks(size):
            low, high = first // size * size, (last // size + 1) * size
        case Padding(count):
            high = keys - count
        case AllOf(parts):
            spans = [span(part, first, last, keys) for part in parts]
            low, high = max(s[0] for s in spans), min(s[1] for s in spans)
        case AnyOf(parts):
            spans = [s for s in (span(part, first, last, keys) for part in parts) if s[0] < s[1]]
            low, high = (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else (0, 0)
        case _:
            pass
    low, high = max(low, 0), min(high, keys)
    return (low, high) if low < high else (0, 0)


def surely(mask: Mask, first: int, last: int, keys: int) -> tuple[int, int]:
    """A range [low, high) of keys that every query first..last (inclusive) sees; low = high if none is known.

    It may be narrower than it could be, never wider.
    """
    low, high = 0, keys
    match mask:
        case Everywhere():
            pass
        case Causal():
            high = first + 1
        case Window(left, right):
            low = 0 if left is None else last - left
            high = keys if right is None else first + right + 1
        case AllOf(parts):
            ranges = [surely(part, first, last, keys) for part in parts]
            low, high = max(part[0] for part in ranges), min(part[1] for part in ranges)
        case _:
            high = 0
    low, high = max(low, 0), min(high, keys)
    return (low, high) if low < high else (0, 0)
