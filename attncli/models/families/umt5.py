"""umT5: mT5 whose layers each have biases by distance of their own. Source: Chung et al., 2023."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import t5
from attncli.models.family import Family

BUCKETS = {"attn.buckets": "layer.0.SelfAttention.relative_attention_bias"}


def spec(config: Config) -> Spec:
    """The Spec of a umT5."""
    base = t5.spec(config, feed_forward="gated-gelu")
    decoder = None if base.decoder is None else replace(base.decoder, family="umt5")
    return replace(base, family="umt5", decoder=decoder)


FAMILY = Family(spec, t5.ENCODER.with_roles(BUCKETS), t5.DECODER.with_roles(BUCKETS), t5.FIXED)
