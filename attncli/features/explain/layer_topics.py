"""Topics of `attn explain` about a whole layer: masks, several heads, positions, residual and norm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, assert_never

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.documents.header import Heading, header, overflow, position_name, token_rows
from attncli.errors import InputError, UnsupportedError
from attncli.features.explain.compute import head_shares, steps_of
from attncli.features.explain.document import (
    HeadPart,
    MaskTopic,
    MultiheadTopic,
    NormStep,
    OutputSum,
    PaddedText,
    PositionTopic,
    PositionWay,
    ResidualTopic,
    SingleHead,
    SoftmaxRow,
)
from attncli.features.explain.softmax_topics import row_softmax
from attncli.inputs.token import Token
from attncli.inputs.word_groups import unknown_notes
from attncli.measure.added_positions import split_embedding
from attncli.measure.similarity import row_entropy
from attncli.measure.visible_keys import Floats
from attncli.mechanism.norm import Norm
from attncli.mechanism.position import frequencies
from attncli.mechanism.spec import Alibi, Disentangled, FirstBlockAgain, Place, RelativeBuckets, RelativeSines, Rope
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model


def mask_topic_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    *,
    layer: int,
    head: int,
    query: int,
    others: Sequence[tuple[str, Sequence[Token]]] = (),
) -> MaskTopic:
    """One head's scores before and after the mask, and what a softmax makes of either.

    others: more texts with their tokens, to be padded together with this one. A query that sees nothing has weights 0.
    """
    trace = next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=("biased", "masked", "weights"))))
    scores, masked, after = (
        np.asarray(model.backend.numpy(trace.stages[name])[0], np.float64) for name in ("biased", "masked", "weights")
    )
    before = row_softmax(scores)
    lost = np.isneginf(masked[query]) & ~np.isneginf(scores[query])
    batch = _padded_texts(model, [(text, tokens), *others], layer, head) if others else UNSET
    return MaskTopic(
        **header(model, text, tokens),
        topic="mask",
        layer=layer,
        head=head,
        query=query,
        scores=scores,
        masked=masked,
        before=before,
        after=after,
        hidden=min(float(before[query][lost].sum()), 1.0),
        batch=batch,
        warnings=[*model.warnings, *unknown_notes(text, tokens)],
    )


def _padded_texts(
    model: Model, texts: Sequence[tuple[str, Sequence[Token]]], layer: int, head: int
) -> list[PaddedText]:
    """The texts in one batch, each padded to the longest: the row of its last token, beside the one that it has
    alone."""
    tokens = [text_tokens for _, text_tokens in texts]
    longest = max(map(len, tokens))
    trace = next(iter(model.trace_batch(tokens, layers=[layer], heads=[head], keep=("weights",))))
    together = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)[:, 0]
    rows = []
    for entry, (text, text_tokens) in enumerate(texts):
        lone = next(iter(model.trace(text_tokens, layers=[layer], heads=[head], keep=("weights",))))
        alone = np.asarray(model.backend.numpy(lone.stages["weights"])[0, -1], np.float64)[: len(text_tokens)]
        row = together[entry, len(text_tokens) - 1, :longest]
        rows.append(
            PaddedText(
                text=text,
                tokens=token_rows(text_tokens),
                weights=row,
                agreement=float(np.abs(row[: len(text_tokens)] - alone).max(initial=0.0)),
            )
        )
    return rows


# Several heads, and how their outputs become one: topic "multihead" of `attn.explain/1`.


def multihead_document(model: Model, text: str, tokens: Sequence[Token], *, layer: int, query: int) -> MultiheadTopic:
    """Every head's row of weights and output for one query, what its rows of W_O make of it, and the average of the
    rows.

    The shares are absent where there is no W_O, or where its weights are not to be had.
    """
    trace = next(iter(model.trace(tokens, layers=[layer], keep=("capped", "biased", "masked", "weights"))))
    weights, mixed = (
        np.asarray(model.backend.numpy(trace.stages[name]), np.float64)[:, query] for name in ("weights", "mixed")
    )
    out = np.asarray(model.backend.numpy(trace.stages["out"]), np.float64)[query]
    split = head_shares(model, layer, mixed)
    if split is None:
        total = mixed.reshape(-1) if "concat" not in trace.stages else out
    else:
        total = split.shares.sum(axis=0) + (0.0 if split.bias is None else split.bias)
    average = weights.mean(axis=0)
    return MultiheadTopic(
        **header(model, text, tokens),
        topic="multihead",
        layer=layer,
        query=query,
        heads=[
            HeadPart(
                head=head,
                weights=weights[head],
                output=mixed[head],
                share=UNSET if split is None else split.shares[head],
            )
            for head in range(len(weights))
        ],
        average=average,
        entropies=(row_entropy(weights) + 0.0).tolist(),
        average_entropy=float(row_entropy(average)) + 0.0,
        single=UNSET if len(weights) > 1 else _single(model, trace, layer, query, weights[0], mixed[0]),
        concat=mixed.reshape(-1),
        bias=UNSET if split is None or split.bias is None else split.bias,
        out=out,
        agreement=float(np.abs(total - out).max(initial=0.0)),
        warnings=[*model.warnings, *unknown_notes(text, tokens)],
    )


def _single(
    model: Model, trace: LayerTrace, layer: int, query: int, weights: Floats, mixed: Floats
) -> SingleHead | UnsetType:
    """The query's attention from q, k and v as if there were no heads, in float64; absent where the trace lacks what it
    takes. weights, mixed: the run's own."""
    spec = model.spec.blocks[layer].attention
    stage_names = ("hidden", "q", "k", "v", "capped", "biased", "masked")
    if spec.sinks or spec.own_global or not set(stage_names) <= set(trace.stages):
        return UNSET
    stages = {name: np.asarray(model.backend.numpy(trace.stages[name]), np.float64) for name in stage_names}
    steps = steps_of(stages, spec.scale, spec.softcap, None, query)
    row = next(np.asarray(step.weights) for step in steps if isinstance(step, SoftmaxRow))
    output = next(np.asarray(step.output) for step in steps if isinstance(step, OutputSum))
    apart = max(float(np.abs(row - weights).max(initial=0.0)), float(np.abs(output - mixed).max(initial=0.0)))
    return SingleHead(weights=row, output=output, agreement=apart)


