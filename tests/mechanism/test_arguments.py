"""What `attncli.attention` refuses: one error each, with what was found and what was expected."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attncli
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError

Q, K, V = np.ones((2, 6, 7, 5)), np.ones((2, 3, 11, 5)), np.ones((2, 3, 11, 4))


def arrays(**changed):
    return {"q": Q, "k": K, "v": V, **changed}


REFUSED = {
    "two axes": (arrays(q=np.ones((7, 5))), InputError, "[7, 5]", "[..., heads, query, dim]"),
    "two axes of k": (arrays(k=np.ones((7, 5))), InputError, "[7, 5]", "[..., heads, key, dim]"),
    "no key": (
        arrays(k=np.ones((2, 3, 0, 5)), v=np.ones((2, 3, 0, 4))),
        InputError,
        "[2, 3, 0, 5]",
        "at least 1",
    ),
    "no query": (arrays(q=np.ones((2, 6, 0, 5))), InputError, "[2, 6, 0, 5]", "at least 1"),
    "dims": (arrays(k=np.ones((2, 3, 11, 8))), InputError, "q has dim 5, k has dim 8", "one dim"),
    "keys and values": (
        arrays(v=np.ones((2, 3, 13, 4))),
        InputError,
        "[2, 3, 13, 4]",
        "same kv_heads and number of keys",
    ),
    "kv heads": (
        arrays(k=np.ones((2, 4, 11, 5)), v=np.ones((2, 4, 11, 4))),
        InputError,
        "6 query heads cannot share 4",
        "6 % 4",
    ),
    "more kv heads": (
        arrays(q=np.ones((2, 2, 7, 5))),
        InputError,
        "2 query heads cannot share 3",
        "2 % 3",
    ),
    "leading axes": (
        arrays(q=np.ones((3, 6, 7, 5))),
        InputError,
        "q [3, 6, 7, 5], k [2, 3, 11, 5]",
        "broadcast",
    ),
    "types": (
        arrays(k=K.astype(np.float32)),
        InputError,
        "q has dtype float64, k float32",
        "for all three",
    ),
    "complex": (arrays(q=Q * 1j), InputError, "complex128", "float64"),
    "objects": (arrays(q=Q.astype(object)), InputError, "object", "float64"),
    "text": (arrays(q=Q.astype(str)), InputError, "<U", "float64"),
    "booleans": (arrays(q=Q > 0, k=K > 0, v=V > 0), InputError, "bool", "float64"),
    "scale": (arrays(scale=float("nan")), UsageError, "scale is nan", "finite"),
    "softcap": (arrays(softcap=0.0), UsageError, "softcap is 0.0", "positive"),
    "negative softcap": (arrays(softcap=-2.0), UsageError, "softcap is -2.0", "positive"),
    "mask of numbers": (
        arrays(mask=np.ones((7, 11))),
        InputError,
        "mask has dtype float64",
        "bool, True = visible; use bias",
    ),
    "bias of booleans": (
        arrays(bias=np.ones((7, 11), bool)),
        InputError,
        "bias has dtype bool",
        "use mask",
    ),
    "mask shape": (
        arrays(mask=np.ones((11, 7), bool)),
        InputError,
        "mask has shape [11, 7]",
        "[2, 6, 7, 11]",
    ),
    "mask too large": (
        arrays(mask=np.ones((5, 2, 6, 7, 11), bool)),
        InputError,
        "[5, 2, 6, 7, 11]",
        "[2, 6, 7, 11]",
    ),
    "bias shape": (
        arrays(bias=np.ones((3, 1, 1))),
        InputError,
        "bias has shape [3, 1, 1]",
        "[2, 6, 7, 11]",
    ),
    "window": (arrays(window=(-1, 0)), UsageError, "(-1, 0)", "(left, right)"),
    "half a window": (arrays(window=(3,)), UsageError, "(3,)", "(left, right)"),
    "window of fractions": (arrays(window=(1.5, 0)), UsageError, "(1.5, 0)", "number of keys"),
    "offset": (arrays(offset=1.5), InputError, "offset has dtype float64", "integers"),
    "no offset": (arrays(offset=None), InputError, "offset has dtype object", "integers"),
    "offsets": (arrays(offset=[1, 2, 3]), InputError, "offset has shape [3]", "[2]"),
    "far offset": (arrays(offset=10**20), InputError, f"offset is {10**20}", "1,000,000,000,000"),
    "far offsets": (
        arrays(offset=[0, -(10**15)]),
        InputError,
        f"offset is {-(10**15)}",
        "1,000,000,000,000",
    ),
    "key lengths": (arrays(key_lengths=[1, 2, 3]), InputError, "key_lengths has shape [3]", "[2]"),
    "long key lengths": (arrays(key_lengths=[1, 12]), InputError, "1 to 12 for 11 keys", "0 to 11"),
    "negative key lengths": (arrays(key_lengths=[-1, 3]), InputError, "-1 to 3", "0 to 11"),
    "sinks": (
        arrays(sinks=np.ones(3)),
        InputError,
        "sinks has shape [3]",
        "[6], one logit per query head",
    ),
    "softmax type": (arrays(softmax_dtype="float8"), UsageError, "'float8'", "bfloat16"),
    "softmax type of NumPy": (
        arrays(softmax_dtype="bfloat16"),
        UnsupportedError,
        "bfloat16",
        "torch",
    ),
    "mixed kinds": (
        arrays(k=torch.ones(2, 3, 11, 5, dtype=torch.float64)),
        UsageError,
        "mixed",
        "one kind",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    arguments, kind, found, wanted = REFUSED[name]
    with pytest.raises(kind) as caught:
        attncli.attention(**arguments)
    assert found in caught.value.what
    assert wanted in caught.value.expected


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in REFUSED
        if name not in ("objects", "text", "mixed kinds", "softmax type of NumPy")
    ],
)
def test_refused_alike_for_tensors(name):
    arguments, kind, found, wanted = REFUSED[name]
    tensors = {
        key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for key, value in arguments.items()
    }
    with pytest.raises(kind) as caught:
        attncli.attention(**tensors)
    assert found.replace("complex128", "complex") in caught.value.what
    assert wanted in caught.value.expected


def test_what_is_accepted():
    for options in (
        {"offset": np.int64(3)}, {"offset": np.array([1, 2])}, {"offset": [1, 2]}, {"key_lengths": (11, 0)}, {
        "key_lengths": 5},
        {"window": (np.int64(2), None)}, {"mask": np.array(True)}, {"bias": np.float32(1.0).reshape(())}, {
        "scale": np.float32(2)},
        {"softmax_dtype": "float32"}, {"sinks": np.ones(6, np.float32)},
    ):  # fmt: skip
        trace = attncli.attention(Q, K, V, causal=True, **options)
        assert trace.mixed.shape == (2, 6, 7, 4)
    assert attncli.attention(Q, K[0], V[0]).mixed.shape == (2, 6, 7, 4)


def test_every_refusal_is_an_attn_error():
    assert all(issubclass(kind, AttnError) for _, kind, _, _ in REFUSED.values())
