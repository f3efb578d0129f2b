"""GLM-4-0414: GLM with norms on both sides of each part. Source: GLM Team, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import glm
from attncli.models.family import Family

NAMES = glm.NAMES.with_roles({"attn.out": "post_self_attn_layernorm", "mlp.out": "post_mlp_layernorm"})


def spec(config: Config) -> Spec:
    """The Spec of a GLM-4-0414."""
    return glm.partly_rotated(config, "glm4", ("attn.in", "attn.out", "mlp.in", "mlp.out"))


FAMILY = Family(spec, NAMES)
