"""What is said of a checkpoint without its weights, by config and headers alone."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from asking import ask
from msgspec.structs import replace
from processes import finish
from tiny_checkpoints import CASES, PLAIN, Case, make

import attncli
from attncli.documents.header import notes
from attncli.errors import InputError
from attncli.models.description import describe, described_model

FOREIGN = Case("arcee", {**PLAIN, "hidden_act": "relu2"})


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    cases = {**CASES, "arcee": FOREIGN}
    return cache(lambda name: make(cases[name], tmp_path_factory.mktemp("described")))


def without_weights(folder: Path, target: Path) -> Path:
    """A folder of the config.json of another one, and nothing else."""
    target.mkdir()
    shutil.copy(folder / "config.json", target)
    return target


COUNTED = (
    "gpt2", "gpt_neox", "llama", "qwen3_moe", "deepseek_v3", "gpt_oss", "jamba", "t5",
    "bert", "falcon_h1 by silence",
)  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_counted_from_a_config_as_from_the_files(
    name: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """Files of these tests hold no head of a decoder, and a pooler that plays no part."""
    whole = describe(str(folder_of(name)))
    alone = describe(str(without_weights(folder_of(name), tmp_path / "alone")))
    spec = alone.spec
    width = spec.d_model if spec.embedding.width is None else spec.embedding.width
    head = spec.vocabulary * width
    pooler = spec.d_model * (spec.d_model + 1)
    assert alone.parameters - whole.parameters in (0, head, -pooler)
    assert alone.spec == whole.spec
    with pytest.raises(InputError, match="weights are not read"):
        described_model(alone, "float32").store.layer(None, 0)  # type: ignore[arg-type]


def test_an_index_whose_files_are_not_there_is_enough(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = without_weights(folder_of("llama"), tmp_path / "indexed")
    index = {"metadata": {"total_size": 1}, "weight_map": {"x": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert ask("models", "show", str(folder), "--json").json["parameters"] > 0
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"")
    assert ask("models", "show", str(folder)).code == 3


QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "tie_word_embeddings": True,
    },
    "vision_config": {"model_type": "qwen3_vl", "depth": 24, "hidden_size": 1024},
}  # fmt: skip


def large_folder(folder: Path) -> Path:
    """A folder as large as Qwen3-VL-2B: a true header, and a file with nothing in it but holes."""
    folder.mkdir()
    text = QWEN3_VL["text_config"]
    assert isinstance(text, dict)
    (folder / "config.json").write_text(json.dumps(QWEN3_VL))
    width, inner, layers = text["hidden_size"], text["intermediate_size"], text["num_hidden_layers"]
    shapes: dict[str, list[int]] = {"embed_tokens.weight": [text["vocab_size"], width]}
    for layer in range(layers):
        for name, rows, columns in (
            ("self_attn.q_proj", 2048, width), ("self_attn.k_proj", 1024, width), ("self_attn.v_proj", 1024, width),
            ("self_attn.o_proj", width, 2048), ("mlp.gate_proj", inner, width), ("mlp.up_proj", inner, width),
            ("mlp.down_proj", width, inner),
        ):  # fmt: skip
            shapes[f"layers.{layer}.{name}.weight"] = [rows, columns]
    header, place = {}, 0
    for name, (rows, columns) in shapes.items():
        header[f"model.language_model.{name}"] = {
            "dtype": "BF16",
            "shape": [rows, columns],
            "data_offsets": [place, place + 2 * rows * columns],
        }
        place += 2 * rows * columns
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(raw)) + raw)
        stream.truncate(8 + len(raw) + place)
    return folder


MEASURED = """
import resource, subprocess, sys
run = subprocess.run
ran = run([sys.executable, "-m", "attncli", *sys.argv[1:]], stderr=subprocess.STDOUT)
print(ran.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def measured(*arguments: str) -> tuple[int, int, str]:
    """A command's exit code, its peak memory in KiB, and what it wrote. A small process starts it,
    for a peak counts what its parent had, too."""
    ran = finish([sys.executable, "-c", MEASURED, *arguments])
    code, peak = ran.stderr.splitlines()[-1].split()
    return int(code), int(peak), ran.stdout


def test_a_model_too_large_for_the_limit_is_refused_by_its_headers(tmp_path: Path) -> None:
    """Of a model that transformers runs; within 300 MB, which leaves no room for it."""
    folder = large_folder(tmp_path / "large")
    code, peak, told = measured(
        "run", "--ids", "5 6 7", "--model", str(folder), "--max-memory", "1GB"
    )
    assert code == 5, told
    assert "--max-memory" in told
    assert peak < 300 * 1024


@pytest.mark.thorough
def test_cost_and_show_read_no_weight_of_a_model_that_transformers_runs(tmp_path: Path) -> None:
    folder = large_folder(tmp_path / "large")
    code, peak, told = measured("cost", "--model", str(folder), "-n", "4096", "--json")
    assert code == 0, told
    assert peak < 1024 * 1024  # torch and transformers themselves; the weights would be 6.9 GB
    document = json.loads(told)
    assert document["total"]["cache_bytes"] == 28 * 4096 * 8 * 2 * 128 * 4


def test_a_run_states_the_weights_that_transformers_holds(
    folder_of: Callable[[str], Path],
) -> None:
    folder = folder_of("arcee")
    document = ask("run", "--ids", "5 6 7", "--model", str(folder), "--json").json
    size = (folder / "model.safetensors").stat().st_size
    assert document["resources"]["memory_estimate"] > size - 4096
    shown = ask("models", "show", str(folder), "--json").json
    assert shown["family"] == "arcee"
    refused = ask("run", "--ids", "5 6 7", "--model", str(folder), "--max-memory", "1KB")
    assert refused.code == 5


def test_layers_that_read_the_keys_of_others_keep_none(tmp_path: Path) -> None:
    """Gemma 3n: the last layers take the keys of the last one of their kind before them."""
    config = {
        "model_type": "gemma3n_text", "vocab_size": 61, "vocab_size_per_layer_input": 61, "hidden_size": 32,
        "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "laurel_rank": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "sliding_window": 16, "activation_sparsity_pattern": [0.0] * 4,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    layers = ask("cost", "--model", str(tmp_path), "-n", "100", "--json").json["layers"]
    kept = [16 * 2 * 16 * 4, 100 * 2 * 16 * 4, 0, 0]
    assert [layer["cache_bytes"] for layer in layers] == kept
    described = describe(str(tmp_path))
    assert [block.attention.shared for block in described.spec.blocks] == [None, None, 0, 1]
    own = replace(described.spec.blocks[2].attention, shared=None)
    assert own != described.spec.blocks[2].attention


def test_the_positions_that_a_model_is_made_for_are_told_and_warned_of(tmp_path: Path) -> None:
    """Rotary models have no table of positions: a longer text runs, and is told of."""
    folder = make(CASES["llama"], tmp_path / "model")
    model = attncli.load(folder)
    limit = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    assert (model.spec.max_positions, model.spec.stated_positions) == (None, limit)
    shown = ask("models", "show", str(folder)).out
    assert f"made for {limit:,}" in shown
    assert "no limit" not in shown
    shorter = model.tokenizer.ids_to_tokens([7, 3, 5] * (limit // 3))
    longer = model.tokenizer.ids_to_tokens([7, 3, 5] * (limit // 3 + 1))
    assert not any("made for" in text for text in notes(model, "", shorter))
    (said,) = (text for text in notes(model, "", longer) if "made for" in text)
    assert f"{len(longer):,} tokens are more than the {limit:,} positions" in said
