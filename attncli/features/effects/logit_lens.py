"""The logit lens: what the model would say next if it ended at each layer."""

from __future__ import annotations

import numpy as np

from attncli.features.effects.document import LensRow, LensStage, LensToken
from attncli.features.effects.measures import next_logits, target_token
from attncli.features.effects.sweep import SweepText
from attncli.measure.row_facts import Floats
from attncli.models.run import run_layers

MOST = 5
"""Tokens that a row tells, the likeliest."""


def lens_rows(text: SweepText, position: int, target: int) -> list[LensRow]:
    """What the vectors of one token would say next: those that enter each layer, those after its attention, and those
    that leave the last layer, all through the model's own final norm and output head.

    Args:
        text: The text on its model, which has an output head.
        position: After which token.
        target: The vocabulary entry whose rank and probability are told.

    Returns:
        Rows in the order of the model. A layer whose attention and feed-forward part run side by side has no vectors
        between them, and no row of them.

    Raises:
        UnsupportedError: The model has no output head.

    Source: nostalgebraist, interpreting GPT: the logit lens, 2020.
    """
    model, backend = text.model, text.backend
    spec = model.spec
    vectors: list[Floats] = []
    places: list[tuple[int | None, LensStage]] = []

    def add(layer: int | None, stage: LensStage, array: object) -> None:
        vectors.append(np.asarray(backend.numpy(array), np.float64))  # type: ignore[arg-type]
        places.append((layer, stage))

    hidden = model.store.embed(backend, text.tokens)
    last = len(spec.blocks) - 1
    for trace in run_layers(spec, model.store, backend, hidden, text.context(), range(last + 1)):
        add(trace.layer, "before attention", trace.before[position])
        block = spec.blocks[trace.layer]
        stages = trace.stages
        if not (block.parallel and block.mlp is not None) and "sum" in stages:
            add(trace.layer, "after attention", stages["norm" if "norm" in stages else "sum"][position])
        if trace.layer == last:
            add(None, "end", trace.after[position])
    rows = []
    for (layer, stage), vector in zip(places, vectors, strict=True):
        logits = next_logits(model, backend, backend.array(vector[None]))[0]
        shares = np.exp(logits - logits.max())
        shares = shares / shares.sum()
        best = np.argsort(-logits, kind="stable")[:MOST].tolist()
        rows.append(
            LensRow(
                layer=layer,
                stage=stage,
                top=[LensToken(token=target_token(model, entry), probability=float(shares[entry])) for entry in best],
                rank=int((logits > logits[target]).sum()) + 1,
                probability=float(shares[target]),
            )
        )
    return rows
