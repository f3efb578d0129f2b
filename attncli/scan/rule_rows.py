"""Heads as rules over a corpus: what each shard tells of them, and what all of them choose.

`attn heads --rules` splits its texts by their place; here a hash of each text (of its document,
where texts are grouped) decides, so that a shard needs to know no other: a third of the texts is
fitted to, a sixth decides which rules stay, half is measured on. What is fitted to goes into sums,
which add up exactly. To choose and to measure takes single rows of weights: a sample of them is
kept, drawn by hash, each shard its share. A row kept counts for as many as it stands for: in a
shard of long texts, where few rows fill the share, for more. Where no more rows are there the
numbers are those of all of them.

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
LEAST_ROWS = 4
"""Rows of a whole scan to expect, at least, where one row takes more pairs than there are to keep."""
ROW, BIN, CHOOSES, VISIBLE = range(4)
"""The first lines of a table of rows: which row a pair is of, its distance, whether its text decides
which rules stay, and, from there on, whether it is seen under each mask."""
SUMS_OF_SECOND = ("pairs", "both", "squares", "used", "rows")
"""What is kept of the texts that are measured on: they are fitted to only to see how stable rules
are."""


class TextPart(NamedTuple):
    """What a text is for. half: 0 fits and chooses, 1 is measured on. chooses: whether it is of the
    part of its half that decides which rules stay."""

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
    """The shapes of the arrays that `ShardRules` gives, by name. any_size: stands for the pairs of a
    table, of which there are as many as the texts have."""
    shapes = sum_shapes(places, rules)
    height = table_height(places.count, rules, places.kind_count)
    return {
        "rule_texts": (3,),
        "rule_rows": (2, places.kind_count),
        **{f"rule_0_{name}": shape for name, shape in shapes.items()},
        **{f"rule_1_{name}": shapes[name] for name in SUMS_OF_SECOND},
        "rule_table_0": (height, any_size),
        "rule_table_1": (height, any_size),
    }


class ShardText(NamedTuple):
    """A text of a shard. place: its file and line. hash: decides what it is for. own: of the text
    itself, by which its rows are drawn. tokens: how many."""

    place: tuple[int, int]
    hash: int
    own: int
    tokens: int


class ShardRules:
    """What a shard's texts tell of rules.

    texts: those of the shard. share: of the records of the scan that are in the shard; of the
    pairs that a scan keeps, it keeps as many.
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
        self._rows = np.zeros((2, places.kind_count))
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
        """Begin a batch of texts. places: file and line of each."""
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
        """Take weights of a layer of the batch, [text, head, row, key], from row `first` and head
        `first_head` on."""
        every = np.asarray(backend.numpy(weights), np.float64)
        kind = self._places.kind_of(layer)
        start = self._places.slice_of(layer).start + first_head
        heads = slice(start, start + every.shape[1])
        for own, (part, place, text) in zip(every, self._batch, strict=True):
            step = next(text.blocks())[1]
            stop = first + own.shape[1]
            for begin in range(first, stop, step):
                end = min(begin + step, stop)
                rows, visible = text.rows(self._places.masks[kind], begin, end)
                block = PatternBlock(
                    0,
                    layer,
                    kind,
                    heads,
                    np.arange(begin, end),
                    own[:, begin - first : end - first],
                    rows,
                    visible,
                )
                is_first = self._sums[0].is_first(block)
                self._sums[part.half].add(block, int(part.chooses))
                self._tables[part.half].add(block, place, part, is_first=is_first)
                if is_first and (part.half or part.chooses):
                    self._rows[part.half, block.kind] += int(block.with_choice.sum())

    def arrays(self) -> dict[str, Ints]:
        """Whole numbers by name, see `rule_shapes`; sums and weights in multiples of 2⁻²⁴."""
        first, second = (sums.arrays for sums in self._sums)
        chances = np.array([[table.chance] for table in self._tables])
        return {
            "rule_texts": self._texts,
            "rule_rows": to_fixed(self._rows / chances),
            **{f"rule_0_{name}": to_fixed(array) for name, array in first.items()},
            **{f"rule_1_{name}": to_fixed(second[name]) for name in SUMS_OF_SECOND},
            "rule_table_0": self._tables[0].table(),
            "rule_table_1": self._tables[1].table(),
        }


