"""Hunyuan: Llama whose queries and keys are normed after they are rotated. Source: Tencent, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Block, Experts, Mlp, QkNorm, Spec
from attncli.models.config import ACTIVATIONS, NORMED, Config, rope
from attncli.models.families import llama, qwen2
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles(
    {"attn.q_norm": "self_attn.query_layernorm", "attn.k_norm": "self_attn.key_layernorm"}
)


def spec(config: Config) -> Spec:
    """The Spec of a Hunyuan: Llama whose queries and keys are normed after they are rotated."""
    return whole_model(config, block(config))


def block(config: Config, mlp: Experts | None = None) -> Block:
    """One layer of a Hunyuan, whose queries and keys are normed after they are rotated.

    mlp: its experts; None for the gated feed-forward part of the config.
    """
    norm = llama.rms(config, default=1e-5)
    position = rope(config, llama.head_dim(config), by_alpha=True)
    return llama.block(
        config, position=position, qk_norm=QkNorm(norm, after=True), norm=norm, mlp=mlp
    )


def whole_model(config: Config, blocks: Block | list[Block]) -> Spec:
    """The Spec of a decoder with these layers, its embedding, final norm and output head as the
    config says.
    """
    biases = ("attn.[qkvo]",) if config.flag("attention_bias", default=False) else ()
    config.get("eod_token_id")  # of generation: read, so that no warning comes
    return llama.decoder(config, blocks, biases=biases)


HUNYUAN_V1_MOE_NAMES = NAMES.with_roles(
    {
        **qwen2.EXPERTS,
        "experts.router": "mlp.gate.wg",
        "shared.gate": "mlp.shared_mlp.gate_proj",
        "shared.up": "mlp.shared_mlp.up_proj",
        "shared.down": "mlp.shared_mlp.down_proj",
    },
    without=("mlp.gate", "mlp.up", "mlp.down"),
)


def hunyuan_v1_moe(config: Config) -> Spec:
    """The Spec of a Hunyuan MoE: Hunyuan with experts in every layer, and one more that serves every
    token. Source: Tencent, 2025.

    The shares of the chosen experts sum to 1. Each layer may have another number of experts.
    """
    layers = llama.depth(config)
    counts = _numbers_by_layer(config, layers, "num_experts")
    chosen = _numbers_by_layer(config, layers, "moe_topk", "num_experts_per_tok")
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="silu")
    width = config.integer("intermediate_size")
    shared = Mlp(width, activation, gated=True)
    blocks = [
        block(config, Experts(count, best, width, activation, renormalise=True, shared=shared))
        for count, best in zip(counts, chosen, strict=True)
    ]
    return whole_model(config, blocks)


def _numbers_by_layer(config: Config, layers: int, *keys: str) -> list[int]:
    """A whole number for each of `layers` layers: the config's value, the first of the keys that is
    set, may be one number for all layers or a list."""
    values = config.get(*keys)
    if not isinstance(values, list):
        return [config.integer(*keys, default=1, most=2**16)] * layers
    key = next(key for key in keys if config.values.get(key) is not None)
    config.list_of(key, kind=int, count=layers)  # raises for another length
    # a Config for each entry, so that `integer` checks it and names the key
    return [Config({key: value}, config.where).integer(key, most=2**16) for value in values]


FAMILIES = {
    "hunyuan_v1_dense": Family(spec, NAMES, fixed=NORMED),
    "hunyuan_v1_moe": Family(hunyuan_v1_moe, HUNYUAN_V1_MOE_NAMES, fixed=NORMED),
}
