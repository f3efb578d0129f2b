"""Reformer's hash attention: tokens are sorted by bucket and attend within chunks of the sorted
text.

Queries and keys are one projection; a token sees itself only where nothing else is visible.
Source: Kitaev, Kaiser and Levskaya, Reformer: The efficient transformer, 2020, and its
reference code, whose rounds stand one after another in one sorted sequence: the first chunk
looks back at the last one, across rounds. Not to be taken for the mask `lsh`, which shows
all keys of a bucket.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.errors import UnsupportedError, UsageError
from attncli.language import message
from attncli.mechanism.attend import Rule, attend_rows, softmax
from attncli.mechanism.mask import Everywhere, Mask, shows_all, visible
from attncli.mechanism.mask.pattern import buckets_of, directions

SELF_BIAS = -1e5
"""Added to a token's score with itself: it wins only where nothing else is visible."""

Integers = np.ndarray[Any, np.dtype[np.int64]]


class Reformer(Struct, frozen=True):
    """The settings of Reformer's hash attention.

    buckets: an even number.
    rounds: how often to hash.
    chunk: tokens per chunk; None for 2·tokens/buckets, the paper's choice.
    seed: of the random directions that hash.
    """

    buckets: int = 4
    rounds: int = 1
    chunk: int | None = None
    seed: int = 0

    @property
    def spec(self) -> str:
        """The value of `--attention` that means this hash attention."""
        text = f"reformer:{self.buckets},{self.rounds}"
        if self.chunk is None:
            return text
        return f"{text},{self.chunk}"

    def chunk_of(self, tokens: int) -> int:
        """How many tokens a chunk of a text has: where none is stated, as many as two buckets have
        on average; never more than the text.
        """
        two_buckets = -(-2 * tokens // self.buckets)  # rounded up
        return min(self.chunk or two_buckets, tokens)


class HashTrace(Struct, frozen=True, eq=False):
    """The result of hash attention (Reformer) on one text: its stages.

    keys: the normalised keys, [head, key, dim].
    mixed: [head, query, v_dim].
    buckets: integers [head, round, token]; None for a text of one chunk, which is not hashed.
    chunk: tokens per chunk.
    pair_count: how many pairs of query and key each head computed.
    empty_rows: booleans [head, query].
    weights, masked: [head, query, key], None unless asked for; masked holds q·k where a pair was
        compared in some round (its own key lowered by 1e5), −inf elsewhere. A row of weights sums
        to 1, or to 0 if it is empty.
    """

    keys: Array
    mixed: Array
    buckets: Integers | None
    chunk: int
    pair_count: int
    empty_rows: Array
    weights: Array | None = None
    masked: Array | None = None


def hash_keys(backend: Backend, q: Array) -> Array:
    """The keys in Reformer, where queries and keys share a projection, from queries [..., token,
    dim]: x / √(mean(x²) + 1e-6) / √dim."""
    width = q.shape[-1]
    return q / backend.sqrt(backend.sum(q * q, -1) / width + 1e-6) / math.sqrt(width)


def hash_attention(
    backend: Backend,
    q: Array,
    v: Array,
    rule: Reformer,
    *,
    mask: Mask | None = None,
    buckets: Integers | None = None,
    dense: bool = False,
) -> HashTrace:
    """Reformer's hash attention on one text: queries, which are keys too, meet only keys of their
    LSH bucket, chunk by chunk.

    q: [head, token, dim], queries and keys in one.
    v: [head, token, v_dim].
    mask: further hides keys, by position.
    buckets: given [head, round, token] instead of hashed.
    dense: whether to return the merged weights and the scores, which are n × n.

    A text of no more than one chunk is one chunk that looks at itself. A row that sees nothing has
    weights and mixed 0.

    Raises UsageError for an odd number of buckets, UnsupportedError for a mask that differs by
    head.
    """
    if mask is None:
        mask = Everywhere()
    _check_rule(rule, mask)
    heads = q.shape[0]
    tokens = q.shape[1]
    if backend.dtype_of(q) in LOW_PRECISION:
        q = backend.cast(q, "float32")

    # tokens sorted by bucket in each round, [head, round, token]
    chunk = rule.chunk_of(tokens)
    if chunk == tokens:  # all tokens meet anyway: nothing is hashed
        order = np.broadcast_to(np.arange(tokens), (heads, 1, tokens))
        buckets = None
    else:
        if buckets is None:
            rotations = backend.array_as_is(
                directions(rule.seed, heads, q.shape[-1], rule.rounds, rule.buckets)
            )
            buckets = backend.numpy(buckets_of(backend, q, rotations))
        order = np.argsort(buckets, axis=-1, kind="stable")
    places = _SortedTokens(order, chunk)

    # each chunk attends to itself and the chunk before; −1 marks places that no token fills
    # i, j: the positions of query and key, [head, chunk, place, 1] and [head, chunk, 1, 2·place]
    keys = hash_keys(backend, q)
    i = places.queries[..., :, None]
    j = places.looked_at[..., None, :]
    visibility = backend.array_as_is((i >= 0) & (j >= 0))
    # so low a bias that a token attends to itself only where it sees nothing else
    itself = backend.array_as_is(np.where(i == j, SELF_BIAS, 0.0))
    if not shows_all(mask):
        # a mask is asked about position 0 in place of −1, which is hidden anyway
        visibility = visibility & visible(
            mask,
            backend.array_as_is(np.maximum(i, 0)),
            backend.array_as_is(np.maximum(j, 0)),
            keys=tokens,
            backend=backend,
        )
    block = attend_rows(
        backend,
        places.gather(backend, q, places.queries),
        places.gather(backend, keys, places.looked_at),
        places.gather(backend, v, places.looked_at),
        Rule(scale=1.0, visibility=visibility, bias=itself),
        start=0,
        stop=chunk,
        keep=("weights",) if dense else (),
        whole=True,
    )

    # rounds are merged by how much each sees: a softmax of log-sum-exp, [head, token, round]
    # (−∞ where a round shows a token nothing)
    lse = backend.permute(places.by_token(backend, block.lse[..., None])[..., 0], (0, 2, 1))
    shares, _, empty, *_ = softmax(
        backend, lse, lse != -float("inf"), sinks=None, may_overwrite=False
    )
    by_round = backend.cast(places.by_token(backend, block.mixed), backend.dtype_of(shares))
    mixed = backend.cast(
        backend.sum(by_round * backend.permute(shares, (0, 2, 1))[..., None], 1)[:, 0],
        backend.dtype_of(v),
    )
    chunk_count, keys_of_chunk = places.looked_at.shape[1:]
    pair_count = chunk_count * chunk * keys_of_chunk
    trace = HashTrace(keys, mixed, buckets, chunk, pair_count, empty[..., 0])
    if not dense:
        return trace
    return _add_square_stages(
        backend, trace, places, q, block.stages["weights"], shares, visibility
    )


def _check_rule(rule: Reformer, mask: Mask) -> None:
    """Raise UsageError for numbers that do not fit, UnsupportedError for a mask that differs by
    head.
    """
    for name, value in (("buckets", rule.buckets), ("rounds", rule.rounds), ("chunk", rule.chunk)):
        if value is not None and value < 1:
            raise UsageError(
                "{name} is {value}", expected="a whole number, at least 1", name=name, value=value
            )
    if rule.buckets % 2:
        what = message(
            "hash attention needs an even number of buckets, not {buckets}", buckets=rule.buckets
        )
        raise UsageError(what, expected=message("such as {number}", number=rule.buckets + 1))
    if mask.depends_on == "vectors":
        raise UnsupportedError(
            "hash attention under an lsh mask would hash twice", expected="one of the two"
        )
    if mask.by_head():
        raise UnsupportedError(
            "hash attention under a mask that differs by head", expected="one mask for all heads"
        )


class _SortedTokens:
    """The order of tokens sorted by bucket, all hash rounds one after the other, in chunks, and the
    way back.

    order: the tokens of each round, sorted by bucket, [head, round, token].
    chunk: places in a chunk.
    queries: the token at each place, [head, chunk, place], −1 for a place that fills the last chunk
        of a round.
    looked_at: the tokens of the previous chunk and of the chunk itself, [head, chunk, 2·place]; of
        itself alone where there is one chunk.
    place: where in the order each token is, [head, round, token].
    """

    def __init__(self, order: Integers, chunk: int) -> None:
        """Put the sorted tokens into chunks, and note which tokens each chunk looks at.

        order: the tokens of each round, sorted by bucket, [head, round, token].
        chunk: how many tokens a chunk has.
        """
        self.heads, self.rounds, self.tokens = order.shape
        self.length = -(-self.tokens // chunk) * chunk  # places of a round: whole chunks
        slots = np.full((self.heads, self.rounds, self.length), -1)
        slots[..., : self.tokens] = order
        self.queries = slots.reshape(self.heads, -1, chunk)
        # [head, chunk, place]: a chunk looks at the one before and at itself, the first one at the
        # last; −1 where no token fills a place
        is_one_chunk = self.queries.shape[1] == 1
        if is_one_chunk:
            self.looked_at = self.queries
        else:
            self.looked_at = np.concatenate([np.roll(self.queries, 1, 1), self.queries], -1)
        # the way back: the place of each token in its round's order
        self.place = np.empty_like(order)
        np.put_along_axis(
            self.place, order, np.broadcast_to(np.arange(self.tokens), order.shape), -1
        )

    def gather(self, backend: Backend, x: Array, tokens: Integers) -> Array:
        """The rows of x, [head, token, n], of these tokens, [head, chunk, place]: [head, chunk,
        place, n]. A place without a token (−1) gets the row of token 0."""
        # rows of all heads one below the other
        flat = np.maximum(tokens, 0) + np.arange(self.heads)[:, None, None] * self.tokens
        return backend.take(
            x.reshape((-1, x.shape[-1])), backend.array_as_is(flat.reshape(-1)), 0
        ).reshape((*tokens.shape, x.shape[-1]))

    def by_token(self, backend: Backend, x: Array) -> Array:
        """x, [head, chunk, place, n], back in the order of the text, [head, round, token, n]."""
        # the first place of each head and round, where all places are rows one below the other
        starts = (
            np.arange(self.heads * self.rounds).reshape(self.heads, self.rounds, 1) * self.length
        )
        flat = backend.take(
            x.reshape((-1, x.shape[-1])), backend.array_as_is((starts + self.place).reshape(-1)), 0
        )
        return flat.reshape((self.heads, self.rounds, self.tokens, x.shape[-1]))


def _add_square_stages(
    backend: Backend,
    trace: HashTrace,
    places: _SortedTokens,
    q: Array,
    weights: Array,
    shares: Array,
    visibility: Array,
) -> HashTrace:
    """The trace with two n × n stages: the weights, merged over rounds, and the scores of the pairs
    that were compared.

    q: queries, [head, token, dim].
    weights: of each chunk, [head, chunk, place, 2·place].
    shares: how much each round counts, [head, token, round].
    visibility: which pairs of a chunk are visible, like `weights`.
    """
    heads = places.heads
    tokens = places.tokens

    # the share of the round that each place belongs to, [head, chunk, place]; of a place without a
    # token (−1) that of token 0, which no visible pair takes up
    share = np.asarray(backend.numpy(shares), np.float64)
    round_of_chunk = np.arange(places.queries.shape[1]) // (places.length // trace.chunk)
    head_numbers = np.arange(heads)[:, None, None]
    query_tokens = np.maximum(places.queries, 0)
    place_shares = share[head_numbers, query_tokens, round_of_chunk[None, :, None]]

    # head, query and key of every visible pair; a pair may be compared in several rounds
    visible_pairs = np.broadcast_to(backend.numpy(visibility), weights.shape)
    head, i, j = np.broadcast_arrays(
        head_numbers[..., None], places.queries[..., :, None], places.looked_at[..., None, :]
    )
    index = (head[visible_pairs], i[visible_pairs], j[visible_pairs])
    weight_sums = np.zeros((heads, tokens, tokens))
    pair_mask = np.zeros((heads, tokens, tokens), bool)
    shared_weights = np.asarray(backend.numpy(weights), np.float64) * place_shares[..., None]
    np.add.at(weight_sums, index, shared_weights[visible_pairs])
    pair_mask[index] = True
    scores = backend.matmul(q, backend.transpose(trace.keys))
    scores = scores + backend.cast(
        backend.array_as_is(SELF_BIAS * np.eye(tokens)), backend.dtype_of(scores)
    )
    masked = backend.where(backend.array_as_is(pair_mask), scores, -float("inf"))
    return replace(
        trace,
        weights=backend.cast(backend.array_as_is(weight_sums), backend.dtype_of(scores)),
        masked=masked,
    )
