"""GGUF files of tiny checkpoints, written with the `gguf` package: what llama.cpp's converter makes
of them.

The names of tensors are that package's own map from transformers' names; the permutation of queries
and keys and the norms that hold one more are written here from the converter's description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

Kind = gguf.GGMLQuantizationType
Floats = np.ndarray[Any, Any]

PERMUTED = ("llama", "granite", "granitehybrid", "granitemoe", "mistral3", "olmo", "smollm3")
LEFT_OUT = (
    *("pooler", "bert.pooler", "cls.", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    "embeddings.position_ids",
)
DELTA_RULES = ("qwen3next", "qwen35", "qwen35moe")
ONE_MORE = ("gemma", "gemma2", "gemma3", "gemma-embedding", "nemotron", *DELTA_RULES)
KEYS = {
    "embedding_length": ("hidden_size", "n_embd", "d_model", "dim"),
    "block_count": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "attention.head_count": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "feed_forward_length": ("intermediate_size_mlp", "intermediate_size", "n_inner", "d_ff", "hidden_dim"),
    "context_length": ("max_position_embeddings", "n_positions"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attention.key_length": ("head_dim", "d_kv"), "attention.value_length": ("head_dim", "d_kv"),
    "attention.sliding_window": ("sliding_window",), "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",), "attention.scale": ("attention_multiplier",),
    "residual_scale": ("residual_multiplier",), "embedding_scale": ("embedding_multiplier",),
    "logit_scale": ("logits_scaling", "logit_scale"),
    "expert_count": ("n_routed_experts", "num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok", "num_experts_per_token"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "use_parallel_residual": ("use_parallel_residual",), "attention.clamp_kqv": ("clip_qkv",),
    "shortconv.l_cache": ("conv_L_cache",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "expert_group_count": ("n_group",), "expert_group_used_count": ("topk_group",),
    "expert_shared_count": ("n_shared_experts",), "expert_weights_scale": ("routed_scaling_factor",),
    "leading_dense_block_count": ("first_k_dense_replace", "num_dense_layers"),
    "attention.q_lora_rank": ("q_lora_rank",), "attention.kv_lora_rank": ("kv_lora_rank",),
    "interleave_moe_layer_step": ("interleave_moe_layer_step",), "decoder_block_count": ("num_decoder_layers",),
    "attention.relative_buckets_count": ("relative_attention_num_buckets",),
    "ssm.conv_kernel": ("linear_conv_kernel_dim", "mamba_d_conv"),
    "ssm.state_size": ("linear_key_head_dim", "mamba_d_state"),
    "ssm.group_count": ("linear_num_key_heads", "mamba_n_groups"),
    "ssm.time_step_rank": ("linear_num_value_heads", "mamba_n_heads", "mamba_dt_rank"),
}  # fmt: skip


YARN = {"factor": "factor", "original_context_length": "original_max_position_embeddings",
        "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow", "attn_factor": "attention_factor"}  # fmt: skip


def write(
    folder: Path,
    target: Path,
    architecture: str,
    *,
    quantise: Callable[[str, Floats], Kind] | None = None,
    vocabulary: Callable[[gguf.GGUFWriter], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """A folder's checkpoint as a GGUF file. quantise: the type of a tensor; None for F32
    throughout. more: metadata after the architecture, over what the config says."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, architecture)
    values = {
        key: next((config[name] for name in names if config.get(name) is not None), None)
        for key, names in KEYS.items()
    }
    rotary = config.get("rope_parameters") or {}
    values["rope.freq_base"] = rotary.get("rope_theta") or config.get("rope_theta")
    if "full_attention" in rotary:
        values |= {"rope.freq_base": rotary["full_attention"]["rope_theta"], "rope.scaling.type": "linear",
                   "rope.freq_base_swa": rotary["sliding_attention"]["rope_theta"],
                   "rope.scaling.factor": rotary["full_attention"].get("factor")}  # fmt: skip
    width = (
        values["attention.key_length"]
        or values["embedding_length"] // values["attention.head_count"]
    )
    values["rope.dimension_count"] = config.get("qk_rope_head_dim") or int(
        width * (rotary.get("partial_rotary_factor") or 1)
    )
    if rotary.get("rope_type") == "yarn":
        values |= {f"rope.scaling.{key}": rotary.get(own) for key, own in YARN.items()} | {
            "rope.scaling.type": "yarn"
        }
    if rotary.get("rope_type") == "longrope":
        values["rope.scaling.original_context_length"] = config["original_max_position_embeddings"]
        values["rope.scaling.attn_factor"] = rotary.get("attention_factor")
        for length in ("short", "long"):
            writer.add_tensor(
                f"rope_factors_{length}.weight", np.array(rotary[f"{length}_factor"], np.float32)
            )
    if rotary.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", divisors(rotary, width))
    for key, value in (values | dict(more or {})).items():
        if isinstance(value, bool):
            writer.add_bool(f"{architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{architecture}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{architecture}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
    if vocabulary is not None:
        vocabulary(writer)
    for name, array in tensors(folder, architecture, config).items():
        kind = Kind.F32 if quantise is None or array.ndim < 2 else quantise(name, array)
        if kind == Kind.F32:
            writer.add_tensor(name, array)
        else:
            packed = pack(array, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def pack(array: Floats, kind: Kind) -> np.ndarray[Any, Any]:
    """The array's blocks: the package's own where it can write them, those of `q4_k` and `q6_k`,
    else seeded ones with small scales."""
    if kind in WRITERS:
        return WRITERS[kind](array)
    try:
        return gguf.quants.quantize(array, kind)
    except NotImplementedError:
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        count = array.size // weights
        raw = np.random.default_rng(int(kind)).integers(0, 256, (count, size), dtype=np.uint8)
        for place in HALVES[kind.name]:
            raw[:, place : place + 2] = np.float16(0.01).reshape(1).view(np.uint8)
        return raw.reshape(*array.shape[:-1], -1)


HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q5_K": (0, 2), "IQ4_NL": (0,), "IQ4_XS": (0,)}
"""Where the float16 scales of a block stand, of kinds that nobody here writes."""


def q4_k(array: Floats) -> np.ndarray[Any, Any]:
    """Blocks of Q4_K: eight parts of 32 numbers, each from its least to its largest in 15 steps."""
    parts = array.reshape(-1, 8, 32)
    least = np.minimum(parts.min(-1), 0)
    step, scales = _whole((parts.max(-1) - least) / 15, 63)
    shift, offsets = _whole(-least, 63)
    numbers = np.rint(
        (parts + (shift * offsets)[..., None]) / np.maximum(step * scales, 1e-12)[..., None]
    )
    fours = np.clip(numbers, 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    high = scales[:, 4:], offsets[:, 4:]
    six = [
        scales[:, :4] | high[0] >> 4 << 6,
        offsets[:, :4] | high[1] >> 4 << 6,
        high[0] & 15 | (high[1] & 15) << 4,
    ]
    packed = (fours[:, :, 0] | fours[:, :, 1] << 4).reshape(-1, 128)
    blocks = np.concatenate([_halves(step), _halves(shift), *six, packed], axis=1)
    return blocks.reshape(*array.shape[:-1], -1)


def q6_k(array: Floats) -> np.ndarray[Any, Any]:
    """Blocks of Q6_K: sixteen parts of 16 numbers, each of 64 steps around 0."""
    parts = array.reshape(-1, 16, 16)
    step, scales = _whole(np.abs(parts).max(-1) / 31, 127)
    numbers = np.clip(np.rint(parts / np.maximum(step * scales, 1e-12)[..., None]), -32, 31)
    sixes = (numbers + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = sixes & 15, sixes >> 4
    fours = np.stack(
        [low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], 2
    ).reshape(-1, 128)
    twos = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(
        -1, 64
    )
    return np.concatenate([fours, twos, scales, _halves(step)], axis=1).reshape(
        *array.shape[:-1], -1
    )


def _whole(values: Floats, most: int) -> tuple[Floats, np.ndarray[Any, Any]]:
    """Values of a block, [block, part], as a step of float16, [block, 1], times whole numbers up to
    `most`.
    """
    step = (values.max(-1, keepdims=True) / most).astype(np.float16).astype(np.float32)
    return step, np.clip(np.rint(values / np.maximum(step, 1e-12)), 0, most).astype(np.uint8)


def _halves(step: Floats) -> np.ndarray[Any, Any]:
    return step.astype(np.float16).view(np.uint8)


WRITERS = {Kind.Q4_K: q4_k, Kind.Q6_K: q6_k}


def mixed(name: str, layers: int) -> Kind:
    """The type of a matrix in the usual mix of Q4_K and Q6_K: more bits for what is written out,
    and for values and the way down in a half of the layers."""
    if name == "output.weight":
        return Kind.Q6_K
    if "attn_v" not in name and "ffn_down" not in name:
        return Kind.Q4_K
    layer, eighth = int(name.split(".")[1]), layers // 8
    return (
        Kind.Q6_K
        if layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2
        else Kind.Q4_K
    )


def tensors(folder: Path, architecture: str, config: Mapping[str, Any]) -> dict[str, Floats]:
    """The checkpoint's tensors under the names of GGUF, as the converter leaves them."""
    layers = max(config.get(key) or 0 for key in (*KEYS["block_count"], "num_decoder_layers"))
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, layers)
    arrays: dict[str, Floats] = {}
    experts: dict[str, dict[int, Floats]] = {}
    heads = next(config[key] for key in KEYS["attention.head_count"] if config.get(key))
    for original, stored in load_file(folder / "model.safetensors").items():
        if original.startswith(LEFT_OUT):
            continue
        for own, array in converted(original, stored.astype(np.float32), architecture, config):
            name = own if own.startswith("blk.") else None
            for prefix in ("", "model.", "transformer.", "bert.", "roberta.", "gpt_neox."):
                for known in (prefix + own, own.removeprefix(prefix)):
                    name = name or names.get_name(known, try_suffixes=(".weight", ".bias"))
            item = re.search(r"experts\.(\d+)\.", own)
            if item is not None:
                joined = own.replace(f"experts.{item[1]}.", "experts.").replace(
                    "feed_forward", MERGED.get(architecture, "feed_forward")
                )
                module = names.get_name(joined, try_suffixes=(".weight",)) or names.get_name(
                    joined.removeprefix("model.")
                    if joined.startswith("model.")
                    else f"model.{joined}",
                    try_suffixes=(".weight",),
                )
                assert module is not None, own
                experts.setdefault(module, {})[int(item[1])] = array
                continue
            assert name is not None, own
            if architecture in PERMUTED and ("q_proj" in own or "k_proj" in own):
                of = heads if "q_proj" in own else config.get("num_key_value_heads") or heads
                array = permuted(array, of)
            if (
                architecture in ONE_MORE
                and re.search("norm\\d?.weight", own)
                and "linear_attn" not in own
            ):
                array = array + 1
            if architecture == "gpt2" and array.ndim == 2 and ".c_" in f".{own}":
                array = array.T
            if "query_key_value" in own:
                array = in_turn(
                    array,
                    config.get("num_kv_heads") or 1 if architecture == "falcon" else heads,
                    heads,
                )
            arrays[name] = np.ascontiguousarray(array)
    return arrays | {
        name: np.stack([by_number[key] for key in sorted(by_number)])
        for name, by_number in experts.items()
    }


MERGED = {"jamba": "mlp"}
"""Where the map knows stacked experts under the name that another family has for the part."""
RENAMED = {"dt_bias": "dt_proj.bias", "e_score_correction_bias": "e_score_correction.bias", "sinks": "sinks.weight",
           "expert_bias": "expert_bias.bias"}  # fmt: skip
"""What a tensor without a module of its own is called in the map, by the end of its name."""


def converted(
    own: str, array: Floats, architecture: str, config: Mapping[str, Any]
) -> list[tuple[str, Floats]]:
    """The tensors that are stored in place of one, under names that the map knows."""
    if architecture in DELTA_RULES[1:] and "linear_attn." in own:
        array = tiled(own, array, config)
    if "conv.conv" in own or "conv1d.weight" in own:
        array = array.squeeze(1)
    if own.endswith("A_log"):
        array = -np.exp(array)
    if architecture == "granitehybrid" and own.endswith(("A_log", ".D")):
        array = array[:, None]
    if architecture == "granitehybrid" and own.endswith("mamba.norm.weight"):
        array = array.reshape(config["mamba_n_groups"], -1)
    for end, new in RENAMED.items():
        own = own.removesuffix(end) + new if own.endswith(f".{end}") else own
    if "position_embeddings" in own and config["model_type"] in ("roberta", "xlm-roberta"):
        array = array[config["pad_token_id"] + 1 :]
    if architecture == "deepseek2" and "kv_b_proj" in own:
        by_head = array.reshape(config["num_attention_heads"], -1, array.shape[1])
        nope = config["qk_nope_head_dim"]
        parts = ("k_b_proj", by_head[:, :nope].swapaxes(1, 2)), ("v_b_proj", by_head[:, nope:])
        return [(own.replace("kv_b_proj", name), part) for name, part in parts]
    if "in_proj_qkvz" in own:
        sizes = [config["linear_key_head_dim"]] * 2 + [
            config["linear_value_head_dim"]
            * config["linear_num_value_heads"]
            // config["linear_num_key_heads"]
        ] * 2
        by_head = array.reshape(config["linear_num_key_heads"], sum(sizes), -1)
        q, k, v, z = (
            part.reshape(-1, array.shape[1])
            for part in np.split(by_head, np.cumsum(sizes)[:-1], axis=1)
        )
        return [
            (own.replace("qkvz", "qkv"), np.concatenate([q, k, v])),
            (own.replace("qkvz", "z"), z),
        ]
    if own.endswith(("experts.gate_up_proj", "experts.gate_up_proj_bias")):
        array = (
            array if own.endswith("bias") or architecture == "qwen35moe" else array.swapaxes(-1, -2)
        )
        half = array.shape[1] // 2
        parts = (
            (array[:, ::2], array[:, 1::2])
            if architecture == "gpt-oss"
            else (array[:, :half], array[:, half:])
        )
        suffix = ".bias" if own.endswith("bias") else ".weight"
        module = own.removesuffix("_bias")
        return [
            (module.replace("gate_up_proj", name) + suffix, part)
            for name, part in zip(("gate_proj", "up_proj"), parts, strict=True)
        ]
    if own.endswith(("experts.down_proj", "experts.down_proj_bias")):
        bias = own.endswith("_bias")
        array = array if bias or architecture == "qwen35moe" else array.swapaxes(-1, -2)
        return [(own.removesuffix("_bias") + (".bias" if bias else ".weight"), array)]
    if architecture in ("granitemoe", "granitehybrid") and "input_linear" in own:
        layer, axis = re.search(r"layers\.(\d+)\.", own)[1], array.ndim - 2
        alone = "shared" in own and not config["num_local_experts"]
        end = "" if alone else "_shexp" if "shared" in own else "_exps"
        halves = np.split(array, 2, axis=axis)
        return [
            (f"blk.{layer}.ffn_{half}{end}.weight", part)
            for half, part in zip(("gate", "up"), halves, strict=True)
        ]
    if (
        architecture == "granitehybrid"
        and "shared_mlp.output" in own
        and not config["num_local_experts"]
    ):
        return [("blk." + re.search(r"layers.(\d+).", own)[1] + ".ffn_down.weight", array)]
    return [(own, array)]


def tiled(own: str, array: Floats, config: Mapping[str, Any]) -> Floats:
    """A delta rule's tensor with the heads of its values in turn: the first of each key, then the
    second of each.
    """
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    dim = (
        1
        if own.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight"))
        else config["linear_value_head_dim"]
    )
    axis = 1 if "out_proj" in own else 0
    before = (
        2 * keys * config["linear_key_head_dim"] if "in_proj_qkv" in own or "conv1d" in own else 0
    )
    if own.endswith("norm.weight"):
        return array
    first, values = np.split(array, [before], axis=axis)
    shape = (*values.shape[:axis], keys, heads // keys, dim, *values.shape[axis + 1 :])
    values = values.reshape(shape).swapaxes(axis, axis + 1).reshape(values.shape)
    return np.concatenate([first, values], axis=axis)


def divisors(rotary: Mapping[str, Any], width: int) -> Floats:
    """What each frequency is divided by in Llama 3, one after the other, as the converter writes
    it.
    """
    factors = []
    for place in range(0, width, 2):
        wavelength = 2 * np.pi * rotary["rope_theta"] ** (place / width)
        original = rotary["original_max_position_embeddings"]
        if wavelength < original / rotary["high_freq_factor"]:
            factors.append(1.0)
        elif wavelength > original / rotary["low_freq_factor"]:
            factors.append(rotary["factor"])
        else:
            low, high = rotary["low_freq_factor"], rotary["high_freq_factor"]
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rotary["factor"] + smooth))
    return np.array(factors, np.float32)


def permuted(array: Floats, heads: int) -> Floats:
    """Rows of each head so that the two that rotate together are neighbours."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def in_turn(array: Floats, groups: int, heads: int) -> Floats:
    """All queries, then all keys, then all values, where the file has them by the group of heads
    that share a key.
    """
    by_group = array.reshape(groups, heads // groups + 2, -1, *array.shape[1:])
    parts = by_group[:, :-2], by_group[:, -2], by_group[:, -1]
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])
