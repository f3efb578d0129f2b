"""GPT-Neo: unscaled scores, global and local layers by turns. Source: Black et al., 2021."""

from __future__ import annotations

from attncli.errors import InputError
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, causal
from attncli.models.family import Family, Names, TrainedSizes

NAMES = Names(
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
    ignored=("h.*.attn.attention.bias", "h.*.attn.attention.masked_bias", "lm_head.*", "score.*", "qa_outputs.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of a GPT-Neo."""
    config.get("is_causal")  # its layers hide later tokens whatever this key says
    width = config.whole("hidden_size")
    heads = config.heads(width, "num_heads", "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", config.number("layer_norm_epsilon", default=1e-5))
    mlp = Mlp(
        config.whole("intermediate_size", default=4 * width),
        config.choice("activation_function", among=ACTIVATIONS, default="gelu_new"),
    )
    window = config.whole("window_size", default=256)
    blocks = [
        Block(
            Attention(heads, heads, dim, dim, scale=1.0, mask=causal(window if kind == "local" else None)),
            mlp,
            {"attn.in": norm, "mlp.in": norm},
        )
        for kind in _kinds(config, config.whole("num_layers", "num_hidden_layers", most=MOST_LAYERS))
    ]
    return Spec(
        family="gpt_neo",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=tuple(blocks),
        embedding=Embedding(positions="learned"),
        final_norm=norm,
        max_positions=config.whole("max_position_embeddings", default=2048),
        head=Head(tied=config.flag("tie_word_embeddings", default=True)),
        biases=("attn.in", "attn.o", "mlp.*", "final"),
    )


def _kinds(config: Config, count: int) -> list[str]:
    """The type of each layer, from the list `attention_layers` or from pairs of a pattern and how often it repeats."""
    kinds = config.list_of("attention_layers", kind=str, count=count)
    pairs = config.list_of("attention_types", kind=list) or [[["global", "local"], -(-count // 2)]]
    if kinds is None:
        kinds = []
        for pair in pairs:
            match pair:
                case [[*pattern], int(times)] if times * len(pattern) <= MOST_LAYERS:
                    kinds += pattern * times
                case _:
                    raise config.refuse("attention_types", "pairs of a pattern and how often it repeats")
        kinds = kinds[:count] if "attention_types" not in config.values else kinds
    if len(kinds) != count or not set(kinds) <= {"global", "local"}:
        raise InputError(
            "config.json describes {kinds} attention layers",
            where=config.where,
            expected="{count}, global or local",
            kinds=len(kinds),
            count=count,
        )
    return kinds


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small GPT-Neo whose layers look through a window, with an output head of its own."""
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


FAMILIES = {"gpt_neo": Family(spec, NAMES, config=small_config)}
