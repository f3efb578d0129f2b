"""BERT. Post-norm encoder with learned positions and token types. Source: Devlin et al., 2018."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from attncli.mechanism.mask import BigBird, Causal
from attncli.mechanism.spec import (
    Attention,
    Block,
    Embedding,
    FirstBlockAgain,
    MaskedHead,
    Mlp,
    Norm,
    RelativeBuckets,
    Spec,
)
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names, SharedTensor, TrainedSizes

TASK_HEADS = ("pooler.*", "cls.*", "classifier.*", "qa_outputs.*", "dropout.*")

MASKED_WORD = {
    "masked.dense": "cls.predictions.transform.dense",
    "masked.norm": "cls.predictions.transform.LayerNorm",
    "masked.decoder": "cls.predictions.decoder|cls.predictions",
}
"""The head that tells masked words; its last bias stands beside its parts."""

LM_HEAD = {
    "masked.dense": "lm_head.dense",
    "masked.norm": "lm_head.layer_norm",
    "masked.decoder": "lm_head.decoder|lm_head",
}
"""The same as RoBERTa and its relatives call it."""

NAMES = Names(
    layer="encoder.layer.{layer}.",
    inside={
        "attn.q": "attention.self.query",
        "attn.k": "attention.self.key",
        "attn.v": "attention.self.value",
        "attn.o": "attention.output.dense",
        "attn.sum": "attention.output.LayerNorm",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
        "mlp.sum": "output.LayerNorm",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed.norm": "embeddings.LayerNorm",
        **MASKED_WORD,
    },
    prefixes=("bert.",),
    ignored=TASK_HEADS,
)

FIXED = {
    "position_embedding_type": FixedValue("absolute", "relative positions would enter the scores"),
    "is_decoder": FixedValue(False, "a decoder would see only earlier tokens"),
    "add_cross_attention": FixedValue(False, "cross-attention would be added to each layer"),
}


def spec(
    config: Config,
    *,
    default_activation: str = "gelu",
    default_eps: float = 1e-12,
    default_types: int = 2,
) -> Spec:
    """The Spec of a BERT, as its config describes it.

    default_activation, default_eps, default_types: the activation function, the norms' ε and the
        number of token types where the config does not set them.
    """
    width = config.integer("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    norm = Norm("layer", config.number("layer_norm_eps", default=default_eps))
    function = config.choice("hidden_act", among=ACTIVATIONS, default=default_activation)
    layers = config.integer("num_hidden_layers", most=MOST_LAYERS)
    token_types = config.integer("type_vocab_size", default=default_types, least=0)
    mlp = Mlp(config.integer("intermediate_size"), function)
    base = post_norm_encoder(config, width, heads, mlp, norm, layers, token_types)
    return replace(base, masked=MaskedHead(width, function, norm))


def post_norm_encoder(
    config: Config, width: int, heads: int, mlp: Mlp, norm: Norm, layers: int, token_types: int = 0
) -> Spec:
    """The Spec of an encoder with a norm after each residual sum, learned positions and biases
    everywhere.

    mlp, norm: of every layer. layers: how many. token_types: how many the embedding tells apart.
    """
    dim = width // heads
    attention = Attention(heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=dim**-0.5)
    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(Block(attention, mlp, {"attn.sum": norm, "mlp.sum": norm}),) * layers,
        embedding=Embedding(positions="learned", types=token_types, norm=norm),
        max_positions=config.integer("max_position_embeddings", default=512),
        biases=("*",),
    )


def with_decoder_mask(config: Config, base: Spec) -> Spec:
    """The Spec as it is, or, where the config's `is_decoder` is true, with causal masks and without
    the head that predicts masked words.
    """
    is_decoder = config.flag("is_decoder", default=False)
    if is_decoder:
        causal = with_attention(base, lambda attention: replace(attention, mask=Causal()))
        return replace(causal, masked=None)
    return base


def with_attention(base: Spec, change: Callable[[Attention], Attention]) -> Spec:
    """The Spec with `change` applied to the attention of every layer."""
    return replace(
        base,
        blocks=tuple(replace(block, attention=change(block.attention)) for block in base.blocks),
    )


def with_narrow_tokens(config: Config, base: Spec) -> Spec:
    """The Spec with token vectors of the config's `embedding_size`, and a projection from there to
    the width of the layers."""
    width = config.integer("embedding_size", default=128)
    if base.masked is None:
        masked = None
    else:
        masked = replace(base.masked, width=width)
    return replace(
        base, embedding=replace(base.embedding, width=width, projection="sum"), masked=masked
    )


def with_gelu(base: Spec) -> Spec:
    """The Spec with GELU in the head that predicts masked words, whatever activation the layers
    have; unchanged without such a head."""
    if base.masked is None:
        return base
    return replace(base, masked=replace(base.masked, activation="gelu"))


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small BERT, and the name of its class in transformers."""
    return {
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "vocab_size": sizes.vocabulary,
        "type_vocab_size": 1,
    }, "BertModel"


