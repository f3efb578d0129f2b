"""Falcon: parallel parts, keys shared by all heads or by groups, projections fused. Source:
Almazrouei et al., 2023.
"""

from __future__ import annotations

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Alibi, Attention, Block, Head, Mlp, Norm, Place, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue, rope
from attncli.models.family import Family, GroupedTensor, Names

NAMES = Names(
    layer="h.{layer}.",
    inside={
        "attn.in": "ln_attn|input_layernorm",
        "attn.q attn.k attn.v": GroupedTensor("self_attention.query_key_value"),
        "attn.o": "self_attention.dense",
        "mlp.in": "ln_mlp|post_attention_layernorm",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    outside={"tokens": "word_embeddings", "final": "ln_f", "head": "lm_head"},
    prefixes=("transformer.",),
    ignored=("lm_head.*", "score.*", "classifier.*", "qa_outputs.*"),
)

FIXED = {
    "apply_residual_connection_post_layernorm": FixedValue(
        False, "the residual would start after the norm"
    )
}


def spec(config: Config) -> Spec:
    """The Spec of a Falcon. A model whose heads all share one key and value stores them as one group
    of heads; the new architecture has several such groups."""
    width = config.integer("hidden_size", "n_embed")
    heads = config.heads(width, "num_attention_heads", "n_head")
    dim = width // heads
    is_new = config.flag("new_decoder_architecture", default=False)
    multi_query = config.flag("multi_query", default=True)
    kv_heads = config.integer("num_kv_heads", "n_head_kv", default=heads)
    if not is_new:  # whatever `num_kv_heads` says
        kv_heads = 1 if multi_query else heads

    # attention and feed-forward part in parallel, with one norm or two
    parallel = config.flag("parallel_attn", default=True) or is_new
    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    norm_count = config.integer("num_ln_in_parallel_attn", default=2 if is_new else 1)
    # only the new architecture gives parallel parts a norm each; else they share the one
    has_two_norms = is_new and norm_count == 2
    if has_two_norms or not parallel:
        norms: dict[Place, Norm] = {"attn.in": norm, "mlp.in": norm}
    else:
        norms = {"attn.in": norm}
    linear_biases: tuple[str, ...] = ()
    if config.flag("bias", default=False):
        linear_biases = ("attn.[qkvo]", "mlp.up", "mlp.down")
    # Falcon adds ALiBi before it scales the scores, and rounds it coarsely in any dtype
    alibi = Alibi(factor=dim**-0.5, coarse=True)
    position = alibi if config.flag("alibi", default=False) else rope(config, dim)

    block = Block(
        Attention(
            heads,
            kv_heads,
            head_dim=dim,
            v_dim=dim,
            scale=dim**-0.5,
            mask=Causal(),
            position=position,
        ),
        Mlp(
            config.integer("ffn_hidden_size", default=4 * width),
            config.choice("activation", among=ACTIVATIONS, default="gelu"),
        ),
        norms,
        parallel=parallel,
    )
    # every config.json has these keys, also with ALiBi: read here so that none counts as unknown
    config.get("max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters")
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(block,) * config.integer("num_hidden_layers", "n_layer", most=MOST_LAYERS),
        final_norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", default=True)),
        biases=("attn.in", "mlp.in", "final", *linear_biases),
    )


FAMILIES = {"falcon": Family(spec, NAMES, fixed=FIXED)}
