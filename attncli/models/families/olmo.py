"""OLMo: Llama with layer norms that have no weights, and projections that may be cut off. Source: Groeneveld et al.,
2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Norm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of an OLMo."""
    norm = Norm("layer", 1e-5, affine=False)
    block = llama.block(config, position=rope(config, llama.head_dim(config)), norms={"attn.in": norm, "mlp.in": norm})
    block = replace(block, attention=replace(block.attention, clip=config.cap("clip_qkv", None)))
    return llama.decoder(config, "olmo", [block] * llama.depth(config), final=norm)


FAMILY = Family(spec, llama.NAMES, permuted=True)
