"""Every operation of both backends: against Python's own arithmetic, then against each other."""

from __future__ import annotations

import inspect
import math

import ml_dtypes
import numpy as np
import pytest
import torch

from attncli.arrays import torch_backend
from attncli.arrays.backend import DTYPES, Backend
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.arrays.torch_backend import TorchBackend
from attncli.mechanism.feed_forward import activate

KINDS = {"numpy": NumpyBackend, "torch": TorchBackend}
each = pytest.mark.parametrize("kind", KINDS)
X = np.random.default_rng(0).standard_normal((2, 3, 5))


def of(kind: str, dtype: str = "float64") -> Backend:
    return KINDS[kind](dtype)


def test_both_have_every_operation_of_the_protocol_and_no_other():
    def names(cls):
        return {
            name
            for name, _ in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert names(NumpyBackend) == names(TorchBackend) == names(Backend)


@each
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_take_the_data_type_of_the_run(kind, dtype):
    backend = of(kind, dtype)
    for values in (
        X,
        X.astype(np.float32),
        X.astype(np.float16),
        X.astype(ml_dtypes.bfloat16),
        [[1.5]],
        2.5,
    ):
        assert backend.dtype_of(backend.array(values)) == dtype
    assert backend.dtype_of(backend.array(np.arange(3, dtype=np.int32))) == "int64"
    assert backend.dtype_of(backend.array(X > 0)) == "bool"
    assert backend.dtype_of(backend.array(backend.array(X))) == dtype
    assert backend.dtype_of(backend.full((2, 3), 1.0, dtype)) == dtype
    assert backend.numpy(backend.array(X)).dtype == np.dtype(
        "float32" if dtype == "bfloat16" else dtype
    )
    assert np.allclose(backend.numpy(backend.array(X)), X, atol=0.02)


@each
@pytest.mark.parametrize(
    "dtype",
    [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.uint8, bool],
)
def test_keep_keeps_the_data_type(kind, dtype):
    values = (X > 0).astype(dtype)
    kept = of(kind).array_as_is(values)
    assert of(kind).dtype_of(kept) == values.dtype.name
    assert np.array_equal(of(kind).numpy(kept), values.astype(np.float32))
    locked = values.copy()
    locked.flags.writeable = False
    assert np.array_equal(of(kind).numpy(of(kind).array_as_is(locked)), values.astype(np.float32))
    assert np.array_equal(
        of(kind).numpy(of(kind).array_as_is(values[::-1, ::-1])),
        values[::-1, ::-1].astype(np.float32),
    )
    if np.dtype(dtype).kind != "V" and np.dtype(dtype).name != "bfloat16":
        foreign = values.astype(values.dtype.newbyteorder())
        assert np.array_equal(of(kind).numpy(of(kind).array(foreign)), values.astype(np.float32))


@each
def test_shapes(kind):
    backend = of(kind)
    x = backend.array(X)
    assert np.array_equal(backend.numpy(backend.transpose(x)), np.swapaxes(X, 1, 2))
    assert np.array_equal(backend.numpy(backend.permute(x, (2, 0, 1))), X.transpose(2, 0, 1))
    assert np.array_equal(
        backend.numpy(backend.concat([x, x[:, :1]], 1)), np.concatenate([X, X[:, :1]], 1)
    )
    assert np.array_equal(backend.numpy(backend.concat([x, x], -1)), np.concatenate([X, X], -1))
    assert tuple(backend.broadcast(x[:, :1], (4, 2, 3, 5)).shape) == (4, 2, 3, 5)
    assert np.array_equal(
        backend.numpy(backend.repeat(x, 2, 0)), np.stack([X[0], X[0], X[1], X[1]])
    )
    assert np.array_equal(
        backend.numpy(backend.take(x, backend.array_as_is(np.array([2, 0, 2])), 1)), X[:, [2, 0, 2]]
    )
    assert backend.numpy(backend.arange(-2, 3)).tolist() == [-2, -1, 0, 1, 2]
    assert backend.dtype_of(backend.arange(0, 2)) == "int64"
    assert backend.numpy(backend.full((2, 1), -math.inf, "float32")).tolist() == [[-math.inf]] * 2
    assert backend.numpy(backend.full((2,), 0, "bool")).tolist() == [False, False]


@each
@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "sqrt"])
def test_functions(kind, name):
    backend = of(kind)
    values = np.abs(X) + 0.01 if name in ("log", "sqrt") else X * 3
    found = backend.numpy(getattr(backend, name)(backend.array(values)))
    assert np.allclose(found, np.vectorize(getattr(math, name))(values), rtol=1e-14, atol=1e-15)


