"""Qwen3.5 with experts (text): experts in one tensor, or each in its own, as whoever saved the file had them. Source:
Qwen Team, 2026."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import qwen2, qwen3_5_text, qwen3_next
from attncli.models.family import Family, PerExpert

NAMES = replace(
    qwen3_5_text.NAMES.with_roles({**qwen2.EXPERTS, **qwen2.SHARED}),
    together={
        "experts.gate experts.up": PerExpert("mlp.experts.gate_up_proj"),
        "experts.down": "mlp.experts.down_proj",
    },
)


def spec(config: Config) -> Spec:
    """The Spec of a Qwen3.5 with experts, in every layer."""
    experts = qwen2.shared_experts(config, count=256, per_token=8, width=512, shared_width=512, renormalise=True)
    config.get("intermediate_size")  # of layers without experts, which it has none of
    return qwen3_next.gated(config, "qwen3_5_moe_text", lambda layer: experts, 2)


FAMILIES = {"qwen3_5_moe_text": Family(spec, NAMES, tiled=True)}
