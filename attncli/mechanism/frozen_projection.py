"""One head's queries or keys as a linear map of what enters its attention, with every norm frozen.

Between the vectors that enter and the queries and keys that meet there may be norms of narrow
vectors, of queries and keys, a bound, a rotation, a factor that grows with the position. A rotation
and such a factor are linear; norms and bounds are, with the deviations, and with the share that
each entry keeps, that they had in this run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.mechanism.context import Context
from attncli.mechanism.feed_forward import deviation, through_norm
from attncli.mechanism.projection import (
    LayerAttention,
    rotate,
    rotation,
    rotations_of,
    temperatures,
)
from attncli.mechanism.spec import Attention, Latent, Norm, QkNorm, Rope

Floats = np.ndarray[Any, np.dtype[Any]]
Side = Literal["q", "k", "v"]


class Factor(Struct, frozen=True, eq=False):
    """A linear step: entries times fixed numbers, [token, dim], [token, 1] or [1, dim]."""

    values: Floats

    def apply(self, x: Floats) -> Floats:
        """x, [..., token, dim], times the numbers."""
        return x * self.values

    def of_tokens(self, rows: slice) -> Factor:
        """The numbers of some tokens; those for all tokens alike stay as they are."""
        if len(self.values) == 1:
            return self
        return Factor(self.values[rows])


class Centre(Struct, frozen=True, eq=False):
    """A linear step: the mean of a vector's entries taken from each entry."""

    def apply(self, x: Floats) -> Floats:
        """x, [..., token, dim], less the mean of its last axis."""
        return x - x.mean(-1, keepdims=True)

    def of_tokens(self, rows: slice) -> Centre:
        """The step itself, which is the same for every token."""
        return self


class Turn(Struct, frozen=True, eq=False):
    """A linear step: the rotary embedding, which rotates pairs of entries.

    cos, sin: [token, pair].
    """

    rope: Rope
    cos: Floats
    sin: Floats

    def apply(self, x: Floats) -> Floats:
        """x, [..., token, dim], rotated by each token's angles."""
        backend = numpy_backend(str(x.dtype))
        turned = rotate(
            backend,
            self.rope,
            backend.array_as_is(x),
            backend.array_as_is(self.cos),
            backend.array_as_is(self.sin),
        )
        return backend.numpy(turned)

    def of_tokens(self, rows: slice) -> Turn:
        """The rotation of some tokens."""
        return Turn(self.rope, self.cos[rows], self.sin[rows])


Step = Factor | Centre | Turn


class FrozenHead(Struct, frozen=True, eq=False):
    """What norms, biases and rotation do to one head's queries or keys, with this run's norm
    divisors held fixed: linear steps, and a constant added, [token, dim]."""

    steps: tuple[Step, ...]
    constant: Floats

    def apply(self, x: Floats) -> Floats:
        """The steps applied to x, [..., token, dim], without the constant."""
        for step in self.steps:
            x = step.apply(x)
        return x

    def of_tokens(self, rows: slice) -> FrozenHead:
        """The steps and the constant cut to these tokens."""
        return FrozenHead(tuple(step.of_tokens(rows) for step in self.steps), self.constant[rows])


class HeadProjection(Struct, frozen=True, eq=False):
    """One head's weight matrix for queries, keys or values, [dim, width], without biases, norms or
    rotation.

    side: "q", "k" or "v".
    name: of the projection's role.
    rows: which of its rows are the head's.
    """

    attention: LayerAttention
    side: Side
    name: str
    rows: slice
    matrix: Floats


def head_projection(
    attention: LayerAttention, side: Side, head: int, *, apart: bool = False
) -> HeadProjection:
    """The weight matrix of one query head's queries, or of the keys or values it attends to.

    side: which of the three.
    head: the number of the query head; it may share keys and values with others.
    apart: whether the separate projections are meant that global tokens of Longformer have.
    """
    spec = attention.spec
    # every head has queries of its own, and in latent attention keys and values as well; else
    # consecutive heads share these
    if side == "q" or spec.latent is not None:
        number = head
    else:
        number = head // (spec.heads // spec.kv_heads)
    if side == "v":
        dim = spec.v_dim
    else:
        dim = spec.head_dim
    rows = slice(number * dim, (number + 1) * dim)
    if apart:
        name = f"global_{side}"
    else:
        name = side

    def read(role: str) -> Floats:
        """A role's weights as floats of NumPy."""
        return _numpy_floats(attention.backend, attention.read(role))

    if spec.latent is not None:
        matrix = _latent_matrix(spec, spec.latent, read, side, rows, head)
    else:
        whole = read(f"{name}.weight")
        matrix = whole[rows]
        if _is_centred(spec, side):
            matrix = matrix - whole.mean(0)  # the norm takes the mean over all heads away
    return HeadProjection(attention, side, name, rows, np.ascontiguousarray(matrix))


