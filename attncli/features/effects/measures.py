"""What is measured of a changed run against the text's own: vectors, log-probabilities,
divergences.

A measure that is not defined, such as the angle to a vector of length 0, is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError
from attncli.features.effects.document import Measure, readings_of
from attncli.features.effects.places import measured_at, reads_on
from attncli.features.effects.targets import (
    Target,
    choose_target,
    log_probabilities,
    refuse_one_token,
)
from attncli.inputs.token import Token, ignore
from attncli.language import message
from attncli.measure.pair_measure import logit_difference
from attncli.measure.row_facts import Floats
from attncli.models.model import Model
from attncli.models.run import finish, logits, no_output_head

Readings = dict[str, Floats]
"""By name, one number for each branch: "cosine" and "norm", "logprob", "kl"."""

MEASURES: tuple[Measure, ...] = ("vector", "logprob", "kl", "difference")
"""What `--measure` takes."""
LOGITS_AT_ONCE = 2**22
"""Logits that are in memory at once: 32 MiB of float64."""
VECTORS_AT_ONCE = 256
"""Vectors whose logits are computed together where the vocabulary comes in portions."""


def refuse_overflow(backend: Backend, vectors: Array) -> None:
    """Raise InputError where vectors of the unchanged run are not all finite, so that no change can
    be measured against them."""
    if not np.isfinite(np.asarray(backend.numpy(vectors), np.float64)).all():
        what = message("the model's own numbers leave the range of {dtype}", dtype=backend.dtype)
        raise InputError(what, expected="a smaller --scale or a wider --dtype")


class Reader(Protocol):
    """Computes measures from the last layer's output of changed runs ("branches", one per changed
    head).

    target: the vocabulary id that they are about; None for none.
    """

    target: int | None

    @property
    def baseline(self) -> Readings:
        """The measures of the unchanged run by name, each [1]."""

    def read(self, after: Array) -> Readings:
        """The measures of changed runs by name, each [branch].

        after: what leaves the last layer, [branch, token, width].
        """


class SweepReading(Protocol):
    """What a sweep measures, at which tokens; makes the `Reader` that does it."""

    @property
    def predicts(self) -> bool:
        """Whether a measure needs next-token logits."""

    def rows(self, count: int) -> slice:
        """The range of tokens, in a text of `count`, whose last-layer vectors are needed."""

    def reader(self, model: Model, backend: Backend, hidden: Array, first: int) -> Reader:
        """Make the reader that measures changed runs against the unchanged one.

        hidden: the unchanged run's last-layer output, [token, width], from token `first` on.
        """


class MeasureRequest(Struct, frozen=True):
    """Which measures are taken of a run, and at which tokens.

    positions: the tokens whose last vectors' mean is the vector that turns.
    position: after which token the next one is predicted.
    target: its id, None for the own run's first choice.
    every: whether the log-probability is the mean over all positions of that of the token which
        does follow.
    following: those tokens' ids, then; or those of an answer of several tokens, the sum of whose
        log-probabilities is measured.
    expectation: the target with how likely the unchanged run finds it, None without one.
    versus: the id whose logit "difference" takes away from the target's.
    """

    measures: tuple[Measure, ...]
    positions: tuple[int, ...]
    position: int
    target: int | None = None
    every: bool = False
    following: tuple[int, ...] = ()
    expectation: Target | None = None
    versus: int | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        tokens: Sequence[Token],
        measures: Sequence[Measure],
        *,
        query: Sequence[int] | None,
        usual: Sequence[int] | None,
        target: str | None,
        every: bool,
        versus: str | None = None,
        note: Callable[[str], None] = ignore,
    ) -> MeasureRequest:
        """Build the request from the names of words, as options have them.

        query: positions to measure at; None: next token after the last one, vectors at `usual`, or
            at `measured_at` where that is None too.
        usual: positions where vectors are measured without a query, such as a cut link's queries.
        target: a word, "id:N" or, after the last token of a decoder, an answer of several tokens;
            None for none.
        every: whether the log-probability of each token that follows is measured.
        versus: the word whose logit is taken away from the target's, both one token then.
        note: called with a sentence that says which spelling of a word is taken.

        Raises UnsupportedError where every following token is measured, and the model has no output
        head.
        """
        if every and "logprob" in measures and model.spec.head is None:
            raise no_output_head(model.spec, message("--measure vector"))
        if query is None:
            position = len(tokens) - 1
        else:
            position = query[-1]

        # the target, an answer of several tokens only where nothing is taken away from it
        expectation: Target | None = None
        answer: tuple[int, ...] = ()
        if target is not None:
            at_end = position == len(tokens) - 1 and reads_on(model.spec)
            expectation = choose_target(
                model,
                tokens,
                target,
                position=position,
                several=at_end and versus is None,
                note=note,
            )
            answer = expectation.ids

        # the token whose logit is taken away from the target's
        rival: Target | None = None
        if versus is not None:
            rival = choose_target(
                model, tokens, versus, position=position, several=False, note=note
            )
            # without a target the model's own first choice is measured
            entry = answer[0] if answer else rival.own
            if entry is None:  # refused before every head is taken away, not after
                entry = int(log_probabilities(model, tokens, position).argmax())
            refuse_one_token(entry, rival.ids[0])

        following: tuple[int, ...] = ()
        if every:  # a tokenizer without a vocabulary gives its tokens no id, and each counts as 0
            following = tuple(token.id or 0 for token in tokens[1:])
        elif len(answer) > 1:
            following = answer
        return cls(
            measures=tuple(measures),
            positions=tuple(query or usual or measured_at(model.spec, len(tokens))),
            position=position,
            target=answer[0] if answer else None,
            every=every,
            following=following,
            expectation=expectation,
            versus=None if rival is None else rival.ids[0],
        )

    @property
    def answer(self) -> tuple[int, ...]:
        """The vocabulary ids of an answer of several tokens; empty for one of a single token, and
        where every token's successor is measured."""
        if self.every:  # `following` is then the text itself, not an answer
            return ()
        return self.following

    @property
    def predicts(self) -> bool:
        """Whether a measure needs next-token logits."""
        return bool({"logprob", "kl", "difference"} & set(self.measures))

    def rows(self, count: int) -> slice:
        """The range of tokens, in a text of `count`, whose last-layer vectors are needed: those
        measured themselves, and those after which a token is predicted."""
        places: set[int] = set()
        if "vector" in self.measures:
            places = set(self.positions)
        if self.every and "logprob" in self.measures:
            places |= set(range(count))
        elif self.predicts:
            places.add(self.position)
        # the last token of an answer of several is predicted after the one before it
        if self.answer and "logprob" in self.measures:
            places.add(self.position + len(self.answer) - 1)
        return slice(min(places), max(places) + 1)

    def reader(self, model: Model, backend: Backend, hidden: Array, first: int) -> Reader:
        """The `Meter` that compares changed runs with the unchanged one.

        hidden: the unchanged run's last-layer output, [token, width], from token `first` on.
        """
        return Meter(model, backend, self, hidden, first)


