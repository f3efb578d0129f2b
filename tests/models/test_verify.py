"""`verify`: passes where the numbers agree, fails when a knob is turned, in float64 or in float32
alone.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tiny_checkpoints import CASES, Case, make
from tiny_sizes import BARE, LLAMA, PLAIN

from attncli.errors import InputError, UnsupportedError
from attncli.extras import install_command
from attncli.models import estimate, transformers_model, verify
from attncli.models import verify as verify_module
from attncli.models.model import Model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["llama"], tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_checkpoint_that_agrees(llama: Path, backend: str) -> None:
    found = verify.verify(llama, IDS, backend=backend)
    assert found.is_within_limits
    assert (found.tokens, found.backend, len(found.layers)) == (len(IDS), backend, 3)
    assert 0 < found.worst < 1e-12
    assert 0 < found.ratio < 0.5
    assert [
        (layer.side, layer.layer, len(layer.weights), layer.cross) for layer in found.layers
    ] == [("self", at, 6, ()) for at in range(3)]


def test_float32_throughout_is_as_far_as_the_reference(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "WIDE_UP_TO", 0.0)
    found = verify.verify(llama, IDS)
    assert found.is_within_limits
    assert 0.5 < found.ratio < 2


VECTORS = {
    "hidden_size_per_layer_input": 6,
    "vocab_size_per_layer_input": 61,
    "num_kv_shared_layers": 0,
}
BY_TRANSFORMERS = {
    "zamba2": Case(
        "zamba2",
        {**BARE, "num_hidden_layers": 2, "layers_block_type": ["mamba", "hybrid"], "num_mem_blocks": 1,
         "mamba_ngroups": 1, "mamba_d_state": 8, "n_mamba_heads": 2, "mamba_expand": 2, "num_attention_heads": 6,
         "num_key_value_heads": 6},
    ),
    "arcee": Case("arcee", {**PLAIN, "hidden_act": "relu2"}),
    "gemma3n_text": Case("gemma3n_text", {**LLAMA, **VECTORS, "laurel_rank": 4, "num_hidden_layers": 2}),
    "gemma4_text": Case(
        "gemma4_text",
        {**LLAMA, **VECTORS, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    ),
}  # fmt: skip
"""Families that transformers runs."""
FIRST = {case.model_type: case for case in reversed(CASES.values())} | BY_TRANSFORMERS


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=() if name == "zamba2" else pytest.mark.thorough) for name in FIRST],
)
def test_every_family_is_verified(family: str, tmp_path: Path) -> None:
    """Those that transformers runs, too: its own attention beside ours within its model."""
    found = verify.verify(make(FIRST[family], tmp_path), IDS)
    assert found.is_within_limits
    assert found.worst < 1e-12
    assert sum(bool(layer.weights) for layer in found.layers) > 0


def test_both_sides_of_an_encoder_decoder(tmp_path: Path) -> None:
    found = verify.verify(make(CASES["bart"], tmp_path), IDS, target=(2, 9, 40))
    assert found.is_within_limits
    assert [(layer.side, len(layer.weights), len(layer.cross)) for layer in found.layers] == [
        ("encoder", 3, 0)
    ] * 2 + [("decoder", 5, 5)] * 3


def test_pickled_weights_are_verified_as_the_same_ones_are(llama: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(llama / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    one, other = (verify.verify(folder, IDS) for folder in (llama, tmp_path))
    assert other.is_within_limits
    assert [layer.relative for layer in other.layers] == [layer.relative for layer in one.layers]


def test_a_decoder_that_reads_random_states(tmp_path: Path) -> None:
    found = verify.verify(make(CASES["whisper"], tmp_path), IDS)
    assert found.is_within_limits
    assert [(layer.side, len(layer.weights), len(layer.cross)) for layer in found.layers] == [
        ("decoder", 5, 5)
    ] * 3


def scaled(model: Model, factor: float, layer: int) -> Model:
    blocks = list(model.spec.blocks)
    attention = blocks[layer].attention
    blocks[layer] = replace(
        blocks[layer], attention=replace(attention, scale=attention.scale * factor)
    )
    return replace(model, spec=replace(model.spec, blocks=tuple(blocks)))


def test_a_turned_knob_fails_from_its_layer_on(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = verify.load
    monkeypatch.setattr(
        verify, "load", lambda *given, **options: scaled(real(*given, **options), 1.0001, 1)
    )
    found = verify.verify(llama, IDS)
    assert not found.is_within_limits
    assert [layer.relative > 1e-10 for layer in found.layers] == [False, True, True]
    assert found.ratio > 2


def test_float32_alone_can_fail(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = verify.load

    def off_in_float32(*given: Any, **options: Any) -> Model:
        model = real(*given, **options)
        return scaled(model, 1.0001, 0) if options["dtype"] == "float32" else model

    monkeypatch.setattr(verify, "load", off_in_float32)
    found = verify.verify(llama, IDS)
    assert found.worst < 1e-12
    assert found.ratio > 2
    assert not found.is_within_limits


@pytest.mark.parametrize(
    ("found", "says"),
    [(None, "transformers is not installed"), ("4.57.6", "transformers 4.57.6 is installed")],
)
def test_without_a_transformers_that_serves(
    llama: Path, monkeypatch: pytest.MonkeyPatch, found: str | None, says: str
) -> None:
    def version(name: str) -> str:
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(UnsupportedError, match=says) as error:
        verify.verify(llama, IDS)
    assert error.value.hint == install_command("transformers")


@pytest.mark.parametrize(
    ("version_text", "serves"),
    [
        *(("5.23.0", True), ("5.23rc1", True), ("5.23.0.dev0", True), ("6.0.0a1", True)),
        *(("5.22.0rc1", False), ("5.9.dev0", False)),
    ],
)
def test_a_transformers_before_its_release_counts_as_that_release(
    monkeypatch: pytest.MonkeyPatch, version_text: str, serves: bool
) -> None:
    pytest.importorskip("transformers")  # imports it, which asks for versions of its own
    monkeypatch.setattr("importlib.metadata.version", lambda name: version_text)
    if serves:
        assert transformers_model.import_transformers().__name__ == "transformers"
    else:
        with pytest.raises(UnsupportedError, match="is installed"):
            transformers_model.import_transformers()


def test_the_oldest_transformers_is_the_one_that_is_asked_for() -> None:
    wanted = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["transformers"]
    assert wanted == [f"transformers>={'.'.join(map(str, transformers_model.OLDEST_VERSION))}"]


def test_a_target_for_one_side(llama: Path) -> None:
    with pytest.raises(UnsupportedError, match="takes one text"):
        verify.verify(llama, IDS, target=IDS)


def test_a_file_that_shrinks_does_not_end_the_process(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped(*arguments: Any, **named: Any) -> None:
        raise AssertionError("this maps the file")

    monkeypatch.setattr("transformers.modeling_utils.safe_open", mapped)
    assert verify.verify(llama, [7, 3, 50]).is_within_limits
    folder = tmp_path / "cut"
    shutil.copytree(llama, folder)
    os.truncate(folder / "model.safetensors", 5000)
    with pytest.raises(InputError, match="5,000"):
        verify_module.reference(folder, [1, 2])


def test_a_folder_whose_name_is_no_text(llama: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    shutil.copytree(llama, folder)
    assert verify.verify(folder, [7, 3, 50]).is_within_limits
