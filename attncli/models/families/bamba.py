"""Bamba: Mamba 2 in place of attention in all layers but those listed; and relatives that mix
attention with Mamba.
Source: IBM, Princeton, CMU and UIUC, 2024."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from attncli.errors import UnsupportedError
from attncli.inputs.gguf_file import Metadata
from attncli.language import message
from attncli.mechanism.spec import Embedding, Experts, Norm, SelectiveScan, Spec, StateSpace
from attncli.models.config import ACTIVATIONS, Config, rope
from attncli.models.families import llama
from attncli.models.family import Family, Source, StackedTensor

MIXER: dict[str, Source] = {
    "mixer.input": "mamba.in_proj",
    "mixer.conv": "mamba.conv1d",
    "mixer.step": "mamba.dt_bias",
    "mixer.decay": "mamba.A_log",
    "mixer.straight": "mamba.D",
    "mixer.norm": "mamba.norm",
    "mixer.output": "mamba.out_proj",
}

NAMES = llama.NAMES.with_roles(
    {
        **MIXER,
        "mlp.in": "pre_ff_layernorm",
        "mlp.gate": "feed_forward.gate_proj",
        "mlp.up": "feed_forward.up_proj",
        "mlp.down": "feed_forward.down_proj",
    },
    outside={"final": "final_layernorm"},
)


def spec(config: Config) -> Spec:
    """The Spec of a Bamba: attention in the listed layers, Mamba 2 in the others."""
    norm = llama.rms(config, default=1e-5)
    mixer = state_space(config)
    attending = config.list_of("attn_layer_indices", kind=int) or []
    position = rope(config, llama.head_dim(config), default_partial=0.5)
    block = llama.block(config, position=position, default_kv_heads=8, norm=norm)
    blocks = [
        block if layer in attending else block.with_mixer(mixer)
        for layer in range(llama.depth(config))
    ]
    # of training and generation, or repeating `attn_layer_indices`: read, so that no warning comes
    config.get("z_loss_coefficient", "num_logits_to_keep", "layers_block_type", "layer_types")
    return llama.decoder(config, blocks, biases=(*llama.linear_biases(config), *biases(config)))


def state_space(config: Config, default_eps: float = 1e-5, inner: int | None = None) -> StateSpace:
    """The Mamba 2 that the config describes, by keys that several families share.

    default_eps: the norm's ε where the config does not set it.
    inner: the width of all heads; None for the model's width times the config's expansion.
    """
    # read in any case, so that the key does not count as unknown
    expanded_width = config.integer("mamba_expand", default=2) * config.integer("hidden_size")
    if inner is None:
        inner = expanded_width
    # the number of heads must divide the width, and that of groups of heads the number of heads
    heads = config.heads(inner, "mamba_n_heads", default=128)
    groups = config.heads(heads, "mamba_n_groups", default=1)
    if config.get("mamba_d_head") not in (None, "auto", inner // heads):
        raise config.refuse("mamba_d_head", f"auto, {inner // heads}")
    config.get("mamba_chunk_size")  # how transformers cuts the text: it changes no result
    return StateSpace(
        heads=heads,
        head_dim=inner // heads,
        state=config.integer("mamba_d_state", default=256, most=2**16),
        groups=groups,
        kernel=config.integer("mamba_d_conv", default=4, most=2**10),
        activation=config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        norm=Norm("rms", config.number("rms_norm_eps", default=default_eps)),
        limits=step_limits(config),
    )


def step_limits(config: Config) -> tuple[float, float | None]:
    """The smallest and the largest time step of Mamba, from the config's `time_step_limit`; None
    for no upper limit.
    """
    values = config.list_of("time_step_limit", kind=(int, float, dict), count=2)
    if values is None:
        return 0.0, None
    low, high = values
    if not isinstance(low, int | float) or low < 0:
        raise config.refuse("time_step_limit", f"[0.0, {float('inf')}]")
    # JSON has no infinity: transformers writes it as the object {"__float__": "Infinity"}
    if isinstance(high, dict) or high == float("inf"):
        return float(low), None
    return float(low), float(high)


def biases(config: Config) -> tuple[str, ...]:
    """The roles of the mixer that have a bias, by the config's `mamba_conv_bias` and
    `mamba_proj_bias`."""
    roles: tuple[str, ...] = ()
    if config.flag("mamba_conv_bias", default=True):
        roles += ("mixer.conv",)
    if config.flag("mamba_proj_bias", default=False):
        roles += ("mixer.input", "mixer.output")
    return roles


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that override those read from a GGUF file: `layer_types` is None, since
    the file lists the layers with attention under another key."""
    return {"layer_types": None}


