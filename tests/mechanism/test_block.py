"""A layer against loops: places of norms, residuals, parallel and gated parts, cross-attention,
grouped heads.
"""

from __future__ import annotations

import numpy as np
import oracles
import oracles_layers
import pytest
from comparing import LIBRARIES, on, plain
from msgspec.structs import replace

from attncli.arrays.backend import backend_of
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context
from attncli.mechanism.mask import Causal, Window
from attncli.mechanism.spec import Alibi, Attention, Block, Mlp, Norm, RelativeBuckets

TOKENS, WIDTH, HEADS, KV, DIM, V_DIM, INNER = 7, 11, 6, 3, 5, 2, 13
ATTENTION = Attention(HEADS, KV, DIM, V_DIM, scale=0.4, mask=Causal(), softcap=3.0)
LAYER, RMS, GEMMA = Norm("layer", 1e-5), Norm("rms", 1e-6), Norm("rms", 1e-6, unit_offset=True)
BARE = Norm("layer", 1e-2, affine=False)


def weights(seed: int = 0, *, gated: bool = False, bias: bool = True) -> dict[str, np.ndarray]:
    """Every role a layer may have, large enough that each one matters."""
    random = np.random.default_rng(seed)
    shapes = {"mlp.up": (INNER, WIDTH), "mlp.down": (WIDTH, INNER)} | (
        {"mlp.gate": (INNER, WIDTH)} if gated else {}
    )
    for prefix in ("attn", "cross"):
        shapes |= {
            f"{prefix}.q": (HEADS * DIM, WIDTH), f"{prefix}.k": (KV * DIM, WIDTH),
            f"{prefix}.v": (KV * V_DIM, WIDTH), f"{prefix}.o": (WIDTH, HEADS * V_DIM),
        }  # fmt: skip
    found = {}
    for name, shape in shapes.items():
        found[f"{name}.weight"] = random.standard_normal(shape) * 0.4
        if bias:
            found[f"{name}.bias"] = random.standard_normal(shape[0]) * 0.4
    for place in (
        "attn.in",
        "attn.out",
        "attn.sum",
        "cross.in",
        "cross.sum",
        "mlp.in",
        "mlp.out",
        "mlp.sum",
    ):
        found[f"{place}.weight"] = 1 + random.standard_normal(WIDTH) * 0.4
        found[f"{place}.bias"] = random.standard_normal(WIDTH) * 0.4
    return found


def reader(backend, roles):
    return lambda role: backend.array_as_is(roles[role]) if role in roles else None


def layer(library, block, roles, hidden, *, memory=None, rows=None):
    here = on(library, hidden)
    backend = backend_of(here)
    context = Context(
        np.arange(len(hidden)),
        len(hidden),
        memory=None if memory is None else on(library, memory),
        rows=rows,
    )
    return run_block(backend, block, reader(backend, roles), here, context, 0)


def loop(block, roles, hidden, *, memory=None, sees=oracles.causal):
    """What leaves the layer, as loops, and its attention's stages."""
    roles = {name: array.tolist() for name, array in roles.items()}
    rows = hidden.tolist()

    def normed(place, x):
        norm = block.norms.get(place)
        if norm is None:
            return x
        weight, bias = (
            (roles[f"{place}.weight"], roles[f"{place}.bias"])
            if norm.affine
            else (None, [0.0] * WIDTH)
        )
        if norm.kind == "layer":
            return [oracles_layers.layer_norm(row, norm.eps, weight, bias) for row in x]
        return [
            [
                a + b
                for a, b in zip(
                    oracles_layers.rms_norm(row, norm.eps, weight, norm.unit_offset),
                    bias,
                    strict=True,
                )
            ]
            for row in x
        ]

    def fed(x):
        return [
            oracles_layers.feed_forward(roles, row, block.mlp.activation, block.mlp.gated)
            for row in x
        ]

    spec = block.attention
    entering = normed("attn.in", rows)
    clip = np.inf if spec.clip is None else spec.clip
    stages = oracles_layers.multi_head(
        entering, roles, HEADS, KV, scale=spec.scale, softcap=spec.softcap, sees=sees, clip=clip
    )
    out = normed("attn.out", stages["out"])

    def plus(a, b):
        return oracles_layers.plus(a, [[value * block.branch_scale for value in row] for row in b])

    if block.parallel:
        return stages, plus(
            plus(rows, out), fed(normed("mlp.in", rows) if "mlp.in" in block.norms else entering)
        )
    state = normed("attn.sum", plus(rows, out) if block.residual else out)
    if block.cross is not None:
        inner = oracles_layers.multi_head(
            normed("cross.in", state),
            roles,
            HEADS,
            KV,
            prefix="cross",
            memory=memory.tolist(),
            scale=block.cross.scale,
        )
        stages["cross"] = inner
        state = normed("cross.sum", plus(state, inner["out"]))
    if block.mlp is not None:
        state = normed("mlp.sum", plus(state, normed("mlp.out", fed(normed("mlp.in", state)))))
    return stages, state


