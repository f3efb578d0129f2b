"""CamemBERT: RoBERTa of French. Source: Martin et al., 2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import roberta
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a CamemBERT."""
    return replace(roberta.spec(config), family="camembert")


FAMILY = Family(spec, roberta.NAMES, fixed=roberta.FAMILY.fixed)
