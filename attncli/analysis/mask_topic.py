"""What a mask does between scores and weights, and how padding is masked: topic "mask" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET

from attncli.analysis.document import header, token_rows
from attncli.analysis.documents.layer_topics import MaskTopic, PaddedText
from attncli.analysis.row_softmax import row_softmax
from attncli.analysis.words import unknown_notes
from attncli.inputs.token import Token
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
