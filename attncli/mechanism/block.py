"""One layer, from the vectors that enter it to those that leave: written once, for every family."""

from __future__ import annotations

from functools import partial

import numpy as np

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.errors import UnsupportedError
from attncli.mechanism.attend import compute_attention, ignore_block
from attncli.mechanism.context import Context, KnockOut, Weights, apply_interventions, put_projections
from attncli.mechanism.feed_forward import activate, feed_forward, linear, linear_if_any, normalise
from attncli.mechanism.projection import project
from attncli.mechanism.reformer import hash_attention
from attncli.mechanism.spec import Attention, Block, Convolution, Mixer, Place
from attncli.mechanism.trace import Later, LayerTrace, head_outputs


@np.errstate(over="ignore", invalid="ignore")  # infinities and NaN are results here, not news for standard error
def run_block(
    backend: Backend, block: Block, weights: Weights, hidden: Array, context: Context, layer: int
) -> LayerTrace:
    """Run one layer. hidden: [..., token, width]; the result's `after` has the same axes, and is computed when it is
    asked for unless someone watches.

    A block without residual gives its last branch's output, whose width may differ.
    """
    apply_norm = partial(_apply_norm, backend, block, weights, context, layer)

    def scale_branch(branch: Array) -> Array:
        return branch if block.branch_scale == 1.0 else branch * block.branch_scale

    block_input = hidden
    entering = apply_norm("attn.in", hidden)
    hidden = entering if block.normed else hidden
    mixed = None if block.mixer is None else _mix(backend, block.mixer, weights, entering, context, layer)
    if block.instead:
        stages, empty = _without_heads(backend, block.attention, entering, context, layer)
        asking_shape = entering.shape if context.asking is None else entering[..., context.asking, :].shape
        out = backend.full(tuple(asking_shape), 0.0, backend.dtype_of(entering)) if mixed is None else mixed
        stages["out"] = out
    else:
        stages, empty = mix_heads(backend, block.attention, weights, "attn", entering, None, context, layer)
        stages = _with_output(backend, weights, "attn", stages)
        out = apply_norm("attn.out", stages["out"])
        out = out if mixed is None else out + mixed
    if context.asking is not None:
        hidden, entering = hidden[..., context.asking, :], entering[..., context.asking, :]
    before = (
        hidden if not block.normed else block_input if context.asking is None else block_input[..., context.asking, :]
    )
    cross = None
    if block.parallel and block.mlp is not None:

        def run_mlp() -> Array:
            mlp_input = apply_norm("mlp.in", hidden) if "mlp.in" in block.norms else entering
            return (
                hidden
                + scale_branch(out)
                + scale_branch(_feed_forward(backend, block, weights, mlp_input, context, layer))
            )

    else:
        state = hidden + scale_branch(out) if block.residual else out
        if block.residual:
            stages["sum"] = state
        state = apply_norm("attn.sum", state)
        if "attn.sum" in block.norms:
            stages["norm"] = state
        if block.cross is not None:
            looking = apply_norm("cross.in", state)
            inner, inner_empty = mix_heads(
                backend, block.cross, weights, "cross", looking, context.memory, context, layer
            )
            inner = _with_output(backend, weights, "cross", inner)
            after = apply_norm("cross.sum", state + scale_branch(apply_norm("cross.out", inner["out"])))
            cross = LayerTrace(layer, inner, inner_empty, state, Later(partial(_itself, after)))
            state = after

        def run_mlp() -> Array:
            if block.mlp is None:
                return state
            result = apply_norm(
                "mlp.out", _feed_forward(backend, block, weights, apply_norm("mlp.in", state), context, layer)
            )
            return apply_norm("mlp.sum", state + scale_branch(result))

    @np.errstate(over="ignore", invalid="ignore")
    def compute_output() -> Array:
        output = run_mlp()
        if block.convolution is not None:
            rows = slice(None) if context.asking is None else context.asking
            beside = convolve(backend, block.convolution, weights, block_input)[..., rows, :]
            norm = block.convolution.norm
            if context.on_activation is not None:
                context.on_activation(layer, "conv", beside)
                context.on_activation(layer, "conv.norm", output + beside)
            output = normalise(backend, norm, output + beside, weights("conv.norm.weight"), weights("conv.norm.bias"))
        # NumPy's bfloat16 is wider after a product with a plain number
        return backend.cast(output, backend.dtype) if backend.dtype in LOW_PRECISION else output

    leaving = Later(compute_output)
    if context.on_activation is not None:
        leaving()
    return LayerTrace(layer, stages, empty, before, leaving, cross=cross)


