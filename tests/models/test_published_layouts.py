"""Folders as they are published: the same model in another layout gives the same numbers."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from asking import ask
from safetensors.torch import load_file, save_file
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UnsupportedError
from attncli.mechanism.projection import frequencies
from attncli.mechanism.spec import Llama3, Rope

IDS = (7, 3, 3, 50, 11, 28)


def weights(folder: Path) -> np.ndarray:
    """The attention weights of every layer and head of a folder's model, on one text."""
    model = attncli.load(folder)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    return np.stack([np.asarray(trace.stages["weights"]) for trace in model.trace(tokens)])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["llama"], tmp_path_factory.mktemp("plain"))


def changed(
    folder: Path,
    target: Path,
    config: dict[str, Any] | None = None,
    rename: Callable[[str], str] | None = None,
) -> Path:
    """A copy of a folder with other entries in its config and other names of its tensors."""
    shutil.copytree(folder, target)
    stored = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**stored, **(config or {})}))
    if rename is not None:
        tensors = load_file(target / "model.safetensors")
        renamed = {rename(name): tensor.clone() for name, tensor in tensors.items()}
        save_file(renamed, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: name.replace(".self_attn.", "._orig_mod.self_attn."),
        lambda name: (
            f"_fsdp_wrapped_module.{name.replace('.layers.0.', '.layers.0._fsdp_wrapped_module.')}"
        ),
        lambda name: "model.language_model." + name.removeprefix("model."),
    ],
    ids=["compiled", "parallel", "both", "by region", "spread", "inside a whole model"],
)
def test_names_with_something_before_them_are_the_same_model(
    rename: Callable[[str], str], plain: Path, tmp_path: Path
) -> None:
    renamed = changed(plain, tmp_path / "renamed", rename=rename)
    assert np.array_equal(weights(renamed), weights(plain))


def test_a_name_with_something_else_before_it_is_told(plain: Path, tmp_path: Path) -> None:
    renamed = changed(plain, tmp_path / "renamed", rename=lambda name: f"student.{name}")
    with pytest.raises(InputError, match="is missing") as error:
        weights(renamed)
    assert "'student." in str(error.value.hint)


def test_a_tied_file_with_the_head_alone_is_read(plain: Path, tmp_path: Path) -> None:
    """Only where the config ties the two: else the token table is missing."""
    head = "lm_head.weight"
    alone = changed(
        plain, tmp_path / "tied", {"tie_word_embeddings": True},
        lambda name: head if name.endswith("embed_tokens.weight") else name,
    )  # fmt: skip
    assert np.array_equal(weights(alone), weights(plain))
    untied = changed(alone, tmp_path / "untied", {"tie_word_embeddings": False})
    with pytest.raises(InputError, match=r"embed_tokens.weight' is missing"):
        attncli.load(untied)


def test_a_family_under_another_name(tmp_path: Path) -> None:
    folder = make(CASES["deepseek_v3"], tmp_path / "deepseek")
    kimi = changed(folder, tmp_path / "kimi", {"model_type": "kimi_k2"})
    assert np.array_equal(weights(kimi), weights(folder))


def test_what_a_config_states_and_the_family_always_does(tmp_path: Path) -> None:
    folder = make(CASES["hunyuan_v1_dense"], tmp_path / "plain")
    stated = changed(folder, tmp_path / "stated", {"use_qk_norm": True})
    assert attncli.load(stated).warnings == attncli.load(folder).warnings
    other = changed(folder, tmp_path / "other", {"use_qk_norm": False})
    with pytest.raises(UnsupportedError, match="use_qk_norm"):
        attncli.load(other)


def test_llama_3_scaling_without_wavelengths_between() -> None:
    """As transformers: a wavelength is divided or kept."""
    scaling = Llama3(16.0, 1.0, 1.0, 8192)
    found, _ = frequencies(Rope(64, 500000.0, "half", scaling), 9)
    base = 500000.0 ** -(np.arange(0, 64, 2) / 64)
    expected = [one / 16 if 2 * np.pi / one > 8192 else one for one in base]
    assert np.allclose(found, expected, rtol=1e-12)
    assert any(one != other for one, other in zip(expected, base, strict=True))


