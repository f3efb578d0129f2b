"""What a block has beside attention: normalization, linear maps, the feed-forward part or experts
with a router.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.arrays.numpy_backend import by_rows
from attncli.mechanism.context import ReadWeights
from attncli.mechanism.spec import Activation, Bounded, Experts, Mlp, Norm


def deviation(norm: Norm, x: Floats) -> Floats:
    """The number by which a norm divides each vector of x, [..., width]: its standard deviation, or
    the root of its mean square, [..., 1], float64. With these held fixed a norm is an affine map.
    """
    wide = np.asarray(x, np.float64)
    if norm.kind == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    result: Floats = np.sqrt((wide * wide).mean(-1, keepdims=True) + norm.eps)
    return result


def through_norm(norm: Norm, matrix: Floats, weight: Floats | None) -> Floats:
    """Fold a norm's weight, and the mean that layer normalization subtracts, into the matrix of the
    linear map that follows, [dim, width]. Applied to what enters the norm, and divided by the
    deviation there, the result gives what the map gives after the norm, biases apart.

    matrix: W, [dim, width].
    weight: the norm's, [width]; None where it has none.
    """
    scaled = matrix
    if norm.affine and weight is not None:
        gain = weight
        if norm.unit_offset:  # stored less 1
            gain = weight + 1.0
        scaled = matrix * gain
    # to take the mean from a vector before the product is to take it from each row of the matrix
    if norm.kind == "layer":
        return scaled - scaled.mean(-1, keepdims=True)
    return scaled


# NumPy's warnings are off; within the layers `run_block` does so, but not for the norms outside
@np.errstate(over="ignore", invalid="ignore")
def normalise(
    backend: Backend, norm: Norm, x: Array, weight: Array | None, bias: Array | None
) -> Array:
    """Layer or root-mean-square normalization of x over its last axis; statistics in float32 for
    low precision.

    norm: which of the two, and its constant.
    weight, bias: what the result is multiplied by, and what is added, [width] or [head, 1, width];
        None for none.
    """
    if weight is not None and weight.ndim > 1:  # every head has weights of its own
        return _normalise_rows(backend, norm, weight, bias, x)
    # each row alone decides its result, so that threads can share the rows
    return by_rows(partial(_normalise_rows, backend, norm, weight, bias), x)


def _normalise_rows(
    backend: Backend, norm: Norm, weight: Array | None, bias: Array | None, x: Array
) -> Array:
    """Layer or root-mean-square normalization of some rows of x, [..., width], over their entries;
    statistics in float32 for low precision.

    weight, bias: what the result is multiplied by, and what is added, [width] or [head, 1, width];
        None for none.
    """
    dtype = backend.dtype_of(x)
    if dtype in LOW_PRECISION:
        wide = backend.cast(x, "float32")
    else:
        wide = x
    if not norm.affine:
        weight = None
        bias = None
    elif weight is not None and norm.unit_offset:
        weight = weight + 1.0
    # the backend's own layer norm, which takes one weight for all heads
    if norm.kind == "layer" and (weight is None or weight.ndim == 1):
        wide_dtype = backend.dtype_of(wide)
        weight, bias = (
            None if parameter is None else backend.cast(parameter, wide_dtype)
            for parameter in (weight, bias)
        )
        return backend.cast(backend.layer_norm(wide, norm.eps, weight, bias), dtype)
    # else the norm without its weight, which is then multiplied head by head
    if norm.kind == "layer":
        scaled = backend.layer_norm(wide, norm.eps, weight=None, bias=None)
    else:
        scaled = wide / backend.sqrt(backend.sum(wide * wide, -1) / x.shape[-1] + norm.eps)
    if weight is not None:
        scaled = scaled * weight
    return backend.cast(scaled if bias is None else scaled + bias, dtype)


Role = Callable[[str], Array | None]


def feed_forward(
    backend: Backend, spec: Mlp | Experts, weights: Role, x: Array, prefix: str = "mlp"
) -> Array:
    """What a feed-forward part makes of each token's vector: one network, or a mixture of experts.

    Args:
        backend: Computes.
        spec: An `Mlp` for one network, `Experts` for a mixture.
        weights: Gives a layer's weight by its role, such as "mlp.up.weight".
        x: The vectors, [..., token, width].
        prefix: What the roles of one network begin with: "mlp", or "experts" for one expert.

    Returns:
        What is added to the residual, [..., token, width].
    """
    match spec:
        case Mlp(_, activation, gated, bounds):
            up = linear(backend, weights, f"{prefix}.up", x)
            if bounds is not None:  # gate and up are cut off at a limit, as gpt-oss does
                gate = linear(backend, weights, f"{prefix}.gate", x)
                inner = _apply_bounds(backend, bounds, gate, up)
            elif gated:
                gate = linear(backend, weights, f"{prefix}.gate", x)
                inner = by_rows(partial(_multiply_gate, backend, activation), gate, up)
            else:
                inner = by_rows(partial(activate, backend, activation), up)
            return linear(backend, weights, f"{prefix}.down", inner)
        case Experts(shared=shared_part):
            output = _experts(backend, spec, weights, x)
            if shared_part is None:
                return output
            return output + _run_shared(backend, spec, shared_part, weights, x)
        case _:
            assert_never(spec)


def linear(backend: Backend, weights: Role, name: str, x: Array) -> Array:
    """x·Wᵀ + b with the roles `name`.weight ([out, in]) and `name`.bias. Raises KeyError if there
    is no such weight.
    """
    product = linear_if_any(backend, weights, name, x)
    if product is None:
        raise KeyError(f"{name}.weight")
    return product


def linear_if_any(backend: Backend, weights: Role, name: str, x: Array) -> Array | None:
    """x·Wᵀ + b with the roles `name`.weight ([out, in]) and `name`.bias; None if there is no such
    weight. Weights that are read on demand are multiplied while they are read, bias included, where
    their file allows it.
    """
    if isinstance(weights, ReadWeights):
        product = weights.product(name, x, backend)
        if product is not None:
            return product.reshape((*x.shape[:-1], product.shape[-1]))
    weight = weights(f"{name}.weight")
    bias = weights(f"{name}.bias")
    if weight is None:
        return None
    # one large product, not one for each entry of a batch
    if x.ndim > 2:
        flat = x.reshape((-1, x.shape[-1]))
    else:
        flat = x
    return backend.affine(flat, weight, bias).reshape((*x.shape[:-1], weight.shape[0]))


class LayerPart(Struct, frozen=True, eq=False):
    """A part of a layer with its weights, on a backend.

    prefix: of the part's roles, such as "attn" or "mixer".
    """

    backend: Backend
    weights: Role
    prefix: str

    def find(self, name: str) -> Array | None:
        """The tensor of the part's role, such as "q.weight" or "sinks"; None where the model has
        none.
        """
        return self.weights(f"{self.prefix}.{name}")

    def read(self, name: str) -> Array:
        """The tensor of the part's role, such as "q.weight". Raises KeyError where the model has
        none.
        """
        array = self.find(name)
        if array is None:
            raise KeyError(f"{self.prefix}.{name}")
        return array

    def linear(self, name: str, x: Array) -> Array:
        """x·Wᵀ + b with the part's roles `name`.weight and `name`.bias, [..., out]. Raises KeyError
        as `linear`.
        """
        return linear(self.backend, self.weights, f"{self.prefix}.{name}", x)

    def normalise(self, norm: Norm, name: str, x: Array) -> Array:
        """x normalised over its last axis, with the part's roles `name`.weight and `name`.bias
        where there are such.
        """
        return normalise(
            self.backend, norm, x, self.find(f"{name}.weight"), self.find(f"{name}.bias")
        )


def _experts(backend: Backend, spec: Experts, weights: Role, x: Array) -> Array:
    """The sum of what a token's best experts give, each times its share, [..., token, width].
    Source: Jiang et al., Mixtral, 2024."""
    flat = x.reshape((-1, x.shape[-1]))

    # the router: which experts, and in what shares, [token, expert]
    logits = np.asarray(backend.numpy(linear(backend, weights, "experts.router", flat)))
    correction = None  # what is added to the scores where experts are chosen, [expert]
    if spec.routing.corrected:
        stored = weights("experts.correction")
        if stored is not None:
            correction = np.asarray(backend.numpy(stored))
    shares = route(spec, logits, correction)

    # each expert that any token has chosen; some models make vectors narrower before
    part = Mlp(spec.width, spec.activation, spec.gated, spec.bounded)
    if spec.narrow is not None:
        flat = linear(backend, weights, "experts.into", flat)
    total = flat * 0.0  # zeros of its shape and type
    for expert in np.flatnonzero(shares.any(0)):
        # the default binds this turn's expert: the loop goes on before a weight may be read
        def role(name: str, expert: int = int(expert)) -> Array | None:
            """One expert's weight of this role; None where the model has none."""
            whole = weights(name)
            if whole is None:
                return None
            return whole[expert]

        share = backend.array(shares[:, expert, None])
        if spec.routing.of_input:  # as Llama 4: the share is on what the expert reads
            total = total + feed_forward(backend, part, role, flat * share, "experts")
        else:
            total = total + feed_forward(backend, part, role, flat, "experts") * share
    if spec.narrow is not None:
        total = linear(backend, weights, "experts.out", total)
    return total.reshape(tuple(x.shape))


