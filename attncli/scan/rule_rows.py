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
    """What a text is used for when heads are described by rules.

    half: 0 for a text that weights are fitted to or that rules are chosen by, 1 for one that is
        measured on.
    chooses: whether it is in the part of its half that decides which rules stay.
    """

    half: int
    chooses: bool


def part_of(text_hash: int) -> TextPart:
    """What a text with this hash is used for: of six equal parts three are of half 1, and one of
    the three of each half chooses."""
    number = text_hash % PARTS
    return TextPart(half=number % 2, chooses=number // 2 == 2)


def pair_budget(heads: int, rules: int, kinds: int) -> int:
    """How many pairs of query and key a whole scan keeps to choose rules by, and as many to measure
    on.

    heads, rules: how many there are; kinds: how many masks the model has.
    """
    return min(PAIRS, NUMBERS // table_height(heads, rules, kinds))


def table_height(heads: int, rules: int, kinds: int) -> int:
    """How many numbers a table of rows holds for each pair of query and key: what identifies it;
    under each mask whether it is seen and what each rule says; and the weight of each head.

    kinds: how many masks the model has.
    """
    return VISIBLE + kinds * (1 + rules) + heads


def rule_memory(heads: int, rules: int, kinds: int) -> int:
    """Bytes that a worker needs for rules, at most: both tables of rows, of floats and then of whole
    numbers, and the sums."""
    table = table_height(heads, rules, kinds) * pair_budget(heads, rules, kinds)
    # for the sizes of sums it is enough to know how many heads and masks there are
    places = HeadKinds((0,), (0, heads), (kinds - 1,))
    sums = sum(int(np.prod(shape)) for shape in sum_shapes(places, rules).values())
    # twice, for both halves of the corpus: 4 bytes for a float and 4 for a whole number of a table,
    # and 8 for each sum
    return 2 * (8 * table + 8 * sums)


def rule_shapes(places: HeadKinds, rules: int, any_size: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that `ShardRules` gives, by name.

    any_size: stands for the pairs of a table, of which there are as many as the texts have.
    """
    shapes = sum_shapes(places, rules)
    height = table_height(places.count, rules, places.kind_count)
    return {
        "rule_texts": (3,),  # how many are fitted to, how many choose, how many are measured on
        "rule_counts": (2,),  # by table, out of how many rows each of its rows was drawn
        **{f"rule_0_{name}": shape for name, shape in shapes.items()},
        **{f"rule_1_{name}": shapes[name] for name in SUMS_OF_SECOND},
        "rule_table_0": (height, any_size),
        "rule_table_1": (height, any_size),
    }


class ShardText(NamedTuple):
    """A text of a shard.

    place: its file and line.
    hash: of its cluster or, without one, of the text; decides what it is used for.
    text_hash: of the text itself; decides which of its rows are kept.
    tokens: how many it has.
    """

    place: tuple[int, int]
    hash: int
    text_hash: int
    tokens: int


class ShardRules:
    """Collects from a shard's texts what rules are fitted to, chosen by and measured on."""

    def __init__(
        self,
        rules: Sequence[HeadRule],
        places: HeadPlaces,
        texts: Sequence[ShardText],
        share: float,
    ) -> None:
        """A collector to which nothing is added yet.

        texts: those of the shard.
        share: the part of the scan's records that is in the shard; it keeps this part of the pairs
            that a scan keeps.
        """
        self._rules = rules
        self._places = places
        # how many texts are FITTED, CHOOSING and MEASURED
        self._texts = np.zeros(3, np.int64)
        # by file and line, what a text is used for
        self._parts = {text.place: part_of(text.hash) for text in texts}

        # by half, sums over all texts, and single rows of those that choose or are measured on
        first_half = [text for text in texts if self._parts[text.place].half == 0]
        second_half = [text for text in texts if self._parts[text.place].half == 1]
        choosing = [text for text in first_half if self._parts[text.place].chooses]
        self._sums = (RuleSums(places, len(rules)), RuleSums(places, len(rules)))
        self._tables = (
            KeptRows(rules, places, choosing, share),
            KeptRows(rules, places, second_half, share),
        )
        # of each text of the batch what it is used for, its file and line, what rules say of it
        self._batch: list[tuple[TextPart, tuple[int, int], TextRules]] = []

    def begin(
        self, places: Sequence[tuple[int, int]], token_lists: Sequence[Sequence[Token]]
    ) -> None:
        """Begin a batch of texts, whose weights come by `add`, and count what each is used for.

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
        """Add weights of a layer of the batch to the sums, and keep the rows that were drawn.

        weights: [text, head, row, key], from row `first` and head `first_head` on.
        """
        batch_weights = backend.numpy(weights)
        kind = self._places.kind_of(layer)  # the index of the layer's mask
        start = self._places.slice_of(layer).start + first_head
        heads = slice(start, start + batch_weights.shape[1])
        for text_weights, (part, place, text) in zip(batch_weights, self._batch, strict=True):
            # some rows at a time: what rules say of many would take much memory
            step = text.rows_at_once
            stop = first + text_weights.shape[1]
            for begin in range(first, stop, step):
                end = min(begin + step, stop)
                rows, visible = text.rows(self._places.masks[kind], begin, end)
                block = PatternBlock(
                    text=0,  # rows come from one text at a time
                    layer=layer,
                    kind=kind,
                    heads=heads,
                    queries=np.arange(begin, end),
                    weights=np.asarray(text_weights[:, begin - first : end - first], np.float64),
                    rules=rows,
                    visible=visible,
                )
                # what rules say is the same for all heads under a mask: it is kept once; which block
                # comes first depends on its layer and heads alone, so either half's sums can tell
                is_first = self._sums[0].is_first(block)
                # the sums of a half are kept apart for texts that choose and those that do not
                self._sums[part.half].add(block, int(part.chooses))
                self._tables[part.half].add(block, place, part, is_first=is_first)

    def arrays(self) -> dict[str, Ints]:
        """The arrays that the shard's file keeps, by name, see `rule_shapes`: whole numbers, sums
        and weights in multiples of 2⁻²⁴."""
        first, second = (sums.arrays for sums in self._sums)
        # out of how many rows each row of a table was drawn
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
    """A sample of the rows of weights of a shard's texts: which rows are kept depends on a hash of
    the text and the query alone.

    chance: the chance of each row of being kept, 0 to 1.
    """

    def __init__(
        self,
        rules: Sequence[HeadRule],
        places: HeadPlaces,
        texts: Sequence[ShardText],
        share: float,
    ) -> None:
        """Draw the rows to keep, and make room for them; none is kept yet.

        texts: those that rows are drawn from.
        share: the part of the pairs that a scan keeps which falls to this shard.
        """
        self._kinds = len(places.masks)
        self._rules = len(rules)
        pair_share = share * pair_budget(places.count, self._rules, self._kinds)
        all_pairs = _count_pairs(places.masks, [text.tokens for text in texts])
        # there may be no texts, and no pairs
        self.chance = min(pair_share / max(all_pairs, 1), 1.0)
        # by a text's file and line, and by query: the number of the row that is kept, the column of
        # its first pair in the table, and the keys of its pairs
        self._kept: dict[tuple[int, int], dict[int, tuple[int, int, Ints]]] = {}
        pairs = 0
        for number, (text, query) in enumerate(_drawn_rows(texts, self.chance)):
            # the keys that the query sees under any mask of the model
            visibility = [sees(mask, np.array([query]), text.tokens)[0] for mask in places.masks]
            keys = np.flatnonzero(np.any(visibility, 0))
            if keys.size < 2:
                continue  # the one weight of such a row is 1 whatever the head does
            self._kept.setdefault(text.place, {})[query] = number, pairs, keys
            pairs += keys.size
        height = table_height(places.count, self._rules, self._kinds)
        self._table = np.zeros((height, pairs), np.float32)
        self._first_head = VISIBLE + self._kinds * (1 + self._rules)  # the line of its weights

    def add(
        self, block: PatternBlock, place: tuple[int, int], part: TextPart, *, is_first: bool
    ) -> None:
        """Keep the rows of a block of one text that were drawn: the weights of its heads and, where
        it is the first block of these rows under its mask, also what identifies the rows and what
        rules say of them.

        place: file and line of the text.
        part: what the text is used for.
        is_first: whether it is the first block of these rows under its mask.
        """
        for query, (number, start, keys) in self._kept.get(place, {}).items():
            row = query - int(block.queries[0])  # the queries of a block follow each other
            if not 0 <= row < block.queries.size:
                continue
            table = self._table[:, start : start + keys.size]  # a view: it is filled in place
            first_line = self._first_head + block.heads.start
            last_line = self._first_head + block.heads.stop
            table[first_line:last_line] = block.weights[:, row, keys]
            if is_first:
                table[ROW] = number
                table[BIN] = distance_bins(np.array([query]), int(keys[-1]) + 1)[0, keys]
                table[CHOOSES] = part.chooses
                table[VISIBLE + block.kind] = block.visible[row, keys]
                first_rule = VISIBLE + self._kinds + block.kind * self._rules
                table[first_rule : first_rule + self._rules] = block.rules[:, row, keys]

    def table(self) -> WholeNumbers:
        """The rows that were kept as whole numbers, [line, pair]: the lines `ROW`, `BIN` and
        `CHOOSES`, a line for each mask from `VISIBLE` on, then under each mask what each rule says,
        then the weights of each head; these two in multiples of 2⁻²⁴."""
        table = np.empty(self._table.shape, np.int32)
        first_fraction = VISIBLE + self._kinds
        # line by line: as a whole, the table would be in memory in float64 as well
        for line, values in enumerate(self._table):
            if line < first_fraction:
                table[line] = values
            else:
                table[line] = to_fixed(values.astype(np.float64))
        return table


def _count_pairs(masks: Sequence[Mask], lengths: Sequence[int]) -> int:
    """Count the pairs of query and key in texts of these lengths: about half of all where no query
    sees a later key. Windows, which see fewer, are not considered.
    """
    # the first of two tokens: does it see the second?
    sees_later = any(sees(mask, np.arange(1), 2)[0, 1] for mask in masks)
    if sees_later:
        return sum(count * count for count in lengths)
    return sum(count * (count + 1) // 2 for count in lengths)


def _drawn_rows(texts: Sequence[ShardText], chance: float) -> Iterator[tuple[ShardText, int]]:
    """Yield every (text, query position) that is drawn: each with this chance, by a hash that every
    machine computes alike."""
    for text in texts:
        queries = np.arange(text.tokens)
        # splitmix64's constant, the golden ratio, spreads positions over all bits
        steps = (queries.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        hashes = splitmix64(np.uint64(text.text_hash) ^ steps)
        for query in np.flatnonzero(hashes < chance * 2.0**64).tolist():
            yield text, query


class RuleTables:
    """The rows that the shards of a scan have kept."""

    def __init__(self) -> None:
        """No shards yet."""
        # by number, (rows to choose by, rows to measure on, for how many rows of the corpus a row
        # of either counts), the tables as `KeptRows.table` gives them
        self.shards: dict[int, tuple[Ints, Ints, Ints]] = {}

    def add_shard(self, shard: int, arrays: Mapping[str, Ints]) -> None:
        """Add a shard's tables, out of the arrays that `ShardRules.arrays` gave."""
        self.shards[shard] = arrays["rule_table_0"], arrays["rule_table_1"], arrays["rule_counts"]

    def table(self, half: int, height: int) -> KeptTable:
        """The rows of all shards in one table, with rows numbered through.

        half: 0 for the rows to choose by, 1 for those to measure on.
        height: how many numbers a pair has, for a table without a shard.
        """
        tables: list[WholeNumbers] = [np.zeros((height, 0), np.int32)]
        counts = [np.zeros(0)]
        rows = 0
        for shard in sorted(self.shards):
            *tables_of_halves, row_counts = self.shards[shard]
            table = tables_of_halves[half].astype(np.int32)
            # the rows of a shard have numbers of its own: they go on from those before
            shard_rows, numbers = np.unique(table[ROW], return_inverse=True)
            table[ROW] = numbers + rows
            rows += shard_rows.size
            tables.append(table)
            counts.append(np.full(table.shape[1], row_counts[half] / UNIT))
        return KeptTable(np.concatenate(tables, 1), np.concatenate(counts))

    def state(self) -> Iterator[bytes]:
        """Yield the bytes that a scan's digest covers, in the order of shards; none for a scan
        without rules."""
        for shard in sorted(self.shards):
            # line by line, as a whole table would be in memory twice; the counts are a single line
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
        """The overlap (Σ min of two weights, mean over rows) of a head's rows with rows that follow
        a profile: the weight of each pair is that of its distance, divided by the row's sum.

        profile: mean weight by distance, [distance].
        """
        # all arrays are [pair]; `numbers` tells the row of each pair
        by_distance = profile[self.bins]
        row_sums = np.bincount(self.numbers, by_distance, self.count)[self.numbers]
        row_sizes = np.bincount(self.numbers, minlength=self.count)[self.numbers]
        # a row to whose distances the profile gives nothing is spread evenly over its keys; the
        # small number only keeps the division from failing there
        expected = np.where(row_sums > 0, by_distance / np.maximum(row_sums, 1e-300), 1 / row_sizes)
        return float((np.minimum(self.weights[head], expected) * self.shares).sum())


def rows_under(
    kept: KeptTable, places: HeadKinds, rules: int, kind: int, which: Bools
) -> RulePairs:
    """The rows of a table under one mask: the pairs that it shows, of queries that see two keys or
    more.

    rules: how many rules there are.
    kind: the index of the mask.
    which: the pairs of the table that count, booleans [pair].
    """
    # the pairs that are seen, then those of rows with two of them, with rows numbered anew
    table = kept.lines
    is_visible = which & (table[VISIBLE + kind] > 0)
    _, numbers, sizes = np.unique(table[ROW, is_visible], return_inverse=True, return_counts=True)
    has_choice = sizes[numbers] >= 2
    _, numbers = np.unique(numbers[has_choice], return_inverse=True)
    pairs = np.flatnonzero(is_visible)[has_choice]

    # a row counts for as many rows as it was drawn out of; the small number is for no rows at all
    counts = kept.counts[pairs]
    _, first_pairs = np.unique(numbers, return_index=True)  # of each row
    shares = counts / max(float(counts[first_pairs].sum()), 1e-300)

    # the lines of the table, as `KeptRows.table` orders them
    first_rule = VISIBLE + places.kind_count + kind * rules
    first_head = VISIBLE + places.kind_count * (1 + rules)
    return RulePairs(
        numbers=numbers,
        bins=np.clip(table[BIN, pairs], 0, None),
        rules=(table[first_rule : first_rule + rules, pairs] / UNIT).astype(np.float32),
        weights=(table[first_head : first_head + places.count, pairs] / UNIT).astype(np.float32),
        shares=shares,
        count=int(numbers.max(initial=-1)) + 1,
    )
