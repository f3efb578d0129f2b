"""Granite 4: Granite with Mamba 2 in place of attention in most layers, and experts beside a part that serves every
token, or that part alone. Source: Granite Team, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Experts, Mlp, Spec
from attncli.models.config import ACTIVATIONS, GLOBAL, Config, rope
from attncli.models.families import bamba, granite, llama
from attncli.models.family import Concat, Family

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

NAMES = granite.GRANITEMOE_NAMES.with_roles(
    {
        **bamba.MIXER,
        "shared.gate shared.up": Concat("shared_mlp.input_linear"),
        "shared.down": "shared_mlp.output_linear",
        "mlp.gate mlp.up": Concat("shared_mlp.input_linear"),
        "mlp.down": "shared_mlp.output_linear",
    }
)

KINDS = {"mamba": False, "linear_attention": False, "attention": True, GLOBAL: True}
"""Whether a type of layer attends."""


def spec(config: Config) -> Spec:
    """The Spec of a Granite 4."""
    count, mixer = llama.depth(config), bamba.state_space(config, 1e-6)
    kinds = config.list_of("layer_types", kind=str, count=count) or config.list_of(
        "layers_block_type", kind=str, count=count
    )
    kinds = kinds or ["mamba"] * count
    if not set(kinds) <= set(KINDS):
        raise config.refuse("layer_types", ", ".join(KINDS))
    rotates = config.get("position_embedding_type") == "rope"
    position = rope(config, llama.head_dim(config))
    block = llama.block(
        config,
        position=position if rotates else None,
        scale=config.number("attention_multiplier", default=1.0),
        mlp=_part(config),
    )
    block = replace(block, branch_scale=config.number("residual_multiplier", default=1.0))
    return llama.decoder(
        config,
        "granitemoehybrid",
        [block if KINDS[kind] else block.mixing(mixer) for kind in kinds],
        embedding=Embedding(scale=config.number("embedding_multiplier", default=1.0)),
        logit_scale=1.0 / config.number("logits_scaling", default=1.0),
        biases=(*llama.linear_biases(config), *bamba.biases(config)),
    )


def _part(config: Config) -> Mlp | Experts:
    """The feed-forward part: a gated one, with experts beside it where there are any."""
    shared = Mlp(
        config.whole("shared_intermediate_size", default=1024),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        gated=True,
    )
    count = config.optional("num_local_experts", default=8, least=0)
    width = config.optional("intermediate_size", default=11008)
    chosen = config.optional("num_experts_per_tok", default=2, least=0)
    if not count or not width or not chosen:
        return shared
    return Experts(count, min(chosen, count), width, shared.activation, renormalise=True, shared=shared)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What GGUF files say by silence: that there are no experts."""
    return {"num_local_experts": metadata.own("expert_count") or 0}


FAMILIES = {"granitemoehybrid": Family(spec, NAMES, permuted=True, gguf=gguf_keys)}
