"""EXAONE 4: norms after each part, normed queries and keys, positions in the layers with a window alone. Source: LG AI
Research, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.mechanism.spec import QkNorm, Spec
from attncli.models.config import GLOBAL, LOCAL, Config, layer_mask, layer_types, rope
from attncli.models.families import llama, olmo
from attncli.models.family import Family

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata


def spec(config: Config) -> Spec:
    """The Spec of an EXAONE 4. Without a window all layers have positions."""
    norm = llama.rms(config, default=1e-5)
    window = config.optional("sliding_window", default=4096)
    every = 1
    if config.get("layer_types") is not None or window is None:
        config.get("sliding_window_pattern")  # repeats the layers' types, perhaps in letters
    else:
        every = config.whole("sliding_window_pattern", default=4)
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(
            config,
            position=position if kind == LOCAL or window is None else None,
            mask=layer_mask(config, kind, window),
            qk_norm=QkNorm(norm),
            kv_heads=32,
            norms={"attn.out": norm, "mlp.out": norm},
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every))
    ]
    return llama.decoder(config, "exaone4", blocks, final=norm, biases=())


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What GGUF files leave out: that a model without a window has none."""
    if metadata.own("attention.sliding_window"):
        return {}
    return {"sliding_window": None, "layer_types": [GLOBAL] * metadata.layers()}


FAMILIES = {"exaone4": Family(spec, olmo.OLMO2_NAMES, gguf=gguf_keys)}
