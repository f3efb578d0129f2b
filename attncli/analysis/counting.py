"""How many pairs of query and key a mask shows, by formula where there is one."""

from __future__ import annotations

from attncli.analysis.visibility import bound, visible_rows
from attncli.mechanism.mask import (
    AllOf,
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


def pairs_of(mask: Mask, n: int, *, seed: int = 0) -> int:
    """Visible pairs for n queries and n keys, exact. Masks without a formula are looked at pair by pair.

    `lsh` is counted for seeded random vectors. Raises LimitError where looking would take too long.
    """
    match mask:
        case Everywhere():
            return n * n
        case Causal():
            return _window(n, None, 0)
        case Window(left, right):
            return _window(n, left, right)
        case Streaming(sinks, recent):
            # the first keys and the last ones overlap until there are more than both
            return _window(n, sinks + recent - 1, 0)
        case Prefix(length):
            first = min(length, n)
            return first * first + _triangle(n) - _triangle(first)
        case Chunk(size):
            whole, rest = divmod(n, size)
            return whole * _triangle(size) + _triangle(rest)
        case Blocks(size):
            whole, rest = divmod(n, size)
            return whole * size * size + rest * rest
        case Padding(count):
            return n * max(n - count, 0)
        case Dilated(size, step):
            steps = min(size - 1, n - 1)
            return n + _floors(steps, step) + max(n - 1 - steps, 0) * (steps // step)
        case AllOf(parts) if len(parts) == 2 and set(map(type, parts)) == {Causal, Window}:
            window = next(part for part in parts if isinstance(part, Window))
            return _window(n, window.left, 0)
        case _:
            return sum(int(seen.sum()) for _, _, _, seen in visible_rows(bound(mask, n, n, seed), n, n))


def _triangle(n: int) -> int:
    """1 + 2 + … + n."""
    return n * (n + 1) // 2


def _capped(n: int, most: int | None) -> int:
    """The sum of min(i, most) over i = 0 … n − 1."""
    if most is None or most >= n - 1:
        return _triangle(n - 1)
    return _triangle(most) + (n - 1 - most) * most


def _window(n: int, left: int | None, right: int | None) -> int:
    return n + _capped(n, left) + _capped(n, right)


def _floors(last: int, step: int) -> int:
    """The sum of t // step over t = 0 … last."""
    whole, rest = divmod(last, step)
    return step * (whole * (whole - 1) // 2) + whole * (rest + 1)
