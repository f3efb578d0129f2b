"""Several heads, and how their outputs become one: topic "multihead" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET

from attncli.analysis.document import header
from attncli.analysis.documents.layer_topics import HeadPart, MultiheadTopic
from attncli.analysis.head_shares import head_shares
from attncli.analysis.similarity import row_entropy
from attncli.analysis.words import unknown_notes
from attncli.inputs.token import Token
from attncli.models.model import Model


def multihead_document(model: Model, text: str, tokens: Sequence[Token], *, layer: int, query: int) -> MultiheadTopic:
    """Every head's row of weights and output for one query, what its rows of W_O make of it, and the average of the
    rows.

    The shares are absent where there is no W_O, or where its weights are not to be had.
    """
    trace = next(iter(model.trace(tokens, layers=[layer], keep=("weights",))))
    weights, mixed = (
        np.asarray(model.backend.numpy(trace.stages[name]), np.float64)[:, query] for name in ("weights", "mixed")
    )
    out = np.asarray(model.backend.numpy(trace.stages["out"]), np.float64)[query]
    found = head_shares(model, layer, mixed)
    if found is None:
        worked = mixed.reshape(-1) if "concat" not in trace.stages else out
    else:
        worked = found.shares.sum(axis=0) + (0.0 if found.bias is None else found.bias)
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
                share=UNSET if found is None else found.shares[head],
            )
            for head in range(len(weights))
        ],
        average=average,
        entropies=(row_entropy(weights) + 0.0).tolist(),
        average_entropy=float(row_entropy(average)) + 0.0,
        concat=mixed.reshape(-1),
        bias=UNSET if found is None or found.bias is None else found.bias,
        out=out,
        agreement=float(np.abs(worked - out).max(initial=0.0)),
        warnings=[*model.warnings, *unknown_notes(text, tokens)],
    )
