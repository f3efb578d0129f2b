"""The attention of many texts beside the rows of rules, block by block of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import numpy_backend
from attncli.errors import UnsupportedError
from attncli.features.rules.head_rules import HeadRule, rule_rows
from attncli.features.rules.token_patterns import Bools, Ints, TokenPatterns
from attncli.inputs.token import Token, ignore
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.mask import Mask, visible
from attncli.models.model import Model
from attncli.models.run import LONG, rows_for

Floats = np.ndarray[Any, np.dtype[np.float64]]
BLOCK = 2**21
"""Numbers of all rules' rows that are made at once: 16 MiB."""


class PatternBlock(Struct, frozen=True, eq=False):
    """Some query rows of one layer in one text.

    text: the text's number among those that run.
    layer: which layer.
    kind: the index of its mask among the model's masks.
    heads: the range of its heads among all heads of the model.
    queries: positions, [row].
    weights: attention weights, [head, row, key].
    rules: those of the rules, [rule, row, key].
    visible: what the rows see, [row, key].
    """

    text: int
    layer: int
    kind: int
    heads: slice
    queries: Ints
    weights: Floats
    rules: Floats
    visible: Bools

    @property
    def with_choice(self) -> Bools:
        """Which rows see two keys or more, booleans [row]. A row of one key has weight 1 there by any
        rule, and says nothing about rules."""
        return self.visible.sum(-1) >= 2


class HeadKinds(Struct, frozen=True):
    """The numbers of a model's heads, counted through all layers, and the mask that each layer has.

    layers: those that attend.
    starts: the number of the first head of each of these layers, and last the number of all heads.
    kinds: the index of the mask of each of these layers among the model's distinct masks.
    """

    layers: tuple[int, ...]
    starts: tuple[int, ...]
    kinds: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many heads there are."""
        return self.starts[-1]

    @property
    def kind_count(self) -> int:
        """How many masks there are."""
        return max(self.kinds) + 1

    def names(self) -> list[tuple[int, int]]:
        """The (layer, head) of each head, in the order of their numbers."""
        names = []
        for place, layer in enumerate(self.layers):
            heads = self.starts[place + 1] - self.starts[place]
            names += [(layer, head) for head in range(heads)]
        return names

    def slice_of(self, layer: int) -> slice:
        """The range of a layer's heads among all."""
        place = self.layers.index(layer)
        return slice(self.starts[place], self.starts[place + 1])

    def kind_of(self, layer: int) -> int:
        """The index of a layer's mask among the model's distinct masks."""
        return self.kinds[self.layers.index(layer)]

    def head_kinds(self) -> Ints:
        """The index of each head's mask among the model's distinct masks, [head]."""
        return np.repeat(np.asarray(self.kinds), np.diff(self.starts))


class HeadPlaces(HeadKinds, frozen=True):
    """As `HeadKinds`, with the masks themselves.

    masks: the model's distinct masks.
    """

    masks: tuple[Mask, ...]


def head_places(model: Model) -> HeadPlaces:
    """The heads of a model in the order of its layers, and the distinct masks of these layers.

    Raises UnsupportedError for masks that are made from vectors of a run, and for a model without
    attention.
    """
    layers = tuple(model.spec.attending())
    masks: list[Mask] = []
    mask_indices = []
    starts = [0]
    for layer in layers:
        attention = model.spec.blocks[layer].attention
        mask = attention.mask
        if attention.hashing or any(part.depends_on == "vectors" for part in mask.parts_of()):
            raise UnsupportedError(
                "a hash mask is made from a run's own vectors, and no rule knows it",
                expected="a mask by position, such as causal or window:W",
            )
        if mask.by_head():
            raise UnsupportedError(
                "this model's mask differs by head, and a rule knows one for a layer",
                expected="a mask that is the same for all heads",
            )
        if mask not in masks:
            masks.append(mask)
        mask_indices.append(masks.index(mask))
        starts.append(starts[-1] + attention.heads)
    if not layers:
        raise UnsupportedError("this model has no attention", expected="a model with heads")
    return HeadPlaces(layers, tuple(starts), tuple(mask_indices), tuple(masks))


def sees(mask: Mask, queries: Ints, count: int) -> Bools:
    """Which of `count` keys these queries see under a mask, [query, key]."""
    exact = numpy_backend("float64")
    rows = exact.array(queries[:, None])
    columns = exact.array(np.arange(count)[None])
    pairs = visible(mask, rows, columns, keys=count, backend=exact)
    is_visible: Bools = np.asarray(exact.numpy(pairs))
    if is_visible.ndim > 2:  # a mask that differs by head: what any head sees
        is_visible = np.asarray(is_visible.any(0))
    return np.broadcast_to(is_visible, (queries.size, count))