def _itself(array: Array) -> Array:
    return array


def mix_heads(
    backend: Backend,
    spec: Attention,
    weights: Weights,
    prefix: str,
    x: Array,
    memory: Array | None,
    context: Context,
    layer: int,
) -> tuple[dict[str, Array], Array]:
    """An attention as far as its heads' mixed values: its stages, and which rows are empty, [..., head, query].

    x: what enters it, [..., token, width]; memory: the vectors that it reads in place of those, None for none. prefix:
    "attn" or "cross".
    Raises UnsupportedError for hash attention over rows, batches, kept keys or a link that is cut.
    """
    interventions = context.interventions.get((layer, "self" if memory is None else "cross"), ())
    parts = project(backend, spec, weights, prefix, x, memory, context, layer)
    stages = {"hidden": x, "q": parts.q, "k": parts.k, "v": parts.v}
    if parts.rule.apart is not None:
        apart = parts.rule.apart
        stages |= {"global_q": apart.q, "global_k": apart.k, "global_v": apart.v}
    if "biased" in context.keep and context.rows is None:
        i, j = backend.arange(0, parts.q.shape[-2])[:, None], backend.arange(0, parts.k.shape[-2])[None, :]
        stages |= {name: term(i + parts.rule.offset, j) for name, term in parts.scores.items()}
    if spec.hashing is not None:
        has_knock_out = any(isinstance(intervention, KnockOut) for intervention in interventions)
        if context.rows is not None or parts.q.ndim > 3 or context.past is not None or has_knock_out:
            raise UnsupportedError(
                "hash attention runs a text whole", expected="run, heads or compare, on one short text at a time"
            )
        hash_trace = hash_attention(backend, parts.q, parts.v, spec.hashing, mask=spec.mask, dense=bool(context.keep))
        mixed, empty = hash_trace.mixed, hash_trace.empty_rows
        stages |= {"k": hash_trace.keys} | {
            name: getattr(hash_trace, name) for name in ("masked", "weights") if name in context.keep
        }
    else:
        on_block = (
            ignore_block
            if context.on_block is None
            else partial(context.on_block, layer, "self" if memory is None else "cross")
        )
        q, k, v = put_projections(backend, interventions, parts.q, parts.k, parts.v)
        rule = parts.rule
        square_stages, mixed, empty = compute_attention(
            backend, q, k, v, rule, rows=context.rows, keep=context.keep, on_block=on_block
        )
        stages |= square_stages
    stages["mixed"] = apply_interventions(backend, interventions, mixed)
    if spec.gated:
        asking = x if context.asking is None else x[..., context.asking, :]
        gate = linear(backend, weights, f"{prefix}.gate", asking)
        by_head = gate.reshape((*gate.shape[:-1], spec.heads, spec.v_dim))
        axes = [*range(by_head.ndim - 3), by_head.ndim - 2, by_head.ndim - 3, by_head.ndim - 1]
        stages["gate"] = (backend.tanh(backend.permute(by_head, axes) * 0.5) + 1.0) * 0.5
        stages["gated"] = stages["mixed"] * stages["gate"]
    return stages, empty


def _with_output(backend: Backend, weights: Weights, prefix: str, stages: dict[str, Array]) -> dict[str, Array]:
    """The stages with what becomes of the heads' output: side by side, and through the output projection if any."""
    side_by_side = join_heads(backend, head_outputs(stages))
    output = linear_if_any(backend, weights, f"{prefix}.o", side_by_side)
    return stages | ({"out": side_by_side} if output is None else {"concat": side_by_side, "out": output})


