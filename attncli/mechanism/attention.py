"""`attncli.attention`: the attention step for a caller's own checked arrays, with every stage kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from attncli.arrays.backend import DTYPES, Array, Backend, Library, backend_of
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.language import message
from attncli.mechanism.attend import Rule, attend
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.mask import Causal, Everywhere, Mask, Window, intersection
from attncli.mechanism.trace import SQUARE, AttentionTrace


@partial(checked, by_itself=("window", "offset", "key_lengths", "mask", "bias"))
def attention(
    q: Library,
    k: Library,
    v: Library,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    offset: int | Sequence[int] | Array = 0,
    key_lengths: Sequence[int] | Array | None = None,
    sinks: Array | None = None,
    softmax_dtype: str | None = None,
) -> AttentionTrace[Library]:
    """Scaled dot-product attention with every stage kept.

    Args:
        q: Queries [..., heads, query, dim], NumPy or torch; all arrays are of one kind.
        k: Keys [..., kv_heads, key, dim]. Query head h uses kv head h·kv_heads // heads.
        v: Values [..., kv_heads, key, v_dim].
        scale: Multiplies q·k; None is 1/√dim.
        softcap: A positive bound of the scores, or None.
        mask: Booleans, True = visible; broadcast right-aligned to [..., heads, query, key].
        bias: Floats added to the scores, broadcast as the mask is; −inf hides.
        causal: Whether keys after the query are hidden.
        window: Keys besides the query's own, (left, right), None unbounded. It counts absolute
            positions, as `causal`.
        offset: The position of query 0: an int, or one per batch entry (the leading axes).
        key_lengths: One per batch entry; keys from there on are hidden.
        sinks: Logits [heads] that take part in the softmax and are then dropped.
        softmax_dtype: Type of scores and weights; None is the inputs' own, or float32 for float16
            and bfloat16.

    Returns:
        Every stage, of the same kind as q; `mixed` has the type of v. A query that sees nothing has
        weights 0 and mixed 0 and is True in `empty_rows`. NaN or Inf in a hidden key or value does
        not reach the result.

    Raises:
        InputError: For shapes that do not fit.
        UsageError: For mixed kinds of array.

    Source: Vaswani et al., 2017.
    """

    backend, queries, keys, values, rule = check_arguments(
        q,
        k,
        v,
        scale=scale,
        softcap=softcap,
        mask=mask,
        bias=bias,
        causal=causal,
        window=window,
        offset=offset,
        key_lengths=key_lengths,
        sinks=sinks,
        softmax_dtype=softmax_dtype,
    )
    block = attend(backend, queries, keys, values, rule)
    # a backend computes in arrays of the library that q is of, which a type checker cannot know
    stages = {name: cast("Library", block.stages[name]) for name in SQUARE}
    return AttentionTrace(
        **stages, mixed=cast("Library", block.mixed), empty_rows=cast("Library", block.empty)
    )


# Checking what a caller hands to `attncli.attention`: shapes, kinds, and one clear error each.

FURTHEST = 10**12
"""The furthest position: sums of two of them fit 64 bits."""


def check_arguments(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None,
    softcap: float | None,
    mask: Array | None,
    bias: Array | None,
    causal: bool,
    window: tuple[int | None, int | None] | None,
    offset: int | Sequence[int] | Array,
    key_lengths: Sequence[int] | Array | None,
    sinks: Array | None,
    softmax_dtype: str | None,
) -> tuple[Backend, Array, Array, Array, Rule]:
    """Check the arguments of `attention`; returns the backend, q, k and v on it, and the `Rule`
    (scale, mask, biases) that the others mean. Raises InputError for types and shapes that do not
    fit, UsageError for mixed kinds of arrays and for numbers that cannot be meant."""
    backend = backend_of(q, k, v)
    _check_types(q, k, v)
    q, k, v = (backend.cast(backend.array(x), backend.dtype) for x in (q, k, v))
    _check_shapes(q, k, v)
    _check_numbers(backend, scale, softcap, softmax_dtype)
    batch = np.broadcast_shapes(tuple(q.shape[:-3]), tuple(k.shape[:-3]))
    score_shape = (*batch, q.shape[-3], q.shape[-2], k.shape[-2])
    rule = Rule(
        # Python's float, as a NumPy scalar in float64 would widen float32 arrays
        scale=1 / math.sqrt(q.shape[-1]) if scale is None else float(scale),
        softcap=None if softcap is None else float(softcap),
        mask=intersection(Causal() if causal else Everywhere(), _window_mask(window)),
        visibility=_checked_mask(backend, mask, score_shape),
        bias=_checked_bias(backend, bias, score_shape),
        offset=_checked_offset(backend, offset, batch),
        key_lengths=_checked_lengths(backend, key_lengths, batch, k.shape[-2]),
        sinks=_checked_sinks(backend, sinks, q.shape[-3]),
        softmax_dtype=softmax_dtype,
    )
    return backend, q, k, v, rule


def _check_numbers(
    backend: Backend, scale: float | None, softcap: float | None, softmax_dtype: str | None
) -> None:
    """Raise UsageError for a scale or a softcap that is no usable number and for an unknown data
    type; UnsupportedError for a softmax in a type that the backend does not compute in.
    """
    if scale is not None and not math.isfinite(scale):
        raise UsageError("scale is {scale}", expected="a finite number", scale=scale)
    if softcap is not None and not (math.isfinite(softcap) and softcap > 0):
        raise UsageError(
            "softcap is {softcap}",
            expected="a positive number, or None for no cap",
            softcap=softcap,
        )
    if softmax_dtype is not None and softmax_dtype not in DTYPES:
        raise UsageError(
            "unknown softmax_dtype {softmax_dtype}",
            expected=" ".join(DTYPES),
            softmax_dtype=repr(softmax_dtype),
        )
    if softmax_dtype == "bfloat16" and backend.name == "numpy":
        raise UnsupportedError(
            "NumPy stores bfloat16 but does not compute in it",
            expected="softmax_dtype float32, or torch tensors",
        )


def _checked_mask(
    backend: Backend, mask: Array | None, score_shape: tuple[int, ...]
) -> Array | None:
    """The mask on the backend; None without one.

    score_shape: the shape that it is broadcast to, that of the scores.

    Raises InputError for another type than bool, and for a shape that does not fit.
    """
    if mask is None:
        return None
    visibility = backend.array_as_is(mask)
    if backend.dtype_of(visibility) != "bool":
        what = message("mask has dtype {visibility}", visibility=backend.dtype_of(visibility))
        raise InputError(what, expected="bool, True = visible; use bias for numbers to add")
    _check_broadcast("mask", visibility, score_shape)
    return visibility


def _checked_bias(
    backend: Backend, bias: Array | None, score_shape: tuple[int, ...]
) -> Array | None:
    """The bias on the backend; None without one.

    score_shape: the shape that it is broadcast to, that of the scores.

    Raises InputError for what holds no floats, and for a shape that does not fit.
    """
    if bias is None:
        return None
    bias_array = backend.array_as_is(bias)
    if "float" not in backend.dtype_of(bias_array):
        raise InputError(
            "bias has dtype {bias_array}",
            expected="a float type; use mask for True = visible",
            bias_array=backend.dtype_of(bias_array),
        )
    _check_broadcast("bias", bias_array, score_shape)
    return bias_array


def _checked_sinks(backend: Backend, sinks: Array | None, heads: int) -> Array | None:
    """The sinks' logits on the backend, one per query head; None without any. Raises InputError for
    another shape.
    """
    if sinks is None:
        return None
    logits = backend.array(sinks)
    if tuple(logits.shape) != (heads,):
        expected = message("[{shape}], one logit per query head", shape=heads)
        raise InputError("sinks has shape {logits}", expected=expected, logits=shape_text(logits))
    return logits


def _checked_lengths(
    backend: Backend,
    key_lengths: Sequence[int] | Array | None,
    batch: tuple[int, ...],
    keys: int,
) -> Array | None:
    """How many keys each entry of the batch has, [batch..., 1, 1, 1]; None where none are given, so
    that all keys count. Raises InputError for lengths below 0 or above the number of keys.
    """
    if key_lengths is None:
        return None
    lengths = _per_batch(backend, "key_lengths", key_lengths, batch)
    least = int(lengths.min())
    most = int(lengths.max())
    if least < 0 or most > keys:
        raise InputError(
            "key_lengths are {limits} for {shape} keys",
            expected="0 to {shape}",
            limits=f"{least} to {most}",
            shape=keys,
        )
    return lengths


def _check_types(q: Array, k: Array, v: Array) -> None:
    """Raise InputError unless all three have one float type; NumPy's integers mean float64."""
    dtypes = [
        str(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype).removeprefix("torch.")
        for x in (q, k, v)
    ]
    # only torch's tensors have `detach`: integers are taken from NumPy and lists alone
    are_integers = not hasattr(q, "detach") and all(
        name.startswith(("int", "uint")) for name in dtypes
    )
    if not are_integers and (len(set(dtypes)) > 1 or dtypes[0] not in DTYPES):
        what = message(
            "q has dtype {dtype}, k {dtype_2}, v {dtype_3}",
            dtype=dtypes[0],
            dtype_2=dtypes[1],
            dtype_3=dtypes[2],
        )
        raise InputError(
            what, expected=message("one of {dtypes} for all three", dtypes=" ".join(DTYPES))
        )


