"""Mixtral: Mistral with experts. Source: Jiang et al., 2024."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from attncli.mechanism.spec import Block, LinearAttention, Norm, QkNorm, Routing, Spec
from attncli.models.config import GLOBAL, NORMED, Config, causal, rope
from attncli.models.families import llama, qwen3_next
from attncli.models.family import Family, GroupedTensor, StackedTensor

NAMES = llama.NAMES.with_roles(
    {
        "experts.router": "block_sparse_moe.gate",
        "experts.gate": StackedTensor("block_sparse_moe.experts.{item}.w1"),
        "experts.up": StackedTensor("block_sparse_moe.experts.{item}.w3"),
        "experts.down": StackedTensor("block_sparse_moe.experts.{item}.w2"),
    }
)


def spec(config: Config) -> Spec:
    """The Spec of a Mixtral: Mistral with experts in every layer, two of eight for each token."""
    experts = llama.experts(config, default_count=8, default_per_token=2)
    norm = llama.rms(config, default=1e-5)
    mask = causal(config.optional("sliding_window"))
    position = rope(config, llama.head_dim(config), default_theta=1e6)
    block = llama.block(
        config, position=position, mask=mask, norm=norm, mlp=experts, default_kv_heads=8
    )
    return llama.decoder(config, block)


COUNT_KEYS = ("num_local_experts", "num_experts")

MINIMAX_NAMES = replace(
    NAMES.with_roles(
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


def minimax(config: Config) -> Spec:
    """The Spec of a MiniMax-01: in most layers lightning attention (linear attention with a fixed
    decay for each head) in place of softmax attention; experts; branches are added to the norm's
    result. Source: MiniMax, 2025.

    The factors on the stream and on what a branch adds are multiplied into the weights as these are
    read (`_branch_factors`).
    """
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config)
    experts = llama.experts(
        config, default_count=8, default_per_token=2, default_width=14336, count_keys=COUNT_KEYS
    )
    block = llama.block(
        config,
        position=rope(config, dim, default_theta=1e6),
        dim=dim,
        mask=causal(config.optional("sliding_window")),
        default_kv_heads=8,
        norm=norm,
        places=("attn.in", "attn.sum"),  # norms before the attention and before the experts
        mlp=experts,
    )

    # where the config lists no types, every other layer has linear attention
    kinds = qwen3_next.layer_types(config, lambda layer: bool(layer % 2))
    config.get("block_size")  # how transformers cuts the text: it changes no result
    attention_roles = [f"attn.{name}" for name in "qkv"]
    mixer_roles = [f"mixer.{name}" for name in (*"qkv", "gate")]
    # the layer with softmax attention and the one with linear attention; `normed`: branches are added
    # to the norm's result
    attending = replace(
        block, normed=True, factors=_branch_factors(config, "full_attn", attention_roles, "attn.o")
    )
    mixing = replace(
        block,
        normed=True,
        factors=_branch_factors(config, "linear_attn", mixer_roles, "mixer.output"),
    )
    blocks: list[Block] = []
    for layer, kind in enumerate(kinds):
        # decays are slower in later layers, by the formula of the published code, with its 1e-5
        # against a division by 0; the decay of each head is multiplied by `share`
        share = 1 - layer / (len(kinds) - 1 + 1e-5) + 1e-5
        mixer = LinearAttention(
            block.attention.heads, dim, share, experts.activation, Norm("rms", 1e-6)
        )
        blocks.append(attending if kind == GLOBAL else mixing.with_mixer(mixer))
    return llama.decoder(config, blocks, biases=())


def _branch_factors(
    config: Config, kind: str, entering: Sequence[str], leaving: str
) -> dict[str, float]:
    """The factors by which a layer's weights are multiplied so that its branches need none, by role;
    only those other than 1.

    The layer computes α·x + β·f(x), with x the norm's result. That is x' + f'(x') with x' = α·x: α
    multiplies the norm's weights and divides those of what reads it; β multiplies those of what
    writes.
    kind: "full_attn" or "linear_attn", as the keys of α and β begin.
    entering: the roles that read the attention's or mixer's input.
    leaving: the role of its output projection.
    """
    factors: dict[str, float] = {}
    # of each part: how its keys begin, its norm, the roles that read, and the one that writes
    parts = (
        (kind, "attn.in", entering, leaving),
        ("mlp", "attn.sum", ("experts.router", "experts.gate", "experts.up"), "experts.down"),
    )
    for key, norm, reading, writing in parts:
        alpha = config.number(f"{key}_alpha_factor", default=1.0)
        beta = config.number(f"{key}_beta_factor", default=1.0)
        factors[f"{norm}.weight"] = alpha
        factors |= {f"{role}.weight": 1 / alpha for role in reading}
        factors[f"{writing}.weight"] = beta
    return {role: factor for role, factor in factors.items() if factor != 1.0}


MINIMAX_M2_NAMES = NAMES.with_roles(
    {
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "experts.correction": "block_sparse_moe.e_score_correction_bias",
    }
)


def minimax_m2(config: Config) -> Spec:
    """The Spec of a MiniMax-M2: Mixtral whose experts are scored by a sigmoid each, with queries and
    keys normed over all heads at once. Source: MiniMax, 2025.
    """
    experts = llama.experts(
        config, default_count=256, default_per_token=8, default_width=1536, count_keys=COUNT_KEYS
    )
    experts = replace(experts, routing=Routing("sigmoid", corrected=True))
    dim = llama.head_dim(config, default=128)
    share = config.integer("rotary_dim", default=dim) / dim
    position = rope(config, dim, default_theta=5e6, default_partial=share)
    normed = QkNorm(llama.rms(config), over="width")
    block = llama.block(
        config, position=position, dim=dim, qk_norm=normed, default_kv_heads=8, mlp=experts
    )
    return llama.decoder(config, block, biases=())


FAMILIES = {
    "mixtral": Family(spec, NAMES, permuted=True),
    "minimax": Family(minimax, MINIMAX_NAMES),
    "minimax_m2": Family(minimax_m2, MINIMAX_M2_NAMES, fixed=NORMED),
}
