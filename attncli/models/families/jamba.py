"""Jamba: Mamba in place of attention in most layers, experts in some, and no positions. Source: AI21 Labs, 2024."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from attncli.errors import UnsupportedError
from attncli.mechanism.spec import Experts, Norm, SelectiveScan, Spec
from attncli.models.config import ACTIVATIONS, Config
from attncli.models.families import bamba, llama
from attncli.models.family import Family, StackedTensor

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

NAMES = bamba.NAMES.with_roles(
    {
        "mixer.select": "mamba.x_proj",
        "mixer.time_norm": "mamba.dt_layernorm",
        "mixer.k_norm": "mamba.b_layernorm",
        "mixer.q_norm": "mamba.c_layernorm",
        "mixer.time": "mamba.dt_proj",
        "experts.router": "feed_forward.router",
        "experts.gate": StackedTensor("feed_forward.experts.{item}.gate_proj"),
        "experts.up": StackedTensor("feed_forward.experts.{item}.up_proj"),
        "experts.down": StackedTensor("feed_forward.experts.{item}.down_proj"),
    },
    without=("mixer.step", "mixer.norm"),
)

IDLE = ("use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep", "sliding_window")
"""Keys that say how a library computes, and one that no layer heeds."""


def spec(config: Config) -> Spec:
    """The Spec of a Jamba."""
    norm, mixer = llama.rms(config), _scan(config)
    every, first = config.whole("attn_layer_period", default=8), config.whole("attn_layer_offset", default=4, least=0)
    experts, mixtures = _experts(config), _mixtures(config)
    for idle in IDLE:
        config.get(idle)
    blocks = []
    for layer in range(llama.depth(config)):
        block = llama.block(
            config,
            position=None,
            kv_heads=8,
            norms={"attn.in": norm, "mlp.in": norm},
            mlp=experts if layer in mixtures else llama.gated_mlp(config, default=14336),
        )
        blocks.append(block if layer % every == first else block.mixing(mixer))
    return llama.decoder(config, "jamba", blocks, final=norm, biases=("mixer.time", *bamba.biases(config)))


def _mixtures(config: Config) -> list[int]:
    """The layers that have experts."""
    every = config.whole("expert_layer_period", default=2)
    first = config.whole("expert_layer_offset", default=1, least=0)
    alone = config.whole("num_experts", default=16, most=2**16) == 1
    return [] if alone else [layer for layer in range(llama.depth(config)) if layer % every == first]


def _experts(config: Config) -> Experts:
    count = config.whole("num_experts", "num_local_experts", default=16, most=2**16)
    part = llama.gated_mlp(config, default=14336)
    chosen = config.whole("num_experts_per_tok", default=2, most=2**16)
    return Experts(count, min(chosen, count), part.width, part.activation, renormalise=False)


def _scan(config: Config) -> SelectiveScan:
    width = config.whole("hidden_size")
    rank = config.get("mamba_dt_rank")
    return SelectiveScan(
        config.whole("mamba_expand", default=2) * width,
        config.whole("mamba_d_state", default=16, most=2**16),
        -(-width // 16) if rank in (None, "auto") else config.whole("mamba_dt_rank"),
        config.whole("mamba_d_conv", default=4, most=2**10),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        Norm("rms", config.number("rms_norm_eps", default=1e-6)),
    )


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What GGUF files say by their tensors: which layers attend and which have experts, in even steps.

    Raises UnsupportedError for uneven steps.
    """
    keys: dict[str, object] = {"num_experts": metadata.own("expert_count") or 1}
    for kind, mark in (("attn", "attn_q"), ("expert", "ffn_gate_inp")):
        name = re.compile(rf"blk\.(\d+)\.{mark}\.weight")
        layers = sorted(int(match[1]) for match in map(name.fullmatch, metadata.tensors) if match)
        steps = {after - before for before, after in pairwise(layers)} or {metadata.layers() + 1}
        if len(steps) > 1:
            raise UnsupportedError(
                "layers {layers} have {mark}",
                where=metadata.where,
                expected="layers in even steps",
                layers=", ".join(map(str, layers[:8])),
                mark=mark,
            )
        keys |= {f"{kind}_layer_period": max(steps), f"{kind}_layer_offset": layers[0]} if layers else {}
    return keys


FAMILIES = {"jamba": Family(spec, NAMES, gguf=gguf_keys)}
