"""`attncli.attention` against loops in float64, on both libraries, over all its arguments."""

from __future__ import annotations

import numpy as np
import pytest
from comparing import LIBRARIES, agree, attend, case, loops, on, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import attncli


@st.composite
def calls(draw):
    """Shapes and arguments of one call."""
    batch = draw(st.sampled_from([(), (2,), (2, 3), (1,)]))
    kv_heads, shared = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 3), (3, 1)]))
    heads, queries, keys = kv_heads * shared, draw(st.integers(1, 7)), draw(st.integers(1, 11))
    q, k, v = case(
        draw(st.integers(0, 99)), batch=batch, heads=heads, kv_heads=kv_heads, queries=queries, keys=keys,
        dim=draw(st.sampled_from([1, 2, 5])), v_dim=draw(st.sampled_from([1, 3])),
    )  # fmt: skip
    random = np.random.default_rng(draw(st.integers(0, 99)))
    options = {}
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([1.0, 0.3, -2.0, 0.0]))
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([0.5, 2.0, 50.0]))
    shape = draw(
        st.sampled_from(
            [
                (),
                (keys,),
                (queries, 1),
                (queries, keys),
                (1, keys),
                (heads, 1, keys),
                (*batch, 1, queries, keys),
            ]
        )
    )
    if draw(st.booleans()):
        options["mask"] = random.random(shape) < 0.6
    if draw(st.booleans()):
        options["bias"] = np.where(
            random.random(shape) < 0.3, -np.inf, random.standard_normal(shape) * 2
        )
    options["causal"] = draw(st.booleans())
    if draw(st.booleans()):
        options["window"] = draw(
            st.sampled_from([(0, 0), (2, 1), (None, 0), (1, None), (None, None), (20, 20)])
        )
    match draw(st.integers(0, 2)):
        case 1:
            options["offset"] = draw(st.integers(-3, 5))
        case 2:
            options["offset"] = random.integers(-3, 6, batch)
    if draw(st.booleans()):
        options["key_lengths"] = random.integers(0, keys + 1, batch)
    if draw(st.booleans()):
        options["sinks"] = random.standard_normal(heads) * 2
    return (q, k, v), options


@pytest.mark.many
@pytest.mark.parametrize("library", LIBRARIES)
@settings(deadline=None, max_examples=250)
@given(calls())
def test_every_stage_is_the_loops(library, call):
    (q, k, v), options = call
    agree(attend(library, q, k, v, **options), loops(q, k, v, **options))


ALL_AT_ONCE = {
    "scale": 0.7,
    "softcap": 2.0,
    "causal": True,
    "window": (4, None),
    "offset": 3,
    "sinks": np.array([0.5, -1.0, 1.0, 2.0]),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("scale", 0.71),
        ("softcap", 2.1),
        ("softcap", None),
        ("causal", False),
        ("window", (3, None)),
        ("offset", 4),
        ("sinks", None),
    ],
)
def test_the_comparison_fails_when_one_knob_is_turned(library, name, other):
    q, k, v = case()
    trace = attend(library, q, k, v, **ALL_AT_ONCE)
    agree(trace, loops(q, k, v, **ALL_AT_ONCE))
    with pytest.raises(AssertionError):
        agree(trace, loops(q, k, v, **{**ALL_AT_ONCE, name: other}))


def test_the_comparison_fails_on_other_heads_and_values():
    q, k, v = case()
    trace = attend("numpy", q, k, v)
    agree(trace, loops(q, k, v))
    for wrong in (
        loops(q, k, v[..., ::-1, :, :]),
        loops(q, k[::-1], v),
        loops(q[::-1], k, v),
        loops(q, k, v * (1 + 1e-8)),
    ):
        with pytest.raises(AssertionError):
            agree(trace, wrong)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 2e-2)]
)
def test_lower_precision(library, dtype, tolerance):
    import ml_dtypes
    import torch

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    q, k, v = (x.astype(kind) for x in case(heads=6, kv_heads=3))
    inputs = (
        (q, k, v)
        if library == "numpy"
        else [torch.from_numpy(x.astype(np.float32)).to(getattr(torch, dtype)) for x in (q, k, v)]
    )
    trace = attncli.attention(*inputs, causal=True, offset=4, softcap=3.0, scale=np.float64(0.5))
    wide = [x.astype(np.float64) for x in (q, k, v)]
    # scores and weights are computed in float32; only the result is rounded to the inputs' type
    agree(
        trace,
        loops(*wide, causal=True, offset=4, softcap=3.0, scale=0.5),
        tolerance=1e-5,
        stages=("raw", "masked", "weights"),
    )
    agree(trace, loops(*wide, causal=True, offset=4, softcap=3.0, scale=0.5), tolerance=tolerance)
    assert str(trace.weights.dtype).removeprefix("torch.") == "float32"
    assert str(trace.mixed.dtype).removeprefix("torch.") == dtype


@pytest.mark.parametrize("library", LIBRARIES)
def test_float16_scores_beyond_its_exponential_range(library):
    q, k, v = (on(library, (x * 3).astype(np.float16)) for x in case())
    for softmax_dtype in (None, "float16", "float64"):
        trace = attncli.attention(q, k, v, scale=1.0, softmax_dtype=softmax_dtype)
        assert plain(trace.raw).max() > 11.09
        assert np.allclose(plain(trace.weights).astype(float).sum(-1), 1, atol=5e-3)
        assert str(trace.weights.dtype).removeprefix("torch.") == (softmax_dtype or "float32")


@pytest.mark.parametrize("library", LIBRARIES)
def test_lists_and_whole_numbers_of_numpy_count_as_float64(library):
    if library == "torch":
        with pytest.raises(attncli.AttnError, match="int64"):
            attend("torch", *(np.ones((1, 2, 2), np.int64) for _ in range(3)))
        return
    trace = attncli.attention([[[1, 2], [3, 4]]], [[[1, 0], [0, 1]]], [[[1], [2]]], scale=1)
    assert trace.weights.dtype == np.float64
    agree(
        trace,
        loops(
            *(np.array(x, float) for x in ([[[1, 2], [3, 4]]], [[[1, 0], [0, 1]]], [[[1], [2]]])),
            scale=1,
        ),
    )


def test_the_inputs_are_not_written_to():
    for library in LIBRARIES:
        arrays = [on(library, x) for x in case()]
        before = [plain(x).copy() for x in arrays]
        mask = on(library, np.random.default_rng(0).random((7, 11)) < 0.5)
        attncli.attention(
            *arrays, mask=mask, bias=on(library, np.zeros((7, 11))), causal=True, softcap=2.0
        )
        for array, copy in zip(arrays, before, strict=True):
            assert np.array_equal(plain(array), copy)


def test_gradients_are_not_recorded():
    import torch

    q, k, v = (torch.from_numpy(x).requires_grad_() for x in case())
    assert not attncli.attention(q, k, v, causal=True).mixed.requires_grad
