"""Checkpoints that are nearly what a family's are: held by another module, or told apart by a hint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from safetensors.numpy import load_file, save_file
from tiny_checkpoints import CASES, make

ASKED = ("run", "--ids", "7 3 50", "--json", "--model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(CASES["llama"], tmp_path)


def change_config(folder: Path, **values: Any) -> None:
    """Set keys of a config.json; None takes one away."""
    place = folder / "config.json"
    config = json.loads(place.read_text()) | values
    place.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def test_a_model_that_a_training_module_holds_is_read(folder: Path) -> None:
    whole = ask(*ASKED, str(folder)).json
    place = folder / "model.safetensors"
    save_file({f"model.{name}": array for name, array in load_file(place).items()}, place)
    held = ask(*ASKED, str(folder)).json
    assert held["layers"] == whole["layers"]
    assert held["warnings"] == whole["warnings"]


def test_shards_without_their_index_are_not_renamed(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    told = ask(*ASKED[:-2], "--model", str(folder)).err
    assert "shards, without the index of what lies in which" in told
    assert "expected: model.safetensors.index.json beside all 2 of them" in told
    assert "try: mv" not in told
    (folder / "model-00001-of-00002.safetensors").rename(
        folder / "model-00001-of-00001.safetensors"
    )
    assert "try: mv" in ask(*ASKED[:-2], "--model", str(folder)).err


def test_a_family_by_its_class_or_in_capitals_is_told(folder: Path) -> None:
    change_config(folder, model_type="LLaMA")
    assert "llama" in ask(*ASKED[:-2], "--model", str(folder)).err.splitlines()[2]
    change_config(folder, model_type=None, architectures=["LlamaForCausalLM"])
    refused = ask(*ASKED[:-2], "--model", str(folder))
    assert refused.code == 3
    assert 'expected: "model_type": "llama", as its architectures tell' in refused.err
    change_config(folder, model_type=None, architectures=["NoSuchThing"])
    assert "expected: a model_type" in ask(*ASKED[:-2], "--model", str(folder)).err
