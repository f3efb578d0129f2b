"""`pytorch_model.bin` and its shards: the same model as from safetensors, and nothing a pickle
names is run.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import AttnError, InputError
from attncli.inputs.checkpoint import NOTE, PICKLED_INDEX, PICKLED_SINGLE, Checkpoint

IDS = (7, 3, 50, 11, 28)


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["bert for masked words"], tmp_path_factory.mktemp("safe"))


@pytest.fixture
def bare(safe: Path, tmp_path: Path) -> Path:
    """The folder without its weights."""
    shutil.copy(safe / "config.json", tmp_path)
    return tmp_path


def weights(folder: Path, **how: Any) -> np.ndarray:
    model = attncli.load(folder, dtype="float64", **how)
    traces = model.trace(model.tokenizer.ids_to_tokens(IDS))
    return np.stack([model.backend.numpy(trace.stages["weights"]) for trace in traces])


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("zipped", [True, False])
def test_the_same_numbers_as_from_safetensors(
    safe: Path, bare: Path, zipped: bool, library: str
) -> None:
    """Files of both of torch's formats, with the buffers and old names that such files have."""
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in load_file(safe / "model.safetensors").items()}  # fmt: skip
    old["bert.embeddings.position_ids"] = torch.arange(29)[None]
    torch.save(old, bare / PICKLED_SINGLE, _use_new_zipfile_serialization=zipped)
    assert np.array_equal(weights(bare, backend=library), weights(safe, backend=library))
    assert attncli.load(bare).warnings == (NOTE,)


def test_shards_and_low_precision(safe: Path, bare: Path) -> None:
    tensors = {
        name: tensor.bfloat16() for name, tensor in load_file(safe / "model.safetensors").items()
    }
    names = sorted(tensors)
    parts = {
        "pytorch_model-00001-of-00002.bin": names[::2],
        "pytorch_model-00002-of-00002.bin": names[1::2],
    }
    for file, held in parts.items():
        torch.save({name: tensors[name] for name in held}, bare / file)
    places = {name: file for file, held in parts.items() for name in held}
    (bare / PICKLED_INDEX).write_text(json.dumps({"weight_map": places}))
    whole = bare / "whole"
    whole.mkdir()
    shutil.copy(bare / "config.json", whole)
    torch.save(tensors, whole / PICKLED_SINGLE)
    assert np.array_equal(weights(bare), weights(whole))
    with Checkpoint.open(bare) as checkpoint:
        assert {info.dtype for info in checkpoint.names().values()} == {"bfloat16"}
        name = "bert.embeddings.word_embeddings.weight"
        rows = checkpoint.read_rows(name, [5, 0, 5], "float32")
        assert np.array_equal(rows, tensors[name].float().numpy()[[5, 0, 5]])
        with pytest.raises(InputError, match="no rows 61"):
            checkpoint.read_rows(name, [61])
    (bare / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(InputError, match=r"00002\.bin' is missing"):
        attncli.load(bare)
    (bare / PICKLED_INDEX).write_text(json.dumps({"weight_map": {"a": "../elsewhere.bin"}}))
    with pytest.raises(InputError, match=r"names '\.\./elsewhere\.bin'"):
        attncli.load(bare)


class Runs:
    """What unpickles by running a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_nothing_that_the_file_names_is_run(bare: Path) -> None:
    torch.save({"a": Runs(bare / "it ran")}, bare / PICKLED_SINGLE)
    with pytest.raises(
        InputError, match=f"this torch file names '{os.name}.system', which is not run"
    ):
        attncli.load(bare)
    assert not (bare / "it ran").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02", b"not a pickle"])
def test_damaged_files(content: bytes, bare: Path) -> None:
    (bare / PICKLED_SINGLE).write_bytes(content)
    with pytest.raises(AttnError) as error:
        attncli.load(bare)
    assert error.value.exit_code in (3, 4)


def test_numbers_that_are_not_finite(safe: Path, bare: Path) -> None:
    tensors = load_file(safe / "model.safetensors")
    tensors["bert.encoder.layer.1.attention.self.query.weight"][0, 0] = torch.nan
    torch.save(tensors, bare / PICKLED_SINGLE)
    with pytest.raises(InputError, match="not finite"):
        weights(bare)


def test_safetensors_beside_a_pickle_are_what_counts(safe: Path, tmp_path: Path) -> None:
    shutil.copytree(safe, tmp_path, dirs_exist_ok=True)
    os.mkfifo(tmp_path / PICKLED_SINGLE)
    assert attncli.load(tmp_path).warnings == ()
