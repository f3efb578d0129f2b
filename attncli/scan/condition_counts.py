"""In how many texts each head has a link that a condition of `--find` looks for, out of those in
which it could have one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from attncli.measure.batch_measure import sight_of
from attncli.measure.row_facts import Ints, Sight
from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Spec
from attncli.scan.shard_files import Condition, MatchedLink
from attncli.scan.statistics import to_fixed

CONDITION_ARRAYS = ("find_linked", "find_weight", "find_possible")
"""The arrays of a shard's file, each [condition, head]: texts in which the head has such a link; the
weight of the largest in each of these, added up, in multiples of 2⁻²⁴; and texts in which it sees
such a query and key at all. Shards of earlier versions have none."""
TOGETHER_ARRAYS = ("together_linked", "together_possible")
"""Of several conditions, each [head]: texts in which the head has a link of at least one of them, and
texts in which it sees a query and key of at least one. Shards of earlier versions have none."""

Places = Sequence[tuple[Ints, Ints] | None]
"""Of each text, where the tokens of a condition are as queries and as keys; None where one of the
two is missing."""


def first_key_name(number: int) -> str:
    """The name in a shard's counts of the texts whose first token is the key that condition `number`
    names."""
    return f"first_key_{number}"


class ConditionCounts:
    """Counts for a shard in how many texts each head has a link that meets a condition."""

    def __init__(self, spec: Spec, conditions: Sequence[Condition], starts: Ints) -> None:
        """Counts of nothing yet.

        conditions: those of `--find`.
        starts: the number of each layer's first head, then the number of all heads.
        """
        self._masks = [block.attention.mask for block in spec.blocks]
        self._conditions = conditions
        self._starts = starts
        # what `CONDITION_ARRAYS` and `TOGETHER_ARRAYS` name, [condition, head] and [head]
        shape = (len(conditions), int(starts[-1]))
        self._linked = np.zeros(shape, np.int64)
        self._weight = np.zeros(shape, np.int64)
        self._possible = np.zeros(shape, np.int64)
        self._together_linked = np.zeros(shape[1], np.int64)
        self._together_possible = np.zeros(shape[1], np.int64)
        self._first_keys = np.zeros(len(conditions), np.int64)
        # of the batch: by (condition, text, head) the largest weight of such a link so far, and the
        # (text, head) that have a link of any condition
        self._largest: dict[tuple[int, int, int], int] = {}
        self._linked_texts: set[tuple[int, int]] = set()

    def begin(
        self, places: Sequence[Places], count: int, first_keys: Sequence[Sequence[bool]] = ()
    ) -> None:
        """Begin a batch: count the texts in which each head could have such a link, because it sees
        a key with the condition's token from a query with the condition's token.

        places: where these tokens are, for each condition.
        count: how many tokens each text of the batch has.
        first_keys: for each condition, of each text whether `has_first_key` holds.
        """
        for number, text_first_keys in enumerate(first_keys):
            self._first_keys[number] += sum(text_first_keys)
        self._largest.clear()
        self._linked_texts.clear()
        for layer, mask in enumerate(self._masks):
            first_head = int(self._starts[layer])
            head_count = int(self._starts[layer + 1]) - first_head
            # whether a head could have a link of any condition, [text, head]
            text_count = len(places[0])  # every condition has an entry for each text
            could_link = np.zeros((text_count, head_count), bool)
            for number, text_places in enumerate(places):
                heads = self._searched_heads(number, layer)
                for text, queries_and_keys in enumerate(text_places):
                    if queries_and_keys is not None and heads.size:
                        queries, keys = queries_and_keys
                        sees = _sees(_sight(mask, count), queries, keys)
                        head_sees = np.broadcast_to(sees, head_count)[heads]
                        self._possible[number, first_head + heads] += head_sees
                        could_link[text, heads] |= head_sees
            self._together_possible[first_head : first_head + head_count] += could_link.sum(0)

    def add(self, number: int, links: Sequence[MatchedLink]) -> None:
        """Count links of some query rows that meet a condition: each text counts once for a head,
        with the weight of its largest link.

        number: the index of the condition.
        links: of the batch that `begin` has begun, in any order; one batch may take many calls.
        """
        weights = to_fixed(np.array([link.weight for link in links], np.float64))
        for link, weight in zip(links, weights.tolist(), strict=True):
            head = int(self._starts[link.layer]) + link.head
            # a text counts once for a head and condition, and once for a head and any condition
            of_text = (number, link.text, head)
            if of_text not in self._largest:
                self._linked[number, head] += 1
            if (link.text, head) not in self._linked_texts:
                self._linked_texts.add((link.text, head))
                self._together_linked[head] += 1
            # the sum holds the text's largest link so far: it grows by how much this one is larger
            largest_before = self._largest.get(of_text, 0)
            self._largest[of_text] = max(largest_before, weight)
            self._weight[number, head] += self._largest[of_text] - largest_before

    def first_keys(self) -> dict[str, int]:
        """By `first_key_name`, in how many texts the key that a condition names is the text's first
        token; conditions without such a text are left out."""
        return {
            first_key_name(number): int(texts)
            for number, texts in enumerate(self._first_keys)
            if texts
        }

    def arrays(self) -> Mapping[str, Ints]:
        """The arrays that the shard's file keeps, by name."""
        counts = (self._linked, self._weight, self._possible)
        arrays: dict[str, Ints] = dict(zip(CONDITION_ARRAYS, counts, strict=True))
        if len(self._conditions) > 1:
            together = (self._together_linked, self._together_possible)
            arrays |= dict(zip(TOGETHER_ARRAYS, together, strict=True))
        return arrays

    def _searched_heads(self, number: int, layer: int) -> Ints:
        """The numbers of the heads within a layer that condition `number` searches; all of them
        where the condition names none."""
        pairs = self._conditions[number].heads
        if not pairs:
            return np.arange(int(self._starts[layer + 1] - self._starts[layer]))
        return np.array(
            sorted({head for pair_layer, head in pairs if pair_layer == layer}), np.int64
        )


@lru_cache(64)
def _sight(mask: Mask, count: int) -> Sight:
    """Which keys each of `count` queries sees under a mask; kept, since batches of one length
    follow each other."""
    return sight_of(mask, count)


def _sees(sight: Sight, queries: Ints, keys: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether any of these queries sees any of these keys, booleans [head], or [1] where all heads
    see the same.

    queries, keys: positions.
    """
    first, last = sight.first[:, queries, None], sight.last[:, queries, None]
    visible = (keys >= first) & (keys <= last)  # [head or 1, query, key]
    # where not all keys from first to last are seen, `visibility` tells which, from key `low` on;
    # a key beyond its columns is hidden already, and may take any of them
    if sight.visibility is not None:
        column = np.clip(keys - sight.low, 0, sight.visibility.shape[-1] - 1)
        visible &= sight.visibility[:, queries][:, :, column]
    return np.asarray(visible.any((-2, -1)))
