"""GGUF files of tiny checkpoints, written with the `gguf` package: what llama.cpp's converter makes of them.

The names of tensors are that package's own map from transformers' names; the permutation of queries and keys and the
norms that hold one more are written here from the converter's description.
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

PERMUTED = ("llama", "granite", "granitemoe", "olmo", "smollm3")
ONE_MORE = ("gemma", "gemma2", "gemma3", "nemotron")
KEYS = {
    "embedding_length": ("hidden_size", "n_embd"), "block_count": ("num_hidden_layers", "n_layer"),
    "attention.head_count": ("num_attention_heads", "n_head"), "attention.head_count_kv": ("num_key_value_heads",),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "context_length": ("max_position_embeddings", "n_positions"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attention.key_length": ("head_dim",), "attention.value_length": ("head_dim",),
    "attention.sliding_window": ("sliding_window",), "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",), "attention.scale": ("attention_multiplier",),
    "residual_scale": ("residual_multiplier",), "embedding_scale": ("embedding_multiplier",),
    "logit_scale": ("logits_scaling", "logit_scale"), "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",), "expert_feed_forward_length": ("moe_intermediate_size",),
    "use_parallel_residual": ("use_parallel_residual",), "attention.clamp_kqv": ("clip_qkv",),
    "shortconv.l_cache": ("conv_L_cache",), "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
}  # fmt: skip


def write(
    folder: Path,
    target: Path,
    architecture: str,
    *,
    quantise: Callable[[str, Floats], Kind] | None = None,
    vocabulary: Callable[[gguf.GGUFWriter], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """A folder's checkpoint as a GGUF file. quantise: the type of a tensor; None for F32 throughout. more: metadata
    after the architecture, over what the config says."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, architecture)
    values = {
        key: next((config[name] for name in names if config.get(name) is not None), None) for key, names in KEYS.items()
    }
    rotary = config.get("rope_parameters") or {}
    values["rope.freq_base"] = rotary.get("rope_theta") or config.get("rope_theta")
    if "full_attention" in rotary:
        values |= {"rope.freq_base": rotary["full_attention"]["rope_theta"], "rope.scaling.type": "linear",
                   "rope.freq_base_swa": rotary["sliding_attention"]["rope_theta"],
                   "rope.scaling.factor": rotary["full_attention"].get("factor")}  # fmt: skip
    width = values["attention.key_length"] or values["embedding_length"] // values["attention.head_count"]
    values["rope.dimension_count"] = int(width * (rotary.get("partial_rotary_factor") or 1))
    if rotary.get("rope_type") == "longrope":
        values["rope.scaling.original_context_length"] = config["original_max_position_embeddings"]
        values["rope.scaling.attn_factor"] = rotary.get("attention_factor")
        for length in ("short", "long"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rotary[f"{length}_factor"], np.float32))
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
    """The array's blocks: the package's own where it can write them, those of `q4_k` and `q6_k`, else seeded ones with
    small scales."""
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
    numbers = np.rint((parts + (shift * offsets)[..., None]) / np.maximum(step * scales, 1e-12)[..., None])
    fours = np.clip(numbers, 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    high = scales[:, 4:], offsets[:, 4:]
    six = [scales[:, :4] | high[0] >> 4 << 6, offsets[:, :4] | high[1] >> 4 << 6, high[0] & 15 | (high[1] & 15) << 4]
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
    fours = np.stack([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], 2).reshape(-1, 128)
    twos = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(-1, 64)
    return np.concatenate([fours, twos, scales, _halves(step)], axis=1).reshape(*array.shape[:-1], -1)


def _whole(values: Floats, most: int) -> tuple[Floats, np.ndarray[Any, Any]]:
    """Values of a block, [block, part], as a step of float16, [block, 1], times whole numbers up to `most`."""
    step = (values.max(-1, keepdims=True) / most).astype(np.float16).astype(np.float32)
    return step, np.clip(np.rint(values / np.maximum(step, 1e-12)), 0, most).astype(np.uint8)


def _halves(step: Floats) -> np.ndarray[Any, Any]:
    return step.astype(np.float16).view(np.uint8)


WRITERS = {Kind.Q4_K: q4_k, Kind.Q6_K: q6_k}


def mixed(name: str, layers: int) -> Kind:
    """The type of a matrix in the usual mix of Q4_K and Q6_K: more bits for what is written out, and for values and the
    way down in a half of the layers."""
    if name == "output.weight":
        return Kind.Q6_K
    if "attn_v" not in name and "ffn_down" not in name:
        return Kind.Q4_K
    layer, eighth = int(name.split(".")[1]), layers // 8
    return Kind.Q6_K if layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2 else Kind.Q4_K


def tensors(folder: Path, architecture: str, config: Mapping[str, Any]) -> dict[str, Floats]:
    """The checkpoint's tensors under the names of GGUF, as the converter leaves them."""
    layers = config.get("num_hidden_layers") or config["n_layer"]
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, layers)
    arrays: dict[str, Floats] = {}
    experts: dict[str, dict[int, Floats]] = {}
    heads = config.get("num_attention_heads") or config["n_head"]
    for own, stored in load_file(folder / "model.safetensors").items():
        array = stored.astype(np.float32)
        if own.startswith(("pooler", "bert.pooler", "cls.")):
            continue
        if "conv.conv" in own:
            array = array.squeeze(1)
        halves = [("gate_proj", slice(0, None, 2)), ("up_proj", slice(1, None, 2))]
        if architecture == "gpt-oss" and "gate_up_proj" in own:
            array = array if "bias" in own else array.swapaxes(-1, -2)
            for half, rows in halves:
                module = own.replace("gate_up_proj", half).removesuffix("_bias")
                new = names.get_name(module if module.startswith("model.") else f"model.{module}")
                arrays[f"{new}.{'bias' if 'bias' in own else 'weight'}"] = np.ascontiguousarray(array[:, rows])
            continue
        if architecture == "gpt-oss" and "down_proj" in own:
            array = array if "bias" in own else array.swapaxes(-1, -2)
            own = own.replace("_bias", ".bias") if "bias" in own else f"{own}.weight"
        if own.endswith("sinks"):
            own += ".weight"
        if architecture == "granitemoe" and "input_linear" in own:
            layer = own.split("layers.")[1].split(".")[0]
            for half, part in zip(("gate", "up"), np.split(array, 2, axis=1), strict=True):
                arrays[f"blk.{layer}.ffn_{half}_exps.weight"] = np.ascontiguousarray(part)
            continue
        name = None
        for prefix in ("", "model.", "transformer.", "bert.", "gpt_neox."):
            name = names.get_name(prefix + own, try_suffixes=(".weight", ".bias"))
            if name is not None:
                break
        item = re.search(r"experts\.(\d+)\.", own)
        if item is not None:
            joined = own.replace(f"experts.{item[1]}.", "experts.")
            module = names.get_name(joined, try_suffixes=(".weight",)) or names.get_name(
                f"model.{joined}", try_suffixes=(".weight",)
            )
            assert module is not None, own
            experts.setdefault(module, {})[int(item[1])] = array
            continue
        assert name is not None, own
        if architecture in PERMUTED and ("q_proj" in own or "k_proj" in own):
            of = heads if "q_proj" in own else config.get("num_key_value_heads") or heads
            array = permuted(array, of)
        if architecture in ONE_MORE and re.search("norm\\d?.weight", own):
            array = array + 1
        if architecture == "gpt2" and array.ndim == 2 and ".c_" in f".{own}":
            array = array.T
        if "query_key_value" in own:
            array = in_turn(array, config.get("num_kv_heads") or 1 if architecture == "falcon" else heads, heads)
        arrays[name] = np.ascontiguousarray(array)
    return arrays | {
        name: np.stack([by_number[key] for key in sorted(by_number)]) for name, by_number in experts.items()
    }


def divisors(rotary: Mapping[str, Any], width: int) -> Floats:
    """What each frequency is divided by in Llama 3, one after the other, as the converter writes it."""
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
    """All queries, then all keys, then all values, where the file has them by the group of heads that share a key."""
    by_group = array.reshape(groups, heads // groups + 2, -1, *array.shape[1:])
    parts = by_group[:, :-2], by_group[:, -2], by_group[:, -1]
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])