@each
def test_erf_everywhere(kind):
    values = np.concatenate(
        [np.linspace(-7, 7, 2801), [0.0, -0.0, 0.46875, 4.0, -4.0, 1e-300, 30.0, -np.inf, np.inf]]
    )
    found = of(kind).numpy(of(kind).erf(of(kind).array(values)))
    wanted = np.array([math.erf(x) for x in values])
    assert np.abs(found - wanted).max() < 4e-16
    small = np.abs(values) < 1e-3
    assert np.allclose(found[small], wanted[small], rtol=1e-14)
    assert np.isnan(of(kind).numpy(of(kind).erf(of(kind).array([np.nan])))).all()


@each
def test_erf_in_float32_is_off_by_its_rounding(kind):
    values = np.concatenate(
        [np.linspace(-6, 6, 24001), [0.0, 1e-30, -1e-3, 3.92, np.inf, -np.inf]]
    ).astype(np.float32)
    given = values.copy()
    found = (
        of(kind, "float32")
        .numpy(of(kind, "float32").erf(of(kind, "float32").array(given)))
        .astype(np.float64)
    )
    wanted = np.array([math.erf(x) for x in values.tolist()])
    assert np.array_equal(given, values)
    assert np.abs(found - wanted).max() < 1.2e-7
    assert np.abs(found).max() == 1
    small = np.abs(values) < 1e-2
    assert np.allclose(found[small], wanted[small], rtol=2e-7, atol=0)
    assert np.isnan(
        of(kind, "float32").numpy(of(kind, "float32").erf(of(kind, "float32").array([np.nan])))
    ).all()


@each
def test_erf_of_many_numbers_is_taken_by_blocks_up_to_the_last(kind):
    values = np.linspace(-3, 3, 2 * 8192 + 11).reshape(-1, 3)[:, ::-1]
    found = of(kind).numpy(of(kind).erf(of(kind).array(values)))
    assert np.abs(found - np.vectorize(math.erf)(values)).max() < 4e-16


