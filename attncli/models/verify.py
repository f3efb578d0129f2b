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
from attncli.models.transformers_reference import ReferenceSide, reference

LIMIT = 1e-10
"""Largest relative difference in float64."""

RATIO = 2.0
"""How many times as far from float64 as transformers' float32 the run's float32 may be."""

READ = 40
"""How many random states a decoder without its encoder reads."""

Floats = np.ndarray[Any, Any]


SideName = Literal["self", "encoder", "decoder"]


class LayerDistance(Struct, frozen=True):
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


class Verification(Struct, frozen=True):
    """What a comparison found. run_distance, reference_distance: root mean square distance of our float32 weights and
    vectors, and of the library's, from the float64 reference."""

    tokens: int
    backend: str
    layers: tuple[LayerDistance, ...]
    run_distance: float
    reference_distance: float

    @property
    def worst(self) -> float:
        """The largest relative difference in float64."""
        return max(layer.relative for layer in self.layers)

    @property
    def ratio(self) -> float:
        """Our float32 distance over theirs; 0 where ours is 0."""
        return (
            0.0
            if self.run_distance == 0
            else self.run_distance / self.reference_distance
            if self.reference_distance
            else float("inf")
        )

    @property
    def is_within_limits(self) -> bool:
        """Whether both limits hold."""
        return self.worst <= LIMIT and self.ratio <= RATIO


def verify(
    folder: Path,
    text: str | Sequence[int],
    *,
    target: str | Sequence[int] | None = None,
    backend: str = "numpy",
    ignore: Sequence[str] = (),
) -> Verification:
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
    tokens, target_tokens = _tokens(model, text), _target(model, text, target)
    model.store.embed(model.backend, tokens)  # a tokenizer of another model is told here, not by an index out of range
    ids, target_ids = _ids(tokens), None if target_tokens is None else _ids(target_tokens)
    exact, single = (
        reference(folder, ids, target=target_ids, dtype=dtype, states=states) for dtype in ("float64", "float32")
    )
    alone: SideName = "self" if states is None else "decoder"
    names: tuple[SideName, ...] = (alone,) if target_tokens is None else ("encoder", "decoder")
    layers, differences = [], []
    for side, name, reference_side in zip(_sides(model, tokens, target_tokens), names, exact, strict=True):
        layers += [_difference(name, trace, hidden, reference_side) for trace, hidden in side]
    for side, reference_side in zip(_sides(models["float32"], tokens, target_tokens), exact, strict=True):
        for trace, hidden in side:
            differences += [a - b for a, b in _pairs(trace, hidden, reference_side)]
    return Verification(
        len(tokens), model.backend.name, tuple(layers), _rms(differences), _rms(list(_apart(single, exact)))
    )


def _tokens(model: Model, text: str | Sequence[int]) -> list[Token]:
    return model.encode(text) if isinstance(text, str) else model.check_tokens(model.tokenizer.ids_to_tokens(text))


def _target(model: Model, text: str | Sequence[int], target: str | Sequence[int] | None) -> list[Token] | None:
    if model.spec.decoder is None:
        if target is not None:
            raise UnsupportedError(f"a {model.spec.family} model has one side", expected="no target text")
        return None
    target_text = text if target is None else target
    if isinstance(target_text, str) and model.spec.decoder.start is not None:
        tokens = model.encode(target_text)
        start = replace(model.tokenizer.ids_to_tokens([model.spec.decoder.start])[0], special=True)
        return [start, *(replace(token, index=token.index + 1) for token in tokens[:-1])]
    return _tokens(model, target_text)


def _ids(tokens: Sequence[Token]) -> list[int]:
    ids = [token.id for token in tokens if token.id is not None]
    if len(ids) != len(tokens):
        raise InputError("a token has no id to give to the reference")
    return ids


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


def _pairs(trace: LayerTrace, hidden: Floats, reference_side: ReferenceSide) -> Iterator[tuple[Floats, Floats]]:
    """Ours beside theirs: weights, cross weights, and what leaves the layer where the widths agree."""
    yield np.asarray(trace.stages["weights"], np.float64), reference_side.weights[trace.layer]
    if trace.cross is not None:
        yield np.asarray(trace.cross.stages["weights"], np.float64), reference_side.cross[trace.layer]
    if hidden.shape == reference_side.hidden[trace.layer + 1].shape:
        yield np.asarray(hidden, np.float64), reference_side.hidden[trace.layer + 1]


def _difference(side: SideName, trace: LayerTrace, hidden: Floats, reference_side: ReferenceSide) -> LayerDistance:
    pairs = list(_pairs(trace, hidden, reference_side))
    apart = [np.abs(a - b) for a, b in pairs]
    cross = tuple(float(head.max()) for head in apart[1]) if trace.cross is not None else ()
    hidden_gaps = apart[2:] if trace.cross is not None else apart[1:]
    return LayerDistance(
        side,
        trace.layer,
        tuple(float(head.max()) for head in apart[0]),
        cross,
        float(hidden_gaps[0].max()) if hidden_gaps else None,
        max(float(gap.max()) / max(1.0, float(np.abs(b).max())) for gap, (_, b) in zip(apart, pairs, strict=True)),
    )


def _apart(single: Sequence[ReferenceSide], exact: Sequence[ReferenceSide]) -> Iterator[Floats]:
    for a, b in zip(single, exact, strict=True):
        for first_arrays, second_arrays in ((a.weights, b.weights), (a.cross, b.cross), (a.hidden[1:], b.hidden[1:])):
            yield from (first - second for first, second in zip(first_arrays, second_arrays, strict=True))


def _rms(differences: Sequence[Floats]) -> float:
    count = sum(difference.size for difference in differences)
    return float(np.sqrt(sum(float(np.sum(difference * difference)) for difference in differences) / max(count, 1)))
