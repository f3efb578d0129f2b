"""Activation patching: which heads carry the difference between two texts.

The corrupt text runs with what one head mixes in the clean one put in; how much of the clean text's answer comes back
is that head's share. Source: Wang et al., Interpretability in the wild, 2022; Heimersheim and Nanda, How to use and
interpret activation patching, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.analysis.effects.ablation import ready, refuse_foreign, refuse_hashed, refuse_least
from attncli.analysis.effects.changes import mixed_of, putting, same_length
from attncli.analysis.effects.measures import (
    Reader,
    Readings,
    log_softmax,
    next_logits,
    portions,
    refuse_overflow,
)
from attncli.analysis.effects.places import Chosen, Place, measured_at, places
from attncli.analysis.effects.sweep import Plan, Text, sweep
from attncli.analysis.effects.sweep_memory import room
from attncli.analysis.target import target_id
from attncli.analysis.visible_keys import Floats
from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError, UsageError
from attncli.inputs.token import Token
from attncli.models.model import Model
from attncli.models.run import finish

Measured = Literal["logit difference", "log probability", "cosine"]
LEAST = 1e-6
"""Texts whose measures differ by less have no difference to carry."""


class Patching(Struct, frozen=True):
    """What is put in, and what is measured.

    at: the tokens that get the clean text's. measured: "logit difference" of `target` and `versus` and "log
    probability" of `target`, after the last token of `query`; "cosine" of the mean of `query`'s last vectors to the
    clean text's. Logits are those before a soft cap.
    """

    chosen: Chosen
    at: tuple[int, ...]
    query: tuple[int, ...]
    measured: Measured
    target: int | None = None
    versus: int | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        clean: Sequence[Token],
        chosen: Chosen,
        *,
        at: Iterable[int],
        query: Sequence[int] | None,
        target: str | None,
        versus: str | None,
    ) -> Patching:
        """What is asked of a text by these names. at: none for all tokens. query: None for the last token where a
        target is measured, else for those of `measured_at`. target, versus: as for `target_id`."""
        if versus is not None and target is None:
            raise UsageError("versus is taken from a target", expected="a target as well")
        last = len(clean) - 1
        usual = measured_at(model.spec, len(clean)) if target is None else (last,)
        return cls(
            chosen,
            tuple(sorted(set(at))) or tuple(range(last + 1)),
            usual if query is None else tuple(query),
            "cosine" if target is None else "log probability" if versus is None else "logit difference",
            *(None if name is None else target_id(model, name) for name in (target, versus)),
        )


class Patched(Struct, frozen=True, eq=False):
    """The share that each head recovers: 0 as in the corrupt text, 1 as in the clean one; beyond both is possible."""

    recovered: Sequence[tuple[Place, float]]
    clean: float
    corrupt: float
    backend: Backend


def patch(
    model: Model,
    clean: Sequence[Token],
    corrupt: Sequence[Token],
    patching: Patching,
    *,
    memory: int | None = None,
    told: Callable[[float], None] = lambda share: None,
) -> Patched:
    """Put each head's part of the clean run into the corrupt one, one head at a time.

    Raises InputError for texts of different length or without a difference; as `remove` besides.
    """
    refuse_foreign(model)
    refuse_hashed(model)
    same_length(clean, corrupt, "the corrupt one")
    found = places(model.spec, patching.chosen)
    text = ready(model, corrupt, found)
    predicts = patching.measured != "cosine"
    refuse_least(text, memory, predicts=predicts)
    mixed, last = mixed_of(replace(text, tokens=clean))
    refuse_overflow(text.backend, last)
    asked = _Asked(patching, _vector(text, last, patching.query))
    first = asked.rows(text.count).start
    goal = float(asked.reader(model, text.backend, last[asked.rows(text.count)], first).unchanged["m"][0])
    plan = Plan(found, putting(text, mixed, patching.at), start=min(patching.at))
    space = room(model.spec, text.count, len(found), text.backend.dtype, memory, predicts=predicts)
    swept = sweep(text, plan, asked, space, told=told)
    own = float(swept.reader.unchanged["m"][0])
    if not abs(goal - own) >= LEAST:
        raise InputError(
            f"both texts give the same: {goal:.6g} and {own:.6g}",
            expected=f"measures that differ by {LEAST:g} or more, so that there is a difference to carry",
            hint="another --target, --versus or --query, or texts that differ",
        )
    shares = ((swept.readings["m"][:, 0] - own) / (goal - own)).tolist()
    return Patched(list(zip(found, shares, strict=True)), goal, own, text.backend)


class _Asked(Struct, frozen=True, eq=False):
    """What is read off. clean: the clean text's vector, [width]."""

    patching: Patching
    clean: Floats

    def rows(self, count: int) -> slice:
        query = self.patching.query if self.patching.measured == "cosine" else self.patching.query[-1:]
        return slice(min(query), max(query) + 1)

    def reader(self, model: Model, backend: Backend, own: Array, first: int) -> Reader:
        return _Recovery(model, backend, self, own, first)


class _Recovery:
    """Reads the measure of patching, "m"."""

    target: int | None = None

    def __init__(self, model: Model, backend: Backend, asked: _Asked, own: Array, first: int) -> None:
        self._model, self._backend, self._asked, self._first = model, backend, asked, first
        self._own = self.read(own[None])

    @property
    def unchanged(self) -> Readings:
        return self._own

    def read(self, after: Array) -> Readings:
        patching = self._asked.patching
        if patching.measured == "cosine":
            text = Text(self._model, (), self._backend)
            vectors = np.stack(
                [_vector(text, part, patching.query, self._first) for part in map(after.__getitem__, range(len(after)))]
            )
            lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(self._asked.clean)
            with np.errstate(divide="ignore", invalid="ignore"):
                return {"m": vectors @ self._asked.clean / lengths}
        hidden = after[:, patching.query[-1] - self._first]
        uncapped = self._model
        head = uncapped.spec.head
        if head is not None and patching.measured == "logit difference":
            uncapped = replace(uncapped, spec=replace(uncapped.spec, head=replace(head, softcap=None)))
        parts = [next_logits(uncapped, self._backend, part) for part in portions(hidden, uncapped.spec.vocabulary)]
        return {"m": np.concatenate([self._of(part) for part in parts])}

    def _of(self, logits: Floats) -> Floats:
        patching = self._asked.patching
        assert patching.target is not None
        if patching.measured == "log probability":
            found: Floats = log_softmax(logits)[:, patching.target]
            return found
        assert patching.versus is not None
        difference: Floats = logits[:, patching.target] - logits[:, patching.versus]
        return difference


def _vector(text: Text, after: Array, query: Sequence[int], first: int = 0) -> Floats:
    """The mean of some tokens' vectors after the final norm. after: [token, width], from token `first`."""
    backend, spec = text.backend, text.model.spec
    finished = finish(spec, text.model.store.outer(backend), backend, after)
    mean: Floats = np.asarray(backend.numpy(finished), np.float64)[[at - first for at in query]].mean(0)
    return mean
