"""Against torch's own attention: the fused function and, through a layer, its multi-head module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from comparing import LIBRARIES, attend, case, on, plain

from attncli.arrays.backend import backend_of
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context
from attncli.mechanism.mask import Causal, Everywhere
from attncli.mechanism.spec import Attention, Block

fused = torch.nn.functional.scaled_dot_product_attention


def same(found, wanted, tolerance: float = 1e-10) -> None:
    assert np.abs(plain(found) - wanted.detach().numpy()).max() <= tolerance


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_the_fused_function(library, batch):
    arrays = case(batch=batch, heads=4, kv_heads=4, queries=7, keys=11)
    q, k, v = (torch.from_numpy(x) for x in arrays)
    mask, bias = torch.rand(7, 11) < 0.7, torch.randn(*batch, 4, 7, 11, dtype=torch.float64)
    mask[:, 0] = True
    same(attend(library, *arrays).mixed, fused(q, k, v))
    same(attend(library, *arrays, scale=0.3).mixed, fused(q, k, v, scale=0.3))
    same(attend(library, *arrays, causal=True).mixed, fused(q, k, v, is_causal=True))
    same(attend(library, *arrays, mask=mask.numpy()).mixed, fused(q, k, v, attn_mask=mask))
    same(attend(library, *arrays, bias=bias.numpy()).mixed, fused(q, k, v, attn_mask=bias))
    with pytest.raises(AssertionError):
        same(attend(library, *arrays).mixed, fused(q, k, v, is_causal=True))


@pytest.mark.parametrize("library", LIBRARIES)
def test_grouped_heads_and_rows_that_see_nothing(library):
    arrays = case(batch=(2,), heads=6, kv_heads=2, queries=7, keys=11)
    q, k, v = (torch.from_numpy(x) for x in arrays)
    same(attend(library, *arrays).mixed, fused(q, k, v, enable_gqa=True))
    mask = torch.ones(7, 11, dtype=torch.bool)
    mask[2] = False
    found = attend(library, *arrays, mask=mask.numpy())
    same(found.mixed, fused(q, k, v, attn_mask=mask, enable_gqa=True))
    assert plain(found.empty_rows)[:, :, 2].all()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("learned_key", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [None, 3])
def test_the_multi_head_module(library, bias, learned_key, causal, rows):
    torch.manual_seed(1)
    module = torch.nn.MultiheadAttention(
        21, 3, bias=bias, add_bias_kv=learned_key, batch_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.4)
    x = torch.randn(2, 11, 21, dtype=torch.float64)
    hidden = torch.triu(torch.ones(11, 11, dtype=torch.bool), 1) if causal else None
    padded = torch.zeros(2, 11, dtype=torch.bool)
    padded[1, 5:] = True
    mixed, weights = module(
        x, x, x, attn_mask=hidden, key_padding_mask=padded, average_attn_weights=False
    )
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    roles = {}
    for at, name in enumerate("qkv"):
        roles[f"attn.{name}.weight"] = state["in_proj_weight"][21 * at : 21 * (at + 1)]
        if bias:
            roles[f"attn.{name}.bias"] = state["in_proj_bias"][21 * at : 21 * (at + 1)]
    roles |= {"attn.o.weight": state["out_proj.weight"]} | (
        {"attn.o.bias": state["out_proj.bias"]} if bias else {}
    )
    if learned_key:
        roles |= {"attn.bias_k": state["bias_k"], "attn.bias_v": state["bias_v"]}
    here = on(library, x.numpy())
    backend = backend_of(here)
    spec = Attention(
        heads=3,
        kv_heads=3,
        head_dim=7,
        v_dim=7,
        scale=7**-0.5,
        mask=Causal() if causal else Everywhere(),
    )
    lengths = backend.array_as_is(np.array([11, 5])).reshape((2, 1, 1, 1))
    trace = run_block(
        backend,
        Block(spec, residual=False),
        lambda role: backend.array_as_is(roles[role]) if role in roles else None,
        here,
        Context(np.arange(11), 11, key_lengths=lengths, rows=rows),
        0,
    )
    same(trace.stages["out"], mixed)
    if rows is None:
        same(trace.stages["weights"], weights)
        assert trace.stages["weights"].shape == (2, 3, 11, 12 if learned_key else 11)