def _apply_bounds(backend: Backend, spec: Bounded, gate: Array, up: Array) -> Array:
    """gate · sigmoid(slope · gate) · (up + 1), with the gate cut off above the limit and `up` at
    both sides, as gpt-oss does; NaN stays NaN.

    gate, up: the two projections of the feed-forward part, [..., token, inner].
    """
    gate = backend.where(gate > spec.limit, spec.limit, gate)
    up = backend.where(
        up > spec.limit, spec.limit, backend.where(up < -spec.limit, -spec.limit, up)
    )
    share = (backend.tanh(0.5 * spec.slope * gate) + 1.0) * 0.5  # a sigmoid that never overflows
    return gate * share * (up + 1.0)


def _run_shared(backend: Backend, spec: Experts, part: Mlp, weights: Role, x: Array) -> Array:
    """The output of the expert that serves every token, [..., token, width]; where the model has a
    gate for it, times the sigmoid of that gate for each token."""
    output = feed_forward(backend, part, weights, x, "shared")
    if not spec.shared_share:
        return output
    share = linear(backend, weights, "shared.share", x)
    return output * ((backend.tanh(0.5 * share) + 1.0) * 0.5)  # a sigmoid that never overflows


def _multiply_gate(backend: Backend, kind: Activation, gate: Array, up: Array) -> Array:
    """act(gate)·up, entrywise, as a new array."""
    inner = activate(backend, kind, gate)
    inner *= up
    return inner


