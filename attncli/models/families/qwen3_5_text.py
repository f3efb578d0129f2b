"""Qwen3.5 (text): Qwen3-Next whose projections are tensors of their own, without experts. Source: Qwen Team, 2026."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.families import llama, qwen2, qwen3_next
from attncli.models.family import Concat, Family

NAMES = replace(
    qwen2.QWEN3_NAMES.with_roles(
        {
            **qwen3_next.MIXER,
            "mixer.q mixer.k mixer.v": Concat("linear_attn.in_proj_qkv"),
            "mixer.gate": "linear_attn.in_proj_z",
            "mixer.strength": "linear_attn.in_proj_b",
            "mixer.time": "linear_attn.in_proj_a",
        },
        without=("attn.q",),
    ),
    ignored=qwen3_next.NAMES.ignored,
)


def spec(config: Config) -> Spec:
    """The Spec of a Qwen3.5."""
    return qwen3_next.gated(config, "qwen3_5_text", lambda layer: llama.gated_mlp(config, default=12288), 4)


FAMILIES = {"qwen3_5_text": Family(spec, NAMES, tiled=True)}
