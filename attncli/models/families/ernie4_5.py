"""ERNIE 4.5: Llama with neighbouring entries rotated together, and biases everywhere or nowhere. Source: Baidu ERNIE
Team, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of an ERNIE 4.5 without experts."""
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config, 128)
    block = llama.block(
        config,
        position=rope(config, dim, default_theta=500000.0, pairing="adjacent"),
        dim=dim,
        kv_heads=2,
        norms={"attn.in": norm, "mlp.in": norm},
    )
    biases = ("attn.[qkvo]", "mlp.up", "mlp.gate", "mlp.down") if config.flag("use_bias", default=False) else ()
    return llama.decoder(config, "ernie4_5", [block] * llama.depth(config), final=norm, tied=True, biases=biases)


FAMILY = Family(spec, llama.NAMES)
