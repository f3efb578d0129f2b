"""Which tokens of two texts correspond: the longest runs of equal tokens, in order; the same tokens in another order,
each with its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher

from msgspec import Struct


class Alignment(Struct, frozen=True):
    """Positions that correspond: a[k] with b[k], a rising, b too unless the texts hold the same tokens in another
    order.

    only_a, only_b: positions without a partner.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]


def align(a: Sequence[str], b: Sequence[str]) -> Alignment:
    """Align two texts by their tokens, as a line-by-line comparison of files does.

    Each token has at most one partner and none crosses another. Equal texts align as they are, and
    texts of the same tokens in another order align token by token, equal ones in their order.
    Source: Ratcliff and Metzener, 1988, as in Python's difflib.
    """
    if list(a) == list(b):
        everything = tuple(range(len(a)))
        return Alignment(everything, everything, (), ())
    if Counter(a) == Counter(b):
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index in range(len(b) - 1, -1, -1):
            places[b[index]].append(index)
        return Alignment(tuple(range(len(a))), tuple(places[text].pop() for text in a), (), ())
    blocks = SequenceMatcher(None, list(a), list(b), autojunk=False).get_matching_blocks()
    pairs = [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]
    indices_a, indices_b = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    return Alignment(
        indices_a,
        indices_b,
        tuple(sorted({*range(len(a))} - {*indices_a})),
        tuple(sorted({*range(len(b))} - {*indices_b})),
    )
