"""The document of `attn explain TEXT`: one query's attention written out, beside the matrices it is a row of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import Array
from attncli.documents.header import empty_rows, header, overflow, shape_rows
from attncli.errors import InputError, UnsupportedError
from attncli.features.explain.document import (
    After,
    AttentionTopic,
    Matrices,
    OutputSum,
    Products,
    Projections,
    Scores,
    SoftmaxRow,
    Step,
)
from attncli.features.explain.softmax_topics import softmax_steps
from attncli.features.run.compute import head_projections, layer_projections
from attncli.inputs.token import Token
from attncli.inputs.word_groups import unknown_notes
from attncli.measure.visible_keys import Floats
from attncli.mechanism.spec import Attention, Rope
from attncli.mechanism.trace import SQUARE
from attncli.models.model import Model

# What each head adds to the layer's output: concat(O₁ … O_h)·W_O taken apart into Σ_h O_h·W_O^h.


class HeadShares(Struct, frozen=True):
    """shares: each head's output times its rows of W_O, [head, width]. bias: b_O, [width], None without one."""

    shares: Floats
    bias: Floats | None


def head_shares(model: Model, layer: int, outputs: Floats) -> HeadShares | None:
    """The shares of one query. outputs: its row of every head's A·V, [head, v_dim].

    None where there is no W_O, or where a model's weights are not to be had by role.
    """
    if not model.own_layers:
        return None
    weights = model.store.layer(model.backend, layer)
    matrix, bias = weights("attn.o.weight"), weights("attn.o.bias")
    if matrix is None:
        return None
    projection = np.asarray(model.backend.numpy(matrix), np.float64)  # [width, head · v_dim]
    heads, dim = outputs.shape
    if projection.shape[1] != heads * dim:
        return None
    shares = np.einsum("hd,whd->hw", outputs, projection.reshape(len(projection), heads, dim))
    return HeadShares(shares, None if bias is None else np.asarray(model.backend.numpy(bias), np.float64))


def derivation_document(
    model: Model, text: str, tokens: Sequence[Token], *, layer: int, head: int, query: int, projections: bool = False
) -> AttentionTopic:
    """`attn.explain/1`, topic "attention": the steps of one query of one head, in float64 from that head's q, k and v.

    `agreement` is the largest difference between the steps and the same numbers of the run's
    own matrices. A query that sees nothing has weights 0 and output 0. projections: whether W_Q, W_K, W_V and W_O are
    to be in it. Raises UnsupportedError for hash attention and for attention that reads more than its layer's vectors,
    InputError for numbers that left the range of their type.
    """
    spec = model.spec.blocks[layer].attention
    if spec.hashing is not None:
        raise UnsupportedError("the derivation is that of dense attention", expected="--attention dense")
    trace = next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=SQUARE)))
    stages = {name: _wide(model.backend.numpy(array)) for name, array in trace.stages.items()}
    if "hidden" not in stages:
        raise UnsupportedError(
            f"the attention of layer {layer} reads vectors of another width than the layer's",
            expected="an attention whose queries come from what enters its layer",
            hint="attn run shows its scores and weights",
        )
    if not np.isfinite(stages["mixed"][0, query]).all():
        raise InputError(overflow(model.backend, trace)[0], expected="numbers that can be written out")
    steps = steps_of(
        _with_global_projections(stages, spec, query), spec.scale, spec.softcap, _sink(model, spec, layer, head), query
    )
    steps[0] = _with_column(model, steps[0], layer, head)
    heading = header(model, text, tokens)
    # layers may differ from layer 0, and the derivation speaks of this one
    heading["model"] = replace(
        heading["model"], heads=spec.heads, kv_heads=spec.kv_heads, d_k=spec.head_dim, d_v=spec.v_dim
    )
    heading["attention"] = replace(heading["attention"], scale=spec.scale, softcap=spec.softcap)
    return AttentionTopic(
        **heading,
        topic="attention",
        layer=layer,
        head=head,
        query=query,
        extra_keys=stages["k"].shape[-2] - len(tokens),
        rotated=isinstance(spec.position, Rope),
        shapes=shape_rows(trace, spec),
        steps=steps,
        matrices=Matrices(
            x=stages["hidden"],
            raw=stages["raw"][0],
            scaled=stages["scaled"][0],
            scores=stages["masked"][0],
            weights=stages["weights"][0],
            output=stages["mixed"][0],
        ),
        projections={**head_projections(model, layer, head), **layer_projections(model, layer)}
        if projections
        else UNSET,
        after=_after(model, layer, trace.before, stages, query),
        agreement=agreement(steps, stages, query),
        empty_rows=empty_rows(model.backend, trace, [head]),
        warnings=[*model.warnings, *trace.notes, *unknown_notes(text, tokens)],
    )


def _with_global_projections(stages: dict[str, Floats], spec: Attention, query: int) -> dict[str, Floats]:
    """The stages with the query, keys and values that a global token has to itself in their places."""
    if query not in (spec.own_global or ()):
        return stages
    q = np.array(stages["q"])
    q[:, query] = stages["global_q"][:, (spec.own_global or ()).index(query)]
    return {**stages, "q": q, "k": stages["global_k"], "v": stages["global_v"]}


def _wide(array: Array) -> Floats:
    return np.asarray(array, np.float64)


def _sink(model: Model, spec: Attention, layer: int, head: int) -> float | None:
    if not spec.sinks:
        return None
    sinks = model.store.layer(model.backend, layer)("attn.sinks")
    return None if sinks is None else float(model.backend.numpy(sinks)[head])