def _mix(backend: Backend, mixer: Mixer, weights: Weights, x: Array, context: Context, layer: int) -> Array:
    """What a mixer makes of the tokens, after those of an earlier run."""
    from attncli.mechanism.mixer import Carry, mix  # few models have one

    carry = Carry(() if context.past is None else context.past.get((layer, "mixer"), ()))
    mixed = mix(backend, mixer, weights, x, carry)
    if context.past is not None:
        context.past[layer, "mixer"] = tuple(carry.after)
    if context.on_activation is not None:
        context.on_activation(layer, "mixer", mixed)
    return mixed if context.asking is None else mixed[..., context.asking, :]


def _without_heads(
    backend: Backend, attention: Attention, x: Array, context: Context, layer: int
) -> tuple[dict[str, Array], Array]:
    """The stages of a layer that does not attend: those of no heads, so that whoever goes through heads finds none."""
    lead, count = tuple(x.shape[:-2]), x.shape[-2]
    queries = len(range(count)[context.asking]) if context.asking is not None else count
    keys = count if context.past is None else context.length

    def stage(rows: int, width: int) -> Array:
        return backend.full((*lead, 0, rows, width), 0.0, backend.dtype_of(x))

    stages = {"hidden": x, "q": stage(queries, attention.head_dim), "k": stage(keys, attention.head_dim)}
    stages |= {"v": stage(keys, attention.v_dim)} | {name: stage(queries, keys) for name in context.keep}
    stages["mixed"] = stage(queries, attention.v_dim)
    return stages, stages["mixed"][..., 0] > 0


def _feed_forward(backend: Backend, block: Block, weights: Weights, x: Array, context: Context, layer: int) -> Array:
    assert block.mlp is not None
    output = feed_forward(backend, block.mlp, weights, x)
    if context.on_activation is not None:
        context.on_activation(layer, "mlp", output)
    return output


def _apply_norm(
    backend: Backend, block: Block, weights: Weights, context: Context, layer: int, place: Place, x: Array
) -> Array:
    norm = block.norms.get(place)
    if norm is not None and context.on_activation is not None:
        context.on_activation(layer, place, x)
    return x if norm is None else normalise(backend, norm, x, weights(f"{place}.weight"), weights(f"{place}.bias"))


def join_heads(backend: Backend, x: Array) -> Array:
    """[..., head, token, dim] to [..., token, head·dim]."""
    axes = list(range(x.ndim))
    axes[-2], axes[-3] = axes[-3], axes[-2]
    by_token = backend.permute(x, axes)
    return by_token.reshape((*by_token.shape[:-2], by_token.shape[-2] * by_token.shape[-1]))


# What neighbouring tokens add to a layer: a convolution over the text.


def convolve(backend: Backend, spec: Convolution, weights: Weights, x: Array) -> Array:
    """act(b + Σ_k W_k·x_{t + k − half}), the same shape as x [..., token, width]; zeros stand beyond the text.

    The roles are `conv.weight`, [out, in / groups, kernel], and `conv.bias`. Source: He et al., DeBERTa, 2021.
    Raises KeyError where the checkpoint has no `conv.weight`.
    """
    matrix, bias = weights("conv.weight"), weights("conv.bias")
    if matrix is None:
        raise KeyError("conv.weight")
    count, beyond = x.shape[-2], [*x.shape[:-2], spec.kernel // 2, x.shape[-1]]
    zeros = backend.full(beyond, 0.0, backend.dtype_of(x))
    wide = backend.concat([zeros, x, zeros], x.ndim - 2)
    width, parts = x.shape[-1] // spec.groups, []
    for first in range(0, x.shape[-1], width):
        own = slice(first, first + width)
        part, weight = wide[..., own], matrix[own]
        total = backend.matmul(part[..., :count, :], backend.transpose(weight[:, :, 0]))
        for step in range(1, spec.kernel):
            total = total + backend.matmul(part[..., step : step + count, :], backend.transpose(weight[:, :, step]))
        parts.append(total)
    total = backend.concat(parts, -1) if len(parts) > 1 else parts[0]
    return activate(backend, spec.activation, total if bias is None else total + bias)
