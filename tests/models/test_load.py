"""`attncli.load`: checkpoints, weight files and seeded weights by one function."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import finish
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import numpy_backend
from attncli.errors import UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.tensors import write_tensors
from attncli.models import families, load
from attncli.models.load import load_tokenizer, read_spec


def test_seeded_weights() -> None:
    model = attncli.load(seed=3, d_model=24, heads=4)
    (trace,) = model.trace("humpty dumpty sat on")
    assert (model.identity.source, model.identity.seed, trace.stages["weights"].shape) == (
        "seeded",
        3,
        (4, 4, 4),
    )
    (other,) = attncli.load(seed=4, d_model=24, heads=4).trace("humpty dumpty sat on")
    assert not np.array_equal(trace.stages["q"], other.stages["q"])
    (bare,) = attncli.load().trace("one two")
    assert bare.stages["q"].shape == (1, 2, 64)


def test_a_weight_file(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weights = {
        f"{name}.weight": random.standard_normal((6, 6)).astype(np.float32) for name in "qkvo"
    }
    write_tensors(tmp_path / "w.safetensors", weights, {"num_heads": "2"})
    model = attncli.load(weights=tmp_path / "w.safetensors", heads=2, dtype="float64")
    (trace,) = model.trace("a b c")
    assert trace.stages["q"].shape == (2, 3, 3)
    x = model.backend.numpy(trace.before)
    expected = (x @ weights["q.weight"].T.astype(np.float64)).reshape(3, 2, 3).swapaxes(0, 1)
    np.testing.assert_allclose(trace.stages["q"], expected, atol=1e-12)


def test_a_checkpoint_with_its_own_tokenizer() -> None:
    tokens = load_tokenizer("minilm").encode("The animal")
    assert [token.text for token in tokens] == ["[CLS]", "The", "animal", "[SEP]"]
    model = attncli.load("minilm")
    assert (model.identity.source, model.identity.name, model.identity.family) == (
        "checkpoint",
        "minilm",
        "bert",
    )


def test_a_contradictory_call() -> None:
    with pytest.raises(UsageError, match="brings its own weights"):
        attncli.load("minilm", seed=3)


def test_a_spec_is_read_without_weights(tmp_path: Path) -> None:
    with Checkpoint.open(make(CASES["gemma2"], tmp_path)) as checkpoint:
        spec, family, warnings = read_spec(checkpoint)
        assert checkpoint.bytes_read == 0
    assert (spec.family, family is families.family("gemma2"), len(spec.blocks), warnings) == (
        "gemma2",
        True,
        3,
        (),
    )


@pytest.mark.parametrize(
    ("installed", "named", "told", "hint"),
    [
        (False, False, "'unheard' do not run natively", install_command("transformers")),
        (
            True,
            False,
            "neither attn nor transformers knows the family 'unheard'",
            "attn models list",
        ),
        (
            True,
            True,
            "'unheard' run through transformers, which keeps",
            "attn run and attn heads run it",
        ),
    ],
)
def test_an_unknown_family_is_told(
    installed: bool,
    named: bool,
    told: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(load.library, "knows_family", lambda family: named)
    folder = make(CASES["mistral"], tmp_path)
    (folder / "config.json").write_text('{"model_type": "unheard"}')
    with (
        Checkpoint.open(folder) as checkpoint,
        pytest.raises(UnsupportedError, match=told) as error,
    ):
        read_spec(checkpoint)
    assert error.value.hint == hint
    assert len(str(error.value.expected)) < 80


def test_the_families_named_are_those_nearest_to_the_name() -> None:
    told = load._family_refusal("deepseek_vl_v2", "config.json")
    assert "deepseek_v2" in str(told.expected)
    assert "llama" not in str(told.expected)


def test_a_family_that_nobody_knows_is_refused_without_importing_a_library(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "unheard"}')
    script = (
        "import sys, attncli\n"
        f"try: attncli.load({str(tmp_path)!r})\n"
        "except attncli.AttnError as error: print(error.exit_code, 'nor transformers' in error.what)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    found = finish([sys.executable, "-c", script])
    assert found.stdout.split() == ["4", "True", "False", "False"], found.stdout


def test_the_names_that_transformers_has() -> None:
    pytest.importorskip("transformers")
    assert load.library.knows_family("mamba")
    assert not load.library.knows_family("unheard")


def test_weights_that_are_kept_are_of_the_backend_that_asks(tmp_path: Path) -> None:
    """A model on a device asked by NumPy would else be handed tensors that lie elsewhere."""
    model = attncli.load(small_gpt2(tmp_path), backend="torch", hold=True)
    assert torch.is_tensor(model.store.layer(model.backend, 0)("attn.q.weight"))
    assert torch.is_tensor(model.store.outer(model.backend)("tokens.weight"))
    plain = numpy_backend("float32")
    assert isinstance(model.store.layer(plain, 0)("attn.q.weight"), np.ndarray)
    assert isinstance(model.store.outer(plain)("tokens.weight"), np.ndarray)


def test_weights_that_are_kept_are_told_as_kept(tmp_path: Path) -> None:
    """Forecasts would else decode quantised weights in each of many runs."""
    kept = attncli.load(small_gpt2(tmp_path), hold=True)
    plain = attncli.load(tmp_path)
    assert plain.weights_in_memory == 0
    assert kept.weights_in_memory == load.held_bytes(plain) > 0
    assert load.hold_weights(kept) is kept


def test_what_is_no_text_is_refused_by_its_value() -> None:
    model = attncli.load(seed=0)
    for value in (5, None, ["a", "b"]):
        with pytest.raises(UsageError, match="text is "):
            model.trace(value)  # type: ignore[arg-type]
