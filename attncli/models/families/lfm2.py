"""LFM2: gated convolutions over a few tokens, and attention in some layers. Source: Liquid AI, 2025."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.mechanism.spec import Block, Experts, Mlp, Norm, QkNorm, ShortConvolution, Spec
from attncli.models.config import GLOBAL, Config, rope
from attncli.models.families import llama
from attncli.models.family import Family, Names

CONVOLUTION = "conv"

IDLE = (
    *("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu", "conv_dim"),
    *("block_use_xavier_init", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc", "theta"),
)
"""Keys that repeat others, or speak of training."""

NAMES = Names(
    layer="layers.{layer}.",
    inside={
        "attn.in": "operator_norm",
        "mixer.input": "conv.in_proj",
        "mixer.conv": "conv.conv",
        "mixer.output": "conv.out_proj",
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.out_proj",
        "attn.q_norm": "self_attn.q_layernorm",
        "attn.k_norm": "self_attn.k_layernorm",
        "mlp.in": "ffn_norm",
        "mlp.gate": "feed_forward.w1",
        "mlp.up": "feed_forward.w3",
        "mlp.down": "feed_forward.w2",
    },
    outside={"tokens": "embed_tokens", "final": "embedding_norm", "head": "lm_head"},
    prefixes=("model.",),
    ignored=llama.NAMES.ignored,
)


def spec(config: Config) -> Spec:
    """The Spec of an LFM2."""
    return llama.decoder(
        config, "lfm2", layers(config, [_mlp(config)] * llama.depth(config)), final=norm(config), tied=tied(config),
        biases=biases(config),
    )  # fmt: skip


def tied(config: Config) -> bool:
    """Whether the token table is the output head where the file has none."""
    for key in IDLE:
        config.get(key)
    return config.flag("tie_embedding", default=True)


def norm(config: Config) -> Norm:
    """The norm of all places."""
    return Norm("rms", config.number("norm_eps", default=1e-5))


def biases(config: Config) -> tuple[str, ...]:
    """The biases: of convolutions alone."""
    return ("mixer.*",) if config.flag("conv_bias", default=False) else ()


def layers(config: Config, parts: Sequence[Mlp | Experts]) -> list[Block]:
    """The layers, by type, each with its feed-forward part."""
    count = len(parts)
    attending = config.list_of("full_attn_idxs", kind=int)
    kinds = config.list_of("layer_types", kind=str, count=count)
    if kinds is None:
        chosen = range(count) if attending is None else attending
        kinds = [GLOBAL if layer in chosen else CONVOLUTION for layer in range(count)]
    if not set(kinds) <= {GLOBAL, CONVOLUTION}:
        raise config.refuse("layer_types", f"{GLOBAL}, {CONVOLUTION}")
    own, mixer = norm(config), ShortConvolution(config.whole("conv_L_cache", default=3, most=2**10))
    blocks = []
    for kind, part in zip(kinds, parts, strict=True):
        block = llama.block(
            config,
            position=rope(config, llama.head_dim(config), default_theta=1e6),
            qk_norm=QkNorm(own),
            kv_heads=8,
            norms={"attn.in": own, "mlp.in": own},
            mlp=part,
        )
        blocks.append(block if kind == GLOBAL else block.mixing(mixer))
    return blocks


def _mlp(config: Config) -> Mlp:
    """The feed-forward part, whose width the config says before it is cut to two thirds and rounded up."""
    width = config.whole("block_ff_dim", "intermediate_size", default=12288)
    times, unit = config.cap("block_ffn_dim_multiplier", 1.0), config.whole("block_multiple_of", default=256)
    if config.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        width = width if times is None else unit * ((int(times * width) + unit - 1) // unit)
    return Mlp(width, "silu", gated=True)


FAMILIES = {"lfm2": Family(spec, NAMES)}
