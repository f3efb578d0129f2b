"""Llama with small differences, each told beside its Spec."""

from __future__ import annotations

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.spec import Mlp, Norm, QkNorm, Spec
from attncli.models.config import (
    ACTIVATIONS,
    GLOBAL,
    LOCAL,
    Config,
    causal,
    layer_mask,
    layer_types,
    rope,
)
from attncli.models.families import llama, olmo
from attncli.models.family import Family, StackedTensor


def ernie4_5(config: Config) -> Spec:
    """The Spec of an ERNIE 4.5: Llama with neighbouring entries rotated together, and biases on all
    linear maps or none. Source: Baidu ERNIE Team, 2025."""
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config, default=128)
    position = rope(config, dim, default_theta=500000.0, pairing="adjacent")
    block = llama.block(config, position=position, dim=dim, default_kv_heads=2, norm=norm)
    biases: tuple[str, ...] = ()
    if config.flag("use_bias", default=False):
        biases = ("attn.[qkvo]", "mlp.up", "mlp.gate", "mlp.down")
    return llama.decoder(config, block, default_tied=True, biases=biases)


def exaone4(config: Config) -> Spec:
    """The Spec of an EXAONE 4: Llama with norms after each part, normed queries and keys, and rotary
    positions only in the layers with a window; without a window all layers have them. Source: LG AI
    Research, 2025."""
    norm = llama.rms(config, default=1e-5)
    window = config.optional("sliding_window", default=4096)
    # each `every`th layer has no window: all of them where the model has none
    every = 1
    if config.get("layer_types") is not None or window is None:
        # repeats the layers' types, perhaps in letters: only read, so that it is no unknown key
        config.get("sliding_window_pattern")
    else:
        every = config.integer("sliding_window_pattern", default=4)
    position = rope(config, llama.head_dim(config))
    kinds = layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every))
    blocks = [
        llama.block(
            config,
            position=position if kind == LOCAL or window is None else None,
            mask=layer_mask(config, kind, window),
            qk_norm=QkNorm(norm),
            default_kv_heads=32,
            norm=norm,
            places=llama.AFTER,
        )
        for kind in kinds
    ]
    return llama.decoder(config, blocks, biases=())


