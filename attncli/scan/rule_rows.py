"""Heads as rules over a corpus: what each shard tells of them, and what all of them choose.

`attn heads --rules` splits its texts by their place; here a hash of each text (of its document,
where texts are grouped) decides, so that a shard needs to know no other: a third of the texts is
fitted to, a sixth decides which rules stay, half is measured on. What is fitted to goes into sums,
which add up exactly. To choose and to measure takes single rows of weights: a sample of them is
kept. In a shard each row is kept with one chance, decided by its own hash, such that the shard keeps
about its share of the pairs that a scan keeps, and a row kept counts for 1 / chance rows. Where no
more rows are there all are kept, and the numbers are those of all of them.

Source of the weights: Horvitz and Thompson, A generalization of sampling without replacement from
a finite universe, 1952, divided by their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.features.rules.attention_rows import (
    HeadKinds,
    HeadPlaces,
    PatternBlock,
    TextRules,
    sees,
)
from attncli.features.rules.head_rules import HeadRule
from attncli.features.rules.rule_fit import RuleSums, Sample, distance_bins, sum_shapes
from attncli.inputs.token import Token
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.mechanism.mask import Mask
from attncli.scan.intake import splitmix64
from attncli.scan.statistics import UNIT, to_fixed

WholeNumbers = np.ndarray[Any, np.dtype[Any]]
PARTS = 6
"""The parts that the hash of a text deals it to."""
FITTED, CHOOSING, MEASURED = range(3)
"""What a text is for, as places in the counts of texts."""
PAIRS = 2**15
"""Pairs of query and key, about, that a scan keeps to choose by, and as many to measure on."""
NUMBERS = 2**24
"""Numbers of the rows kept of either, about, whatever the model: 64 MiB."""
ROW, BIN, CHOOSES, VISIBLE = range(4)
"""The first lines of a table of rows: which row a pair is of, its distance, whether its text decides
which rules stay, and, from there on, whether it is seen under each mask."""
SUMS_OF_SECOND = ("pairs", "both", "squares", "used", "rows")
"""What is kept of the texts that are measured on: they are fitted to only to see how stable rules
are."""


class TextPart(NamedTuple):
    """What a text is for.

    half: 0 fits and chooses, 1 is measured on.
    chooses: whether it is of the part of its half that decides which rules stay.
    """

    half: int
    chooses: bool


def part_of(text_hash: int) -> TextPart:
    """What a text of this hash is for."""
    number = text_hash % PARTS
    return TextPart(number % 2, number // 2 == 2)


def pair_budget(heads: int, rules: int, kinds: int) -> int:
    """Pairs of query and key that a whole scan keeps of either sample."""
    return min(PAIRS, NUMBERS // table_height(heads, rules, kinds))


def table_height(heads: int, rules: int, kinds: int) -> int:
    """Numbers that a pair of a table of rows takes."""
    return VISIBLE + kinds * (1 + rules) + heads


def rule_memory(heads: int, rules: int, kinds: int) -> int:
    """Bytes that a worker needs for rules, at most: both tables of rows, of floats and then of whole
    numbers, and the sums."""
    table = table_height(heads, rules, kinds) * pair_budget(heads, rules, kinds)
    places = HeadKinds((0,), (0, heads), (kinds - 1,))
    sums = sum(int(np.prod(shape)) for shape in sum_shapes(places, rules).values())
    return 2 * (8 * table + 8 * sums)


def rule_shapes(places: HeadKinds, rules: int, any_size: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that `ShardRules` gives, by name.

    any_size: stands for the pairs of a table, of which there are as many as the texts have.
    """
    shapes = sum_shapes(places, rules)
    height = table_height(places.count, rules, places.kind_count)
    return {
        "rule_texts": (3,),
        "rule_counts": (2,),
        **{f"rule_0_{name}": shape for name, shape in shapes.items()},
        **{f"rule_1_{name}": shapes[name] for name in SUMS_OF_SECOND},
        "rule_table_0": (height, any_size),
        "rule_table_1": (height, any_size),
    }


