"""Direct logit attribution: what each part of a model adds to a token's logit.

With the statistics of every norm as they are in this run, a norm is affine, and the path from each part to the logit
is linear: the parts sum to the logit. Source: Elhage et al., A mathematical framework for transformer circuits, 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.analysis.effects.measures import refuse_overflow
from attncli.analysis.effects.sweep import Text
from attncli.analysis.visible_keys import Floats
from attncli.arrays.backend import Array
from attncli.errors import UnsupportedError
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Weights
from attncli.mechanism.intervention import Kind
from attncli.mechanism.spec import Block, Norm, Place
from attncli.mechanism.trace import LayerTrace
from attncli.models.branches import held
from attncli.models.run import logits, unembedding

PartKind = Literal["embedding", "head", "mlp", "bias"]


class Part(Struct, frozen=True):
    """One part: the embedding, positions included, one head, a layer's feed-forward part, or biases of a layer.

    layer: None for the embedding, and for the biases of the final norm and the head. attention, head: of a head.
    """

    kind: PartKind
    layer: int | None = None
    attention: Kind | None = None
    head: int | None = None


class Attributed(Struct, frozen=True, eq=False):
    """What each part adds to the logit of `target`, or to the difference of two. logit: the own one, before a soft cap;
    parts sum to it. softcap: that bound, None for none. looks: per head the key that the token looks at most, and its
    weight."""

    parts: Sequence[tuple[Part, float]]
    logit: float
    target: int
    softcap: float | None
    looks: Mapping[Part, tuple[int, float]]


class _Stream(Struct, frozen=True, eq=False):
    """The residual stream at one token as a sum of parts, [part, width]."""

    parts: list[Part] = field(default_factory=list)
    vectors: list[Floats] = field(default_factory=list)

    def add(self, part: Part, vector: Floats) -> None:
        self.parts.append(part)
        self.vectors.append(vector)

    def through(
        self, norm: Norm, entering: Floats, weight: Floats | None, bias: Floats | None, layer: int | None
    ) -> None:
        """Every part through a norm with the statistics of `entering`, [width]; its bias is a part of its own."""
        self.vectors[:] = frozen(norm, entering, weight, np.stack(self.vectors))
        if bias is not None:
            self.add(Part("bias", layer), bias)


def frozen(norm: Norm, entering: Floats, weight: Floats | None, vectors: Floats) -> Floats:
    """Vectors, [part, width], through the linear part of a norm with the statistics of `entering`, [width]."""
    width = entering.shape[-1]
    if norm.kind == "layer":
        entering = entering - entering.sum() / width
        vectors = vectors - vectors.sum(-1, keepdims=True) / width
    scaled = vectors / np.sqrt((entering * entering).sum() / width + norm.eps)
    if weight is not None:
        scaled = scaled * (weight + 1.0 if norm.unit_offset else weight)
    return scaled


def attribute(text: Text, position: int, target: int | None, versus: int | None) -> Attributed:
    """What each part adds to the logit of `target` after the token at `position`, or to its difference from that of
    `versus`. target: None for the model's first choice.

    Raises UnsupportedError for a model without a linear output head.
    """
    model, backend = text.model, text.backend
    spec, outer = model.spec, model.store.outer(backend)
    head = spec.head
    if head is None:
        raise UnsupportedError(
            f"this {spec.family} model predicts no next token: it has no linear output head",
            expected="a decoder checkpoint saved with its language-model head",
            hint="attn ablate tells which heads matter to its vectors",
        )
    hidden = model.store.embed(backend, text.tokens)
    model.store.expect(range(len(spec.blocks)))
    stream = _Stream()
    looks: dict[Part, tuple[int, float]] = {}
    stream.add(Part("embedding"), _row(text, hidden, position))
    for index, block in enumerate(spec.blocks):
        weights = held(model.store.layer(backend, index))
        watched: dict[str, Floats] = {}

        def watch(layer: int, what: str, array: Array, watched: dict[str, Floats] = watched) -> None:
            watched[what] = _row(text, array, position)

        trace = run_block(
            backend, block, weights, hidden, replace(text.context(frozenset({"weights"})), watch=watch), index
        )
        _layer(text, stream, block, weights, trace, watched, position)
        looks |= _looks(text, trace, "self", position)
        looks |= {} if trace.cross is None else _looks(text, trace.cross, "cross", position)
        hidden = trace.after
    if spec.final_norm is not None:
        entering = _row(text, hidden, position)
        stream.through(
            spec.final_norm, entering, _numbers(text, outer("final.weight")), _numbers(text, outer("final.bias")), None
        )
    refuse_overflow(backend, hidden[position : position + 1])
    uncapped = replace(spec, head=replace(head, softcap=None))
    own = np.asarray(backend.numpy(logits(uncapped, outer, backend, hidden[position : position + 1])), np.float64)[0]
    chosen = int(own.argmax()) if target is None else target
    direction, bias = _direction(text, outer, chosen, versus)
    values = np.stack(stream.vectors) @ direction
    parts = _merged([*zip(stream.parts, values.tolist(), strict=True), (Part("bias"), bias)])
    return Attributed(parts, float(own[chosen] - (0.0 if versus is None else own[versus])), chosen, head.softcap, looks)


def _layer(
    text: Text,
    stream: _Stream,
    block: Block,
    weights: Weights,
    trace: LayerTrace,
    watched: dict[str, Floats],
    position: int,
) -> None:
    """Add a layer's parts to the stream, as `run_block` adds its branches."""

    def through(place: Place, some: _Stream) -> None:
        norm = block.norms.get(place)
        if norm is not None:
            told = [_numbers(text, weights(f"{place}.{name}")) for name in ("weight", "bias")]
            some.through(norm, watched[place], told[0], told[1], trace.layer)

    def join(branch: _Stream) -> None:
        for part, vector in zip(branch.parts, branch.vectors, strict=True):
            stream.add(part, vector * block.branch_scale)

    attention = _heads(text, weights, trace, "self", position)
    through("attn.out", attention)
    fed = _Stream()
    if block.mlp is not None:
        fed.add(Part("mlp", trace.layer), watched["mlp"])
    join(attention)
    if block.parallel and block.mlp is not None:
        join(fed)
        return
    through("attn.sum", stream)
    if trace.cross is not None:
        crossing = _heads(text, weights, trace.cross, "cross", position)
        through("cross.out", crossing)
        join(crossing)
        through("cross.sum", stream)
    if block.mlp is not None:
        through("mlp.out", fed)
        join(fed)
        through("mlp.sum", stream)


