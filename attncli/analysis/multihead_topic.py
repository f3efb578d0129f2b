"""Several heads, and how their outputs become one: topic "multihead" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.analysis.derivation import steps_of
from attncli.analysis.document import header
from attncli.analysis.documents.derivation import OutputSum, SoftmaxRow
from attncli.analysis.documents.layer_topics import HeadPart, MultiheadTopic, SingleHead
from attncli.analysis.head_shares import head_shares
from attncli.analysis.similarity import row_entropy
from attncli.analysis.visible_keys import Floats
from attncli.analysis.words import unknown_notes
from attncli.inputs.token import Token
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model


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