# Ways of telling attention where tokens stand, and what each makes of one query.

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


# The residual connection and the norm, worked out for one query: topic "residual" of `attn.explain/1`.


def residual_document(model: Model, text: str, tokens: Sequence[Token], *, layer: int, query: int) -> ResidualTopic:
    """x, what attention adds, their sum, and the norm beside it: that of the sum, or, in a model that norms first, that
    of x.

    Raises UnsupportedError for a layer without a residual of its own, or whose weights are not to be had.
    """
    block = model.spec.blocks[layer]
    trace = next(iter(model.trace(tokens, layers=[layer], keep=("weights",))))
    if "sum" not in trace.stages:
        reason = "adds attention and feed-forward at once" if block.parallel else "has no residual"
        raise UnsupportedError(f"layer {layer} {reason}", expected="x + attention on its own", hint="--residual")
    stages = {
        name: np.asarray(model.backend.numpy(array), np.float64)
        for name, array in trace.stages.items()
        if name in ("hidden", "sum", "norm")
    }
    x, after = np.asarray(model.backend.numpy(trace.before), np.float64)[query], stages["sum"][query]
    norm = _norm(model, layer, block.norms, x, after)
    apart = 0.0
    if norm is not None:
        normed_row = stages["norm"][query] if norm.place == "attn.sum" else stages["hidden"][query]
        apart = float(np.abs(norm.normed - normed_row).max(initial=0.0))
    weights = trace.stages.get("weights")
    lengths = float(np.linalg.norm(x) * np.linalg.norm(after))
    return ResidualTopic(
        **header(model, text, tokens),
        topic="residual",
        layer=layer,
        query=query,
        width=len(x),
        x=x,
        out=after - x,
        sum=after,
        weights=UNSET
        if weights is None
        else np.asarray(model.backend.numpy(weights), np.float64)[:, query].max(axis=0),
        cosine=float(x @ after) / lengths if lengths > 0 else 0.0,
        norm=norm,
        agreement=apart,
        warnings=[*model.warnings, *unknown_notes(text, tokens)],
    )


def _norm(model: Model, layer: int, norms: Mapping[Place, Norm], x: Floats, after: Floats) -> NormStep | None:
    """The norm of the sum, or the one before the attention; None without either, or where its weights are not to be
    had."""
    place: Place = "attn.sum" if "attn.sum" in norms else "attn.in"
    if place not in norms or not model.own_layers:
        return None
    norm, vector = norms[place], after if place == "attn.sum" else x
    weights = model.store.layer(model.backend, layer)
    weight, bias = (weights(f"{place}.{name}") for name in ("weight", "bias"))
    mean = float(vector.mean())
    centred_vector = vector - mean if norm.kind == "layer" else vector
    variance = float((centred_vector**2).mean())
    scaled = centred_vector / np.sqrt(variance + norm.eps)
    normed = scaled
    if weight is not None and norm.affine:
        factor = np.asarray(model.backend.numpy(weight), np.float64)
        normed = normed * (factor + 1.0 if norm.unit_offset else factor)
    if bias is not None and norm.affine:
        normed = normed + np.asarray(model.backend.numpy(bias), np.float64)
    return NormStep(
        place=place,
        kind=norm.kind,
        eps=norm.eps,
        vector=vector,
        mean=mean,
        variance=variance,
        scaled=scaled,
        normed=normed,
    )
