"""Places one step off: a folder above or below a model's, an adapter's, a misspelt name; each is
told what to give instead."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from attncli.errors import AttnError, InputError
from attncli.inputs import hub
from attncli.inputs.adapter import AdapterRequest, merge_adapters
from attncli.inputs.checkpoint import Checkpoint, _no_weights, no_family
from attncli.inputs.hub import resolve

OFFLINE = {"HF_HUB_OFFLINE": "1"}


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


def part_of_a_model(folder: Path) -> Path:
    """The folder of the pooling of a model of sentence-transformers, as that writes it."""
    (model(folder) / "modules.json").write_text("[]")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 30}')
    return folder / "1_Pooling"


def adapter(folder: Path) -> Path:
    folder.mkdir()
    base = {"base_model_name_or_path": "a base's name", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(base))
    return folder


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda top: model(top / "0_Transformer").parent, ["--model", "0_Transformer"]),
        (lambda top: model(top / "snapshots" / "abc").parents[1], ["--model", "snapshots/abc"]),
        (lambda top: model(top / "m") / "1_Pooling", ["--model", "m"]),
        (lambda top: adapter(top / "it's"), ["--model", "a base's name", "--adapter", "it's"]),
    ],
    ids=["below", "hub cache", "above", "adapter"],
)
def test_a_folder_one_step_off_is_told_the_right_one(
    make: Callable[[Path], Path], expected: list[str], tmp_path: Path
) -> None:
    folder = make(tmp_path / "top" if "it's" not in expected[-1] else tmp_path)
    folder.mkdir(exist_ok=True)
    with pytest.raises(InputError) as error:
        Checkpoint.describe(folder)
    given = shlex.split(str(error.value.hint))
    assert [Path(word).name for word in given] == [Path(word).name for word in expected]
    if "--adapter" not in given:
        assert Checkpoint.describe(Path(given[1])).config["model_type"] == "bert"


def test_a_part_of_a_model_is_told_the_whole(tmp_path: Path) -> None:
    folder = part_of_a_model(tmp_path / "m")
    for error in (no_family(folder), _no_weights(folder)):
        assert error.hint == f"--model {tmp_path / 'm'}"
    (tmp_path / "m" / "modules.json").unlink()
    assert not no_family(folder).hint


def test_a_folder_of_nothing_has_no_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json") as error:
        Checkpoint.describe(tmp_path)
    assert not error.value.hint


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("my-llama-2", "my-lama-2"),
        ("my-llama-2", "My-Llama-2"),
        ("tiny-135M.Q4_K.gguf", "tiny-135m.Q4_K.ggfu"),
        ("tiny-135M.Q4_K.gguf", "tiny-135M.Q4_K.guf"),
        ("tiny.Q4_K.gguf", "tiny.Q4_K"),
        ("tiny-00001-of-00003.gguf", "tiny.gguf"),
    ],
)
def test_a_misspelt_name_is_looked_for_beside(
    name: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name.endswith(".gguf"):
        Path(name).write_bytes(b"GGUF")
        monkeypatch.setattr(hub, "download", lambda *_: pytest.fail("the hub is asked"))
        variables = {"HF_HOME": str(tmp_path / "home")}
    else:
        model(Path(name))
        variables = {**OFFLINE, "HF_HOME": str(tmp_path / "home")}
    for written in (near, f"./{near}", str(tmp_path / near)):
        with pytest.raises(InputError, match="no such folder or file") as error:
            resolve(written, variables=variables)
        assert Path(shlex.split(str(error.value.hint))[1]).name == name


def test_names_with_other_numbers_are_other_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model(Path("my-llama-2"))
    with pytest.raises(AttnError) as error:
        resolve("my-llama-3", variables={**OFFLINE, "HF_HOME": str(tmp_path / "home")})
    assert "my-llama-2" not in str(error.value.hint)


def lower(top: Path) -> Path:
    """A folder above an adapter's, as a training run leaves it."""
    (top / "run").mkdir()
    return adapter(top / "run" / "checkpoint-5").parent


@pytest.mark.parametrize(
    ("make", "what", "hint"),
    [
        (lambda top: top / "nowhere", "no such folder", None),
        (lower, "holds no adapter", "checkpoint-5"),
        (lambda top: written(adapter(top / "a") / "adapter_model.safetensors"), "a file", "a"),
        (lambda top: written(top / "lora.gguf"), "GGUF files are not read", None),
        (lambda top: written(adapter(top / "b") / "adapter_model.bin").parent, "safetensors", None),
        (lambda top: adapter(top / "c"), "no weights", None),
    ],
    ids=["missing", "below", "a file of it", "GGUF", "pickled", "a config alone"],
)
def test_what_is_no_adapter_is_called_what_it_is(
    make: Callable[[Path], Path], what: str, hint: str | None, tmp_path: Path
) -> None:
    place = make(tmp_path)
    base = Checkpoint(tmp_path, {}, {})
    with pytest.raises(AttnError, match=what) as error:
        merge_adapters(base, [AdapterRequest(place)])
    if hint is not None:
        option, folder = shlex.split(str(error.value.hint))
        assert (option, Path(folder).name) == ("--adapter", hint)


def written(path: Path) -> Path:
    path.write_bytes(b"GGUF")
    return path


def test_an_adapter_beside_a_config_of_its_base_is_still_one(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="an adapter, not a model") as error:
        Checkpoint.open(folder)
    assert "--adapter" in str(error.value.hint)


def test_a_file_of_a_model_is_told_its_folder(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    with pytest.raises(InputError, match="a file, not a folder") as error:
        resolve(str(written(folder / "model.safetensors")), variables=OFFLINE)
    assert shlex.split(str(error.value.hint)) == ["--model", str(folder)]
    assert resolve(str(folder / "config.json"), variables=OFFLINE).folder == folder


def test_a_snapshot_that_is_not_there_is_no_name_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path / "m" / "step-5")
    model(tmp_path / "m" / "step-100")
    (tmp_path / "m" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    fetched = []
    monkeypatch.setattr(hub, "_fetch_model", lambda *args, **_: fetched.append(args))
    with pytest.raises(InputError, match="there is no such folder") as error:
        resolve("m/step-0", variables=OFFLINE)
    assert not fetched
    assert "step-100, step-5" in str(error.value.expected)
    assert shlex.split(str(error.value.hint)) == ["--model", "m/step-100"]


def test_a_name_below_a_folder_that_is_there_says_so_where_the_hub_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no such folder, and the hub") as error:
        resolve("own/model", variables={**OFFLINE, "HF_HOME": str(tmp_path / "cache")})
    assert "own there is nothing" in str(error.value.expected)
    with pytest.raises(InputError) as error:
        resolve("nobody/model", variables={**OFFLINE, "HF_HOME": str(tmp_path / "cache")})
    assert "no such folder" not in str(error.value)
