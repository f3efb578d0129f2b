"""DistilBERT: BERT without token types, half as deep. Source: Sanh et al., 2019."""

from __future__ import annotations

from attncli.mechanism.spec import Attention, Block, Embedding, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config
from attncli.models.family import Family, Names

NAMES = Names(
    layer="transformer.layer.{layer}.",
    inside={
        "attn.q": "attention.q_lin",
        "attn.k": "attention.k_lin",
        "attn.v": "attention.v_lin",
        "attn.o": "attention.out_lin",
        "attn.sum": "sa_layer_norm",
        "mlp.up": "ffn.lin1",
        "mlp.down": "ffn.lin2",
        "mlp.sum": "output_layer_norm",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "embed.norm": "embeddings.LayerNorm",
    },
    prefixes=("distilbert.",),
    ignored=("vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of a DistilBERT. Sinusoidal positions are stored like learned ones."""
    width = config.whole("dim", "hidden_size", default=768)
    heads = config.heads(width, "n_heads", "num_attention_heads")
    config.flag("sinusoidal_pos_embds", default=False)
    norm = Norm("layer", 1e-12)
    block = Block(
        Attention(heads, heads, width // heads, width // heads, scale=(width // heads) ** -0.5),
        Mlp(config.whole("hidden_dim", default=3072), config.choice("activation", among=ACTIVATIONS, default="gelu")),
        {"attn.sum": norm, "mlp.sum": norm},
    )
    return Spec(
        family="distilbert",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(block,) * config.whole("n_layers", "num_hidden_layers", most=MOST_LAYERS),
        embedding=Embedding(positions="learned", norm=norm),
        max_positions=config.whole("max_position_embeddings", default=512),
        biases=("*",),
    )


FAMILIES = {"distilbert": Family(spec, NAMES)}