BLOCKS = {
    "attention alone": Block(ATTENTION, residual=False),
    "residual": Block(ATTENTION),
    "residual and norm": Block(ATTENTION, norms={"attn.sum": LAYER}),
    "pre-norm": Block(ATTENTION, Mlp(INNER, "gelu"), {"attn.in": LAYER, "mlp.in": LAYER}),
    "post-norm": Block(ATTENTION, Mlp(INNER, "gelu_tanh"), {"attn.sum": LAYER, "mlp.sum": LAYER}),
    "sandwich": Block(ATTENTION, Mlp(INNER, "relu"), {"attn.in": RMS, "attn.out": GEMMA, "mlp.in": RMS,
    "mlp.out": GEMMA}),
    "branch norm": Block(ATTENTION, Mlp(INNER, "silu"), {"attn.out": RMS, "mlp.out": RMS}),
    "parallel, one norm": Block(ATTENTION, Mlp(INNER, "quick_gelu"), {"attn.in": LAYER}, parallel=True),
    "parallel, two norms": Block(ATTENTION, Mlp(INNER, "gelu"), {"attn.in": LAYER, "mlp.in": LAYER}, parallel=True),
    "gated": Block(ATTENTION, Mlp(INNER, "silu", gated=True), {"attn.in": RMS, "mlp.in": RMS}),
    "no weights": Block(ATTENTION, Mlp(INNER, "relu2"), {"attn.in": LAYER, "mlp.in": BARE}),
    "cut off": Block(replace(ATTENTION, clip=0.8), Mlp(INNER, "silu"), {"attn.in": RMS, "mlp.in": RMS}),
    "scaled branches": Block(ATTENTION, Mlp(INNER, "gelu"), {"attn.in": LAYER, "mlp.in": LAYER}, branch_scale=0.3),
    "scaled side by side": Block(ATTENTION, Mlp(INNER, "gelu"), {"attn.in": LAYER}, parallel=True, branch_scale=0.3),
    "cross": Block(ATTENTION, Mlp(INNER, "relu"), {"attn.sum": LAYER, "cross.in": RMS, "cross.sum": LAYER,
    "mlp.sum": LAYER},
                   cross=replace(ATTENTION, mask=Window(None, None), softcap=None)),
}  # fmt: skip
HIDDEN = np.random.default_rng(1).standard_normal((TOKENS, WIDTH))
MEMORY = np.random.default_rng(2).standard_normal((5, WIDTH))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("rows", [None, 3])
def test_layers(library, name, rows):
    block = BLOCKS[name]
    roles = weights(gated=block.mlp is not None and block.mlp.gated)
    trace = layer(library, block, roles, HIDDEN, memory=MEMORY if block.cross else None, rows=rows)
    stages, after = loop(block, roles, HIDDEN, memory=MEMORY)
    assert np.allclose(plain(trace.after), after, rtol=1e-10, atol=1e-11)
    assert np.array_equal(plain(trace.before), HIDDEN)
    for stage in ("q", "k", "v", "mixed", "out") + (
        () if rows else ("scaled", "capped", "masked", "weights")
    ):
        assert np.allclose(plain(trace.stages[stage]), stages[stage], rtol=1e-10, atol=1e-11), stage
    if block.cross is not None:
        assert np.allclose(
            plain(trace.cross.stages["out"]), stages["cross"]["out"], rtol=1e-10, atol=1e-11
        )
        if rows is None:
            assert np.allclose(
                plain(trace.cross.stages["weights"]),
                stages["cross"]["weights"],
                rtol=1e-10,
                atol=1e-12,
            )


