"""GTE: BERT with rotary positions and a gated feed-forward part. Source: Zhang et al., mGTE, 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Attention, Block, Embedding, MaskedHead, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue, rope
from attncli.models.families import bert
from attncli.models.family import Concat, Family, Names

NAMES = Names(
    layer="encoder.layer.{layer}.",
    inside={
        "attn.q attn.k attn.v": Concat("attention.qkv_proj"),
        "attn.o": "attention.o_proj",
        "attn.sum": "attn_ln",
        "mlp.up mlp.gate": Concat("mlp.up_gate_proj"),
        "mlp.down": "mlp.down_proj",
        "mlp.sum": "mlp_ln",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "embeddings.LayerNorm",
        **bert.LM_HEAD,
        "masked.norm": "lm_head.norm|lm_head.layer_norm",
    },
    prefixes=("new.", "gte."),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of a GTE: BERT with rotary positions and a gated feed-forward part."""
    base = with_rotary(
        bert.with_gelu(bert.spec(config, default_types=1)), config, default_theta=160000.0
    )
    plain = base.blocks[0].mlp  # all layers of a BERT are alike
    assert isinstance(plain, Mlp)
    feed_forward = replace(plain, gated=True)
    return replace(
        base,
        blocks=tuple(replace(block, mlp=feed_forward) for block in base.blocks),
        biases=("attn.*", "mlp.down", "mlp.sum", "embed.norm"),
    )


def with_rotary(base: Spec, config: Config, default_theta: float) -> Spec:
    """The Spec of a BERT, `base`, with rotary positions in place of learned ones.

    default_theta: the rotary base where the config does not set it.
    """
    position = rope(config, base.blocks[0].attention.head_dim, default_theta=default_theta)
    base = bert.with_attention(base, lambda attention: replace(attention, position=position))
    return replace(base, embedding=replace(base.embedding, positions=None), max_positions=None)


JINA_EMBEDDINGS_V3_NAMES = Names(
    layer="encoder.layers.{layer}.",
    inside={
        "attn.q attn.k attn.v": Concat("mixer.Wqkv"),
        "attn.o": "mixer.out_proj",
        "attn.sum": "norm1",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
        "mlp.sum": "norm2",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "emb_ln",
        **bert.LM_HEAD,
    },
    prefixes=("roberta.",),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)


def jina_embeddings_v3(config: Config) -> Spec:
    """The Spec of a Jina Embeddings 3: XLM-RoBERTa with rotary positions. Source: Sturua et al., 2024.

    Its adapters for tasks are no part of it: files have them merged into the weights, or left out.
    """
    base = bert.with_gelu(bert.spec(config, default_eps=1e-5, default_types=1))
    return with_rotary(base, config, default_theta=20000.0)


NOMIC_BERT_NAMES = Names(
    layer="encoder.layers.{layer}.",
    inside={
        "attn.q attn.k attn.v": Concat("attn.Wqkv"),
        "attn.o": "attn.out_proj",
        "attn.sum": "norm1",
        "mlp.up": "mlp.fc11",
        "mlp.gate": "mlp.fc12",
        "mlp.down": "mlp.fc2",
        "mlp.sum": "norm2",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "emb_ln",
        **bert.MASKED_WORD,
        "masked.norm": "cls.predictions.transform.layer_norm",
    },
    prefixes=("bert.", "nomic_bert."),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)

NOMIC_BERT_FIXED = {
    "causal": FixedValue(False, "tokens would see only earlier ones"),
    "prenorm": FixedValue(False, "norms would come before each part"),
    "use_rms_norm": FixedValue(False, "norms would be root-mean-square norms"),
    "parallel_block": FixedValue(False, "the parts would stand side by side"),
    "qkv_proj_bias": FixedValue(False, "queries, keys and values would have biases"),
    "mlp_fc1_bias": FixedValue(False, "the feed-forward part would have biases"),
    "mlp_fc2_bias": FixedValue(False, "the feed-forward part would have biases"),
    "rotary_emb_fraction": FixedValue(1.0, "a share of each head would be rotated"),
    "rotary_emb_interleaved": FixedValue(False, "neighbouring entries would be rotated together"),
    "rotary_emb_scale_base": FixedValue(None, "queries and keys would be scaled by position"),
    "rotary_scaling_factor": FixedValue(None, "positions would be stretched"),
    "scale_attn_weights": FixedValue(True, "scores would not be scaled"),
    "scale_attn_by_inverse_layer_idx": FixedValue(
        False, "scores would be divided by the layer's number"
    ),
    "num_experts": FixedValue(0, "some layers would have experts"),
}

NOMIC_BERT_IDLE = (
    *(
        "dense_seq_output",
        "fused_bias_fc",
        "fused_dropout_add_ln",
        "use_flash_attn",
        "use_xentropy",
    ),
    *(
        "max_trained_positions",
        "pad_vocab_size_multiple",
        "parallel_block_tied_norm",
        "reorder_and_upcast_attn",
    ),
)
"""Keys of how training computed, and of what the fixed ones rule out."""


def nomic_bert(config: Config) -> Spec:
    """The Spec of a Nomic BERT: BERT with rotary positions, a gated feed-forward part and no biases
    but those of norms. Its config may spell sizes as BERT's do ("hidden_size") or as GPT-2's
    ("n_embd"). Source: Nussbaum et al., 2024."""
    width = config.integer("hidden_size", "n_embd", default=768)
    heads = config.integer("num_attention_heads", "n_head", default=12, most=2**16)
    dim = config.optional("head_dim") or width // heads
    norm = Norm("layer", config.number("layer_norm_eps", "layer_norm_epsilon", default=1e-12))
    gates = {**ACTIVATIONS, "swiglu": ACTIVATIONS["silu"], "geglu": ACTIVATIONS["gelu"]}
    # read, so that they are not refused: they are about training, or repeat what is fixed
    config.get(*NOMIC_BERT_IDLE)

    position = rope(config, dim, theta_keys=("rope_theta", "rotary_emb_base"), default_theta=1000.0)
    activation = config.choice("hidden_act", "activation_function", among=gates, default="silu")
    inner = config.integer("intermediate_size", "n_inner", default=3072)
    block = Block(
        Attention(
            heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=dim**-0.5, position=position
        ),
        Mlp(inner, activation, gated=True),
        {"attn.sum": norm, "mlp.sum": norm},
    )
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size", default=30528),
        blocks=(block,)
        * config.integer("num_hidden_layers", "n_layer", default=12, most=MOST_LAYERS),
        embedding=Embedding(types=config.integer("type_vocab_size", default=2), norm=norm),
        masked=MaskedHead(width, activation, norm),
        biases=("*.sum", "embed.norm"),
    )


FAMILIES = {
    "gte": Family(spec, NAMES),
    "jina_embeddings_v3": Family(jina_embeddings_v3, JINA_EMBEDDINGS_V3_NAMES),
    "nomic_bert": Family(nomic_bert, NOMIC_BERT_NAMES, fixed=NOMIC_BERT_FIXED),
}
