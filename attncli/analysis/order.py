"""Whether attention sees the order of its tokens: topic "order" of `attn.explain/1`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.analysis.document import Heading, attention_part, header, token_rows
from attncli.analysis.documents.explain import OrderRow, OrderTopic
from attncli.analysis.words import unknown_notes
from attncli.errors import InputError
from attncli.inputs.token import Token
from attncli.models.model import Model

ENTRIES = 8
"""Entries of each output that the document holds."""
ROUNDING = 64
"""Outputs count as equal when they differ by at most this many units in the last place of the largest."""


def reversed_order(tokens: Sequence[Token]) -> list[int]:
    """The positions of the tokens read backwards, special tokens left where they are."""
    movable = [token.index for token in tokens if not token.special]
    order = list(range(len(tokens)))
    for place, source in zip(movable, reversed(movable), strict=True):
        order[place] = source
    return order


def order_of(tokens: Sequence[Token], reordered: Sequence[Token]) -> list[int]:
    """For each token of `reordered` the position of the same token in `tokens`; equal tokens are taken in order.

    Raises InputError unless both texts hold the same tokens equally often.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for token in reversed(tokens):
        places[token.text].append(token.index)
    order = []
    for token in reordered:
        if not places[token.text]:
            raise InputError(
                f"the second text has {token.text!r} more often than the first",
                expected="the same tokens in another order",
            )
        order.append(places[token.text].pop())
    if len(order) < len(tokens):
        extra = next(token for token in tokens if token.index not in order)
        raise InputError(
            f"the first text has {extra.text!r} more often than the second", expected="the same tokens in another order"
        )
    return order


def order_document(
    models: Iterable[Model], text: str, tokens: Sequence[Token], order: Sequence[int], *, layer: int = 0
) -> OrderTopic:
    """Run the tokens as they are and in another order through each model, and compare every token's attention output
    with its own.

    order: for each new place the position of the token that moves there. A row's `equal` says whether
    the largest difference is within float rounding. Where ALiBi does not see a reversal, a further row moves
    the first token to the end instead, which it does see. Raises InputError for an order that moves nothing.
    """
    if list(order) == list(range(len(tokens))):
        raise InputError(
            "the other order is the same order", expected="at least two different tokens", hint="--tokenizer char"
        )
    heading: Heading | None = None
    rows: list[OrderRow] = []
    back = list(order) == list(range(len(tokens)))[::-1]
    for model in models:
        heading = heading or header(model, text, tokens)
        rows.append(_row(model, tokens, order, layer))
        if back and rows[-1].position == "alibi" and rows[-1].equal and len(tokens) > 2:
            rows.append(_row(model, tokens, [*range(1, len(tokens)), 0], layer))
    assert heading is not None, "there is at least one model"
    return OrderTopic(
        **heading,
        topic="order",
        layer=layer,
        order=list(order),
        reversed=back,
        moved=token_rows(_reorder(tokens, order)),
        rows=rows,
        warnings=unknown_notes(text, tokens),
    )


def _row(model: Model, tokens: Sequence[Token], order: Sequence[int], layer: int) -> OrderRow:
    """What one model makes of one order."""
    before, after = (_outputs(model, text_tokens, layer) for text_tokens in (tokens, _reorder(tokens, order)))
    difference = np.abs(after - before[list(order)]).max(axis=1)
    greatest = int(difference.argmax())
    tolerance = ROUNDING * _epsilon(model.backend.dtype) * float(np.abs(before).max(initial=0.0))
    ran = attention_part(model, model.backend)
    return OrderRow(
        mask=ran.mask,
        position=ran.position,
        dtype=ran.dtype,
        order=list(order),
        max_difference=float(difference[greatest]),
        token=int(order[greatest]),
        tolerance=tolerance,
        equal=bool(difference[greatest] <= tolerance),
        per_token=difference[np.argsort(order)],
        outputs=before[:, :ENTRIES],
        moved_outputs=after[np.argsort(order), :ENTRIES],
    )


def _reorder(tokens: Sequence[Token], order: Sequence[int]) -> list[Token]:
    return [replace(tokens[source], index=place) for place, source in enumerate(order)]


def _outputs(model: Model, tokens: Sequence[Token], layer: int) -> np.ndarray[Any, Any]:
    trace = next(iter(model.trace(list(tokens), layers=[layer], keep=())))
    return np.asarray(model.backend.numpy(trace.stages["out"]), np.float64)


def _epsilon(dtype: str) -> float:
    return {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
