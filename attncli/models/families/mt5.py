"""mT5: T5 over a hundred languages, gated by default. Source: Xue et al., 2021."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import t5
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of an mT5."""
    base = t5.spec(config, feed_forward="gated-gelu", scaled=False)
    return replace(base, family="mt5", decoder=None if base.decoder is None else replace(base.decoder, family="mt5"))


FAMILY = Family(spec, t5.ENCODER, t5.DECODER, t5.FIXED)
