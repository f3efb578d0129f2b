"""Gradients of every operation against finite differences in float64, and of whole layers, of every
kind that is trained."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from attncli.arrays.backend import Backend, numpy_backend
from attncli.arrays.gradient_backend import GradientBackend, Variable, gradient_backend, gradients
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context
from attncli.mechanism.feed_forward import activate, normalise
from attncli.mechanism.mask import Causal, Everywhere, Window
from attncli.mechanism.spec import Alibi, Attention, Block, Mlp, Norm, RelativeBuckets, Rope, Spec
from attncli.models.family import layer_roles

STEP = 1e-6
"""Of a difference: its error is about STEP² and rounding / STEP, both near 1e-10 here."""
CLOSE = 1e-4
"""Of the largest entry of a gradient."""
DRAWN = np.random.default_rng(3)


def differences(function, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The gradient of a function of arrays, entry by entry, by central differences."""
    plain, parts = numpy_backend("float64"), []
    for array in arrays:
        part = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            before = array[index]
            ends = []
            for end in (before + STEP, before - STEP):
                array[index] = end
                ends.append(float(np.sum(np.asarray(function(plain, *arrays)))))
            array[index] = before
            part[index] = (ends[0] - ends[1]) / (2 * STEP)
        parts.append(part)
    return parts


