"""Parity: a checkpoint run by `attn` and by transformers, head by head and layer by layer.

In float64 both must agree to 1e-10, relative to the largest number of each array. In float32 the
two round differently; there the root mean square distance from the float64 reference may be at
most twice that of transformers' own float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.random_streams import normal
from attncli.mechanism.trace import LayerTrace
from attncli.models.load import load
from attncli.models.model import Model
from attncli.models.transformers_reference import Side, reference

LIMIT = 1e-10
"""Largest relative difference in float64."""

RATIO = 2.0
"""How many times as far from float64 as transformers' float32 the run's float32 may be."""

READ = 40
"""How many random states a decoder without its encoder reads."""

Floats = np.ndarray[Any, Any]


SideName = Literal["self", "encoder", "decoder"]


class LayerDifference(Struct, frozen=True):
    """Largest |difference| in float64 of one layer. side: "self", "encoder" or "decoder".

    weights: by head; cross: by head of the cross-attention, empty without one. hidden: of the vectors that leave
    the layer, the last layer's after the final norm; None where the reference gives another width. relative: the
    largest of all, each relative to the largest number of its array or 1.
    """

    side: SideName
    layer: int
    weights: tuple[float, ...]
    cross: tuple[float, ...]
    hidden: float | None
    relative: float


class Verified(Struct, frozen=True):
    """What a comparison found. ours, theirs: root mean square distance of float32 weights and vectors from the float64
    reference."""

    tokens: int
    backend: str
    layers: tuple[LayerDifference, ...]
    ours: float
    theirs: float

    @property
    def worst(self) -> float:
        """The largest relative difference in float64."""
        return max(layer.relative for layer in self.layers)

    @property
    def ratio(self) -> float:
        """Our float32 distance over theirs; 0 where ours is 0."""
        return 0.0 if self.ours == 0 else self.ours / self.theirs if self.theirs else float("inf")

    @property
    def passed(self) -> bool:
        """Whether both limits hold."""
        return self.worst <= LIMIT and self.ratio <= RATIO


def verify(
    folder: Path,
    text: str | Sequence[int],
    *,
    target: str | Sequence[int] | None = None,
    backend: str = "numpy",
    ignore: Sequence[str] = (),
) -> Verified:
    """Compare a checkpoint's run with transformers' own.

    text: the text, or token ids. target: an encoder-decoder's other text; None for the same text.
    A decoder without its encoder reads random states, seeded.
    Raises as `load` and `reference`; UnsupportedError without transformers.
    """
    models = {dtype: load(folder, dtype=dtype, backend=backend, ignore=ignore) for dtype in ("float64", "float32")}
    states = None
    if any(block.cross is not None for block in models["float64"].spec.blocks):
        states = normal(0, "states", (READ, models["float64"].spec.d_model)).astype(np.float64)
        models = {dtype: model.reading(states) for dtype, model in models.items()}
    model = models["float64"]
    tokens, other = _tokens(model, text), _target(model, text, target)
    model.store.embed(model.backend, tokens)  # a tokenizer of another model is told here, not by an index out of range
    ids, wanted = _ids(tokens), None if other is None else _ids(other)
    exact, single = (
        reference(folder, ids, target=wanted, dtype=dtype, states=states) for dtype in ("float64", "float32")
    )
    alone: SideName = "self" if states is None else "decoder"
    names: tuple[SideName, ...] = (alone,) if other is None else ("encoder", "decoder")
    layers, ours = [], []
    for side, name, theirs in zip(_sides(model, tokens, other), names, exact, strict=True):
        layers += [_difference(name, trace, hidden, theirs) for trace, hidden in side]
    for side, theirs in zip(_sides(models["float32"], tokens, other), exact, strict=True):
        for trace, hidden in side:
            ours += [a - b for a, b in _pairs(trace, hidden, theirs)]
    return Verified(len(tokens), model.backend.name, tuple(layers), _rms(ours), _rms(list(_apart(single, exact))))


def _tokens(model: Model, text: str | Sequence[int]) -> list[Token]:
    return model.encode(text) if isinstance(text, str) else model.checked(model.tokenizer.ids_to_tokens(text))


def _target(model: Model, text: str | Sequence[int], target: str | Sequence[int] | None) -> list[Token] | None:
    if model.spec.decoder is None:
        if target is not None:
            raise UnsupportedError(f"a {model.spec.family} model has one side", expected="no target text")
        return None
    told = text if target is None else target
    if isinstance(told, str) and model.spec.decoder.start is not None:
        found = model.encode(told)
        start = replace(model.tokenizer.ids_to_tokens([model.spec.decoder.start])[0], special=True)
        return [start, *(replace(token, index=token.index + 1) for token in found[:-1])]
    return _tokens(model, told)


def _ids(tokens: Sequence[Token]) -> list[int]:
    found = [token.id for token in tokens if token.id is not None]
    if len(found) != len(tokens):
        raise InputError("a token has no id to give to the reference")
    return found


def _sides(
    model: Model, tokens: list[Token], target: list[Token] | None
) -> Iterator[Iterator[tuple[LayerTrace, Floats]]]:
    yield _side(model, tokens)
    if target is not None:
        yield _side(model.decoder(tokens), target)


def _side(model: Model, tokens: list[Token]) -> Iterator[tuple[LayerTrace, Floats]]:
    """Each layer's trace with the vectors that leave it, the last layer's after the final norm."""
    last = len(model.spec.blocks) - 1
    for trace in model.trace(tokens, keep=("weights",)):
        yield trace, model.backend.numpy(trace.after if trace.layer < last else model.finish(trace.after))


def _pairs(trace: LayerTrace, hidden: Floats, theirs: Side) -> Iterator[tuple[Floats, Floats]]:
    """Ours beside theirs: weights, cross weights, and what leaves the layer where the widths agree."""
    yield np.asarray(trace.stages["weights"], np.float64), theirs.weights[trace.layer]
    if trace.cross is not None:
        yield np.asarray(trace.cross.stages["weights"], np.float64), theirs.cross[trace.layer]
    if hidden.shape == theirs.hidden[trace.layer + 1].shape:
        yield np.asarray(hidden, np.float64), theirs.hidden[trace.layer + 1]


def _difference(side: SideName, trace: LayerTrace, hidden: Floats, theirs: Side) -> LayerDifference:
    pairs = list(_pairs(trace, hidden, theirs))
    apart = [np.abs(a - b) for a, b in pairs]
    cross = tuple(float(head.max()) for head in apart[1]) if trace.cross is not None else ()
    left = apart[2:] if trace.cross is not None else apart[1:]
    return LayerDifference(
        side,
        trace.layer,
        tuple(float(head.max()) for head in apart[0]),
        cross,
        float(left[0].max()) if left else None,
        max(float(one.max()) / max(1.0, float(np.abs(b).max())) for one, (_, b) in zip(apart, pairs, strict=True)),
    )


def _apart(single: Sequence[Side], exact: Sequence[Side]) -> Iterator[Floats]:
    for a, b in zip(single, exact, strict=True):
        for mine, theirs in ((a.weights, b.weights), (a.cross, b.cross), (a.hidden[1:], b.hidden[1:])):
            yield from (one - other for one, other in zip(mine, theirs, strict=True))


def _rms(differences: Sequence[Floats]) -> float:
    count = sum(one.size for one in differences)
    return float(np.sqrt(sum(float(np.sum(one * one)) for one in differences) / max(count, 1)))
