"""Ways of telling attention where tokens stand, and what each makes of one query: topic "position" of
`attn.explain/1`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

import numpy as np
from msgspec import UNSET

from attncli.analysis.added_positions import split_embedding
from attncli.analysis.document import Heading, header, overflow, position_name
from attncli.analysis.documents.layer_topics import PositionTopic, PositionWay
from attncli.analysis.visible_keys import Floats
from attncli.analysis.words import unknown_notes
from attncli.errors import InputError
from attncli.inputs.token import Token
from attncli.mechanism.position import frequencies
from attncli.mechanism.spec import Alibi, Disentangled, FirstBlockAgain, RelativeBuckets, RelativeSines, Rope
from attncli.models.model import Model

ADDED = {
    "sinusoidal": "P[i, 2m] = sin(i / 10000^(2m/d)); P[i, 2m+1] = cos(i / 10000^(2m/d))",
    "learned": "P[i]: one learned vector for each position i",
}
"""What is added to the input; other tables that checkpoints have are added likewise."""


def position_document(
    models: Iterable[Model], text: str, tokens: Sequence[Token], *, layer: int, head: int, query: int
) -> PositionTopic:
    """The tokens through each model, which differ in their positions alone; the first is what the others are measured
    against. Raises InputError for numbers that left the range of their type."""
    heading: Heading | None = None
    ways: list[PositionWay] = []
    warnings: list[str] = []
    for model in models:
        heading = heading or header(model, text, tokens)
        warnings += [warning for warning in model.warnings if warning not in warnings]
        ways.append(_way(model, tokens, layer, head, query, ways[0].weights if ways else None))
    assert heading is not None, "there is at least one model"
    warnings += unknown_notes(text, tokens)
    return PositionTopic(**heading, topic="position", layer=layer, head=head, query=query, ways=ways, warnings=warnings)


def _way(model: Model, tokens: Sequence[Token], layer: int, head: int, query: int, first: Floats | None) -> PositionWay:
    keep = ("capped", "biased", "weights", "mixed")
    trace = next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=keep)))
    if lost := overflow(model.backend, trace):
        raise InputError(lost[0], expected="numbers that can be written out")
    stages = {
        name: np.asarray(model.backend.numpy(trace.stages[name])[0], np.float64)
        for name in ("capped", "biased", "weights")
    }
    row = stages["weights"][query]
    # scores that left the range of their type may stand where a mask hides them
    within = np.isfinite(stages["capped"])
    bias = np.subtract(stages["biased"], stages["capped"], out=np.zeros(within.shape), where=within)
    name, enters, formula, table = _position_facts(model, tokens, layer, bias)
    difference = 0.0 if first is None else float(np.abs(row - first).max(initial=0.0))
    return PositionWay(
        position=name,
        enters=enters,
        formula=formula,
        table=UNSET if table is None else table,
        weights=row,
        moved=difference,
    )


def _position_facts(
    model: Model, tokens: Sequence[Token], layer: int, bias: Floats
) -> tuple[str, Literal["nowhere", "input", "queries and keys", "scores"], str, Floats | None]:
    """The way's name, where it enters, its formula, and its numbers where there are any to show."""
    input_positions, score_position = model.spec.embedding.positions, model.spec.blocks[layer].attention.position
    if input_positions is not None:
        both = split_embedding(model, tokens)
        return (
            input_positions,
            "input",
            "X = E + P; " + ADDED.get(input_positions, "P[i]: a vector"),
            None if both is None else both[1],
        )
    match score_position:
        case None:
            return "none", "nowhere", "X = E", None
        case Rope():
            per_pair, _ = frequencies(score_position, len(tokens))
            angles = np.asarray([token.index for token in tokens], np.float64)[:, None] * per_pair
            return (
                position_name(score_position),
                "queries and keys",
                "angle of pair m at position i: i · θ^(−2m/d)",
                angles,
            )
        case Alibi():
            return "alibi", "scores", "S + bias; bias = −slope · |i − j|", bias
        case RelativeBuckets() | Disentangled():
            return position_name(score_position), "scores", "S + bias, learned for each distance j − i", bias
        case RelativeSines():
            return position_name(score_position), "scores", "S + (Q + b)·R, with R of the sinusoid of i − j", bias
        case FirstBlockAgain():
            return position_name(score_position), "scores", "S + ln(1 + times) for keys of the first block", bias
        case _:
            assert_never(score_position)
