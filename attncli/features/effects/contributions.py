"""Why a head looks at a key: its score as a sum over pairs of parts of the residual stream.

With norms frozen at what they were in this run, a head's queries and keys are sums of what each
part of the stream makes, and a score is the sum over pairs of a part of the query's stream and a
part of the key's. A constant added to a row of scores changes no weight; contributions are
therefore measured against what the row expects, or against another key, and both are sums again.
Source: Elhage et al., A mathematical framework for transformer circuits, 2021, for scores as sums
over pairs; the derivative of log A_ij along a part is its contribution less the mean that the row's
weights give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError
from attncli.features.effects.sweep import SweepText
from attncli.inputs.token import Token
from attncli.language import message
from attncli.mechanism.attend import attend_rows, span, weights_of_scores
from attncli.mechanism.context import Kind
from attncli.mechanism.frozen_projection import FrozenHead, freeze, head_projection
from attncli.mechanism.projection import LayerAttention, RelativeVectors, project, relative_vectors
from attncli.mechanism.spec import Attention
from attncli.models.model import Model
from attncli.models.residual_stream import (
    Follower,
    HeadEvent,
    HeadSplit,
    PartKind,
    Reading,
    Receiver,
    StreamPart,
    mix_again,
    numpy_floats,
    read_stream,
)
from attncli.models.run import cache_weights

Floats = np.ndarray[Any, np.dtype[Any]]
LinkPartKind: TypeAlias = PartKind | Literal["relative", "score_bias"]
"""What a part of a score comes from: a part of the stream, vectors of relative positions that meet
queries or keys, or a bias that the position adds to scores."""
Side: TypeAlias = Literal["both", "query", "key"]


class Link(Struct, frozen=True):
    """One attention weight: layer, attention ("self" or "cross"), head, and the positions of query
    and key.
    """

    layer: int
    kind: Kind
    head: int
    query: int
    key: int


class LinkPart(Struct, frozen=True):
    """One term of an attention score.

    stream: the part of the residual stream that it comes from; None for what the position encoding
        adds.
    side: whether that stream is the query's or the key's token's; "both" where the two are tokens
        of one text.
    """

    kind: LinkPartKind
    stream: StreamPart | None
    side: Side


class RowScores(Struct, frozen=True, eq=False):
    """One head's scores and weights for one query, over the keys in the mask's range.

    keys: their numbers, ascending; learned ones come after those of tokens.
    scaled: the scores before a soft cap.
    added: what the position adds to them after the cap.
    weights: of each key, 0 where hidden.
    visible: which keys the mask shows, booleans. All five are [key].
    sink: the head's learned logit; None without one.
    values: what each key passes on, [key, v_dim].
    gate: how much of each entry is let through to the query, [v_dim]; None for all of it.
    """

    keys: Floats
    scaled: Floats
    added: Floats
    weights: Floats
    visible: Floats
    softcap: float | None
    sink: float | None
    values: Floats
    gate: Floats | None = None

    def weights_without(self, removed: Floats, added: Floats | float = 0.0) -> Floats:
        """The row's softmax weights after something is taken out of its scores, [..., key].

        removed: taken from the scores before the soft cap, [..., key].
        added: taken from what the position encoding adds after it.
        """
        scores = self.scaled - removed
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        return weights_of_scores(scores + self.added - added, self.visible, self.sink)


class Contributions(Struct, frozen=True, eq=False):
    """A link's attention score split into parts of the residual stream. Its *advantage* is the
    score of the link's key less the row's mean score under the weights, or less that of another
    key.

    parts: in the order of the model.
    query_sums, key_sums: of each part its contribution to the score with each key, as part of the
        query over all parts of the key, and the other way round, [part, key].
    queries, keys: what each part makes in the head's space, [part, dim] and [part, key, dim].
    scale: multiplies their products.
    """

    link: Link
    row: RowScores
    parts: tuple[LinkPart, ...]
    query_sums: Floats
    key_sums: Floats
    queries: Floats
    keys: Floats
    scale: float
    relative: RelativeVectors | None
    space: HeadSpace

    @property
    def place(self) -> int:
        """The index of the link's key among the row's keys."""
        return int(np.flatnonzero(self.row.keys == self.link.key)[0])

    @property
    def score(self) -> float:
        """The link's score in the run: before a soft cap, plus what the position encoding adds."""
        return float(self.row.scaled[self.place] + self.row.added[self.place])

    @property
    def weight(self) -> float:
        """The link's attention weight in the run, 0 to 1."""
        return float(self.row.weights[self.place])

    def centre(self, sums: Floats, than: int | None = None) -> Floats:
        """Turn contributions to the row's scores, [..., key], into contributions to the advantage,
        [...]: the link's key less the weighted mean over the row, or less the key at position
        `than`."""
        if than is None:
            return np.asarray(sums[..., self.place] - sums @ self.row.weights)
        return np.asarray(sums[..., self.place] - sums[..., self._key_place(than)])

    def total(self, than: int | None = None) -> float:
        """The link's advantage by the run's own scores: its score less the row's weighted mean, or
        less that of the key at position `than`."""
        return float(self.centre(self.row.scaled + self.row.added, than))

    def pairs(self, than: int | None = None) -> Floats:
        """What each pair of a query part and a key part adds to the link's score less that of the
        key at position `than` (None: less the row's weighted mean), [query part, key part]."""
        keys = self._centre_vectors(self.keys, than)
        table: Floats = self.scale * (self.queries @ keys.T)
        # what the position adds is no product of two parts of the stream: a bias of scores is told
        # as the pair of its own part with itself, vectors as pairs of theirs with each other part
        for index, part in enumerate(self.parts):
            if part.kind == "score_bias":
                table[index, index] = self.centre(self.query_sums[index], than)
            elif part.kind == "relative" and self.relative is not None:
                if self.relative.keys is not None:  # vectors that queries meet as if they were keys
                    position_keys = self._centre_vectors(self.relative.keys[None], than)[0]
                    table[:, index] = self.scale * (self.queries @ position_keys)
                    if self.relative.more is not None:  # a query's bias that meets positions alone
                        table[self._bias_index, index] += self.scale * float(
                            self.relative.more @ position_keys
                        )
                if self.relative.queries is not None:  # vectors that meet keys as a query does
                    # [part, key]
                    scores = self.scale * np.einsum("kd,pkd->pk", self.relative.queries, self.keys)
                    table[index] = self.centre(scores, than)
        return table

    def weights_without(self) -> dict[str, Floats]:
        """The link's weight with each part removed, [part], by where from: "query", "key" (the
        link's key alone) and "all_keys"; NaN where a part has no such side."""
        place = self.place
        at_key = np.zeros_like(self.key_sums)
        at_key[:, place] = self.key_sums[:, place]
        weights = {
            "query": self.row.weights_without(self.query_sums)[:, place],
            "key": self.row.weights_without(at_key)[:, place],
            "all_keys": self.row.weights_without(self.key_sums)[:, place],
        }
        no_change = np.zeros(1)
        for index, part in enumerate(self.parts):
            if part.kind == "score_bias":  # added after the soft cap, and to keys alone
                at_one = self.row.weights_without(no_change, added=at_key[index])
                at_all = self.row.weights_without(no_change, added=self.key_sums[index])
                weights["query"][index] = np.nan
                weights["key"][index] = at_one[place]
                weights["all_keys"][index] = at_all[place]
            # a part of one side cannot be taken out of the other
            if part.side == "key":
                weights["query"][index] = np.nan
            if part.side == "query":
                weights["key"][index] = weights["all_keys"][index] = np.nan
        return weights

    def weight_of(self, key: int) -> float:
        """The weight of the key at position `key` in the link's row. Raises InputError for one that
        the mask hides."""
        return float(self.row.weights[self._key_place(key)])

    def _key_place(self, key: int) -> int:
        """The index, among the row's keys, of the key at position `key`. Raises InputError for one
        that the mask hides."""
        places = np.flatnonzero((self.row.keys == key) & self.row.visible)
        if not len(places):
            raise InputError(
                message("the mask hides the other key from this query"),
                expected=message("two keys that the query sees"),
            )
        return int(places[0])

    def _centre_vectors(self, vectors: Floats, than: int | None) -> Floats:
        """Key vectors of each part, [part, key, dim], as the link's key less the row's weighted
        mean, or less the key at position `than`: [part, dim]."""
        if than is not None:
            return np.asarray(vectors[:, self.place] - vectors[:, self._key_place(than)])
        expected = np.stack([self.row.weights @ part for part in vectors])
        return np.asarray(vectors[:, self.place] - expected)

    @property
    def _bias_index(self) -> int:
        """The index, among the parts, of the head's own query and key biases."""
        return [_is_own_bias(part.stream) for part in self.parts].index(True)


