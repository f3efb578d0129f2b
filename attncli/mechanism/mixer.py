"""What mixes tokens without weights: convolutions over a few tokens, and states that run along the
text.

Each state is one recurrence, token after token: S_t = exp(a·Δ_t)·S_{t−1} + v_t·k_tᵀ, and what
leaves is S_t·q_t. A state space has k, v and q by other names (B, Δx and C); the delta rule writes
what the state does not hold of v yet. Sources: Gu and Dao, Mamba, 2023; Dao and Gu, Transformers
are SSMs, 2024; Yang et al., Gated delta networks, 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

import numpy as np

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.mechanism.context import Weights
from attncli.mechanism.feed_forward import LayerPart, activate, normalise
from attncli.mechanism.spec import (
    Activation,
    DeltaRule,
    KimiDelta,
    LinearAttention,
    Mixer,
    Recurrence,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)

SOFTPLUS_LINEAR_FROM = 20.0
"""From here on softplus is the number itself, as PyTorch has it."""


class Carry:
    """The state that a mixer (such as Mamba) carries from earlier tokens to the next run:
    convolution inputs and recurrent state, in the order in which it uses them.

    before: what an earlier run left in `after`; empty before the first token.
    after: what this run leaves for the next one.
    """

    def __init__(self, before: Sequence[Array] = ()) -> None:
        self._before = iter(before)  # `next` takes one array after the other
        self.after: list[Array] = []  # what this run leaves for the next, in the same order

    def next(self) -> Array | None:
        """The next array kept by the earlier run, in order; None where there was no earlier run."""
        return next(self._before, None)


def mix(part: LayerPart, mixer: Mixer, x: Array, carry: Carry) -> Array:
    """What a mixer gives for a text's vectors, [..., token, width], same shape; each token depends
    on itself and earlier ones, those before the text through `carry`, which is updated. Raises
    KeyError for a missing weight.

    part: the mixer's weights, on a backend.
    """
    backend = part.backend
    match mixer:
        case ShortConvolution():
            gate_in, gate_out, values = _split(part.linear("input", x), [x.shape[-1]] * 3)
            mixed = gate_out * _convolve(part, gate_in * values, activation=None, carry=carry)
        case SelectiveScan():
            mixed = _run_selective_scan(part, mixer, x, carry)
        case StateSpace() | DeltaRule() | KimiDelta() | LinearAttention():
            recurrence = _recurrence(part, mixer, x, carry)
            mixed = _norm_and_gate(part, mixer, recurrence.output(backend, carry), recurrence.gate)
        case _:
            assert_never(mixer)
    return part.linear("output", backend.cast(mixed, backend.dtype_of(x)))


def recur(
    backend: Backend,
    rate: Array,
    step: Array,
    k: Array,
    v: Array,
    q: Array,
    strength: Array | None = None,
    carry: Carry | None = None,
) -> Array:
    """S_t·q_t for every token t, [..., token, head, v_dim], with S_t = exp(rate·step_t)·S_{t−1} +
    u_t·k_tᵀ.

    Each weight of token j in what leaves at t is q_t·k_j·exp(rate·Σ step) over the tokens after j
    up to t, where the rate is one number for a head: a lower triangle without a softmax, which may
    be negative.

    Args:
        rate: How fast a state fades, at most 0: [head, v_dim or 1, k_dim or 1].
        step: How far each token moves it, at least 0: [..., token, head], or [..., token, head,
            k_dim] for each entry.
        k: Where a token writes, [..., token, head, k_dim].
        v: What it writes, u_t, [..., token, head, v_dim].
        q: What it reads, [..., token, head, k_dim].
        strength: None, or β of the delta rule, [..., token, head]: u_t = β_t·(v_t − S k_t), S as it
            stands faded.
        carry: Where the state begins and is kept; None for zeros.
    """
    if carry is None:
        state = None
    else:
        state = carry.next()
    if state is None:
        state = backend.full((*v.shape[:-3], *v.shape[-2:], k.shape[-1]), 0.0, backend.dtype_of(v))
    outputs = []
    for token in range(v.shape[-3]):
        # the state fades, by one number for a head or one for each entry of its keys
        if step.ndim < k.ndim:
            token_step = step[..., token, :, None, None]
        else:
            token_step = step[..., token, :, None, :]
        fades = backend.exp(rate * token_step)
        if token:  # in place, as the state is the largest array; the first one is the caller's
            state *= fades
        else:
            state = state * fades

        # the token writes: its value, or by the delta rule what the state does not hold of it yet
        key = k[..., token, :, :]
        added_values = v[..., token, :, :]
        if strength is not None:
            stored_values = backend.matmul(state, key[..., None])[..., 0]
            added_values = (added_values - stored_values) * strength[..., token, :, None]
        state += added_values[..., None] * key[..., None, :]

        # and reads, [..., head, v_dim, 1], kept as one token of [..., token, head, v_dim]
        outputs.append(backend.matmul(state, q[..., token, :, :, None])[..., None, :, :, 0])
    if carry is not None:
        carry.after.append(state)
    return backend.concat(outputs, -3)


class _Recurrence(NamedTuple):
    """The arguments of `recur`, [..., token, head, …], and what bypasses it: `gate`, [..., token,
    width], and `straight`, the factor of a token's own values added to its output, [head, 1], or
    None."""

    rate: Array
    step: Array
    k: Array
    v: Array
    q: Array
    strength: Array | None
    gate: Array
    straight: Array | None

    def output(self, backend: Backend, carry: Carry | None = None) -> Array:
        """Run the recurrence; returns its output before norm and gate, [..., token, head, v_dim].

        carry: where the state begins and is kept; None for zeros.
        """
        if self.straight is None:
            return recur(
                backend, self.rate, self.step, self.k, self.v, self.q, self.strength, carry
            )
        # a state space writes values times their steps, and adds a share of each value itself
        added_values = self.v * self.step[..., None]
        output = recur(
            backend, self.rate, self.step, self.k, added_values, self.q, strength=None, carry=carry
        )
        return output + self.v * self.straight


def has_implicit_weights(mixer: Mixer | None) -> bool:
    """Whether the mixer is a recurrence that amounts to one weight for each head and pair of
    tokens, as attention has; False for None."""
    return isinstance(mixer, Recurrence)


def implicit_weights(
    backend: Backend, mixer: Recurrence, weights: Weights, x: Array
) -> tuple[Array, Array]:
    """The weights that a recurrence amounts to, [..., head, query, key], and its values, [...,
    head, key, v_dim].

    What leaves the recurrence of a head, before norm and gate, is linear in its values: O = A·V,
    where the column of A for a token is what leaves for the value 1 of that token and 0 of all
    others. With Γ_ij = exp(rate·Σ step) over the tokens after j up to i, and A_ij = 0 for j > i:

    - a state space: A_ij = (q_i·k_j)·Γ_ij·step_j, and the skip connection D on the diagonal;
    - lightning attention: the same with steps of 1;
    - the gated delta rule: A = (QKᵀ ⊙ Γ)·(I + diag(β)·(KKᵀ ⊙ Γ below the diagonal))⁻¹·diag(β);
    - a decay for each channel (GLA, KDA): (q_i ⊙ Γ_ij)·k_j and (k_i ⊙ Γ_ij)·k_j in place of the
      products with Γ_ij.

    There is no softmax: a weight may be negative, and a row's sum is anything.

    Args:
        x: What enters the mixer, [..., token, width].
    Source: Dao and Gu, Transformers are SSMs, 2024; Yang et al., Gated delta networks, 2024.
    """
    parts = _recurrence(LayerPart(backend, weights, "mixer"), mixer, x, Carry())
    count = parts.v.shape[-3]
    # the recurrence with the identity as its values: what comes out is A
    unit = backend.cast(backend.array(np.eye(count)), backend.dtype_of(parts.v))[:, None, :]
    units = backend.broadcast(unit, (*parts.v.shape[:-1], count))
    matrix = parts._replace(v=units).output(backend)
    # from [..., token, head, n] to [..., head, token, n]
    axes = list(range(parts.v.ndim))
    axes[-3:-1] = [axes[-2], axes[-3]]
    return backend.permute(matrix, axes), backend.permute(parts.v, axes)


def _recurrence(part: LayerPart, mixer: Recurrence, x: Array, carry: Carry) -> _Recurrence:
    """The inputs of a mixer's recurrence for the vectors x, [..., token, width].

    carry: what the convolution before it kept of earlier tokens, and keeps for the next run.
    """
    match mixer:
        case StateSpace():
            return _state_space(part, mixer, x, carry)
        case DeltaRule():
            return _delta_rule(part, mixer, x, carry)
        case KimiDelta():
            return _kimi_delta(part, mixer, x, carry)
        case LinearAttention():
            return _linear_attention(part, mixer, x, carry)
        case _:
            assert_never(mixer)


def _norm_and_gate(part: LayerPart, mixer: Recurrence, output: Array, gate: Array) -> Array:
    """The output of a recurrence, [..., token, head, v_dim], normed and multiplied by its gate:
    [..., token, width].
    """
    backend = part.backend
    match mixer:
        case StateSpace(gate_first=True):
            output = output.reshape(gate.shape) * activate(backend, "silu", gate)
            return _norm_groups(part, mixer, output)
        case StateSpace():
            return _norm_groups(part, mixer, output.reshape(gate.shape)) * activate(
                backend, "silu", gate
            )
        case DeltaRule():
            return part.normalise(mixer.norm, "norm", output).reshape(gate.shape) * activate(
                backend, "silu", gate
            )
        case KimiDelta():
            return part.normalise(mixer.norm, "norm", output).reshape(gate.shape) * _sigmoid(
                backend, gate
            )
        case LinearAttention():
            return part.normalise(mixer.norm, "norm", output.reshape(gate.shape)) * _sigmoid(
                backend, gate
            )
        case _:
            assert_never(mixer)


def _state_space(part: LayerPart, spec: StateSpace, x: Array, carry: Carry) -> _Recurrence:
    """The inputs of Mamba 2's recurrence for the vectors x, [..., token, width]: B, Δx and C of the
    paper are k, v and q.

    carry: what the convolution kept of earlier tokens, and keeps for the next run.
    """
    backend = part.backend
    inner = spec.heads * spec.head_dim
    group = spec.groups * spec.state
    whole = _wide_linear(part, "input", x)
    if spec.factors is not None:  # Falcon-H1's, on the gate, the values, k, q and the time steps
        pieces = _split(whole, [inner, inner, group, group, spec.heads])
        whole = backend.concat(
            [piece * factor for piece, factor in zip(pieces, spec.factors, strict=True)], -1
        )
    # values, k and q pass the convolution together
    gate, joined, time = _split(whole, [inner, inner + 2 * group, spec.heads])
    values, k, q = _split(_convolve(part, joined, spec.activation, carry), [inner, group, group])
    k, q = (
        backend.repeat(_by_head(array, spec.groups), spec.heads // spec.groups, -2)
        for array in (k, q)
    )
    # the step of each token and head, Δ, within the model's bounds
    step = _softplus(backend, time + _wide_weight(part, "step"))
    low, high = spec.limits
    step = backend.where(step < low, low, step)
    if high is not None:
        step = backend.where(step > high, high, step)
    rate = -backend.exp(_wide_weight(part, "decay"))[:, None, None]
    straight = _wide_weight(part, "straight")[:, None]
    values = _by_head(values, spec.heads)
    return _Recurrence(rate, step, k, values, q, strength=None, gate=gate, straight=straight)


def _run_selective_scan(part: LayerPart, spec: SelectiveScan, x: Array, carry: Carry) -> Array:
    """Mamba's output, [..., token, inner], for the vectors x, [..., token, width], multiplied by its
    gate. The paper's Δ, B and C are called step, k and q; Δ is made from narrow vectors, `time`.

    carry: the convolution's inputs and the state of earlier tokens, updated for the next run.
    """
    backend = part.backend
    dtype = part.backend.dtype_of(x)
    values, gate = _split(_wide_linear(part, "input", x), [spec.inner] * 2)
    values = _convolve(part, values, spec.activation, carry)
    time, k, q = _split(
        _wide_linear(part, "select", backend.cast(values, dtype)),
        [spec.rank, spec.state, spec.state],
    )
    if spec.norm is not None:
        time, k, q = (
            normalise(backend, spec.norm, array, part.find(f"{name}_norm.weight"), bias=None)
            for name, array in (("time", time), ("k", k), ("q", q))
        )
    step = _softplus(backend, _wide_linear(part, "time", backend.cast(time, dtype)))
    shape = (*values.shape, spec.state)  # every entry is a head of its own, 1 wide
    k, q = (backend.broadcast(array[..., None, :], shape) for array in (k, q))
    rate = -backend.exp(_wide_weight(part, "decay"))[:, None, :]  # [inner, 1, state]
    added_values = (values * step)[..., None]
    output = recur(backend, rate, step, k, added_values, q, strength=None, carry=carry)[..., 0]
    return (output + values * _wide_weight(part, "straight")) * activate(backend, "silu", gate)


def _delta_rule(part: LayerPart, spec: DeltaRule, x: Array, carry: Carry) -> _Recurrence:
    """The inputs of the recurrence of the gated delta rule for the vectors x, [..., token, width];
    keys have length 1, queries 1/√key_dim.

    carry: what the convolution kept of earlier tokens, and keeps for the next run.
    """
    backend = part.backend
    keys = spec.key_heads * spec.key_dim
    group = spec.heads // spec.key_heads
    q, k, v, gate, strength, time = (
        _wide_linear(part, name, x) for name in ("q", "k", "v", "gate", "strength", "time")
    )
    mixed = _convolve(part, backend.concat([q, k, v], -1), spec.activation, carry)
    q, k, v = _split(mixed, [keys, keys, spec.heads * spec.v_dim])
    q, k = (
        backend.repeat(_unit_vectors(backend, _by_head(array, spec.key_heads)), group, -2)
        for array in (q, k)
    )
    # the rate at which a head's state fades, [head, 1, 1]; the step of each token and head
    rate = -backend.exp(_wide_weight(part, "decay"))[:, None, None]
    step = _softplus(backend, time + _wide_weight(part, "step"))
    values = _by_head(v, spec.heads)
    strength = _sigmoid(backend, strength)
    q = q * spec.key_dim**-0.5
    return _Recurrence(rate, step, k, values, q, strength, gate, straight=None)


def _kimi_delta(part: LayerPart, spec: KimiDelta, x: Array, carry: Carry) -> _Recurrence:
    """The inputs of the recurrence of Kimi's gated delta rule, which has a decay rate for each
    entry of a key, for the vectors x, [..., token, width].

    carry: what the convolutions kept of earlier tokens, and keep for the next run.
    """
    backend = part.backend
    mixed = [
        _convolve(part, _wide_linear(part, name, x), spec.activation, carry, f"{name}_conv")
        for name in "qkv"
    ]
    q, k, v = (_by_head(array, spec.heads) for array in mixed)
    time, gate = (
        _wide_linear(part, name, part.linear(f"{name}_down", x)) for name in ("time", "gate")
    )
    strength = _sigmoid(backend, _wide_linear(part, "strength", x))
    # the rate at which a head's state fades, [head, 1, 1], and a step for each entry of a key,
    # [..., token, head, dim]
    rate = -backend.exp(_wide_weight(part, "decay")).reshape((spec.heads, 1, 1))
    step = _by_head(_softplus(backend, time + _wide_weight(part, "step")), spec.heads)
    k = _unit_vectors(backend, k)
    q = _unit_vectors(backend, q) * spec.dim**-0.5
    return _Recurrence(rate, step, k, v, q, strength, gate, straight=None)


def _linear_attention(
    part: LayerPart, spec: LinearAttention, x: Array, carry: Carry
) -> _Recurrence:
    """The inputs of lightning attention's recurrence, whose states decay by fixed numbers, for the
    vectors x, [..., token, width].

    carry: not used, as there is no convolution before the recurrence.
    """
    del carry
    backend = part.backend
    active = (activate(backend, spec.activation, _wide_linear(part, name, x)) for name in "qkv")
    q, k, v = (_by_head(array, spec.heads) for array in active)
    gate = _wide_linear(part, "gate", x)
    # rates as ALiBi's slopes, [head, 1, 1], times the layer's share; every step is 1
    slopes = spec.share * 2.0 ** (-8.0 / spec.heads * np.arange(1, spec.heads + 1))
    rate = backend.cast(backend.array(-slopes[:, None, None]), backend.dtype_of(v))
    step = backend.full(tuple(v.shape[:-1]), 1.0, backend.dtype_of(v))
    return _Recurrence(rate, step, k, v, q, strength=None, gate=gate, straight=None)


def _wide_weight(part: LayerPart, name: str) -> Array:
    """A role's weight in at least float32, the type of the states. Raises KeyError where the model
    has none.
    """
    return _widen(part.backend, part.read(name))


def _wide_linear(part: LayerPart, name: str, x: Array) -> Array:
    """x·Wᵀ + b of a role, [..., out], in at least float32, the type of the states."""
    return _widen(part.backend, part.linear(name, x))


def _widen(backend: Backend, array: Array) -> Array:
    """The array in float32 where the run is in lower precision, since sums along a text lose too
    much; else itself.
    """
    if backend.dtype_of(array) in LOW_PRECISION:
        return backend.cast(array, "float32")
    return array


def _convolve(
    part: LayerPart, x: Array, activation: Activation | None, carry: Carry, role: str = "conv"
) -> Array:
    """A causal convolution of each entry of x, [..., token, width], over the last tokens, then the
    activation, if any; same shape.

    carry: gives the tokens before the first, where an earlier run left some (else zeros), and takes
        the last ones for the next run.
    role: of the weight, [width, 1, kernel], whose last number is for the token itself, and the
        bias.
    """
    backend = part.backend
    matrix = _wide_weight(part, f"{role}.weight")
    bias = part.find(f"{role}.bias")
    count = x.shape[-2]
    kernel = matrix.shape[-1]
    before = carry.next()
    if before is None:
        before = backend.full((*x.shape[:-2], kernel - 1, x.shape[-1]), 0.0, backend.dtype_of(x))
    whole = backend.concat([before, x], -2)  # kernel − 1 tokens before the text, and its own
    carry.after.append(whole[..., count:, :])
    total = whole[..., :count, :] * matrix[:, 0, 0]
    for place in range(1, kernel):
        total = total + whole[..., place : place + count, :] * matrix[:, 0, place]
    if bias is not None:
        total = total + bias
    if activation is None:
        return total
    return activate(backend, activation, total)


def _split(x: Array, widths: Sequence[int]) -> list[Array]:
    """The last axis cut into parts of these widths."""
    parts = []
    start = 0
    for width in widths:
        parts.append(x[..., start : start + width])
        start += width
    return parts


def _by_head(x: Array, heads: int) -> Array:
    """Split the last axis into heads: [..., token, head·dim] to [..., token, head, dim]."""
    return x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads))


def _norm_groups(part: LayerPart, spec: StateSpace, x: Array) -> Array:
    """x, [..., token, width], with each group of entries normed by itself, then times the norm's
    weight; x itself where the mixer has no norm."""
    if spec.norm is None:
        return x
    groups = _by_head(x, spec.groups)
    normed = normalise(part.backend, spec.norm, groups, weight=None, bias=None)
    return normed.reshape(x.shape) * _wide_weight(part, "norm.weight")


def _unit_vectors(backend: Backend, x: Array) -> Array:
    """The vectors of x, [..., dim], scaled to length 1; 10⁻⁶ under the root keeps a vector of zeros
    from dividing by 0."""
    return x / backend.sqrt(backend.sum(x * x, -1) + 1e-6)


def _softplus(backend: Backend, x: Array) -> Array:
    """ln(1 + exp x), entrywise; x itself where it is large, so that exp does not overflow."""
    is_large = x > SOFTPLUS_LINEAR_FROM
    bounded = backend.where(is_large, SOFTPLUS_LINEAR_FROM, x)
    return backend.where(is_large, x, backend.log(backend.exp(bounded) + 1.0))


def _sigmoid(backend: Backend, x: Array) -> Array:
    """1 / (1 + exp −x), entrywise, by tanh, which never overflows."""
    return (backend.tanh(x * 0.5) + 1.0) * 0.5
