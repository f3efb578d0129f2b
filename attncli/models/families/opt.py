"""OPT: learned positions that start at row 2; the 350m model is post-norm with a narrower token
table. Source: Zhang et al., 2022."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Place, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config
from attncli.models.family import Family, Names

POST = {"attn.sum": "self_attn_layer_norm", "mlp.sum": "final_layer_norm"}

NAMES = Names(
    layer="decoder.layers.{layer}.",
    inside={
        "attn.in": "self_attn_layer_norm",
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.out_proj",
        "mlp.in": "final_layer_norm",
        "mlp.up": "fc1",
        "mlp.down": "fc2",
        **POST,
    },
    outside={
        "tokens": "decoder.embed_tokens",
        "positions": "decoder.embed_positions",
        "embed.project": "decoder.project_in",
        "final": "decoder.final_layer_norm",
        "head": "lm_head",
        "head.project": "decoder.project_out",
    },
    prefixes=("model.",),
    ignored=("decoder.project_out.*", "lm_head.*", "score.*", "qa_outputs.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of an OPT, pre-norm, or post-norm with narrower token vectors as its 350m model."""
    width = config.integer("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", 1e-5, affine=config.flag("layer_norm_elementwise_affine", default=True))
    before = config.flag("do_layer_norm_before", default=True)
    if before:
        places: tuple[Place, ...] = ("attn.in", "mlp.in")
    else:
        places = ("attn.sum", "mlp.sum")
    block = Block(
        Attention(heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=dim**-0.5, mask=Causal()),
        Mlp(
            config.integer("ffn_dim"),
            config.choice("activation_function", among=ACTIVATIONS, default="relu"),
        ),
        dict.fromkeys(places, norm),
    )

    # token vectors of their own width are projected to the layers' width, and back for the head;
    # positions begin at row 2 of their table
    narrow = config.integer("word_embed_proj_dim", default=width)
    embedding = Embedding(positions="learned", position_offset=2)
    if narrow != width:
        embedding = replace(embedding, width=narrow, projection="tokens")
    no_final_norm = config.flag("_remove_final_layer_norm", default=False)
    if config.flag("enable_bias", default=True):
        biases = ("attn.*", "mlp.*", "final")
    else:  # of norms alone
        biases = ("*.in", "*.sum", "final")
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(block,) * config.integer("num_hidden_layers", most=MOST_LAYERS),
        embedding=embedding,
        final_norm=norm if before and not no_final_norm else None,
        max_positions=config.integer("max_position_embeddings", default=2048),
        head=Head(
            tied=config.flag("tie_word_embeddings", default=True), projection=narrow != width
        ),
        biases=biases,
    )


FAMILIES = {"opt": Family(spec, NAMES)}