class HeadSpace(Struct, frozen=True, eq=False):
    """How the residual stream becomes one head's query and keys in this run, with norms and
    rotations frozen.

    query: for the link's query.
    keys: for the row's keys.

    tails: `Reading.tails` of the query's reading and of the keys'.
    receivers: the maps that read the stream for the query and for the keys.
    passed: the heads before the link's as they reach the query, and as they reach the keys; empty
        where nobody asks for a split by token.
    """

    query: FrozenHead
    keys: FrozenHead
    tails: tuple[Floats, Floats]
    receivers: tuple[Receiver, Receiver]
    passed: tuple[Sequence[PassedHeads], Sequence[PassedHeads]]


class PassedHeads(Struct, frozen=True, eq=False):
    """The heads of one attention before the link's layer, and how their outputs reach the link's
    query or keys.

    entering: what entered that attention, [token, width]; other fields as in `HeadEvent`.
    """

    layer: int
    kind: Kind
    entering: Array
    matrices: Floats
    norm_count: int
    factors: Floats
    apart: tuple[int, ...]


class _Passing:
    """Collects `PassedHeads` for the queries' and the keys' receiver: what is needed to split heads
    by source token later, in little memory.

    passed: what reaches the link's query, and what reaches its keys.
    """

    def __init__(self) -> None:
        self.passed: tuple[list[PassedHeads], list[PassedHeads]] = [], []

    def on_heads(self, number: int, event: HeadEvent) -> None:
        """Keep how the heads of one attention reach a receiver.

        number: 0 for the link's query, 1 for its keys.
        """
        entering = event.trace.stages["hidden"]
        self.passed[number].append(
            PassedHeads(
                event.trace.layer,
                event.kind,
                entering,
                event.matrices,
                event.norm_count,
                event.factors,
                event.apart,
            )
        )