def activate(backend: Backend, kind: Activation, x: Array) -> Array:
    """The activation function, entrywise, as a new array. Source for gelu: Hendrycks and Gimpel,
    2016.

    Works in one array besides x: these are the widest vectors of a model.
    """
    at_once = backend.activation(kind, x)
    if at_once is not None:
        return at_once
    match kind:
        case "gelu":
            result = backend.erf(x * 0.5**0.5)
        case "gelu_tanh":  # tanh(√(2/π)·(x + 0.044715·x³)), the usual approximation of erf
            result = x * 0.044715
            result *= x
            result *= x
            result += x
            result *= (2 / np.pi) ** 0.5
            result = backend.tanh(result)
        case "gelu_bloom":  # the same with √(2/π) as BLOOM rounds it
            result = x * 0.044715
            result *= x
            result += 1.0
            result *= x * 0.79788456
            result = backend.tanh(result)
        case "relu":
            return backend.where(x < 0, 0.0, x)  # NaN stays NaN
        case "relu2":
            result = backend.where(x < 0, 0.0, x)
            result *= result
            return result
        case "tanh":
            return backend.tanh(x)
        case "silu":
            result = backend.tanh(x * 0.5)  # x·sigmoid(x), which never overflows this way
        case "quick_gelu":  # x·sigmoid(1.702·x)
            result = backend.tanh(x * (1.702 * 0.5))
        case _:
            assert_never(kind)
    # x · (1 + result) / 2; halved before the product, as 2x may leave the range of its type
    result += 1.0
    result *= 0.5
    result *= x
    return result


# Routing: which experts serve a token, and in what shares.

Floats = np.ndarray[Any, Any]


def route(spec: Experts, logits: Floats, correction: Floats | None = None) -> Floats:
    """The weight of each expert in each token's sum, [token, expert], 0 for experts not chosen.

    logits: what the router gives, [token, expert].
    correction: what is added to the shares where the best are sought, [expert]; None for nothing.

    Of equal experts the first are chosen. Sources: Shazeer et al., 2017; DeepSeek-AI, DeepSeek-V3,
    2024 for groups and corrections.
    """
    match spec.routing.score:
        case "softmax":
            shares = np.exp(logits - logits.max(-1, keepdims=True))
            shares = shares / shares.sum(-1, keepdims=True)
        case "sigmoid":
            shares = (np.tanh(0.5 * logits) + 1.0) * 0.5
        case _:
            assert_never(spec.routing.score)
    # the correction helps to choose the experts, and does not change their shares
    worth = shares
    if correction is not None:
        worth = shares + correction
    worth = _scores_in_best_groups(spec, worth)
    best = np.argsort(-worth, -1, kind="stable")[:, : spec.chosen]
    token_shares = np.zeros_like(shares)
    np.put_along_axis(token_shares, best, np.take_along_axis(shares, best, -1), -1)
    if spec.renormalise:  # to a sum of 1, but for the slack that some models add to the sum
        token_shares = token_shares / (token_shares.sum(-1, keepdims=True) + spec.routing.slack)
    return token_shares * spec.routing.factor


def _scores_in_best_groups(spec: Experts, worth: Floats) -> Floats:
    """The experts' scores, [token, expert], −∞ for those outside a token's best groups of experts.

    worth: the scores of all, [token, expert]; a group's is the sum of its highest few.
    """
    routing = spec.routing
    if routing.groups == 1:
        return worth
    by_group = worth.reshape((len(worth), routing.groups, -1))  # [token, group, expert]
    group_scores = np.sort(by_group, -1)[..., -routing.group_by :].sum(-1)
    best = np.argsort(-group_scores, -1, kind="stable")[:, : routing.groups_chosen]
    is_best = np.zeros(group_scores.shape, bool)
    np.put_along_axis(is_best, best, True, -1)
    return np.where(is_best[..., None], by_group, -np.inf).reshape(worth.shape)
