"""Folders of few bits: each scheme's matrices against loops written from the format's description.

Tried by hand besides, on folders that each library wrote itself, against its own dequantisation
with scales of float32: compressed-tensors 0.20.0 (2, 4 and 8 bits in words, with and without zero
points, by row and by group of 32; INT8; FP8 by row, block and whole), mlx 0.32.4 (2, 4 and 8 bits),
bitsandbytes 0.50.2 (NF4 and FP4, nested or not, where blocks fill rows; INT8), gptqmodel 7.7.0 (2,
4 and 8 bits, in and out of order, both formats) and autoawq 0.2.9: the worst difference is 0 for
all. With scales of their own type the libraries round: by up to 0.008 for numbers up to 1.3 in
bfloat16, by 0.001 in float16. auto-gptq 0.7.1 cannot be imported beside today's transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from asking import ask
from safetensors.numpy import load_file, save_file
from tiny_checkpoints import CASES, make
from tiny_sizes import LLAMA, Case, rope

import attncli
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.packed_checkpoint import METHODS
from attncli.models.load import open_checkpoint
from attncli.models.verify import verify

Arrays = dict[str, np.ndarray]
Scheme = Callable[[str, np.ndarray, np.random.Generator], tuple[Arrays, np.ndarray]]

SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
}
CASE = Case("llama", {**LLAMA, **SIZES, **rope("default")}, "AutoModelForCausalLM")
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)
NF4 = np.linspace(-1, 1, 16).astype(np.float32)


def bits_of(values: list[int], bits: int) -> int:
    """A word of numbers, the first in the lowest bits, as a signed integer."""
    word = sum(int(value) << (bits * place) for place, value in enumerate(values))
    return word - 2**32 if word >= 2**31 else word


def fp8(size: int) -> Scheme:
    def scheme(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
        out, width = shape.shape
        weight = rng.standard_normal((out, width)).astype(ml_dtypes.float8_e4m3fn)
        scale = rng.random((-(-out // size), -(-width // size))).astype(np.float32)
        expected = np.empty((out, width), np.float32)
        for row in range(out):
            for column in range(width):
                expected[row, column] = (
                    np.float32(weight[row, column]) * scale[row // size, column // size]
                )
        return {"weight": weight, "weight_scale_inv": scale}, expected

    return scheme


def fp8_whole(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    weight = rng.standard_normal(shape.shape).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": weight, "weight_scale": np.array(0.3, np.float32)}, weight.astype(
        np.float32
    ) * np.float32(0.3)


def fp8_rows(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    weight = rng.standard_normal(shape.shape).astype(ml_dtypes.float8_e4m3fn)
    scale = rng.random((shape.shape[0], 1)).astype(np.float32)
    rows = [
        [np.float32(value) * factor[0] for value in row]
        for row, factor in zip(weight, scale, strict=True)
    ]
    return {"weight": weight, "weight_scale": scale}, np.array(rows, np.float32)


def packed(bits: int) -> Scheme:
    per_word, half = 32 // bits, 2 ** (bits - 1)

    def scheme(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
        out, width = shape.shape
        numbers, zeros = (
            rng.integers(-half, half, (out, width)),
            rng.integers(-half, half, (out, width // 32)),
        )
        scale = rng.random((out, width // 32)).astype(np.float32)
        words = [
            [
                bits_of([v + half for v in row[at : at + per_word]], bits)
                for at in range(0, width, per_word)
            ]
            for row in numbers
        ]
        zero_words = [
            [
                bits_of([v + half for v in column[at : at + per_word]], bits)
                for at in range(0, out, per_word)
            ]
            for column in zeros.T
        ]
        expected = np.empty((out, width), np.float32)
        for row in range(out):
            for column in range(width):
                group = column // 32
                expected[row, column] = (
                    np.float32(numbers[row, column] - zeros[row, group]) * scale[row, group]
                )
        return {
            "weight_packed": np.array(words, np.int32), "weight_scale": scale,
            "weight_zero_point": np.array(zero_words, np.int32).T, "weight_shape": np.array([out, width], np.int64),
        }, expected  # fmt: skip

    return scheme


def gptq(bits: int) -> Scheme:
    per_word = 32 // bits

    def scheme(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
        out, width = shape.shape
        order = rng.permutation(np.arange(width) // 32).astype(np.int32)
        numbers, zeros = (
            rng.integers(0, 2**bits, (width, out)),
            rng.integers(1, 2**bits + 1, (width // 32, out)),
        )
        scale = rng.random((width // 32, out)).astype(np.float16)
        words = [
            [bits_of(list(numbers[at : at + per_word, column]), bits) for column in range(out)]
            for at in range(0, width, per_word)
        ]
        zero_words = [
            [
                bits_of([v - 1 for v in row[at : at + per_word]], bits)
                for at in range(0, out, per_word)
            ]
            for row in zeros
        ]
        expected = np.empty((out, width), np.float32)
        for row in range(width):
            for column in range(out):
                group = order[row]
                zero = zeros[group, column] % 2**bits
                expected[column, row] = np.float32(numbers[row, column] - zero) * np.float32(
                    scale[group, column]
                )
        return {
            "qweight": np.array(words, np.int32), "qzeros": np.array(zero_words, np.int32),
            "scales": scale, "g_idx": order,
        }, expected  # fmt: skip

    return scheme


def awq(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    out, width = shape.shape
    numbers, zeros = rng.integers(0, 16, (width, out)), rng.integers(0, 16, (width // 32, out))
    scale = rng.random((width // 32, out)).astype(np.float16)

    def pack(matrix: np.ndarray) -> np.ndarray:
        places = (0, 2, 4, 6, 1, 3, 5, 7)
        words = [
            [bits_of([row[at + place] for place in places], 4) for at in range(0, out, 8)]
            for row in matrix
        ]
        return np.array(words, np.int32)

    expected = np.empty((out, width), np.float32)
    for row in range(width):
        for column in range(out):
            group = row // 32
            expected[column, row] = (
                np.float32(numbers[row, column] - zeros[group, column]) * scale[group, column]
            )
    return {"qweight": pack(numbers), "qzeros": pack(zeros), "scales": scale}, expected


FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4] * 2, np.float32) * np.repeat(
    [1, -1], 8
)
"""The numbers of bitsandbytes' FP4, the most as 1."""