class TextRules:
    """What rules say of the rows of one text, computed when it is asked for, and kept where all rows
    fit in one block.

    rules: each head's rule.
    tokens: of the text.
    count: how many tokens that is.
    """

    def __init__(self, rules: Sequence[HeadRule], tokens: Sequence[Token]) -> None:
        self._rules = rules
        self._patterns = TokenPatterns(tokens)
        self._kept: dict[Mask, tuple[Floats, Bools]] = {}
        self.count = len(tokens)

    @property
    def rows_at_once(self) -> int:
        """How many queries are compared with the rules at a time."""
        return max(BLOCK // (self.count * len(self._rules)), 1)

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the queries of the text in blocks, each as its first query and the one after its
        last."""
        step = self.rows_at_once
        for start in range(0, self.count, step):
            yield start, min(start + step, self.count)

    def rows(self, mask: Mask, start: int, stop: int) -> tuple[Floats, Bools]:
        """What the rules say of the queries start..stop−1 under a mask, [rule, query, key], and
        which keys these see, [query, key]."""
        if self.rows_at_once < self.count:
            return self._make(mask, start, stop)
        if mask not in self._kept:
            self._kept[mask] = self._make(mask, 0, self.count)
        rows, is_visible = self._kept[mask]
        return rows[:, start:stop], is_visible[start:stop]

    def _make(self, mask: Mask, start: int, stop: int) -> tuple[Floats, Bools]:
        """Compute the rows that `rows` returns, without its cache."""
        queries = np.arange(start, stop)
        is_visible = sees(mask, queries, self.count)
        return rule_rows(self._rules, self._patterns, queries, is_visible), is_visible


def observe(
    model: Model,
    texts: Sequence[Sequence[Token]],
    rules: Sequence[HeadRule],
    places: HeadPlaces,
    consume: Callable[[PatternBlock], None],
    *,
    progress: Callable[[int], None] = ignore,
) -> None:
    """Run texts, and call `consume` with the attention of each layer beside what rules say of it, a
    block of query rows at a time.

    consume: called with each block; the layers of a text come in order.
    progress: called with how many more tokens have run.
    """
    # short texts side by side; a group's batches may hold its texts in another order, and their
    # `places` count from its first text, which is number `begin` of the short ones
    short = [number for number, tokens in enumerate(texts) if len(tokens) <= LONG]
    begin = 0
    for group in model.batches([list(texts[number]) for number in short], keep=("weights",)):
        batched = 0
        for batch in group:
            numbers = [short[begin + place] for place in batch.places]
            batched += len(numbers)
            text_rules = [TextRules(rules, tokens) for tokens in batch.texts]
            for trace in batch.layers:
                weights = model.backend.numpy(trace.stages["weights"])
                for entry, text in enumerate(text_rules):
                    text_weights = weights[entry, :, : text.count, : text.count]  # no padding
                    for start, stop in text.blocks():
                        # a block at a time: a batch as float64 would be twice its size
                        rows = np.asarray(text_weights[:, start:stop], np.float64)
                        consume(_block(places, text, numbers[entry], trace.layer, start, rows))
            progress(sum(map(len, batch.texts)))
        begin += batched

    # long ones alone
    for number, tokens in enumerate(texts):
        if len(tokens) > LONG:
            _observe_long(model, tokens, TextRules(rules, tokens), places, number, consume)
            progress(len(tokens))


def _block(
    places: HeadPlaces,
    text: TextRules,
    number: int,
    layer: int,
    row: int,
    weights: Floats,
    first: int = 0,
) -> PatternBlock:
    """Set some rows of attention weights of a layer beside what rules say of these rows.

    places: the model's heads and masks.
    text: the rules of the text that the rows are of.
    number: the text's.
    row: the first query.
    weights: [head, row, key].
    first: the number within the layer of the first of these heads.
    """
    kind = places.kind_of(layer)
    stop = row + weights.shape[1]
    rows, visible_keys = text.rows(places.masks[kind], row, stop)
    first_head = places.slice_of(layer).start + first
    return PatternBlock(
        text=number,
        layer=layer,
        kind=kind,
        heads=slice(first_head, first_head + weights.shape[0]),
        queries=np.arange(row, stop),
        weights=weights,
        rules=rows,
        visible=visible_keys,
    )


def _observe_long(
    model: Model,
    tokens: Sequence[Token],
    text: TextRules,
    places: HeadPlaces,
    number: int,
    consume: Callable[[PatternBlock], None],
) -> None:
    """As `observe`, for one long text, of which only some rows of attention are in memory at a
    time.

    number: the text's among those that run.
    consume: called with each block of rows beside what rules say of it.
    """

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Hand the weights of a block, the queries start..stop−1 over the keys low..high−1, to
        `consume`, padded to all keys of the text and cut into as many rows at a time as its rules
        are compared in.

        kind: "self", or "cross" for attention to another text, of which no rule speaks.
        """
        if kind != "self":
            return
        stage = model.backend.numpy(block.stages["weights"])
        # keys behind those of the text (extra keys, which some models learn) are known to no rule
        high = min(block.high, text.count)
        for start in range(block.start, block.stop, text.rows_at_once):
            stop = min(start + text.rows_at_once, block.stop)
            rows = slice(start - block.start, stop - block.start)
            weights = np.zeros((stage.shape[0], stop - start, text.count))
            weights[..., block.low : high] = stage[:, rows, : high - block.low]
            consume(_block(places, text, number, layer, start, weights, block.first_head))

    rows = rows_for(model.spec, text.count)
    for _ in model.trace(tokens, keep=("weights",), rows=rows, on_block=on_block):
        pass
