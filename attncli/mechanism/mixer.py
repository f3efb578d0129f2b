"""What mixes tokens without weights: convolutions over a few tokens, and states that run along the text.

Each state is one recurrence, token after token: S_t = exp(a·Δ_t)·S_{t−1} + v_t·k_tᵀ, and what leaves is S_t·q_t. A
state space has k, v and q by other names (B, Δx and C); the delta rule writes what the state does not hold of v yet.
Sources: Gu and Dao, Mamba, 2023; Dao and Gu, Transformers are SSMs, 2024; Yang et al., Gated delta networks, 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

import numpy as np

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.mechanism.context import Weights
from attncli.mechanism.feed_forward import activate, linear, normalise
from attncli.mechanism.spec import (
    Activation,
    DeltaRule,
    KimiDelta,
    LinearAttention,
    Mixer,
    Norm,
    Recurrence,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)

STRAIGHT = 20.0
"""From here on softplus is the number itself, as PyTorch has it."""


class Carry:
    """What a mixer keeps of the tokens before those that it is given: the last inputs of its convolutions and its
    state, in the order in which it asks for them.

    before: what it kept of an earlier run; nothing before the first token.
    """

    def __init__(self, before: Sequence[Array] = ()) -> None:
        self._before = iter(before)
        self.after: list[Array] = []

    def next(self) -> Array | None:
        """What was kept in this place; None before the first token."""
        return next(self._before, None)


def mix(backend: Backend, mixer: Mixer, weights: Weights, x: Array, carry: Carry) -> Array:
    """What a mixer makes of the vectors of a text, [..., token, width], the same shape; a token's depends on it and
    those before it, of which `carry` knows. Raises KeyError for a weight that is not there."""
    match mixer:
        case ShortConvolution():
            gate_in, gate_out, values = _split(linear(backend, weights, "mixer.input", x), [x.shape[-1]] * 3)
            mixed = gate_out * _convolve(backend, weights, gate_in * values, None, carry)
        case StateSpace():
            mixed = _run_state_space(backend, mixer, weights, x, carry)
        case SelectiveScan():
            mixed = _run_selective_scan(backend, mixer, weights, x, carry)
        case DeltaRule():
            mixed = _run_delta_rule(backend, mixer, weights, x, carry)
        case KimiDelta():
            mixed = _run_kimi_delta(backend, mixer, weights, x, carry)
        case LinearAttention():
            mixed = _run_linear_attention(backend, mixer, weights, x, carry)
        case _:
            assert_never(mixer)
    return linear(backend, weights, "mixer.output", backend.cast(mixed, backend.dtype_of(x)))


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
    """S_t·q_t for every token t, [..., token, head, v_dim], with S_t = exp(rate·step_t)·S_{t−1} + u_t·k_tᵀ.

    Each weight of token j in what leaves at t is q_t·k_j·exp(rate·Σ step) over the tokens after j up to t, where the
    rate is one number for a head: a lower triangle without a softmax, which may be negative.

    Args:
        rate: How fast a state fades, at most 0: [head, v_dim or 1, k_dim or 1].
        step: How far each token moves it, at least 0: [..., token, head], or [..., token, head, k_dim] for each entry.
        k: Where a token writes, [..., token, head, k_dim].
        v: What it writes, u_t, [..., token, head, v_dim].
        q: What it reads, [..., token, head, k_dim].
        strength: None, or β of the delta rule, [..., token, head]: u_t = β_t·(v_t − S k_t), S as it stands faded.
        carry: Where the state begins and is kept; None for zeros.
    """
    state = None if carry is None else carry.next()
    if state is None:
        state = backend.full((*v.shape[:-3], *v.shape[-2:], k.shape[-1]), 0.0, backend.dtype_of(v))
    outputs = []
    for token in range(v.shape[-3]):
        where = k[..., token, :, :]
        far = step[..., token, :, None, None] if step.ndim < k.ndim else step[..., token, :, None, :]
        fades = backend.exp(rate * far)
        if token:  # in its place: the state is wider than all else
            state *= fades
        else:
            state = state * fades
        added_values = v[..., token, :, :]
        if strength is not None:
            added_values = (added_values - backend.matmul(state, where[..., None])[..., 0]) * strength[
                ..., token, :, None
            ]
        state += added_values[..., None] * where[..., None, :]
        outputs.append(backend.matmul(state, q[..., token, :, :, None])[..., None, :, :, 0])
    if carry is not None:
        carry.after.append(state)
    return backend.concat(outputs, -3)


class _Recurrence(NamedTuple):
    """What `recur` takes, [..., token, head, …], beside what does not pass through it: `gate`, [..., token, width], and
    `straight`, by which a token's own values are multiplied and added, [head, 1]; None for nothing."""

    rate: Array
    step: Array
    k: Array
    v: Array
    q: Array
    strength: Array | None
    gate: Array
    straight: Array | None

    def output(self, backend: Backend, carry: Carry | None = None) -> Array:
        """What leaves it, [..., token, head, v_dim]."""
        if self.straight is None:
            return recur(backend, self.rate, self.step, self.k, self.v, self.q, self.strength, carry)
        added_values = self.v * self.step[..., None]
        return recur(backend, self.rate, self.step, self.k, added_values, self.q, None, carry) + self.v * self.straight