def falcon_h1(config: Config) -> Spec:
    """The Spec of a Falcon-H1: attention and Mamba 2 side by side in every layer, with a multiplier
    for each branch, key and gate. Source: Falcon LLM Team, 2025.

    Multipliers change weights as they are read: they stand before and after linear maps.
    """
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config)
    mlp = llama.gated_mlp(config, default=14336)
    block = llama.block(
        config, position=rope(config, dim), dim=dim, default_kv_heads=8, norm=norm, mlp=mlp
    )
    block = replace(block, mixer=_scaled_state_space(config), factors=_weight_factors(config))
    # of generation, or saying that all layers are alike: read, so that no warning comes
    config.get("num_logits_to_keep", "layers_block_type", "layer_types")
    # role of the mixer: the key that says whether it has a bias, and what holds without the key
    bias_keys = {
        "mixer.conv": ("mamba_conv_bias", True),
        "mixer.input": ("mamba_proj_bias", False),
        "mixer.output": ("projectors_bias", False),
    }
    return llama.decoder(
        config,
        block,
        embedding=Embedding(scale=config.number("embedding_multiplier", default=1.0)),
        logit_scale=config.number("lm_head_multiplier", default=1.0),
        biases=(
            *llama.linear_biases(config),
            *(role for role, (key, usual) in bias_keys.items() if config.flag(key, default=usual)),
        ),
    )


def _weight_factors(config: Config) -> dict[str, float]:
    """The factor that each of Falcon-H1's weights is multiplied with, by role; only factors other
    than 1. A factor before a linear map changes its weight, one after it also its bias."""

    def multiplier(name: str) -> float:
        """The config's multiplier of this name; 1 where it has none."""
        return config.number(f"{name}_multiplier", default=1.0)

    attention_in = multiplier("attention_in")
    key = multiplier("key")
    gate, down = _multipliers(config, "mlp_multipliers", 2)
    factors = {
        "attn.q.weight": attention_in,
        "attn.v.weight": attention_in,
        "attn.k.weight": attention_in * key,
        "attn.k.bias": key,
        "mixer.input.weight": multiplier("ssm_in"),
    }
    for name, factor in (
        ("attn.o", multiplier("attention_out")),
        ("mixer.output", multiplier("ssm_out")),
        ("mlp.gate", gate),
        ("mlp.down", down),
    ):
        factors |= {f"{name}.weight": factor, f"{name}.bias": factor}
    return {role: factor for role, factor in factors.items() if factor != 1.0}


def _scaled_state_space(config: Config) -> StateSpace:
    """Falcon-H1's Mamba 2, with its multipliers, and with a norm if the config asks for it."""
    # null in the config stands for the model's width times its expansion
    expanded_width = config.integer("mamba_expand", default=2) * config.integer("hidden_size")
    inner = config.optional("mamba_d_ssm", default=1024) or expanded_width
    mixer = state_space(config, inner=inner)
    norm_first = config.flag("mamba_norm_before_gate", default=True)
    if not config.flag("mamba_rms_norm", default=False):
        mixer = replace(mixer, norm=None)

    # of the gate, the values, k, q and the steps; float32, as all implementations hold them
    gate, values, k, q, steps = (
        float(np.float32(number)) for number in _multipliers(config, "ssm_multipliers", 5)
    )
    factors: tuple[float, float, float, float, float] | None = (gate, values, k, q, steps)
    if factors == (1.0, 1.0, 1.0, 1.0, 1.0):  # nothing to multiply
        factors = None
    return replace(mixer, gate_first=not norm_first, factors=factors)


def _multipliers(config: Config, key: str, count: int) -> list[float]:
    """The list of `count` multipliers under a key; 1 each where the config does not set it."""
    numbers = config.list_of(key, kind=(int, float), count=count)
    if numbers is None:
        return [1.0] * count
    return [float(number) for number in numbers]