class ShardText(NamedTuple):
    """A text of a shard.

    place: its file and line.
    hash: decides what it is for.
    own: of the text itself, by which its rows are drawn.
    tokens: how many.
    """

    place: tuple[int, int]
    hash: int
    own: int
    tokens: int


class ShardRules:
    """What a shard's texts tell of rules.

    texts: those of the shard.
    share: of the records of the scan that are in the shard; of the pairs that a scan keeps, it
        keeps as many.
    """

    def __init__(
        self,
        rules: Sequence[HeadRule],
        places: HeadPlaces,
        texts: Sequence[ShardText],
        share: float,
    ) -> None:
        self._rules = rules
        self._places = places
        self._sums = (RuleSums(places, len(rules)), RuleSums(places, len(rules)))
        self._texts = np.zeros(3, np.int64)
        self._parts = {text.place: part_of(text.hash) for text in texts}
        first, second = (
            [text for text in texts if self._parts[text.place].half == half] for half in (0, 1)
        )
        choosing = [text for text in first if self._parts[text.place].chooses]
        self._tables = (
            KeptRows(rules, places, choosing, share),
            KeptRows(rules, places, second, share),
        )
        self._batch: list[tuple[TextPart, tuple[int, int], TextRules]] = []

    def begin(
        self, places: Sequence[tuple[int, int]], token_lists: Sequence[Sequence[Token]]
    ) -> None:
        """Begin a batch of texts.

        places: file and line of each.
        """
        self._batch = [
            (self._parts[place], place, TextRules(self._rules, tokens))
            for place, tokens in zip(places, token_lists, strict=True)
        ]
        for part, _, _ in self._batch:
            if part.half:
                kind = MEASURED
            elif part.chooses:
                kind = CHOOSING
            else:
                kind = FITTED
            self._texts[kind] += 1

    def add(
        self, backend: Backend, layer: int, weights: Array, first: int, first_head: int
    ) -> None:
        """Take weights of a layer of the batch.

        weights: [text, head, row, key], from row `first` and head `first_head` on.
        """
        every = backend.numpy(weights)
        kind = self._places.kind_of(layer)
        start = self._places.slice_of(layer).start + first_head
        heads = slice(start, start + every.shape[1])
        for text_weights, (part, place, text) in zip(every, self._batch, strict=True):
            step = text.rows_at_once
            stop = first + text_weights.shape[1]
            for begin in range(first, stop, step):
                end = min(begin + step, stop)
                rows, visible = text.rows(self._places.masks[kind], begin, end)
                block = PatternBlock(
                    text=0,
                    layer=layer,
                    kind=kind,
                    heads=heads,
                    queries=np.arange(begin, end),
                    weights=np.asarray(text_weights[:, begin - first : end - first], np.float64),
                    rules=rows,
                    visible=visible,
                )
                is_first = self._sums[0].is_first(block)
                self._sums[part.half].add(block, int(part.chooses))
                self._tables[part.half].add(block, place, part, is_first=is_first)

    def arrays(self) -> dict[str, Ints]:
        """Whole numbers by name, see `rule_shapes`; sums and weights in multiples of 2⁻²⁴."""
        first, second = (sums.arrays for sums in self._sums)
        counts = np.array([1 / table.chance for table in self._tables])
        return {
            "rule_texts": self._texts,
            "rule_counts": to_fixed(counts),
            **{f"rule_0_{name}": to_fixed(array) for name, array in first.items()},
            **{f"rule_1_{name}": to_fixed(second[name]) for name in SUMS_OF_SECOND},
            "rule_table_0": self._tables[0].table(),
            "rule_table_1": self._tables[1].table(),
        }