ROBERTA_NAMES = replace(
    NAMES.with_roles({}, outside=LM_HEAD),
    prefixes=("roberta.",),
    ignored=(*TASK_HEADS, "lm_head.*"),
)


def roberta(config: Config) -> Spec:
    """The Spec of a RoBERTa, XLM-RoBERTa or CamemBERT: BERT with position ids that start after the
    padding id. Sources: Liu et al., 2019; Conneau et al., 2019; Martin et al., 2020.
    """
    base = with_gelu(with_decoder_mask(config, spec(config)))
    padding = config.integer("pad_token_id", default=1, least=0)
    return after_padding(base, padding)


def after_padding(base: Spec, padding: int) -> Spec:
    """The Spec with position ids that start at padding id + 1, as RoBERTa's: the first rows of the
    position table are not used, and the longest text is shorter by as many tokens."""
    embedding = replace(base.embedding, position_offset=padding + 1, padding=padding)
    assert base.max_positions is not None, "models with a position table have a longest text"
    longest = base.max_positions - (padding + 1)
    return replace(base, embedding=embedding, max_positions=longest)


ELECTRA_NAMES = replace(
    NAMES.with_roles(
        {},
        outside={
            "embed.project": "embeddings_project",
            "masked.dense": "generator_predictions.dense",
            "masked.norm": "generator_predictions.LayerNorm",
            "masked.decoder": "generator_lm_head",
        },
    ),
    prefixes=("electra.",),
    ignored=(*TASK_HEADS, "generator_*", "discriminator_*", "sequence_summary.*"),
)


def electra(config: Config) -> Spec:
    """The Spec of an ELECTRA: BERT with token vectors of their own width. Source: Clark et al., 2020."""
    base = with_gelu(with_decoder_mask(config, spec(config)))
    if config.integer("embedding_size", default=128) == base.d_model:
        return base
    return with_narrow_tokens(config, base)


ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0."

ALBERT_NAMES = Names(
    layer="",
    inside={
        role: SharedTensor(ALBERT_LAYER + name)
        for role, name in {
            "attn.q": "attention.query",
            "attn.k": "attention.key",
            "attn.v": "attention.value",
            "attn.o": "attention.dense",
            "attn.sum": "attention.LayerNorm",
            "mlp.up": "ffn",
            "mlp.down": "ffn_output",
            "mlp.sum": "full_layer_layer_norm",
        }.items()
    },
    outside={
        **NAMES.outside,
        "embed.project": "encoder.embedding_hidden_mapping_in",
        "masked.dense": "predictions.dense",
        "masked.norm": "predictions.LayerNorm",
        "masked.decoder": "predictions.decoder|predictions",
    },
    prefixes=("albert.",),
    ignored=(*TASK_HEADS, "predictions.*", "sop_classifier.*"),
)

ALBERT_FIXED = {
    **FIXED,
    "num_hidden_groups": FixedValue(1, "some layers would have weights of their own"),
    "inner_group_num": FixedValue(1, "each layer would have several parts"),
    "net_structure_type": FixedValue(0, "layers would be put together otherwise"),
    "num_memory_blocks": FixedValue(0, "layers would have memories besides"),
    "gap_size": FixedValue(0, "layers would be left out"),
    "down_scale_factor": FixedValue(1, "layers would be narrower"),
}


def albert(config: Config) -> Spec:
    """The Spec of an ALBERT: BERT with token vectors of their own width, and the same weights in all
    layers. Source: Lan et al., 2020."""
    return with_narrow_tokens(config, spec(config, default_activation="gelu_new"))


MPNET_PADDING = 1
"""The row of the position table at which padding is, whatever the config says; positions start
after it.
"""

MPNET_NAMES = replace(
    NAMES.with_roles(
        {
            "attn.q": "attention.attn.q",
            "attn.k": "attention.attn.k",
            "attn.v": "attention.attn.v",
            "attn.o": "attention.attn.o",
            "attn.sum": "attention.LayerNorm",
            "attn.buckets": SharedTensor("encoder.relative_attention_bias"),
        },
        outside=LM_HEAD,
    ),
    prefixes=("mpnet.",),
    ignored=(*TASK_HEADS, "lm_head.*"),
)

MPNET_FIXED = {
    "relative_attention_num_buckets": FixedValue(
        32, "distances are shared out to 32 buckets whatever this key says"
    )
}