class KeptRows:
    """A sample of the rows of texts: those with the smallest hashes of text and query, up to a budget
    of pairs.

    Where one row may take more than the budget, rows are kept by a draw alone, so that many shards
    of long texts do not keep a row each. chance: that of the draw.
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
        whole = pair_budget(places.count, self._rules, self._kinds)
        longest = max((text.tokens for text in texts), default=1)
        self.chance = min(share * max(whole / max(longest, 1), LEAST_ROWS), 1.0)
        budget = share * whole
        if not _is_drawn(texts, self.chance):
            budget = 0.0
        # by text: the queries kept, and for each its number, the place of its first pair, and its keys
        self._kept: dict[tuple[int, int], dict[int, tuple[int, int, Ints]]] = {}
        pairs = 0
        for number, (text, query) in enumerate(_rows_by_hash(texts)):
            if pairs >= budget:
                break
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
        """Keep the rows of a block that were drawn. place: of its text. is_first: whether what rules
        say is kept as well."""
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


def _is_drawn(texts: Sequence[ShardText], chance: float) -> bool:
    """Whether rows of these texts are kept, which happens with this chance: decided by the hashes of
    the texts alone, so that every machine draws the same."""
    seed = np.bitwise_xor.reduce(np.array([text.own for text in texts], np.uint64))
    return float(splitmix64(np.array([seed]))[0]) < chance * 2.0**64


def _rows_by_hash(texts: Sequence[ShardText]) -> Iterator[tuple[ShardText, int]]:
    """Yield every (text, query), those with the smallest hashes first."""
    counts = [text.tokens for text in texts]
    numbers = np.repeat(np.arange(len(texts)), counts)
    queries = np.concatenate([np.arange(0), *map(np.arange, counts)])
    hashes = np.array([text.own for text in texts], np.uint64)[numbers]
    steps = (queries.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for place in np.lexsort((queries, numbers, splitmix64(hashes ^ steps))).tolist():
        yield texts[numbers[place]], int(queries[place])


class RuleTables:
    """The rows that the shards of a scan have kept, put together. shards: by number, of each the two
    tables, and how many rows those kept stand for, [half, kind]."""

    def __init__(self) -> None:
        self.shards: dict[int, tuple[Ints, Ints, Ints]] = {}

    def add_shard(self, shard: int, arrays: Mapping[str, Ints]) -> None:
        """Take a shard's tables."""
        self.shards[shard] = arrays["rule_table_0"], arrays["rule_table_1"], arrays["rule_rows"]

    def table(self, half: int, height: int, kinds: int) -> KeptTable:
        """The rows of all shards, each with a number of its own. height: of a table without a shard.
        kinds: how many masks the model has."""
        tables: list[WholeNumbers] = [np.zeros((height, 0), np.int32)]
        counts = [np.zeros((kinds, 0))]
        rows = 0
        for shard in sorted(self.shards):
            table = self.shards[shard][half].astype(np.int32)
            own, numbers = np.unique(table[ROW], return_inverse=True)
            table[ROW] = numbers + rows
            rows += own.size
            tables.append(table)
            per_row = _rows_per_kept(table, self.shards[shard][2][half] / UNIT)
            counts.append(np.repeat(per_row[:, None], table.shape[1], 1))
        return KeptTable(np.concatenate(tables, 1), np.concatenate(counts, 1))

    def state(self) -> Iterator[bytes]:
        """Yield what a scan's digest is taken over: nothing for a scan without rules."""
        for shard in sorted(self.shards):
            for array in self.shards[shard]:
                for line in array:
                    yield line.astype(np.int64).tobytes()


class KeptTable(Struct, frozen=True, eq=False):
    """Rows kept. lines: see `KeptRows.table`, [line, pair]. counts: as how many rows the row of each
    pair counts under each mask, [kind, pair]."""

    lines: WholeNumbers
    counts: Floats


def _rows_per_kept(table: WholeNumbers, rows: Floats) -> Floats:
    """How many rows each row kept stands for, under each mask, [kind]. table: of one shard. rows: how
    many all of them stand for, [kind]."""
    per_row = np.zeros(rows.size)
    for kind in range(rows.size):
        _, sizes = np.unique(table[ROW, table[VISIBLE + kind] > 0], return_counts=True)
        per_row[kind] = rows[kind] / max(np.count_nonzero(sizes >= 2), 1)
    return per_row


class RulePairs(Struct, frozen=True, eq=False):
    """Rows of all heads under one mask in which a query sees two keys or more. numbers: the row of
    each pair, from 0; bins: its distance; rules: [rule, pair]; weights: of all heads, [head, pair];
    shares: of the mean over rows that falls to the row of each pair; count: how many rows."""

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
    """The rows kept under one mask. which: the pairs that count, [pair]."""
    table = kept.lines
    pairs = which & (table[VISIBLE + kind] > 0)
    _, numbers, sizes = np.unique(table[ROW, pairs], return_inverse=True, return_counts=True)
    wide = sizes[numbers] >= 2
    _, numbers = np.unique(numbers[wide], return_inverse=True)
    at = np.flatnonzero(pairs)[wide]
    counts = kept.counts[kind, at]
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