class KeptRows:
    """A sample of the rows of texts, each kept or not by the hash of its text and its query.

    share: of the pairs that a scan keeps, how much falls to these texts' shard. chance: of each row
    of being kept.
    """

    def __init__(
        self,
        rules: Sequence[HeadRule],
        places: HeadPlaces,
        texts: Sequence[ShardText],
        share: float,
    ) -> None:
        self._kinds = len(places.masks)
        self._rules = len(rules)
        pair_share = share * pair_budget(places.count, self._rules, self._kinds)
        all_pairs = _count_pairs(places.masks, [text.tokens for text in texts])
        self.chance = min(pair_share / max(all_pairs, 1), 1.0)
        # by text: the queries kept, and for each its number, the place of its first pair, and its keys
        self._kept: dict[tuple[int, int], dict[int, tuple[int, int, Ints]]] = {}
        pairs = 0
        for number, (text, query) in enumerate(_drawn_rows(texts, self.chance)):
            visibility = [sees(mask, np.array([query]), text.tokens)[0] for mask in places.masks]
            keys = np.flatnonzero(np.any(visibility, 0))
            if keys.size < 2:
                continue  # there is nothing to say of it
            self._kept.setdefault(text.place, {})[query] = number, pairs, keys
            pairs += keys.size
        height = table_height(places.count, self._rules, self._kinds)
        self._table = np.zeros((height, pairs), np.float32)
        self._heads = VISIBLE + self._kinds * (1 + self._rules)

    def add(
        self, block: PatternBlock, place: tuple[int, int], part: TextPart, *, is_first: bool
    ) -> None:
        """Keep the rows of a block that were drawn.

        place: of its text.
        is_first: whether what rules say is kept as well.
        """
        for query, (number, start, keys) in self._kept.get(place, {}).items():
            row = query - int(block.queries[0])
            if not 0 <= row < block.queries.size:
                continue
            pairs = slice(start, start + keys.size)
            table = self._table[:, pairs]
            table[self._heads + block.heads.start : self._heads + block.heads.stop] = block.weights[
                :, row, keys
            ]
            if is_first:
                table[ROW] = number
                table[BIN] = distance_bins(np.array([query]), int(keys[-1]) + 1)[0, keys]
                table[CHOOSES] = part.chooses
                table[VISIBLE + block.kind] = block.visible[row, keys]
                rules = VISIBLE + self._kinds + block.kind * self._rules
                table[rules : rules + self._rules] = block.rules[:, row, keys]

    def table(self) -> WholeNumbers:
        """The rows as whole numbers, [line, pair]: the lines of `ROW`, `BIN`, `CHOOSES` and `VISIBLE`,
        then under each mask what each rule says, then the weights of each head; these in multiples
        of 2⁻²⁴."""
        table = np.empty(self._table.shape, np.int32)
        first = VISIBLE + self._kinds
        for line, values in enumerate(self._table):  # whole, it would be there in float64 as well
            table[line] = values if line < first else to_fixed(values.astype(np.float64))
        return table