def test_yarn_with_settings_that_are_zero(tmp_path: Path) -> None:
    name = "llama yarn"
    folder = make(CASES[name], tmp_path / "plain")
    stored = json.loads((folder / "config.json").read_text())
    key = "rope_parameters" if stored.get("rope_parameters") else "rope_scaling"
    zero = {**stored[key], "mscale": 1.0, "mscale_all_dim": 0.0}
    off = changed(folder, tmp_path / "off", {key: zero})
    assert np.array_equal(weights(off), weights(folder))


# Weights of few bits.


def packed(folder: Path, target: Path, config: dict[str, Any], pack: Callable[..., dict]) -> Path:
    """A copy of a folder with the matrices of its layers packed."""
    copy = changed(folder, target, config)
    tensors = load_file(copy / "model.safetensors")
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            stored |= pack(name.removesuffix(".weight"), tensor.float())
        else:
            stored[name] = tensor
    save_file(stored, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def fp8(module: str, matrix: torch.Tensor) -> dict[str, torch.Tensor]:
    """As NVIDIA's Model Optimizer stores FP8: one scale for a matrix, one for what enters it."""
    scale = matrix.abs().max() / 448
    numbers = (matrix / scale).to(torch.float8_e4m3fn)
    return {
        f"{module}.weight": numbers,
        f"{module}.weight_scale": scale,
        f"{module}.input_scale": torch.tensor(1.0),
        **({f"{module}.k_scale": torch.tensor(1.0)} if module.endswith("k_proj") else {}),
    }


CODES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def nvfp4(module: str, matrix: torch.Tensor) -> dict[str, torch.Tensor]:
    """NVFP4: each number the nearest of sixteen, times its group's scale and the scale of all."""
    rows, columns = matrix.shape
    groups = matrix.reshape(rows, columns // 16, 16)
    whole = groups.abs().max() / (6 * 448)
    scale = (groups.abs().amax(-1) / 6 / whole).to(torch.float8_e4m3fn)
    values = torch.tensor([*CODES, *(-code for code in CODES)])
    relative = groups / (scale.float() * whole)[..., None]
    codes = (relative[..., None] - values).abs().argmin(-1).to(torch.uint8).reshape(rows, columns)
    return {
        f"{module}.weight": codes[:, ::2] | codes[:, 1::2] << 4,
        f"{module}.weight_scale": scale,
        f"{module}.weight_scale_2": whole,
        f"{module}.input_scale": torch.tensor(1.0),
    }


def unpacked(parts: dict[str, torch.Tensor], module: str) -> torch.Tensor:
    """The matrix that packed parts stand for, number by number."""
    weight = parts[f"{module}.weight"]
    scale = parts[f"{module}.weight_scale"].float()
    if f"{module}.weight_scale_2" not in parts:
        return weight.float() * scale
    whole = float(parts[f"{module}.weight_scale_2"])
    table = [*CODES, *(-code for code in CODES)]
    rows = []
    for row, numbers in enumerate(weight.tolist()):
        line = [table[code] for byte in numbers for code in (byte & 15, byte >> 4)]
        rows.append([n * float(scale[row, i // 16]) * whole for i, n in enumerate(line)])
    return torch.tensor(rows)


WIDE = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
    "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 61,
}  # fmt: skip


@pytest.mark.parametrize(("algorithm", "pack"), [("FP8", fp8), ("NVFP4", nvfp4)])
def test_matrices_of_model_optimizer_are_read_number_by_number(
    algorithm: str, pack: Callable[..., dict], tmp_path: Path
) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from attncli.models.load import open_checkpoint

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in WIDE.items() if k != "model_type"}))
    model.save_pretrained(tmp_path / "plain")
    settings = {"quant_algo": algorithm, "producer": {"name": "modelopt", "version": "0.31"}}
    folder = packed(
        tmp_path / "plain", tmp_path / "packed", {"quantization_config": settings}, pack
    )
    stored = load_file(folder / "model.safetensors")
    module = "model.layers.0.mlp.down_proj"
    with open_checkpoint(folder) as checkpoint:
        found = checkpoint.read(f"{module}.weight", "float32")
        assert checkpoint.quantization == algorithm
    assert np.allclose(found, unpacked(stored, module).numpy(), rtol=1e-6, atol=0)
    assert np.abs(found).max() > 0
    attncli.load(folder)
    settings["quant_algo"] = "INT3"
    (folder / "config.json").write_text(json.dumps({**WIDE, "quantization_config": settings}))
    with pytest.raises(UnsupportedError, match="modelopt INT3"):
        attncli.load(folder)


def test_what_says_how_weights_are_packed_may_stand_elsewhere(plain: Path, tmp_path: Path) -> None:
    """In a file of its own, as AutoGPTQ and AutoAWQ wrote it."""
    from attncli.inputs.checkpoint import Checkpoint

    for name, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        folder = changed(plain, tmp_path / method)
        (folder / name).write_text(json.dumps({"bits": 4, "group_size": 128}))
        config = Checkpoint.describe(folder, packed=True).config
        assert config["quantization_config"] == {
            "quant_method": method,
            "bits": 4,
            "group_size": 128,
        }


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2471645608\n"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "aqlm"}, "aqlm"),  # a scheme that is not read, where no number has it
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt NVFP4"),
        (None, None),
        ({}, None),
        (False, None),
        ([], None),
        ("", None),
        (0, None),
        ("gptq", "method not named"),
    ],
)
def test_floats_that_a_config_calls_quantised_are_read_and_called_floats(
    settings: object, said: str | None, plain: Path, tmp_path: Path
) -> None:
    """Whole numbers that torch stores beside the weights change nothing in that."""
    claiming = changed(plain, tmp_path / "claiming", {"quantization_config": settings})
    tensors = load_file(claiming / "model.safetensors")
    tensors["model.position_ids"] = torch.arange(64)[None]
    tensors["model.token_type_ids"] = torch.zeros(1, 64, dtype=torch.int32)
    save_file(tensors, claiming / "model.safetensors", metadata={"format": "pt"})
    model = attncli.load(claiming, note=None)
    assert np.array_equal(weights(claiming), weights(plain))
    notes = [note for note in model.warnings if "quantis" in note or "quantiz" in note]
    assert len(notes) == bool(said)
    for note in notes:
        assert note == (
            f"config.json says that the weights are quantised ({said}), and none is stored so: they"
            " are read as the numbers that they are"
        )


