"""BERT. Post-norm encoder with learned positions and token types. Source: Devlin et al., 2018."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names, TrainedSizes

TASK_HEADS = ("pooler.*", "cls.*", "classifier.*", "qa_outputs.*", "dropout.*")

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
    },
    prefixes=("bert.",),
    ignored=TASK_HEADS,
)

FIXED = {
    "position_embedding_type": FixedValue("absolute", "relative positions would enter the scores"),
    "is_decoder": FixedValue(False, "a decoder would see only earlier tokens"),
    "add_cross_attention": FixedValue(False, "cross-attention would be added to each layer"),
}


def spec(config: Config, *, activation: str = "gelu", eps: float = 1e-12, types: int = 2) -> Spec:
    """The Spec of a BERT. activation, eps, types: what the config means by silence."""
    width = config.whole("hidden_size")
    heads = config.heads(width, "num_attention_heads")
    norm = Norm("layer", config.number("layer_norm_eps", default=eps))
    block = Block(
        Attention(heads, heads, width // heads, width // heads, scale=(width // heads) ** -0.5),
        Mlp(config.whole("intermediate_size"), config.choice("hidden_act", among=ACTIVATIONS, default=activation)),
        {"attn.sum": norm, "mlp.sum": norm},
    )
    return Spec(
        family="bert",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(block,) * config.whole("num_hidden_layers", most=MOST_LAYERS),
        embedding=Embedding(
            positions="learned", types=config.whole("type_vocab_size", default=types, least=0), norm=norm
        ),
        max_positions=config.whole("max_position_embeddings", default=512),
        biases=("*",),
    )


def decoding(config: Config, base: Spec) -> Spec:
    """The Spec as it is, or, where the config makes the model a decoder, with queries that see no later token."""
    if not config.flag("is_decoder", default=False):
        return base
    blocks = (replace(block, attention=replace(block.attention, mask=Causal())) for block in base.blocks)
    return replace(base, blocks=tuple(blocks))


def small_config(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small BERT."""
    return {
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "vocab_size": sizes.vocabulary,
        "type_vocab_size": 1,
    }, "BertModel"


ROBERTA_NAMES = replace(NAMES, prefixes=("roberta.",), ignored=(*TASK_HEADS, "lm_head.*"))


def roberta(config: Config) -> Spec:
    """RoBERTa: BERT with positions that start after the padding id, one token type. Source: Liu et al., 2019.

    Rows below the padding id of its position table are never used.
    """
    base = decoding(config, spec(config))
    padding = config.whole("pad_token_id", default=1, least=0)
    return replace(
        base,
        family="roberta",
        embedding=replace(base.embedding, position_offset=padding + 1, padding=padding),
        max_positions=(base.max_positions or 0) - padding - 1,
    )


def xlm_roberta(config: Config) -> Spec:
    """XLM-RoBERTa: RoBERTa over a hundred languages. Source: Conneau et al., 2019."""
    return replace(roberta(config), family="xlm-roberta")


def camembert(config: Config) -> Spec:
    """CamemBERT: RoBERTa of French. Source: Martin et al., 2020."""
    return replace(roberta(config), family="camembert")


ELECTRA_NAMES = replace(
    NAMES.with_roles({}, outside={"embed.project": "embeddings_project"}),
    prefixes=("electra.",),
    ignored=(*TASK_HEADS, "generator_*", "discriminator_*", "sequence_summary.*"),
)


def electra(config: Config) -> Spec:
    """ELECTRA: BERT with a token table of its own width. Source: Clark et al., 2020."""
    base = decoding(config, spec(config))
    width = config.whole("embedding_size", default=128)
    if width == base.d_model:
        return replace(base, family="electra")
    return replace(base, family="electra", embedding=replace(base.embedding, width=width, projection="sum"))


FAMILIES = {
    "bert": Family(lambda config: decoding(config, spec(config)), NAMES, fixed=FIXED, config=small_config),
    "roberta": Family(roberta, ROBERTA_NAMES, fixed=FIXED),
    "xlm-roberta": Family(xlm_roberta, ROBERTA_NAMES, fixed=FIXED),
    "camembert": Family(camembert, ROBERTA_NAMES, fixed=FIXED),
    "electra": Family(electra, ELECTRA_NAMES, fixed=FIXED),
}