def _check_shapes(q: Array, k: Array, v: Array) -> None:
    """Raise InputError for queries, keys and values whose shapes do not go together."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim < 3:
            if name == "q":
                axis = message("query")
            else:
                axis = message("key")
            raise _wrong_shape(name, array, message("[..., heads, {value}, dim]", value=axis))
        if 0 in array.shape:
            raise InputError(
                "{name} has shape {array}, which holds nothing",
                expected="every axis at least 1",
                name=name,
                array=shape_text(array),
            )
    if q.shape[-1] != k.shape[-1]:
        what = message(
            "q has dim {shape}, k has dim {shape_2}", shape=q.shape[-1], shape_2=k.shape[-1]
        )
        raise InputError(what, expected="one dim, for q·k")
    if tuple(k.shape[-3:-1]) != tuple(v.shape[-3:-1]):
        raise InputError(
            "k has shape {k}, v has shape {v}",
            expected="the same kv_heads and number of keys in both",
            k=shape_text(k),
            v=shape_text(v),
        )
    check_heads(q.shape[-3], k.shape[-3])
    try:
        np.broadcast_shapes(tuple(q.shape[:-3]), tuple(k.shape[:-3]), tuple(v.shape[:-3]))
    except ValueError:
        raise InputError(
            "leading axes differ: q {q}, k {k}, v {v}",
            expected="leading axes that broadcast",
            q=shape_text(q),
            k=shape_text(k),
            v=shape_text(v),
        ) from None


def _wrong_shape(name: str, array: Array, expected: str) -> InputError:
    """The error, returned and not raised, that the argument of this name has another shape than
    expected."""
    return InputError(
        "{name} has shape {array}", expected=expected, name=name, array=shape_text(array)
    )


def _check_broadcast(name: str, array: Array, full: tuple[int, ...]) -> None:
    """Raise InputError unless the argument of this name broadcasts to the shape of the scores,
    `full`.
    """
    try:
        # an array larger than the scores would broadcast, too, to a shape of its own
        fits = np.broadcast_shapes(tuple(array.shape), full) == full
    except ValueError:  # the two do not broadcast at all
        fits = False
    if not fits:
        expected = message(
            "one that broadcasts to [..., heads, query, key] = {full}", full=list(full)
        )
        raise _wrong_shape(name, array, expected)


def _window_mask(window: tuple[int | None, int | None] | None) -> Mask:
    """The mask of a window (left, right); Everywhere for none. Raises UsageError for what is no
    window.
    """
    if window is None:
        return Everywhere()
    if (
        not isinstance(window, Sequence)
        or len(window) != 2
        or not all(
            side is None or (isinstance(side, int | np.integer) and side >= 0) for side in window
        )
    ):
        raise UsageError(
            "window is {window}",
            expected="(left, right), each None or a number of keys >= 0",
            window=window,
        )
    left, right = (None if side is None else int(side) for side in window)
    return Window(left, right)


def _checked_offset(
    backend: Backend, offset: int | Sequence[int] | Array, batch: tuple[int, ...]
) -> int | Array:
    """The position of query 0: one number, or one for each batch entry, [batch..., 1, 1, 1]. Raises
    InputError for a position beyond ±`FURTHEST`.
    """
    if isinstance(offset, int):
        start: int | Array = offset
        least = most = offset
    else:
        start = _per_batch(backend, "offset", offset, batch)
        least = int(start.min())
        most = int(start.max())
    if least < -FURTHEST or most > FURTHEST:
        what = message("offset is {least}", least=least if least < -FURTHEST else most)
        raise InputError(
            what,
            expected=message("a position from -{furthest:,} to {furthest:,}", furthest=FURTHEST),
        )
    return start


def _per_batch(
    backend: Backend, name: str, value: Sequence[int] | Array | int, batch: tuple[int, ...]
) -> Array:
    """Integers, one for each batch entry or one for all, as [batch..., 1, 1, 1], so that they
    broadcast with [batch..., head, rows, columns]. Raises InputError for other types and shapes.

    name: the argument's, for errors.
    """
    if hasattr(value, "dtype"):
        integers = value
    else:
        integers = np.asarray(value)
    if "int" not in str(integers.dtype):
        raise InputError(
            "{name} has dtype {dtype}",
            expected="integers",
            name=name,
            dtype=str(integers.dtype).removeprefix("torch."),
        )
    array = backend.array(integers)
    if tuple(array.shape) not in ((), batch):
        raise _wrong_shape(
            name, array, message("one integer per batch entry, {batch}", batch=list(batch))
        )
    return array.reshape((*array.shape, 1, 1, 1))


def check_heads(heads: int, kv_heads: int) -> None:
    """Raise InputError unless the heads can share the kv heads evenly."""
    if heads % kv_heads:
        raise InputError(
            "{heads} query heads cannot share {kv_heads} key-value heads evenly",
            expected="heads divisible by kv heads, and {heads} % {kv_heads} is not 0",
            heads=heads,
            kv_heads=kv_heads,
        )


def shape_text(array: Array) -> str:
    """An array's shape as a user writes it, such as [2, 8, 11, 64]."""
    return str(list(array.shape))
