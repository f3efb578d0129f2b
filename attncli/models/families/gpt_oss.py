"""gpt-oss: a learned sink for each head, a window in every other layer, experts with bounded gates.
Source: OpenAI,
2025."""

from __future__ import annotations

import math

from msgspec.structs import replace

from attncli.errors import UnsupportedError
from attncli.inputs.gguf_file import Metadata
from attncli.language import message
from attncli.mechanism.spec import Bounded, Experts, Rope, Spec, Yarn
from attncli.models.config import ACTIVATIONS, Config, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family, PerExpert

NAMES = llama.NAMES.with_roles(
    {
        "attn.sinks": "self_attn.sinks",
        "experts.router": "mlp.router",
        "experts.gate experts.up": PerExpert(
            "mlp.experts.gate_up_proj", alternating=True, transposed=True
        ),
        "experts.down": PerExpert("mlp.experts.down_proj", transposed=True),
    },
    without=("mlp.gate", "mlp.up", "mlp.down"),
)

THETA, FACTOR, ORIGINAL = 150000.0, 32.0, 4096
"""The rotary embedding of a config that says nothing of it."""


def spec(config: Config) -> Spec:
    """The Spec of a gpt-oss: a sink in each head, windows in every other layer, experts in all.
    Raises UnsupportedError for quantised weights."""
    _refuse_quantized(config)
    count = config.integer("num_local_experts", "num_experts", default=128, most=2**16)
    experts = Experts(
        count,
        config.integer("num_experts_per_tok", "experts_per_token", default=4, most=count),
        config.integer("intermediate_size", default=2880),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=True,
        bounded=Bounded(
            config.number("swiglu_limit", default=7.0), config.number("swiglu_alpha", default=1.702)
        ),
    )

    config.optional("initial_context_length")  # repeats what is said of the scaling
    window = config.optional("sliding_window", default=128)
    norm = llama.rms(config, default=1e-5)
    position = _rotary(config)
    blocks = [
        llama.block(
            config,
            position=position,
            dim=llama.head_dim(config, default=64),
            mask=layer_mask(config, kind, window),
            default_kv_heads=8,
            norm=norm,
            mlp=experts,
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: layer % 2 == 0)
    ]
    blocks = [replace(block, attention=replace(block.attention, sinks=True)) for block in blocks]

    biases: tuple[str, ...] = ("experts.*",)
    if config.flag("attention_bias", default=True):
        biases += ("attn.[qkvo]",)
    return llama.decoder(config, blocks, biases=biases)


def _rotary(config: Config) -> Rope:
    """The rotary embedding that the config describes; where it says nothing of scaling, that of the
    published model, YaRN from 4,096 positions on."""
    dim = llama.head_dim(config, default=64)
    position = rope(config, dim, default_theta=THETA)
    if config.get("rope_parameters") or config.get("rope_scaling"):
        return position
    magnitude = 0.1 * math.log(FACTOR) + 1.0  # YaRN's own formula
    return replace(position, scaling=Yarn(FACTOR, ORIGINAL, magnitude=magnitude, truncate=False))


def _refuse_quantized(config: Config) -> None:
    """Raise UnsupportedError for a config that says that the weights are quantised, with a hint for
    MXFP4, in which the model was published."""
    quantization = config.get("quantization_config")
    method = None
    if isinstance(quantization, dict):
        method = quantization.get("quant_method")
    if method == "mxfp4":
        what = message(
            "config.json sets quantization_config to 'mxfp4': the experts' weights have four bits"
            " each"
        )
        expected = message("the same model in bfloat16, float16 or float32")
        raise UnsupportedError(
            what, where=config.where, expected=expected, hint="--model unsloth/gpt-oss-20b-BF16"
        )
    if quantization:
        raise config.refuse("quantization_config", "weights in bfloat16, float16 or float32")


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """The config's `rope_scaling` from GGUF metadata: YaRN, with the bounds 32 and 1 that the files
    lack, not rounded to whole numbers."""
    factor = metadata.architecture_value("rope.scaling.factor")
    original = metadata.architecture_value("rope.scaling.original_context_length")
    if metadata.architecture_value("rope.scaling.type") != "yarn":
        return {"rope_scaling": {"rope_type": "default"}}
    scaling = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original or ORIGINAL,
    }
    return {"rope_scaling": {**scaling, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}


FAMILIES = {"gpt_oss": Family(spec, NAMES, gguf=gguf_keys)}
