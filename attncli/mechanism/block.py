"""One layer, from the vectors that enter it to those that leave: written once, for every family."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.errors import UnsupportedError
from attncli.mechanism.attend import (
    Rule,
    compute_attention,
    ignore_block,
    mix_with_weights,
    weigh_scores,
)
from attncli.mechanism.context import (
    Context,
    Intervention,
    Kind,
    KnockOut,
    Weigh,
    Weights,
    apply_interventions,
    held_weights,
    put_projections,
    put_weights,
)
from attncli.mechanism.feed_forward import (
    LayerPart,
    activate,
    feed_forward,
    linear_if_any,
    normalise,
)
from attncli.mechanism.projection import LayerAttention, Projection, project
from attncli.mechanism.reformer import HashTrace, hash_attention
from attncli.mechanism.spec import Attention, Block, Convolution, Mixer, Place
from attncli.mechanism.trace import Later, LayerTrace, head_outputs

if TYPE_CHECKING:
    from attncli.mechanism.edit import Edits, Site  # few runs edit


# NumPy's warnings are off, as infinities and NaN are results here
@np.errstate(over="ignore", invalid="ignore")
def run_block(
    backend: Backend, block: Block, weights: Weights, hidden: Array, context: Context, layer: int
) -> LayerTrace:
    """Run one layer, from the vectors that enter it to those that leave.

    block: what the layer does.
    weights: its weights by role.
    hidden: the vectors that enter it, [..., token, width].
    context: positions, what to keep and to change, callbacks.
    layer: its number, for callbacks, edits and the trace.

    Returns the trace of the layer. Its `after`, the vectors that leave the layer, has the same axes
    and is computed only when it is asked for, or at once where a callback listens to activations. A
    block without residual gives its last branch's output, whose width may differ.
    """
    # called with a site, such as "mlp_out", and its array: what the user's edits make of it
    edit = partial(_edited_array, backend, context.edits, layer)
    block_input = edit("resid_pre", hidden)
    attention = LayerAttention(backend, weights, "attn", block.attention)

    def watch(point: str, x: Array) -> Array:
        """Hand x to `context.on_activation`, where there is one, under the name of this point, such
        as "mlp"; returns x.
        """
        if context.on_activation is not None:
            context.on_activation(layer, point, x)
        return x

    def apply_norm(place: Place, x: Array) -> Array:
        """x after the norm of this place; x itself where there is none."""
        norm = block.norms.get(place)
        if norm is None:
            return x
        return normalise(
            backend, norm, watch(place, x), weights(f"{place}.weight"), weights(f"{place}.bias")
        )

    def scale_branch(branch: Array) -> Array:
        """What attention or feed-forward adds to the residual, times the block's scale."""
        if block.branch_scale == 1.0:
            return branch
        return branch * block.branch_scale

    def attention_branch(branch: Array) -> Array:
        """What attention adds to the residual, after scale and the user's edits."""
        return edit("attn_out", scale_branch(branch))

    def feed_forward_branch(branch: Array) -> Array:
        """What the feed-forward part adds to the residual, after scale and the user's edits."""
        return edit("mlp_out", scale_branch(branch))

    # the norm before attention; `stream` is what the branches are added to, in some models the
    # normed vectors
    entering = apply_norm("attn.in", block_input)
    if block.normed:
        stream = entering
    else:
        stream = block_input

    # attention, a mixer such as Mamba beside it, or a mixer instead of it
    if block.mixer is None:
        mixed = None
    else:
        mixed = _mix(LayerPart(backend, weights, "mixer"), block.mixer, entering, context, layer)
    if block.instead:
        stages, empty = _without_heads(attention, entering, context)
        if mixed is None:  # a layer of a feed-forward part alone
            mixed = backend.full(
                tuple(context.queries_of(entering).shape), 0.0, backend.dtype_of(entering)
            )
        stages["out"] = mixed
        out = mixed
    else:
        stages, empty = mix_heads(attention, entering, memory=None, context=context, layer=layer)
        _add_output(attention, stages)
        out = apply_norm("attn.out", stages["out"])
        if mixed is not None:
            out = out + mixed

    # from here on only the tokens whose output is asked for
    stream, entering, before = map(context.queries_of, (stream, entering, block_input))
    cross = None
    # the feed-forward part: beside attention, or after it (and after cross-attention, if any)
    if block.parallel and block.mlp is not None:
        mlp = block.mlp

        def run_mlp() -> Array:
            """What leaves the block's attention and feed-forward parts, [..., token, width]."""
            if "mlp.in" in block.norms:
                mlp_input = apply_norm("mlp.in", stream)
            else:
                mlp_input = entering
            output = watch("mlp", feed_forward(backend, mlp, weights, mlp_input))
            return stream + attention_branch(out) + feed_forward_branch(output)

    else:
        if block.residual:
            state = stream + attention_branch(out)
            stages["sum"] = state
        else:
            state = edit("attn_out", out)
        state = apply_norm("attn.sum", state)
        if "attn.sum" in block.norms:
            stages["norm"] = state
        if block.cross is not None:  # no edit has a site in it
            crossing = LayerAttention(backend, weights, "cross", block.cross)
            inner, inner_empty = mix_heads(
                crossing, apply_norm("cross.in", state), context.memory, context, layer
            )
            _add_output(crossing, inner)
            after = apply_norm(
                "cross.sum", state + scale_branch(apply_norm("cross.out", inner["out"]))
            )
            cross = LayerTrace(layer, inner, inner_empty, state, Later(lambda: after))
            state = after
        state = edit("resid_mid", state)

        def run_mlp() -> Array:
            """The residual stream after the feed-forward part, [..., token, width]; before it where
            the block has none."""
            if block.mlp is None:
                return state
            output = watch(
                "mlp", feed_forward(backend, block.mlp, weights, apply_norm("mlp.in", state))
            )
            return apply_norm("mlp.sum", state + feed_forward_branch(apply_norm("mlp.out", output)))

    @np.errstate(over="ignore", invalid="ignore")
    def compute_output() -> Array:
        """The output of the block, with its convolution where it has one, in the backend's data
        type."""
        output = run_mlp()
        if block.convolution is not None:
            part = LayerPart(backend, weights, "conv")
            beside = watch(
                "conv", context.queries_of(convolve(part, block.convolution, block_input))
            )
            output = part.normalise(
                block.convolution.norm, "norm", watch("conv.norm", output + beside)
            )
        # NumPy's bfloat16 is wider after a product with a plain number
        if backend.dtype in LOW_PRECISION:
            output = backend.cast(output, backend.dtype)
        return edit("resid_post", output)

    leaving = Later(compute_output)
    if context.on_activation is not None:
        leaving()
    return LayerTrace(layer, stages, empty, before, leaving, cross=cross)


