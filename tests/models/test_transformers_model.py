"""Models of transformers' own from checkpoints that mean harm: nothing of theirs runs, nothing
grows beyond what is stored."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoints import PLAIN, Case, make

import attncli
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.models import transformers_model
from attncli.models.estimate import MemoryBudget
from attncli.models.model import Model
from attncli.models.transformers_model import build

pytest.importorskip("transformers")

OLMO = Case("olmo", {key: value for key, value in PLAIN.items() if key != "rms_norm_eps"})
IDS = (7, 3, 50, 11)


@pytest.fixture(autouse=True)
def _foreign(without_files: Callable[..., None]) -> None:
    without_files("olmo", "albert")


@pytest.fixture(scope="module")
def olmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(OLMO, tmp_path_factory.mktemp("olmo"))


@pytest.fixture
def changed(olmo: Path, tmp_path: Path) -> Callable[..., Path]:
    def with_keys(**values: Any) -> Path:
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(olmo, folder)
        told = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**told, **values}))
        return folder

    return with_keys


def weights(model: Model) -> np.ndarray[Any, Any]:
    return np.stack(
        [
            trace.stages["weights"].numpy()
            for trace in model.trace(model.tokenizer.ids_to_tokens(IDS))
        ]
    )


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    ],
)
@pytest.mark.parametrize(
    "value", [0, -1, 7, 9000, 10**6, 10**9, 10**30, 1.5, "x", None, True, [], {}]
)
def test_absurd_numbers_are_refused_or_run(
    changed: Callable[..., Path], key: str, value: object
) -> None:
    folder, refused = changed(**{key: value}), None
    try:
        found = weights(attncli.load(folder))
    except AttnError as error:
        refused, found = error.exit_code, np.zeros(1)
    assert refused in (None, 3, 4)
    assert np.isfinite(found).all()


def test_a_model_larger_than_its_weights_is_refused_while_it_is_built(
    changed: Callable[..., Path],
) -> None:
    with pytest.raises(InputError, match=r"config\.json describes a model of more than") as error:
        attncli.load(changed(num_hidden_layers=9000))
    assert "22 tensors" in error.value.expected
    with pytest.raises(InputError, match="numbers"):
        attncli.load(changed(intermediate_size=2**20))
    with pytest.raises(InputError, match="num_hidden_layers to 1,000,000,000"):
        attncli.load(changed(num_hidden_layers=10**9))


def test_a_model_larger_than_the_memory_is_refused(
    olmo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_model, "free_memory", lambda: MemoryBudget(1000, "a test"))
    with pytest.raises(LimitError, match="takes more than") as error:
        attncli.load(olmo)
    assert "a test" in error.value.expected


def test_what_a_config_names_is_neither_run_nor_read(
    olmo: Path, changed: Callable[..., Path]
) -> None:
    expected = weights(attncli.load(olmo))
    folder = changed(
        auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"},
        transformers_weights="other.safetensors",
        attn_implementation="somebody/kernel",
        _attn_implementation="somebody/kernel",
        experts_implementation="somebody/kernel",
    )
    (folder / "evil.py").write_text("raise SystemExit('this ran')")
    (folder / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "/nowhere", "peft_type": "LORA"}'
    )
    os.mkfifo(folder / "other.safetensors")
    os.mkfifo(folder / "pytorch_model.bin")
    assert np.array_equal(weights(attncli.load(folder)), expected)


def test_a_file_that_shrinks_after_it_was_opened_is_an_error(changed: Callable[..., Path]) -> None:
    folder = changed()
    checkpoint = Checkpoint.open(folder)
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 4000)
    with pytest.raises(InputError, match="became shorter"):
        build(checkpoint, "olmo", attention="eager", dtype="float32")


def test_what_transformers_cannot_run_is_said_in_its_words(tmp_path: Path) -> None:
    sizes = {
        "vocab_size": 61,
        "embedding_size": 14,
        "hidden_size": 30,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "intermediate_size": 37,
        "max_position_embeddings": 29,
    }
    model = attncli.load(make(Case("albert", sizes), tmp_path))
    with pytest.raises(UnsupportedError, match="cannot run this 'albert' model"):
        next(iter(model.trace(model.tokenizer.ids_to_tokens([1] * 30))))  # it has 29 positions