def mpnet(config: Config) -> Spec:
    """The Spec of an MPNet: BERT with RoBERTa's positions, T5's biases by distance and no token
    types. Source: Song et al., 2020.
    """
    buckets = RelativeBuckets(buckets=32, max_distance=128, bidirectional=True)
    base = with_attention(
        with_gelu(spec(config)), lambda attention: replace(attention, position=buckets)
    )
    return after_padding(replace(base, embedding=replace(base.embedding, types=0)), MPNET_PADDING)


BIG_BIRD_BIASES = ("attn.o", "attn.sum", "mlp.*", "embed.norm")
"""Those that there are in any case."""

SPARSE, FULL = "block_sparse", "original_full"


def big_bird(config: Config) -> Spec:
    """The Spec of a BigBird: BERT whose queries see the first and the last block of tokens, their
    own and its neighbours. Source: Zaheer et al., 2020.

    In training a query also sees random blocks; outside training transformers gives it the first
    block in place of each. In short texts queries see all tokens.
    """
    base = spec(config, default_activation="gelu_new")
    # of question answering: read, so that no warning comes
    config.get("sep_token_id")
    scaled = config.flag("rescale_embeddings", default=False)
    biased = config.flag("use_bias", default=True)
    size = config.integer("block_size", default=64)
    random_blocks = config.integer("num_random_blocks", default=3, least=0)
    # up to this many tokens transformers uses full attention (its own bound)
    full_up_to = (5 + 2 * random_blocks) * size
    position = None
    if random_blocks:
        position = FirstBlockAgain(random_blocks, size, full_up_to)

    if config.choice("attention_type", among={SPARSE: SPARSE, FULL: FULL}, default=SPARSE) == FULL:
        base = with_decoder_mask(config, base)
    else:
        mask = BigBird(size, random=0, longest=full_up_to)
        base = with_attention(
            base, lambda attention: replace(attention, mask=mask, position=position)
        )
    return replace(
        base,
        embedding=replace(base.embedding, scale=base.d_model**0.5 if scaled else 1.0),
        max_positions=config.integer("max_position_embeddings", default=4096),
        biases=(*BIG_BIRD_BIASES, "attn.[qkv]") if biased else BIG_BIRD_BIASES,
    )


DISTILBERT_NAMES = Names(
    layer="transformer.layer.{layer}.",
    inside={
        "attn.q": "attention.q_lin",
        "attn.k": "attention.k_lin",
        "attn.v": "attention.v_lin",
        "attn.o": "attention.out_lin",
        "attn.sum": "sa_layer_norm",
        "mlp.up": "ffn.lin1",
        "mlp.down": "ffn.lin2",
        "mlp.sum": "output_layer_norm",
    },
    outside={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "embed.norm": "embeddings.LayerNorm",
        "masked.dense": "vocab_transform",
        "masked.norm": "vocab_layer_norm",
        "masked.decoder": "vocab_projector",
    },
    prefixes=("distilbert.",),
    ignored=("vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
)


def distilbert(config: Config) -> Spec:
    """The Spec of a DistilBERT: BERT without token types. Its files hold a table of positions also
    where these are sinusoidal. Source: Sanh et al., 2019."""
    width = config.integer("dim", "hidden_size", default=768)
    heads = config.heads(width, "n_heads", "num_attention_heads")
    # the table of positions is stored in either case
    config.flag("sinusoidal_pos_embds", default=False)
    mlp = Mlp(
        config.integer("hidden_dim", default=3072),
        config.choice("activation", among=ACTIVATIONS, default="gelu"),
    )
    layers = config.integer("n_layers", "num_hidden_layers", most=MOST_LAYERS)
    norm = Norm("layer", 1e-12)
    base = post_norm_encoder(config, width, heads, mlp, norm, layers)
    return replace(base, masked=MaskedHead(width, mlp.activation, norm))


FAMILIES = {
    "bert": Family(
        lambda config: with_decoder_mask(config, spec(config)),
        NAMES,
        fixed=FIXED,
        config=small_config,
    ),
    "roberta": Family(roberta, ROBERTA_NAMES, fixed=FIXED),
    "xlm-roberta": Family(roberta, ROBERTA_NAMES, fixed=FIXED),
    "camembert": Family(roberta, ROBERTA_NAMES, fixed=FIXED),
    "electra": Family(electra, ELECTRA_NAMES, fixed=FIXED),
    "albert": Family(albert, ALBERT_NAMES, fixed=ALBERT_FIXED),
    "mpnet": Family(mpnet, MPNET_NAMES, fixed=MPNET_FIXED),
    "big_bird": Family(big_bird, NAMES, fixed=FIXED),
    "distilbert": Family(distilbert, DISTILBERT_NAMES),
}