def mix_heads(
    attention: LayerAttention, x: Array, memory: Array | None, context: Context, layer: int
) -> tuple[dict[str, Array], Array]:
    """Run an attention up to its heads' mixed values, before the output projection; returns its
    stages by name, and which rows see no key, booleans [..., head, query].

    x: what enters it, [..., token, width].
    memory: the encoder's output, [..., token, width], which cross-attention makes keys and values
        from; None for self-attention.
    layer: the layer's number, by which `context` has edits, interventions and kept keys.

    Raises UnsupportedError for hash attention over rows, batches, kept keys or a link that is cut.
    """
    backend = attention.backend
    spec = attention.spec
    kind: Kind = "self"
    edits = context.edits
    if memory is not None:
        kind = "cross"
        edits = {}  # edits are of the self-attention
    interventions = context.interventions.get((layer, kind), ())

    # queries, keys, values, and the rule for their scores
    parts = project(attention, x, memory, context, layer)
    rule = parts.rule
    apart = parts.rule.apart
    stages = {"hidden": x, "q": parts.q, "k": parts.k, "v": parts.v}
    if apart is not None:
        stages |= {"global_q": apart.q, "global_k": apart.k, "global_v": apart.v}
    # the terms that positions add to the scores, each as a stage of its own, [..., head, query, key]
    if "biased" in context.keep and context.rows is None:
        i = backend.arange(0, parts.q.shape[-2])[:, None]
        j = backend.arange(0, parts.k.shape[-2])[None, :]
        stages |= {name: score(i + rule.offset, j) for name, score in parts.scores.items()}

    # what the heads mix: by weights given in place of the softmax, by hashing, or by attention
    weights = held_weights(interventions)
    if weights is not None:
        mixed = mix_with_weights(backend, weights, parts.v, rule)
        empty = ~backend.any(weights > 0, -1)[..., 0]  # of [head, query, 1]
        if "weights" in context.keep:
            stages["weights"] = weights
    elif spec.hashing is not None:
        hash_trace = _hash_heads(backend, spec, parts, context, interventions)
        mixed = hash_trace.mixed
        empty = hash_trace.empty_rows
        stages |= {"k": hash_trace.keys} | {
            name: getattr(hash_trace, name)
            for name in ("masked", "weights")
            if name in context.keep
        }
    else:
        if context.on_block is None:
            on_block = ignore_block
        else:
            on_block = partial(context.on_block, layer, kind)
        q, k, v = put_projections(backend, interventions, parts.q, parts.k, parts.v)
        edited_stages = frozenset[str]()  # those that the user's edits need, kept or not
        if edits:
            from attncli.mechanism.edit import stages_to_edit

            edited_stages = stages_to_edit(edits, layer)
        square_stages, mixed, empty = compute_attention(
            backend,
            q,
            k,
            v,
            rule,
            rows=context.rows,
            keep=context.keep | edited_stages,
            on_block=on_block,
            last_queries=context.last_queries,
        )
        if edited_stages:
            mixed = _edit_weights(backend, edits, layer, square_stages, v, rule)
            for name in edited_stages - context.keep:
                square_stages.pop(name)
        stages |= square_stages

    # what is changed after it
    mixed = put_weights(backend, interventions, stages, parts.v, mixed)
    mixed = apply_interventions(backend, interventions, mixed)
    stages["mixed"] = _edited_array(backend, edits, layer, "z", mixed)
    if spec.gated:
        gate = attention.split_heads(attention.linear("gate", context.queries_of(x)), spec.heads)
        stages["gate"] = (backend.tanh(gate * 0.5) + 1.0) * 0.5  # a sigmoid that never overflows
        stages["gated"] = stages["mixed"] * stages["gate"]
    return stages, empty


