"""Binding: every tensor claimed, ignored or named in the error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UnsupportedError
from attncli.models.family import Role, TensorBinding

IDS = (7, 3, 50, 11)
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture
def changed(folder_of: Callable, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a case's checkpoint, its tensors and config changed."""

    def write(
        name: str, change: Callable[[Tensors], Mapping[str, np.ndarray]] = dict, **config: Any
    ) -> Path:
        folder = folder_of(name)
        told = {**json.loads((folder / "config.json").read_text()), **config}
        (tmp_path / "config.json").write_text(
            json.dumps({key: value for key, value in told.items() if value != "absent"})
        )
        save_file({key: np.ascontiguousarray(value) for key, value in change(load_file(
        folder / "model.safetensors")).items()},
                  tmp_path / "model.safetensors")  # fmt: skip
        return tmp_path

    return write


def weights_of(folder: Path) -> list[np.ndarray]:
    model = attncli.load(folder, backend="numpy", dtype="float64")
    return [trace.stages["weights"] for trace in model.trace(model.tokenizer.ids_to_tokens(IDS))]


def same(folder: Path, other: Path) -> bool:
    return all(
        np.array_equal(a, b) for a, b in zip(weights_of(folder), weights_of(other), strict=True)
    )


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: array for name, array in tensors.items() if name not in names}


def test_a_missing_tensor_is_named_with_its_shape(changed: Callable) -> None:
    with pytest.raises(
        InputError, match=r"'layers\.1\.self_attn\.k_proj\.weight' is missing"
    ) as error:
        attncli.load(changed("mistral", without("layers.1.self_attn.k_proj.weight")))
    assert error.value.expected == "shape [20, 36], for attn.k.weight"


def test_a_misspelt_tensor_is_suggested(changed: Callable) -> None:
    def misspell(tensors: Tensors) -> Tensors:
        return {
            name.replace("layers.1.self_attn.k_proj.", "layers.1.self_attn.k_porj."): array
            for name, array in tensors.items()
        }

    with pytest.raises(InputError, match="is missing") as error:
        attncli.load(changed("mistral", misspell))
    assert "layers.1.self_attn.k_porj.weight" in error.value.hint


def test_a_wrong_shape_is_told_with_both(changed: Callable) -> None:
    def cut(tensors: Tensors) -> Tensors:
        return {
            **tensors,
            "layers.0.mlp.up_proj.weight": tensors["layers.0.mlp.up_proj.weight"][:, :-1],
        }

    with pytest.raises(
        InputError, match=r"'layers\.0\.mlp\.up_proj\.weight' has shape \[41, 35\]"
    ) as error:
        attncli.load(changed("mistral", cut))
    assert error.value.expected == "[41, 36] by config.json, for mlp.up.weight"


def test_a_config_with_other_sizes_is_refused(changed: Callable) -> None:
    with pytest.raises(InputError, match="has shape"):
        attncli.load(changed("mistral", num_key_value_heads=3))


@pytest.mark.parametrize("kind", ["int8", "uint8", "bool"])
def test_quantised_numbers_are_no_weights(changed: Callable, kind: str) -> None:
    name = "layers.1.mlp.up_proj.weight"
    with pytest.raises(UnsupportedError, match=rf"'{name}' holds {kind}"):
        attncli.load(
            changed("mistral", lambda tensors: {**tensors, name: tensors[name].astype(kind)})
        )


@pytest.mark.parametrize(
    "extra",
    ["layers.3.self_attn.q_proj.weight", "layers.0.self_attn.q_norm.weight", "adapter.weight"],
)
def test_a_tensor_that_plays_no_part_is_refused(changed: Callable, extra: str) -> None:
    with pytest.raises(InputError, match="would play no part") as error:
        attncli.load(
            changed("mistral", lambda tensors: {**tensors, extra: np.ones((2, 2), np.float32)})
        )
    assert extra in error.value.what
    assert "3 layers" in error.value.expected


def test_fewer_layers_in_the_config_than_in_the_file(changed: Callable) -> None:
    with pytest.raises(InputError, match=r"'layers\.2\..*' and 8 more would play no part"):
        attncli.load(changed("mistral", num_hidden_layers=2))


def test_task_heads_and_buffers_are_ignored(changed: Callable, folder_of: Callable) -> None:
    def more(tensors: Tensors) -> Tensors:
        added = ("score.weight", "lm_head.weight", "layers.0.self_attn.rotary_emb.inv_freq")
        return {**tensors, **{name: np.ones((2, 2), np.float32) for name in added[:1] + added[2:]}}

    assert same(changed("mistral", more), folder_of("mistral"))


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("bert", ["embeddings.position_ids", "embeddings.token_type_ids", "qa_outputs.weight"]),
        (
            "bart",
            [
                "model.encoder.version",
                "model.decoder.version",
                "qa_outputs.weight",
                "classification_head.dense.weight",
            ],
        ),
        (
            "t5",
            [
                "qa_outputs.weight",
                "classification_head.dense.weight",
                "encoder.embed_tokens.weight",
                "decoder.embed_tokens.weight",
            ],
        ),
    ],
)
def test_what_a_family_s_files_hold_besides(
    name: str, added: list[str], changed: Callable, folder_of: Callable
) -> None:
    def more(tensors: Tensors) -> Tensors:
        return {
            **{
                one: tensors.get("shared.weight", np.ones((1, 29), np.int64)).copy()
                for one in added
            },
            **tensors,
        }

    assert same(changed(name, more), folder_of(name))


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("bert", "bert."), ("gpt2", "transformer."), ("mistral", "model."), ("bart", "model.")],
)
def test_the_prefix_of_another_class_changes_nothing(
    name: str, prefix: str, changed: Callable, folder_of: Callable
) -> None:
    def prefixed(tensors: Tensors) -> Tensors:
        return {
            prefix + key.removeprefix(prefix): array
            for key, array in tensors.items()
            if "lm_head" not in key and "logits" not in key
        }

    assert same(changed(name, prefixed), folder_of(name))


