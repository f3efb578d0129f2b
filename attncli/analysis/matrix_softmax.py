"""Softmax by rows against softmax over the whole matrix: topic "matrix-softmax" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.analysis.document import header
from attncli.analysis.documents.explain import MatrixSoftmaxTopic
from attncli.analysis.row_softmax import row_softmax
from attncli.analysis.words import unknown_notes
from attncli.inputs.token import Token
from attncli.models.model import Model


def matrix_softmax_document(
    model: Model, text: str, tokens: Sequence[Token], *, layer: int, head: int
) -> MatrixSoftmaxTopic:
    """Softmax of a head's scores by rows, as attention does it, and over all entries of the matrix at once.

    `row_sums` are those of the second; the first ones are 1. Both come from the package's own softmax.
    """
    trace = next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=("masked", "weights"))))
    scores, weights = (
        np.asarray(model.backend.numpy(trace.stages[name])[0], np.float64) for name in ("masked", "weights")
    )
    whole = row_softmax(scores.reshape(1, -1)).reshape(scores.shape)
    return MatrixSoftmaxTopic(
        **header(model, text, tokens),
        topic="matrix-softmax",
        layer=layer,
        head=head,
        scores=scores,
        rows=weights,
        whole=whole,
        row_sums=whole.sum(axis=1),
        warnings=[*model.warnings, *unknown_notes(text, tokens)],
    )