def has_implicit_weights(mixer: Mixer | None) -> bool:
    """Whether a mixer's heads each have one number for each pair of tokens."""
    return isinstance(mixer, Recurrence)


def implicit_weights(backend: Backend, mixer: Recurrence, weights: Weights, x: Array) -> tuple[Array, Array]:
    """The weights that a recurrence amounts to, [..., head, query, key], and its values, [..., head, key, v_dim].

    What leaves the recurrence of a head, before norm and gate, is linear in its values: O = A·V, where the column of A
    for a token is what leaves for the value 1 of that token and 0 of all others. With Γ_ij = exp(rate·Σ step) over the
    tokens after j up to i, and A_ij = 0 for j > i, a state space has A_ij = (q_i·k_j)·Γ_ij·step_j, and its straight
    part on the diagonal; lightning attention the same with steps of 1; the gated delta rule
    A = (QKᵀ ⊙ Γ)·(I + diag(β)·(KKᵀ ⊙ Γ below the diagonal))⁻¹·diag(β). Where each entry of a key fades by its own
    number, (q_i ⊙ Γ_ij)·k_j and (k_i ⊙ Γ_ij)·k_j stand for the products with Γ_ij.
    There is no softmax: a weight may be negative, and a row's sum is anything.

    Args:
        x: What enters the mixer, [..., token, width].
    Source: Dao and Gu, Transformers are SSMs, 2024; Yang et al., Gated delta networks, 2024.
    """
    match mixer:
        case StateSpace():
            parts = _state_space(backend, mixer, weights, x, Carry())
        case DeltaRule():
            parts = _delta_rule(backend, mixer, weights, x, Carry())
        case KimiDelta():
            parts = _kimi_delta(backend, mixer, weights, x, Carry())
        case LinearAttention():
            parts = _linear_attention(backend, mixer, weights, x, Carry())
        case _:
            assert_never(mixer)
    count, axes = parts.v.shape[-3], list(range(parts.v.ndim))
    unit = backend.cast(backend.array(np.eye(count)), backend.dtype_of(parts.v))[:, None, :]
    units = backend.broadcast(unit, (*parts.v.shape[:-1], count))
    axes[-3:-1] = axes[-2], axes[-3]
    return (backend.permute(parts._replace(v=units).output(backend), axes), backend.permute(parts.v, axes))