@each
def test_affine_and_layer_norm_are_their_formulas(kind):
    backend = of(kind)
    random = np.random.default_rng(5)
    x, weight, bias = random.normal(size=(7, 5)), random.normal(size=(3, 5)), random.normal(size=3)
    scale, shift = random.normal(size=5), random.normal(size=5)
    held = [backend.array(one) for one in (x, weight, bias, scale, shift)]
    loops = np.array(
        [[sum(a * b for a, b in zip(row, out, strict=True)) for out in weight] for row in x]
    )
    assert np.allclose(backend.numpy(backend.affine(held[0], held[1], None)), loops, atol=1e-13)
    assert np.allclose(
        backend.numpy(backend.affine(held[0], held[1], held[2])), loops + bias, atol=1e-13
    )
    for row, found, plain in zip(
        x,
        backend.numpy(backend.layer_norm(held[0], 0.1, held[3], held[4])),
        backend.numpy(backend.layer_norm(held[0], 0.1, None, None)),
        strict=True,
    ):
        mean = sum(row) / 5
        spread = math.sqrt(sum((one - mean) ** 2 for one in row) / 5 + 0.1)
        assert np.allclose(plain, (row - mean) / spread, atol=1e-13)
        assert np.allclose(found, (row - mean) / spread * scale + shift, atol=1e-13)
    assert np.array_equal(backend.numpy(held[0]), x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("packs", [True, False])
def test_what_multiplies_by_a_weight_is_the_affine_step(dtype, packs, monkeypatch):
    if packs and not torch_backend._can_pack():
        pytest.skip("this torch has no weights in an order of their own")
    monkeypatch.setattr(torch_backend, "_can_pack", lambda: packs)
    random, torch = np.random.default_rng(6), of("torch", dtype)
    x, weight, bias = (
        random.normal(size=(70, 96)),
        random.normal(size=(40, 96)),
        random.normal(size=40),
    )
    rows, added = torch.array(x.astype(dtype)), torch.array(bias.astype(dtype))
    multiply = torch.multiplier(torch.array(weight.astype(dtype)))
    results = torch.numpy(multiply(rows, added))
    near = 2e-5 if dtype == "float32" else 1e-13
    assert np.abs(results - (x @ weight.T + bias)).max() < near
    assert np.abs(torch.numpy(multiply(rows, None)) - x @ weight.T).max() < near
    apart = torch.array(np.repeat(x.astype(dtype), 2, 1))[
        :, ::2
    ]  # does not lie in memory row by row
    assert np.abs(torch.numpy(multiply(apart, added)) - (x @ weight.T + bias)).max() < near
    for first, last in ((0, 8), (3, 20), (30, 70)) if packs and dtype == "float32" else ():
        assert np.array_equal(torch.numpy(multiply(rows[first:last], added)), results[first:last])
    assert multiply(rows[:0], added).shape == (0, 40)
    assert np.isnan(torch.numpy(multiply(rows * math.nan, added))).all()
    assert torch.multiplier(torch.cast(rows, "bfloat16")) is None
    assert of("numpy").multiplier(weight) is None


def test_an_activation_in_one_step_is_the_one_in_many():
    torch, numpy = of("torch"), of("numpy")
    for kind in ("gelu", "gelu_tanh", "silu"):
        at_once = torch.activation(kind, torch.array(X * 3))
        assert np.allclose(torch.numpy(at_once), activate(numpy, kind, X * 3), atol=1e-14)
    assert torch.activation("quick_gelu", torch.array(X)) is None
    assert numpy.activation("gelu", X) is None


@each
def test_reductions_keep_their_axis(kind):
    backend = of(kind)
    x = backend.array(X)
    assert np.array_equal(backend.numpy(backend.max(x, -1)), X.max(-1, keepdims=True))
    assert np.allclose(backend.numpy(backend.sum(x, 1)), X.sum(1, keepdims=True), rtol=1e-14)
    assert np.array_equal(backend.numpy(backend.any(x > 2, -1)), (X > 2).any(-1, keepdims=True))
    assert np.array_equal(
        backend.numpy(backend.isfinite(backend.array([1, np.nan, np.inf]))), [True, False, False]
    )
    with pytest.raises(Exception, match="no keys"):
        backend.max(backend.full((2, 0), 0.0, "float64"), -1)


@each
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_and_sums_of_low_precision_are_rounded_once(kind, dtype):
    backend = of(kind, dtype)
    ones = backend.full((1, 4096), 1.0, dtype)
    assert float(backend.numpy(backend.matmul(ones, backend.transpose(ones))).item()) == 4096
    assert float(backend.numpy(backend.sum(ones, -1)).item()) == 4096
    assert backend.dtype_of(backend.matmul(ones, backend.transpose(ones))) == dtype


@each
@pytest.mark.parametrize("dtype", DTYPES)
def test_selection_keeps_the_data_type_and_ignores_what_is_not_selected(kind, dtype):
    backend = of(kind, dtype)
    x = backend.array([1.0, np.nan, -np.inf])
    chosen = backend.where(backend.array_as_is(np.array([True, False, False])), x, 0.0)
    assert backend.dtype_of(chosen) == dtype
    assert backend.numpy(chosen).tolist() == [1, 0, 0]
    assert (
        backend.dtype_of(
            backend.where(backend.array_as_is(np.array([True, False, False])), -math.inf, x)
        )
        == dtype
    )


@each
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_far_below_and_hidden_numbers_of_any_kind(kind, dtype):
    backend = of(kind, dtype)
    seen = np.tril(np.ones((5, 5), bool))
    scores = np.linspace(-900, 80, 8 * 25).reshape(8, 5, 5)
    for bad in (0.0, np.nan, np.inf, -np.inf):
        scores[3, 1, 4] = bad  # hidden
        hidden = backend.hide(backend.array(scores.copy()), backend.array_as_is(seen))
        assert np.array_equal(backend.numpy(hidden), np.where(seen, scores, -np.inf).astype(dtype))
    scores[2, 3, 1], scores[2, 3, 2] = np.nan, np.inf  # seen, and told
    hidden = backend.hide(backend.array(scores.copy()), backend.array_as_is(seen))
    found = backend.numpy(backend.exp_over(hidden))
    wanted = np.exp(np.where(seen, scores, -np.inf).astype(dtype))
    assert (found[:, ~seen] == 0).all()
    assert np.allclose(found, wanted, rtol=1e-5, atol=np.finfo(dtype).tiny * 2, equal_nan=True)


@each
def test_overwriting(kind):
    backend = of(kind)
    x = backend.array(X.copy())
    assert backend.hide(x, backend.array_as_is(np.arange(5) < 3)) is x
    assert np.array_equal(backend.numpy(x), np.where(np.arange(5) < 3, X, -np.inf))
    assert backend.exp_over(x) is x
    assert np.allclose(backend.numpy(x), np.where(np.arange(5) < 3, np.exp(X), 0), rtol=1e-15)
    held = backend.full(X.shape, 0, "float64")
    assert backend.exp(backend.array(X.copy()), out=held) is held
    assert np.allclose(backend.numpy(held), np.exp(X), rtol=1e-15)
    y = backend.array(X.copy())
    assert backend.at_least(y, -0.5) is y
    assert np.array_equal(backend.numpy(y), np.maximum(X, -0.5))
    assert np.allclose(
        backend.numpy(backend.dot_over(y, held)),
        (np.maximum(X, -0.5) * np.exp(X)).sum(-1)[..., None],
    )


@each
def test_entropy(kind):
    backend = of(kind)
    rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.15, 0.5, 0.25]])
    found = backend.numpy(backend.entropy(backend.array(rows)))
    assert np.allclose(found, [0, 0.693147, 1.029653, 1.207974], atol=1e-6)
    assert np.allclose(
        found, [-math.fsum(x * math.log(x) for x in row if x) for row in rows], rtol=1e-14
    )


def test_the_numpy_result_is_on_the_cpu_and_without_gradient():
    x = torch.ones(2, requires_grad=True)
    backend = TorchBackend("float32")
    assert not backend.array_as_is(x).requires_grad
    assert isinstance(backend.numpy(x), np.ndarray)
