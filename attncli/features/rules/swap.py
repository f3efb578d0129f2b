"""The model with rules in place of heads: what their weights become, and what it then predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.features.rules.attention_rows import HeadPlaces, TextRules
from attncli.features.rules.head_rules import HeadRule
from attncli.features.rules.overlap import distance_rows
from attncli.inputs.token import Token, ignore
from attncli.mechanism.context import (
    NO_INTERVENTIONS,
    Intervention,
    Interventions,
    Kind,
    PutWeights,
)
from attncli.models.model import Model
from attncli.models.run import LONG, rows_for

Floats = np.ndarray[Any, np.dtype[np.float64]]
LOGIT_ROWS = 64
"""Vectors whose logits are computed together."""


class Swap(Struct, frozen=True, eq=False):
    """Which heads attend by rule in place of their own weights.

    heads: their numbers among all heads of the model.
    mixtures: of all heads, [head, rule].
    profile: where they attend by distance alone, mean weights of all heads, [head, distance]; None
        for the mixtures.
    """

    heads: frozenset[int]
    mixtures: Floats
    profile: Floats | None = None


class SwapLayers(Mapping[tuple[int, Kind], Sequence[Intervention]]):
    """The interventions of a swap for texts that run side by side, as a mapping by (layer, "self").
    The weights of a layer are computed when the run asks for them, since those of all layers would
    not fit in memory."""

    def __init__(
        self,
        swap: Swap,
        places: HeadPlaces,
        rules: Sequence[HeadRule],
        backend: Backend,
        texts: Sequence[Sequence[Token]],
    ) -> None:
        """Prepare the rules of each text, and find the layers that have a swapped head."""
        self._swap = swap
        self._places = places
        self._backend = backend
        self._texts = [TextRules(rules, tokens) for tokens in texts]
        self._longest = max(map(len, texts))
        self._layers = [
            layer
            for layer in places.layers
            if any(head in swap.heads for head in _heads_of(places, layer))
        ]

    def __iter__(self) -> Iterator[tuple[int, Kind]]:
        """Yield the key of each layer that has a swapped head, (layer, "self")."""
        for layer in self._layers:
            yield layer, "self"

    def __len__(self) -> int:
        """How many layers have a swapped head."""
        return len(self._layers)

    def __getitem__(self, place: tuple[int, Kind]) -> Sequence[Intervention]:
        """The intervention that puts the weights by rule in place of those of a layer's swapped
        heads. Raises KeyError for a layer without any, and for cross-attention."""
        layer, kind = place
        if kind != "self" or layer not in self._layers:
            raise KeyError(place)
        numbers = [head for head in _heads_of(self._places, layer) if head in self._swap.heads]
        first = self._places.slice_of(layer).start

        def rows(start: int, stop: int) -> Array:
            """Called for a block of queries, start to stop − 1: their weights, [text, head, query,
            key], 0 in padding after shorter texts."""
            weights = np.zeros((len(self._texts), len(numbers), stop - start, self._longest))
            for entry, text in enumerate(self._texts):
                step = text.rows_at_once  # queries whose rules are in memory at a time
                for begin in range(start, min(stop, text.count), step):
                    end = min(begin + step, stop, text.count)
                    in_block = slice(begin - start, end - start)
                    weights[entry, :, in_block, : text.count] = self._rows_of(
                        text, layer, numbers, begin, end
                    )
            return self._backend.array(weights)

        return (PutWeights(tuple(number - first for number in numbers), rows),)

    def _rows_of(
        self, text: TextRules, layer: int, numbers: Sequence[int], start: int, stop: int
    ) -> Floats:
        """The weights by rule, or by distance alone, of the queries start to stop − 1 of a text,
        [head, query, key].

        numbers: the heads, among all of the model.
        """
        mask = self._places.masks[self._places.kind_of(layer)]
        rows, visible = text.rows(mask, start, stop)
        if self._swap.profile is None:
            return np.tensordot(self._swap.mixtures[list(numbers)], rows, 1)
        return distance_rows(self._swap.profile[list(numbers)], np.arange(start, stop), visible)


def _heads_of(places: HeadPlaces, layer: int) -> range:
    """The numbers of a layer's heads among all."""
    heads = places.slice_of(layer)
    return range(heads.start, heads.stop)


def next_token_loss(
    model: Model,
    texts: Sequence[Sequence[Token]],
    rules: Sequence[HeadRule],
    places: HeadPlaces,
    swap: Swap | None,
    *,
    progress: Callable[[int], None] = ignore,
) -> float:
    """The mean of −log p of the token that does follow, in nats, over all tokens but the first of
    each text; 0 where no text has two tokens.

    swap: which heads attend by rule; None for the model as it is.
    progress: called with how many more tokens have run.
    """
    last = len(model.spec.blocks) - 1
    changes: Callable[[Sequence[Sequence[Token]]], Interventions] | None = None
    if swap is not None:

        def changes(batch: Sequence[Sequence[Token]]) -> Interventions:
            """The interventions that put rules in place of heads in a batch."""
            return SwapLayers(swap, places, rules, model.backend, batch)

    # short texts side by side, unless the last layer does not attend: batches yield none of those
    total = 0.0
    count = 0
    attends = last in model.spec.attending()
    short = [list(tokens) for tokens in texts if attends and len(tokens) <= LONG]
    for group in model.batches(short, layers=[last], keep=(), interventions=changes):
        for batch in group:
            (trace,) = batch.layers
            for entry, tokens in enumerate(batch.texts):
                total += _loss_sum(model, trace.after[entry, : len(tokens)], tokens)
                count += len(tokens) - 1
            progress(sum(map(len, batch.texts)))

    # the others alone
    for text in texts:
        if not attends or len(text) > LONG:
            (trace,) = model.trace(
                text,
                layers=[last],
                keep=(),
                idle=True,
                rows=rows_for(model.spec, len(text)),
                interventions=NO_INTERVENTIONS if changes is None else changes([text]),
            )
            total += _loss_sum(model, trace.after, text)
            count += len(text) - 1
            progress(len(text))
    return total / max(count, 1)


def _loss_sum(model: Model, after: Array, tokens: Sequence[Token]) -> float:
    """The sum of −log p of a text's tokens but the first.

    after: what leaves the last layer, [token, width].
    """
    total = 0.0
    for start in range(0, len(tokens) - 1, LOGIT_ROWS):
        stop = min(start + LOGIT_ROWS, len(tokens) - 1)
        scores = np.asarray(model.backend.numpy(model.logits(after[start:stop])), np.float64)
        scores -= scores.max(-1, keepdims=True)
        # the type allows None, but a model that predicts tokens numbers all of them
        following = [tokens[place + 1].id or 0 for place in range(start, stop)]
        following_scores = scores[np.arange(stop - start), following]
        total += float((np.log(np.exp(scores).sum(-1)) - following_scores).sum())
    return total
