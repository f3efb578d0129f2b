"""Falcon-H1: attention and Mamba 2 side by side in every layer, with a multiplier for each branch, key and gate.

Source: Falcon LLM Team, 2025.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Spec, StateSpace
from attncli.models.config import Config, rope
from attncli.models.families import bamba, llama
from attncli.models.family import Family

NAMES = bamba.NAMES


def spec(config: Config) -> Spec:
    """The Spec of a Falcon-H1. Multipliers change weights as they are read: they stand before and after linear maps."""
    norm, dim = llama.rms(config, default=1e-5), llama.head_dim(config)
    block = llama.block(
        config,
        position=rope(config, dim),
        dim=dim,
        kv_heads=8,
        norms={"attn.in": norm, "mlp.in": norm},
        mlp=llama.gated_mlp(config, default=14336),
    )
    block = replace(block, mixer=_state_space(config), factors=_factors(config))
    for idle in ("num_logits_to_keep", "layers_block_type", "layer_types"):
        config.get(idle)
    return llama.decoder(
        config,
        "falcon_h1",
        [block] * llama.depth(config),
        final=norm,
        embedding=Embedding(scale=config.number("embedding_multiplier", default=1.0)),
        logit_scale=config.number("lm_head_multiplier", default=1.0),
        biases=(*llama.linear_biases(config), *_biases(config)),
    )


def _factors(config: Config) -> dict[str, float]:
    """What each weight is multiplied with; a bias comes after what multiplies the input."""
    attending, key, leaving, mixing, mixed = (
        config.number(f"{name}_multiplier", default=1.0)
        for name in ("attention_in", "key", "attention_out", "ssm_in", "ssm_out")
    )
    gate, down = _numbers(config, "mlp_multipliers", 2)
    factors = {"attn.q.weight": attending, "attn.v.weight": attending, "mixer.input.weight": mixing}
    factors |= {"attn.k.weight": attending * key, "attn.k.bias": key}
    for name, factor in (("attn.o", leaving), ("mixer.output", mixed), ("mlp.gate", gate), ("mlp.down", down)):
        factors |= {f"{name}.weight": factor, f"{name}.bias": factor}
    return {role: factor for role, factor in factors.items() if factor != 1.0}


def _state_space(config: Config) -> StateSpace:
    """Mamba 2, with a norm if the config asks for it."""
    widened = config.whole("mamba_expand", default=2) * config.whole("hidden_size")
    mixer = bamba.state_space(config, inner=config.optional("mamba_d_ssm", default=1024) or widened)
    before = config.flag("mamba_norm_before_gate", default=True)
    if not config.flag("mamba_rms_norm", default=False):
        mixer = replace(mixer, norm=None)
    # a table of float32 in all of its implementations
    parts = [float(np.float32(number)) for number in _numbers(config, "ssm_multipliers", 5)]
    factors = None if set(parts) == {1.0} else (parts[0], parts[1], parts[2], parts[3], parts[4])
    return replace(mixer, gate_first=not before, factors=factors)


def _numbers(config: Config, key: str, count: int) -> list[float]:
    """So many multipliers; 1 each where the config is silent."""
    return [float(number) for number in config.list_of(key, kind=(int, float), count=count) or [1.0] * count]


def _biases(config: Config) -> tuple[str, ...]:
    """The biases of the mixer, whose two projections have keys of their own."""
    chosen = {"mixer.conv": ("mamba_conv_bias", True), "mixer.input": ("mamba_proj_bias", False)}
    chosen["mixer.output"] = ("projectors_bias", False)
    return tuple(role for role, (key, usual) in chosen.items() if config.flag(key, default=usual))


FAMILIES = {"falcon_h1": Family(spec, NAMES)}
