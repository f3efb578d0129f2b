"""Which token looks at which, head by head: counts of rows' strongest links, within bounded memory.

Heads rest on the first token, special tokens, line breaks and separators whatever a text says, so
these keys are left out. Rows that see fewer than two others choose nothing, and do not count. The
strongest link of each other row is a pair of tokens. A shard keeps the most frequent pairs of each
head, and how often one that it let go of may have come. What is told of a pair is a count and the
most that it can be: equal unless a shard let it go. Beside them stand how often each token asks,
and how often each would be looked at by chance.
Source: Misra and Gries, Finding repeated elements, 1982; Agarwal et al., Mergeable summaries, 2013.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attncli.inputs.token import Token
from attncli.measure.batch_measure import sight_of
from attncli.measure.rest import rest_keys
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Spec
from attncli.scan.statistics import to_fixed

KEPT = 256
"""Pairs that a shard keeps of each head."""
PENDING = 1 << 21
"""Links that are held before they are counted, over all heads."""
DISTINCT, MOST_DISTINCT = 1 << 15, 5 << 20
"""Pairs of a head that a shard counts at once, and of all heads together; beyond twice as many the
rarest are let go of."""
NOBODY = -1
"""A place that no pair has taken."""
SHIFT = 32
"""A pair is query id · 2³² + key id."""
PLACE_BITS, TEXT_BITS = 22, 19
"""Bits of a token's place among those of the links that are held, and of a text's: a link, which is
both of its tokens and its text, is one number, so that sorting brings the links of a pair together,
text by text."""
COUNTED = ("counts", "texts", "squares")
"""What is counted of a pair: links, texts with one at least, and the squares of the texts' numbers
of links.
"""


class LinkCounts:
    """How often one head's strongest links join each pair of (query token, key token).

    codes: the pairs as query id · 2³² + key id, ascending.
    counts: of each pair the numbers that `COUNTED` names, [what, pair].
    lost_count: how many links at most any pair, counted here or not, may have had besides, because
        pairs were dropped.
    """

    def __init__(self) -> None:
        self.codes: Ints = np.zeros(0, np.int64)
        self.counts: Ints = np.zeros((len(COUNTED), 0), np.int64)
        self.lost_count = 0

    def add(self, codes: Ints, counts: Ints) -> None:
        """Add to the counts of pairs; pairs that are new are inserted.

        codes: the pairs, ascending and each once.
        counts: of each the numbers that `COUNTED` names, [what, pair].
        """
        if not self.codes.size:
            self.codes = codes
            self.counts = counts
            return
        # where each pair is, or, if it is new, before which pair it belongs
        places = np.searchsorted(self.codes, codes)
        # a pair that belongs behind the last is compared with the last, which is another pair
        compared_places = np.minimum(places, self.codes.size - 1)
        is_counted = self.codes[compared_places] == codes
        self.counts[:, places[is_counted]] += counts[:, is_counted]
        is_new = ~is_counted
        self.codes = np.insert(self.codes, places[is_new], codes[is_new])
        self.counts = np.insert(self.counts, places[is_new], counts[:, is_new], 1)

    def prune(self, most: int) -> int:
        """Keep the `most` most frequent pairs, the smaller code first of equal ones; returns the
        largest count among those dropped, 0 where none were."""
        if self.codes.size <= most:
            return 0
        # by falling number of links (lexsort sorts by its last key first)
        order = np.lexsort((self.codes, -self.counts[0]))
        largest_dropped = int(self.counts[0, order[most]])
        kept_places = np.sort(order[:most])  # so that codes stay ascending
        self.codes = self.codes[kept_places]
        self.counts = self.counts[:, kept_places]
        return largest_dropped


def count_links(links: Ints, ranks: Ints, ids: Ints) -> tuple[Ints, Ints]:
    """The distinct (query token, key token) pairs among links, as ascending codes, and their counts
    of `COUNTED`, [what, pair].

    links: one whole number each, from the highest bits on the query token's place, the key token's
        place (`PLACE_BITS` each) and the text's number (`TEXT_BITS`). Places number tokens in the
        order in which they were met.
    ranks: by place, the index of the token's id in `ids`.
    ids: of all these tokens, ascending.
    """
    # as ids are numbered by rank, sorting by ranks brings pairs into the order of their codes
    place_mask = (1 << PLACE_BITS) - 1
    queries = ranks[links >> PLACE_BITS + TEXT_BITS]
    keys = ranks[links >> TEXT_BITS & place_mask]
    links = (queries << PLACE_BITS | keys) << TEXT_BITS | (links & (1 << TEXT_BITS) - 1)
    links.sort()

    # a number is a pair and a text, and equal ones follow each other: where each begins, and how many
    # links the pair has in that text; `NOBODY` differs from any, so that the first is a beginning
    starts_of_texts = np.flatnonzero(np.diff(links, prepend=NOBODY))
    link_counts = np.diff(starts_of_texts, append=links.size)

    # where the texts of a pair begin
    pairs = links[starts_of_texts] >> TEXT_BITS
    starts_of_pairs = np.flatnonzero(np.diff(pairs, prepend=NOBODY))
    pairs_of_ranks = pairs[starts_of_pairs]
    query_ids = ids[pairs_of_ranks >> PLACE_BITS]
    key_ids = ids[pairs_of_ranks & place_mask]
    codes = (query_ids << SHIFT) + key_ids
    # as `COUNTED`: links, texts with one at least, squares of the texts' numbers of links
    sums = [
        np.add.reduceat(link_counts, starts_of_pairs),
        np.diff(starts_of_pairs, append=pairs.size),
        np.add.reduceat(link_counts**2, starts_of_pairs),
    ]
    return codes, np.stack(sums)


def distinct_pairs(heads: int) -> int:
    """How many distinct pairs of tokens are kept for each head while a shard is counted, in a model
    of `heads` heads in all: fewer, the more heads share the memory."""
    return min(DISTINCT, max(MOST_DISTINCT // max(heads, 1), KEPT))


def pairs_memory(heads: int) -> int:
    """Bytes that counting links takes at most, for a model of `heads` heads in all."""
    # numbers of 8 bytes: the links that are held, and of each pair its code and its counts
    return 8 * (PENDING + heads * 2 * distinct_pairs(heads) * (1 + len(COUNTED)))


def mask_places(spec: Spec) -> tuple[int, ...]:
    """For each layer in order, the index of its attention mask among the model's distinct masks,
    numbered by first appearance."""
    # equal masks are one: they have the same `repr`
    names = [repr(block.attention.mask) for block in spec.blocks]
    return tuple(list(dict.fromkeys(names)).index(name) for name in names)


class ShardLinks:
    """Counts which pairs of tokens the strongest links of a shard's query rows join, for each head."""

    def __init__(self, spec: Spec, starts: Ints) -> None:
        """Counts of nothing yet.

        starts: the number of each layer's first head, then the number of all heads.
        """
        self._starts = starts
        self._mask_of_layer = mask_places(spec)
        self._masks = {repr(block.attention.mask): block.attention.mask for block in spec.blocks}
        # by mask, which rows of the batch have a choice of where to look, [text, query]
        self._choosing: list[Bools] = []
        self._heads = [LinkCounts() for _ in range(int(starts[-1]))]
        heads = len(self._heads)
        self._distinct = distinct_pairs(heads)

        # The links that are held until they are counted, [head, link], and by layer how many. One
        # array for all: pieces of their own, living side by side with a batch's, would scatter
        # memory.
        self._links = np.empty((heads, PENDING // max(heads, 1)), np.int64)
        self._sizes = [0] * len(self._mask_of_layer)
        # by token id, its place in the order in which the tokens of held links were met
        self._places: dict[int, int] = {}
        self._text_numbers = np.arange(0)  # of the batch's texts among those of held links

        # by token id: of each mask how many rows ask with it and the weight it would get from even
        # rows, [2 · masks]; and its text
        self._tokens: dict[int, Ints] = {}
        self._texts: dict[int, str] = {}

    def begin(self, batch: Sequence[Sequence[Token]]) -> Ints | None:
        """Begin a batch of texts of equal length and count its tokens: returns for `add` the place
        of each token's id among those of the links that are held, [text, token]; None where a token
        has no id, as links cannot be counted then."""
        ids = [[NOBODY if token.id is None else token.id for token in tokens] for tokens in batch]
        table = np.array(ids, np.int64)
        if (table < 0).any():
            return None
        for tokens in batch:
            for token in tokens:
                # no id is None here, or the table would hold `NOBODY`, which is below 0
                self._texts.setdefault(int(token.id or 0), token.text)

        # how many rows have each token as their query, and how much weight it would receive if all
        # rows spread theirs evenly; `which` tells the id of each token of `table`, by index
        present_ids, which = np.unique(table, return_inverse=True)
        which = which.reshape(table.shape)
        count = table.shape[1]
        # [text, key]: the keys on which heads put weight whatever the text says
        rest = np.stack([rest_keys(tokens) for tokens in batch])
        self._choosing = [choosing_of_texts(mask, rest) for mask in self._masks.values()]
        even_weights = [
            np.stack([even_weight(mask, count, text_rest.tobytes()) for text_rest in rest])
            for mask in self._masks.values()
        ]
        # [2 · masks, id]: first of each mask the rows, then of each mask the weight
        sums = np.zeros((2 * len(self._masks), present_ids.size), np.int64)
        for id_sums, numbers in zip(sums, (*self._choosing, *even_weights), strict=True):
            of_tokens = np.broadcast_to(numbers, table.shape).astype(np.int64)  # [text, token]
            np.add.at(id_sums, which.ravel(), of_tokens.ravel())
        for index, token_id in enumerate(present_ids.tolist()):
            self._tokens[token_id] = self._tokens.get(token_id, 0) + sums[:, index]

        # number the texts and tokens; where the held links are too many for that, count them first
        if self._text_numbers.size:
            first = int(self._text_numbers[-1]) + 1
        else:
            first = 0
        is_full = (
            len(self._places) + present_ids.size > 1 << PLACE_BITS
            or first + len(table) > 1 << TEXT_BITS
        )
        if max(self._sizes) + table.size > self._links.shape[1] or is_full:
            self._count_held_links()
            first = 0
            # a single long text may have more links than the buffer was made for
            if table.size > self._links.shape[1]:
                self._links = np.empty((len(self._heads), table.size), np.int64)
        self._text_numbers = np.arange(first, first + len(table))
        # a token that is new among those of held links gets the next place
        places = []
        for token_id in present_ids.tolist():
            places.append(self._places.setdefault(token_id, len(self._places)))
        return np.array(places, np.int64)[which]

    def add(self, places: Ints, layer: int, keys: Ints) -> None:
        """Hold the strongest links of a layer of the batch until they are counted; rows without a
        choice of where to look are left out.

        places: what `begin` returned for the batch.
        keys: the position of the key with each row's largest weight, [text, head, query].
        """
        choosing = self._choosing[self._mask_of_layer[layer]]
        if not choosing.any():
            return
        # each link as one number, as `count_links` reads it: query, key, text; [text, head, query]
        queries_and_texts = places << PLACE_BITS + TEXT_BITS | self._text_numbers[:, None]
        places_by_head = np.broadcast_to(places[:, None, :], keys.shape)
        key_places = np.take_along_axis(places_by_head, keys, -1)
        links = queries_and_texts[:, None, :] | key_places << TEXT_BITS
        # every head of the layer has as many links, one for each row that has a choice
        start = self._sizes[layer]
        size = int(choosing.sum())
        heads = slice(int(self._starts[layer]), int(self._starts[layer + 1]))
        self._links[heads, start : start + size] = links.transpose(1, 0, 2)[:, choosing]
        self._sizes[layer] += size

    def _count_held_links(self) -> None:
        """Add the links recorded so far to the heads' counts, and empty the buffer."""
        # links hold tokens by the order in which they were met; they are counted in that of ids
        ids = np.array(list(self._places), np.int64)
        order = np.argsort(ids)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(ids.size)
        ids = ids[order]
        for layer, size in enumerate(self._sizes):
            if size == 0:
                continue
            for place in range(int(self._starts[layer]), int(self._starts[layer + 1])):
                head = self._heads[place]
                head.add(*count_links(self._links[place, :size], ranks, ids))
                # the rarest pairs are let go where there are twice as many as are kept
                if head.codes.size > 2 * self._distinct:
                    head.lost_count += head.prune(self._distinct)
        self._sizes = [0] * len(self._sizes)
        self._text_numbers = np.arange(0)
        self._places.clear()

    def arrays(self) -> dict[str, Ints]:
        """The arrays that the shard's file keeps, by name.

        `link_pairs` [head, place]: the codes of the most frequent pairs, `NOBODY` behind the last.
        `link_counts`, `link_texts`, `link_squares` [head, place]: their counts, see `COUNTED`.
        `link_lost` [2, head]: how many links a pair may have had that were not counted, first of
        any pair, then besides of a pair that is not among those kept. `link_tokens` [1 + 2 · masks,
        token]: each token's id; under each mask how many query rows have this token; and under each
        mask the weight that it would get if all rows were even, in multiples of 2⁻²⁴.
        """
        self._count_held_links()
        pairs = np.full((len(self._heads), KEPT), NOBODY, np.int64)
        counts = np.zeros((len(COUNTED), len(self._heads), KEPT), np.int64)
        lost_counts = np.zeros((2, len(self._heads)), np.int64)
        for place, head in enumerate(self._heads):
            # `prune` drops all but the `KEPT` most frequent pairs, and tells the largest it dropped
            lost_counts[0, place] = head.lost_count
            lost_counts[1, place] = head.prune(KEPT)
            pairs[place, : head.codes.size] = head.codes
            counts[:, place, : head.codes.size] = head.counts
        # as `link_tokens`: an id, then its numbers for each mask
        ids = sorted(self._tokens)
        table = np.zeros((1 + 2 * len(self._masks), len(ids)), np.int64)
        for place, number in enumerate(ids):
            table[0, place] = number
            table[1:, place] = self._tokens[number]
        return {
            "link_pairs": pairs,
            **{f"link_{name}": row for name, row in zip(COUNTED, counts, strict=True)},
            "link_lost": lost_counts,
            "link_tokens": table,
        }

    def token_texts(self, pairs: Ints) -> list[tuple[int, str]]:
        """(id, text) of each token in these pair codes, ascending by id; `NOBODY` entries are
        skipped.
        """
        kept_pairs = pairs[pairs != NOBODY]
        numbers = {*(kept_pairs >> SHIFT).tolist(), *(kept_pairs & ((1 << SHIFT) - 1)).tolist()}
        return [(number, self._texts[number]) for number in sorted(numbers)]


# Heads rest on the first token, special tokens and separators whatever the text says, so links to
# these keys are not counted. A row that sees two other keys or more has a choice of where to look.


def choosing_of_texts(mask: Mask, rest: Bools) -> Bools:
    """Which queries of a batch have a choice of where to look, booleans [text, query]: they see two
    keys or more besides those where heads rest (the first token and the like).

    rest: the keys where heads rest, [text, key].
    """
    count = rest.shape[-1]
    return np.stack([choosing_rows(mask, count, row.tobytes()) for row in rest])


@lru_cache(256)
def choosing_rows(mask: Mask, count: int, rest_bytes: bytes) -> Bools:
    """Which of `count` queries see two keys or more in every head, not counting those where heads
    rest, booleans [query]; the others have no choice of where to look.

    rest_bytes: the keys where heads rest, booleans [key], as bytes, since the cache needs a value
        that can be hashed.
    """
    visibility = _visible_beyond_rest(mask, count, rest_bytes)
    return np.asarray((visibility.sum(-1) >= 2).all(0))


@lru_cache(256)
def even_weight(mask: Mask, count: int, rest_bytes: bytes) -> Ints:
    """The weight that each of `count` keys would receive if attention were even, summed over rows,
    [key], in multiples of 2⁻²⁴.

    Each row spreads a weight of 1 evenly over the keys that it sees and where heads do not rest;
    rows that see fewer than two such keys are left out. Where heads see different keys, this is the
    mean over heads.

    rest_bytes: the keys where heads rest (the first token and the like), booleans [key], as bytes,
        since the cache needs a value that can be hashed.
    """
    visibility = _visible_beyond_rest(mask, count, rest_bytes)
    keys_seen = visibility.sum(-1, keepdims=True)
    spread: Floats = visibility / np.maximum(keys_seen, 1)  # [head, query, key]
    counted_rows = choosing_rows(mask, count, rest_bytes)
    return to_fixed(spread[:, counted_rows].sum(1).mean(0))


def _visible_beyond_rest(mask: Mask, count: int, rest_bytes: bytes) -> Bools:
    """Which keys each query sees without those where heads rest, booleans [head or 1, query, key].

    rest_bytes: the keys where heads rest, booleans [key], as bytes.
    """
    sight = sight_of(mask, count)
    visibility = np.broadcast_to(sight.visibility_matrix(count), (len(sight.count), count, count))
    beyond: Bools = visibility & ~np.frombuffer(rest_bytes, np.bool_)
    return beyond


class PairCount(NamedTuple):
    """How often a head's query rows with one token have their largest weight on another token.

    query, key: token ids.
    links: how often.
    most: an upper bound on it, as shards keep only frequent pairs.
    texts: with one such link at least.
    squares: sum of the squares of the texts' numbers of links.
    chance: the links to expect if each row with the query's token drew its key as often as even
        attention looks at each token.
    """

    query: int
    key: int
    links: int
    most: int
    texts: int
    squares: int
    chance: float


class TotalLinks:
    """The counts of pairs of tokens over all shards, which are added in their order.

    texts: the text of each token in the pairs, by id.
    """

    def __init__(self) -> None:
        self._heads: list[LinkCounts] = []
        # the sums of the shards' `link_lost`, [2, head]; and for each head, by pair, how much of
        # its second row comes from shards that kept the pair, and so did not lose it
        self._lost_counts: Ints = np.zeros((2, 0), np.int64)
        self._kept: list[dict[int, int]] = []
        self._tokens: dict[int, Ints] = {}  # as in `ShardLinks`
        self.texts: dict[int, str] = {}

    def add_shard(self, arrays: Mapping[str, Ints], texts: Sequence[tuple[int, str]]) -> None:
        """Add the arrays that `ShardLinks.arrays` gave for the next shard.

        texts: (id, text) of each token in its pairs.
        """
        pairs = arrays["link_pairs"]
        if not self._heads:
            self._heads = [LinkCounts() for _ in pairs]
            self._kept = [{} for _ in pairs]
            self._lost_counts = np.zeros((2, len(pairs)), np.int64)
        self._lost_counts += arrays["link_lost"]
        most = distinct_pairs(len(pairs))
        for place, (head, kept) in enumerate(zip(self._heads, self._kept, strict=True)):
            is_pair = pairs[place] != NOBODY  # the array's places behind the last pair are `NOBODY`
            head.add(
                pairs[place][is_pair],
                np.stack([arrays[f"link_{name}"][place][is_pair] for name in COUNTED]),
            )
            # what this shard may have lost of a pair, it has not lost of those that it kept
            unseen = int(arrays["link_lost"][1, place])
            if unseen:
                for code in pairs[place][is_pair].tolist():
                    kept[code] = kept.get(code, 0) + unseen
            # the rarest pairs are let go where there are twice as many as are kept
            if head.codes.size > 2 * most:
                dropped = head.prune(most)  # the largest count of a pair that was let go
                self._lost_counts[0, place] += dropped
                codes_left = set(head.codes.tolist())
                self._kept[place] = {
                    code: number for code, number in kept.items() if code in codes_left
                }
        # of each token its id, then its numbers for each mask
        for token_id, *counts in arrays["link_tokens"].T.tolist():
            self._tokens[token_id] = self._tokens.get(token_id, 0) + np.array(counts, np.int64)
        self.texts.update(texts)

    @property
    def rows(self) -> int:
        """How many query rows each head counts; where layers have different masks, the largest such
        number.
        """
        return int(self._rows_of_masks.max(initial=0))

    @property
    def _rows_of_masks(self) -> Ints:
        """How many query rows are counted under each distinct mask, [mask]."""
        # [token, 2 · masks]: the first half counts rows, the second adds up weight
        token_numbers = np.array(list(self._tokens.values()), np.int64)
        if not token_numbers.size:  # no shard with a counted text
            return np.zeros(1, np.int64)
        rows: Ints = token_numbers[:, : token_numbers.shape[1] // 2].sum(0)
        return rows

    def most_frequent(self, head: int, mask: int, count: int) -> list[PairCount]:
        """The `count` most frequent pairs of tokens of a head, most frequent first.

        mask: the index of its layer's mask, as of `mask_places`.
        """
        counts = self._heads[head]
        # by falling number of links, the smaller code first of equal ones
        order = np.lexsort((counts.codes, -counts.counts[0]))[:count]
        rows = int(self._rows_of_masks[mask])
        pairs = []
        masks = len(self._rows_of_masks)
        for place in order.tolist():
            code = int(counts.codes[place])
            links, texts, squares = counts.counts[:, place].tolist()
            query = code >> SHIFT
            key = code & ((1 << SHIFT) - 1)
            # how many links of the pair shards may have dropped
            unseen = int(self._lost_counts[:, head].sum()) - self._kept[head].get(code, 0)
            # the share of all rows' weight that even rows would put on the key's token; `_tokens`
            # has for each mask the rows that ask with a token, then for each mask this weight, in
            # multiples of 2⁻²⁴
            share = float(self._tokens[key][masks + mask]) / float(1 << 24) / rows
            chance = float(self._tokens[query][mask]) * share
            pairs.append(PairCount(query, key, links, links + unseen, texts, squares, chance))
        return pairs

    def state(self) -> bytes:
        """The bytes of all counts, as the scan's digest covers them."""
        parts = [
            part for head in self._heads for part in (head.codes.tobytes(), head.counts.tobytes())
        ]
        tokens = np.array(
            [[number, *self._tokens[number].tolist()] for number in sorted(self._tokens)], np.int64
        )
        return b"".join([*parts, self._lost_counts.tobytes(), tokens.tobytes()])


def links_are_whole(arrays: Mapping[str, Ints], texts: Collection[int]) -> bool:
    """Whether the link arrays read from a shard's file are valid: pairs ascending and each once,
    their tokens counted and among `texts` (ids with a known text), no count below 0."""
    pairs = arrays["link_pairs"].astype(np.int64)
    ids = arrays["link_tokens"][0].astype(np.int64)
    if not (np.diff(ids) > 0).all():
        return False
    for row in pairs:
        if not (np.diff(row[row != NOBODY]) > 0).all():
            return False
    for name in (*COUNTED, "lost", "tokens"):
        if not (arrays[f"link_{name}"] >= 0).all():
            return False
    # a pair is one number: the query's id in its upper bits, the key's in the lower `SHIFT`
    codes = pairs[pairs != NOBODY]
    queries = codes >> SHIFT
    keys = codes & ((1 << SHIFT) - 1)
    linked = {*queries.tolist(), *keys.tolist()}
    return linked <= set(ids.tolist()) and linked <= set(texts)
