"""BERT. Post-norm encoder with learned positions and token types. Source: Devlin et al., 2018."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names, TrainedSizes

TASK_HEADS = ("pooler.*", "cls.*", "classifier.*", "qa_outputs.*", "dropout.*")

NAMES = Names(
    layer="encoder.layer.{layer}.",
    inside={
        "attn.q": "attention.self.query",
        "attn.k": "attention.self.key",
        "attn.v": "attention.self.value",
        "attn.o": "attention.output.dense",
        "attn.sum": "attention.output.LayerNorm",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
        "mlp.sum": "output.LayerNorm",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "embeddings.LayerNorm",
    },
    prefixes=("bert.",),
    ignored=TASK_HEADS,
)

FIXED = {
    "position_embedding_type": FixedValue("absolute", "relative positions would enter the scores"),
    "is_decoder": FixedValue(False, "a decoder would see only earlier tokens"),
    "add_cross_attention": FixedValue(False, "cross-attention would be added to each layer"),
}


def spec(config: Config, *, activation: str = "gelu", eps: float = 1e-12, types: int = 2) -> Spec:
    """The Spec of a BERT. activation, eps, types: what the config means by silence."""
    width = config.whole("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    norm = Norm("layer", config.number("layer_norm_eps", default=eps))
    block = Block(
        Attention(heads, heads, width // heads, width // heads, scale=(width // heads) ** -0.5),
        Mlp(config.whole("intermediate_size"), config.choice("hidden_act", among=ACTIVATIONS, default=activation)),
        {"attn.sum": norm, "mlp.sum": norm},
    )
    return Spec(
        family="bert",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(block,) * config.whole("num_hidden_layers", most=MOST_LAYERS),
        embedding=Embedding(
            positions="learned", types=config.whole("type_vocab_size", default=types, least=0), norm=norm
        ),
        max_positions=config.whole("max_position_embeddings", default=512),
        biases=("*",),
    )


def decoding(config: Config, base: Spec) -> Spec:
    """The Spec as it is, or, where the config makes the model a decoder, with queries that see no later token."""
    if not config.flag("is_decoder", default=False):
        return base
    blocks = (replace(block, attention=replace(block.attention, mask=Causal())) for block in base.blocks)
    return replace(base, blocks=tuple(blocks))


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small BERT."""
    return {
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "vocab_size": sizes.vocabulary,
        "type_vocab_size": 1,
    }, "BertModel"


FAMILY = Family(lambda config: decoding(config, spec(config)), NAMES, fixed=FIXED, config=small_config)
