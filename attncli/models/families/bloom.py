"""BLOOM: ALiBi, projections fused by head, a norm on the embedding. Source: BigScience, 2022."""

from __future__ import annotations

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Alibi, Attention, Block, Embedding, Head, Mlp, Norm, Spec
from attncli.models.config import MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, GroupedTensor, Names, TrainedSizes

NAMES = Names(
    layer="h.{layer}.",
    inside={
        "attn.in": "input_layernorm",
        "attn.q attn.k attn.v": GroupedTensor("self_attention.query_key_value"),
        "attn.o": "self_attention.dense",
        "mlp.in": "post_attention_layernorm",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    outside={
        "tokens": "word_embeddings",
        "embed.norm": "word_embeddings_layernorm",
        "final": "ln_f",
        "head": "lm_head",
    },
    prefixes=("transformer.",),
    ignored=("lm_head.*", "score.*", "classifier.*", "qa_outputs.*"),
)

FIXED = {
    "offset_alibi": FixedValue(100, "positions would be counted in another way"),
    "n_inner": FixedValue(None, "the feed-forward part would have another width"),
    "apply_residual_connection_post_layernorm": FixedValue(
        False, "the residual would start after the norm"
    ),
}


def spec(config: Config) -> Spec:
    """The Spec of a BLOOM. transformers' BLOOM adds m·j to the scores where ALiBi says −m·(i − j):
    the attention weights are the same, since the two differ by the same number in a whole row.
    """
    width = config.integer("hidden_size", "n_embed")
    heads = config.heads(width, "n_head", "num_attention_heads")
    dim = width // heads
    config.get("seq_length")  # what training used; positions have no end
    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    block = Block(
        Attention(
            heads,
            kv_heads=heads,
            head_dim=dim,
            v_dim=dim,
            scale=dim**-0.5,
            mask=Causal(),
            position=Alibi(),
        ),
        Mlp(4 * width, "gelu_bloom"),
        {"attn.in": norm, "mlp.in": norm},
    )
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(block,) * config.integer("n_layer", "num_hidden_layers", most=MOST_LAYERS),
        embedding=Embedding(norm=norm),
        final_norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", default=True)),
        biases=("*",),
    )


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small BLOOM with an output head of its own, whose feed-forward part is
    always four times as wide as the vectors, and the name of its class in transformers."""
    return {
        "n_layer": sizes.layers,
        "n_head": sizes.heads,
        "hidden_size": sizes.width,
        "vocab_size": sizes.vocabulary,
        "tie_word_embeddings": False,
    }, "BloomForCausalLM"


FAMILIES = {"bloom": Family(spec, NAMES, fixed=FIXED, config=small_config)}
