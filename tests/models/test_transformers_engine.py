"""Families without a file here, through transformers: the same numbers as its own attention gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_checkpoints import CASES, LLAMA, PLAIN, Case, make

import attncli
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.mechanism.mask import Causal, Everywhere, Window
from attncli.models import load, transformers_library
from attncli.models.checkpoint_tokenizers import IdsOnly
from attncli.models.transformers_calls import Call, _in_place_of_attention, _outside
from attncli.models.transformers_engine import ForeignModel, load_foreign
from attncli.models.transformers_reference import reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)

FOREIGN = {
    "olmo": Case("olmo", {key: value for key, value in PLAIN.items() if key != "rms_norm_eps"}),
    "granite": Case("granite", {**PLAIN, "attention_multiplier": 0.37}),
    "starcoder2": Case("starcoder2", {**PLAIN, "sliding_window": 5}),
    "glm": Case("glm", {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 97.0, "partial_rotary_factor": 0.4}}),
    "albert": Case(
        "albert",
        {"vocab_size": 61, "embedding_size": 14, "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 3,
         "intermediate_size": 37, "max_position_embeddings": 29},
    ),
    "gpt_oss": Case(
        "gpt_oss",
        {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
         "rope_parameters": {"rope_type": "default", "rope_theta": 97.0}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make({**CASES, **FOREIGN}[name], tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(autouse=True)
def _foreign(without_files: Callable[..., None]) -> None:
    without_files(*FOREIGN, "pegasus")


@pytest.mark.parametrize("name", FOREIGN)
def test_as_transformers_computes_it(name: str, folder_of: Callable) -> None:
    folder = folder_of(name)
    model = attncli.load(folder, dtype="float32")
    assert isinstance(model, ForeignModel)
    assert model.computing(len(IDS)) is model.backend
    assert "run by transformers" in model.warnings[0]
    (side,) = reference(folder, IDS, dtype="float32")
    traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS)))
    assert len(traces) == len(side.weights)
    for trace, weights, before, after in zip(traces, side.weights, side.hidden, side.hidden[1:], strict=False):
        found = trace.stages["weights"].numpy()
        assert np.abs(found - weights).max() < 1e-5
        assert np.abs(trace.before.numpy() - before).max() < 1e-4
        assert np.abs(trace.after.numpy() - after).max() < 1e-3
    assert max(float(weights.max()) for weights in side.weights) > 0.5
    if name == "gpt_oss":
        assert found.sum(-1).mean() < 0.99  # its sinks take their share


def test_the_same_numbers_as_the_native_run(folder_of: Callable) -> None:
    folder = folder_of("mistral")
    native = attncli.load(folder, backend="torch")
    foreign = load_foreign(Checkpoint.open(folder), "mistral", "mistral", IdsOnly(""), device=None, dtype="float32")
    tokens = native.tokenizer.ids_to_tokens(IDS)
    for ours, theirs in zip(native.trace(tokens), foreign.trace(tokens), strict=True):
        for stage in ("q", "k", "v", "scaled", "weights", "mixed"):
            assert np.abs(ours.stages[stage].numpy() - theirs.stages[stage].numpy()).max() < 1e-4
        assert (ours.stages["masked"] == -np.inf).equal(theirs.stages["masked"] == -np.inf)


def test_a_what_if_reaches_the_model(folder_of: Callable) -> None:
    model = attncli.load(folder_of("olmo"))
    assert [block.attention.mask for block in model.spec.blocks] == [Causal()] * 3
    tokens = model.tokenizer.ids_to_tokens(IDS)
    blocks = tuple(
        replace(block, attention=replace(block.attention, mask=Window(1, 0), scale=0.1)) for block in model.spec.blocks
    )
    other = replace(model, spec=replace(model.spec, blocks=blocks))
    (plain,), (changed,) = (list(one.trace(tokens, layers=[2])) for one in (model, other))
    assert (changed.stages["weights"][0] > 0).sum(-1).tolist() == [1] + [2] * (len(IDS) - 1)
    assert not np.allclose(plain.stages["q"].numpy(), changed.stages["q"].numpy())  # earlier layers changed, too


def test_row_blocks_and_heads(folder_of: Callable) -> None:
    model = attncli.load(folder_of("starcoder2"))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    whole = list(model.trace(tokens))
    seen = []
    parts = list(model.trace(tokens, rows=4, heads=[1, 5], see=lambda layer, kind, block: seen.append((layer, kind))))
    assert list(dict.fromkeys(seen)) == [(layer, "self") for layer in range(3)]
    assert len(seen) > 2 * 3  # more than one block of each kv head
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(one.stages["mixed"][[1, 5]].numpy(), other.stages["mixed"].numpy(), atol=1e-5)


def test_an_encoder_has_no_mask(folder_of: Callable) -> None:
    model = attncli.load(folder_of("albert"))
    assert model.spec.blocks[0].attention.mask == Everywhere()
    with pytest.raises(UnsupportedError, match="keeps their weights to itself"):
        model.store.layer(model.backend, 0)
    with pytest.raises(UnsupportedError, match="kept keys"):
        next(model.trace(model.tokenizer.ids_to_tokens(IDS), past={}))


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (Case("mamba", {"vocab_size": 61, "hidden_size": 30, "num_hidden_layers": 1}), "does not go through transformers' interface"),
        (Case("diffllama", PLAIN), "6 times in 3 layers"),
        (Case("recurrent_gemma", {**PLAIN, "lru_width": 36, "attention_window_size": 5}), "1 times in 3 layers"),
        (Case("pegasus", {"vocab_size": 61, "d_model": 30, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 3,
                          "decoder_attention_heads": 3, "encoder_ffn_dim": 7, "decoder_ffn_dim": 7}), "an encoder and a decoder"),
    ],
)  # fmt: skip
def test_what_the_engine_cannot_run(case: Case, told: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=told):
        attncli.load(make(case, tmp_path))


def test_attention_with_something_of_its_own_is_refused() -> None:
    def answer(layer: int, call: Call) -> torch.Tensor:
        return call.q

    one = torch.ones((1, 2, 3, 4))
    with _in_place_of_attention(answer):
        assert _outside(None, one, one, one, None, position_ids=one, sliding_window=5)[0].shape == (1, 3, 2, 4)
        with pytest.raises(UnsupportedError, match="'position_bias'"):
            _outside(None, one, one, one, None, position_bias=one)


def test_weights_of_another_family_are_not_filled_up(folder_of: Callable, tmp_path: Path) -> None:
    shutil.copytree(folder_of("mistral"), tmp_path / "posing")
    told = json.loads((tmp_path / "posing" / "config.json").read_text())
    (tmp_path / "posing" / "config.json").write_text(json.dumps({**told, "model_type": "glm"}))
    with pytest.raises(InputError, match="is missing"):
        attncli.load(tmp_path / "posing")


def test_a_family_that_nobody_knows(folder_of: Callable, tmp_path: Path) -> None:
    shutil.copytree(folder_of("mistral"), tmp_path / "unknown")
    (tmp_path / "unknown" / "config.json").write_text(json.dumps({"model_type": "nobody"}))
    with pytest.raises(UnsupportedError, match="'nobody'") as error:
        attncli.load(tmp_path / "unknown")
    assert len(error.value.what) < 250
    assert "\n" not in error.value.what
    assert "llama" in error.value.expected


def test_options_that_transformers_has_no_use_for(folder_of: Callable) -> None:
    with pytest.raises(UnsupportedError, match="numpy"):
        attncli.load(folder_of("olmo"), backend="numpy")
    with pytest.raises(UnsupportedError, match="to ignore"):
        attncli.load(folder_of("olmo"), ignore=("clip_qkv",))


def test_without_transformers_the_families_are_listed(folder_of: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    monkeypatch.setattr(transformers_library, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="'olmo'") as error:
        attncli.load(folder_of("olmo"))
    assert "llama" in error.value.expected
    assert "attn[transformers]" in error.value.hint
    with Checkpoint.open(folder_of("olmo")) as checkpoint:
        assert load.foreign_family(checkpoint) is None