def _with_column(model: Model, step: Step, layer: int, head: int) -> Step:
    """The projections with what q's first entry is computed from, where x times it is that entry: not after rotation,
    nor where x is normed or scaled first, nor of a model that transformers runs."""
    assert isinstance(step, Projections)
    if not model.own_layers:  # the weights are not to be had by role
        return step
    weights = model.store.layer(model.backend, layer)
    matrix, bias_vector = weights("attn.q.weight"), weights("attn.q.bias")
    row = head * len(np.asarray(step.q))
    if matrix is None:
        return step
    column = _wide(model.backend.numpy(matrix))[row]
    bias = None if bias_vector is None else float(_wide(model.backend.numpy(bias_vector))[row])
    first_entry = float(np.asarray(step.x) @ column) + (bias or 0.0) if column.shape == np.shape(step.x) else np.nan
    if not np.isclose(first_entry, np.asarray(step.q)[0], rtol=1e-4, atol=1e-5):
        return step
    return replace(step, column=column, bias=UNSET if bias is None else bias)


def _after(model: Model, layer: int, before: Array, stages: dict[str, Floats], query: int) -> After:
    """The query's row of what follows the heads, each head's part of it where there are several, and the norm.

    x: what entered the layer, before any norm.
    """
    rows = {name: stages[name][query] for name in ("sum", "norm") if name in stages}
    heads: Floats | UnsetType = UNSET
    bias: Floats | UnsetType = UNSET
    spec = model.spec.blocks[layer].attention
    if "concat" in stages and spec.heads > 1:
        split = head_shares(model, layer, stages["concat"][query].reshape(spec.heads, spec.v_dim))
        if split is not None:
            heads, bias = split.shares, UNSET if split.bias is None else split.bias
    x = _wide(model.backend.numpy(before))[query]
    return After(x=x, heads=heads, bias=bias, out=stages["out"][query], **rows)


def steps_of(
    stages: Mapping[str, Floats], scale: float, softcap: float | None, sink: float | None, query: int
) -> list[Step]:
    """The steps of one query from one head's stages: hidden, q, k, v, capped, biased, masked. sink: its logit."""
    x, q, k, v = stages["hidden"][query], stages["q"][0, query], stages["k"][0], stages["v"][0]
    products = q * k
    raw = products.sum(axis=1)
    scaled = raw * scale
    capped = scaled if softcap is None else np.tanh(scaled / softcap) * softcap
    bias = _bias(stages, query)
    scores = capped if bias is None else capped + bias
    visible = ~(np.isneginf(stages["masked"][0, query]) & ~np.isneginf(stages["biased"][0, query]))
    softmax = softmax_steps(
        [float(score) if is_visible else None for score, is_visible in zip(scores, visible, strict=True)], sink=sink
    )
    weights = np.asarray(softmax.weights)
    # a hidden value may be anything, even NaN: it has no part in the sum
    terms = np.where(weights[:, None] > 0, weights[:, None] * np.where(weights[:, None] > 0, v, 0.0), 0.0)
    return [
        Projections(formula="q = x·W_Q, k = x·W_K, v = x·W_V", x=x, q=q, k=k, v=v),
        Products(formula="q·k_j = Σ_i q_i·k_ji", products=products, raw=raw),
        Scores(
            formula="s_j = q·k_j × scale",
            scale=scale,
            softcap=softcap,
            scaled=scaled,
            capped=None if softcap is None else capped,
            bias=bias,
            visible=visible.tolist(),
            scores=list(softmax.scores),
        ),
        SoftmaxRow(
            formula="w_j = exp(s_j − max) / Σ_j exp(s_j − max)",
            highest=softmax.highest,
            shifted=list(softmax.shifted_scores),
            exponentials=list(softmax.exponentials),
            sink=softmax.sink,
            sum=softmax.total,
            weights=weights,
        ),
        OutputSum(formula="o = Σ_j w_j·v_j", terms=terms, output=terms.sum(axis=0)),
    ]


def _bias(stages: Mapping[str, Floats], query: int) -> Floats | None:
    """What the position encoding adds to this query's scores; None if nothing does."""
    before, after = stages["capped"][0, query], stages["biased"][0, query]
    if np.array_equal(before, after, equal_nan=True):
        return None
    with np.errstate(invalid="ignore"):
        return after - before


def agreement(steps: list[Step], stages: Mapping[str, Floats], query: int) -> float:
    """The largest absolute difference between the worked numbers and the run's own."""
    differences: list[Floats] = []
    for step in steps:
        match step:
            case Products(raw=raw):
                differences.append(np.abs(raw - stages["raw"][0, query]))
            case SoftmaxRow(weights=weights):
                differences.append(np.abs(weights - stages["weights"][0, query]))
            case OutputSum(output=output):
                differences.append(np.abs(output - stages["mixed"][0, query]))
            case Projections() | Scores():
                pass
            case _:
                assert_never(step)
    return float(max(np.nanmax(difference, initial=0.0) for difference in differences))


def derivation_shapes(model: Model, tokens: int, layer: int) -> list[tuple[int, ...]]:
    """Shapes of the arrays that the document would hold, to estimate its size before it is built."""
    spec = model.spec.blocks[layer].attention
    wide = max(spec.head_dim, spec.v_dim)
    return [(4 * tokens, tokens), (5 * tokens, wide), (tokens, model.spec.d_model)]
