"""Granite: Llama with multipliers on embeddings, scores, branches and logits; with experts; and,
from Granite 4 on, with Mamba 2 in place of attention in most layers. Source: Granite Team, 2024."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.spec import Block, Embedding, Experts, Mlp, Spec
from attncli.models.config import ACTIVATIONS, GLOBAL, Config, rope
from attncli.models.families import bamba, llama
from attncli.models.family import Concat, Family, PerExpert


def spec(config: Config) -> Spec:
    """The Spec of a Granite: Llama with multipliers on embeddings, scores, branches and logits."""
    return whole_model(config, block(config))


def block(config: Config, mlp: Mlp | Experts | None = None, *, rotates: bool = True) -> Block:
    """One layer of a Granite, with multipliers on its scores and on what its parts add to the stream.

    mlp: its feed-forward part or experts; None for the gated part of the config.
    rotates: whether it has rotary positions.
    """
    position = rope(config, llama.head_dim(config))
    scale = config.number("attention_multiplier", default=1.0)
    layer = llama.block(config, position=position if rotates else None, scale=scale, mlp=mlp)
    return replace(layer, branch_scale=config.number("residual_multiplier", default=1.0))


def whole_model(
    config: Config, blocks: Block | Sequence[Block], biases: tuple[str, ...] | None = None
) -> Spec:
    """The Spec of a Granite with these layers; multipliers that the config does not set are 1.

    blocks: one for all layers, or a list.
    biases: patterns of the roles that have a bias; None for those that the config switches on.
    """
    embedding = Embedding(scale=config.number("embedding_multiplier", default=1.0))
    logit_scale = 1.0 / config.number("logits_scaling", default=1.0)
    return llama.decoder(
        config, blocks, embedding=embedding, logit_scale=logit_scale, biases=biases
    )


GRANITEMOE_NAMES = llama.NAMES.with_roles(
    {
        "experts.router": "block_sparse_moe.router.layer",
        "experts.gate experts.up": PerExpert("block_sparse_moe.input_linear"),
        "experts.down": "block_sparse_moe.output_linear",
    },
    without=("mlp.gate", "mlp.up", "mlp.down"),
)


def granitemoe(config: Config) -> Spec:
    """The Spec of a Granite MoE: Granite with experts, the shares of the chosen ones summing to 1.
    Source: Granite Team, 2024.
    """
    return whole_model(
        config, block(config, llama.experts(config, default_count=8, default_per_token=2))
    )


GRANITEMOEHYBRID_NAMES = GRANITEMOE_NAMES.with_roles(
    {
        **bamba.MIXER,
        "shared.gate shared.up": Concat("shared_mlp.input_linear"),
        "shared.down": "shared_mlp.output_linear",
        "mlp.gate mlp.up": Concat("shared_mlp.input_linear"),
        "mlp.down": "shared_mlp.output_linear",
    }
)

ATTENDS = {"mamba": False, "linear_attention": False, "attention": True, GLOBAL: True}
"""Whether a type of layer attends."""


def granitemoehybrid(config: Config) -> Spec:
    """The Spec of a Granite 4: Granite with Mamba 2 in place of attention in most layers, and a
    feed-forward part for every token, with experts beside it or without. Source: Granite Team, 2025.
    """
    count = llama.depth(config)
    mixer = bamba.state_space(config, default_eps=1e-6)
    kinds = config.list_of("layer_types", kind=str, count=count)
    if not kinds:  # an older key
        kinds = config.list_of("layers_block_type", kind=str, count=count)
    if not kinds:
        kinds = ["mamba"] * count
    if not set(kinds) <= set(ATTENDS):
        raise config.refuse("layer_types", ", ".join(ATTENDS))
    # anything but "rope" means no positions
    rotates = config.get("position_embedding_type") == "rope"
    attending = block(config, _shared_experts(config), rotates=rotates)
    mixing = attending.with_mixer(mixer)
    blocks = [attending if ATTENDS[kind] else mixing for kind in kinds]
    return whole_model(config, blocks, (*llama.linear_biases(config), *bamba.biases(config)))


def _shared_experts(config: Config) -> Mlp | Experts:
    """The feed-forward part of a Granite 4: a gated one for every token, and experts besides where
    the config has any.
    """
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="silu")
    shared = Mlp(config.integer("shared_intermediate_size", default=1024), activation, gated=True)
    count = config.optional("num_local_experts", default=8, least=0)
    width = config.optional("intermediate_size", default=11008)
    chosen = config.optional("num_experts_per_tok", default=2, least=0)
    if not count or not width or not chosen:
        return shared
    return Experts(count, min(chosen, count), width, activation, renormalise=True, shared=shared)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files lack: the number of experts, 0 where the file does not
    say.
    """
    return {"num_local_experts": metadata.architecture_value("expert_count") or 0}


FAMILIES = {
    "granite": Family(spec, llama.NAMES, permuted=True),
    "granitemoe": Family(granitemoe, GRANITEMOE_NAMES, permuted=True),
    "granitemoehybrid": Family(
        granitemoehybrid, GRANITEMOEHYBRID_NAMES, permuted=True, gguf=gguf_keys
    ),
}
