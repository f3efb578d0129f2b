"""Llama: pre-norm decoder, root-mean-square norms, rotary positions, gated feed-forward. Source:
Touvron et al.,
2023."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.mechanism.mask import Causal, Mask
from attncli.mechanism.spec import (
    Attention,
    Block,
    Embedding,
    Experts,
    Head,
    Mlp,
    Norm,
    Place,
    Position,
    QkNorm,
    Spec,
)
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, rope
from attncli.models.family import Family, Names

NAMES = Names(
    layer="layers.{layer}.",
    inside={
        "attn.in": "input_layernorm",
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.o_proj",
        "mlp.in": "post_attention_layernorm",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
    },
    outside={"tokens": "embed_tokens", "final": "norm", "head": "lm_head"},
    prefixes=("model.",),
    ignored=("lm_head.*", "score.*", "qa_outputs.*", "classifier.*"),
)

BIASES = {"attention_bias": "attn.[qkvo]", "mlp_bias": "mlp.[gud]*"}
"""Which biases there are where a key is true; `mlp.[gud]*` leaves out the norms beside the
feed-forward part.
"""


def spec(config: Config) -> Spec:
    """The Spec of a Llama: equal layers with rotary positions."""
    return decoder(config, block(config, position=rope(config, head_dim(config))))


def depth(config: Config) -> int:
    """How many layers the config states."""
    return config.integer("num_hidden_layers", most=MOST_LAYERS)


def head_dim(config: Config, default: int | None = None) -> int:
    """The width of a head: the config's `head_dim`, else `default`; where that is None, the model's
    width / number of heads."""
    dim = config.optional("head_dim", default=default)
    if dim is not None:
        return dim
    width = config.integer("hidden_size")
    return width // config.heads(width, "num_attention_heads")


BEFORE: tuple[Place, ...] = ("attn.in", "mlp.in")
AFTER: tuple[Place, ...] = ("attn.out", "mlp.out")
"""Where norms stand: before attention and feed-forward part, or on what they give."""


def block(
    config: Config,
    *,
    position: Position,
    dim: int | None = None,
    mask: Mask | None = None,
    scale: float | None = None,
    qk_norm: QkNorm | None = None,
    softcap: float | None = None,
    default_kv_heads: int | None = None,
    norm: Norm | None = None,
    places: Sequence[Place] = BEFORE,
    mlp: Mlp | Experts | None = None,
    parallel: bool = False,
) -> Block:
    """One layer of a Llama; a related model passes what it has otherwise.

    position: how positions enter the scores; None for not at all.
    dim: the width of a head; None for the config's head_dim.
    mask: None for causal.
    scale: of the scores; None for 1/√dim.
    qk_norm, softcap: of queries and keys, of the scores; None for none.
    default_kv_heads: how many key-value heads there are where the config does not say; None for as
        many as heads, which null in the config means in any case.
    norm: at all of `places`; None for the config's root-mean-square norm.
    mlp: feed-forward part or experts; None for the config's gated part.
    parallel: whether attention and feed-forward part read the same vectors.
    """
    # read also where `norm` is given, so that the key does not count as unknown
    rms_norm = rms(config)
    heads = config.integer("num_attention_heads", most=2**16)
    if dim is None:
        dim = head_dim(config)
    attention = Attention(
        heads,
        kv_heads=config.optional("num_key_value_heads", default=default_kv_heads) or heads,
        head_dim=dim,
        v_dim=dim,
        scale=dim**-0.5 if scale is None else scale,
        mask=Causal() if mask is None else mask,
        position=position,
        qk_norm=qk_norm,
        softcap=softcap,
    )
    norms = dict.fromkeys(places, rms_norm if norm is None else norm)
    return Block(attention, gated_mlp(config) if mlp is None else mlp, norms, parallel=parallel)


def rms(config: Config, *, default: float = 1e-6, unit_offset: bool = False) -> Norm:
    """The root-mean-square norm of the config.

    default: its ε where the config does not set it.
    unit_offset: whether it multiplies by 1 + w, not w.
    """
    eps = config.number("rms_norm_eps", default=default)
    return Norm("rms", eps, unit_offset=unit_offset)


def gated_mlp(config: Config, *, default: int | None = None) -> Mlp:
    """The gated feed-forward part that the config describes.

    default: its width where the config does not set it.
    """
    return Mlp(
        config.integer("intermediate_size", default=default),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        gated=True,
    )


def experts(
    config: Config,
    *,
    default_count: int,
    default_per_token: int,
    default_width: int | None = None,
    count_keys: tuple[str, ...] = ("num_local_experts",),
    width_key: str = "intermediate_size",
    renormalise: bool = True,
) -> Experts:
    """The gated experts that the config describes, of which a few are chosen for each token.

    default_count, default_per_token, default_width: how many experts there are, how many are chosen,
        and the width of one where the config does not say; None for a width that it must state.
    count_keys, width_key: the config's keys for the number of experts and the width of one.
    renormalise: whether the weights of a token's chosen experts are made to sum to 1.
    """
    total = config.integer(*count_keys, default=default_count, most=2**16)
    return Experts(
        total,
        config.integer("num_experts_per_tok", default=default_per_token, most=total),
        config.integer(width_key, default=default_width),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=renormalise,
    )


def decoder(
    config: Config,
    blocks: Block | Sequence[Block],
    *,
    embedding: Embedding | None = None,
    default_tied: bool = False,
    logit_scale: float = 1.0,
    logit_cap: float | None = None,
    biases: tuple[str, ...] | None = None,
) -> Spec:
    """The Spec of a decoder with these layers, the embedding and output head of the config, and a
    final norm that is of the kind of the first layer's.

    blocks: one for all layers, or a list.
    embedding: None for a plain token table.
    default_tied: whether the head shares the token table where the config does not say.
    logit_scale, logit_cap: of the logits; None for no cap.
    biases: patterns of the roles with a bias; None for those that `attention_bias` and `mlp_bias`
        switch on.
    """
    if isinstance(blocks, Block):
        blocks = [blocks] * depth(config)
    config.integer("max_position_embeddings", default=2048)  # limits nothing
    return Spec(
        d_model=config.integer("hidden_size"),
        vocabulary=config.integer("vocab_size"),
        blocks=tuple(blocks),
        embedding=Embedding() if embedding is None else embedding,
        final_norm=_first_norm(blocks),
        head=Head(
            tied=config.flag("tie_word_embeddings", default=default_tied),
            scale=logit_scale,
            softcap=logit_cap,
        ),
        biases=linear_biases(config) if biases is None else biases,
    )


def _first_norm(blocks: Sequence[Block]) -> Norm | None:
    """The first norm of the first layer that has any; None without norms."""
    for block in blocks:
        for norm in block.norms.values():
            return norm
    return None


def linear_biases(config: Config) -> tuple[str, ...]:
    """Patterns of the roles that have a bias, by the config's `attention_bias` and `mlp_bias`."""
    return tuple(pattern for key, pattern in BIASES.items() if config.flag(key, default=False))


FAMILIES = {"llama": Family(spec, NAMES, permuted=True)}
