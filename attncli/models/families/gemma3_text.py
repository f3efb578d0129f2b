"""Gemma 3 (text) and EmbeddingGemma: normed queries and keys, five local layers to a global one. Source: Gemma Team,
2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.mechanism.mask import Everywhere, Mask, Window
from attncli.mechanism.spec import QkNorm, Spec
from attncli.models.config import LOCAL, Config, FixedValue, causal, layer_types, rope
from attncli.models.families import gemma, gemma2, llama
from attncli.models.family import Family

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

LARGEST_DEPTH = 62
"""Layers of the model of 27 billion weights, whose scores are scaled by the width shared out among the heads."""

NAMES = gemma2.NAMES.with_roles({"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"})

FIXED = {"attn_logit_softcapping": FixedValue(None, "scores would be capped, which no model of this family does")}


def spec(config: Config) -> Spec:
    """The Spec of a Gemma 3. Scaling of the rotary embedding is for its global layers only."""
    dim = llama.head_dim(config, gemma.HEAD_DIM)
    norm, mlp = llama.rms(config, unit_offset=True), gemma2.mlp(config)
    window = config.whole("sliding_window", default=4096)
    every = config.whole("sliding_window_pattern", default=6)
    config.get("_sliding_window_pattern")  # repeats `layer_types`
    both_ways = config.flag("use_bidirectional_attention", default=False)
    blocks = []
    for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every)):
        local = kind == LOCAL
        base, default = ("rope_local_base_freq", 10000.0) if local else ("rope_theta", 1e6)
        blocks.append(
            llama.block(
                config,
                position=rope(config, dim, kind=kind, theta=(base,), default_theta=default, scaled=not local),
                dim=dim,
                mask=_mask(window if local else None, both_ways),
                scale=gemma2.query_scale(config),
                qk_norm=QkNorm(norm),
                norms=gemma2.sandwich(norm),
                mlp=mlp,
                kv_heads=4,
            )
        )
    logit_cap = config.cap("final_logit_softcapping", None)
    return llama.decoder(
        config, "gemma3_text", blocks, final=norm, embedding=gemma.embedding(config), tied=True, logit_cap=logit_cap
    )


def _mask(window: int | None, both_ways: bool) -> Mask:
    if not both_ways:
        return causal(window)
    return Everywhere() if window is None else Window(window // 2, window // 2)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What GGUF files leave out: the scale of the scores, of the head's width but in the largest model."""
    width, heads = metadata.own("embedding_length"), metadata.own("attention.head_count")
    largest = metadata.own("block_count") == LARGEST_DEPTH and isinstance(width, int) and isinstance(heads, int)
    return {"query_pre_attn_scalar": width // heads if largest else metadata.own("attention.key_length")}


FAMILY = Family(spec, NAMES, fixed=FIXED, gguf=gguf_keys)
