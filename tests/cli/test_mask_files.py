"""A file or folder given as --mask that is none is called what it is, with the option that takes
it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asking import ask

from attncli.inputs.tensors import write_tensors

COMMANDS = [("run", "a b", "--mask"), ("mask",)]
GGUF = b"GGUF" + (3).to_bytes(4, "little") + b"\0" * 60


def refused(command: tuple[str, ...], place: Path) -> list[str]:
    """The lines of the error that a command gives for this path as a mask."""
    answer = ask(*command, str(place))
    assert answer.code == 3
    assert f"where: {place}" in answer.err.splitlines()
    return answer.err.splitlines()


@pytest.mark.parametrize("command", COMMANDS, ids=["run", "mask"])
def test_a_model_as_a_mask_is_told_its_option(command: tuple[str, ...], tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(GGUF)
    told = refused(command, gguf)
    assert told[0] == "error: this is a GGUF file: a whole model with its tokenizer"
    assert told[-1] == f"try: attn run TEXT --model {gguf}"
    layer = tmp_path / "layer.safetensors"
    write_tensors(layer, {f"{name}.weight": np.eye(4) for name in "qkv"}, {})
    assert refused(command, layer)[-1] == f"try: attn run TEXT --weights {layer}"
    state = tmp_path / "layer.pt"
    state.write_bytes(b"PK")
    assert refused(command, state)[-1] == f"try: attn run TEXT --weights {state}"


@pytest.mark.parametrize("command", COMMANDS, ids=["run", "mask"])
def test_a_folder_as_a_mask(command: tuple[str, ...], tmp_path: Path) -> None:
    assert refused(command, tmp_path)[0] == "error: this is a folder"
    (tmp_path / "adapter_config.json").write_text("{}")
    assert refused(command, tmp_path)[-1].endswith(f"--model MODEL --adapter {tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    assert refused(command, tmp_path)[-1] == f"try: attn run TEXT --model {tmp_path}"
    weights = tmp_path / "model.safetensors"
    write_tensors(weights, {f"{name}.weight": np.eye(4) for name in "qkv"}, {})
    assert refused(command, weights)[-1] == f"try: attn run TEXT --model {tmp_path}"


def test_files_that_are_not_there_and_words(tmp_path: Path) -> None:
    assert refused(("mask",), tmp_path / "no.gguf")[0] == "error: there is no such file"
    answer = ask("mask", "causl")
    assert answer.code == 2
    assert "did you mean 'causal'?" in answer.err


def test_a_mask_is_read_from_safetensors_and_kinds_go_before_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("causal").mkdir()
    assert ask("mask", "causal", "-n", "3", "--json").json["masks"][0]["spec"] == "causal"
    visible = np.tri(3)
    write_tensors(Path("seen.safetensors"), {"mask": visible, "other": visible}, {})
    Path("seen.json").write_text(json.dumps(visible.tolist()))
    rows = [
        ask("mask", name, "--json").json["masks"][0] for name in ("seen.safetensors", "seen.json")
    ]
    assert rows[0]["map"] == rows[1]["map"]


def test_masks_joined_by_an_ampersand_are_their_intersection(tmp_path: Path) -> None:
    of_two = ("--mask", "causal", "--mask", "window:2,0")
    apart = ask("run", "a b c d", *of_two, "--json").json
    for spec in ("causal&window:2,0", "causal & window:2,0"):
        assert ask("run", "a b c d", "--mask", spec, "--json").json == apart
    assert apart != ask("run", "a b c d", "--mask", "causal", "--json").json
    assert ask("explain", "mask", "a b c d", "--mask", "causal&window:2,0").code == 0
    named = tmp_path / "causal&all.csv"
    named.write_text("1,0\n1,1\n")
    assert ask("run", "a b", "--mask", str(named)).code == 0
    assert "unknown mask ''" in ask("run", "a b", "--mask", "causal&").err