@pytest.mark.parametrize("name", BLOCKS)
def test_the_comparison_fails_when_a_weight_is_another(name):
    block = BLOCKS[name]
    roles = weights(gated=block.mlp is not None and block.mlp.gated)
    after = np.array(loop(block, roles, HIDDEN, memory=MEMORY)[1])
    used = [
        "attn.q.weight",
        "attn.k.bias",
        "attn.o.bias",
        *(f"{place}.weight" for place, norm in block.norms.items() if norm.affine),
    ]
    used += ["mlp.up.bias", "mlp.down.weight"] if block.mlp else []
    for role in used:
        changed = roles | {role: roles[role] * 1.01}
        if (
            role == "attn.k.bias"
        ):  # a bias of all keys alike shifts whole rows: seen through the soft cap alone
            changed = roles | {role: roles[role] * 1.5}
        found = plain(
            layer("numpy", block, changed, HIDDEN, memory=MEMORY if block.cross else None).after
        )
        assert not np.allclose(found, after, rtol=1e-10, atol=1e-11), role


@pytest.mark.filterwarnings("error")
def test_numbers_that_grow_too_large_are_results_not_warnings() -> None:
    block = Block(ATTENTION, Mlp(INNER, "gelu"), {"attn.in": LAYER, "mlp.in": RMS})
    roles = {name: (array * 1e30).astype(np.float32) for name, array in weights().items()}
    hidden = np.random.default_rng(1).standard_normal((TOKENS, WIDTH)).astype(np.float32)
    assert not np.isfinite(layer("numpy", block, roles, hidden).after).all()


def test_the_blocks_differ_from_each_other():
    results = [
        np.array(loop(block, weights(gated=True), HIDDEN, memory=MEMORY)[1]).round(6).tobytes()
        for block in BLOCKS.values()
    ]
    assert len(set(results)) == len(BLOCKS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_position_biases(library):
    roles = weights()
    for position in (Alibi(), Alibi(symmetric=True), RelativeBuckets(8, 16, bidirectional=True)):
        table = np.random.default_rng(5).standard_normal((8, HEADS))
        block = Block(
            replace(ATTENTION, position=position, mask=Window(None, None)), residual=False
        )
        trace = layer(library, block, roles | {"attn.buckets.weight": table}, HIDDEN)
        slopes = oracles_layers.alibi_slopes(HEADS)

        def bias(head, i, j, position=position, slopes=slopes, table=table):
            if isinstance(position, Alibi):
                return -slopes[head] * (abs(i - j) if position.symmetric else i - j)
            return table[oracles_layers.t5_bucket(j - i, 8, 16, True), head]

        grid = [
            [[bias(h, i, j) for j in range(TOKENS)] for i in range(TOKENS)] for h in range(HEADS)
        ]
        wanted = oracles_layers.multi_head(
            HIDDEN.tolist(),
            {k: v.tolist() for k, v in roles.items()},
            HEADS,
            KV,
            scale=0.4,
            softcap=3.0,
            bias=grid,
        )
        assert np.allclose(
            plain(trace.stages["weights"]), wanted["weights"], rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_text_in_steps_through_the_cache_is_the_whole_text(library):
    block, roles = BLOCKS["pre-norm"], weights()
    whole = plain(layer(library, block, roles, HIDDEN).after)
    here = on(library, HIDDEN)
    backend = backend_of(here)
    past: dict = {}
    pieces = []
    for first, last in ((0, 3), (3, 4), (4, TOKENS)):
        context = Context(np.arange(first, last), TOKENS, past=past)
        trace = run_block(backend, block, reader(backend, roles), here[first:last], context, 0)
        pieces.append(plain(trace.after))
    assert np.allclose(np.concatenate(pieces), whole, rtol=1e-12, atol=1e-13)
