"""ModernBERT: pre-norm encoder, rotary positions, mostly local layers, gated feed-forward. Source:
Warner et al.,
2024."""

from __future__ import annotations

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.mask import Everywhere, Window
from attncli.mechanism.spec import (
    Attention,
    Block,
    Embedding,
    MaskedHead,
    Mlp,
    Norm,
    Place,
    Spec,
)
from attncli.models.config import (
    ACTIVATIONS,
    LOCAL,
    MOST_LAYERS,
    Config,
    FixedValue,
    layer_types,
    rope,
)
from attncli.models.family import Concat, Family, Names

NAMES = Names(
    layer="layers.{layer}.",
    inside={
        "attn.in": "attn_norm",
        "attn.q attn.k attn.v": Concat("attn.Wqkv"),
        "attn.o": "attn.Wo",
        "mlp.in": "mlp_norm",
        "mlp.gate mlp.up": Concat("mlp.Wi"),
        "mlp.down": "mlp.Wo",
    },
    outside={
        "tokens": "embeddings.tok_embeddings",
        "embed.norm": "embeddings.norm",
        "final": "final_norm",
        "masked.dense": "head.dense",
        "masked.norm": "head.norm",
        "masked.decoder": "decoder",
    },
    prefixes=("model.",),
    ignored=("head.*", "decoder.*", "classifier.*"),
)

BIASES = {
    "norm_bias": ("attn.in", "mlp.in", "embed.norm", "final"),
    "attention_bias": ("attn.[qkvo]",),
    "mlp_bias": ("mlp.gate", "mlp.up", "mlp.down"),
}

FIXED = {
    "position_embedding_type": FixedValue("absolute", "positions are rotary whatever this key says")
}


def spec(config: Config) -> Spec:
    """The Spec of a ModernBERT: every third layer sees the whole text, the others `local_attention`
    // 2 tokens on either side, with another rotary base."""
    width = config.integer("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    dim = width // heads
    norm = Norm("layer", config.number("norm_eps", default=1e-5))
    config.get("layer_norm_eps")  # a leftover in files; `norm_eps` counts
    every = config.integer("global_attn_every_n_layers", default=3)
    count = config.integer("num_hidden_layers", most=MOST_LAYERS)
    reach = config.integer("local_attention", default=128) // 2
    mlp = Mlp(
        config.integer("intermediate_size"),
        config.choice("hidden_activation", among=ACTIVATIONS, default="gelu"),
        gated=True,
    )

    blocks = []
    for index, kind in enumerate(layer_types(config, count, lambda layer: bool(layer % every))):
        if kind == LOCAL:
            mask: Window | Everywhere = Window(left=reach, right=reach)
            theta_key = "local_rope_theta"
            default_theta = 10000.0
        else:
            mask = Everywhere()
            theta_key = "global_rope_theta"
            default_theta = 160000.0
        attention = Attention(
            heads,
            kv_heads=heads,
            head_dim=dim,
            v_dim=dim,
            scale=dim**-0.5,
            mask=mask,
            position=rope(
                config, dim, kind=kind, theta_keys=(theta_key,), default_theta=default_theta
            ),
        )
        if index == 0:  # the embedding's norm stands before the first layer
            norms: dict[Place, Norm] = {"mlp.in": norm}
        else:
            norms = {"attn.in": norm, "mlp.in": norm}
        blocks.append(Block(attention, mlp, norms))
    # positions are computed for a text of any length
    config.integer("max_position_embeddings", default=8192)
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=tuple(blocks),
        embedding=Embedding(norm=norm),
        final_norm=norm,
        masked=_masked_head(config, width, norm),
        biases=_biases(config),
    )


def _biases(config: Config) -> tuple[str, ...]:
    """Patterns of the roles that have a bias, as the config's three keys switch them on."""
    biases: tuple[str, ...] = ()
    for key, patterns in BIASES.items():
        if config.flag(key, default=False):
            biases += patterns
    return biases


def _masked_head(config: Config, width: int, norm: Norm) -> MaskedHead | None:
    """The head that predicts masked words, whose activation is a key of its own; None if that
    activation is not implemented, as attention runs without the head.

    width, norm: the model's.
    """
    name = config.get("classifier_activation") or "gelu"
    activation = None
    if isinstance(name, str):
        activation = ACTIVATIONS.get(name)
    if activation is None:
        return None
    return MaskedHead(width, activation, norm)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files name otherwise: windows, activations, and the two rotary
    bases.
    """
    # a number, or a list of which layers have a window, which `layer_types` has already
    pattern = metadata.architecture_value("attention.sliding_window_pattern")
    stated = {
        "local_attention": metadata.architecture_value("attention.sliding_window"),
        "global_attn_every_n_layers": pattern if isinstance(pattern, int) else None,
        "global_rope_theta": metadata.architecture_value("rope.freq_base"),
        "local_rope_theta": metadata.architecture_value("rope.freq_base_swa"),
        "hidden_activation": metadata.architecture_value("hidden_activation"),
    }
    return {key: value for key, value in stated.items() if value is not None}


FAMILIES = {"modernbert": Family(spec, NAMES, fixed=FIXED, gguf=gguf_keys)}
