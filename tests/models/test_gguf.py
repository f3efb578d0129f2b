"""GGUF files: the same attention as their folder; every kind of blocks as the `gguf` package has
it.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import gguf_files
import numpy as np
import pytest
import regex
import sentencepiece
import tokenizers
from asking import ask
from gguf_files import Kind
from msgspec.structs import replace
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2
from tiny_checkpoints import CASES, make
from tiny_sizes import Case, rope

import attncli
from attncli.arrays.backend import numpy_backend
from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.features.effects.targets import predicts_next
from attncli.inputs import gguf_tokenizer as gguf_tokenizers
from attncli.inputs.checkpoint import TensorInfo
from attncli.inputs.derived_checkpoint import DerivedCheckpoint
from attncli.inputs.ggml_blocks import BLOCKS, BlockKind
from attncli.inputs.gguf_file import GgufHeader, GgufTensor, Metadata, read_gguf
from attncli.inputs.gguf_tokenizer import (
    AFTER_BYTES,
    FALCON,
    PATTERNS,
    gguf_tokenizer,
    pre_tokenizer_of,
)
from attncli.inputs.string_table import StringTable
from attncli.inputs.vocabulary_tokenizer import PartTokenizer, PieceTokenizer
from attncli.models import verify as models_verify
from attncli.models.families import ARCHITECTURES, GGUF_FAMILIES, RELATIVES
from attncli.models.family import bind
from attncli.models.gguf import GgufCheckpoint, open_gguf
from attncli.models.gguf_tensors import BlockRecipe, JoinedHeads, Undone
from attncli.models.load import load_tokenizer
from attncli.models.run import finish
from attncli.models.verify import verify

IDS = [7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17]
PARITY = 1e-6

FILES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "phi": "phi2", "phi3": "phi3", "gpt2": "gpt2", "bert": "bert", "gpt_neox": "gptneox",
    "granite": "granite", "olmo2": "olmo2", "starcoder2": "starcoder2", "smollm3": "smollm3", "cohere": "command-r",
    "stablelm": "stablelm", "mixtral": "llama", "qwen3_moe": "qwen3moe", "phi3 long": "phi3", "llama 3.1": "llama",
    "nomic_bert": "nomic-bert", "glm4": "glm4", "exaone4": "exaone4", "exaone4 without windows": "exaone4",
    "cohere2": "cohere2", "hunyuan_v1_dense": "hunyuan-dense", "bloom": "bloom", "ernie4_5": "ernie4_5",
    "glm": "chatglm", "falcon": "falcon", "falcon new": "falcon", "gpt_oss": "gpt-oss", "granitemoe": "granitemoe",
    "lfm2": "lfm2",
    "nemotron": "nemotron", "olmo": "olmo", "olmo3": "olmo2", "qwen2_moe": "qwen2moe", "seed_oss": "seed_oss",
    "deepseek_v2": "deepseek2", "deepseek_v2 with one projection": "deepseek2", "deepseek_v3": "deepseek2",
    "glm4_moe": "glm4moe", "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe",
    "granitemoehybrid": "granitehybrid", "granitemoehybrid without experts": "granitehybrid", "bamba": "granitehybrid",
    "jamba": "jamba", "jamba without experts": "jamba", "lfm2_moe": "lfm2moe", "llama4_text": "llama4",
    "mistral": "mistral3", "ministral3": "mistral3", "minimax_m2": "minimax-m2", "hunyuan_v1_moe": "hunyuan-moe",
    "modernbert": "modern-bert", "t5": "t5", "t5 gated": "t5", "umt5": "t5", "embedding gemma": "gemma-embedding",
    "distilbert": "bert", "roberta": "bert", "jina_embeddings_v3": "jina-bert-v3",
}  # fmt: skip
"""A case of tests/tiny_checkpoints.py, and the architecture that GGUF files of it name."""


LATENT_KEYS = {
    "attention.head_count_kv": 1, "attention.key_length": 20, "attention.value_length": 14,
    "attention.key_length_mla": 10, "attention.value_length_mla": 7,
}  # fmt: skip
MORE: dict[str, dict[str, object]] = {
    "lfm2": {"attention.head_count_kv": [0, 2, 0], "attention.layer_norm_rms_epsilon": 1e-3, "feed_forward_length": 32,
             "attention.layer_norm_epsilon": None},
    "lfm2_moe": {"attention.head_count_kv": [0, 2, 0], "attention.layer_norm_rms_epsilon": 1e-3,
                 "expert_gating_func": 2},
    "olmo3": {"attention.sliding_window_pattern": [True, False, True], "rope.scaling.type": "yarn",
              "rope.scaling.original_context_length": 16},
    "gpt_oss": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 16},
    "falcon": {"attention.head_count_kv": 1, "feed_forward_length": 144},
    "falcon new": {"attention.head_count_kv": 3, "feed_forward_length": 144},
    "deepseek_v2": LATENT_KEYS | {"rope.scaling.yarn_log_multiplier": 0.09},
    "deepseek_v2 with one projection": LATENT_KEYS,
    "deepseek_v3": LATENT_KEYS | {"rope.scaling.yarn_log_multiplier": 0.1, "expert_gating_func": 2,
                                  "expert_weights_norm": True},
    "glm4_moe": {"expert_gating_func": 2, "expert_weights_norm": True},
    "qwen3_next": {"ssm.inner_size": 20, "attention.recurrent_layers": [True, False, True]},
    "qwen3_5_text": {"ssm.inner_size": 20, "attention.recurrent_layers": [False, True, True, False]},
    "qwen3_5_moe_text": {"ssm.inner_size": 20, "attention.recurrent_layers": [False, True]},
    "granitemoehybrid": {"ssm.inner_size": 72, "attention.head_count_kv": [0, 2, 0]},
    "granitemoehybrid without experts": {"ssm.inner_size": 72, "attention.head_count_kv": [2, 0, 2]},
    "bamba": {"ssm.inner_size": 72, "attention.head_count_kv": [0, 1, 0], "rope.scaling.finetuned": True,
              "rope.dimension_count": 6},
    "jamba": {"ssm.inner_size": 72, "attention.head_count_kv": [0, 2, 0]},
    "jamba without experts": {"ssm.inner_size": 72, "attention.head_count_kv": [2, 0, 2]},
    "llama4_text": {"expert_feed_forward_length": 41},
    "ministral3": {"rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.3},
    "modernbert": {"attention.layer_norm_rms_epsilon": 1e-3, "attention.layer_norm_epsilon": None,
                   "attention.sliding_window": 6, "rope.scaling.type": "none", "attention.causal": False},
    "t5": {"attention.layer_norm_rms_epsilon": 1e-3}, "t5 gated": {"attention.layer_norm_rms_epsilon": 1e-3},
    "umt5": {"attention.layer_norm_rms_epsilon": 1e-3},
    "hunyuan_v1_moe": {"expert_used_count": 2},
    "roberta": {"context_length": 27},
}  # fmt: skip
"""Metadata that converters write besides."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The folder of a case, and the file made of it."""

    @cache
    def both(name: str) -> tuple[Path, Path]:
        folder = make(fitting(name), tmp_path_factory.mktemp("checkpoint"))
        round_norms(folder)
        return folder, gguf_files.write(
            folder, folder / f"{name}.gguf", FILES[name], more=MORE.get(name)
        )

    return both


