"""Jina Embeddings 3: XLM-RoBERTa with rotary positions. Source: Sturua et al., 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import bert, gte
from attncli.models.family import Concat, Family, Names

NAMES = Names(
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


def spec(config: Config) -> Spec:
    """The Spec of a Jina Embeddings 3 model, its adapters merged or left out."""
    base = gte.with_rotary(bert.spec(config, eps=1e-5, types=1), config, 20000.0)
    return replace(base, family="jina_embeddings_v3")


FAMILY = Family(spec, NAMES)