def exact(function, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The same by the tape."""
    backend = gradient_backend("float64")
    variables = [Variable(array) for array in arrays]
    result = function(backend, *variables)
    loss = backend.sum(result.reshape((-1,)), -1)
    return gradients(loss, variables)


def check(function, *arrays: np.ndarray) -> None:
    copies = [array.astype(np.float64).copy() for array in arrays]
    for found, expected in zip(exact(function, copies), differences(function, copies), strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= CLOSE * max(np.abs(expected).max(), 1e-3)


def drawn(*shape: int) -> np.ndarray:
    return DRAWN.standard_normal(shape)


# what weighs the entries differently, so that a wrong place shows
W = drawn(2, 3, 4)
V = drawn(3, 4)


def test_it_has_every_operation_of_the_protocol_and_no_other():
    def names(cls):
        return {
            name
            for name, _ in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert names(GradientBackend) == names(Backend)


OPERATIONS = {
    "add": lambda b, x, y: (x + y) * (x + 2.0) * W,
    "subtract": lambda b, x, y: (x - y) * (1.0 - x) * W,
    "multiply": lambda b, x, y: x * y * W,
    "divide": lambda b, x, y: x / (y * y + 1.0) * W + 2.0 / (x * x + 1.0),
    "negate": lambda b, x, y: -x * x * W,
    "reshape": lambda b, x, y: x.reshape((6, 4)) * W.reshape(6, 4) * x.reshape((6, 4)),
    "slice": lambda b, x, y: x[:, 1:, ::2] * x[:, :2, :2] * W[:, :2, :2],
    "backwards": lambda b, x, y: x[:, ::-1] * x * W,
    "pick": lambda b, x, y: x[:, [0, 0, 2]] * W,
    "new axis": lambda b, x, y: x[..., None] * W[..., None] * x[..., None],
    "exp": lambda b, x, y: b.exp(x) * b.exp_over(x * 0.5) * W,
    "log": lambda b, x, y: b.log(x * x + 1.0) * W,
    "sqrt": lambda b, x, y: b.sqrt(x * x + 1.0) * W,
    "tanh": lambda b, x, y: b.tanh(x) * W,
    "erf": lambda b, x, y: b.erf(x) * W,
    "sum": lambda b, x, y: b.sum(x * x, -2) * W[:, :1],
    "dot over": lambda b, x, y: b.dot_over(x * 1.0, y * x) * W[..., :1],
    "where": lambda b, x, y: b.where(x > 0, x * x, y) * W,
    "at least": lambda b, x, y: b.at_least(x * 1.0, -0.2) * x * W,
    "transpose": lambda b, x, y: b.transpose(x) * b.transpose(x) * np.swapaxes(W, -1, -2),
    "permute": lambda b, x, y: (
        b.permute(x, (2, 0, 1)) * b.permute(x * x, (2, 0, 1)) * W.transpose(2, 0, 1)
    ),
    "concat": lambda b, x, y: (
        b.concat([x, y * y, x], -1) * np.concatenate([W, W[:, ::-1], W * 2], -1)
    ),
    "broadcast": lambda b, x, y: b.broadcast(x[:, :1] * x[:, :1], (2, 3, 4)) * W,
    "repeat": lambda b, x, y: (
        b.repeat(x * x, 2, 1) * np.repeat(W, 2, 1) * np.arange(6)[None, :, None]
    ),
    "take": lambda b, x, y: b.take(x * x, b.array(np.array([2, 0, 2])), 1) * W,
    "take the last axis": lambda b, x, y: (
        b.take(x * x, b.array(np.array([3, 0, 3])), -1) * W[..., :3]
    ),
    "matmul": lambda b, x, y: b.matmul(x, b.transpose(y)) * W[..., :3],
    "matmul of one": lambda b, x, y: b.matmul(x, b.transpose(y[0])) * W[..., :3],
    "affine": lambda b, x, y: b.affine(x[0], y[1], y[0, :, 0]) * W[0, :, :3],
    "layer norm": lambda b, x, y: b.layer_norm(x, 1e-5, y[0, 0], y[1, 1]) * W,
    "bare layer norm": lambda b, x, y: b.layer_norm(x, 1e-5, None, None) * W,
    "entropy": lambda b, x, y: b.entropy(x * x + 0.1) * W[..., 0],
    "cast": lambda b, x, y: b.cast(x * x, "float64") * W,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation(name: str):
    check(OPERATIONS[name], drawn(2, 3, 4), drawn(2, 3, 4))


def test_a_wrong_gradient_shows():
    def wrong(b, x):
        return b.tanh(x) * (1.0 if isinstance(x, Variable) else 1.01)

    with pytest.raises(AssertionError):
        check(wrong, drawn(3))


def test_what_was_computed_is_let_go_and_parameters_begin_anew():
    backend, x = gradient_backend("float64"), Variable(drawn(3))
    for _ in range(2):  # the second time as the first
        (found,) = gradients(backend.sum(x * x, -1), [x])
        assert np.allclose(found, 2 * x.value)
    (nothing,) = gradients(backend.sum(x * x, -1), [Variable(drawn(4))])
    assert (nothing == 0).all()


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("unit", [False, True])
def test_a_norm(kind: str, unit: bool):
    norm = Norm(kind, 1e-5, unit_offset=unit)
    check(lambda b, x, w, c: normalise(b, norm, x, w, c) * W, drawn(2, 3, 4), drawn(4), drawn(4))


@pytest.mark.parametrize(
    "kind", ["gelu", "gelu_tanh", "gelu_bloom", "relu", "silu", "quick_gelu", "relu2", "tanh"]
)
def test_an_activation(kind: str):
    check(lambda b, x: activate(b, kind, x) * W, drawn(2, 3, 4))


POSITIONS = {
    "none": None,
    "rope": Rope(4),
    "half a rope, adjacent": Rope(2, pairing="adjacent"),
    "alibi": Alibi(),
    "alibi both ways": Alibi(symmetric=True),
    "buckets": RelativeBuckets(4, 6, True),
}
NORM = Norm("layer", 1e-5)
PRE, POST = {"attn.in": NORM, "mlp.in": NORM}, {"attn.sum": NORM, "mlp.sum": NORM}


def one_layer(spec: Spec, names: list[str], ids: int):
    """A function of the vectors that enter a layer and of its weights."""
    count = 4

    def function(backend, x, *arrays):
        weights = dict(zip(names, arrays, strict=True))
        context = Context(np.arange(count), count, keep=frozenset())
        return run_block(backend, spec.blocks[0], weights.get, x, context, 0).after * W5

    W5 = np.random.default_rng(ids).standard_normal((2, count, spec.d_model))
    return function


@pytest.mark.many
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(
    "mask", [Causal(), Window(1, 0), Everywhere()], ids=["causal", "window", "everywhere"]
)
def test_a_layer_with_each_position(position: str, mask):
    """Through the softmax, masked or not, and the position's own parameters."""
    attention = Attention(2, 1, 4, 4, scale=0.5, mask=mask, position=POSITIONS[position])
    spec = Spec(
        d_model=4, vocabulary=9, blocks=(Block(attention, None, {"attn.in": NORM}),), biases=("*",)
    )
    roles = layer_roles(spec, spec.blocks[0])
    weights = [0.3 * drawn(*role.shape) + (len(role.shape) == 1) for role in roles]
    check(one_layer(spec, [role.name for role in roles], 1), drawn(2, 4, 4), *weights)


@pytest.mark.many
@pytest.mark.parametrize("norms", [PRE, POST], ids=["before", "after"])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_a_layer_with_a_feed_forward_part(norms, softcap):
    attention = Attention(
        2, 2, 3, 3, scale=1.0, mask=Causal(), softcap=softcap, sinks=softcap is not None
    )
    spec = Spec(
        d_model=4,
        vocabulary=9,
        blocks=(Block(attention, Mlp(5, "gelu_tanh"), norms),),
        biases=("*",),
    )
    roles = layer_roles(spec, spec.blocks[0])
    weights = [0.3 * drawn(*role.shape) + (len(role.shape) == 1) for role in roles]
    check(one_layer(spec, [role.name for role in roles], 2), drawn(2, 4, 4), *weights)