def _hash_heads(
    backend: Backend,
    spec: Attention,
    parts: Projection,
    context: Context,
    interventions: Sequence[Intervention],
) -> HashTrace:
    """Run hash attention (Reformer) on the projected queries and values. Raises UnsupportedError
    for a run by blocks of rows, a batch, kept keys of earlier tokens, and a link that is cut or
    weighed.
    """
    assert spec.hashing is not None, "an attention that hashes says how"
    has_knock_out = any(isinstance(change, KnockOut | Weigh) for change in interventions)
    if context.rows is not None or parts.q.ndim > 3 or context.past is not None or has_knock_out:
        raise UnsupportedError(
            "hash attention runs a text whole",
            expected="run, heads or compare, on one short text at a time",
        )
    return hash_attention(
        backend, parts.q, parts.v, spec.hashing, mask=spec.mask, dense=bool(context.keep)
    )


def _edited_array(backend: Backend, edits: Edits, layer: int, site: Site, array: Array) -> Array:
    """What the user's edits make of the array that a layer has at this site; the array itself where
    nothing is edited."""
    if not edits:
        return array
    from attncli.mechanism.edit import apply_edits

    return apply_edits(backend, edits, layer, site, array)


def _edit_weights(
    backend: Backend, edits: Edits, layer: int, stages: dict[str, Array], v: Array, rule: Rule
) -> Array:
    """What heads mix, [..., head, query, v_dim], with their scores and attention weights edited;
    both stand in the stages from then on.

    stages: with "masked" and "weights", [..., head, query, key].
    v: [..., kv, key, v_dim].
    """
    scores = stages["masked"]
    if (layer, "scores") in edits:
        scores = _edited_array(backend, edits, layer, "scores", scores)
        stages |= {"masked": scores, "weights": weigh_scores(backend, scores, rule)}
    stages["weights"] = _edited_array(backend, edits, layer, "pattern", stages["weights"])
    return mix_with_weights(backend, stages["weights"], v, rule)


def _add_output(attention: LayerAttention, stages: dict[str, Array]) -> None:
    """Add to the stages the heads' outputs side by side, [..., token, head·v_dim], as "concat", and
    those through the output projection as "out"; without a projection the first is "out"."""
    side_by_side = join_heads(attention.backend, head_outputs(stages))
    output = linear_if_any(
        attention.backend, attention.weights, f"{attention.prefix}.o", side_by_side
    )
    if output is None:
        stages["out"] = side_by_side
    else:
        stages |= {"concat": side_by_side, "out": output}


