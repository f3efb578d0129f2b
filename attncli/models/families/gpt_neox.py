"""GPT-NeoX and Pythia: fused projections by head, partly rotated heads, parallel parts with two norms. Source: Black
et al., 2022."""

from __future__ import annotations

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Head, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue, rope
from attncli.models.family import Family, GroupedTensor, Names, TrainedSizes

NAMES = Names(
    layer="layers.{layer}.",
    inside={
        "attn.in": "input_layernorm",
        "attn.q attn.k attn.v": GroupedTensor("attention.query_key_value"),
        "attn.o": "attention.dense",
        "mlp.in": "post_attention_layernorm",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    outside={"tokens": "embed_in", "final": "final_layer_norm", "head": "embed_out|lm_head"},
    prefixes=("gpt_neox.",),
    ignored=(
        "layers.*.attention.bias",
        "layers.*.attention.masked_bias",
        "embed_out.*",
        "lm_head.*",
        "score.*",
        "qa_outputs.*",
    ),
)


def spec(config: Config) -> Spec:
    """The Spec of a GPT-NeoX."""
    width = config.whole("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    position = rope(config, dim, theta=("rotary_emb_base",), partial=("rotary_pct",), default_partial=0.25)
    block = Block(
        Attention(heads, heads, dim, dim, scale=dim**-0.5, mask=Causal(), position=position),
        Mlp(config.whole("intermediate_size"), config.choice("hidden_act", among=ACTIVATIONS, default="gelu")),
        {"attn.in": norm, "mlp.in": norm},
        parallel=config.flag("use_parallel_residual", default=True),
    )
    return Spec(
        family="gpt_neox",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(block,) * config.whole("num_hidden_layers", most=MOST_LAYERS),
        final_norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", default=False)),
        biases=(
            "attn.in",
            "mlp.*",
            "final",
            *(("attn.[qkvo]",) if config.flag("attention_bias", default=True) else ()),
        ),
    )


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small GPT-NeoX whose heads rotate whole, one part after the other."""
    return {
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "vocab_size": sizes.vocabulary,
        "rotary_pct": 1.0,
        "rotary_emb_base": 10000,
        "use_parallel_residual": False,
        "tie_word_embeddings": False,
    }, "GPTNeoXForCausalLM"


FAMILIES = {
    "gpt_neox": Family(
        spec, NAMES, fixed={"is_decoder": FixedValue(False, "the same model under another flag")}, config=small_config
    )
}
