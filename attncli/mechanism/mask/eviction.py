"""Masks that a full cache of keys makes: which keys are forgotten is decided by the weights, as the
text goes on.

A key that is forgotten never returns, so that what is kept of a mask is, for each key, the last
query that sees it: it grows with the text, not with its square. Heads that share keys and values
share what is forgotten. Weights that decide are those of scaled and capped scores over what is
still there; other masks, and biases by position, play no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError, UsageError
from attncli.language import Message, message
from attncli.mechanism.mask.kind import DerivedMask, Ints, Mask, Pairs, Reach, Spelling

Floats = np.ndarray[Any, np.dtype[np.float64]]
WINDOW, POOL = 64, 5
"""What `snapkv` takes where no numbers follow: the window and the kernel of NVIDIA/kvpress."""


def check_budget(spec: str, budget: int, keys: int) -> None:
    """Raise InputError for a budget above the number of keys, with which nothing would be evicted."""
    if budget > keys:
        what = message(
            "{spec} keeps {budget:,} keys, and the text has {keys:,}",
            spec=spec,
            budget=budget,
            keys=keys,
        )
        raise InputError(what, expected=message("a budget of at most {keys:,}", keys=keys))


class Eviction(Mask, frozen=True):
    """Base of the masks of a KV cache of `budget` keys that evicts by weights, vectors or chance."""

    budget: int

    spelling: ClassVar[Spelling | None] = None
    depends_on = "vectors"

    def sees(self, pairs: Pairs) -> Array:
        """Raise TypeError: which keys are forgotten is known only after `bind`."""
        raise unbound_error(self)

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from key 0 to the query's own; not all in
        between are visible.
        """
        return before(i)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: at most `budget` keys up to each
        query's own.
        """
        return cached_pairs(self.budget, n)

    def check_size(self, queries: int, keys: int) -> None:
        """Raise InputError for a budget above the number of keys."""
        check_budget(self.spec(), self.budget, keys)


@final
class HeavyHitters(Eviction, frozen=True):
    """A KV cache of `budget` keys (H2O) that evicts the one with the least mean weight over the
    queries that saw it, never one of the `recent` last keys.

    Source: Zhang et al., H2O: Heavy-Hitter Oracle, 2023 (arXiv 2306.14048); the mean over queries,
    and the mean over heads that share keys, as in NVIDIA/kvpress, observed attention.
    """

    recent: int

    spelling = Spelling("h2o", "h2o:BUDGET or h2o:BUDGET,RECENT", (1, 2), 1, "h2o:4,2")

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The cache that `h2o:BUDGET` or `h2o:BUDGET,RECENT` means, from its numbers: half of the
        budget is for recent keys where that is left out. Raises UsageError for more recent keys
        than the budget."""
        budget = numbers[0]
        if len(numbers) > 1:
            recent = numbers[1]
        else:
            recent = max(budget // 2, 1)
        if recent > budget:
            what = message(
                "mask {spec} keeps more recent keys than it has room for", spec=repr(spec)
            )
            raise UsageError(what, expected="h2o:BUDGET,RECENT, with RECENT up to BUDGET")
        return HeavyHitters(budget, recent)

    def describe(self) -> Message:
        """The sentence with the budget and how many last keys it always holds."""
        return message(
            "a cache of {budget} keys: the last {recent}, and those with the most weight per query"
            " so far",
            budget=self.budget,
            recent=self.recent,
        )

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The causal mask of a KV cache of `budget` keys that evicts, query by query and per KV
        head, the key of least mean weight. For queries [head, query, dim] and keys [kv, key,
        dim].

        scale, softcap: what scores are multiplied by, and their bound (None for none).
        """
        weight_sums = np.zeros((k.shape[0], k.shape[-2]))

        def worth(weights: Floats, cache: Ints, query: int) -> Floats:
            """The mean weight of each key in the cache per query that saw it, [kv, cached];
            infinite for recent keys.

            weights: the query's, of the keys in the cache, [kv, group, cached].
            cache: the numbers of those keys, [kv, cached].
            """
            rows = np.arange(len(cache))[:, None]
            weight_sums[rows, cache] += weights.mean(1)
            # a key is seen by its own query and all later ones so far
            means = weight_sums[rows, cache] / (query - cache + 1)
            return np.where(cache > query - self.recent, np.inf, means)

        return forget_online(self, backend, (q, k), (scale, softcap), self.budget, worth)


@final
class LastQuery(Eviction, frozen=True):
    """A KV cache of `budget` keys that evicts the one with the least weight of the current query,
    the mean over all heads.

    Source: Oren et al., Transformers are Multi-State RNNs (TOVA), 2024 (arXiv 2401.06104); the
    query's own key stays, as in NVIDIA/kvpress.
    """

    spelling = Spelling("tova", "tova:BUDGET", (1,), 1, "tova:4")

    def describe(self) -> Message:
        """The sentence with the budget."""
        return message(
            "a cache of {budget} keys: each query forgets the one that it looks at least over all"
            " heads",
            budget=self.budget,
        )

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The causal mask of a KV cache of `budget` keys that evicts, query by query, the key that
        this query weighs least. For queries [head, query, dim] and keys [kv, key, dim].

        scale, softcap: what scores are multiplied by, and their bound (None for none).
        """

        def worth(weights: Floats, cache: Ints, query: int) -> Floats:
            """This query's weight of each key in the cache, the mean over all heads, [kv, cached];
            infinite for its own key.

            weights: the query's, of the keys in the cache, [kv, group, cached].
            cache: the numbers of those keys, [kv, cached].
            """
            mean = weights.mean((0, 1))
            return np.where(cache == query, np.inf, np.broadcast_to(mean, cache.shape))

        return forget_online(self, backend, (q, k), (scale, softcap), self.budget, worth)


@final
class LastWindow(Eviction, frozen=True):
    """SnapKV: keys before the last `window` queries stay by those queries' mean weights, pooled
    over `pool` neighbours and averaged over heads that share keys. The window sees `budget` keys,
    its own included; earlier queries see all before them.

    Source: Li et al., SnapKV, 2024 (arXiv 2404.14469), as in NVIDIA/kvpress: zeros stand beyond the
    ends in the mean over neighbours, and the window itself counts in the budget.
    """

    window: int = WINDOW
    pool: int = POOL

    spelling = Spelling(
        "snapkv",
        "snapkv:BUDGET, snapkv:BUDGET,WINDOW or snapkv:BUDGET,WINDOW,POOL",
        (1, 2, 3),
        1,
        "snapkv:5,2,1",
    )

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The cache that `snapkv:BUDGET,WINDOW,POOL` means, from its numbers, of which the last two
        may be left out. Raises UsageError for a window above the budget and an even pool."""
        budget = numbers[0]
        window = min(WINDOW, max(budget // 2, 1))  # half of a small budget is for earlier keys
        if len(numbers) > 1:
            window = numbers[1]
        pool = POOL
        if len(numbers) > 2:
            pool = numbers[2]
        if window > budget or pool % 2 == 0:
            raise UsageError(
                "mask {spec} has a window wider than its budget, or pools an even number of keys",
                expected="snapkv:BUDGET,WINDOW,POOL, with WINDOW up to BUDGET and POOL odd",
                spec=repr(spec),
            )
        return LastWindow(budget, window, pool)

    def describe(self) -> Message:
        """The sentence with the window, the budget and the pool."""
        return message(
            "the last {window} queries see {budget} keys: their own, and those before that they"
            " look at most, pooled over {pool} neighbours; earlier queries see all before them",
            window=self.window,
            budget=self.budget,
            pool=self.pool,
        )

    def pairs(self, n: int) -> int | None:
        """None: the visible pairs are counted one by one."""
        return None

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The causal mask of a KV cache in which, per KV head, the last `window` queries see
        `budget` keys: their own, and the earlier ones that they weigh most. For queries [head,
        query, dim] and keys [kv, key, dim], at least `budget` of each.

        scale, softcap: what scores are multiplied by, and their bound (None for none).
        """
        queries, keys = group_queries(backend, q, k)
        kv, group, count, _ = queries.shape
        first = count - self.window  # the window's first query

        # the weights of its queries for the keys before it, [kv, group, query, key], and their mean,
        # [kv, group, key]
        scores = cap_scores(
            np.einsum("kgqd,kjd->kgqj", queries[:, :, first:], keys) * scale, softcap
        )
        hidden = np.arange(count) > np.arange(first, count)[:, None]
        votes = softmax_rows(np.where(hidden, -np.inf, scores))[..., :first].mean(2)

        # the mean over `pool` neighbours as a difference of running sums, then over the group: [kv,
        # key]; votes beyond the ends count as 0, and one more 0 begins the sums
        side = self.pool // 2
        sums = np.cumsum(np.pad(votes, ((0, 0), (0, 0), (side + 1, side))), -1)
        pooled = ((sums[..., self.pool :] - sums[..., : -self.pool]) / self.pool).mean(1)

        # keys beyond the budget are last seen by the query before the window
        last = np.full((kv, count), count - 1)
        order = np.argsort(-pooled, axis=-1, kind="stable")
        np.put_along_axis(last, order[:, self.budget - self.window :], first - 1, -1)
        return Forgotten(self, np.repeat(last, group, 0))


@final
class ByChance(Eviction, frozen=True):
    """A KV cache of `budget` keys that evicts one at random, never the query's own: a baseline for
    other policies.
    """

    seed: int = 0

    spelling = Spelling("random", "random:BUDGET or random:BUDGET,SEED", (1, 2), 0, "random:4")

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The cache that `random:BUDGET` or `random:BUDGET,SEED` means, from its numbers; `seed`
        where that is left out. Raises UsageError for a budget of 0."""
        budget = numbers[0]
        if budget == 0:
            raise UsageError(
                "mask {spec} has a 0 where none may be",
                expected="random:BUDGET, with BUDGET from 1",
                spec=repr(spec),
            )
        if len(numbers) > 1:
            seed = numbers[1]
        return ByChance(budget, seed)

    def describe(self) -> Message:
        """The sentence with the budget."""
        return message(
            "a cache of {budget} keys: its own, and others of which one is forgotten by chance for"
            " each new one",
            budget=self.budget,
        )

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The causal mask of a KV cache of `budget` keys that evicts, query by query and per KV
        head, a key at random. Of the queries [head, query, dim] and keys [kv, key, dim] only the
        shapes count, of scale and soft cap nothing."""
        draws = normal(self.seed, "cache", (k.shape[0], k.shape[-2])).astype(np.float64)

        def worth(weights: Floats, cache: Ints, query: int) -> Floats:
            """The random number of each key in the cache, [kv, cached]; infinite for the query's
            own key.

            weights: not used.
            cache: the numbers of those keys, [kv, cached].
            """
            return np.where(cache == query, np.inf, np.take_along_axis(draws, cache, -1))

        return forget_online(
            self, backend, (q, k), (scale, softcap), self.budget, worth, by_weights=False
        )


@final
class Forgotten(DerivedMask, frozen=True, eq=False):
    """An eviction mask once evictions are known: `last` is the last query that sees each key,
    [head, key].
    """

    last: np.ndarray[Any, Any]

    spelling = None

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is not after the query and not yet forgotten, booleans [head, rows,
        columns].
        """
        last = pairs.backend.array_as_is(self.last)[:, pairs.j.reshape((-1,))]
        return (pairs.j <= pairs.row) & (pairs.row <= last[:, None, :])

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from key 0 to the query's own; not all in
        between are visible.
        """
        return before(i)

    def of_heads(self, heads: slice) -> Mask:
        """The mask of some of the heads."""
        return Forgotten(self.source, self.last[heads])


def unbound_error(mask: Mask) -> TypeError:
    """The error, returned and not raised, that a mask which depends on queries and keys was used
    before it was bound to them."""
    return TypeError(f"a {type(mask).__name__} mask must be bound to queries and keys before use")


def before(i: Ints) -> Reach:
    """The reach of a causal mask with gaps: keys 0 to each query's own."""
    return Reach(np.zeros_like(i), i + 1, whole=False)


def cached_pairs(budget: int, n: int) -> int:
    """How many (query, key) pairs are visible if each of n queries sees at most `budget` keys up to
    its own.
    """
    short = min(budget, n)  # so many queries have at most `budget` keys before them
    return short * (short + 1) // 2 + (n - short) * short


def group_queries(backend: Backend, q: Array, k: Array) -> tuple[Floats, Floats]:
    """Queries grouped by the key head that they share, [kv, group, query, dim], and keys [kv, key,
    dim], both in float64.

    q: queries, [head, query, dim].
    k: keys, [kv, key, dim].

    Raises UsageError for queries that are not those of the same tokens as the keys.
    """
    queries, keys = (np.asarray(backend.numpy(array), np.float64) for array in (q, k))
    if queries.ndim != 3 or queries.shape[-2] != keys.shape[-2]:
        what = message("a cache's mask is about a text that looks at itself")
        raise UsageError(what, expected="as many queries as keys, one text at a time")
    return queries.reshape(keys.shape[0], -1, *queries.shape[-2:]), keys


def cap_scores(scores: Floats, softcap: float | None) -> Floats:
    """softcap · tanh(scores / softcap), entrywise; the scores as they are where `softcap` is None."""
    if softcap is None:
        return scores
    return softcap * np.tanh(scores / softcap)


def softmax_rows(scores: Floats) -> Floats:
    """Softmax over the last axis, for choosing keys only: without masks, every score finite."""
    weights: Floats = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def forget_online(
    source: HeavyHitters | LastQuery | ByChance,
    backend: Backend,
    vectors: tuple[Array, Array],
    score: tuple[float, float | None],
    budget: int,
    worth: Callable[[Floats, Ints, int], Floats],
    *,
    by_weights: bool = True,
) -> Forgotten:
    """The mask of a cache of `budget` keys that after each query evicts the key that `worth` rates
    lowest.

    source: the mask that this is the result of.
    vectors: queries [head, query, dim] and keys [kv, key, dim].
    score: the scale and the soft cap of scores.
    worth: called for each query with its weights of the keys in the cache, [kv, group, cached],
        the numbers of those keys, [kv, cached], and its own number; gives the worth of each key,
        [kv, cached]. The key of least worth, and of equals the first, is forgotten once the cache
        is full, so that a query sees at most `budget` keys with its own.
    by_weights: whether weights are computed; else `worth` gets none, [kv, group, 0].
    """
    queries, keys = group_queries(backend, *vectors)
    kv, group, count, dim = queries.shape
    scale, softcap = score
    last = np.full((kv, count), count - 1)
    heads = np.arange(kv)
    # a new key takes the place of the one that was forgotten: the others are not moved. `place`: the
    # one that the next key takes, [kv]
    room = min(budget, count)
    cache = np.empty((kv, room), np.int64)
    cached = np.empty((kv, room, dim))
    place = np.zeros(kv, np.int64)
    for query in range(count):
        size = min(query + 1, budget)
        if query < budget:
            place[:] = query
        cache[heads, place] = query
        cached[heads, place] = keys[:, query]
        inside = cache[:, :size]
        weights = np.empty((kv, group, 0))
        if by_weights:
            scores = queries[:, :, query] @ cached[:, :size].swapaxes(1, 2) * scale
            weights = softmax_rows(cap_scores(scores, softcap))
        values = worth(weights, inside, query)
        if size == budget:  # the next key needs the room
            # of several keys of least worth, the first in the text
            least = values == values.min(-1, keepdims=True)
            place = np.where(least, inside, count).argmin(-1)
            last[heads, inside[heads, place]] = query
    return Forgotten(source, np.repeat(last, group, 0))
