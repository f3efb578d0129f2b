"""GTE: BERT with rotary positions and a gated feed-forward part. Source: Zhang et al., mGTE, 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Mlp, Spec
from attncli.models.config import Config, rope
from attncli.models.families import bert
from attncli.models.family import Concat, Family, Names

NAMES = Names(
    layer="encoder.layer.{layer}.",
    inside={
        "attn.q attn.k attn.v": Concat("attention.qkv_proj"),
        "attn.o": "attention.o_proj",
        "attn.sum": "attn_ln",
        "mlp.up mlp.gate": Concat("mlp.up_gate_proj"),
        "mlp.down": "mlp.down_proj",
        "mlp.sum": "mlp_ln",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "embeddings.LayerNorm",
    },
    prefixes=("new.", "gte."),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of a GTE."""
    base = with_rotary(bert.spec(config, types=1), config, 160000.0)
    part = base.blocks[0].mlp
    feed_forward = replace(part, gated=True) if isinstance(part, Mlp) else part
    return replace(
        base,
        family="gte",
        blocks=tuple(replace(block, mlp=feed_forward) for block in base.blocks),
        biases=("attn.*", "mlp.down", "mlp.sum", "embed.norm"),
    )


def with_rotary(base: Spec, config: Config, theta: float) -> Spec:
    """A BERT with rotary positions in place of learned ones. theta: the base that the config means by silence."""
    position = rope(config, base.blocks[0].attention.head_dim, default_theta=theta)
    return replace(
        base,
        blocks=tuple(replace(block, attention=replace(block.attention, position=position)) for block in base.blocks),
        embedding=replace(base.embedding, positions=None),
        max_positions=None,
    )


JINA_EMBEDDINGS_V3_NAMES = Names(
    layer="encoder.layers.{layer}.",
    inside={
        "attn.q attn.k attn.v": Concat("mixer.Wqkv"),
        "attn.o": "mixer.out_proj",
        "attn.sum": "norm1",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
        "mlp.sum": "norm2",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "emb_ln",
    },
    prefixes=("roberta.",),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)


def jina_embeddings_v3(config: Config) -> Spec:
    """Jina Embeddings 3: XLM-RoBERTa with rotary positions. Source: Sturua et al., 2024.

    Its adapters are merged or left out.
    """
    base = with_rotary(bert.spec(config, eps=1e-5, types=1), config, 20000.0)
    return replace(base, family="jina_embeddings_v3")


FAMILIES = {
    "gte": Family(spec, NAMES),
    "jina_embeddings_v3": Family(jina_embeddings_v3, JINA_EMBEDDINGS_V3_NAMES),
}
