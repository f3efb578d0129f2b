"""XLM-RoBERTa: RoBERTa over a hundred languages. Source: Conneau et al., 2019."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import bert, roberta
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of an XLM-RoBERTa."""
    return replace(roberta.spec(config), family="xlm-roberta")


FAMILY = Family(spec, roberta.NAMES, fixed=bert.FIXED)
