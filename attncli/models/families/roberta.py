"""RoBERTa: BERT with positions that start after the padding id, one token type. Source: Liu et al., 2019."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import bert
from attncli.models.family import Family

NAMES = replace(bert.NAMES, prefixes=("roberta.",), ignored=(*bert.TASK_HEADS, "lm_head.*"))


def spec(config: Config) -> Spec:
    """The Spec of a RoBERTa; rows below the padding id of its position table are never used."""
    base = bert.decoding(config, bert.spec(config))
    padding = config.whole("pad_token_id", default=1, least=0)
    return replace(
        base,
        family="roberta",
        embedding=replace(base.embedding, position_offset=padding + 1, padding=padding),
        max_positions=(base.max_positions or 0) - padding - 1,
    )


FAMILY = Family(spec, NAMES, fixed=bert.FIXED)
