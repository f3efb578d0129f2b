"""MiniMax-01: lightning attention, a linear attention whose heads fade by fixed numbers, in place of attention in most
layers; experts; and branches that are added to what a norm gives. Source: MiniMax, 2025."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Block, Experts, LinearAttention, Norm, Spec
from attncli.models.config import ACTIVATIONS, GLOBAL, Config, causal, rope
from attncli.models.families import llama, mixtral, qwen3_next
from attncli.models.family import Family, GroupedTensor

LINEAR = qwen3_next.LINEAR

NAMES = replace(
    mixtral.NAMES.with_roles(
        {
            "mixer.q mixer.k mixer.v": GroupedTensor("self_attn.qkv_proj"),
            "mixer.gate": "self_attn.output_gate",
            "mixer.norm": "self_attn.norm",
            "mixer.output": "self_attn.out_proj",
            "attn.sum": "post_attention_layernorm",
        },
        without=("mlp.in",),
    ),
    ignored=(*llama.NAMES.ignored, "layers.*.self_attn.slope_rate", "layers.*.self_attn.*_decay"),
)
"""Slopes and their powers follow from the number of heads and layers."""


def spec(config: Config) -> Spec:
    """The Spec of a MiniMax-01. How much of the stream stays and how much a branch adds changes weights as they are
    read."""
    layers, count = llama.depth(config), config.whole("num_local_experts", "num_experts", default=8, most=2**16)
    norm, dim = llama.rms(config, default=1e-5), llama.head_dim(config)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=2, most=count),
        config.whole("intermediate_size", default=14336),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=True,
    )
    block = llama.block(
        config,
        position=rope(config, dim, default_theta=1e6),
        dim=dim,
        mask=causal(config.optional("sliding_window")),
        kv_heads=8,
        norms={"attn.in": norm, "attn.sum": norm},
        mlp=experts,
    )
    block = replace(block, normed=True)
    kinds = config.list_of("layer_types", kind=str, count=layers) or [
        LINEAR if layer % 2 else GLOBAL for layer in range(layers)
    ]
    if not set(kinds) <= {LINEAR, GLOBAL}:
        raise config.refuse("layer_types", f"{GLOBAL}, {LINEAR}")
    config.get("block_size")  # how a library cuts its text
    attending = replace(block, factors=_factors(config, "full_attn", ("attn.q", "attn.k", "attn.v"), "attn.o"))
    entering = tuple(f"mixer.{name}" for name in ("q", "k", "v", "gate"))
    factors = _factors(config, "linear_attn", entering, "mixer.output")
    blocks: list[Block] = []
    for layer, kind in enumerate(kinds):
        share = 1 - layer / (layers - 1 + 1e-5) + 1e-5
        mixer = LinearAttention(block.attention.heads, dim, share, experts.activation, Norm("rms", 1e-6))
        blocks.append(attending if kind == GLOBAL else replace(block, factors=factors).mixing(mixer))
    return llama.decoder(config, "minimax", blocks, final=norm, biases=())


def _factors(config: Config, kind: str, entering: tuple[str, ...], leaving: str) -> dict[str, float]:
    """α·x + β·f(x), with x the norm's result, as x' + f'(x'), where x' = α·x: α multiplies the norm's weights and
    divides those of what reads it; β multiplies those of what writes."""
    factors: dict[str, float] = {}
    parts = (
        (kind, "attn.in", entering, leaving),
        ("mlp", "attn.sum", ("experts.router", "experts.gate", "experts.up"), "experts.down"),
    )
    for key, norm, reading, writing in parts:
        kept = config.number(f"{key}_alpha_factor", default=1.0)
        factors |= {f"{norm}.weight": kept} | {f"{role}.weight": 1 / kept for role in reading}
        factors[f"{writing}.weight"] = config.number(f"{key}_beta_factor", default=1.0)
    return {role: factor for role, factor in factors.items() if factor != 1.0}


FAMILIES = {"minimax": Family(spec, NAMES)}
