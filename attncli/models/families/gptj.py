"""GPT-J: attention and feed-forward in parallel, adjacent entries rotated. Source: Wang and Komatsuzaki, 2021."""

from __future__ import annotations

from attncli.errors import InputError
from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Head, Mlp, Norm, Rope, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names

NAMES = Names(
    layer="h.{layer}.",
    inside={
        "attn.in": "ln_1",
        "attn.q": "attn.q_proj",
        "attn.k": "attn.k_proj",
        "attn.v": "attn.v_proj",
        "attn.o": "attn.out_proj",
        "mlp.up": "mlp.fc_in",
        "mlp.down": "mlp.fc_out",
    },
    outside={"tokens": "wte", "final": "ln_f", "head": "lm_head"},
    prefixes=("transformer.",),
    ignored=(
        "h.*.attn.bias",
        "h.*.attn.masked_bias",
        "h.*.attn.embed_positions",
        "lm_head.*",
        "score.*",
        "qa_outputs.*",
    ),
)

FIXED = {
    "rotary": FixedValue(True, "positions would not be rotary"),
    "scale_attn_weights": FixedValue(True, "scores would not be scaled"),
}


def spec(config: Config) -> Spec:
    """The Spec of a GPT-J. Raises InputError for a `rotary_dim` that is odd or wider than a head."""
    width = config.whole("n_embd", "hidden_size")
    heads = config.heads(width, "n_head", "num_attention_heads")
    dim = width // heads
    rotary_dim = config.optional("rotary_dim", default=64) or dim
    if rotary_dim % 2 or rotary_dim > dim:
        raise InputError(
            "config.json sets rotary_dim to {rotary_dim}",
            where=config.where,
            expected="an even number up to {dim}",
            rotary_dim=rotary_dim,
            dim=dim,
        )
    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    block = Block(
        Attention(
            heads, heads, dim, dim, scale=dim**-0.5, mask=Causal(), position=Rope(rotary_dim, pairing="adjacent")
        ),
        Mlp(
            config.whole("n_inner", default=4 * width),
            config.choice("activation_function", among=ACTIVATIONS, default="gelu_new"),
        ),
        {"attn.in": norm},
        parallel=True,
    )
    config.whole("n_positions", "max_position_embeddings", default=2048)
    return Spec(
        family="gptj",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(block,) * config.whole("n_layer", "num_hidden_layers", most=MOST_LAYERS),
        final_norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", default=False)),
        biases=("attn.in", "mlp.*", "final"),
    )


FAMILIES = {"gptj": Family(spec, NAMES, fixed=FIXED)}
