"""Bamba: Mamba 2 in place of attention in all layers but those listed. Source: IBM, Princeton, CMU and UIUC, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.mechanism.spec import Norm, Spec, StateSpace
from attncli.models.config import ACTIVATIONS, Config, rope
from attncli.models.families import llama
from attncli.models.family import Family, Source

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

MIXER: dict[str, Source] = {
    "mixer.input": "mamba.in_proj",
    "mixer.conv": "mamba.conv1d",
    "mixer.step": "mamba.dt_bias",
    "mixer.decay": "mamba.A_log",
    "mixer.straight": "mamba.D",
    "mixer.norm": "mamba.norm",
    "mixer.output": "mamba.out_proj",
}

NAMES = llama.NAMES.with_roles(
    {
        **MIXER,
        "mlp.in": "pre_ff_layernorm",
        "mlp.gate": "feed_forward.gate_proj",
        "mlp.up": "feed_forward.up_proj",
        "mlp.down": "feed_forward.down_proj",
    },
    outside={"final": "final_layernorm"},
)


def spec(config: Config) -> Spec:
    """The Spec of a Bamba."""
    norm, mixer = llama.rms(config, default=1e-5), state_space(config)
    attending = config.list_of("attn_layer_indices", kind=int) or []
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=0.5),
        kv_heads=8,
        norms={"attn.in": norm, "mlp.in": norm},
    )
    blocks = [block if layer in attending else block.mixing(mixer) for layer in range(llama.depth(config))]
    for idle in ("z_loss_coefficient", "num_logits_to_keep", "layers_block_type", "layer_types"):
        config.get(idle)
    return llama.decoder(config, "bamba", blocks, final=norm, biases=(*llama.linear_biases(config), *biases(config)))


def state_space(config: Config, default_eps: float = 1e-5, inner: int | None = None) -> StateSpace:
    """Mamba 2 as configs of several families describe it. default_eps: of its norm, where the config is silent. inner:
    the width of all heads; None for the model's, widened."""
    widened = config.whole("mamba_expand", default=2) * config.whole("hidden_size")
    inner = widened if inner is None else inner
    heads = config.heads(inner, "mamba_n_heads", default=128)
    groups = config.heads(heads, "mamba_n_groups", default=1)
    if config.get("mamba_d_head") not in (None, "auto", inner // heads):
        raise config.refuse("mamba_d_head", f"auto, {inner // heads}")
    config.get("mamba_chunk_size")  # how a library cuts its text
    return StateSpace(
        heads,
        inner // heads,
        config.whole("mamba_d_state", default=256, most=2**16),
        groups,
        config.whole("mamba_d_conv", default=4, most=2**10),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        Norm("rms", config.number("rms_norm_eps", default=default_eps)),
        limits=limits(config),
    )


def limits(config: Config) -> tuple[float, float | None]:
    """The least and the largest step; transformers writes no largest as an object that names infinity."""
    values = config.list_of("time_step_limit", kind=(int, float, dict), count=2)
    if values is None:
        return 0.0, None
    low, high = values
    if not isinstance(low, int | float) or low < 0:
        raise config.refuse("time_step_limit", f"[0.0, {float('inf')}]")
    if isinstance(high, dict) or high == float("inf"):
        return float(low), None
    return float(low), float(high)


def biases(config: Config) -> tuple[str, ...]:
    """The biases of the mixer."""
    convolution = ("mixer.conv",) if config.flag("mamba_conv_bias", default=True) else ()
    return (*convolution, *(("mixer.input", "mixer.output") if config.flag("mamba_proj_bias", default=False) else ()))


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What its configs do not say twice: which layers attend."""
    return {"layer_types": None}


FAMILIES = {"bamba": Family(spec, NAMES, permuted=True, gguf=gguf_keys)}
