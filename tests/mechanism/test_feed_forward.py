"""Feed-forward parts: activations by themselves at the ends of each type's range, mixtures of
experts against loops.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import oracles_layers
import pytest
from comparing import LIBRARIES

from attncli.arrays.backend import choose
from attncli.mechanism.feed_forward import activate, feed_forward, route
from attncli.mechanism.spec import Activation, Bounded, Experts, Mlp, Routing

KINDS = get_args(Activation)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_argument_stays_as_it_was(kind: Activation, library: str) -> None:
    backend = choose(library, device=None, dtype="float64")
    values = np.linspace(-7, 7, 31)
    x = backend.array(values.copy())
    assert not np.array_equal(backend.numpy(activate(backend, kind, x)), values)
    assert np.array_equal(backend.numpy(x), values)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_near_the_end_of_its_range_is_itself_and_nan_is_told(
    kind: Activation, dtype: str, library: str
) -> None:
    backend = choose(library, device=None, dtype=dtype)
    largest = float(np.finfo(dtype).max)
    if (kind, dtype, library) == ("gelu", "float32", "torch"):
        largest /= 2  # torch's own step doubles the number first
    with np.errstate(over="ignore", invalid="ignore"):
        found = backend.numpy(
            activate(
                backend,
                kind,
                backend.array(np.asarray([largest, 0.75 * largest, -largest, np.nan])),
            )
        )
    near = [largest, float(np.asarray(0.75 * largest, dtype))]
    ends = {"relu2": [np.inf, np.inf, 0.0], "tanh": [1.0, 1.0, -1.0]}
    assert found[:3].tolist() == ends.get(kind, [*near, 0.0])
    assert np.isnan(found[3])


TOKENS, WIDTH, COUNT, INNER, COMMON = 7, 5, 6, 11, 3


def roles(*, share: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    shapes = {
        "experts.router": (COUNT, WIDTH),
        "experts.up": (COUNT, INNER, WIDTH),
        "experts.gate": (COUNT, INNER, WIDTH),
        "experts.down": (COUNT, WIDTH, INNER),
        "shared.up": (COMMON, WIDTH),
        "shared.gate": (COMMON, WIDTH),
        "shared.down": (WIDTH, COMMON),
    } | ({"shared.share": (1, WIDTH)} if share else {})
    return {f"{name}.weight": random.standard_normal(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize(("shared", "share"), [(False, False), (True, False), (True, True)])
def test_experts(shared: bool, share: bool, renormalise: bool, library: str) -> None:
    backend = choose(library, device=None, dtype="float64")
    weights = roles(share=share)
    part = Mlp(COMMON, "gelu", gated=True) if shared else None
    spec = Experts(COUNT, 2, INNER, "silu", renormalise, shared=part, shared_share=share)
    x = np.random.default_rng(4).standard_normal((TOKENS, WIDTH))
    found = backend.numpy(
        feed_forward(
            backend,
            spec,
            lambda name: backend.array_as_is(weights[name]) if name in weights else None,
            backend.array(x),
        )
    )
    for row, ours in zip(x.tolist(), found, strict=True):
        wanted = oracles_layers.experts(weights, row, "silu", 2, renormalise)
        if shared:
            common = oracles_layers.feed_forward(weights, row, "gelu", True, "shared")
            (logit,) = oracles_layers.linear(weights, "shared.share", row) if share else (np.inf,)
            wanted = [a + b / (1 + np.exp(-logit)) for a, b in zip(wanted, common, strict=True)]
        assert np.allclose(ours, wanted, rtol=1e-10, atol=1e-12)


def test_experts_of_groups_with_corrections() -> None:
    random = np.random.default_rng(7)
    logits, correction = random.standard_normal((40, 12)), random.standard_normal(12)
    routing = Routing("sigmoid", 1.7, groups=4, groups_chosen=2, group_by=2, corrected=True)
    spec = Experts(12, 3, INNER, "silu", True, routing=routing)
    found = route(spec, logits, correction)
    for row, ours in zip(logits.tolist(), found, strict=True):
        wanted = oracles_layers.grouped_shares(row, correction.tolist(), 3, 4, 2, 2)
        assert np.allclose(ours, 1.7 * np.array(wanted), rtol=1e-12)
    assert not np.allclose(found, route(spec, logits, 0 * correction))
    assert not np.allclose(
        found,
        route(
            Experts(12, 3, INNER, "silu", True, routing=Routing("sigmoid", 1.7)), logits, correction
        ),
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_shares_of_what_an_expert_reads(library: str) -> None:
    backend = choose(library, device=None, dtype="float64")
    weights = roles(share=False)
    spec = Experts(COUNT, 1, INNER, "silu", False, routing=Routing("sigmoid", of_input=True))
    x = np.random.default_rng(4).standard_normal((TOKENS, WIDTH))
    found = backend.numpy(
        feed_forward(
            backend,
            spec,
            lambda name: backend.array_as_is(weights[name]) if name in weights else None,
            backend.array(x),
        )
    )
    for row, ours in zip(x.tolist(), found, strict=True):
        scores = oracles_layers.linear(weights, "experts.router", row)
        best = scores.index(max(scores))
        read = [value / (1 + np.exp(-scores[best])) for value in row]
        assert np.allclose(
            ours,
            oracles_layers.feed_forward(
                oracles_layers.one_expert(weights, best), read, "silu", True, "one"
            ),
            rtol=1e-10,
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_gate_with_bounds(library: str) -> None:
    backend = choose(library, device=None, dtype="float64")
    random = np.random.default_rng(8)
    shapes = {"mlp.up": (INNER, WIDTH), "mlp.gate": (INNER, WIDTH), "mlp.down": (WIDTH, INNER)}
    weights = {f"{name}.weight": random.standard_normal(shape) for name, shape in shapes.items()}
    x = random.standard_normal((TOKENS, WIDTH))
    spec = Mlp(INNER, "silu", gated=True, bounded=Bounded(0.9, 1.3))
    found = backend.numpy(
        feed_forward(
            backend,
            spec,
            lambda name: backend.array_as_is(weights[name]) if name in weights else None,
            backend.array(x),
        )
    )
    wanted = [oracles_layers.bounded(weights, row, 0.9, 1.3) for row in x.tolist()]
    assert np.allclose(found, wanted, rtol=1e-10, atol=1e-12)
    loose = [oracles_layers.bounded(weights, row, 90.0, 1.3) for row in x.tolist()]
    assert not np.allclose(found, loose)
