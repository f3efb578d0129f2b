"""MPNet: BERT with RoBERTa's positions, T5's biases by distance and no token types. Source: Song et al., 2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import RelativeBuckets, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bert
from attncli.models.family import Family, SharedTensor

PADDING = 1
"""The row of the position table at which padding is, whatever the config says; positions start after it."""

NAMES = replace(
    bert.NAMES.with_roles(
        {
            "attn.q": "attention.attn.q",
            "attn.k": "attention.attn.k",
            "attn.v": "attention.attn.v",
            "attn.o": "attention.attn.o",
            "attn.sum": "attention.LayerNorm",
            "attn.buckets": SharedTensor("encoder.relative_attention_bias"),
        }
    ),
    prefixes=("mpnet.",),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)

FIXED = {
    "relative_attention_num_buckets": FixedValue(32, "distances are shared out to 32 buckets whatever this key says")
}


def spec(config: Config) -> Spec:
    """The Spec of an MPNet."""
    base = bert.spec(config)
    buckets = RelativeBuckets(32, 128, bidirectional=True)
    return replace(
        base,
        family="mpnet",
        blocks=tuple(replace(block, attention=replace(block.attention, position=buckets)) for block in base.blocks),
        embedding=replace(base.embedding, types=0, position_offset=PADDING + 1, padding=PADDING),
        max_positions=(base.max_positions or 0) - PADDING - 1,
    )


FAMILIES = {"mpnet": Family(spec, NAMES, fixed=FIXED)}