def test_gamma_and_beta_are_weight_and_bias(changed: Callable, folder_of: Callable) -> None:
    def renamed(tensors: Tensors) -> Tensors:
        return {
            key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): array
            for key, array in tensors.items()
        }

    assert same(changed("bert", renamed), folder_of("bert"))


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("bert", ["encoder.layer.1.attention.self.query.bias"]),
        (
            "bert",
            [
                "encoder.layer.0.attention.self.query.bias",
                "encoder.layer.1.attention.self.query.bias",
            ],
        ),
        ("bert", ["embeddings.LayerNorm.bias"]),
        ("gpt2", ["ln_f.bias"]),
        ("qwen2", [f"layers.{layer}.self_attn.v_proj.bias" for layer in range(3)]),
        ("olmo2", [f"layers.{layer}.self_attn.o_proj.bias" for layer in range(3)]),
        ("bart", ["model.decoder.layers.2.encoder_attn.k_proj.bias"]),
    ],
)
def test_a_missing_bias_is_a_different_model(changed: Callable, name: str, gone: list[str]) -> None:
    with pytest.raises(InputError, match="is missing") as error:
        attncli.load(changed(name, without(*gone)))
    assert gone[0] in error.value.what


def test_a_bias_that_the_config_denies_is_refused(changed: Callable) -> None:
    with pytest.raises(InputError, match=r"_proj\.bias' and 11 more would play no part"):
        attncli.load(changed("olmo2", attention_bias=False))


def test_a_head_that_is_not_there_is_told_when_it_is_wanted(changed: Callable) -> None:
    model = attncli.load(changed("llama", without("lm_head.weight")), backend="numpy")
    (last,) = model.trace(model.tokenizer.ids_to_tokens(IDS), layers=[2])
    with pytest.raises(UnsupportedError, match="no output head"):
        model.logits(last.after)


def test_bfloat16_and_float16_files(changed: Callable, folder_of: Callable) -> None:
    import ml_dtypes

    for dtype in (ml_dtypes.bfloat16, np.float16):
        rounded = changed(
            "mistral",
            lambda tensors, dtype=dtype: {
                key: array.astype(dtype) for key, array in tensors.items()
            },
        )
        for ours, exact in zip(weights_of(rounded), weights_of(folder_of("mistral")), strict=True):
            assert 0 < np.abs(ours - exact).max() < 0.2


def test_a_config_without_a_family_is_refused(changed: Callable) -> None:
    with pytest.raises(InputError, match="does not say which family"):
        attncli.load(changed("mistral", model_type="absent"))


def test_a_key_can_be_ignored(changed: Callable, folder_of: Callable) -> None:
    folder = changed("bert", add_cross_attention=True)
    with pytest.raises(UnsupportedError, match="add_cross_attention"):
        attncli.load(folder)
    model = attncli.load(folder, ignore=("add_cross_attention",))
    assert model.warnings == ("config.json's add_cross_attention was ignored, as asked",)


def test_concat_and_grouped_parts() -> None:
    roles = (Role("q", (6, 2)), Role("k", (3, 2)), Role("v", (3, 2)))
    rows = np.arange(24.0).reshape(12, 2)
    concat = TensorBinding(("t",), roles, "concat").parts([rows])
    assert [part.tolist() for part in concat.values()] == [
        rows[:6].tolist(),
        rows[6:9].tolist(),
        rows[9:].tolist(),
    ]
    grouped = TensorBinding(("t",), roles, "grouped", groups=3).parts([rows])
    assert grouped["q"].tolist() == rows[[0, 1, 4, 5, 8, 9]].tolist()
    assert grouped["k"].tolist() == rows[[2, 6, 10]].tolist()
    assert grouped["v"].tolist() == rows[[3, 7, 11]].tolist()
    transposed = TensorBinding(("t",), roles, "concat", transposed=True)
    assert transposed.shape() == (2, 12)
    assert transposed.parts([rows.T])["k"].tolist() == rows[6:9].tolist()
    stacked = TensorBinding(("a", "b"), (Role("w", (2, 4)),), "stacked")
    assert stacked.shape() == (4,)
    assert stacked.parts([np.zeros(4), np.ones(4)])["w"].tolist() == [[0] * 4, [1] * 4]
