"""GPT-2: pre-norm decoder with learned positions; its matrices are stored [in, out]. Source:
Radford et al., 2019.
"""

from __future__ import annotations

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Concat, Family, Names, TrainedSizes

NAMES = Names(
    layer="h.{layer}.",
    inside={
        "attn.in": "ln_1",
        "attn.q attn.k attn.v": Concat("attn.c_attn"),
        "attn.o": "attn.c_proj",
        "mlp.in": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
    outside={"tokens": "wte", "positions": "wpe", "final": "ln_f", "head": "lm_head"},
    prefixes=("transformer.",),
    ignored=(
        "h.*.attn.bias",
        "h.*.attn.masked_bias",
        "lm_head.*",
        "score.*",
        "multiple_choice_head.*",
        "classifier.*",
    ),
    transposed=True,
)

FIXED = {"add_cross_attention": FixedValue(False, "cross-attention would be added to each layer")}


def spec(config: Config) -> Spec:
    """The Spec of a GPT-2, as its config describes it."""
    width = config.integer("n_embd", "hidden_size")
    heads = config.heads(width, "n_head", "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    inner = config.integer("n_inner", default=4 * width)
    mlp = Mlp(inner, config.choice("activation_function", among=ACTIVATIONS, default="gelu_new"))

    # the scores may be divided by the layer's number, too
    if config.flag("scale_attn_weights", default=True):
        scale = dim**-0.5
    else:
        scale = 1.0
    by_layer = config.flag("scale_attn_by_inverse_layer_idx", default=False)
    # the same mathematics, guarded against float16's overflow
    config.flag("reorder_and_upcast_attn", default=False)
    blocks = []
    for layer in range(config.integer("n_layer", "num_hidden_layers", most=MOST_LAYERS)):
        attention = Attention(
            heads,
            kv_heads=heads,
            head_dim=dim,
            v_dim=dim,
            scale=scale / (layer + 1) if by_layer else scale,
            mask=Causal(),
        )
        blocks.append(Block(attention, mlp, {"attn.in": norm, "mlp.in": norm}))

    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=tuple(blocks),
        embedding=Embedding(positions="learned"),
        final_norm=norm,
        max_positions=config.integer("n_positions", "max_position_embeddings", default=1024),
        head=Head(tied=config.flag("tie_word_embeddings", default=True)),
        biases=("*",),
    )


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small GPT-2 with an output head of its own, and the name of its class in
    transformers.
    """
    return {
        "n_layer": sizes.layers,
        "n_head": sizes.heads,
        "n_embd": sizes.width,
        "n_inner": sizes.inner,
        "n_positions": sizes.positions,
        "vocab_size": sizes.vocabulary,
        "scale_attn_weights": sizes.scaled,
        "tie_word_embeddings": False,
    }, "GPT2LMHeadModel"


FAMILIES = {"gpt2": Family(spec, NAMES, fixed=FIXED, config=small_config)}
