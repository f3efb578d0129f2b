"""StableLM: Llama with layer norms and partly rotated heads. Source: Bellagente et al., 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Norm, Place, QkNorm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family, StackedTensor

NAMES = llama.NAMES.with_roles(
    {
        "attn.q_norm": StackedTensor("self_attn.q_layernorm.norms.{item}"),
        "attn.k_norm": StackedTensor("self_attn.k_layernorm.norms.{item}"),
    }
)


def spec(config: Config) -> Spec:
    """The Spec of a StableLM."""
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    biases = ("attn.in", "mlp.in", "final", *(("attn.[qkv]",) if config.flag("use_qkv_bias", default=False) else ()))
    parallel = config.flag("use_parallel_residual", default=False)
    norms: dict[Place, Norm] = {"attn.in": norm} if parallel else {"attn.in": norm, "mlp.in": norm}
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=0.25),
        qk_norm=QkNorm(norm, over="own") if config.flag("qk_layernorm", default=False) else None,
        norms=norms,
        parallel=parallel,
        kv_heads=32,
    )
    return llama.decoder(config, "stablelm", [block] * llama.depth(config), final=norm, biases=biases)


FAMILY = Family(spec, NAMES)