JAMBA_NAMES = NAMES.with_roles(
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

JAMBA_IDLE = (
    "use_mamba_kernels",
    "use_mambapy",
    "use_associative_scan",
    "num_logits_to_keep",
    "sliding_window",
)
"""Keys that say how a library computes, and one that no layer heeds."""


def jamba(config: Config) -> Spec:
    """The Spec of a Jamba: Mamba in place of attention in most layers, experts in some, and no
    positions. Source: AI21 Labs, 2024.
    """
    mixer = _selective_scan(config)
    mlp = llama.gated_mlp(config, default=14336)
    # attention in the layers offset, offset + period, …
    period = config.integer("attn_layer_period", default=8)
    offset = config.integer("attn_layer_offset", default=4, least=0)
    count = config.integer("num_experts", "num_local_experts", default=16, most=2**16)
    chosen = config.integer("num_experts_per_tok", default=2, most=2**16)
    experts = Experts(count, min(chosen, count), mlp.width, mlp.activation, renormalise=False)
    layers_with_experts = _layers_with_experts(config, count)
    # without effect: read, so that they do not count as unknown keys
    config.get(*JAMBA_IDLE)
    blocks = []
    for layer in range(llama.depth(config)):
        part = experts if layer in layers_with_experts else mlp
        block = llama.block(config, position=None, default_kv_heads=8, mlp=part)
        blocks.append(block if layer % period == offset else block.with_mixer(mixer))
    return llama.decoder(config, blocks, biases=("mixer.time", *biases(config)))


def _layers_with_experts(config: Config, count: int) -> list[int]:
    """The numbers of Jamba's layers that have experts; none for a model with one expert alone, which
    is an ordinary feed-forward part.

    count: of experts in such a layer.
    """
    period = config.integer("expert_layer_period", default=2)
    offset = config.integer("expert_layer_offset", default=1, least=0)
    if count == 1:
        return []
    return [layer for layer in range(llama.depth(config)) if layer % period == offset]


def _selective_scan(config: Config) -> SelectiveScan:
    """Jamba's Mamba. Its time steps come from a vector of a sixteenth of the width, rounded up,
    where the config does not say."""
    width = config.integer("hidden_size")
    if config.get("mamba_dt_rank") in (None, "auto"):
        rank = -(-width // 16)
    else:
        rank = config.integer("mamba_dt_rank")
    return SelectiveScan(
        inner=config.integer("mamba_expand", default=2) * width,
        state=config.integer("mamba_d_state", default=16, most=2**16),
        rank=rank,
        kernel=config.integer("mamba_d_conv", default=4, most=2**10),
        activation=config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        norm=Norm("rms", config.number("rms_norm_eps", default=1e-6)),
    )


def jamba_gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key for Jamba from the tensors of a GGUF file: how many experts, and the
    period and offset of layers with attention and with experts.

    Raises UnsupportedError where these layers do not follow each other at even distances.
    """
    # a single expert is no mixture
    keys: dict[str, object] = {"num_experts": metadata.architecture_value("expert_count") or 1}
    for kind, mark in (("attn", "attn_q"), ("expert", "ffn_gate_inp")):
        name = re.compile(rf"blk\.(\d+)\.{mark}\.weight")  # blk.4.attn_q.weight
        layers = sorted(int(match[1]) for match in map(name.fullmatch, metadata.tensors) if match)
        if not layers:  # then the family's own period holds
            continue
        distances = {after - before for before, after in pairwise(layers)}
        if not distances:  # a single such layer: a period beyond the last layer
            distances = {metadata.layers() + 1}
        if len(distances) > 1:
            what = message(
                "layers {layers} have {mark}", layers=", ".join(map(str, layers[:8])), mark=mark
            )
            raise UnsupportedError(what, where=metadata.where, expected="layers in even steps")
        (period,) = distances
        keys[f"{kind}_layer_period"] = period
        keys[f"{kind}_layer_offset"] = layers[0]
    return keys


FAMILIES = {
    "bamba": Family(spec, NAMES, permuted=True, gguf=gguf_keys),
    "falcon_h1": Family(falcon_h1, NAMES),
    "jamba": Family(jamba, JAMBA_NAMES, gguf=jamba_gguf_keys),
}
