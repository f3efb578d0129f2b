"""DeBERTa 2 and 3: BERT whose scores tell content from position. Source: He et al., 2021."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.language import listing, message
from attncli.mechanism.spec import Convolution, Disentangled, Norm, Position, Spec
from attncli.models.config import ACTIVATIONS, Config, FixedValue
from attncli.models.families import bert
from attncli.models.family import Family, SharedTensor

NAMES = replace(
    bert.NAMES.with_roles(
        {
            "attn.q": "attention.self.query_proj",
            "attn.k": "attention.self.key_proj",
            "attn.v": "attention.self.value_proj",
            "attn.relative_k": "attention.self.pos_key_proj",
            "attn.relative_q": "attention.self.pos_query_proj",
            "attn.relative": SharedTensor("encoder.rel_embeddings"),
            "attn.relative_norm": SharedTensor("encoder.LayerNorm"),
            "conv": SharedTensor("encoder.conv.conv"),
            "conv.norm": SharedTensor("encoder.conv.LayerNorm"),
        },
        outside={
            "masked.dense": f"{bert.MASKED_WORD['masked.dense']}|lm_predictions.lm_head.dense",
            "masked.norm": f"{bert.MASKED_WORD['masked.norm']}|lm_predictions.lm_head.LayerNorm",
            "masked.decoder": f"{bert.MASKED_WORD['masked.decoder']}|lm_predictions.lm_head",
        },
    ),
    prefixes=("deberta.",),
    # the table of absolute positions stands in files of models that do not use it
    ignored=(
        *bert.TASK_HEADS,
        "lm_predictions.*",
        "lm_head.*",
        "mask_predictions.*",
        "embeddings.position_embeddings.*",
    ),
)

FIXED = {"embedding_size": FixedValue(None, "the token table would have a width of its own")}

POSITION_SCORES = ("c2p", "p2c")
"""What may be added to the scores of content with content: those of content with position, and of
position with content."""


def spec(config: Config) -> Spec:
    """The Spec of a DeBERTa 2 or 3: BERT's, with relative positions in the scores of each layer
    and, in the largest models of version 2, a convolution beside the first.
    """
    base = bert.spec(config, default_eps=1e-7, default_types=0)
    # these say nothing of the layers: settings of the masked-word head, or repeats of others
    config.get("legacy", "pos_ebd_type", "pad_id")
    if not config.flag("position_biased_input", default=True):
        base = replace(base, embedding=replace(base.embedding, positions=None), max_positions=None)
    head_dim = base.blocks[0].attention.head_dim  # all layers of a BERT are alike
    if config.integer("attention_head_size", default=head_dim) != head_dim:
        raise config.refuse(
            "attention_head_size",
            message("{dim}: heads would have a width of their own", dim=head_dim),
        )
    position_scores = _position_scores(config)
    position = _relative_position(config, base, position_scores)
    # 1/√(head_dim · terms): content with content, and each of the position scores
    scale = (head_dim * (1 + len(position_scores))) ** -0.5
    blocks = [
        replace(block, attention=replace(block.attention, position=position, scale=scale))
        for block in base.blocks
    ]
    blocks[0] = replace(blocks[0], convolution=_convolution(config, base))
    return replace(base, blocks=tuple(blocks))


def _convolution(config: Config, base: Spec) -> Convolution | None:
    """The convolution beside the first layer, in the largest models of version 2; None in the
    others.
    """
    kernel = config.integer("conv_kernel_size", default=0, least=0)
    groups = config.integer("conv_groups", default=1)
    if kernel == 0:
        config.get("conv_act")  # without effect: read, so that it does not count as unknown
        return None
    if base.d_model % groups:
        raise config.refuse(
            "conv_groups", message("a number that divides {d_model}", d_model=base.d_model)
        )
    if kernel % 2 == 0:
        raise config.refuse("conv_kernel_size", "an odd number")
    norm = base.blocks[0].norms["mlp.sum"]  # all layers of a BERT are alike
    activation = config.choice("conv_act", among=ACTIVATIONS, default="tanh")
    return Convolution(kernel, activation, norm, groups)


def _position_scores(config: Config) -> list[str]:
    """Which of `POSITION_SCORES` the model adds, from `pos_att_type`: a list, or a text such as
    "c2p|p2c".
    """
    value = config.get("pos_att_type") or []
    if isinstance(value, str):
        scores = [score.strip() for score in value.lower().split("|")]
    else:
        scores = value
    if not isinstance(scores, list) or any(score not in POSITION_SCORES for score in scores):
        what = message("config.json sets pos_att_type to {value}", value=repr(value))
        raise InputError(what, where=config.where, expected=listing(POSITION_SCORES, " and "))
    return scores


def _relative_position(config: Config, base: Spec, position_scores: list[str]) -> Position:
    """The relative position encoding of every layer; None for a model without relative attention.

    base: the model without it.
    position_scores: "c2p" where scores of content with position are added, "p2c" where those of
        position with content are.
    """
    buckets = config.integer("position_buckets", default=-1, least=-1)
    furthest = _furthest_distance(config)
    shares_keys = config.flag("share_att_key", default=False)

    # whether the vectors of the distances are normed: "layer_norm", alone or between bars
    stated_norms = config.get("norm_rel_ebd") or "none"
    norm_names: set[str] = set()
    if isinstance(stated_norms, str):
        norm_names = {name.strip() for name in stated_norms.lower().split("|")}
    if not norm_names or norm_names - {"none", "layer_norm"}:  # no text, or another word in it
        raise config.refuse("norm_rel_ebd", "'none' or 'layer_norm'")

    if not config.flag("relative_attention", default=False):
        if "layer_norm" in norm_names:
            raise config.refuse(
                "norm_rel_ebd",
                "'none' in a model without relative_attention: there is nothing to norm",
            )
        return None
    norm = None
    if "layer_norm" in norm_names:
        norm = Norm("layer", config.number("layer_norm_eps", default=1e-7))
    # with buckets, far distances share a vector by their logarithm; else each has its own
    has_buckets = buckets > 0
    return Disentangled(
        span=buckets if has_buckets else furthest,
        furthest=furthest if has_buckets else None,
        asks="c2p" in position_scores,
        answers="p2c" in position_scores,
        own=not shares_keys,
        norm=norm,
    )


def _furthest_distance(config: Config) -> int:
    """The largest distance between tokens that has a vector of its own or shares one; larger
    distances count as this one."""
    distance = config.integer("max_relative_positions", default=-1, least=-1)
    if distance >= 1:
        return distance
    return config.integer("max_position_embeddings", default=512)


FAMILIES = {"deberta-v2": Family(spec, NAMES, fixed=FIXED)}
