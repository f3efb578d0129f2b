"""What would come next after a change: the probability of a target, and the likeliest tokens."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.features.effects.document import Prediction, Predictions
from attncli.features.effects.measures import (
    Readings,
    log_softmax,
    next_logits,
    portions,
)
from attncli.features.effects.sweep import SweepPlan, SweepText, sweep
from attncli.features.effects.targets import likeliest_tokens, target_token
from attncli.measure.row_facts import Floats
from attncli.models.model import Model

LIKELIEST = 3
"""Tokens that are told of each run."""


def predictions(
    text: SweepText, plan: SweepPlan, position: int, target: int | None, memory: int | None
) -> Predictions:
    """What would come next after the token at `position` in a text's own run, with the change of
    the plan's only place, if it has one, and with all of its changes at once.

    target: whose probability is told, None for the own run's first choice.
    """
    reading = NextReading(position, target)
    swept = sweep(text, plan, reading, memory)
    reader = swept.reader
    assert isinstance(reader, NextReader)
    assert reader.target is not None
    model = text.model
    own, *changed = [
        prediction_of(model, row, reader.target) for row in (reader.own, *reader.rows_read)
    ]
    # the run with every change is read before those of single heads
    together, *single = changed
    return Predictions(
        target=target_token(model, reader.target),
        own=own,
        without=(single[0] if single else own) if plan.places else None,
        together=together,
    )


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
    """What `predictions` measures, as the `SweepReading` of its sweep."""

    position: int
    target: int | None

    predicts = True

    def rows(self, count: int) -> slice:
        """The one token whose last-layer vector is needed."""
        del count
        return slice(self.position, self.position + 1)

    def reader(self, model: Model, backend: Backend, hidden: Array, first: int) -> NextReader:
        """The `NextReader` of these runs. hidden: the unchanged run's last-layer output, [token,
        width], from token `first` on."""
        return NextReader(model, backend, self.target, hidden, self.position - first)


class NextReader:
    """Collects the probabilities of all next tokens of each run that it is handed."""

    def __init__(
        self, model: Model, backend: Backend, target: int | None, hidden: Array, row: int
    ) -> None:
        self._model = model
        self._backend = backend
        self._row = row
        self.rows_read: list[Floats] = []
        (self.own,) = self._probabilities(hidden[None])
        if target is None:
            self._entry = int(self.own.argmax())
        else:
            self._entry = target
        self.target: int | None = self._entry

    @property
    def baseline(self) -> Readings:
        """The probability of the target in the unchanged run, [1]."""
        return {"probability": self.own[[self._entry]]}

    def read(self, after: Array) -> Readings:
        """The probability of the target in changed runs, [branch]; keeps those of all tokens."""
        rows = self._probabilities(after)
        self.rows_read += rows
        return {"probability": np.asarray([row[self._entry] for row in rows])}

    def _probabilities(self, after: Array) -> list[Floats]:
        """The probabilities of all next tokens, [vocabulary], for each run of [branch, token,
        width]."""
        return probabilities_after(self._model, self._backend, after[:, self._row])
