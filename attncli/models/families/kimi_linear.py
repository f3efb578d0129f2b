"""Kimi Linear: the delta rule with states that fade entry by entry in most layers, latent attention
without positions in the others, and DeepSeek's experts. Source: Kimi Team, 2025."""

from __future__ import annotations

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, KimiDelta, Latent, Norm, Routing, Spec
from attncli.models.config import ACTIVATIONS, GLOBAL, Config
from attncli.models.families import deepseek_v2, llama, mixtral, qwen3_next
from attncli.models.family import Family, Names, Source

LINEAR = qwen3_next.LINEAR
KINDS = {"sparse": True, "dense": False}
"""Whether a type of feed-forward part has experts."""

MIXER: dict[str, Source] = {
    **{f"mixer.{name}": f"self_attn.{name}_proj" for name in "qkv"},
    **{f"mixer.{name}_conv": f"self_attn.{name}_conv1d" for name in "qkv"},
    "mixer.time_down": "self_attn.f_a_proj",
    "mixer.time": "self_attn.f_b_proj",
    "mixer.step": "self_attn.dt_bias",
    "mixer.decay": "self_attn.A_log",
    "mixer.strength": "self_attn.b_proj",
    "mixer.gate_down": "self_attn.g_a_proj",
    "mixer.gate": "self_attn.g_b_proj",
    "mixer.norm": "self_attn.o_norm",
    "mixer.output": "self_attn.o_proj",
}


def _names() -> Names:
    """The tensor names of a Kimi Linear: DeepSeek's for attention, Mixtral's for experts, its own
    for the mixer. Feed-forward parts are called `mlp.…`, or, in the files first published,
    `block_sparse_moe.…`."""
    parts = {name: f"{name}_proj" for name in ("gate", "up", "down")}
    # all names of a layer are dropped, so that those listed here are the only ones; of a role that
    # is listed twice the later entry counts
    return deepseek_v2.NAMES.with_roles(
        {
            **mixtral.NAMES.inside,
            **{
                key: source
                for key, source in deepseek_v2.NAMES.inside.items()
                if key.startswith("attn.")
            },
            **MIXER,
            **{
                f"mlp.{name}": f"mlp.{part}|block_sparse_moe.{part}" for name, part in parts.items()
            },
            **{
                f"shared.{name}": f"block_sparse_moe.shared_experts.{part}"
                for name, part in parts.items()
            },
            "experts.correction": "block_sparse_moe.gate.e_score_correction_bias",
        },
        without=(*mixtral.NAMES.inside, *deepseek_v2.NAMES.inside),
    )


NAMES = _names()


def spec(config: Config) -> Spec:
    """The Spec of a Kimi Linear: the delta rule in most layers, latent attention in the others,
    experts in all but the first."""
    layers = llama.depth(config)
    # sizes of linear attention are in an object of their own, or beside the others
    nested = config.section("linear_attn_config") or Config({}, config.where)

    # latent attention; no entry is rotated, though some keep the name
    content = config.integer("qk_nope_head_dim", default=128)
    straight = config.integer("qk_rope_head_dim", default=64)
    heads = config.integer("num_attention_heads", most=2**16)
    # in latent attention every head has keys and values of its own; null says so, too
    if (config.optional("num_key_value_heads", default=32) or heads) != heads:
        raise config.refuse("num_key_value_heads", f"{heads}")
    attention = Attention(
        heads,
        kv_heads=heads,
        head_dim=content + straight,
        v_dim=config.optional("v_head_dim", default=128) or content,
        scale=(content + straight) ** -0.5,
        mask=Causal(),
        latent=Latent(
            query=config.optional("q_lora_rank"),
            keys=config.integer("kv_lora_rank", default=512),
            norm=Norm("rms", 1e-6),
            straight=straight,
        ),
    )

    # the delta rule: its own object counts first, then the keys beside it
    norm = llama.rms(config, default=1e-5)
    outer_heads = config.integer("linear_num_heads", default=32, most=2**16)
    outer_dim = config.integer("linear_head_dim", default=128, most=2**16)
    outer_kernel = config.integer("linear_conv_kernel_dim", default=4, most=2**10)
    mixer = KimiDelta(
        heads=nested.integer("num_heads", default=outer_heads, most=2**16),
        dim=nested.integer("head_dim", default=outer_dim, most=2**16),
        kernel=nested.integer("short_conv_kernel_size", default=outer_kernel, most=2**10),
        activation=config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        norm=norm,
    )

    # experts, and a plain feed-forward part for the layers without
    routing = Routing(
        "sigmoid",
        factor=config.number("routed_scaling_factor", default=2.446),
        groups=config.integer("num_expert_group", "n_group", default=1),
        groups_chosen=config.integer("topk_group", default=1),
        group_by=2,  # a group counts by its two best
        corrected=True,
        slack=1e-20,  # so that no sum of shares is 0
    )
    mixture = deepseek_v2.experts(
        config,
        routing,
        default_count=256,
        default_shared_count=1,
        default_width=1024,
        renormalise=config.flag("moe_renormalize", "norm_topk_prob", default=True),
        default_per_token=8,
    )
    dense = llama.gated_mlp(config, default=9216)

    blocks: list[Block] = []
    kinds = _layer_types(config, nested, layers)
    for kind, has_experts in zip(kinds, _has_experts(config, layers), strict=True):
        block = Block(
            attention, mixture if has_experts else dense, {"attn.in": norm, "mlp.in": norm}
        )
        blocks.append(block if kind == GLOBAL else block.with_mixer(mixer))
    # without effect: of training, or of positions that no layer has
    config.get(*deepseek_v2.IDLE, "model_max_length", "rope_theta", "rope_scaling", "mla_use_nope")
    biases: tuple[str, ...] = ()
    if config.flag("attention_bias", default=False):
        biases = ("attn.q_down", "attn.kv_down", "attn.o")
    return llama.decoder(config, blocks, biases=biases)


def _layer_types(config: Config, nested: Config, count: int) -> list[str]:
    """The type of each of `count` layers, "full_attention" or "linear_attention": the config's
    `layer_types`, else full for the numbers (from 1) in `full_attn_layers` of `nested`, else full for
    the layers 4, 8, 12 … (from 0)."""
    kinds = config.list_of("layer_types", kind=str, count=count)
    # the two lists count only where both are there
    attending = nested.list_of("full_attn_layers", kind=int)
    linear = nested.list_of("kda_layers", kind=int)
    if kinds is None and attending is not None and linear is not None:
        kinds = [GLOBAL if layer + 1 in attending else LINEAR for layer in range(count)]
    if kinds is None:
        kinds = [GLOBAL if layer and layer % 4 == 0 else LINEAR for layer in range(count)]
    if not set(kinds) <= {LINEAR, GLOBAL}:
        raise config.refuse("layer_types", f"{GLOBAL}, {LINEAR}")
    return kinds


def _has_experts(config: Config, count: int) -> list[bool]:
    """For each of `count` layers, whether its feed-forward part is a mixture of experts."""
    kinds = config.list_of("mlp_layer_types", kind=str, count=count)
    first = config.integer("first_k_dense_replace", default=1, least=0)
    if kinds is None:
        return [layer >= first for layer in range(count)]
    if not set(kinds) <= set(KINDS):
        raise config.refuse("mlp_layer_types", ", ".join(KINDS))
    return [KINDS[kind] for kind in kinds]


FAMILIES = {"kimi_linear": Family(spec, NAMES)}
