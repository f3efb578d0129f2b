"""One layer, from the vectors that enter it to those that leave: written once, for every family."""

from __future__ import annotations

from functools import partial

import numpy as np

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.errors import UnsupportedError
from attncli.mechanism.context import Context, Weights
from attncli.mechanism.convolution import convolved
from attncli.mechanism.feed_forward import feed_forward, linear_if_any
from attncli.mechanism.intervention import KnockOut, changed
from attncli.mechanism.norm import normalise
from attncli.mechanism.projection import project
from attncli.mechanism.reformer import hash_attention
from attncli.mechanism.spec import (
    Attention,
    Block,
    Place,
)
from attncli.mechanism.streaming import attended, unseen
from attncli.mechanism.trace import Later, LayerTrace


@np.errstate(over="ignore", invalid="ignore")  # infinities and NaN are results here, not news for standard error
def run_block(
    backend: Backend, block: Block, weights: Weights, hidden: Array, context: Context, layer: int
) -> LayerTrace:
    """Run one layer. hidden: [..., token, width]; the result's `after` has the same axes, and is computed when it is
    asked for unless someone watches.

    A block without residual gives its last branch's output, whose width may differ.
    """
    normed = partial(_placed, backend, block, weights, context, layer)

    def added(branch: Array) -> Array:
        return branch if block.branch_scale == 1.0 else branch * block.branch_scale

    entered = hidden
    entering = normed("attn.in", hidden)
    stages, empty = _attention(backend, block.attention, weights, "attn", entering, None, context, layer)
    out = normed("attn.out", stages["out"])
    if context.asking is not None:
        hidden, entering = hidden[..., context.asking, :], entering[..., context.asking, :]
    cross = None
    if block.parallel and block.mlp is not None:

        def fed() -> Array:
            other = normed("mlp.in", hidden) if "mlp.in" in block.norms else entering
            return hidden + added(out) + added(_fed(backend, block, weights, other, context, layer))

    else:
        state = hidden + added(out) if block.residual else out
        if block.residual:
            stages["sum"] = state
        state = normed("attn.sum", state)
        if "attn.sum" in block.norms:
            stages["norm"] = state
        if block.cross is not None:
            inner, inner_empty = _attention(
                backend, block.cross, weights, "cross", normed("cross.in", state), context.memory, context, layer
            )
            after = normed("cross.sum", state + added(normed("cross.out", inner["out"])))
            cross = LayerTrace(layer, inner, inner_empty, state, Later(partial(_itself, after)))
            state = after

        def fed() -> Array:
            if block.mlp is None:
                return state
            result = normed("mlp.out", _fed(backend, block, weights, normed("mlp.in", state), context, layer))
            return normed("mlp.sum", state + added(result))

    @np.errstate(over="ignore", invalid="ignore")
    def left() -> Array:
        found = fed()
        if block.convolution is not None:
            rows = slice(None) if context.asking is None else context.asking
            beside = convolved(backend, block.convolution, weights, entered)[..., rows, :]
            norm = block.convolution.norm
            found = normalise(backend, norm, found + beside, weights("conv.norm.weight"), weights("conv.norm.bias"))
        # NumPy's bfloat16 is wider after a product with a plain number
        return backend.cast(found, backend.dtype) if backend.dtype in LOW_PRECISION else found

    leaving = Later(left)
    if context.watch is not None:
        leaving()
    return LayerTrace(layer, stages, empty, hidden, leaving, cross=cross)


def _itself(array: Array) -> Array:
    return array


def _attention(
    backend: Backend,
    spec: Attention,
    weights: Weights,
    prefix: str,
    x: Array,
    memory: Array | None,
    context: Context,
    layer: int,
) -> tuple[dict[str, Array], Array]:
    interventions = context.interventions.get((layer, "self" if memory is None else "cross"), ())
    parts = project(backend, spec, weights, prefix, x, memory, context, layer)
    stages = {"hidden": x, "q": parts.q, "k": parts.k, "v": parts.v}
    if parts.rule.apart is not None:
        own = parts.rule.apart
        stages |= {"global_q": own.q, "global_k": own.k, "global_v": own.v}
    if "biased" in context.keep and context.rows is None:
        i, j = backend.arange(0, parts.q.shape[-2])[:, None], backend.arange(0, parts.k.shape[-2])[None, :]
        stages |= {name: term(i + parts.rule.offset, j) for name, term in parts.scores.items()}
    if spec.hashing is not None:
        cut = any(isinstance(one, KnockOut) for one in interventions)
        if context.rows is not None or parts.q.ndim > 3 or context.past is not None or cut:
            raise UnsupportedError(
                "hash attention runs a text whole", expected="run, heads or compare, on one short text at a time"
            )
        hashed = hash_attention(backend, parts.q, parts.v, spec.hashing, mask=spec.mask, dense=bool(context.keep))
        mixed, empty = hashed.mixed, hashed.empty_rows
        stages |= {"k": hashed.keys} | {
            name: getattr(hashed, name) for name in ("masked", "weights") if name in context.keep
        }
    else:
        see = unseen if context.see is None else partial(context.see, layer, "self" if memory is None else "cross")
        q, k, v, rule = parts.q, parts.k, parts.v, parts.rule
        kept, mixed, empty = attended(backend, q, k, v, rule, rows=context.rows, keep=context.keep, see=see)
        stages |= kept
    mixed = changed(backend, interventions, mixed)
    side_by_side = join_heads(backend, mixed)
    projected = linear_if_any(backend, weights, f"{prefix}.o", side_by_side)
    stages["mixed"] = mixed
    if projected is None:
        stages["out"] = side_by_side
    else:
        stages |= {"concat": side_by_side, "out": projected}
    return stages, empty


def _fed(backend: Backend, block: Block, weights: Weights, x: Array, context: Context, layer: int) -> Array:
    assert block.mlp is not None
    found = feed_forward(backend, block.mlp, weights, x)
    if context.watch is not None:
        context.watch(layer, "mlp", found)
    return found


def _placed(
    backend: Backend, block: Block, weights: Weights, context: Context, layer: int, place: Place, x: Array
) -> Array:
    norm = block.norms.get(place)
    if norm is not None and context.watch is not None:
        context.watch(layer, place, x)
    return x if norm is None else normalise(backend, norm, x, weights(f"{place}.weight"), weights(f"{place}.bias"))


def join_heads(backend: Backend, x: Array) -> Array:
    """[..., head, token, dim] to [..., token, head·dim]."""
    axes = list(range(x.ndim))
    axes[-2], axes[-3] = axes[-3], axes[-2]
    swapped = backend.permute(x, axes)
    return swapped.reshape((*swapped.shape[:-2], swapped.shape[-2] * swapped.shape[-1]))
