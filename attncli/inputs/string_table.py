"""Texts that lie one after the other in the header of a file, found and decoded when asked for.

A vocabulary of 262,144 pieces is 4 MB of lengths and bytes. Where each begins is computed for all at
once, and a search compares 64-bit keys of all pieces with those of the sought ones, so that a short
text costs 0.02 s where decoding every piece costs 0.4 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

Array = np.ndarray[Any, Any]
PREFIX = 8
"""Bytes of the length before each text, and of the beginning and the end that its key is made of."""
SPREAD = 0x9E3779B97F4A7C15
"""An odd number without pattern (2⁶⁴ over the golden ratio) that keeps keys of different lengths apart."""
WORD = 2**64
"""Products are taken modulo this, as NumPy's numbers of 64 bits wrap around."""


class StringTable(Sequence[str]):
    """Texts by number, each decoded from UTF-8 when it is asked for; U+FFFD for bytes that are none."""

    def __init__(self, raw: bytes, starts: Array, ends: Array) -> None:
        """The table of texts that lie in some bytes.

        raw: the bytes that hold them.
        starts, ends: where each begins and ends in them, [text].
        """
        self.raw = raw
        self.starts = starts
        self.ends = ends
        self._keys: Array | None = None

    @classmethod
    def of(cls, texts: Iterable[str]) -> StringTable:
        """The table of these texts."""
        pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
        return cls(b"".join(pieces), ends[:-1], ends[1:])

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int, /) -> str: ...

    @overload
    def __getitem__(self, place: slice, /) -> list[str]: ...

    def __getitem__(self, place: int | slice, /) -> str | list[str]:
        """A text by its number, or the texts of a slice; each is decoded now."""
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return self.piece(place).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        raw = self.raw
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield raw[start:end].decode("utf-8", "replace")

    def __repr__(self) -> str:
        """The first three texts, and how many there are."""
        shown = ", ".join(map(repr, self[:3]))
        if len(self) > 3:
            return f"[{shown}, … {len(self)} texts]"
        return f"[{shown}]"

    def piece(self, place: int) -> bytes:
        """The bytes of the text with this number."""
        return self.raw[self.starts[place] : self.ends[place]]

    def find(self, texts: Iterable[bytes]) -> list[tuple[bytes, int]]:
        """Find these texts in the table: pairs (text, its number in the table), ordered by number.
        Texts that the table lacks are left out; a text that it holds twice has two pairs."""
        sought = set(texts)
        if not sought:
            return []
        # equal keys make candidates, whose bytes are then compared
        sought_keys = np.sort(np.fromiter(map(_key, sought), np.uint64, len(sought)))
        keys = self.keys()
        # of each text of the table, the one sought key that can be its own: the first not below it
        following = np.minimum(np.searchsorted(sought_keys, keys), len(sought_keys) - 1)
        places = np.flatnonzero(sought_keys[following] == keys).tolist()
        candidates = [(self.piece(place), place) for place in places]
        return [(piece, place) for piece, place in candidates if piece in sought]

    def keys(self) -> Array:
        """A number for each text, [text] of 64 bits: equal texts have equal ones, and few others do."""
        if self._keys is None:
            lengths = self.ends - self.starts
            padded = self.raw + bytes(PREFIX)
            # every eight bytes that follow one another, as one number; few begin at a multiple of eight
            words = np.ndarray((len(padded) - PREFIX + 1,), "<u8", buffer=padded, strides=(1,))
            # of a text shorter than eight bytes, the bits of those behind it are shifted out
            unused_bytes = PREFIX - np.minimum(lengths, PREFIX)
            unused_bits = (8 * unused_bytes).astype(np.uint64)
            first = words[self.starts] << unused_bits
            first[lengths == 0] = 0  # a shift by all 64 bits leaves a number as it is
            last = np.where(lengths < PREFIX, first, words[np.maximum(self.ends - PREFIX, 0)])
            # the first and the last eight bytes and the length, mixed
            spread = np.uint64(SPREAD)
            self._keys = first ^ (last * spread) ^ (lengths.astype(np.uint64) * spread)
        return self._keys


def _key(text: bytes) -> int:
    """A number of 64 bits that differs for nearly all different texts, from the first and the last
    `PREFIX` bytes and the length; as `StringTable.keys` computes it for all texts at once."""
    first = int.from_bytes(text[:PREFIX].rjust(PREFIX, b"\0"), "little")
    if len(text) < PREFIX:
        last = first
    else:
        last = int.from_bytes(text[-PREFIX:], "little")
    return first ^ (last * SPREAD % WORD) ^ (len(text) * SPREAD % WORD)


def text_starts(raw: bytes, at: int, count: int) -> tuple[Array, int]:
    """Find where each of a series of texts begins that lie one after the other, each behind its
    length in eight bytes.

    One length gives the place of the next, which is a loop; here the places that look like a length
    are computed at once, and the loop only goes from one unbroken run of them to the next.

    Args:
        raw: The bytes, which may end too early.
        at: Where the first length stands.
        count: How many texts there are.

    Returns:
        Where each text begins, at most `count` of them, [text] of int64; and where the last of these
        ends, which may lie beyond `raw`.
    """
    likely, run_ends = _likely_lengths(raw, at)
    starts = np.empty(count, np.int64)
    done = 0
    place = at  # of the next length
    while done < count and place + PREFIX <= len(raw):
        # this length alone, or the unbroken run of likely ones that begins with it
        run = np.array([place])
        first = int(np.searchsorted(likely, place))
        if first < len(likely) and likely[first] == place:
            last = run_ends[np.searchsorted(run_ends, first)]
            # to the end of the run, but no more than are left to find
            run = likely[first : min(last + 1, first + count - done)]
        starts[done : done + len(run)] = run + PREFIX
        done += len(run)
        last_length = int(run[-1])
        length = int.from_bytes(raw[last_length : last_length + PREFIX], "little")
        place = last_length + PREFIX + length
    return starts[:done], place


def _likely_lengths(raw: bytes, at: int) -> tuple[Array, Array]:
    """Find the places from `at` on whose eight bytes look like a length from 1 to 255 (a byte that
    is not 0, then seven that are).

    Returns the places, ascending, and of each run of them the index of its last one: within a run
    each place is where the text of the place before ends.
    """
    numbers = np.frombuffer(raw, np.uint8, offset=at)
    if len(numbers) < PREFIX:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    zero = numbers == 0
    place_count = len(numbers) - PREFIX + 1  # at which eight bytes begin
    is_length = ~zero[:place_count]
    for byte in range(1, PREFIX):
        is_length &= zero[byte : place_count + byte]
    places = np.flatnonzero(is_length)
    following = places + PREFIX + numbers[places]  # where the text behind each length ends
    breaks = np.flatnonzero(following[:-1] != places[1:])
    return places + at, np.append(breaks, len(places) - 1)
