"""GPT-NeoX and Pythia: fused projections by head, partly rotated heads, parallel parts with two
norms. Source: Black et al., 2022."""

from __future__ import annotations

from attncli.errors import InputError
from attncli.language import message
from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Rope, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue, causal, rope
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

FIXED = {"is_decoder": FixedValue(False, "the same model under another flag")}


def spec(config: Config) -> Spec:
    """The Spec of a GPT-NeoX or Pythia: a quarter of each head rotated, attention and feed-forward
    part in parallel with a norm each."""
    width = config.integer("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))

    position = rope(
        config,
        dim,
        theta_keys=("rotary_emb_base",),
        partial_keys=("rotary_pct",),
        default_partial=0.25,
    )
    biases: tuple[str, ...] = ("attn.in", "mlp.*", "final")
    if config.flag("attention_bias", default=True):
        biases += ("attn.[qkvo]",)
    block = Block(
        Attention(
            heads,
            kv_heads=heads,
            head_dim=dim,
            v_dim=dim,
            scale=dim**-0.5,
            mask=Causal(),
            position=position,
        ),
        Mlp(
            config.integer("intermediate_size"),
            config.choice("hidden_act", among=ACTIVATIONS, default="gelu"),
        ),
        {"attn.in": norm, "mlp.in": norm},
        parallel=config.flag("use_parallel_residual", default=True),
    )

    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(block,) * config.integer("num_hidden_layers", most=MOST_LAYERS),
        final_norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", default=False)),
        biases=biases,
    )


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small GPT-NeoX that rotates whole heads and runs attention and
    feed-forward one after the other, and the name of its class in transformers."""
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


GPT_NEO_NAMES = Names(
    layer="h.{layer}.",
    inside={
        "attn.in": "ln_1",
        "attn.q": "attn.attention.q_proj",
        "attn.k": "attn.attention.k_proj",
        "attn.v": "attn.attention.v_proj",
        "attn.o": "attn.attention.out_proj",
        "mlp.in": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
    outside={"tokens": "wte", "positions": "wpe", "final": "ln_f", "head": "lm_head"},
    prefixes=("transformer.",),
    ignored=(
        "h.*.attn.attention.bias",
        "h.*.attn.attention.masked_bias",
        "lm_head.*",
        "score.*",
        "qa_outputs.*",
    ),
)


def gpt_neo(config: Config) -> Spec:
    """The Spec of a GPT-Neo: unscaled scores, layers that see all earlier tokens and layers with a
    window by turns. Source: Black et al., 2021."""
    config.get("is_causal")  # its layers hide later tokens whatever this key says
    width = config.integer("hidden_size")
    heads = config.heads(width, "num_heads", "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    mlp = Mlp(
        config.integer("intermediate_size", default=4 * width),
        config.choice("activation_function", among=ACTIVATIONS, default="gelu_new"),
    )

    window = config.integer("window_size", default=256)
    count = config.integer("num_layers", "num_hidden_layers", most=MOST_LAYERS)
    blocks = []
    for kind in _attention_types(config, count):
        mask = causal(window if kind == "local" else None)
        attention = Attention(heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=1.0, mask=mask)
        blocks.append(Block(attention, mlp, {"attn.in": norm, "mlp.in": norm}))

    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=tuple(blocks),
        embedding=Embedding(positions="learned"),
        final_norm=norm,
        max_positions=config.integer("max_position_embeddings", default=2048),
        head=Head(tied=config.flag("tie_word_embeddings", default=True)),
        biases=("attn.in", "attn.o", "mlp.*", "final"),
    )


def _attention_types(config: Config, count: int) -> list[str]:
    """The type of each of `count` layers, "global" or "local": from the list `attention_layers`, or
    from `attention_types`, pairs of a pattern and how often it repeats, such as
    [[["global", "local"], 6]]; by turns where the config has neither."""
    kinds = config.list_of("attention_layers", kind=str, count=count)
    # read in any case, so that the key does not count as unknown
    pairs = config.list_of("attention_types", kind=list)
    if not pairs:
        pairs = [[["global", "local"], -(-count // 2)]]  # half of the layers, rounded up
    if kinds is None:
        kinds = []
        for pair in pairs:
            match pair:
                case [[*pattern], int(times)] if times * len(pattern) <= MOST_LAYERS:
                    kinds += pattern * times
                case _:
                    raise config.refuse(
                        "attention_types", "pairs of a pattern and how often it repeats"
                    )
        if "attention_types" not in config.values:  # by turns, one too many for an odd count
            kinds = kinds[:count]
    if len(kinds) != count or not set(kinds) <= {"global", "local"}:
        what = message("config.json describes {kinds} attention layers", kinds=len(kinds))
        raise InputError(
            what, where=config.where, expected=message("{count}, global or local", count=count)
        )
    return kinds


def gpt_neo_small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small GPT-Neo with windows in its layers and an output head of its own,
    and the name of its class in transformers."""
    return {
        "num_layers": sizes.layers,
        "num_heads": sizes.heads,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "vocab_size": sizes.vocabulary,
        "attention_types": [[["local"], sizes.layers]],
        "window_size": sizes.window,
        "tie_word_embeddings": False,
    }, "GPTNeoForCausalLM"


GPTJ_NAMES = Names(
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

GPTJ_FIXED = {
    "rotary": FixedValue(True, "positions would not be rotary"),
    "scale_attn_weights": FixedValue(True, "scores would not be scaled"),
}


def gptj(config: Config) -> Spec:
    """The Spec of a GPT-J: attention and feed-forward part in parallel under one norm, adjacent
    entries rotated. Source: Wang and Komatsuzaki, 2021.

    Raises InputError for a `rotary_dim` that is odd or wider than a head.
    """
    width = config.integer("n_embd", "hidden_size")
    heads = config.heads(width, "n_head", "num_attention_heads")
    dim = width // heads
    rotary_dim = config.optional("rotary_dim", default=64) or dim  # null rotates the whole head
    if rotary_dim % 2 or rotary_dim > dim:
        what = message("config.json sets rotary_dim to {rotary_dim}", rotary_dim=rotary_dim)
        raise InputError(
            what, where=config.where, expected=message("an even number up to {dim}", dim=dim)
        )

    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    position = Rope(rotary_dim, pairing="adjacent")
    attention = Attention(
        heads,
        kv_heads=heads,
        head_dim=dim,
        v_dim=dim,
        scale=dim**-0.5,
        mask=Causal(),
        position=position,
    )
    activation = config.choice("activation_function", among=ACTIVATIONS, default="gelu_new")
    mlp = Mlp(config.integer("n_inner", default=4 * width), activation)
    block = Block(attention, mlp, {"attn.in": norm}, parallel=True)
    config.integer("n_positions", "max_position_embeddings", default=2048)  # limits nothing
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(block,) * config.integer("n_layer", "num_hidden_layers", most=MOST_LAYERS),
        final_norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", default=False)),
        biases=("attn.in", "mlp.*", "final"),
    )


FAMILIES = {
    "gpt_neox": Family(spec, NAMES, fixed=FIXED, config=small_config),
    "gpt_neo": Family(gpt_neo, GPT_NEO_NAMES, config=gpt_neo_small_config),
    "gptj": Family(gptj, GPTJ_NAMES, fixed=GPTJ_FIXED),
}
