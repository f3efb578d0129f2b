"""Text models inside models of text and images: the same numbers as the whole model gives for text
alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_checkpoints import CASES, make

import attncli
from attncli.inputs.checkpoint import Checkpoint
from attncli.models.load import text_model
from attncli.models.transformers_engine import ForeignModel

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
PLAIN = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": 64,
}  # fmt: skip
EYES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
ROTARY = {
    "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 97.0}
}
KINDS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {**PLAIN, "head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 7},
        "vision_config": {**EYES, "model_type": "siglip_vision_model"},
    },
    "llava": {
        "text_config": {**PLAIN, "model_type": "llama"}, "image_token_index": 60,
        "vision_config": {**EYES, "model_type": "clip_vision_model", "projection_dim": 8},
    },
    "smolvlm": {
        "text_config": {**PLAIN, "model_type": "llama"}, "image_token_id": 60,
        "vision_config": {**EYES, "model_type": "smolvlm_vision"},
    },
    "qwen2_vl": {
        "text_config": {**PLAIN, **ROTARY},
        "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "patch_size": 4},
    },
    "qwen2_5_vl": {
        "text_config": {**PLAIN, **ROTARY},
        "vision_config": {"depth": 1, "hidden_size": 16, "out_hidden_size": 32, "num_heads": 2, "patch_size": 4,
                          "intermediate_size": 16},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda kind: container(kind, tmp_path_factory.mktemp("container")))


def container(kind: str, folder: Path) -> Path:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(kind, **KINDS[kind])
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(0.3 * torch.randn(weight.shape))
    model.save_pretrained(folder)
    return folder


def expected(folder: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    import transformers

    theirs = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, attn_implementation="eager", dtype=dtype
    )
    with torch.no_grad():
        out = theirs.eval()(input_ids=torch.tensor([IDS]), output_attentions=True)
    return [one[0] for one in out.attentions]


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_the_whole_model(kind: str, folder_of: Callable) -> None:
    model = attncli.load(folder_of(kind), dtype="float32")
    assert isinstance(model, ForeignModel) == kind.startswith("qwen")
    assert f"of a {kind}; " in model.warnings[0]
    traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS)))
    for trace, weights in zip(traces, expected(folder_of(kind), torch.float32), strict=True):
        assert (
            np.abs(np.asarray(model.backend.numpy(trace.stages["weights"])) - weights.numpy()).max()
            < 1e-4
        )
    assert max(float(trace.stages["weights"].max()) for trace in traces) > 0.5


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_both_ways_of_naming(prefix: str, folder_of: Callable, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder_of("llava") / "model.safetensors")
    save_file(
        {name.replace("language_model.model.", prefix): tensor for name, tensor in tensors.items()},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    (tmp_path / "config.json").write_text((folder_of("llava") / "config.json").read_text())
    one, other = (
        attncli.load(folder, dtype="float64") for folder in (folder_of("llava"), tmp_path)
    )
    for a, b in zip(
        *(list(model.trace(model.tokenizer.ids_to_tokens(IDS))) for model in (one, other)),
        strict=True,
    ):
        assert np.array_equal(a.stages["weights"], b.stages["weights"])


def test_what_the_text_s_config_leaves_to_its_defaults_is_filled_in(
    folder_of: Callable, tmp_path: Path
) -> None:
    told = json.loads((folder_of("llava") / "config.json").read_text())
    del told["text_config"]["num_attention_heads"]  # 32 by default
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "model.safetensors").hardlink_to(folder_of("llava") / "model.safetensors")
    with Checkpoint.open(tmp_path) as checkpoint:
        assert text_model(checkpoint).config["num_attention_heads"] == 32


def test_a_head_that_only_the_outer_config_ties(folder_of: Callable, tmp_path: Path) -> None:
    told = json.loads((folder_of("gemma3") / "config.json").read_text())
    told["text_config"]["tie_word_embeddings"] = False
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "model.safetensors").hardlink_to(folder_of("gemma3") / "model.safetensors")
    one, other = (
        attncli.load(folder, dtype="float64") for folder in (folder_of("gemma3"), tmp_path)
    )
    hidden = np.ones((1, 32))
    assert np.array_equal(one.logits(hidden), other.logits(hidden))


def test_a_model_of_text_is_itself(tmp_path: Path) -> None:
    with Checkpoint.open(make(CASES["llama"], tmp_path)) as checkpoint:
        assert text_model(checkpoint) is checkpoint
