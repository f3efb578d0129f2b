"""A uniform sample of the texts for each head, drawn by a hash of text and head: the same in any
order of texts.

It stands for the whole distribution: the texts of each decile of a metric are those of the sample
whose numbers fall there. A sample without replacement of the smallest hashes is one of equal
chances, and samples of shards add up.
Source: Broder, On the resemblance and containment of documents, 1997 (bottom-k sketches).
"""

from __future__ import annotations

import numpy as np

from attncli.measure.row_facts import Bools, Ints
from attncli.scan.intake import splitmix64

DRAWN = 32
"""Texts in the sample of a head for each example of a decile: a decile of it has fewer than that
once in 300 times.
"""
MOST = np.iinfo(np.int64).max
"""The hash of a place that no text has taken."""
FIELDS = ("hash", "file", "line", "query", "key")
"""What is kept of a text: its hash with the head's, where it stands, and the head's strongest link
in it.
"""
DECILES = 10


def sample_memory(columns: int, heads: int, size: int) -> int:
    """Bytes that samples of `size` texts for each of `heads` heads take, including the copy while
    texts are added.
    """
    # 8 bytes for each number, of the sample and of the copy
    return 2 * 8 * (len(FIELDS) + columns) * heads * size


class TextSample:
    """A random sample of `size` texts for each head: those whose hash with the head is smallest.
    table: [field, head, place], smallest hash first; values: each column's number, [column, head,
    place], in multiples of 2⁻²⁴.
    """

    def __init__(self, columns: int, heads: int, size: int) -> None:
        """Room for `size` texts of each of so many heads; a place without a text has the hash
        `MOST`, which is above all others."""
        self.size = size
        self.table: Ints = np.full((len(FIELDS), heads, size), -1, np.int64)
        self.table[0] = MOST
        self.values: Ints = np.zeros((columns, heads, size), np.int64)

    @property
    def arrays(self) -> dict[str, Ints]:
        """The arrays that a shard's file keeps of the sample, by name."""
        return {
            **{f"sample_{name}": row for name, row in zip(FIELDS, self.table, strict=True)},
            "sample_value": self.values,
        }

    def add(self, values: Ints, places: dict[str, Ints], links: Ints) -> None:
        """Offer a batch's texts with their values [text, column, head], in multiples of 2⁻²⁴; those
        with the smallest hashes are kept.

        places: `hash`, `file` and `line` of each text, [text].
        links: the strongest (query, key) of each text and head, [2, text, head].
        """
        if not self.size:
            return
        hashes = head_hashes(places["hash"], self.table.shape[1])
        # only heads with a text whose hash is below their last one can change
        heads = np.flatnonzero((hashes <= self.table[0, :, -1]).any(0))
        # as `FIELDS`: the hash, file and line, query and key
        new = np.empty((len(FIELDS), heads.size, hashes.shape[0]), np.int64)
        new[0] = hashes[:, heads].T
        new[1] = places["file"]
        new[2] = places["line"]
        new[3:] = links[..., heads].transpose(0, 2, 1)
        self._keep(heads, new, values[..., heads].transpose(1, 2, 0))

    def add_shard(self, arrays: dict[str, Ints]) -> None:
        """Merge in another shard's sample (arrays by name, as `arrays` gives); the texts with the
        smallest hashes are kept."""
        if self.size:
            table = np.stack([arrays[f"sample_{name}"] for name in FIELDS])
            self._keep(np.arange(table.shape[1]), table, arrays["sample_value"])

    def _keep(self, heads: Ints, table: Ints, values: Ints) -> None:
        """Merge texts into the samples of these heads, keeping those with the smallest hashes.

        heads: their numbers.
        table: [field, head, place].
        values: [column, head, place].
        """
        all_texts = np.concatenate([self.table[:, heads], table], -1)
        all_values = np.concatenate([self.values[:, heads], values], -1)
        # by hash, then file and line (lexsort sorts by its last key first); [head, place]
        hashes, files, lines = all_texts[:3]
        order = np.lexsort((lines, files, hashes), axis=-1)[..., : self.size]
        self.table[:, heads] = np.take_along_axis(all_texts, order[None], -1)
        self.values[:, heads] = np.take_along_axis(all_values, order[None], -1)

    def text_places(self) -> set[tuple[int, int]]:
        """The texts in the sample, as (file, line)."""
        hashes, files, lines, *_ = self.table  # as `FIELDS`
        is_filled = hashes != MOST
        return set(zip(files[is_filled].tolist(), lines[is_filled].tolist(), strict=True))


def head_hashes(hashes: Ints, heads: int) -> Ints:
    """A 63-bit hash of each text combined with each head's number, [text, head], so that heads
    sample different texts.

    hashes: of the texts, 64 bits each.
    heads: how many there are.
    """
    # splitmix64's constant, the golden ratio, spreads the heads' numbers over all bits
    numbers = np.arange(1, heads + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = splitmix64(hashes.astype(np.uint64)[:, None] ^ numbers[None, :])
    return (mixed >> np.uint64(1)).astype(np.int64)  # one bit less fits a signed number


def decile_of_bins(histogram: Ints) -> Ints:
    """The decile, 0 to 9, of each bin of a histogram [bin]. All texts of a bin go into one decile:
    that of the middle one of them, in the order of values."""
    total = max(int(histogram.sum()), 1)  # without texts, any number to divide by
    below = np.cumsum(histogram) - histogram
    # (below + histogram / 2) / total is the middle text's place, from 0 to 1: in whole numbers
    return np.minimum((2 * below + histogram) * DECILES // (2 * total), DECILES - 1)


def sample_strata(
    histogram: Ints, bins: Ints, is_there: Bools, count: int
) -> list[tuple[int | None, int]]:
    """The texts of a head's sample to show for a metric: at most `count` of each decile, as (decile
    from 0, place), then at most `count` whatever their value, as (None, place). A place is an index
    into the sample; texts with small hashes come first.

    histogram: of the metric's values over all texts, [bin].
    bins: the bin of each of the sample's texts, [place].
    is_there: which of these have the metric, [place].
    """
    deciles = decile_of_bins(histogram)[bins]
    chosen: list[tuple[int | None, int]] = []
    for decile in range(DECILES):
        places = np.flatnonzero(is_there & (deciles == decile))[:count]
        chosen += [(decile, place) for place in places.tolist()]
    chosen += [(None, place) for place in np.flatnonzero(is_there)[:count].tolist()]
    return chosen