def fitting(name: str) -> Case:
    """The case with what llama.cpp takes for granted of such a model."""
    case = CASES[name]
    usual = {
        "gemma2": {"query_pre_attn_scalar": 10, "final_logit_softcapping": 3.0},
        "gemma3_text": {"query_pre_attn_scalar": 10, "num_hidden_layers": 6, "layer_types": None},
        "gpt2": {"scale_attn_by_inverse_layer_idx": False},
        "smollm3": {"no_rope_layers": None},
        "phi": {"qk_layernorm": False},
        "stablelm": {"qk_layernorm": False},
        "mixtral": {"sliding_window": None},
        "gpt_neox": rope("default", partial_rotary_factor=0.5),
        "qwen2": {"use_sliding_window": False},
        "hunyuan_v1_dense": {**rope("default"), "attention_bias": False},
        "qwen3": {"use_sliding_window": False},
        "falcon new": {"ffn_hidden_size": 144},
        "falcon": {"bias": False, "num_kv_heads": 1},
        "gpt_oss": {
            "swiglu_limit": 7.0,
            "num_hidden_layers": 2,
            **rope("yarn", factor=4.0, original_max_position_embeddings=16, truncate=False),
        },
        "lfm2": {"conv_bias": False},
        "deepseek_v2": {
            **rope(
                "yarn",
                factor=4.0,
                original_max_position_embeddings=16,
                mscale=0.9,
                mscale_all_dim=0.9,
            ),
            "attention_bias": False,
        },
        "deepseek_v2 with one projection": {"mlp_bias": False},
        "deepseek_v3": {"attention_bias": False},
        "qwen3_next": {"attention_bias": False},
        "granitemoehybrid without experts": {"position_embedding_type": None},
        "jamba": {"mamba_proj_bias": False},
        "lfm2_moe": {"routed_scaling_factor": 1.0},
        "llama4_text": {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1},
        "mistral": {"sliding_window": None},
        "ministral3": {"sliding_window": None},
        "hunyuan_v1_moe": {"moe_topk": [2, 2]},
        "modernbert": {"norm_bias": False, "attention_bias": False, "mlp_bias": False},
        "t5": {"relative_attention_max_distance": 128},
        "t5 gated": {"relative_attention_max_distance": 128},
        "umt5": {"relative_attention_max_distance": 128},
        "embedding gemma": {
            "query_pre_attn_scalar": 10,
            "num_hidden_layers": 6,
            "layer_types": None,
        },
        "qwen2_moe": {"use_sliding_window": False, "mlp_only_layers": [], "norm_topk_prob": False},
        "olmo": {"clip_qkv": 0.7},
        "granitemoe": {"num_hidden_layers": 2},
    }
    return replace(case, config={**case.config, **usual.get(name, {})})


def round_norms(folder: Path) -> None:
    """Norms of few bits: the sum of 1 and one of them is a float32, too."""
    arrays = load_file(folder / "model.safetensors")
    rounded = {
        name: np.round(array * 1024) / 1024 if "norm" in name else array
        for name, array in arrays.items()
    }
    save_file(
        {name: array.astype(np.float32) for name, array in rounded.items()},
        folder / "model.safetensors",
    )


def ids_of(model: attncli.Model) -> list[attncli.Token]:
    return model.tokenizer.ids_to_tokens(IDS)


def weights(path: Path, **how: object) -> np.ndarray:
    model = attncli.load(path, note=None, dtype="float64", **how)
    return np.stack([trace.stages["weights"] for trace in model.trace(ids_of(model))])


@pytest.mark.many
@pytest.mark.parametrize("name", FILES)
def test_a_file_shows_what_its_folder_shows(name: str, pair: Callable[[str], tuple[Path, Path]]):
    folder, file = pair(name)
    difference = np.abs(weights(folder) - weights(file)).max()
    assert difference < PARITY, difference


def turned_around(recipe: JoinedHeads, start: int, stop: int) -> np.ndarray:
    """The values before the keys."""
    rows = JOINED(recipe, start, stop).reshape(-1, recipe.unit, 14)
    return rows[:, ::-1].reshape(-1, 14)


JOINED = JoinedHeads.rows
SPOILT: dict[str, tuple[str, str, object]] = {
    "the order of queries and keys": ("llama", "gguf_tensors.REORDERED", re.compile("nothing")),
    "the order of values": ("qwen3_5_text", "gguf_tensors.TILED", {}),
    "the logarithm": ("qwen3_next", "gguf.conversion_of", lambda *given: Undone()),
    "keys before values": ("deepseek_v3", "gguf_tensors.JoinedHeads.rows", turned_around),
    "norms as stored": ("qwen3_next", "gguf._norms_as_stored", lambda spec: spec),
}