def _is_own_bias(part: StreamPart | None) -> bool:
    """Whether a part is the one that `own_bias` returns."""
    return part is not None and part.kind == "bias" and part.place == "qk"


def own_bias(link: Link) -> StreamPart:
    """The part for what the biases and norms of the head's own query and key projections add to a
    score.
    """
    return StreamPart("bias", link.layer, link.kind, link.head, place="qk")


def contributions(
    text: SweepText,
    link: Link,
    *,
    by_layer: bool = False,
    by_token: bool = False,
    follower: Follower | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Contributions:
    """Split a link's attention score into the parts of the residual stream (embeddings, earlier
    heads, feed-forward parts, biases) that it is the sum of.

    by_layer: whether the heads of a layer are one part.
    by_token: whether what `source_parts` needs is kept.
    follower: called with each layer of the text's run.
    progress: called with the share done.

    Raises InputError where the mask hides the key from the query, and where a score is no finite
    number.
    """
    model = text.model
    backend = text.backend
    block = model.spec.blocks[link.layer]
    attention = block.attention if link.kind == "self" else block.cross
    assert attention is not None
    prefix = "attn" if link.kind == "self" else "cross"  # of the names of its weights
    part = LayerAttention(
        backend, cache_weights(model.store.layer(backend, link.layer)), prefix, attention
    )
    # global tokens (Longformer) have a second set of projections
    global_tokens = attention.own_global or ()
    apart = link.kind == "self" and int(text.tokens[link.query].index) in global_tokens
    # of the head's queries, then of its keys
    projections = [head_projection(part, side, link.head, apart=apart) for side in _SIDES]

    # what each part of the stream writes into the head's query and keys
    query_row = slice(link.query, link.query + 1)  # as a range of one token
    query_receiver = Receiver(link.layer, link.kind, projections[0].matrix, query_row)
    split: HeadSplit = "layer" if by_layer else "head"
    passing = _Passing()
    source_passing = _Passing()
    read = partial(
        read_stream,
        model,
        text.tokens,
        backend,
        split=split,
        on_heads=passing.on_heads if by_token else None,
        follower=follower,
        progress=progress,
    )
    if link.kind == "self":
        rows = _visible_keys(attention, link.query, text.count)
        key_receiver = Receiver(link.layer, "self", projections[1].matrix, rows)
        reading, key_reading = read([query_receiver, key_receiver])
        source = reading.entering
        passed = passing.passed
    else:
        assert model.memory is not None
        source = backend.cast(model.memory, backend.dtype)
        rows = slice(0, source.shape[-2])
        (reading,) = read([query_receiver])
        # the keys read what leaves the encoder's last layer, or captured states as they are
        after_encoder = 0 if model.encoder is None else len(model.encoder.spec.blocks)
        key_receiver = Receiver(after_encoder, "self", projections[1].matrix, rows)
        key_reading = _source_reading(
            model, backend, key_receiver, source, split, source_passing if by_token else None
        )
        # each of the two collected heads for one receiver, number 0 of its own reading
        passed = passing.passed[0], source_passing.passed[0]

    # norms and rotations as they were in this run, and the run's own scores
    context = text.context()
    frozen = (
        freeze(projections[0], reading.entering, context).of_tokens(query_row),
        freeze(projections[1], source, context, memory=link.kind == "cross").of_tokens(rows),
    )
    row, relative, learned = _row_scores(text, part, link, reading.entering, source, rows)
    space = HeadSpace(
        query=frozen[0],
        keys=frozen[1],
        tails=(reading.tails, key_reading.tails),
        receivers=(query_receiver, key_receiver),
        passed=passed,
    )
    return _combine_readings(link, attention, row, space, (reading, key_reading), relative, learned)


_SIDES: tuple[Literal["q", "k"], ...] = ("q", "k")
"""The projections of a score, the query's first."""


def _visible_keys(attention: Attention, query: int, count: int) -> slice:
    """The range of keys that a query may see; all keys where it may see none."""
    low, high = span(attention.mask, query, query, count)
    if low < high:
        return slice(low, high)
    return slice(0, count)


def _source_reading(
    model: Model,
    backend: Backend,
    receiver: Receiver,
    source: Array,
    split: HeadSplit,
    passing: _Passing | None,
) -> Reading:
    """What each part of the source text's stream adds to the head's keys in cross-attention;
    captured encoder states count as one part.

    receiver: the map from what leaves the encoder to the keys.
    source: the states that cross-attention reads, [token, width].
    passing: collects the encoder's heads for a split by token; None for none.
    """
    if model.encoder is None:
        values = numpy_floats(backend, source) @ receiver.matrix.T
        return Reading(
            # no norm comes after captured states: their factors are 1
            parts=(StreamPart("states"),),
            values=values[None],
            entering=source,
            tails=np.ones((1, len(values))),
        )
    if passing is None:
        on_heads = None
    else:
        on_heads = passing.on_heads
    return read_stream(
        model.encoder, model.source, backend, [receiver], split=split, on_heads=on_heads
    )[0]


@np.errstate(invalid="ignore")  # scores that are no numbers are refused later, with a reason
def _row_scores(
    text: SweepText, part: LayerAttention, link: Link, x: Array, source: Array, rows: slice
) -> tuple[RowScores, RelativeVectors | None, Floats]:
    """Compute the link's row of attention: the head's `RowScores` for the link's query, its
    relative-position vectors (None without), and its learned keys, [key, dim].

    part: the link's attention with its weights.
    x: what enters that attention, [token, width].
    source: what its keys are made of, [token, width]: `x`, or the encoder's states.
    rows: the range of keys that the mask may show.
    """
    backend = text.backend
    context = text.context()
    attention = part.spec
    if link.kind == "self":
        memory = None
    else:
        memory = source
    parts = project(part, x, memory, context, link.layer)
    block = attend_rows(
        backend,
        parts.q,
        parts.k,
        parts.v,
        parts.rule,
        link.query,
        link.query + 1,
        keep=("scaled", "capped", "biased", "weights"),
        whole=True,
    )
    stages = {
        name: np.asarray(backend.numpy(stage[link.head, 0]), np.float64)
        for name, stage in block.stages.items()
    }

    # the keys in range, and learned keys, which come after those of the tokens
    key_count = parts.k.shape[-2]
    token_count = key_count - parts.rule.extra_keys
    columns = np.asarray([*range(rows.start, rows.stop), *range(token_count, key_count)])
    visible = np.ones(key_count, bool)
    if block.visibility is not None:
        shape = (attention.heads, 1, key_count)
        visibility = np.asarray(backend.numpy(backend.broadcast(block.visibility, shape)))
        visible = visibility[link.head, 0]
    group = link.head // (attention.heads // attention.kv_heads)  # the head's key-value head
    learned = numpy_floats(backend, parts.k)[group, token_count:]

    # a global token's query reads values that a second projection makes
    apart = parts.rule.apart
    if apart is None or link.query not in apart.rows:
        values = parts.v
    else:
        values = apart.v
    sinks = parts.rule.sinks
    row = RowScores(
        keys=columns,
        scaled=stages["scaled"][columns],
        added=(stages["biased"] - stages["capped"])[columns],
        weights=stages["weights"][columns],
        visible=visible[columns],
        softcap=attention.softcap,
        sink=None if sinks is None else float(sinks[link.head]),
        values=np.asarray(numpy_floats(backend, values)[group][columns], np.float64),
        gate=_gate(part, x[link.query], link.head),
    )
    if not (row.visible & (row.keys == link.key)).any():
        raise InputError(
            message("the mask hides this key from this query in every chosen head"),
            expected=message("a key that the query sees"),
        )
    relative = relative_vectors(part, x, link.query, columns, link.head)
    return row, relative, learned


def _gate(part: LayerAttention, x: Array, head: int) -> Floats | None:
    """The values, 0 to 1, by which a head's gate multiplies its output for one query, [v_dim]; None
    without a gate.

    x: what enters the attention at the query, [width].
    """
    attention = part.spec
    if not attention.gated:
        return None
    logits = numpy_floats(part.backend, part.linear("gate", x[None]))[0]  # [head · v_dim]
    entries = slice(head * attention.v_dim, (head + 1) * attention.v_dim)
    head_logits: Floats = logits[entries].astype(np.float64)
    return (np.tanh(head_logits * 0.5) + 1.0) * 0.5  # the sigmoid, which cannot overflow so


@np.errstate(over="ignore", invalid="ignore")  # sums that are no numbers are refused below
def _combine_readings(
    link: Link,
    attention: Attention,
    row: RowScores,
    space: HeadSpace,
    readings: tuple[Reading, Reading],
    relative: RelativeVectors | None,
    learned: Floats,
) -> Contributions:
    """What each part of the query's stream and of the keys', each bias and the position add to the
    scores of the link's row.

    readings: the parts of the query's stream, and of the keys'.
    relative: vectors of distances; None where the position has none.
    space: how what the streams hold becomes the head's query and keys.
    learned: keys of no token, [key, dim].
    """
    # the parts: those of the streams, then the head's own biases, then the position
    parts = _parts_of_streams(link, readings)
    bias_index = len(parts)  # that the part of the head's own biases gets
    has_bias = bool(space.query.constant.any() or space.keys.constant.any() or len(learned))
    has_bias = has_bias or (relative is not None and relative.more is not None)
    if has_bias:
        parts.append(LinkPart("bias", stream=own_bias(link), side="both"))
    has_added = relative is None and bool(row.added.any())
    if relative is not None:
        parts.append(LinkPart("relative", stream=None, side="both"))
    if has_added:
        parts.append(LinkPart("score_bias", stream=None, side="both"))

    # each part's vector in the query, [part, dim], and in the keys, [part, key, dim]; the keys'
    # parts come last among those of the streams, and are the same as the query's within one text
    query_reading, key_reading = readings
    dim = attention.head_dim
    key_count = len(row.keys)
    token_count = key_count - len(learned)  # learned keys come after those of the tokens
    queries = np.zeros((len(parts), dim))
    for index in range(len(query_reading.parts)):
        queries[index] = space.query.apply(query_reading.values[index])[0]
    keys = _room_for_keys(key_reading, (len(parts), key_count, dim), link, learned)
    first_key_part = bias_index - len(key_reading.parts)
    for index in range(len(key_reading.parts)):
        vectors_of_part = space.keys.apply(key_reading.values[index])
        keys[first_key_part + index, :token_count] = vectors_of_part
    if has_bias:
        queries[bias_index] = space.query.constant[0]
        keys[bias_index, :token_count] = space.keys.constant
        keys[bias_index, token_count:] = learned

    # each part's scores: its query with the sum of all keys, and the sum of queries with its keys
    scale = attention.scale
    whole_query = queries.sum(0)
    whole_keys = keys.sum(0, dtype=np.float64)
    query_sums: Floats = scale * (queries @ whole_keys.T)
    # part by part: a product with all of them would first make all of them float64
    key_sums: Floats = np.stack([scale * (vectors @ whole_query) for vectors in keys])
    if relative is not None:
        _add_relative_scores(relative, scale, (queries, keys), (query_sums, key_sums), bias_index)
    if has_added:  # its part is the last
        query_sums[-1] = key_sums[-1] = row.added
    _refuse_infinite_scores(row, query_sums, key_sums)
    return Contributions(
        link=link,
        row=row,
        parts=tuple(parts),
        query_sums=query_sums,
        key_sums=key_sums,
        queries=queries,
        keys=keys,
        scale=scale,
        relative=relative,
        space=space,
    )


def _parts_of_streams(link: Link, readings: tuple[Reading, Reading]) -> list[LinkPart]:
    """The parts of the streams that query and key were read from: one stream within a text; for a
    link to another text the parts of the query's stream, then those of the keys'."""
    if link.kind == "self":
        return [LinkPart(part.kind, part, "both") for part in readings[0].parts]
    of_query = [LinkPart(part.kind, part, "query") for part in readings[0].parts]
    of_keys = [LinkPart(part.kind, part, "key") for part in readings[1].parts]
    return [*of_query, *of_keys]


def _refuse_infinite_scores(row: RowScores, query_sums: Floats, key_sums: Floats) -> None:
    """Raise InputError where a score of a visible key, or what a part adds to it, is not finite."""
    visible = row.visible.astype(bool)
    for scores in (row.scaled, query_sums, key_sums):
        if not np.isfinite(scores[..., visible]).all():
            what = message("the model's own numbers leave the range of {dtype}", dtype="float64")
            raise InputError(what, expected="a smaller --scale or a wider --dtype")


def _room_for_keys(
    reading: Reading, shape: tuple[int, int, int], link: Link, learned: Floats
) -> Floats:
    """Zeros, [part, key, dim], for what each part adds to the keys. Where the parts' values fill an
    array that is large enough, the keys reuse its memory and overwrite the values one by one, since
    these arrays are most of what the run holds.

    shape: of the array, (part, key, dim).
    learned: keys of no token, [key, dim], which the values have no room for.
    """
    room = reading.room
    count = shape[0]
    if link.kind != "self" or len(learned) or room is None or len(room) < count:
        return np.zeros(shape, reading.values.dtype)
    keys = room[:count]
    keys[len(reading.parts) :] = 0
    return keys


def _add_relative_scores(
    relative: RelativeVectors,
    scale: float,
    vectors: tuple[Floats, Floats],
    sums: tuple[Floats, Floats],
    bias_index: int,
) -> None:
    """Add to the scores what vectors of the relative position bring: they count as the last part,
    and meet each part's query as keys, or each part's keys as queries.

    Each product is counted once on either side: as one of the part that meets the positions, and on
    the other side as one of the last part, which has no query and no keys of its own.

    vectors: each part's query, [part, dim], and keys, [part, key, dim].
    sums: what each part adds on the query's and on the keys' side, [part, key]; changed in place.
    bias_index: that of the part of the head's own biases.
    """
    queries, keys = vectors
    query_sums, key_sums = sums
    position_part = len(queries) - 1
    if relative.keys is not None:
        relative_scores = scale * (queries[:position_part] @ relative.keys.T)
        query_sums[:position_part] += relative_scores
        key_sums[position_part] = relative_scores.sum(0)
        if relative.more is not None:  # a bias of the query that meets positions alone
            bias_scores = scale * (relative.keys @ relative.more)
            query_sums[bias_index] += bias_scores
            key_sums[position_part] += bias_scores
    if relative.queries is not None:
        position_scores = scale * np.einsum("kd,pkd->pk", relative.queries, keys[:position_part])
        key_sums[:position_part] += position_scores
        query_sums[position_part] = position_scores.sum(0)


# Heads split further by the token whose value they carried: one head of one layer at a time.


SOURCES = 4000
"""Sources that are told alone, the strongest of all heads: of 704 heads and 348 tokens there are a
quarter million.
"""


class SourcePart(NamedTuple):
    """What a head copied from one source token adds to the advantage (the link's score above its
    row's mean, or above another key's) through the query and through the keys, None for a side it
    has no part in; and the link's weight without it by "query", "key" and "all_keys", empty for
    several tokens taken together."""

    part: LinkPart
    query_side: float | None
    key_side: float | None
    weights_without: dict[str, float]


def source_parts(
    text: SweepText, whole: Contributions, than: int | None = None
) -> dict[LinkPart, list[SourcePart]]:
    """Split each earlier head's contribution to the advantage by the token whose value it carried;
    returns the list per head. Tokens that bring nothing are left out, and all but the strongest
    `SOURCES` are summed in one part with place "rest".

    whole: of `contributions` with `by_token`. What a head brings from a token is known only with
        the queries and keys that the run ended with, so that each attention is computed again here
        from what entered it, one at a time.
    than: the position of the other key; None for the row's mean.
    """
    of_query, of_keys = whole.space.passed
    if whole.link.kind == "self":
        split = _SourceSplit(text, whole, than, sides=(0, 1))
        for attention in zip(of_query, of_keys, strict=True):
            split.add_attention(text.model, text.tokens, attention)
        return split.merge("both")

    # in cross-attention the query's heads are the decoder's, the keys' heads the encoder's
    query_split = _SourceSplit(text, whole, than, sides=(0,))
    for heads in of_query:
        query_split.add_attention(text.model, text.tokens, (heads,))
    key_split = _SourceSplit(text, whole, than, sides=(1,))
    for heads in of_keys:
        # heads were collected in the encoder, so that there is one; captured states have no heads
        assert text.model.encoder is not None
        key_split.add_attention(text.model.encoder, text.model.source, (heads,))
    return query_split.merge("query") | key_split.merge("key")


class _SourceSide(NamedTuple):
    """What a head adds to the advantage (the link's score above its row's mean, or above another
    key's) through the query or through the keys: `centred` by source token, [source], and the
    link's weight without a source, by name, for the sources listed alone."""

    centred: Floats
    weights_without: dict[str, Floats]


class _SourceHead(NamedTuple):
    """What one earlier head adds to a link's score above its row's mean, by source token.

    sides: 0 through the query, 1 through the keys.
    brings: whether a source adds anything, [source].
    alone: positions of the sources listed one by one, ascending.
    """

    sides: dict[int, _SourceSide]
    brings: Floats
    alone: Floats

    @property
    def sizes(self) -> Floats:
        """The absolute contribution of each source, summed over both sides, [source]."""
        return np.asarray(np.sum([np.abs(side.centred) for side in self.sides.values()], 0))


class _Carried(NamedTuple):
    """One route from a head's source tokens to a side.

    weights: attention weights times the factors on the way, [row, source].
    values: each source's value mapped into the query or key space, [source, dim].
    """

    weights: Floats
    values: Floats


class _SourceSplit:
    """Accumulates what earlier heads contribute by source token, one attention after the other.

    sides: which are split, 0 for the query, 1 for the keys.

    What a source adds to the advantage is a product of two vectors, what it does to each score of
    the row a table of all sources and keys: that is made of those alone that are among the
    strongest so far.
    """

    def __init__(
        self, text: SweepText, whole: Contributions, than: int | None, sides: tuple[int, ...]
    ) -> None:
        """Compute once how one entry of the vector that a head writes into the link's query, or into
        a key, changes the scores and the advantage.

        whole: the link's score in parts.
        than: the position of the other key, which the advantage is over; None for the row's mean.
        sides: 0 to split what comes through the query, 1 through the keys, or both.
        """
        self._backend = text.backend
        self._whole = whole
        self._sides = sides
        self._heads: dict[StreamPart, _SourceHead] = {}
        self._strongest = np.zeros(0)  # sizes of the largest contributions so far
        space = whole.space
        row = whole.row

        # a score is query · key: a change of the query is multiplied with the key vectors, and a
        # change of a key with the query vector, each [key, dim]; vectors of relative positions are
        # added to both
        query_total = whole.queries.sum(0)
        key_total = whole.keys.sum(0, dtype=np.float64)
        met_keys = key_total
        met_queries = np.broadcast_to(query_total, key_total.shape)
        relative = whole.relative
        if relative is not None and relative.keys is not None:
            met_keys = met_keys + relative.keys
        if relative is not None and relative.queries is not None:
            met_queries = met_queries + relative.queries

        # what one entry of a projection does to each score, [key, dim]: found by sending each unit
        # vector through the frozen norm and rotation, which differ from key to key
        dim = len(query_total)
        query_units = space.query.apply(np.eye(dim)[:, None, :])[:, 0]  # [entry, dim]
        of_query: Floats = whole.scale * (query_units @ met_keys.T).T
        count = len(space.keys.constant)  # without learned keys, which nothing is carried to
        key_units = space.keys.apply(np.repeat(np.eye(dim)[:, None, :], count, 1))
        # [entry, key, dim] · [key, dim]
        of_keys: Floats = whole.scale * np.einsum("ekd,kd->ke", key_units, met_queries[:count])
        self._of_entry = of_query, of_keys
        self._learned = len(row.keys) - count

        # and to the advantage: of a query's vector whole, [1, dim], of the keys' row by row,
        # [row, dim]; `shares` is how each score counts in the advantage, [key]
        shares = whole.centre(np.eye(len(row.keys)), than)
        self._to_advantage = (shares @ of_query)[None], shares[:count, None] * of_keys

    def add_attention(
        self, model: Model, tokens: Sequence[Token], heads: Sequence[PassedHeads]
    ) -> None:
        """Split by source token what each head of one attention contributes.

        heads: that attention as it reaches each of `sides`, in their order.
        """
        layer = heads[0].layer
        kind = heads[0].kind
        entering = heads[0].entering
        # its weights and values were not kept in the run: they are computed from what entered it
        stages = mix_again(model, tokens, self._backend, layer, kind, entering)
        weights = numpy_floats(self._backend, stages["weights"])
        values = numpy_floats(self._backend, stages["v"])
        all_global_values = None
        if "global_v" in stages:
            all_global_values = numpy_floats(self._backend, stages["global_v"])
        gates = None
        if "gate" in stages:
            gates = numpy_floats(self._backend, stages["gate"])
        for head in range(len(weights)):
            group = head // (len(weights) // len(values))  # the head's key-value head
            global_values = None if all_global_values is None else all_global_values[group]
            gate = None if gates is None else gates[head]
            routes: dict[int, list[_Carried]] = {}
            for side, passed in zip(self._sides, heads, strict=True):
                side_routes = self._routes(
                    side, passed, head, weights[head], values[group], global_values, gate
                )
                routes[side] = list(side_routes)
            self._heads[StreamPart("head", layer, kind, head)] = self._sum_routes(routes)

    def _routes(
        self,
        side: int,
        passed: PassedHeads,
        head: int,
        weights: Floats,
        values: Floats,
        global_values: Floats | None,
        gate: Floats | None,
    ) -> Iterator[_Carried]:
        """Yield the routes by which a head's values reach the link's query or its keys.

        side: 0 for the query, 1 for the keys.
        passed: the head's attention as it reaches that side.
        head: its number in the layer.
        weights: the head's attention weights, [query, key].
        values: of each key, [key, v_dim].
        global_values: those that queries of global tokens read, made by a projection of their own,
            which are a second route; None where there are none.
        gate: factors on the head's output, [token, v_dim], then one route per entry; None for no
            gate.
        """
        rows = self._whole.space.receivers[side].rows
        # what the norms between the head and the link multiply its output by, [row]
        factors = passed.factors[:, 0] * self._whole.space.tails[side][passed.norm_count]
        table = weights[rows] * factors[:, None].astype(weights.dtype)
        # rows of the table that belong to global tokens
        places = [place - rows.start for place in passed.apart if rows.start <= place < rows.stop]
        if global_values is not None and places:
            global_table = np.zeros_like(table)
            global_table[places] = table[places]
            table[places] = 0
            yield _Carried(global_table, global_values @ passed.matrices[head])
        matrix = passed.matrices[head]
        if gate is None:
            yield _Carried(table, values @ matrix)
            return
        # a gate differs from token to token in each entry: no two entries share a table
        for entry in range(values.shape[-1]):
            part = slice(entry, entry + 1)
            yield _Carried(table * gate[rows, part], values[:, part] @ matrix[part])

    def _sum_routes(self, routes: dict[int, list[_Carried]]) -> _SourceHead:
        """Sum a head's routes by source token, and list those sources one by one that are among the
        strongest of all heads so far.

        routes: by side, 0 the query's, 1 the keys'.
        """
        # which tokens bring anything by any route, booleans [source]
        brings = np.any(
            [
                route.weights.any(0) & route.values.any(-1)
                for carried in routes.values()
                for route in carried
            ],
            0,
        )
        centred = {side: self._centre_sources(side, carried) for side, carried in routes.items()}
        # for its sizes alone, which tell those that are listed: no weights yet, all in place of these
        unlisted_sides = {side: _SourceSide(values, {}) for side, values in centred.items()}
        sizes = _SourceHead(unlisted_sides, brings, alone=brings).sizes
        self._strongest = np.concatenate([self._strongest, sizes])
        if len(self._strongest) > SOURCES:  # keep the largest, in no order
            self._strongest = np.partition(self._strongest, -SOURCES)[-SOURCES:]
        alone = np.flatnonzero(brings & (sizes >= self._least))  # positions, in order
        sides = {
            side: _SourceSide(centred[side], self._weights_without(side, carried, alone))
            for side, carried in routes.items()
        }
        return _SourceHead(sides, brings, alone)

    @property
    def _least(self) -> float:
        """The smallest contribution among the strongest `SOURCES` so far; 0 while there are fewer."""
        if len(self._strongest) == SOURCES:
            return float(self._strongest.min())
        return 0.0

    def _centre_sources(self, side: int, carried: Sequence[_Carried]) -> Floats:
        """What each source token adds to the advantage (the link's score above its row's mean, or
        above another key's) through one side, [source].

        side: 0 the query's, 1 the keys'.
        carried: the routes to it.
        """
        gains = self._to_advantage[side]  # [row, dim]
        centred = 0.0  # becomes [source] with the first route
        for route in carried:
            of_source = route.weights.T @ gains.astype(route.weights.dtype)  # [source, dim]
            centred = centred + (of_source * route.values).sum(-1)
        return np.asarray(centred, np.float64)

    def _weights_without(
        self, side: int, carried: Sequence[_Carried], sources: Floats
    ) -> dict[str, Floats]:
        """The link's weight if what a head brings from one source token were taken out of the scores
        and the softmax were taken again, [source], by where it is taken out.

        side: 0 for what comes through the query ("query"); 1 for what comes through the keys, taken
            out of the link's key only ("key"), and of every key ("all_keys").
        carried: the head's routes to that side.
        sources: the positions of the source tokens.
        """
        whole = self._whole
        row = self._whole.row
        of_entry = self._of_entry[side].T
        # what each source adds to each score of the row, [source, key]
        sums = np.asarray(
            sum(
                route.weights[:, sources].T * (route.values[sources] @ of_entry)
                for route in carried
            ),
            np.float64,
        )
        if side == 0:
            removals = {"query": sums}
        else:
            # learned keys take nothing from sources
            sums = np.concatenate([sums, np.zeros((len(sums), self._learned))], 1)
            at_key = np.zeros_like(sums)
            at_key[:, whole.place] = sums[:, whole.place]
            removals = {"key": at_key, "all_keys": sums}
        # a copy of the column: a view would keep the whole table
        return {
            name: row.weights_without(removed)[:, whole.place].copy()
            for name, removed in removals.items()
        }

    def merge(self, which: Side) -> dict[LinkPart, list[SourcePart]]:
        """What each head contributes by source token, one `SourcePart` per token.

        which: the side that the parts are named after, "both", "query" or "key".
        """
        return {
            LinkPart("head", part, which): list(self._parts(part, which)) for part in self._heads
        }

    def _parts(self, part: StreamPart, which: Side) -> Iterator[SourcePart]:
        """Yield one head's contributions: the weak sources first, summed as "rest", then one for
        each strong source.

        which: the side of the link that the parts are of: "query", "key", or "both".
        """
        head = self._heads[part]
        sides = head.sides
        without: dict[str, Floats] = {}
        for side in sides.values():
            without |= side.weights_without

        # by the bar of all heads, which may have risen since this head was added
        alone = head.brings & (head.sizes >= self._least)
        rest = head.brings & ~alone
        if rest.any():
            stream = StreamPart("head", part.layer, part.attention, part.head, place="rest")
            sums = {side: float(values.centred[rest].sum()) for side, values in sides.items()}
            yield SourcePart(LinkPart("head", stream, which), sums.get(0), sums.get(1), {})
        for source in np.flatnonzero(alone).tolist():
            stream = StreamPart("head", part.layer, part.attention, part.head, source=source)
            place = int(np.searchsorted(head.alone, source))  # its index in these sorted positions
            yield SourcePart(
                LinkPart("head", stream, which),
                # through the query, then through the keys; None for a side that is not split
                float(sides[0].centred[source]) if 0 in sides else None,
                float(sides[1].centred[source]) if 1 in sides else None,
                {name: float(values[place]) for name, values in without.items()},
            )