def _count_pairs(masks: Sequence[Mask], lengths: Sequence[int]) -> int:
    """Count the pairs of query and key in texts of these lengths: about half of all where no query
    sees a later key. Windows, which see fewer, are not considered.
    """
    ahead = any(sees(mask, np.arange(1), 2)[0, 1] for mask in masks)
    if ahead:
        return sum(count * count for count in lengths)
    return sum(count * (count + 1) // 2 for count in lengths)


def _drawn_rows(texts: Sequence[ShardText], chance: float) -> Iterator[tuple[ShardText, int]]:
    """Yield every (text, query) that is drawn: each with this chance, by a hash that every machine
    computes alike."""
    for text in texts:
        queries = np.arange(text.tokens)
        steps = (queries.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        hashes = splitmix64(np.uint64(text.own) ^ steps)
        for query in np.flatnonzero(hashes < chance * 2.0**64).tolist():
            yield text, query


class RuleTables:
    """The rows that the shards of a scan have kept, put together. shards: by number, of each the two
    tables, and for how many rows a row of either counts."""

    def __init__(self) -> None:
        self.shards: dict[int, tuple[Ints, Ints, Ints]] = {}

    def add_shard(self, shard: int, arrays: Mapping[str, Ints]) -> None:
        """Take a shard's tables."""
        self.shards[shard] = arrays["rule_table_0"], arrays["rule_table_1"], arrays["rule_counts"]

    def table(self, half: int, height: int) -> KeptTable:
        """The rows of all shards, each with a number of its own.

        height: of a table without a shard.
        """
        tables: list[WholeNumbers] = [np.zeros((height, 0), np.int32)]
        counts = [np.zeros(0)]
        rows = 0
        for shard in sorted(self.shards):
            table = self.shards[shard][half].astype(np.int32)
            own, numbers = np.unique(table[ROW], return_inverse=True)
            table[ROW] = numbers + rows
            rows += own.size
            tables.append(table)
            counts.append(np.full(table.shape[1], self.shards[shard][2][half] / UNIT))
        return KeptTable(np.concatenate(tables, 1), np.concatenate(counts))

    def state(self) -> Iterator[bytes]:
        """Yield what a scan's digest is taken over: nothing for a scan without rules."""
        for shard in sorted(self.shards):
            for array in self.shards[shard]:
                for line in np.atleast_2d(array):
                    yield line.astype(np.int64).tobytes()


class KeptTable(Struct, frozen=True, eq=False):
    """Rows kept.

    lines: see `KeptRows.table`, [line, pair].
    counts: for how many rows the row of each pair counts, [pair].
    """

    lines: WholeNumbers
    counts: Floats


class RulePairs(Struct, frozen=True, eq=False):
    """Rows of all heads under one mask in which a query sees two keys or more.

    numbers: the row of each pair, from 0.
    bins: its distance.
    rules: [rule, pair].
    weights: of all heads, [head, pair].
    shares: how much each pair's row counts in a mean over rows, these sum to 1 over rows.
    count: how many rows.
    """

    numbers: Ints
    bins: Ints
    rules: Sample
    weights: Sample
    shares: Floats
    count: int

    def distance_overlap(self, head: int, profile: Floats) -> float:
        """The overlap of a head with its mean weight by distance, [distance]."""
        said = profile[self.bins]
        totals = np.bincount(self.numbers, said, self.count)[self.numbers]
        even = np.bincount(self.numbers, minlength=self.count)[self.numbers]
        said = np.where(totals > 0, said / np.maximum(totals, 1e-300), 1 / np.maximum(even, 1))
        return float((np.minimum(self.weights[head], said) * self.shares).sum())


def rows_under(
    kept: KeptTable, places: HeadKinds, rules: int, kind: int, which: Bools
) -> RulePairs:
    """The rows kept under one mask.

    which: the pairs that count, [pair].
    """
    table = kept.lines
    pairs = which & (table[VISIBLE + kind] > 0)
    _, numbers, sizes = np.unique(table[ROW, pairs], return_inverse=True, return_counts=True)
    wide = sizes[numbers] >= 2
    _, numbers = np.unique(numbers[wide], return_inverse=True)
    at = np.flatnonzero(pairs)[wide]
    counts = kept.counts[at]
    first_pairs = np.unique(numbers, return_index=True)[1]
    shares = counts / max(float(counts[first_pairs].sum()), 1e-300)
    start = VISIBLE + places.kind_count + kind * rules
    first_head = VISIBLE + places.kind_count * (1 + rules)
    return RulePairs(
        numbers,
        np.clip(table[BIN, at], 0, None),
        (table[start : start + rules, at] / UNIT).astype(np.float32),
        (table[first_head : first_head + places.count, at] / UNIT).astype(np.float32),
        shares,
        int(numbers.max(initial=-1)) + 1,
    )