@pytest.mark.parametrize("what", SPOILT)
def test_without_undoing_what_the_converter_did_it_would_be_another_model(
    what: str, pair: Callable[[str], tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
):
    name, place, other = SPOILT[what]
    folder, file = pair(name)
    monkeypatch.setattr(f"attncli.models.{place}", other)
    assert np.abs(weights(folder) - weights(file)).max() > 0.01


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_the_decoder_of_a_file_shows_what_its_folder_shows(
    name: str, pair: Callable[[str], tuple[Path, Path]]
):
    rows = []
    for path in pair(name):
        model = attncli.load(path, note=None, dtype="float64")
        decoder = model.decoder(ids_of(model))
        traces = list(decoder.trace(decoder.tokenizer.ids_to_tokens(IDS[:5])))
        rows.append(
            [
                side
                for trace in traces
                for side in (trace.stages["weights"], trace.cross.stages["weights"])
            ]
        )
    for a, b in zip(*rows, strict=True):
        assert np.abs(a - b).max() < PARITY


def test_every_architecture_and_family_that_is_named_is_held_against_a_folder():
    assert set(ARCHITECTURES) - {"t5encoder"} == set(FILES.values())
    assert {kind for kinds in RELATIVES.values() for _, kind in kinds} <= {
        CASES[name].model_type for name in FILES
    }
    listed = {
        row["name"]: row["families"]
        for row in json.loads(ask("models", "list", "--json").out)["formats"]
    }
    assert listed["GGUF"] == list(GGUF_FAMILIES)


def test_queries_and_keys_have_the_folders_order(pair: Callable[[str], tuple[Path, Path]]):
    stages = []
    for path in pair("llama"):
        model = attncli.load(path, note=None)
        stages.append(
            [trace.stages[name] for trace in model.trace(ids_of(model)) for name in ("q", "k")]
        )
    for a, b in zip(*stages, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("number", BLOCKS)
def test_every_kind_of_blocks_is_what_the_package_makes_of_it(number: int):
    block, rng = BLOCKS[number], np.random.default_rng(number)
    raw = rng.integers(0, 256, (96, block.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw.copy(), Kind(number)).reshape(-1)
    assert np.array_equal(block.numbers(raw.reshape(-1)), expected, equal_nan=True)
    assert block.name == Kind(number).name
    assert (block.weights, block.bytes) == gguf.GGML_QUANT_SIZES[Kind(number)]
    spoilt = raw.copy()
    spoilt[0, -1] ^= 0b01010101
    assert not np.array_equal(block.numbers(spoilt.reshape(-1)), expected, equal_nan=True)


@pytest.mark.parametrize("number", BLOCKS)
@pytest.mark.parametrize("change", ["none", "head", "rows", "columns"])
def test_a_product_with_blocks_is_that_with_their_numbers(number: int, change: str):
    """Five vectors, and one, with a matrix that no stretch divides, as it lies and with each of a
    converter's changes reversed."""
    block, rng, width, count = BLOCKS[number], np.random.default_rng(number), 768, 360
    numbers = rng.standard_normal((count, width)).astype(np.float32)
    raw = gguf_files.pack(numbers, Kind(number)).reshape(-1).view(np.uint8)
    numbers = block.numbers(raw).reshape(count, width).astype(np.float64)
    undone = {
        "none": Undone(),
        "head": Undone(head=12),
        "rows": Undone(rows=rng.permutation(count)),
        "columns": Undone(columns=rng.permutation(width)),
    }[change]

    def fill(info: TensorInfo, target: np.ndarray, start: int, name: str) -> None:
        target[:] = raw[start : start + target.size]

    tensor = GgufTensor("w", block, (count, width), 0, raw.size)
    info = TensorInfo("float32", tensor.shape, Path("x"), 0, raw.size)
    recipe = BlockRecipe(fill, tensor, info, undone)
    x = rng.standard_normal((5, width)).astype(np.float32)
    expected = x.astype(np.float64) @ recipe.rows(0, count).astype(np.float64).T
    assert np.isfinite(expected).all()
    product = recipe.product(x)
    assert product is not None
    assert product.shape == (5, count)
    assert np.abs(product - expected).max() < 2e-6 * np.abs(expected).max()
    single = recipe.product(x[:1])
    assert single is not None
    assert np.abs(single - expected[:1]).max() < 2e-6 * np.abs(expected).max()
    if change != "none":
        assert np.abs(product - x @ numbers.T).max() > 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(("kind", "worst"), [(Kind.Q4_K, 0.22), (Kind.Q6_K, 0.08)])
def test_what_writes_the_files_here_is_near_the_numbers(kind: Kind, worst: float):
    array = np.random.default_rng(1).standard_normal((4, 512)).astype(np.float32)
    assert np.abs(gguf.quants.dequantize(gguf_files.pack(array, kind), kind) - array).max() < worst


WIDE = Case("qwen2", {**CASES["qwen2"].config, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 256,
                      "num_hidden_layers": 2, "use_sliding_window": False, "initializer_range": 0.02})  # fmt: skip


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(WIDE, tmp_path_factory.mktemp("wide"))


@pytest.mark.parametrize("kind", [block.name for block in BLOCKS.values() if block.name != "F32"])
def test_a_quantised_file_runs_as_the_folder_of_its_numbers(kind: str, wide: Path, tmp_path: Path):
    file = gguf_files.write(
        wide, tmp_path / "packed.gguf", "qwen2", quantise=lambda name, array: Kind[kind]
    )
    model = attncli.load(file, note=None)
    assert model.identity.quantization == kind
    plain, config = tmp_path / "plain", (wide / "config.json").read_text()
    plain.mkdir()
    (plain / "config.json").write_text(config)
    save_file(dequantised(wide, Kind[kind]), plain / "model.safetensors")
    rows = [0, 7, 3, 7]
    other = attncli.load(plain, note=None)
    table = other.store.checkpoint.read_rows("embed_tokens.weight", rows)
    assert np.array_equal(model.store.checkpoint.read_rows("token_embd.weight", rows), table)
    assert np.abs(weights(file) - weights(plain)).max() < PARITY


def dequantised(folder: Path, kind: Kind) -> dict[str, np.ndarray]:
    """The folder's tensors after the way there and back, by the package itself."""
    arrays = load_file(folder / "model.safetensors")
    return {
        name: gguf.quants.dequantize(gguf_files.pack(array, kind), kind)
        .reshape(array.shape)
        .astype(np.float32)
        if array.ndim == 2
        else array
        for name, array in arrays.items()
    }


def test_only_the_layers_that_are_shown_are_read(wide: Path, tmp_path: Path):
    file = gguf_files.write(
        wide, tmp_path / "packed.gguf", "qwen2", quantise=lambda name, array: Kind.Q8_0
    )
    model = attncli.load(file, note=None)
    list(model.trace(ids_of(model), layers=[0]))
    first = model.store.bytes_read()
    list(model.trace(ids_of(model)))
    assert 0 < first < (model.store.bytes_read() - first) * 0.7


def test_the_output_head_is_read_once_and_only_for_logits(wide: Path, tmp_path: Path):
    """Whether there is one is told from the file's names; its numbers are never in memory."""
    file = gguf_files.write(
        wide, tmp_path / "packed.gguf", "qwen2", quantise=lambda name, array: Kind.Q8_0
    )
    model = attncli.load(file, note=None)
    *_, trace = model.trace(ids_of(model))
    vector = trace.after[-1:]
    before = model.store.bytes_read()
    assert predicts_next(model)
    assert model.store.bytes_read() == before
    outputs = model.logits(vector)
    info = model.store.checkpoint.info("token_embd.weight")
    norm = model.store.checkpoint.info("output_norm.weight")
    assert model.store.bytes_read() - before == info.bytes + norm.bytes
    matrix = model.store.checkpoint.read("token_embd.weight", "float32")
    normed = finish(model.spec, model.store.outer(model.backend), model.backend, vector)
    assert np.abs(outputs - normed @ matrix.T).max() < 1e-5 * np.abs(outputs).max()


def test_no_product_needs_a_whole_matrix():
    """64 MiB of numbers, of which two threads have 2 MiB each at a time, and what they are computed
    by.
    """
    rng, shape = np.random.default_rng(0), (8192, 2048)
    raw = rng.integers(0, 256, math.prod(shape) // 256 * 144, dtype=np.uint8)
    raw.reshape(-1, 144)[:, :4] = np.float16([0.01, 0.01]).view(np.uint8)
    block = BLOCKS[Kind.Q4_K]

    class Rows:
        unit = 1

        def rows(self, start: int, stop: int) -> np.ndarray:
            step = shape[1] // 256 * 144
            return block.numbers(raw[start * step : stop * step]).reshape(-1, shape[1])

    info = TensorInfo("float32", shape, Path("x"), 0, raw.size, "Q4_K")
    checkpoint = DerivedCheckpoint(Path(), {}, {"w": info}, {"w": Rows()})
    x = rng.standard_normal((11, shape[1])).astype(np.float32)
    tracemalloc.start()
    product = checkpoint.product("w", x, numpy_backend("float32"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20, peak
    expected = x @ block.numbers(raw).reshape(shape).T
    assert np.abs(product - expected).max() < 1e-5 * np.abs(expected).max()


def test_several_files_are_one_model(pair: Callable[[str], tuple[Path, Path]], tmp_path: Path):
    folder, file = pair("qwen2")
    reader = gguf.GGUFReader(file)
    for part in (1, 2):
        target = tmp_path / f"m-{part:05}-of-00002.gguf"
        writer = gguf.GGUFWriter(target, "qwen2")
        if part == 1:
            for field in reader.fields.values():
                if field.name.startswith("qwen2."):
                    writer.add_key_value(field.name, field.contents(), field.types[0])
        for place, tensor in enumerate(reader.tensors):
            if place % 2 == part - 1:
                writer.add_tensor(tensor.name, tensor.data)
        for step in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{step}_to_file")()
        writer.close()
    for place in (tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf", tmp_path):
        if place.suffix and "00002-of" in place.name:
            continue
        assert np.abs(weights(folder) - weights(place)).max() < PARITY
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(InputError, match="part 2 of 2 is missing"):
        attncli.load(tmp_path, note=None)


@pytest.mark.parametrize(
    ("names", "place", "says"),
    [
        (("m-00002-of-00003.gguf",), "", "part 1 of 3 is missing: 'm-00001-of-00003.gguf'"),
        (("m-00002-of-00003.gguf",), "m-00002-of-00003.gguf", "part 1 of 3 is missing"),
        (("first.gguf",), "first.gguf", "this file is part 1 of 3 of a model, and its name does"),
        (("first.gguf", "m-00002-of-00003.gguf"), "", r"2 \.gguf files"),
    ],
)
def test_parts_that_are_lost_or_renamed_are_told(
    names: tuple[str, ...], place: str, says: str, tmp_path: Path
) -> None:
    for name in names:
        writer = gguf.GGUFWriter(tmp_path / name, "llama")
        writer.add_uint16("split.no", 0)
        writer.add_uint16("split.count", 3)
        for step in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{step}_to_file")()
        writer.close()
    with pytest.raises(InputError, match=says) as refusal:
        attncli.load(tmp_path / place, note=None)
    if place == "first.gguf":
        assert refusal.value.expected.startswith("'first-00001-of-00003.gguf'")


def test_a_folder_with_several_models_says_which(
    pair: Callable[[str], tuple[Path, Path]], tmp_path: Path
):
    for name in ("a-Q4_K_M.gguf", "a-Q4_K_M_L.gguf"):
        (tmp_path / name).write_bytes(pair("llama")[1].read_bytes())
    with pytest.raises(InputError, match=r"2 \.gguf files"):
        attncli.load(tmp_path, note=None)


def test_a_hub_id_with_a_quantization(pair: Callable[[str], tuple[Path, Path]], tmp_path: Path):
    snapshot = tmp_path / "models--some--thing" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (tmp_path / "models--some--thing" / "refs").mkdir()
    (tmp_path / "models--some--thing" / "refs" / "main").write_text("a" * 40)
    for name in ("a-Q4_K_M.gguf", "a-Q4_K_M_L.gguf", "a-Q8_0.gguf"):
        (snapshot / name).write_bytes(pair("llama")[1].read_bytes())
    variables = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert attncli.load("some/thing:q4_k_m", note=None, variables=variables).spec.family == "llama"
    with pytest.raises(InputError, match="whose name has 'Q5_K'"):
        attncli.load("some/thing:Q5_K", note=None, variables=variables)
    with pytest.raises(InputError, match="does not hold other/thing"):
        attncli.load("other/thing:Q5_K", note=None, variables=variables)


# Files that lie.


def header(*parts: bytes, tensors: int = 0, entries: int = 1, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + b"".join(parts)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
LARGE = 10**9


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HOSTILE = {
    "no magic": (b"GGML" + bytes(60), "begins with b'GGML'"),
    "cut off": (b"GGUF\x03\0\0", "goes on at byte 8, the file has 7"),
    "entries": (header(ARCHITECTURE, entries=LARGE), "claims 1,000,000,000 entries"),
    "tensors": (header(ARCHITECTURE, tensors=LARGE), "claims 1,000,000,000 tensors"),
    "long key": (header(struct.pack("<Q", LARGE), bytes(99)), "a text at byte 24 claims 1,000,000,000"),
    "long text": (header(text("a"), struct.pack("<IQ", 8, 2**63)), "claims 9,223,372,036,854,775,808 bytes"),
    "long array": (header(text("a"), struct.pack("<IIQ", 9, 4, LARGE)), "claims 1,000,000,000 items of 'a'"),
    "nested": (header(text("a"), struct.pack("<IIQ", 9, 9, 1), bytes(40)), "an array of arrays"),
    "type of value": (header(text("a"), struct.pack("<I", 99), bytes(9)), "is of the type 99"),
    "twice": (header(ARCHITECTURE, ARCHITECTURE, entries=2), "two entries 'general.architecture'"),
    "version": (header(ARCHITECTURE, version=9), "version 9"),
    "type of tensor": (header(ARCHITECTURE, tensor("a", (32,), 77, 0), bytes(99), tensors=1), "of the type 77"),
    "axes": (header(ARCHITECTURE, tensor("a", (1,) * 9, 0, 0), bytes(99), tensors=1), "has 9 axes"),
    "shape": (header(ARCHITECTURE, tensor("a", (2**40, 2**40), 0, 0), bytes(99), tensors=1), "does not fit in"),
    "beyond": (header(ARCHITECTURE, tensor("a", (64,), 0, 0), bytes(99), tensors=1), "does not fit|ends at byte"),
    "partial block": (header(ARCHITECTURE, tensor("a", (33,), 8, 0), bytes(99), tensors=1), "rows of 33"),
    "overlap": (
        header(ARCHITECTURE, tensor("a", (16,), 0, 0), tensor("b", (16,), 0, 32), bytes(999), tensors=2),
        "'b' begins at byte",
    ),
    "gap": (
        header(ARCHITECTURE, tensor("a", (8,), 0, 0), tensor("b", (8,), 0, 320), bytes(999), tensors=2),
        "'b' begins at byte",
    ),
    "same name": (
        header(ARCHITECTURE, tensor("a", (8,), 0, 0), tensor("a", (8,), 0, 32), bytes(999), tensors=2),
        "'a' is there twice",
    ),
    "architecture": (header(text("general.architecture"), struct.pack("<I", 8), text("mamba")), "architecture 'mamba'"),
    "no architecture": (header(text("a"), struct.pack("<II", 4, 1)), "general.architecture to None"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_lie_are_refused_with_what_they_say(name: str, tmp_path: Path):
    raw, message = HOSTILE[name]
    path = tmp_path / "x.gguf"
    path.write_bytes(raw)
    with pytest.raises((InputError, UnsupportedError), match=message) as error:
        attncli.load(path, note=None)
    assert str(path) in str(error.value.where)


def test_any_bytes_changed_end_in_an_error_of_ours_or_a_model(
    pair: Callable[[str], tuple[Path, Path]], tmp_path: Path
):
    raw, rng, path = pair("llama")[1].read_bytes(), np.random.default_rng(4), tmp_path / "x.gguf"
    for _ in range(150):
        changed = bytearray(raw[: rng.integers(1, 2500)] if rng.random() < 0.2 else raw)
        for place in rng.integers(0, min(2500, len(changed)), 3):
            changed[place] = rng.integers(0, 256)
        path.write_bytes(changed)
        try:
            attncli.load(path, note=None)
        except AttnError:
            continue


FORGED = (
    *(
        0,
        1,
        7,
        -7,
        2**31 - 1,
        2**63 - 1,
        1.5,
        float("nan"),
        float("inf"),
        1e300,
        "x",
        True,
        [],
        ["a"],
    ),
    *(
        np.array([3, 0, 2**31]),
        np.array([True, False]),
        np.array([1.5, np.nan]),
        np.zeros(0, np.int32),
    ),
)
NEW = [name for name, architecture in FILES.items() if architecture in (
    *("deepseek2", "glm4moe", "qwen3next", "qwen35", "granitehybrid", "jamba", "lfm2moe", "llama4", "mistral3"),
    *("minimax-m2", "hunyuan-moe", "modern-bert", "t5"),
)]  # fmt: skip


def test_forged_metadata_and_tensors_end_in_an_error_of_ours_or_a_model(
    pair: Callable[[str], tuple[Path, Path]],
):
    """Three hundred files with one key or one tensor of another size, kind or name, or none."""
    rng = np.random.default_rng(3)
    for draw in range(300):
        file = pair(NEW[draw % len(NEW)])[1]
        header = read_gguf(file)
        metadata, tensors = dict(header.metadata), dict(header.tensors)
        key, name = (
            rng.choice([key for key in metadata if "general" not in key]),
            rng.choice(list(tensors)),
        )
        shape = tensors[name].shape
        match draw % 5:
            case 0:
                del metadata[key]
            case 1:
                tensors[name] = replace(
                    tensors[name], shape=((*shape, 1), shape[::-1], (2**40, 3))[rng.integers(3)]
                )
            case 2:
                tensors[name.replace("blk.0", "blk.99999999999")] = tensors.pop(name)
            case _:
                metadata[key] = FORGED[rng.integers(len(FORGED))]
        with suppress(AttnError):
            checkpoint = GgufCheckpoint([(file, GgufHeader(metadata, tensors))])
            spec, named_family, _ = checkpoint.spec(())
            bind(spec, named_family, checkpoint.names(), "file")


def test_a_scale_that_is_no_number_is_told_with_its_place(wide: Path, tmp_path: Path):
    file = gguf_files.write(
        wide, tmp_path / "x.gguf", "qwen2", quantise=lambda name, array: Kind.Q8_0
    )
    place = next(
        tensor for tensor in gguf.GGUFReader(file).tensors if tensor.name == "blk.1.attn_q.weight"
    ).data_offset
    raw = bytearray(file.read_bytes())
    row = 256 // 32 * 34
    raw[place + 3 * row + 34 : place + 3 * row + 36] = np.float16("nan").tobytes()
    file.write_bytes(raw)
    model = attncli.load(file, note=None)
    with pytest.raises(InputError, match=r"'blk.1.attn_q.weight' holds nan at \[3, 32\]"):
        list(model.trace(ids_of(model)))


# Vocabularies.

SAMPLES = (
    "The animal didn't cross the street, because it was 12345 metres wide!",
    "  two  blanks\n\nand\tlines ", "naïve caﬁé, 你好世界 😀", "x=f(y)+3.14; we'LL", "",
)  # fmt: skip


QWEN_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Vocabulary(NamedTuple):
    """A vocabulary trained on the README. write: tells a GGUF file of it. ids: what its own library
    makes of a text.
    """

    size: int
    write: Callable[[gguf.GGUFWriter], None]
    ids: Callable[[str], list[int]]


def lines() -> list[str]:
    return (Path(__file__).parents[2] / "README.md").read_text().splitlines()


@cache
def merges(cut: str) -> Vocabulary:
    """Byte-pair merges, cut as Qwen 2 or GPT-2 do."""
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=cut == "gpt-2"
    )
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN_CUT), "isolated")
    parts = [byte_level] if cut == "gpt-2" else [split, byte_level]
    own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(parts)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|end|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    own.train_from_iterator(lines(), trainer)
    model = json.loads(own.to_str())["model"]

    def write(writer: gguf.GGUFWriter) -> None:
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(cut)
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token == "<|end|>" else 1 for token in tokens])
        writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
        writer.add_bos_token_id(0)
        writer.add_add_bos_token(False)

    return Vocabulary(len(model["vocab"]), write, lambda sample: own.encode(sample).ids)


@cache
def sentence_pieces(kind: str) -> Vocabulary:
    """SentencePiece's "bpe" or "unigram"."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=model, vocab_size=700, model_type=kind, byte_fallback=True,
        normalization_rule_name="identity" if kind == "bpe" else "nmt_nfkc", remove_extra_whitespaces=kind != "bpe",
        minloglevel=9,
    )  # fmt: skip
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def write(writer: gguf.GGUFWriter) -> None:
        ids = range(own.vocab_size())
        writer.add_tokenizer_model("llama" if kind == "bpe" else "t5")
        writer.add_token_list([own.id_to_piece(i) for i in ids])
        writer.add_token_scores([own.get_score(i) for i in ids])
        writer.add_token_types(
            [
                2 if own.is_unknown(i) else 3 if own.is_control(i) else 6 if own.is_byte(i) else 1
                for i in ids
            ]
        )
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        if kind == "unigram":
            stored = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue()).normalizer_spec
            writer.add_precompiled_charsmap(stored.precompiled_charsmap)
            writer.add_remove_extra_whitespaces(True)

    ends = ([1], []) if kind == "bpe" else ([], [2])
    return Vocabulary(
        own.vocab_size(), write, lambda sample: [*ends[0], *own.encode(sample), *ends[1]]
    )


@cache
def word_pieces() -> Vocabulary:
    """BERT's, without capitals."""
    trained = tokenizers.BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(lines(), vocab_size=500, show_progress=False)
    own = tokenizers.BertWordPieceTokenizer(trained.get_vocab(), lowercase=True)
    tokens = sorted(own.get_vocab(), key=own.get_vocab().get)

    def write(writer: gguf.GGUFWriter) -> None:
        bare = [
            token
            if token[0] == "[" and token[-1] == "]"
            else token[2:]
            if token[:2] == "##"
            else f"▁{token}"
            for token in tokens
        ]
        writer.add_tokenizer_model("bert")
        writer.add_token_list(bare)
        writer.add_token_types([3 if token[0] == "[" and len(token) > 2 else 1 for token in tokens])
        writer.add_unk_token_id(tokens.index("[UNK]"))
        writer.add_bos_token_id(tokens.index("[CLS]"))
        writer.add_sep_token_id(tokens.index("[SEP]"))

    return Vocabulary(len(tokens), write, lambda sample: own.encode(sample).ids)


@cache
def merged_characters() -> Vocabulary:
    """Gemma 4's: characters with a sign for blanks, runs of line breaks, single bytes; cut by loops."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, show_progress=False)
    trained.train_from_iterator(lines(), trainer)
    model = json.loads(trained.to_str())["model"]
    made = [tuple(merge) for merge in model["merges"]]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    breaks = ["\n" * count for count in (1, 2, 3)]
    pieces = [*("<pad>", "<eos>", "<bos>", "<unk>"), *byte_pieces, *breaks, *model["vocab"]]

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gemma4")
        writer.add_token_list(pieces)
        others = [6] * len(byte_pieces) + [1] * (len(pieces) - 4 - len(byte_pieces))
        writer.add_token_types([3, 3, 3, 2, *others])
        writer.add_token_merges([" ".join(merge) for merge in made])
        writer.add_bos_token_id(2)

    def ids(sample: str) -> list[int]:
        told = [2]
        for part in re.findall("[^\n]+|\n+", sample.replace(" ", "▁")):
            parts = [part] if part in breaks else list(part)
            while len(parts) > 1:
                ranks = [
                    made.index(pair) if pair in made else len(made) for pair in pairwise(parts)
                ]
                if min(ranks) == len(made):
                    break
                place = ranks.index(min(ranks))
                parts[place : place + 2] = ["".join(parts[place : place + 2])]
            for piece in parts:
                known = [piece] if piece in pieces else [byte_pieces[one] for one in piece.encode()]
                told += [pieces.index(one) for one in known]
        return told

    return Vocabulary(len(pieces), write, ids)


CUT = (
    *SAMPLES[:-1],
    "١٢٣٤٥ नमस्ते ʕ Աա ა 𝐀𝐁 ひらがなカタカナ 한국어",
    "price: $1,234,567.89 `code` ~|^  ",
)


@pytest.mark.parametrize(
    "patterns",
    [patterns for patterns in dict.fromkeys(PATTERNS.values()) if patterns not in AFTER_BYTES],
    ids=lambda patterns: patterns[0][:20],
)
def test_patterns_cut_as_another_library_of_patterns_does_one_after_the_other(
    patterns: tuple[str, ...],
):
    for sample in CUT:
        pieces = [sample]
        for pattern in patterns:
            pieces = [part for piece in pieces for part in isolated(pattern, piece)]
        places = [place for _, place in pre_tokenizer_of(patterns).pre_tokenize_str(sample)]
        assert [sample[start:stop] for start, stop in places] == pieces


def isolated(pattern: str, text: str) -> list[str]:
    """What the pattern matches and what lies between, in order."""
    ends = [
        place for match in regex.finditer(pattern, text, flags=regex.V1) for place in match.span()
    ]
    places = sorted({0, *ends, len(text)})
    return [text[start:stop] for start, stop in pairwise(places)]


def test_falcons_texts_are_cut_as_its_own_file_says():
    of = tokenizers.pre_tokenizers
    digits = of.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated")
    own = of.Sequence(
        [of.Punctuation("contiguous"), of.ByteLevel(add_prefix_space=False), of.Digits(), digits]
    )
    for sample in CUT:
        assert pre_tokenizer_of(FALCON).pre_tokenize_str(sample) == own.pre_tokenize_str(sample)


@pytest.mark.many
@pytest.mark.parametrize(
    ("make_vocabulary", "more"),
    [
        (lambda: merges("qwen2"), ["a<|end|>b"]),
        (lambda: merges("gpt-2"), ["a<|end|>b"]),
        (lambda: sentence_pieces("bpe"), []),
        (lambda: sentence_pieces("unigram"), []),
        (word_pieces, []),
        (merged_characters, ["one\n\n\ntwo\nthree"]),
    ],
    ids=["merges as Qwen", "merges as GPT-2", "SentencePiece", "unigram", "word pieces", "Gemma 4"],
)
@pytest.mark.parametrize("worth", [10_000, 0], ids=["whole", "in parts"])
def test_a_vocabulary_cuts_as_its_own_library(
    make_vocabulary: Callable[[], Vocabulary],
    more: list[str],
    worth: int,
    wide: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(gguf_tokenizers, "WORTH_PARTS", worth)
    vocabulary = make_vocabulary()
    file = gguf_files.write(wide, tmp_path / "v.gguf", "qwen2", vocabulary=vocabulary.write)
    tokenizer = attncli.load(file, note=None).tokenizer
    for sample in (*SAMPLES[:-1], *more):
        assert [token.id for token in tokenizer.encode(sample)] == vocabulary.ids(sample), sample


@pytest.mark.parametrize("architecture", ["mpt", "refact", "baichuan", "nomic-bert-moe"])
def test_a_vocabulary_is_read_of_an_architecture_whose_layers_are_not(architecture, tmp_path):
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), architecture)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["h", "i", "hi", "<|e|>"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["h i"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert [token.id for token in load_tokenizer(str(tmp_path / "m.gguf")).encode("hi<|e|>")] == [
        2,
        3,
    ]


def test_texts_are_composed_where_the_tokenizer_of_that_name_does(wide: Path, tmp_path: Path):
    letters = {"qwen2": ("e\u0301", "\u00e9"), "gpt-2": ("e\u0301", "e\u0301")}
    for pattern, (given, read) in letters.items():
        vocabulary = merges(pattern)
        file = gguf_files.write(
            wide, tmp_path / f"{pattern}.gguf", "qwen2", vocabulary=vocabulary.write
        )
        tokenizer = attncli.load(file, note=None).tokenizer
        tokens = tokenizer.encode(f"caf{given} x")
        assert tokenizer.text_of([token.id for token in tokens]) == f"caf{read} x"
        assert tokens[-1].end == len(f"caf{given} x")


HARD = (
    *SAMPLES,
    *(
        "e\u0301 cafe\u0301 ▁▁ \u2581",
        "<|end|>\n<|end|>",
        "  ▁<0x41></s><s>",
        "\0\x01\x7f",
        "a" * 300,
    ),
    *(
        "١٢٣٤٥ नमस्ते ﷽",
        "👩‍👩‍👧‍👦 🇨🇭",
        "\t\tdef f(x):\n        return x**2",
        "> ̸<|end|≯",
        "don't DON'T I'Ve",
    ),
)


@pytest.mark.many
@pytest.mark.parametrize(
    "make_vocabulary",
    [
        lambda: merges("qwen2"),
        lambda: merges("gpt-2"),
        lambda: sentence_pieces("bpe"),
        merged_characters,
    ],
    ids=["merges as Qwen", "merges as GPT-2", "SentencePiece", "Gemma 4"],
)
def test_a_vocabulary_built_in_parts_answers_as_the_whole(
    make_vocabulary: Callable[[], Vocabulary],
    wide: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    vocabulary = make_vocabulary()
    file = gguf_files.write(wide, tmp_path / "v.gguf", "qwen2", vocabulary=vocabulary.write)
    whole = attncli.load(file, note=None).tokenizer
    monkeypatch.setattr(gguf_tokenizers, "WORTH_PARTS", 0)
    parts = attncli.load(file, note=None).tokenizer
    assert isinstance(whole, PieceTokenizer)
    assert isinstance(parts, PartTokenizer)
    assert (parts.special_tokens, parts.unknown_id) == (whole.special_tokens, whole.unknown_id)
    for sample in HARD:
        assert parts.encode(sample) == whole.encode(sample), sample
        assert parts.encode("Hi", sample) == whole.encode("Hi", sample), sample
        for after, as_text in product((False, True), repeat=2):
            written = parts.encode_written(sample, after=after, as_text=as_text)
            assert written == whole.encode_written(sample, after=after, as_text=as_text), sample
        ids = [token.id for token in whole.encode(sample)]
        assert parts.ids_to_tokens(ids) == whole.ids_to_tokens(ids), sample
        assert parts.text_of(ids) == whole.text_of(ids), sample
    assert "hf" not in vars(parts)
    long = " ".join(HARD) * 150
    assert parts.encode(long) == whole.encode(long)
    assert "hf" in vars(parts)


def test_a_piece_that_is_there_twice_is_refused_when_a_text_needs_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(gguf_tokenizers, "WORTH_PARTS", 0)
    values = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": StringTable.of(["a", "b", "a"]),
        "tokenizer.ggml.merges": StringTable.of([]),
    }
    tokenizer = gguf_tokenizer(Metadata(values, "file"), "file")
    assert tokenizer is not None
    assert [token.id for token in tokenizer.encode("b")] == [1]
    with pytest.raises(InputError, match="3 tokens holds 2"):
        tokenizer.encode("ba")


FIRST = {
    "llama": (lambda: sentence_pieces("bpe"), Kind.Q4_K),
    "qwen3": (lambda: merges("qwen2"), Kind.Q8_0),
    "gemma3_text": (lambda: sentence_pieces("bpe"), Kind.Q8_0),
    "gpt2": (lambda: merges("gpt-2"), Kind.Q8_0),
    "bert": (word_pieces, Kind.Q8_0),
}  # fmt: skip
"""Five files as people have them: the vocabulary, and the type of most matrices."""


@pytest.mark.parametrize("name", FIRST)
def test_a_file_answers_the_first_time(name: str, tmp_path: Path):
    make_vocabulary, kind = FIRST[name]
    vocabulary, case = make_vocabulary(), fitting(name)
    config = {key: {"hidden_size": 256, "n_embd": 256, "num_attention_heads": 4, "n_head": 4, "intermediate_size": 512,
                    "n_inner": 512, "head_dim": 64, "vocab_size": vocabulary.size}.get(key, value)
              for key, value in case.config.items()}  # fmt: skip
    folder = make(replace(case, config=config), tmp_path)

    def choose(name: str, array: np.ndarray) -> Kind:
        return gguf_files.mixed(name, 3) if kind == Kind.Q4_K else kind

    file = gguf_files.write(
        folder, tmp_path / "X.gguf", FILES[name], quantise=choose, vocabulary=vocabulary.write
    )
    sentence = "The animal was tired, so it slept"
    answer = ask("run", "--model", str(file), sentence, "--query", "it", "--json")
    assert (answer.code, answer.err) == (0, "")
    document = answer.json
    assert [token["id"] for token in document["tokens"]] == vocabulary.ids(sentence)
    assert document["model"]["quantization"] == ("Q4_K, Q6_K" if kind == Kind.Q4_K else "Q8_0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "of the kind 'rwkv'"),
        ({"tokenizer.ggml.pre": "klingon"}, "pattern 'klingon'"),
        ({"tokenizer.ggml.merges": ["a z"]}, "joins what the vocabulary does not hold"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "2 tokens holds 1"),
        ({"tokenizer.ggml.token_type": np.array([1])}, "2 tokens and 1 types"),
        (
            {
                "tokenizer.ggml.model": "t5",
                "tokenizer.ggml.scores": np.zeros(2),
                "tokenizer.ggml.precompiled_charsmap": np.zeros(3, np.uint8),
            },
            "not one of SentencePiece's",
        ),
        (
            {"tokenizer.ggml.bos_token_id": 99, "tokenizer.ggml.add_bos_token": True},
            "bos_token_id to 99",
        ),
    ],
)
def test_a_vocabulary_that_contradicts_itself(change: dict[str, object], message: str):
    values = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b"],
        **change,
    }
    stored = {
        key: StringTable.of(value) if isinstance(value, list) else value
        for key, value in values.items()
    }
    with pytest.raises((InputError, UnsupportedError), match=message):
        gguf_tokenizer(Metadata(stored, "file"), "file")


@pytest.mark.many
@pytest.mark.parametrize(
    "name",
    [
        *("llama 3.1", "gemma2", "phi3", "gpt2", "bert", "falcon", "gpt_oss", "granitemoe"),
        *(
            "deepseek_v3",
            "qwen3_next",
            "qwen3_5_text",
            "granitemoehybrid",
            "jamba",
            "t5",
            "distilbert",
            "nomic_bert",
        ),
    ],
)
def test_a_file_is_verified_against_transformers(
    name: str, pair: Callable[[str], tuple[Path, Path]]
):
    result = verify(pair(name)[1], IDS)
    assert result.is_within_limits, (result.worst, result.ratio)
    assert result.blocks == "gguf"


def test_blocks_read_wrongly_are_noticed_by_the_reference(
    pair: Callable[[str], tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference's numbers come from the gguf package, not from the code that it judges; where
    that package is missing they do, and the result says so."""

    def wrong(kind: BlockKind, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The numbers of some blocks, a hundredth too large."""
        return right(kind, raw) * np.float32(1.01)

    right = BlockKind.numbers
    file = pair("gpt2")[1]
    monkeypatch.setattr(GgufCheckpoint, "unpack", staticmethod(wrong))
    assert verify(file, IDS).worst > 1e-4
    monkeypatch.setattr(models_verify, "gguf_library", lambda: None)
    alone = verify(file, IDS)
    assert alone.is_within_limits
    assert alone.blocks == "attn"


def test_a_file_tells_its_positions_and_every_kind_of_its_numbers_with_bytes(
    wide: Path, tmp_path: Path
):
    """`models show` names the longest text that the file is made for, and lists each kind of blocks
    with the bytes of all its tensors; a longer text runs, and the run says so."""
    kinds = {"attn_q": Kind.Q4_0, "ffn_down": Kind.Q8_0}

    def choose(name: str, array: np.ndarray) -> Kind:
        """Two kinds of blocks, single numbers for all else."""
        return next((kind for part, kind in kinds.items() if part in name), Kind.F32)

    vocabulary = merges("qwen2")
    file = gguf_files.write(
        wide,
        tmp_path / "mixed.gguf",
        "qwen2",
        quantise=choose,
        vocabulary=vocabulary.write,
        more={"context_length": 24},
    )
    told = ask("models", "show", str(file), "--json").json
    expected: dict[str, int] = {}
    for tensor in gguf.GGUFReader(file).tensors:
        name = tensor.tensor_type.name.replace("F32", "float32")
        expected[name] = expected.get(name, 0) + tensor.n_bytes
    assert told["bytes"] == expected
    assert set(expected) == {"Q4_0", "Q8_0", "float32"}
    shown = ask("models", "show", str(file)).out
    assert "made for 24" in shown
    assert all(kind in shown for kind in expected)
    for count in (24, 25):
        ids = ("--ids", " ".join(["7"] * count))
        warnings = ask("run", *ids, "--model", str(file), "--json").json["warnings"]
        is_told = any("the 24 positions that this model is made for" in text for text in warnings)
        assert is_told == (count > 24)


@pytest.mark.parametrize(
    "make_vocabulary",
    [lambda: merges("qwen2"), lambda: sentence_pieces("bpe"), merged_characters],
    ids=["merges", "scores", "Gemma 4"],
)
def test_a_short_text_builds_the_merges_of_its_own_characters_alone(
    make_vocabulary: Callable[[], Vocabulary],
    wide: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """The table of all merges is never made for it, and what is built joins nothing but parts of
    the text."""
    monkeypatch.setattr(gguf_tokenizers, "WORTH_PARTS", 0)
    vocabulary = make_vocabulary()
    file = gguf_files.write(wide, tmp_path / "v.gguf", "qwen2", vocabulary=vocabulary.write)
    tokenizer = attncli.load(file, note=None).tokenizer
    assert isinstance(tokenizer, PartTokenizer)
    every = len(tokenizer.vocabulary.scheme.every_merge(all_pieces(tokenizer)))

    def refuse(ids: object) -> None:
        """Stand for the table of all merges."""
        pytest.fail("a short text built every merge")

    monkeypatch.setattr(tokenizer.vocabulary.scheme, "every_merge", refuse)
    sample = "the model"
    assert [token.id for token in tokenizer.encode(sample)] == vocabulary.ids(sample)
    built = tokenizer.vocabulary.for_texts([sample], lambda hf, text: hf.encode(text))
    joined = ["".join(merge) for merge in json.loads(built.to_str())["model"]["merges"]]
    written = sample.translate({ord(" "): None})
    letters = {*written, "\u0120", "\u2581"}
    assert 0 < len(joined) < every / 4
    assert all(letters.issuperset(piece) for piece in joined if piece.strip("\n"))


def all_pieces(tokenizer: PartTokenizer) -> dict[str, int]:
    """Every piece of a vocabulary with its id."""
    return {piece: number for number, piece in enumerate(tokenizer.vocabulary.tokens)}


@pytest.mark.parametrize(
    ("kind", "tensor", "what"),
    [
        ("adapter", "blk.0.attn_q.weight.lora_a", "an adapter"),
        ("mmproj", "v.patch_embd.weight", "pictures or sound"),
        ("imatrix", "blk.0.attn_q.weight.in_sum2", "measured for a quantisation"),
        ("model", None, "a vocabulary, and no tensors"),
    ],
)
def test_a_file_that_holds_no_model_is_called_what_it_is(
    kind: str, tensor: str | None, what: str, tmp_path: Path
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_type(kind)
    writer.add_token_list(["a"])
    if tensor is not None:
        writer.add_tensor(tensor, np.ones((1, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedError, match=what):
        open_gguf(tmp_path / "x.gguf")


def test_a_window_that_the_family_has_no_use_for_is_told(tmp_path: Path) -> None:
    folder = make(CASES["llama"], tmp_path / "llama")
    file = gguf_files.write(
        folder, tmp_path / "x.gguf", "llama", more={"attention.sliding_window": 5}
    )
    _, _, notes = open_gguf(file).spec(())
    assert any("'llama.attention.sliding_window'" in str(note) for note in notes)
    plain = gguf_files.write(folder, tmp_path / "y.gguf", "llama")
    assert not open_gguf(plain).spec(())[2]
