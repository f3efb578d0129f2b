"""Hunyuan MoE: Hunyuan with experts in every layer, besides one that serves every token. Source: Tencent, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, Mlp, Spec
from attncli.models.config import ACTIVATIONS, Config
from attncli.models.families import hunyuan_v1_dense, llama, qwen2_moe
from attncli.models.family import Family

NAMES = hunyuan_v1_dense.NAMES.with_roles(
    {
        **qwen2_moe.EXPERTS,
        "experts.router": "mlp.gate.wg",
        "shared.gate": "mlp.shared_mlp.gate_proj",
        "shared.up": "mlp.shared_mlp.up_proj",
        "shared.down": "mlp.shared_mlp.down_proj",
    },
    without=("mlp.gate", "mlp.up", "mlp.down"),
)


def spec(config: Config) -> Spec:
    """The Spec of a Hunyuan MoE. The shares of the chosen experts sum to 1; numbers may differ by layer."""
    layers = llama.depth(config)
    counts, chosen = (
        _by_layer(config, layers, *keys) for keys in (("num_experts",), ("moe_topk", "num_experts_per_tok"))
    )
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="silu")
    width = config.whole("intermediate_size")
    shared = Mlp(width, activation, gated=True)
    blocks = [
        hunyuan_v1_dense.block(config, Experts(count, best, width, activation, renormalise=True, shared=shared))
        for count, best in zip(counts, chosen, strict=True)
    ]
    return hunyuan_v1_dense.around(config, "hunyuan_v1_moe", blocks)


def _by_layer(config: Config, layers: int, *keys: str) -> list[int]:
    """A number for each layer, of a config that has one for all or a list."""
    values = config.get(*keys)
    if not isinstance(values, list):
        return [config.whole(*keys, default=1, most=2**16)] * layers
    key = next(key for key in keys if config.values.get(key) is not None)
    config.list_of(key, kind=int, count=layers)
    return [Config({key: value}, config.where).whole(key, most=2**16) for value in values]


FAMILY = Family(spec, NAMES)
