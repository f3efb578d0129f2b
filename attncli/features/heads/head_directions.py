"""The directions of one head: singular vectors of what it does to the stream, told by the tokens nearest to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.heads.across_heads import HeadMatrices, heads_of
from attncli.features.heads.document import Direction, DirectionEnd, DirectionToken, HeadDirections
from attncli.inputs.token import Token
from attncli.mechanism.spec import parse_head
from attncli.models.model import Model

Floats = np.ndarray[Any, np.dtype[Any]]
DIRECTIONS = 5
"""Directions of a head that are told, the strongest."""
TOKENS = 5
"""Tokens that are told of either end of a direction."""
WHOLE = 2**24
"""Numbers of an embedding matrix that are multiplied at once."""


def parse(text: str) -> tuple[tuple[int, int], ...]:
    """The heads that `--directions` names, such as "L5H11,L3H1". Raises UsageError."""
    pairs = []
    for part in text.split(","):
        pair = parse_head(part.strip())
        if pair is None:
            raise UsageError(
                "--directions {part} is no layer and head",
                expected="heads, each with its layer: L5H11,L3H1",
                part=repr(part.strip()),
            )
        pairs.append(pair)
    return tuple(dict.fromkeys(pairs))


def head_directions(model: Model, places: Sequence[tuple[int, int]]) -> list[HeadDirections]:
    """The singular directions of chosen heads: along which of the stream they read and write (OV), and which of queries
    meet which of keys (QK).

    Args:
        model: With weights of its own, an output projection and a vocabulary.
        places: Which heads, layer and number.

    Returns:
        For each head its strongest directions with the share of the squared norm that each has, and of both ends the
        tokens that lie nearest either way: a direction has no sign. What is read is told by embeddings, what is
        written by the output head where there is one, else by embeddings. Norms before the attention and rotations by
        position are left out.

    Raises:
        UnsupportedError: No vocabulary, no output projection, or layers that are not our own.
        InputError: There is no such head.

    Source: Millidge and Black, The singular value decompositions of transformer weight matrices are highly
    interpretable, 2022.
    """
    if not model.own_layers:
        raise UnsupportedError(
            "this model's layers run through transformers, so the weights of its heads are not known one by one",
            expected="a model of a family that attn runs itself (attn models list)",
        )
    outer = model.store.outer(model.backend)
    embeddings = outer("tokens.weight")
    if embeddings is None or not hasattr(model.tokenizer, "ids_to_tokens"):
        raise UnsupportedError(
            "directions are told by the tokens of a vocabulary, and this model has none",
            expected="a checkpoint with a tokenizer: --model NAME",
        )
    table = model.backend.numpy(embeddings)
    head_weights = outer("head.weight")
    unembedding = table if head_weights is None else model.backend.numpy(head_weights)
    directions = []
    for layer, number in places:
        if layer >= len(model.spec.blocks) or number >= model.spec.blocks[layer].attention.heads:
            raise InputError(
                "there is no layer {layer} head {head}",
                expected="one of {layers} layers, with {heads} heads in the first",
                layer=layer,
                head=number,
                layers=len(model.spec.blocks),
                heads=model.spec.blocks[0].attention.heads,
            )
        (head,) = heads_of(model, layer, [number])
        if head.w_v.shape[0] != table.shape[1] or head.w_o.shape[1] != unembedding.shape[1]:
            raise UnsupportedError(
                "the vectors of this model's vocabulary are of another width than those of its heads",
                expected="a model whose embeddings are as wide as its layers",
            )
        directions.append(_directions(model, head, table, unembedding))
    return directions


def _directions(model: Model, head: HeadMatrices, table: Floats, unembedding: Floats) -> HeadDirections:
    rows = []
    for circuit, (into, out_of), tables in (
        ("ov", (head.w_v, head.w_o), (table, unembedding)),
        ("qk", (head.w_q, head.w_k.T), (table, table)),
    ):
        left, sizes, right = product_svd(into, out_of)
        total = float(np.square(sizes).sum())
        for number in range(min(DIRECTIONS, len(sizes))):
            ends = [
                _end(model, vector, tokens)
                for vector, tokens in zip((left[:, number], right[number]), tables, strict=True)
            ]
            rows.append(
                Direction(
                    circuit="ov" if circuit == "ov" else "qk",
                    size=float(sizes[number]),
                    share=float(sizes[number] ** 2 / total) if total else 0.0,
                    reads=ends[0],
                    writes=ends[1],
                )
            )
    return HeadDirections(layer=head.layer, head=head.head, directions=rows)


def product_svd(first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """The singular value decomposition of first · second, [width, small] times [small, width], made of small ones:
    [width, small], [small] and [small, width]."""
    left, upper = np.linalg.qr(first)
    right, lower = np.linalg.qr(second.T)
    u, sizes, v = np.linalg.svd(upper @ lower.T)
    return left @ u, sizes, v @ right.T


def _end(model: Model, direction: Floats, table: Floats) -> DirectionEnd:
    """The tokens whose vectors lie nearest to a direction, and nearest to its opposite, by the cosine."""
    cosines = np.concatenate([_cosines(part, direction) for part in _parts(table)])
    order = np.argsort(-cosines, kind="stable")
    sides = (order[:TOKENS].tolist(), order[::-1][:TOKENS].tolist())
    tokens = model.tokenizer.ids_to_tokens([*sides[0], *sides[1]])
    nearest = [_token(token, entry, cosines) for token, entry in zip(tokens, [*sides[0], *sides[1]], strict=True)]
    return DirectionEnd(toward=nearest[: len(sides[0])], opposite=nearest[len(sides[0]) :])


def _parts(table: Floats) -> Iterator[Floats]:
    step = max(WHOLE // table.shape[1], 1)
    for start in range(0, len(table), step):
        yield np.asarray(table[start : start + step], np.float64)


def _cosines(rows: Floats, direction: Floats) -> Floats:
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(direction)
    return np.asarray(rows @ direction / np.where(sizes > 0, sizes, 1.0))


def _token(token: Token, entry: int, cosines: Floats) -> DirectionToken:
    return DirectionToken(id=entry, text=token.text, cosine=float(cosines[entry]))
