"""`attncli.load`: checkpoints, weight files and seeded weights by one function."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from asking import ask
from processes import finish
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import numpy_backend
from attncli.draw.encoding import json_pieces
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


@pytest.mark.parametrize(
    "own", [{"scale": 1}, {"mask": "causal"}, {"d_k": 3}, {"position": "rope"}, {"heads": 2}]
)
def test_a_checkpoint_takes_nothing_of_a_weight_file(own: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="brings its own weights, sizes, mask, scale"):
        attncli.load("minilm", **own)


def by_hand(
    x: np.ndarray[Any, Any],
    weights: dict[str, np.ndarray[Any, Any]],
    scale: float,
    hidden: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """The output of one head, with its output projection, by NumPy alone."""
    q, k, v = (x @ weights[f"{name}.weight"].T for name in "qkv")
    scores = np.where(hidden, -np.inf, q @ k.T * scale)
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True) @ v @ weights["o.weight"].T


LATER = np.triu(np.ones((3, 3), bool), 1)
APART = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) > 1


@pytest.mark.parametrize(
    ("options", "scale", "hidden"),
    [
        ({}, 6**-0.5, LATER & False),
        ({"scale": 0.25}, 0.25, LATER & False),
        ({"scale": "none", "mask": "causal"}, 1.0, LATER),
        ({"mask": "causal & window:2"}, 6**-0.5, LATER | APART),
        ({"mask": (~LATER).astype(int)}, 6**-0.5, LATER),
        ({"mask": torch.tensor(~LATER), "scale": 2}, 2.0, LATER),
    ],
)
def test_a_weight_file_takes_scale_mask_and_x_as_the_command_does(
    options: dict[str, Any], scale: float, hidden: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    random = np.random.default_rng(2)
    weights = {f"{name}.weight": random.normal(size=(6, 6)) for name in "qkvo"}
    write_tensors(tmp_path / "w.safetensors", weights, {})
    x = random.normal(size=(3, 6))
    (trace,) = attncli.load(
        weights=tmp_path / "w.safetensors", embeddings=x, dtype="float64", **options
    ).trace("a b c")
    np.testing.assert_allclose(trace.stages["out"], by_hand(x, weights, scale, hidden), atol=1e-12)


def test_the_command_and_the_call_give_one_document(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    write_tensors(file, {f"{name}.weight": np.eye(4) for name in "qkvo"}, {})
    model = attncli.load(weights=file, heads=2, scale="sqrt-dmodel", mask="causal")
    called = attncli.run(model, "a b c")
    options = ("--num-heads", "2", "--scale", "sqrt-dmodel", "--mask", "causal", "--json")
    told = ask("run", "a b c", "--weights", str(file), *options)
    document = json.loads(told.out)
    assert document["layers"] == json.loads(b"".join(json_pieces(called)))["layers"]
    assert document["warnings"] == called.warnings


def test_seeded_weights_take_sizes_mask_scale_and_positions() -> None:
    model = attncli.load(seed=0, d_model=8, d_k=4, d_v=6, mask="causal", position="rope")
    (trace,) = model.trace("a b c")
    assert trace.stages["q"].shape == (1, 3, 4)
    assert trace.stages["v"].shape == (1, 3, 6)
    assert trace.stages["weights"][0, 0].tolist() == [1, 0, 0]


def test_how_a_file_was_read_is_told_by_the_model(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    write_tensors(file, {f"{name}.weight": np.eye(4) for name in "qkvo"}, {})
    model = attncli.load(weights=file)
    assert "read as 1 (--num-heads N)" in model.warnings[0]
    assert repr(model).endswith("; read .warnings (1)>")
    assert attncli.run(model, "a b").warnings[0] == model.warnings[0]
    assert ".warnings" not in repr(attncli.load(weights=file, heads=2))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mask": np.ones((2, 2, 2, 2))}, "mask has shape \\[2, 2, 2, 2\\]"),
        ({"mask": "sideways"}, "sideways"),
        ({"scale": "wide"}, "scale is 'wide'"),
        ({"scale": True}, "scale is True"),
        ({"embeddings": [1.0, 2.0]}, "embeddings have shape \\[2\\]"),
        ({"embeddings": [[1.0, float("nan")]]}, "NaN"),
        ({"position": "north"}, "unknown position"),
    ],
)
def test_wrong_options_of_a_one_layer_model(options: dict[str, Any], says: str) -> None:
    with pytest.raises(attncli.AttnError, match=says):
        attncli.load(seed=0, d_model=2, **options)


def test_a_mask_of_another_size_is_an_error() -> None:
    with pytest.raises(attncli.AttnError, match="2"):
        list(attncli.load(seed=0, mask=np.ones((2, 2))).trace("a b c"))


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