@pytest.mark.parametrize(
    ("name", "dtype", "is_beside"),
    [
        ("h.0.attn.bias", "uint8", True),
        ("layers.0.attention.bias", "uint8", True),
        ("embeddings.position_ids", "int64", True),
        ("position_ids", "int32", True),
        ("norm.num_batches_tracked", "int64", True),
        ("h.0.attn.c_attn.bias", "uint8", False),
        ("h.0.attn.c_attn.qweight", "int32", False),
    ],
)
def test_whole_numbers_beside_the_weights_are_no_packed_matrix(
    name: str, dtype: str, is_beside: bool, tmp_path: Path
) -> None:
    """A scheme that is not read is refused where a matrix is stored in it, and not for a mask."""
    from attncli.inputs.checkpoint import TensorInfo
    from attncli.inputs.packed_checkpoint import open_packed

    tensors = {
        "wte.weight": TensorInfo("float32", (2, 2), tmp_path, 0, 16),
        name: TensorInfo(dtype, (2, 2), tmp_path, 16, 32),
    }
    config = {"quantization_config": {"quant_method": "aqlm"}}
    if is_beside:
        assert open_packed(tmp_path, config, tensors).names() == tensors
    else:
        with pytest.raises(UnsupportedError, match=r"quantised \(aqlm\)"):
            open_packed(tmp_path, config, tensors)


