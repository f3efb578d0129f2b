"""What would come next after a change: the probability of a target, and the likeliest tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from attncli.arrays.backend import Array, Backend
from attncli.features.effects.document import Prediction, Predictions
from attncli.features.effects.measures import (
    Readings,
    log_softmax,
    next_logits,
    portions,
)
from attncli.features.effects.sweep import LastVectors, SweepText
from attncli.features.effects.targets import likeliest_tokens, target_token
from attncli.measure.row_facts import Floats
from attncli.models.model import Model

LIKELIEST = 3
"""Tokens that are told of each run."""


def predictions(
    text: SweepText,
    vectors: LastVectors,
    places: Sequence[int],
    target: int | None,
    *,
    of_heads: bool,
) -> Predictions:
    """What would come next after a token in a text's own run, with the change of one head, and with
    all of a sweep's changes at once.

    vectors: what leaves the last layer at the token, with all changes at once among it.
    places: the indices of heads in the sweep, the one whose likeliest tokens are told first; empty
        for none.
    target: the vocabulary entry whose probability is shown; None for the own run's first choice.
    of_heads: whether its probability is told with the change of each of these heads.
    """
    assert vectors.together is not None
    chosen = [vectors.own, vectors.together]
    if places:
        chosen.append(vectors.branches[places[0], 0])
    stacked = text.backend.concat([vector[None] for vector in chosen], 0)
    rows = probabilities_after(text.model, text.backend, stacked)
    if target is None:
        target = int(rows[0].argmax())
    # in the order of `chosen`, with or without a single head
    own, together, *single = [prediction_of(text.model, row, target) for row in rows]
    without = None
    if single:
        without = single[0]
    of_each: list[float] | UnsetType = UNSET
    if of_heads and places:
        branches = vectors.branches[list(places), 0]
        of_each = _probabilities_of(text.model, text.backend, branches, target).tolist()
    return Predictions(
        target=target_token(text.model, target),
        own=own,
        without=without,
        probabilities=of_each,
        together=together,
    )


def _probabilities_of(model: Model, backend: Backend, vectors: Array, target: int) -> Floats:
    """The probability of one next token, [branch], after vectors that leave the last layer, [branch,
    width]; those of all tokens are held for a few vectors at a time."""
    parts = [
        np.exp(log_softmax(next_logits(model, backend, part))[:, target])
        for part in portions(vectors, model.spec.vocabulary)
    ]
    return np.concatenate(parts)


def prediction_of(
    model: Model, probabilities: Floats, target: int, count: int = LIKELIEST
) -> Prediction:
    """The probability of a target and the likeliest tokens, from all probabilities, [vocabulary]."""
    top = likeliest_tokens(model, probabilities, count)
    return Prediction(probability=float(probabilities[target]), top=top)


def probabilities_after(model: Model, backend: Backend, vectors: Array) -> list[Floats]:
    """The probabilities of all next tokens, [vocabulary], after each vector that leaves the last
    layer, [branch, width]."""
    return [
        row
        for part in portions(vectors, model.spec.vocabulary)
        for row in np.exp(log_softmax(next_logits(model, backend, part)))
    ]


class NextReading(Struct, frozen=True):
    """All next tokens' probabilities after one token, as the `SweepReading` of a sweep."""

    position: int
    target: int | None

    predicts = True  # of the class, no field: next tokens are always read

    def rows(self, count: int) -> slice:
        """The range of the one token whose last-layer vector is needed."""
        del count
        return slice(self.position, self.position + 1)

    def reader(self, model: Model, backend: Backend, hidden: Array, first: int) -> NextReader:
        """The `NextReader` of these runs.

        hidden: the unchanged run's last-layer output, [token, width], from token `first` on.
        """
        return NextReader(model, backend, self.target, hidden, self.position - first)


class NextReader:
    """Collects the probabilities of all next tokens of each run that it is handed.

    hidden: the unchanged run's last-layer output, [token, width].
    row: the index, in what it is handed, of the token after which the next is predicted.
    own: the probabilities in the unchanged run, [vocabulary].
    rows_read: those of each changed run, in order.
    """

    def __init__(
        self, model: Model, backend: Backend, target: int | None, hidden: Array, row: int
    ) -> None:
        """Compute the probabilities of all next tokens in the unchanged run.

        target: the vocabulary id whose probability is read; None for the unchanged run's likeliest.
        hidden: the unchanged run's last-layer output, [token, width].
        row: the index in it of the token after which the next is predicted.
        """
        self._model = model
        self._backend = backend
        self._row = row
        self.rows_read: list[Floats] = []
        (self.own,) = self._probabilities(hidden[None])
        if target is None:
            self._target_id = int(self.own.argmax())
        else:
            self._target_id = target
        self.target: int | None = self._target_id

    @property
    def baseline(self) -> Readings:
        """The probability of the target in the unchanged run, [1]."""
        return {"probability": self.own[[self._target_id]]}

    def read(self, after: Array) -> Readings:
        """The probability of the target in changed runs, [branch].

        Appends each run's probabilities of all next tokens, [vocabulary], to `rows_read`.

        after: what leaves the last layer in the changed runs, [branch, token, width].
        """
        rows = self._probabilities(after)
        self.rows_read += rows
        return {"probability": np.asarray([row[self._target_id] for row in rows])}

    def _probabilities(self, after: Array) -> list[Floats]:
        """The probabilities of all next tokens, [vocabulary], of each run.

        after: what leaves the last layer, [branch, token, width].
        """
        return probabilities_after(self._model, self._backend, after[:, self._row])