def _is_centred(spec: Attention, side: Side) -> bool:
    """Whether queries or keys are layer-normed over all heads together, which takes away their
    common mean.
    """
    norm = spec.qk_norm
    return side != "v" and norm is not None and norm.over == "width" and norm.norm.kind == "layer"


def _latent_matrix(
    spec: Attention,
    latent: Latent,
    read: Callable[[str], Floats],
    side: Side,
    rows: slice,
    head: int,
) -> Floats:
    """One head's matrix, [dim, width], of an attention whose queries, keys and values are made from
    narrow (latent) vectors (MLA): the product of the matrix up and the matrix down, with the latent
    norm's weight between them, but not its division.

    read: gives the weights of a role.
    rows: the head's rows of the query's matrix up; not used for keys and values.
    """
    if side == "q":
        if latent.query is None:
            return read("q.weight")[rows]
        return through_norm(latent.norm, read("q.weight")[rows], read("q_down_norm.weight")) @ read(
            "q_down.weight"
        )
    # in the matrix up each head has rows for its key's content and, behind them, for its value;
    # the rest of a key, which is rotated, comes straight from the last rows of the matrix down
    content = spec.head_dim - latent.straight
    first = head * (content + spec.v_dim)
    down = read("kv_down.weight")
    if side == "v":
        values = read("kv.weight")[first + content : first + content + spec.v_dim]
        return through_norm(latent.norm, values, read("kv_down_norm.weight")) @ down[: latent.keys]
    wide = through_norm(
        latent.norm, read("kv.weight")[first : first + content], read("kv_down_norm.weight")
    )
    return np.concatenate([wide @ down[: latent.keys], down[latent.keys :]])


def freeze(
    projection: HeadProjection, x: Array, context: Context, *, memory: bool = False
) -> FrozenHead:
    """The linear steps and the constant that turn one head's raw queries or keys into those of this
    run, with norms and rotations held fixed.

    projection: the head's raw queries or keys, as `head_projection` gives them.
    x: the vectors that they are computed from, [token, width]: what enters the attention, or an
        encoder's output.
    context: the run's, for positions.
    memory: whether x is an encoder's output.
    """
    attention = projection.attention
    side = projection.side
    rows = projection.rows
    backend = attention.backend
    spec = attention.spec
    vectors = _numpy_floats(backend, x)
    steps: list[Step] = []
    constant = np.zeros((len(vectors), len(projection.matrix)), vectors.dtype)
    # the queries or keys after the steps so far, [token, dim], which clipping and norms depend on
    total = vectors @ projection.matrix.T

    def array_of(role: str) -> Floats | None:
        """A role's weights as floats of NumPy; None where the model has none."""
        array = attention.find(role)
        if array is None:
            return None
        return _numpy_floats(backend, array)

    def add_step(step: Step) -> None:
        """Append a linear step, and apply it to the constant and to the sum so far."""
        nonlocal constant, total
        steps.append(step)
        constant = step.apply(constant)
        total = step.apply(total)

    def add_vector(by: Floats | None) -> None:
        """Add a vector to the constant and to the sum so far; None adds nothing."""
        nonlocal constant, total
        if by is not None:
            constant = constant + by
            total = total + by

    # latent norms and biases
    if spec.latent is not None:
        _freeze_latent(spec, spec.latent, array_of, side, rows, vectors, add_step, add_vector)
    else:
        bias = array_of(f"{projection.name}.bias")
        if bias is not None:
            # a norm over all heads takes the mean of all away, also that of their biases
            mean = bias.mean() if _is_centred(spec, side) else 0.0
            add_vector(bias[rows] - mean)

    # a bound, as the share of each entry that it keeps
    if spec.clip is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(total == 0, 1.0, np.clip(total, -spec.clip, spec.clip) / total)
        add_step(Factor(share))
    if side == "v":  # values are neither normed nor rotated
        return FrozenHead(tuple(steps), constant)
    norm = spec.qk_norm

    def norm_by_width(norm: QkNorm) -> None:
        """Add the steps of a norm over the entries of all heads: divide, multiply."""
        # the raw queries or keys of all heads, which decide by what is divided
        wide = vectors @ _numpy_floats(backend, attention.read(f"{projection.name}.weight")).T
        bias = array_of(f"{projection.name}.bias")
        if bias is not None:
            wide = wide + bias
        if spec.clip is not None:
            wide = np.clip(wide, -spec.clip, spec.clip)
        add_step(Factor(1.0 / deviation(norm.norm, wide)))
        gain, added = (array_of(f"{side}_norm.{name}") for name in ("weight", "bias"))
        _add_norm_weight(norm.norm, None if gain is None else gain[rows], add_step)
        add_vector(None if added is None or not norm.norm.affine else added[rows])

    def norm_by_head(norm: QkNorm) -> None:
        """Add the steps of a norm over one head's entries (query-key norm): centre, divide,
        multiply.
        """
        if norm.norm.kind == "layer":
            add_step(Centre())
        add_step(Factor(1.0 / deviation(norm.norm, total)))
        number = rows.start // spec.head_dim  # of the head, or of the key-value head

        def head_part(name: str) -> Floats | None:
            """The head's vector of this role, whether heads have one each or share one; None where the
            model has none.
            """
            array = array_of(f"{side}_norm.{name}")
            if array is not None and array.ndim == 2:
                return array[number]
            return array

        _add_norm_weight(norm.norm, head_part("weight"), add_step)
        bias = head_part("bias")
        add_vector(bias if norm.norm.affine else None)

    # norm, rotation and temperature in the order of the model: some norm after the rotation
    if norm is not None and norm.over == "width":
        norm_by_width(norm)
    elif norm is not None and not norm.after:
        norm_by_head(norm)
    if isinstance(spec.position, Rope):
        if memory:
            places = np.arange(len(vectors))
            cos, sin = rotation(spec.position, places, len(places))
        else:
            cos, sin = rotations_of(backend, spec.position, context)
        add_step(Turn(spec.position, cos.astype(vectors.dtype), sin.astype(vectors.dtype)))
    if norm is not None and norm.over != "width" and norm.after:
        norm_by_head(norm)
    if spec.temperature is not None and side == "q":
        add_step(Factor(temperatures(spec.temperature, context.positions)[:, None]))
    return FrozenHead(tuple(steps), constant)