@pytest.mark.parametrize("settings", [False, [], 0, ""])
@pytest.mark.parametrize("key", ["quantization_config", "compression_config", "quantization"])
def test_what_is_empty_declares_no_quantised_weights(
    key: str, settings: object, tmp_path: Path
) -> None:
    from attncli.inputs.checkpoint import Checkpoint, is_packed

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", key: settings}))
    config = Checkpoint.describe(tmp_path, packed=True).config
    assert not is_packed(config)
    assert Checkpoint.describe(tmp_path).config == {"model_type": "llama"}


def test_a_pointer_of_git_lfs_is_called_that(plain: Path, tmp_path: Path) -> None:
    folder = changed(plain, tmp_path / "clone")
    (folder / "model.safetensors").write_text(POINTER)
    told = ask("run", "--ids", "5 6", "--model", str(folder))
    assert told.code == 3
    assert "Git LFS pointer" in told.err
    assert "2,471,645,608" in told.err
    (tmp_path / "m.gguf").write_text(POINTER)
    assert "Git LFS" in ask("models", "show", str(tmp_path / "m.gguf")).err
    (tmp_path / "t.json").write_text(POINTER)
    assert "Git LFS" in ask("tokens", "x", "--tokenizer", str(tmp_path / "t.json")).err
    for name in ("tokenizer.model", "vocab.txt", "tekken.json", "spiece.model"):
        alone = tmp_path / f"only {name}"
        alone.mkdir()
        (alone / name).write_text(POINTER)
        assert "Git LFS" in ask("tokens", "x", "--tokenizer", str(alone)).err


HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("model.safetensors", gzip.compress(b"x" * 99, mtime=0), "packed with gzip"),
        ("model.safetensors", b"\x28\xb5\x2f\xfd" + b"x" * 99, "packed with Zstandard"),
        ("model.safetensors", b"PK\x03\x04" + b"x" * 99, "packed with zip"),
        ("model.safetensors", HTML, "a web page, such as a server sends"),
        ("config.json", HTML, "a web page, such as a server sends"),
        ("config.json", gzip.compress(b"{}", mtime=0), "packed with gzip"),
        ("config.json", "{}".encode("utf-16"), "in UTF-16, not in UTF-8"),
    ],
)
def test_a_file_that_is_something_else_is_called_that(
    name: str, content: bytes, told: str, plain: Path, tmp_path: Path
) -> None:
    folder = changed(plain, tmp_path / "other")
    (folder / name).write_bytes(content)
    found = ask("run", "--ids", "5 6", "--model", str(folder))
    assert found.code == 3
    assert told in found.err
    if name == "model.safetensors":
        (tmp_path / "m.gguf").write_bytes(content)
        assert told in ask("models", "show", str(tmp_path / "m.gguf")).err


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("model.safetensors.crdownload", 3, "is a download that did not end"),
        ("model.safetensors.gz", 3, "is packed, or is no file of weights"),
        ("onnx/model.onnx", 4, "is a model exported for another program"),
        ("openvino_model.xml", 4, "is a model exported for another program"),
        ("training_args.bin", 3, "this folder holds no weights"),
        ("optimizer.pt", 3, "this folder holds no weights"),
        ("tokenizer.bin", 3, "this folder holds no weights"),
        ("model.ckpt", 4, "the weights are in 'model.ckpt', which is not safetensors"),
        ("model.fp16.safetensors", 3, "try: mv "),
        ("consolidated.safetensors", 3, "found 'consolidated.safetensors'"),
    ],
)
def test_weights_that_are_not_read_are_called_what_they_are(
    name: str, code: int, told: str, plain: Path, tmp_path: Path
) -> None:
    folder = changed(plain, tmp_path / "other")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / name)
    found = ask("run", "--ids", "5 6", "--model", str(folder))
    assert found.code == code
    assert told in found.err
    assert ("try: mv" in found.err) == ("fp16" in name)


def test_a_config_with_a_mark_of_its_encoding_is_read(plain: Path, tmp_path: Path) -> None:
    folder = changed(plain, tmp_path / "marked")
    config = folder / "config.json"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert ask("run", "--ids", "5 6", "--model", str(folder), "--brief").code == 0
