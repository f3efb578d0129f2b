"""OLMo 3: OLMo 2 with a window in three layers of four, and rotary scaling in the fourth alone. Source: OLMo Team,
2025."""

from __future__ import annotations

from attncli.mechanism.spec import QkNorm, Spec
from attncli.models.config import GLOBAL, LOCAL, Config, layer_mask, layer_types, rope
from attncli.models.families import llama, olmo2
from attncli.models.family import Family

THETA = 500000.0


def spec(config: Config) -> Spec:
    """The Spec of an OLMo 3. Outside of `rope_parameters`, base and scaling are meant for the global layers."""
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config)
    window = config.optional("sliding_window", default=4096)
    positions = {
        GLOBAL: rope(config, dim, kind=GLOBAL, default_theta=THETA),
        LOCAL: rope(config, dim, kind=LOCAL, theta=(), default_theta=THETA, scaled=False),
    }
    blocks = [
        llama.block(
            config,
            position=positions[kind],
            mask=layer_mask(config, kind, window),
            qk_norm=QkNorm(norm, over="width"),
            norms={"attn.out": norm, "mlp.out": norm},
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % 4))
    ]
    return llama.decoder(config, "olmo3", blocks, final=norm)


FAMILY = Family(spec, olmo2.NAMES)