def _freeze_latent(
    spec: Attention,
    latent: Latent,
    array_of: Callable[[str], Floats | None],
    side: Side,
    rows: slice,
    vectors: Floats,
    add_step: Callable[[Step], None],
    add_vector: Callable[[Floats | None], None],
) -> None:
    """Add the steps that latent attention (MLA) has of its own, for one head's queries, keys or
    values: the division of its latent norm, and biases.

    array_of: gives the weights of a role, None where the model has none.
    rows: the head's rows in its projection.
    vectors: what enters the attention, [token, width].
    add_step, add_vector: called with each linear step, and each vector that is added, [dim].
    """
    # queries without a latent vector
    if side == "q" and latent.query is None:
        bias = array_of("q.bias")
        add_vector(None if bias is None else bias[rows])
        return

    # the latent vectors; of those for keys and values the last entries are not normed. A bias of the
    # map down is added before the division, so that it is divided, too; one of the map up after it
    if side == "q":
        name = "q_down"
        normed_count = None
    else:
        name = "kv_down"
        normed_count = latent.keys
    down = array_of(f"{name}.weight")
    down_bias = array_of(f"{name}.bias")
    assert down is not None
    narrow = vectors @ down.T
    if down_bias is not None:
        narrow = narrow + down_bias
    narrow = narrow[:, :normed_count]
    weight = array_of(f"{name}_norm.weight")
    if side == "q":
        wide = array_of("q.weight")
        bias = array_of("q.bias")
        assert wide is not None
        if down_bias is not None:
            add_vector(through_norm(latent.norm, wide[rows], weight) @ down_bias)
        add_step(Factor(1.0 / deviation(latent.norm, narrow)))
        add_vector(None if bias is None else bias[rows])
        return

    # a head's rows in the matrix up: its key's content, then its value
    wide = array_of("kv.weight")
    bias = array_of("kv.bias")
    assert wide is not None
    content = spec.head_dim - latent.straight
    head = rows.start // (spec.v_dim if side == "v" else spec.head_dim)
    first = head * (content + spec.v_dim)
    if side == "v":
        values = slice(first + content, first + content + spec.v_dim)
        if down_bias is not None:
            add_vector(through_norm(latent.norm, wide[values], weight) @ down_bias[: latent.keys])
        add_step(Factor(1.0 / deviation(latent.norm, narrow)))
        add_vector(None if bias is None else bias[values])
        return

    # a key: its content through the norm, and behind it the entries that come straight from the
    # matrix down and are not normed
    if down_bias is not None:
        content_matrix = through_norm(latent.norm, wide[first : first + content], weight)
        content_bias = content_matrix @ down_bias[: latent.keys]
        add_vector(np.concatenate([content_bias, down_bias[latent.keys :]]))
    factors = np.ones((len(vectors), spec.head_dim))
    factors[:, :content] = 1.0 / deviation(latent.norm, narrow)
    add_step(Factor(factors))
    if bias is not None:
        add_vector(np.concatenate([bias[first : first + content], np.zeros(latent.straight)]))


def _add_norm_weight(norm: Norm, weight: Floats | None, add_step: Callable[[Step], None]) -> None:
    """Add the step that multiplies by a norm's weight, [dim]; nothing where it has no weight."""
    if norm.affine and weight is not None:
        add_step(Factor((weight + 1.0 if norm.unit_offset else weight)[None, :]))


def _numpy_floats(backend: Backend, array: Array) -> Floats:
    """The array in NumPy, in float64 where the run is in it, else in float32."""
    return np.asarray(
        backend.numpy(array), np.float64 if backend.dtype == "float64" else np.float32
    )