def nf4(
    name: str,
    shape: np.ndarray,
    rng: np.random.Generator,
    *,
    nested: bool = True,
    kind: str = "nf4",
) -> tuple[Arrays, np.ndarray]:
    table_of_codes = NF4 if kind == "nf4" else FP4.astype(np.float32)
    codes = rng.integers(0, 16, shape.size)
    pairs = np.array([[first * 16 + second] for first, second in codes.reshape(-1, 2)], np.uint8)
    blocks = shape.size // 32
    state: dict[str, Any] = {
        "quant_type": kind,
        "blocksize": 32,
        "dtype": "float16",
        "shape": list(shape.shape),
    }
    if nested:
        table, outer = (
            rng.standard_normal(256).astype(np.float32),
            rng.random(-(-blocks // 16)).astype(np.float32),
        )
        absmax = rng.integers(0, 256, blocks).astype(np.uint8)
        scales = [
            table[code] * outer[place // 16] + np.float32(0.25) for place, code in enumerate(absmax)
        ]
        state |= {"nested_blocksize": 16, "nested_dtype": "float32", "nested_offset": 0.25}
        more = {"weight.nested_absmax": outer, "weight.nested_quant_map": table}
    else:
        absmax, more = rng.random(blocks).astype(np.float32), {}
        scales = list(absmax)
    expected = np.array(
        [table_of_codes[code] * scales[place // 32] for place, code in enumerate(codes)], np.float32
    )
    arrays = {
        "weight": pairs, "weight.absmax": absmax, "weight.quant_map": table_of_codes,
        f"weight.quant_state.bitsandbytes__{kind}": np.frombuffer(json.dumps(state).encode(), np.uint8), **more,
    }  # fmt: skip
    return arrays, expected.reshape(shape.shape)


def fp4(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    return nf4(name, shape, rng, nested=False, kind="fp4")


def plain_scales(
    name: str, shape: np.ndarray, rng: np.random.Generator
) -> tuple[Arrays, np.ndarray]:
    return nf4(name, shape, rng, nested=False)


def int8(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    weight = rng.integers(-127, 128, shape.shape).astype(np.int8)
    scale = rng.random(shape.shape[0]).astype(np.float32)
    rows = [
        [np.float32(value) * factor / 127 for value in row]
        for row, factor in zip(weight, scale, strict=True)
    ]
    return {"weight": weight, "SCB": scale, "weight_format": np.array(0, np.uint8)}, np.array(
        rows, np.float32
    )


def int8_rows(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    weight = rng.integers(-128, 128, shape.shape).astype(np.int8)
    scale = rng.random((shape.shape[0], 1)).astype(np.float32)
    rows = [
        [np.float32(value) * factor[0] for value in row]
        for row, factor in zip(weight, scale, strict=True)
    ]
    return {"weight": weight, "weight_scale": scale}, np.array(rows, np.float32)


def mlx(bits: int) -> Scheme:
    def scheme(name: str, shape: np.ndarray, rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
        out, width = shape.shape
        each = 32 // bits
        numbers = rng.integers(0, 2**bits, (out, width))
        scale, bias = (rng.standard_normal((out, width // 32)).astype(np.float16) for _ in range(2))
        words = [
            [bits_of(list(row[at : at + each]), bits) for at in range(0, width, each)]
            for row in numbers
        ]
        expected = np.empty((out, width), np.float32)
        for row in range(out):
            for column in range(width):
                group = column // 32
                expected[row, column] = (
                    np.float32(numbers[row, column]) * np.float32(scale[row, group])
                    + bias[row, group]
                )
        return {
            "weight": np.array(words, np.int64).astype(np.uint32),
            "scales": scale,
            "biases": bias,
        }, expected

    return scheme


SCHEMES: dict[str, tuple[Scheme, Mapping[str, Any], str]] = {
    "fp8 by blocks": (
        fp8(40),
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [40, 40]}},
        "FP8",
    ),
    "fp8 by even blocks": (fp8(32), {"quantization_config": {"quant_method": "fp8"}}, "FP8"),
    "fp8 whole": (fp8_whole, {"quantization_config": {"quant_method": "fp8"}}, "FP8"),
    "fp8 by rows": (
        fp8_rows,
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        "FP8",
    ),
    "compressed-tensors": (
        packed(4),
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        "INT4",
    ),
    "compressed-tensors 8": (
        packed(8),
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        "INT8",
    ),
    "compressed-tensors int8": (
        int8_rows,
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        "INT8",
    ),
    "gptq 2": (
        gptq(2),
        {"quantization_config": {"quant_method": "gptq", "bits": 2, "group_size": 32}},
        "GPTQ 2-bit",
    ),
    "gptq": (
        gptq(4),
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}},
        "GPTQ 4-bit",
    ),
    "gptq 8": (
        gptq(8),
        {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 32}},
        "GPTQ 8-bit",
    ),
    "awq": (
        awq,
        {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}},
        "AWQ 4-bit",
    ),
    "bitsandbytes nf4": (nf4, {"quantization_config": {"quant_method": "bitsandbytes"}}, "NF4"),
    "bitsandbytes fp4": (fp4, {"quantization_config": {"quant_method": "bitsandbytes"}}, "FP4"),
    "bitsandbytes plain scales": (
        plain_scales,
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        "NF4",
    ),
    "bitsandbytes int8": (int8, {"quantization_config": {"quant_method": "bitsandbytes"}}, "INT8"),
    "mlx 4": (mlx(4), {"quantization": {"bits": 4, "group_size": 32}}, "MLX 4-bit"),
    "mlx 8": (mlx(8), {"quantization": {"bits": 8, "group_size": 32}}, "MLX 8-bit"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASE, tmp_path_factory.mktemp("plain"))


def pack(plain: Path, folder: Path, name: str) -> tuple[Path, Arrays]:
    """A folder of this scheme, and what its matrices stand for."""
    scheme, settings, _ = SCHEMES[name]
    rng, stored, expected = np.random.default_rng(7), {}, {}
    for tensor, array in load_file(plain / "model.safetensors").items():
        module = tensor.removesuffix(".weight")
        if array.ndim != 2 or not tensor.endswith("proj.weight"):
            stored[tensor] = array
            continue
        parts, expected[tensor] = scheme(tensor, array, rng)
        stored |= {f"{module}.{part}": np.ascontiguousarray(value) for part, value in parts.items()}
    folder.mkdir(exist_ok=True)
    save(stored, folder)
    config = json.loads((plain / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder, expected


def save(stored: Arrays, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    tensors = {}
    for name, array in stored.items():
        if array.dtype == ml_dtypes.float8_e4m3fn:
            tensors[name] = torch.from_numpy(array.view(np.uint8).copy()).view(torch.float8_e4m3fn)
        else:
            tensors[name] = torch.from_numpy(array.copy())
    save_torch(tensors, folder / "model.safetensors")


@pytest.mark.many
@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_is_what_loops_make_of_it(name: str, plain: Path, tmp_path: Path):
    folder, expected = pack(plain, tmp_path / "packed", name)
    checkpoint = open_checkpoint(folder)
    for tensor, matrix in expected.items():
        numbers = checkpoint.read(tensor)
        assert np.abs(numbers - matrix).max() < 1e-6, tensor
        assert np.array_equal(checkpoint.read_rows(tensor, [3, 0]), numbers[[3, 0]])
        assert np.abs(numbers - matrix[::-1]).max() > 1e-3, "a negative control"
    model = attncli.load(folder, note=None)
    assert model.identity.quantization == SCHEMES[name][2]
    tokens = model.tokenizer.ids_to_tokens([5, 3, 8, 9])
    packed_weights = [trace.stages["weights"] for trace in model.trace(tokens)]
    floats = {**load_file(plain / "model.safetensors"), **expected}
    other = tmp_path / "floats"
    other.mkdir()
    save_file(floats, other / "model.safetensors")
    (other / "config.json").write_text((plain / "config.json").read_text())
    for ours, theirs in zip(
        packed_weights, attncli.load(other, note=None).trace(tokens), strict=True
    ):
        assert np.abs(ours - theirs.stages["weights"]).max() < 1e-6


def test_fp8_is_what_transformers_makes_of_it(plain: Path, tmp_path: Path):
    from safetensors.torch import load_file as load_torch
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    for name in ("fp8 by even blocks", "fp8 whole", "fp8 by rows"):
        folder, expected = pack(plain, tmp_path / name, name)
        checkpoint, stored = open_checkpoint(folder), load_torch(folder / "model.safetensors")
        for tensor in expected:
            scale = next(
                stored[f"{tensor}{end}"]
                for end in ("_scale_inv", "_scale")
                if f"{tensor}{end}" in stored
            )
            own = Fp8Dequantize(None)._dequantize_one(stored[tensor], scale)
            assert np.array_equal(checkpoint.read(tensor), own.numpy()), (name, tensor)


@pytest.mark.thorough
def test_a_scale_that_is_no_number_is_told_whatever_the_scheme(plain: Path, tmp_path: Path):
    from safetensors.torch import load_file as load_torch
    from safetensors.torch import save_file as save_torch

    for name, part in (
        ("fp8 by blocks", "weight_scale_inv"), ("compressed-tensors", "weight_scale"), ("gptq", "scales"),
        ("awq", "scales"), ("bitsandbytes plain scales", "weight.absmax"), ("bitsandbytes int8", "SCB"),
        ("mlx 4", "biases"), ("bitsandbytes nf4", "weight.nested_absmax"),
    ):  # fmt: skip
        folder, _ = pack(plain, tmp_path / name, name)
        stored = load_torch(folder / "model.safetensors")
        stored[f"model.layers.1.self_attn.q_proj.{part}"].reshape(-1)[1] = float("nan")
        save_torch(stored, folder / "model.safetensors")
        model = attncli.load(folder, note=None)
        with pytest.raises(
            InputError, match=rf"q_proj\.({part}' .* not finite|weight' holds nan at)"
        ):
            list(model.trace(model.tokenizer.ids_to_tokens([5, 3, 8])))


def test_a_packed_folder_is_verified_against_transformers(plain: Path, tmp_path: Path):
    folder, _ = pack(plain, tmp_path / "packed", "awq")
    assert verify(folder, [5, 3, 8, 9, 20]).is_within_limits


def test_experts_of_mxfp4(tmp_path: Path):
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    case = CASES["gpt_oss"]
    sizes = {"hidden_size": 64, "head_dim": 10, "intermediate_size": 32, "sliding_window": 5}
    base = make(Case("gpt_oss", {**case.config, **sizes}, case.saved_by), tmp_path / "base")
    arrays, rng, expected = load_file(base / "model.safetensors"), np.random.default_rng(3), {}
    for name in [name for name in arrays if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, width, out = arrays.pop(name).shape
        blocks = rng.integers(0, 256, (experts, out, width // 32, 16)).astype(np.uint8)
        scales = rng.integers(118, 130, (experts, out, width // 32)).astype(np.uint8)
        arrays |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        matrix = np.empty((experts, width, out), np.float32)
        for expert, row, group in np.ndindex(*scales.shape):
            power = 2.0 ** (int(scales[expert, row, group]) - 127)
            for place, byte in enumerate(blocks[expert, row, group]):
                matrix[expert, group * 32 + 2 * place, row] = E2M1[byte & 15] * power
                matrix[expert, group * 32 + 2 * place + 1, row] = E2M1[byte >> 4] * power
        expected[name] = matrix
    save_file(arrays, base / "model.safetensors")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}})
    )
    checkpoint = open_checkpoint(base)
    for name, matrix in expected.items():
        parts = [torch.from_numpy(arrays[f"{name}_{part}"]) for part in ("blocks", "scales")]
        assert np.array_equal(checkpoint.read(name), matrix)
        assert np.array_equal(
            matrix, convert_moe_packed_tensors(*parts, dtype=torch.float32).numpy()
        )
    model = attncli.load(base, note=None)
    assert model.identity.quantization == "MXFP4"
    assert len(list(model.trace(model.tokenizer.ids_to_tokens([5, 3, 8])))) == len(
        model.spec.blocks
    )


@pytest.mark.thorough
def test_parts_that_contradict_one_another_are_refused(plain: Path, tmp_path: Path):
    first = "model.layers.0.self_attn.q_proj."
    for number, (scheme, change, message) in enumerate(
        (
            ("awq", {f"{first}scales": None}, "lack 'scales'"),
            ("awq", {f"{first}scales": np.ones((3, 64), np.float16)}, "has shape|scales for rows"),
            ("gptq", {f"{first}g_idx": np.ones(7, np.int32)}, "has shape"),
            ("gptq", {f"{first}qzeros": np.ones((2, 3), np.int32)}, "has shape"),
            ("bitsandbytes nf4", {f"{first}weight.absmax": np.ones(3, np.uint8)}, "has shape"),
            (
                "bitsandbytes nf4",
                {f"{first}weight.quant_state.bitsandbytes__nf4": np.ones(3, np.uint8)},
                "does not say",
            ),
            (
                "fp8 by blocks",
                {f"{first}weight_scale_inv": np.ones((9, 9), np.float32)},
                "has shape",
            ),
            ("fp8 by blocks", {f"{first}weight_scale_inv": None}, "scaled by is not here"),
            (
                "compressed-tensors",
                {f"{first}weight_shape": np.array([64, 9999])},
                "words for rows of 9999",
            ),
            (
                "compressed-tensors",
                {f"{first}weight_shape": np.array([64, 0])},
                "words for rows of 0",
            ),
            ("mlx 4", {f"{first}biases": np.ones((1, 1), np.float16)}, "has shape"),
        )
    ):
        folder, _ = pack(plain, tmp_path / str(number), scheme)
        arrays = {}
        import torch
        from safetensors.torch import load_file as load_torch
        from safetensors.torch import save_file as save_torch

        arrays = load_torch(folder / "model.safetensors")
        for name, array in change.items():
            if array is None:
                del arrays[name]
            else:
                arrays[name] = torch.from_numpy(array)
        save_torch(arrays, folder / "model.safetensors")
        with pytest.raises((InputError, UnsupportedError), match=message):
            attncli.load(folder, note=None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "quip"}})
    )
    with pytest.raises(UnsupportedError, match="quantised \\(quip\\)"):
        attncli.load(folder, note=None)
    module = {f"{first.removesuffix('.')}": {"bits": 3}}
    for settings, what, expected in (
        ({"mode": "mxfp8"}, "mode to 'mxfp8'", "affine"),
        (module, "bits to 3", "2, 4, 8"),
    ):
        quantization = {"bits": 4, "group_size": 32, **settings}
        (folder / "config.json").write_text(json.dumps({**config, "quantization": quantization}))
        with pytest.raises(UnsupportedError, match=what) as caught:
            attncli.load(folder, note=None)
        assert caught.value.expected == expected


def test_the_list_of_models_names_every_format_and_what_families_are_held_against():
    document = json.loads(ask("models", "list", "--json").out)
    rows = {row["name"]: row for row in document["formats"]}
    assert set(document["families"]) == {
        case.model_type for case in CASES.values()
    }  # what test_parity runs
    assert "transformers' run, float64, 1e-10" in document["proof"]
    assert {"safetensors", "GGUF", "adapter", *METHODS} <= rows.keys()
    assert "gpt2" in rows["GGUF"]["families"]
    assert rows["mxfp4"]["families"] == ["gpt_oss"]
    assert "GGUF" in ask("models", "list").out


def test_a_group_size_below_0_is_one_group_for_all_inputs(plain: Path, tmp_path: Path) -> None:
    """GPTQ's programs write −1; the scales that are stored say the same."""
    folder, _ = pack(plain, tmp_path / "packed", "gptq")
    stored = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    stored = {key: array for key, array in stored.items() if not key.endswith("g_idx")}
    for key in [key for key in stored if key.endswith((".scales", ".qzeros"))]:
        stored[key] = stored[key][:1]
    save_file(stored, folder / "model.safetensors")
    told = json.loads((folder / "config.json").read_text())
    told["quantization_config"]["group_size"] = -1
    (folder / "config.json").write_text(json.dumps(told))
    matrix = open_checkpoint(folder).read(f"{name}.weight")  # [out, in]
    words, zero_words, scales = (
        stored[f"{name}.{part}"] for part in ("qweight", "qzeros", "scales")
    )
    for out in range(len(matrix)):
        zero = (int(zero_words[0, out // 8]) >> 4 * (out % 8) & 15) + 1
        for column in range(matrix.shape[1]):
            number = int(words[column // 8, out]) >> 4 * (column % 8) & 15
            known = (number - zero % 16) * float(scales[0, out])
            assert matrix[out, column] == pytest.approx(known, rel=1e-6)


def test_a_version_of_null_is_the_default_of_awq(plain: Path, tmp_path: Path) -> None:
    from transformers import AwqConfig

    assert AwqConfig(version=None).format == AwqConfig().format == "gemm"
    folder, expected = pack(plain, tmp_path / "packed", "awq")
    told = json.loads((folder / "config.json").read_text())

    def opened(version: str | None) -> Checkpoint:
        told["quantization_config"]["version"] = version
        (folder / "config.json").write_text(json.dumps(told))
        return open_checkpoint(folder)

    for tensor, matrix in expected.items():
        assert np.abs(opened(None).read(tensor) - matrix).max() < 1e-6
    with pytest.raises(UnsupportedError, match="version to 'gemv'"):
        opened("gemv")