class Meter:
    """Measures changed runs ("branches") against the unchanged one, whose own values it computes
    first.

    hidden: the unchanged run's last-layer output, [token, width].
    first: the text position of the first token in `hidden`, and in what `read` is given.
    """

    def __init__(
        self, model: Model, backend: Backend, request: MeasureRequest, hidden: Array, first: int
    ) -> None:
        """Compute what the request asks for of the unchanged run, to which changed runs are then
        compared.

        hidden: the unchanged run's last-layer output, [token, width], from token `first` on.
        """
        self._model = model
        self._backend = backend
        self._request = request
        self._first = first
        self._weights = model.store.outer(backend)

        # the mean vector of the measured tokens, [width]; where vectors are not measured, those of
        # these tokens need not be in `hidden`
        self.vector: Floats = np.empty(0)
        if "vector" in request.measures:
            # as one branch, [1, token, width]
            self.vector = self._mean_over_positions(self._apply_final_norm(hidden[None]))[0]

        # the unchanged run's values of the other measures; None where one is not asked for
        self.target = request.target
        self._log_probabilities: Floats | None = None
        self._following_log_probability: float | None = None
        self.m_clean: float | None = None
        if "difference" in request.measures:
            own = hidden[None][:, request.position - first]
            if request.target is None:
                self.target = int(next_logits(model, backend, own)[0].argmax())
                refuse_one_token(self.target, request.versus)
            self.m_clean = float(self._difference(own)[0])
        if request.following and "logprob" in request.measures:
            self._following_log_probability = float(
                self._following_log_probabilities(hidden[None])[0]
            )
        if "kl" in request.measures or ("logprob" in request.measures and not request.every):
            self._log_probabilities = self.log_probabilities(
                hidden[None][:, request.position - first]
            )[0]
            if request.target is None:
                self.target = int(self._log_probabilities.argmax())

    def read(self, after: Array) -> Readings:
        """How the changed runs differ from the unchanged one, by measure, each [branch].

        after: what leaves the last layer, [branch, token, width].
        """
        request = self._request
        readings = Readings()
        # how far the mean vector turns, and by how much it changes
        if "vector" in request.measures:
            readings |= vector_change(
                self.vector, self._mean_over_positions(self._apply_final_norm(after))
            )
        # what is predicted after one token: the target, and all entries together
        if self._log_probabilities is not None:
            hidden = after[:, request.position - self._first]
            parts = [
                self.log_probabilities(part)
                for part in portions(hidden, self._model.spec.vocabulary)
            ]
            if "logprob" in request.measures and not request.following:
                gain = [log[:, self.target] - self._log_probabilities[self.target] for log in parts]
                readings["logprob"] = np.concatenate(gain)
            if "kl" in request.measures:
                readings["kl"] = np.concatenate(
                    [divergence(self._log_probabilities, log) for log in parts]
                )
        # or what each token of the text predicts of the next, or an answer of several tokens
        if self._following_log_probability is not None:
            readings["logprob"] = (
                self._following_log_probabilities(after) - self._following_log_probability
            )
        # what is lost of the lead of the target over another token
        if self.m_clean is not None:
            hidden = after[:, request.position - self._first]
            readings["difference"] = self.m_clean - self._difference(hidden)
        return {name: readings[name] for name in readings_of(request.measures)}

    def _difference(self, hidden: Array) -> Floats:
        """The target's logit less that of versus, [branch], of last-layer vectors, [branch,
        width]."""
        versus = self._request.versus
        assert self.target is not None
        assert versus is not None
        return logit_difference(
            self._model, self._backend, self._weights, hidden, self.target, versus
        )

    @property
    def baseline(self) -> Readings:
        """The measures of the unchanged run against itself, each [1]: 0, but NaN for the angle and
        relative size of a vector of length 0.
        """
        readings: Readings = {name: np.zeros(1) for name in readings_of(self._request.measures)}
        if not np.linalg.norm(self.vector) > 0:
            readings |= {
                name: np.full(1, np.nan) for name in ("cosine", "norm") if name in readings
            }
        return readings

    def log_probabilities(self, hidden: Array) -> Floats:
        """Log-probabilities of all next tokens in nats, [branch, vocabulary], from last-layer
        vectors, [branch, width]."""
        return log_softmax(next_logits(self._model, self._backend, hidden))

    def _following_log_probabilities(self, after: Array) -> Floats:
        """Log-probability of the tokens that follow, [branch]: the mean over every position of the
        text, or the sum over those of an answer.

        after: what leaves the last layer, [branch, token, width].
        """
        following = np.asarray(self._request.following)
        count = len(following)
        width = after.shape[-1]
        if self._request.every:
            start = 0
        else:
            start = self._request.position - self._first
        flat = after[:, start : start + count].reshape((-1, width))
        next_tokens = np.tile(following, after.shape[0])
        # one row for each position of each branch, computed a portion of rows at a time
        parts = [
            slice(first, first + VECTORS_AT_ONCE)
            for first in range(0, len(next_tokens), VECTORS_AT_ONCE)
        ]
        picks = [self._next_log_probabilities(flat[part], next_tokens[part]) for part in parts]
        rows = np.concatenate(picks).reshape(after.shape[0], count)
        if self._request.every:
            return rows.mean(1)
        return rows.sum(1)

    def _next_log_probabilities(self, hidden: Array, next_tokens: np.ndarray[Any, Any]) -> Floats:
        """Log-probability of one given next token for each vector, [row], computed a portion of the
        vocabulary at a time, since all logits of all vectors would not fit in memory.

        hidden: last-layer vectors, [row, width].
        next_tokens: vocabulary ids, [row].

        The sum of exponentials is kept relative to the largest logit so far.
        """
        vocabulary = self._model.spec.vocabulary
        count = len(next_tokens)
        rows = np.arange(count)
        step = max(LOGITS_AT_ONCE // count, 1)
        largest = np.full(count, -np.inf)
        total = np.zeros(count)
        token_logits = np.zeros(count)
        for first in range(0, vocabulary, step):
            entries = slice(first, min(first + step, vocabulary))
            part = next_logits(self._model, self._backend, hidden, entries)  # [row, entry]
            # the rows whose next token is among these entries
            in_part = (next_tokens >= first) & (next_tokens < first + part.shape[1])
            token_logits[in_part] = part[rows[in_part], next_tokens[in_part] - first]
            # what was summed so far was relative to the largest logit up to here
            above = np.maximum(largest, part.max(-1))
            total = total * np.exp(largest - above) + np.exp(part - above[:, None]).sum(-1)
            largest = above
        return np.asarray(token_logits - largest - np.log(total))

    def _apply_final_norm(self, after: Array) -> Array:
        """Apply the final norm to what leaves the last layer, [branch, token, width]."""
        return finish(self._model.spec, self._weights, self._backend, after)

    def _mean_over_positions(self, vectors: Array) -> Floats:
        """The mean vector over the positions measured, [branch, width].

        vectors: [branch, token, width], from the token at position `_first` on.
        """
        rows = np.asarray(self._request.positions) - self._first
        first = int(rows.min())  # only the tokens from there to the last one are made float64
        wide = np.asarray(self._backend.numpy(vectors[:, first : int(rows.max()) + 1]), np.float64)
        return np.asarray(wide[:, rows - first].mean(1))


def next_logits(
    model: Model, backend: Backend, hidden: Array, entries: slice = slice(None)
) -> Floats:
    """Next-token logits of last-layer vectors, [branch, width], for the vocabulary entries of
    `entries`: [branch, vocabulary].

    hidden: what leaves the last layer, [branch, width].

    Raises UnsupportedError where there is no output head, naming the measure that needs none.
    """
    if model.spec.head is None:
        raise no_output_head(model.spec, message("--measure vector"))
    scores = logits(model.spec, model.store.outer(backend), backend, hidden, entries)
    return np.asarray(backend.numpy(scores), np.float64)


def portions(hidden: Array, vocabulary: int) -> Iterator[Array]:
    """Split vectors, [branch, width], into consecutive groups whose logits over the vocabulary fit
    in memory.
    """
    step = max(LOGITS_AT_ONCE // max(vocabulary, 1), 1)
    for start in range(0, hidden.shape[0], step):
        yield hidden[start : start + step]


def vector_change(x: Floats, others: Floats) -> Readings:
    """How far vectors `others`, [branch, width], moved from x, [width]: "cosine" is 1 − cos,
    computed as ½‖x̂ − x̂′‖² to lose no digits near 0, "norm" is ‖x − x′‖/‖x‖."""
    # along an axis, as the others' lengths are, so that equal vectors are 0 apart, bit for bit
    (length,) = np.linalg.norm(x[None], axis=-1)
    lengths = np.linalg.norm(others, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.linalg.norm(x / length - others / lengths[:, None], axis=-1)
        relative_size = np.linalg.norm(others - x, axis=-1) / length
    return {
        "cosine": np.where((length > 0) & (lengths > 0), distances**2 / 2, np.nan),
        "norm": np.where(length > 0, relative_size, np.nan),
    }


def log_softmax(scores: Floats) -> Floats:
    """Natural logarithm of the softmax over the last axis."""
    lower = scores - scores.max(-1, keepdims=True)
    return np.asarray(lower - np.log(np.exp(lower).sum(-1, keepdims=True)))


def divergence(log_probabilities: Floats, changed_log_probabilities: Floats) -> Floats:
    """KL(p ‖ p′) in nats, [branch], at least 0, from logarithms of p, [vocabulary], and p′,
    [branch, vocabulary].
    """
    share = np.exp(log_probabilities)
    with np.errstate(invalid="ignore"):  # 0 · ∞ where p is 0: such terms count as 0
        terms = np.where(share > 0, share * (log_probabilities - changed_log_probabilities), 0.0)
    return np.maximum(terms.sum(-1), 0.0)