def _mix(part: LayerPart, mixer: Mixer, x: Array, context: Context, layer: int) -> Array:
    """What a mixer (such as Mamba, in place of attention) gives for the tokens, [..., query,
    width]; its state goes on from `context.past` and is kept there.

    part: the mixer's weights. layer: the layer's number.
    """
    from attncli.mechanism.mixer import Carry, mix  # few models have one

    # states from the tokens before, where a text is run in parts
    states: tuple[Array, ...] = ()
    if context.past is not None:
        states = context.past.get((layer, "mixer"), ())
    carry = Carry(states)
    mixed = mix(part, mixer, x, carry)
    if context.past is not None:
        context.past[layer, "mixer"] = tuple(carry.after)
    if context.on_activation is not None:
        context.on_activation(layer, "mixer", mixed)
    return context.queries_of(mixed)


def _without_heads(
    attention: LayerAttention, x: Array, context: Context
) -> tuple[dict[str, Array], Array]:
    """The stages of a layer without attention: arrays with an axis of zero heads; and its empty
    rows, likewise.
    """
    backend = attention.backend
    spec = attention.spec
    count = x.shape[-2]
    queries = len(range(count)[context.asking or slice(None)])  # those that are asked for
    if context.past is None:
        keys = count
    else:  # with those of the tokens before, which were run earlier
        keys = context.length

    def stage(rows: int, width: int) -> Array:
        """A stage of no heads, [..., 0, rows, width]."""
        return backend.full((*x.shape[:-2], 0, rows, width), 0.0, backend.dtype_of(x))

    stages = {"hidden": x, "q": stage(queries, spec.head_dim), "k": stage(keys, spec.head_dim)}
    stages |= {"v": stage(keys, spec.v_dim)} | {name: stage(queries, keys) for name in context.keep}
    stages["mixed"] = stage(queries, spec.v_dim)
    # booleans [..., 0 heads, query]: the comparison is only made for their type
    return stages, stages["mixed"][..., 0] > 0


def join_heads(backend: Backend, x: Array) -> Array:
    """Put the heads' vectors, [..., head, token, dim], side by side: [..., token, head·dim]."""
    by_token = backend.permute(x, [*range(x.ndim - 3), x.ndim - 2, x.ndim - 3, x.ndim - 1])
    return by_token.reshape((*by_token.shape[:-2], by_token.shape[-2] * by_token.shape[-1]))


# What neighbouring tokens add to a layer: a convolution over the text.


def convolve(part: LayerPart, spec: Convolution, x: Array) -> Array:
    """A convolution over neighbouring tokens, act(b + Σ_k W_k·x_{t + k − half}), the same shape as
    x [..., token, width]; zeros stand beyond the text.

    The part's roles are `weight`, [out, in / groups, kernel], and `bias`. Source: He et al.,
    DeBERTa, 2021.
    """
    backend = part.backend
    matrix = part.read("weight")
    bias = part.find("bias")
    count = x.shape[-2]
    beyond = [*x.shape[:-2], spec.kernel // 2, x.shape[-1]]
    zeros = backend.full(beyond, 0.0, backend.dtype_of(x))
    wide = backend.concat([zeros, x, zeros], x.ndim - 2)
    width = x.shape[-1] // spec.groups
    groups = []
    # each group of entries is computed from the same entries of the neighbouring tokens: `wide`
    # begins kernel // 2 tokens earlier, so that step 0 reads the neighbour furthest before
    for first in range(0, x.shape[-1], width):
        group = slice(first, first + width)
        entries = wide[..., group]
        weight = matrix[group]
        total = backend.matmul(entries[..., :count, :], backend.transpose(weight[:, :, 0]))
        for step in range(1, spec.kernel):
            total = total + backend.matmul(
                entries[..., step : step + count, :], backend.transpose(weight[:, :, step])
            )
        groups.append(total)
    if len(groups) > 1:
        total = backend.concat(groups, -1)
    else:
        total = groups[0]
    return activate(backend, spec.activation, total if bias is None else total + bias)
