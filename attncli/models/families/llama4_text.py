"""Llama 4 (text): chunks in three layers of four, the fourth without positions and with queries
that grow, experts.
Source: Meta, 2025."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.inputs.gguf_file import Metadata
from attncli.language import message
from attncli.mechanism.mask import Causal, Chunk
from attncli.mechanism.spec import Block, Experts, Mlp, Norm, QkNorm, Routing, Spec, Temperature
from attncli.models.config import ACTIVATIONS, Config, FixedValue, rope
from attncli.models.families import llama
from attncli.models.family import Family, PerExpert

NAMES = replace(
    llama.NAMES.with_roles(
        {
            "mlp.gate": "feed_forward.gate_proj",
            "mlp.up": "feed_forward.up_proj",
            "mlp.down": "feed_forward.down_proj",
            "experts.router": "feed_forward.router",
            "experts.gate experts.up": PerExpert(
                "feed_forward.experts.gate_up_proj", transposed=True
            ),
            "experts.down": PerExpert("feed_forward.experts.down_proj", transposed=True),
            "shared.gate": "feed_forward.shared_expert.gate_proj",
            "shared.up": "feed_forward.shared_expert.up_proj",
            "shared.down": "feed_forward.shared_expert.down_proj",
        }
    ),
    prefixes=("model.", "language_model.model."),
)

FIXED = {"for_llm_compressor": FixedValue(False, "experts would be stored one by one")}

EXPERTS_OF_LARGEST = 128
"""Experts of the model whose queries and keys are not normed."""
CHUNKED, WHOLE = "chunked_attention", "full_attention"


def spec(config: Config) -> Spec:
    """The Spec of a Llama 4: in three layers of four, queries see a chunk of the text and are
    rotated; the fourth sees all earlier tokens and has no positions."""
    count = llama.depth(config)

    # `no_rope_layers` is 1 for a layer with rotary positions, 0 for one without, despite its name
    every = config.integer("no_rope_layer_interval", default=4)
    rotary_layers = config.list_of("no_rope_layers", kind=int, count=count)
    if not rotary_layers:
        rotary_layers = [int((layer + 1) % every != 0) for layer in range(count)]

    # which layers have experts, the last of each `step` where the config does not list them
    step = config.integer("interleave_moe_layer_step", default=1)
    expert_layers = config.list_of("moe_layers", kind=int)
    if expert_layers is None:
        expert_layers = list(range(step - 1, count, step))

    # which layers see chunks
    kinds = config.list_of("layer_types", kind=str, count=count)
    if not kinds:
        kinds = [CHUNKED if rotary else WHOLE for rotary in rotary_layers]
    size = config.optional("attention_chunk_size", default=8192)
    if any(kind not in (CHUNKED, WHOLE) for kind in kinds) or (CHUNKED in kinds and size is None):
        raise config.refuse(
            "layer_types",
            message(
                "{chunked} with an attention_chunk_size, and {whole}", chunked=CHUNKED, whole=WHOLE
            ),
        )

    # (no chunked layer without a size is left here; only a type checker asks)
    masks = [Chunk(size) if kind == CHUNKED and size is not None else Causal() for kind in kinds]
    blocks = [
        _layer_block(config, mask, rotary=bool(rotary), has_experts=layer in expert_layers)
        for layer, (mask, rotary) in enumerate(zip(masks, rotary_layers, strict=True))
    ]
    biases = ("attn.[qkvo]",) if config.flag("attention_bias", default=False) else ()
    return llama.decoder(config, blocks, biases=biases)


def _layer_block(config: Config, mask: Causal | Chunk, *, rotary: bool, has_experts: bool) -> Block:
    """One layer of a Llama 4, with this mask.

    rotary: whether queries and keys are rotated (and normed); where not, queries may be multiplied
        by a number that grows with their position.
    """
    # all keys are read for each layer, used there or not, so that none counts as unknown
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config, default=128)
    normed = config.flag("use_qk_norm", default=True) and rotary
    # only layers without positions have queries that grow
    temperature = Temperature(
        config.integer("floor_scale", default=8192), config.number("attn_scale", default=0.1)
    )
    grows = config.flag("attn_temperature_tuning", default=True) and not rotary
    position = rope(config, dim, default_theta=500000.0, pairing="adjacent")

    activation = config.choice("hidden_act", among=ACTIVATIONS, default="silu")
    mlp = Mlp(config.integer("intermediate_size_mlp", default=16384), activation, gated=True)
    layer_block = llama.block(
        config,
        position=position if rotary else None,
        dim=dim,
        mask=mask,
        default_kv_heads=8,
        qk_norm=QkNorm(Norm("rms", norm.eps, affine=False), after=True) if normed else None,
        norm=norm,
        mlp=_experts(config) if has_experts else mlp,
    )
    return replace(
        layer_block,
        attention=replace(layer_block.attention, temperature=temperature if grows else None),
    )


def _experts(config: Config) -> Experts:
    """The experts of a Llama 4, of which the router's weight multiplies the input, not the output,
    and one more of the same size for every token."""
    part = llama.gated_mlp(config, default=8192)
    count = config.integer("num_local_experts", default=16, most=2**16)
    per_token = config.integer("num_experts_per_tok", default=1, most=count)
    routing = Routing("sigmoid", of_input=True)
    return Experts(
        count,
        per_token,
        part.width,
        part.activation,
        renormalise=False,
        shared=part,
        routing=routing,
    )


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files lack or name otherwise: the widths of experts and of
    other feed-forward parts, whether queries and keys are normed, and, for models without chunks,
    that all layers rotate."""
    keys: dict[str, object] = {
        "intermediate_size": metadata.architecture_value("expert_feed_forward_length"),
        "intermediate_size_mlp": metadata.architecture_value("feed_forward_length"),
        "interleave_moe_layer_step": metadata.architecture_value("interleave_moe_layer_step"),
        "use_qk_norm": metadata.architecture_value("expert_count") != EXPERTS_OF_LARGEST,
        "sliding_window": None,  # takes away what all families get: here it says how long chunks are
    }
    layers = metadata.layers()
    if metadata.architecture_value("attention.sliding_window") == 0:  # no chunks
        keys |= {
            "no_rope_layers": [1] * layers,
            "layer_types": [WHOLE] * layers,
            "attn_temperature_tuning": False,
        }
    return keys


FAMILIES = {"llama4_text": Family(spec, NAMES, fixed=FIXED, gguf=gguf_keys)}