def _state_space(backend: Backend, spec: StateSpace, weights: Weights, x: Array, carry: Carry) -> _Recurrence:
    inner, group = spec.heads * spec.head_dim, spec.groups * spec.state
    whole = _widen(backend, linear(backend, weights, "mixer.input", x))
    if spec.factors is not None:
        parts = _split(whole, [inner, inner, group, group, spec.heads])
        whole = backend.concat([part * factor for part, factor in zip(parts, spec.factors, strict=True)], -1)
    gate, mixed, time = _split(whole, [inner, inner + 2 * group, spec.heads])
    mixed = _convolve(backend, weights, mixed, spec.activation, carry)
    values, k, q = _split(mixed, [inner, group, group])
    values = _by_head(values, spec.heads)
    k, q = (backend.repeat(_by_head(part, spec.groups), spec.heads // spec.groups, -2) for part in (k, q))
    time = _softplus(backend, time + _role(backend, weights, "mixer.step"))
    low, high = spec.limits
    time = backend.where(time < low, low, time)
    time = time if high is None else backend.where(time > high, high, time)
    rate = -backend.exp(_role(backend, weights, "mixer.decay"))[:, None, None]
    straight = _role(backend, weights, "mixer.straight")[:, None]
    return _Recurrence(rate, time, k, values, q, None, gate, straight)


def _run_state_space(backend: Backend, spec: StateSpace, weights: Weights, x: Array, carry: Carry) -> Array:
    parts = _state_space(backend, spec, weights, x, carry)
    gate = parts.gate
    output = parts.output(backend, carry).reshape(gate.shape)
    if spec.gate_first:
        output = output * activate(backend, "silu", gate)
    if spec.norm is not None:
        output = _norm_groups(backend, weights, spec.norm, output, spec.groups)
    return output if spec.gate_first else output * activate(backend, "silu", gate)


def _run_selective_scan(backend: Backend, spec: SelectiveScan, weights: Weights, x: Array, carry: Carry) -> Array:
    values, gate = _split(_widen(backend, linear(backend, weights, "mixer.input", x)), [spec.inner] * 2)
    values = _convolve(backend, weights, values, spec.activation, carry)
    chosen = linear(backend, weights, "mixer.select", backend.cast(values, backend.dtype_of(x)))
    parts = _split(_widen(backend, chosen), [spec.rank, spec.state, spec.state])
    if spec.norm is not None:
        parts = [
            normalise(backend, spec.norm, part, weights(f"mixer.{name}_norm.weight"), None)
            for name, part in zip(("time", "k", "q"), parts, strict=True)
        ]
    time, k, q = parts
    time = _softplus(
        backend, _widen(backend, linear(backend, weights, "mixer.time", backend.cast(time, backend.dtype_of(x))))
    )
    shape = (*values.shape, spec.state)  # every entry is a head of its own, 1 wide
    k, q = (backend.broadcast(part[..., None, :], shape) for part in (k, q))
    rate = -backend.exp(_role(backend, weights, "mixer.decay"))[:, None, :]
    output = recur(backend, rate, time, k, (values * time)[..., None], q, None, carry)[..., 0]
    output = output + values * _role(backend, weights, "mixer.straight")
    return output * activate(backend, "silu", gate)


def _delta_rule(backend: Backend, spec: DeltaRule, weights: Weights, x: Array, carry: Carry) -> _Recurrence:
    keys, inner = spec.key_heads * spec.key_dim, spec.heads * spec.v_dim
    q, k, v, gate, strength, time = (
        _widen(backend, linear(backend, weights, f"mixer.{name}", x))
        for name in ("q", "k", "v", "gate", "strength", "time")
    )
    mixed = _convolve(backend, weights, backend.concat([q, k, v], -1), spec.activation, carry)
    q, k, v = _split(mixed, [keys, keys, inner])
    q, k = (
        backend.repeat(_unit(backend, _by_head(part, spec.key_heads)), spec.heads // spec.key_heads, -2)
        for part in (q, k)
    )
    rate = -backend.exp(_role(backend, weights, "mixer.decay"))[:, None, None]
    step = _softplus(backend, time + _role(backend, weights, "mixer.step"))
    by_head = _by_head(v, spec.heads)
    return _Recurrence(rate, step, k, by_head, q * spec.key_dim**-0.5, _sigmoid(backend, strength), gate, None)


def _run_delta_rule(backend: Backend, spec: DeltaRule, weights: Weights, x: Array, carry: Carry) -> Array:
    parts = _delta_rule(backend, spec, weights, x, carry)
    output = normalise(backend, spec.norm, parts.output(backend, carry), weights("mixer.norm.weight"), None)
    return output.reshape(parts.gate.shape) * activate(backend, "silu", parts.gate)


def _kimi_delta(backend: Backend, spec: KimiDelta, weights: Weights, x: Array, carry: Carry) -> _Recurrence:
    q, k, v = (
        _by_head(
            _convolve(
                backend,
                weights,
                _widen(backend, linear(backend, weights, f"mixer.{name}", x)),
                spec.activation,
                carry,
                f"mixer.{name}_conv",
            ),
            spec.heads,
        )
        for name in "qkv"
    )
    time, gate = (
        _widen(backend, linear(backend, weights, f"mixer.{name}", linear(backend, weights, f"mixer.{name}_down", x)))
        for name in ("time", "gate")
    )
    strength = _sigmoid(backend, _widen(backend, linear(backend, weights, "mixer.strength", x)))
    rate = -backend.exp(_role(backend, weights, "mixer.decay")).reshape((spec.heads, 1, 1))
    step = _by_head(_softplus(backend, time + _role(backend, weights, "mixer.step")), spec.heads)
    q = _unit(backend, q) * spec.dim**-0.5
    return _Recurrence(rate, step, _unit(backend, k), v, q, strength, gate, None)


def _run_kimi_delta(backend: Backend, spec: KimiDelta, weights: Weights, x: Array, carry: Carry) -> Array:
    parts = _kimi_delta(backend, spec, weights, x, carry)
    output = normalise(backend, spec.norm, parts.output(backend, carry), weights("mixer.norm.weight"), None)
    return output.reshape(parts.gate.shape) * _sigmoid(backend, parts.gate)


def _linear_attention(backend: Backend, spec: LinearAttention, weights: Weights, x: Array, carry: Carry) -> _Recurrence:
    q, k, v = (
        _by_head(
            activate(backend, spec.activation, _widen(backend, linear(backend, weights, f"mixer.{name}", x))),
            spec.heads,
        )
        for name in "qkv"
    )
    gate = _widen(backend, linear(backend, weights, "mixer.gate", x))
    slopes = spec.share * 2.0 ** (-8.0 / spec.heads * np.arange(1, spec.heads + 1))
    rate = backend.cast(backend.array(-slopes[:, None, None]), backend.dtype_of(v))
    step = backend.full(tuple(v.shape[:-1]), 1.0, backend.dtype_of(v))
    return _Recurrence(rate, step, k, v, q, None, gate, None)


def _run_linear_attention(backend: Backend, spec: LinearAttention, weights: Weights, x: Array, carry: Carry) -> Array:
    parts = _linear_attention(backend, spec, weights, x, carry)
    output = parts.output(backend, carry).reshape(parts.gate.shape)
    output = normalise(backend, spec.norm, output, weights("mixer.norm.weight"), None)
    return output * _sigmoid(backend, parts.gate)


def _role(backend: Backend, weights: Weights, name: str) -> Array:
    """A role that must be there, in the type that states are computed in."""
    array = weights(name)
    if array is None:
        raise KeyError(name)
    return _widen(backend, array)


def _widen(backend: Backend, array: Array) -> Array:
    """In float32 where the run is of low precision: sums along a text are too long for it."""
    return backend.cast(array, "float32") if backend.dtype_of(array) in LOW_PRECISION else array


def _convolve(
    backend: Backend, weights: Weights, x: Array, activation: Activation | None, carry: Carry, role: str = "mixer.conv"
) -> Array:
    """Each entry's sum over its last tokens, x [..., token, width]; zeros stand before the first. The role is
    [width, 1, kernel], the last weight for the token itself."""
    matrix, bias = _role(backend, weights, f"{role}.weight"), weights(f"{role}.bias")
    count, kernel = x.shape[-2], matrix.shape[-1]
    before = carry.next()
    if before is None:
        before = backend.full((*x.shape[:-2], kernel - 1, x.shape[-1]), 0.0, backend.dtype_of(x))
    whole = backend.concat([before, x], -2)
    carry.after.append(whole[..., count:, :])
    total = whole[..., :count, :] * matrix[:, 0, 0]
    for place in range(1, kernel):
        total = total + whole[..., place : place + count, :] * matrix[:, 0, place]
    total = total if bias is None else total + bias
    return total if activation is None else activate(backend, activation, total)


def _split(x: Array, widths: Sequence[int]) -> list[Array]:
    """The last axis cut into parts of these widths."""
    parts, start = [], 0
    for width in widths:
        parts.append(x[..., start : start + width])
        start += width
    return parts


def _by_head(x: Array, heads: int) -> Array:
    """[..., token, head·dim] as [..., token, head, dim]."""
    return x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads))


def _norm_groups(backend: Backend, weights: Weights, norm: Norm, x: Array, groups: int) -> Array:
    """Each group's entries normed by themselves, with weights for all."""
    return normalise(backend, norm, _by_head(x, groups), None, None).reshape(x.shape) * _role(
        backend, weights, "mixer.norm.weight"
    )


def _unit(backend: Backend, x: Array) -> Array:
    """Vectors of length 1, but for the 10⁻⁶ that keep a zero from dividing."""
    return x / backend.sqrt(backend.sum(x * x, -1) + 1e-6)


def _softplus(backend: Backend, x: Array) -> Array:
    return backend.where(x > STRAIGHT, x, backend.log(backend.exp(backend.where(x > STRAIGHT, STRAIGHT, x)) + 1.0))


def _sigmoid(backend: Backend, x: Array) -> Array:
    return (backend.tanh(x * 0.5) + 1.0) * 0.5
