"""Which files a checkpoint consists of: shard indexes, links, pipes and other formats."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint

A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
ONE = np.arange(6, dtype=np.float32)


def folder_with(folder: Path, shards: dict[str, dict[str, np.ndarray]], weight_map: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    for name, tensors in shards.items():
        safetensors.numpy.save_file(tensors, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def refused(folder: Path, says: str, kind: type[AttnError] = InputError) -> None:
    with pytest.raises(kind) as error:
        Checkpoint.open(folder)
    assert (
        says in f"{error.value.what} {error.value.where} {error.value.expected} {error.value.hint}"
    )


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "/etc/passwd",
        "sub/x.safetensors",
        "..",
        "a\\b.safetensors",
        "c:x.safetensors",
        "x\0.safetensors",
        "x.bin",
        f"{'x' * 300}.safetensors",
        "\x1b[31m.safetensors",
        "x\n.safetensors",
        7,
    ],
)
def test_an_index_may_only_name_files_beside_it(tmp_path: Path, name: object) -> None:
    safetensors.numpy.save_file({"a": ONE}, tmp_path / "secret.safetensors")
    refused(folder_with(tmp_path / "x", {}, {"a": name}), "names")


def test_an_index_holds_no_half_characters(tmp_path: Path) -> None:
    refused(folder_with(tmp_path, {}, {"a": "\ud800.safetensors"}), "$.weight_map.a")


@pytest.mark.parametrize("weight_map", [None, {}, [], "a"])
def test_an_index_without_a_map(tmp_path: Path, weight_map: object) -> None:
    refused(folder_with(tmp_path / "x", {}, weight_map), "weight_map")


def test_a_missing_shard_is_named_with_what_lies_in_it(tmp_path: Path) -> None:
    refused(
        folder_with(tmp_path / "x", {A: {"a": ONE}}, {"a": A, "b": B, "c": B}),
        f"{B!r} is missing; 2 tensors",
    )


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    refused(
        folder_with(tmp_path / "1", {A: {"a": ONE}, B: {"b": ONE}}, {"a": A, "b": B, "c": A}), "'c'"
    )
    refused(
        folder_with(tmp_path / "2", {A: {"a": ONE}, B: {"b": ONE, "c": ONE}}, {"a": A, "b": B}),
        "does not list",
    )
    refused(
        folder_with(tmp_path / "3", {A: {"a": ONE}, B: {"a": ONE, "b": ONE}}, {"a": A, "b": B}),
        "two shards",
    )
    refused(folder_with(tmp_path / "4", {A: {"a": ONE}, B: {"b": ONE}}, {"a": B, "b": A}), "says")


def test_links_inside_the_folder_work_and_links_out_of_it_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    safetensors.numpy.save_file({"a": ONE}, folder / "real.safetensors")
    (folder / "model.safetensors").symlink_to("real.safetensors")
    assert np.array_equal(Checkpoint.open(folder).read("a"), ONE)
    (folder / "model.safetensors").unlink()
    (folder / "real.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to("../elsewhere.safetensors")
    refused(folder, "leaves its folder")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/etc/passwd")
    refused(folder, "leaves its folder")


def test_links_in_a_circle(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "x", {}, {})
    (folder / "model.safetensors").symlink_to("model.safetensors")
    refused(folder, "link")


def test_a_hub_caches_own_links_work(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--a--b"
    snapshot = repository / "snapshots" / "abc"
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (repository / "blobs" / "1").write_text("{}")
    safetensors.numpy.save_file({"a": ONE}, repository / "blobs" / "2")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    (snapshot / "model.safetensors").symlink_to("../../blobs/2")
    assert np.array_equal(Checkpoint.open(snapshot).read("a"), ONE)
    shared = tmp_path / "hub" / "blobs" / "ab"
    shared.mkdir(parents=True)
    (repository / "blobs" / "2").rename(shared / "2")
    (repository / "blobs" / "2").symlink_to("../../blobs/ab/2")
    (tmp_path / "link").symlink_to(snapshot)
    assert np.array_equal(Checkpoint.open(tmp_path / "link").read("a"), ONE)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../refs")
    refused(snapshot, "leaves its folder")


def test_pipes_and_folders_are_not_waited_for(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "x", {}, {})
    os.mkfifo(folder / "model.safetensors")
    refused(folder, "pipe")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    refused(folder, "folder")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("pytorch_model.bin", InputError, "state_dict"),
        ("flax_model.msgpack", UnsupportedError, "M.from_pretrained('FOLDER', from_flax=True)"),
        ("model.gguf", UnsupportedError, "gguf"),
        ("tf_model.h5", UnsupportedError, "transformers below version 5"),
        ("model.pth", UnsupportedError, "pytorch_model.bin"),
        ("adapter_model.safetensors", UnsupportedError, "adapter"),
        ("other.safetensors", InputError, "other.safetensors"),
        ("readme.md", InputError, "no weights"),
    ],
)
def test_other_formats_are_named(
    tmp_path: Path, name: str, kind: type[AttnError], says: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"x")
    refused(tmp_path, says, kind)


def test_eight_bit_floats_are_refused_by_name(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"abcd")
    refused(tmp_path, "F8_E4M3", UnsupportedError)


@pytest.mark.parametrize(
    "name", ["qweight", "SCB", "weight.absmax", "weight_packed", "weight_scale_inv"]
)
def test_quantised_weights_are_refused_by_name_whatever_the_config_says(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    safetensors.numpy.save_file(
        {"layers.0.q": ONE, f"layers.0.k.{name}": ONE}, tmp_path / "model.safetensors"
    )
    refused(tmp_path, f"layers.0.k.{name}", UnsupportedError)


def test_a_truncated_file_is_refused_when_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    safetensors.numpy.save_file({"a": ONE}, tmp_path / "model.safetensors")
    os.truncate(tmp_path / "model.safetensors", (tmp_path / "model.safetensors").stat().st_size - 1)
    refused(tmp_path, "file")


def test_a_folder_beside_it_that_begins_alike_is_another_folder(tmp_path: Path) -> None:
    beside = tmp_path / "model-other"
    beside.mkdir()
    safetensors.numpy.save_file({"a": ONE}, beside / "a.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").symlink_to("../model-other/a.safetensors")
    refused(folder, "leaves its folder")


@pytest.mark.parametrize("name", ["models-a", "models", "dataset--a", "a"])
def test_only_a_hub_caches_own_folders_link_to_their_blobs(name: str, tmp_path: Path) -> None:
    snapshot = tmp_path / name / "snapshots" / "abc"
    blobs = tmp_path / name / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    refused(snapshot, "leaves its folder")


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_a_state_dict_under_a_key_is_told_by_it(tmp_path: Path, key: str) -> None:
    torch = pytest.importorskip("torch", reason="no torch here (a Python package)")
    backend = pytest.importorskip("attncli.arrays.torch_backend")
    tensors = {f"W{name}.weight": torch.eye(4) for name in "QKV"}
    path = tmp_path / "w.pt"
    torch.save({"epoch": 3, key: tensors, "ema": tensors, "optimizer": {"state": {}}}, path)
    with pytest.raises(InputError, match="something other than named tensors") as refusal:
        backend.read_state_dict(str(path), 10**6)
    assert refusal.value.hint == f"torch.save(torch.load(file)['{key}'], file)"