def _heads(text: Text, weights: Weights, trace: LayerTrace, kind: Kind, position: int) -> _Stream:
    """What each head writes, z·W_O, and the bias of W_O."""
    found, prefix = _Stream(), "attn" if kind == "self" else "cross"
    mixed = np.asarray(text.backend.numpy(trace.stages["mixed"]), np.float64)[:, position]
    matrix = _numbers(text, weights(f"{prefix}.o.weight"))
    assert matrix is not None
    width = mixed.shape[-1]
    for head, values in enumerate(mixed):
        found.add(Part("head", trace.layer, kind, head), matrix[:, head * width : (head + 1) * width] @ values)
    bias = _numbers(text, weights(f"{prefix}.o.bias"))
    if bias is not None:
        found.add(Part("bias", trace.layer), bias)
    return found


def _looks(text: Text, trace: LayerTrace, kind: Kind, position: int) -> dict[Part, tuple[int, float]]:
    """Per head the key that the token looks at most, and its weight; nothing where no weights are kept."""
    if "weights" not in trace.stages:
        return {}
    rows = np.asarray(text.backend.numpy(trace.stages["weights"]), np.float64)[:, position]
    return {
        Part("head", trace.layer, kind, head): (int(row.argmax()), float(row.max())) for head, row in enumerate(rows)
    }


def _direction(text: Text, outer: Weights, target: int, versus: int | None) -> tuple[Floats, float]:
    """What the finished vector is multiplied with for a logit, or for a difference of two, and what is added."""
    head = text.model.spec.head
    assert head is not None
    matrix = unembedding(head, outer)
    assert matrix is not None
    signed = [(target, 1.0)] + ([] if versus is None else [(versus, -1.0)])
    direction = sum(sign * np.asarray(text.backend.numpy(matrix[row]), np.float64) for row, sign in signed) * head.scale
    added = 0.0
    for role in ("head.bias", "head.offsets"):
        numbers = _numbers(text, outer(role))
        if numbers is not None:
            added += sum(sign * float(numbers.reshape(-1)[row]) for row, sign in signed)
    if head.projection:
        narrow, bias = (_numbers(text, outer(f"head.project.{name}")) for name in ("weight", "bias"))
        added += 0.0 if bias is None else float(direction @ bias)
        direction = direction if narrow is None else direction @ narrow
    return np.asarray(direction), added


def _merged(parts: Sequence[tuple[Part, float]]) -> list[tuple[Part, float]]:
    """Each part once, in the order of the model: biases of one layer are one part."""
    found: dict[Part, float] = {}
    for part, value in parts:
        found[part] = found.get(part, 0.0) + value
    return sorted(found.items(), key=lambda item: _order(item[0]))


def _order(part: Part) -> tuple[Any, ...]:
    kinds = ("embedding", "head", "mlp", "bias")
    layer = (-1 if part.kind == "embedding" else 10**9) if part.layer is None else part.layer
    return layer, kinds.index(part.kind), part.attention == "cross", part.head or 0


def _row(text: Text, array: Array, position: int) -> Floats:
    return np.asarray(text.backend.numpy(array[position]), np.float64)


def _numbers(text: Text, array: Array | None) -> Floats | None:
    return None if array is None else np.asarray(text.backend.numpy(array), np.float64)