def exaone4_gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files lack: for a model without a window, that all its layers
    attend to everything."""
    if metadata.architecture_value("attention.sliding_window"):
        return {}
    return {"sliding_window": None, "layer_types": [GLOBAL] * metadata.layers()}


NEMOTRON_NAMES = llama.NAMES.with_roles({}, without=("mlp.gate",))


def nemotron(config: Config) -> Spec:
    """The Spec of a Nemotron: half of each head rotated, layer norms that multiply by 1 + w, a
    feed-forward part without gate and with squared ReLU. Source: Parmar et al., 2024."""
    norm = Norm("layer", config.number("norm_eps", default=1e-5), unit_offset=True)
    position = rope(config, llama.head_dim(config), default_partial=0.5)
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="relu2")
    block = llama.block(
        config,
        position=position,
        norm=norm,
        mlp=Mlp(config.integer("intermediate_size"), activation),
    )
    biases = ("attn.in", "mlp.in", "final", *llama.linear_biases(config))
    return llama.decoder(config, block, biases=biases)


BIASES = {
    "attention_bias": ("attn.[qkv]", True),
    "attention_out_bias": ("attn.o", False),
    "mlp_bias": ("mlp.[gud]*", False),
}
"""Of each key: which roles have a bias where it is true, and its value where it is not set."""


def seed_oss(config: Config) -> Spec:
    """The Spec of a Seed-OSS: Llama with biases on queries, keys and values, and perhaps others.
    Source: ByteDance Seed Team, 2025."""
    dim = llama.head_dim(config, default=128)
    block = llama.block(config, position=rope(config, dim), dim=dim, default_kv_heads=8)
    biases = tuple(
        pattern for key, (pattern, usual) in BIASES.items() if config.flag(key, default=usual)
    )
    return llama.decoder(config, block, biases=biases)


def smollm3(config: Config) -> Spec:
    """The Spec of a SmolLM3: Llama in which every fourth layer has no positions. Source: Bakouch et
    al., 2025."""
    count = llama.depth(config)
    # `no_rope_layers` is 1 for a layer with rotary positions, 0 for one without, despite its name
    every = config.integer("no_rope_layer_interval", default=4)
    rotary_layers = config.list_of("no_rope_layers", kind=int, count=count)
    if not rotary_layers:
        rotary_layers = [int((layer + 1) % every != 0) for layer in range(count)]
    window = config.optional("sliding_window")
    has_windows = config.flag("use_sliding_window", default=False) and window is not None
    # without effect: read, so that they do not count as unknown keys
    config.optional("max_window_layers", least=0)
    position = rope(config, llama.head_dim(config), default_theta=2e6)
    # windows, where they are switched on, are for the layers without positions
    kinds = layer_types(config, count, lambda layer: has_windows and not rotary_layers[layer])
    blocks = [
        llama.block(
            config,
            position=position if rotary else None,
            mask=layer_mask(config, kind, window),
            default_kv_heads=4,
        )
        for kind, rotary in zip(kinds, rotary_layers, strict=True)
    ]
    return llama.decoder(config, blocks, default_tied=True)


STABLELM_NAMES = llama.NAMES.with_roles(
    {
        "attn.q_norm": StackedTensor("self_attn.q_layernorm.norms.{item}"),
        "attn.k_norm": StackedTensor("self_attn.k_layernorm.norms.{item}"),
    }
)


def stablelm(config: Config) -> Spec:
    """The Spec of a StableLM: Llama with layer norms and a quarter of each head rotated. Source:
    Bellagente et al., 2024."""
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    biases: tuple[str, ...] = ("attn.in", "mlp.in", "final")
    if config.flag("use_qkv_bias", default=False):
        biases += ("attn.[qkv]",)
    parallel = config.flag("use_parallel_residual", default=False)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=0.25),
        qk_norm=QkNorm(norm, over="own") if config.flag("qk_layernorm", default=False) else None,
        norm=norm,
        places=("attn.in",) if parallel else llama.BEFORE,
        parallel=parallel,
        default_kv_heads=32,
    )
    return llama.decoder(config, block, biases=biases)


STARCODER2_NAMES = llama.NAMES.with_roles(
    {"mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}, without=("mlp.gate",)
)


def starcoder2(config: Config) -> Spec:
    """The Spec of a StarCoder2: Llama with layer norms, biases and a feed-forward part without gate.
    Source: Lozhkov et al., 2024.
    """
    norm = Norm("layer", config.number("norm_epsilon", default=1e-5))
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="gelu_pytorch_tanh")
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config)),
        mask=causal(config.optional("sliding_window")),
        default_kv_heads=2,
        norm=norm,
        mlp=Mlp(config.integer("intermediate_size"), activation),
    )
    biases: tuple[str, ...] = ("attn.in", "mlp.in", "final")
    if config.flag("use_bias", default=True):
        biases += ("attn.[qkvo]", "mlp.up", "mlp.down")
    return llama.decoder(config, block, default_tied=True, biases=biases)


FAMILIES = {
    "ernie4_5": Family(ernie4_5, llama.NAMES),
    "exaone4": Family(exaone4, olmo.OLMO2_NAMES, gguf=exaone4_gguf_keys),
    "nemotron": Family(nemotron, NEMOTRON_NAMES),
    "seed_oss": Family(seed_oss, llama.NAMES),
    "smollm3": Family(smollm3, llama.NAMES, permuted=True),
    "stablelm": Family(stablelm, STABLELM_NAMES),
    "starcoder2": Family(starcoder2, STARCODER2_NAMES),
}
