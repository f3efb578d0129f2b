"""ELECTRA: BERT with a token table of its own width. Source: Clark et al., 2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import bert
from attncli.models.family import Family

NAMES = replace(
    bert.NAMES.with_roles({}, outside={"embed.project": "embeddings_project"}),
    prefixes=("electra.",),
    ignored=(*bert.TASK_HEADS, "generator_*", "discriminator_*", "sequence_summary.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of an ELECTRA, generator or discriminator."""
    base = bert.decoding(config, bert.spec(config))
    width = config.whole("embedding_size", default=128)
    if width == base.d_model:
        return replace(base, family="electra")
    return replace(base, family="electra", embedding=replace(base.embedding, width=width, projection="sum"))


FAMILY = Family(spec, NAMES, fixed=bert.FIXED)
