"""Layers without attention: what commands tell of them, and their one recurrence against its
triangle of weights.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from asking import ask
from msgspec.structs import replace
from safetensors.numpy import load_file, save_file
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import numpy_backend
from attncli.features.run.compute import run
from attncli.mechanism.mixer import has_implicit_weights, implicit_weights, recur
from attncli.models.verify import reference_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make(CASES["lfm2"], tmp_path_factory.mktemp("checkpoint")))


def test_they_are_named_and_have_nothing_to_show(folder: str) -> None:
    told = ask("run", "--model", folder, "--ids", "7 3 50", "--json").json
    assert told["model"]["idle"] == {"short convolution": [0, 2]}
    assert [layer["layer"] for layer in told["layers"]] == [1]
    assert told["warnings"] == ["layers 0, 2 (short convolution): no attention to show"]
    heads = ask("heads", "--model", folder, "--ids", "7 3 50", "--across", "rollout")
    assert "1 of 3 layers attend × 6 heads" in heads.out
    assert "what layers 0, 2 mix by other means is left out" in " ".join(heads.out.split())
    refused = ask("ablate", "--model", folder, "--ids", "7 3 50", "--layer", "0")
    assert refused.code == 3
    assert "layer 0 attends to nothing" in refused.err


def test_a_model_of_such_layers_alone_is_refused(tmp_path: Path) -> None:
    made = make(
        replace(CASES["lfm2"], config={**CASES["lfm2"].config, "layer_types": ["conv"] * 3}),
        tmp_path / "made",
    )
    refused = ask("run", "--model", str(made), "--ids", "7 3 50")
    assert refused.code == 4
    assert "no layer of this 'lfm2' model attends" in refused.err


def test_what_they_add_is_counted(folder: str) -> None:
    told = ask("logits", "--model", folder, "--ids", "7 3 50", "--json").json
    assert sum(part["part"] == "mixer" for part in told["parts"]) == 2
    assert sum(part["value"] for part in told["parts"]) == pytest.approx(told["logit"], abs=1e-6)
    assert "mixers" in ask("logits", "--model", folder, "--ids", "7 3 50").out


@pytest.mark.parametrize(
    "name",
    [
        "qwen3_next",
        "qwen3_5_text",
        "bamba",
        "granitemoehybrid",
        "falcon_h1",
        "nemotron_h",
        "minimax",
        "kimi_linear",
    ],
)
def test_implicit_weights_times_values_are_what_leaves_the_recurrence(
    name: str, tmp_path: Path
) -> None:
    """Of transformers' own layers in float64, where their norm takes it over."""
    made, ids, theirs = make(CASES[name], tmp_path), [7, 3, 50, 11, 28, 5], {}
    model = attncli.load(made, note=None, dtype="float64")
    layers = [
        layer for layer, block in enumerate(model.spec.blocks) if has_implicit_weights(block.mixer)
    ]
    with reference_model(made, both=False) as hf_model:
        for layer in layers:
            norms = dict(hf_model.layers[layer].named_modules())
            places = [f"{part}.norm" for part in ("linear_attn", "mamba", "mixer", "self_attn")]
            norm = next(norms[place] for place in (*places, "self_attn.o_norm") if place in norms)

            def take(module: object, given: tuple[torch.Tensor, ...], layer: int = layer) -> None:
                theirs[layer] = given[0].numpy().copy()

            norm.register_forward_pre_hook(take)
        hf_model(torch.tensor([ids]))
    document = run(model, "", tokens=model.tokenizer.ids_to_tokens(ids), implicit=True)
    shown = {
        layer.layer: np.stack([head.weights for head in layer.heads]) for layer in document.implicit
    }
    for trace in model.trace(model.tokenizer.ids_to_tokens(ids), layers=layers, keep=(), idle=True):
        weights = model.store.layer(model.backend, trace.layer)
        mixer = model.spec.blocks[trace.layer].mixer
        matrix, values = implicit_weights(model.backend, mixer, weights, trace.stages["hidden"])
        assert np.array_equal(matrix, np.tril(matrix))
        assert np.array_equal(matrix, shown[trace.layer])
        expected = theirs[trace.layer].reshape(len(ids), *values.shape[::2]).swapaxes(0, 1)
        assert np.abs(matrix @ values - expected).max() < 1e-6
        assert np.abs(np.tril(matrix, -1) @ values - expected).max() > 1e-3
        assert (matrix < 0).any()


def test_implicit_weights_are_shown(folder: str, tmp_path: Path) -> None:
    made = str(make(CASES["qwen3_next"], tmp_path))
    asking = ("run", "--model", made, "--ids", "7 3 50", "--show", "implicit")
    document = ask(*asking, "--layer", "0", "--head", "1", "--query", "#1", "--json").json
    assert document["layers"] == []
    (layer,) = document["implicit"]
    assert (layer["layer"], layer["kind"], [head["head"] for head in layer["heads"]]) == (
        0,
        "gated delta rule",
        [1],
    )
    ((_, own, later),) = layer["heads"][0]["weights"]
    assert own != 0
    assert later == 0
    assert "no softmax" in ask(*asking).out
    assert "不经 softmax" in ask(*asking, "--lang", "zh").out
    saved = (
        "run",
        "--model",
        made,
        "--ids",
        "7 3 50",
        "--save",
        str(tmp_path / "run.npz"),
        "--json",
    )
    shapes = ask(*saved).json["shapes"]
    kept = ask("view", str(tmp_path / "run.npz"), "--json").json["shapes"]
    # a file of arrays does not say which projections have a bias: the formula may name one less
    assert [{**step, "formula": ""} for step in kept] == [
        {**step, "formula": ""} for step in shapes[:-1]
    ], "its gate, too"
    refused = ask("run", "--model", folder, "--ids", "7 3 50", "--show", "implicit")
    assert refused.code == 4
    assert "none of these layers has implicit weights" in refused.err
    assert ask(*asking, "--words").code == 2
    for file in (
        ("--html", str(tmp_path / "page.html")),
        ("--figure", str(tmp_path / "figure.svg")),
        ("--plain",),
    ):
        refused = ask(*asking, *file)
        assert refused.code == 2
        assert "attn run --show implicit --json" in refused.err
    assert not (tmp_path / "page.html").exists()


def test_latent_attention_has_no_circuits(tmp_path: Path) -> None:
    refused = ask(
        "heads",
        "--model",
        str(make(CASES["kimi_linear"], tmp_path)),
        "--ids",
        "7 3",
        "--across",
        "circuits",
    )
    assert refused.code == 4
    assert "normed narrow vector" in refused.err


def test_configs_as_first_published(tmp_path: Path) -> None:
    """Nemotron-H's layers as letters under another prefix; Kimi Linear's sizes and layers in an
    object of their own.
    """
    for name, gone, instead in (
        ("nemotron_h", ("layers_block_type", "num_hidden_layers"), {"hybrid_override_pattern": "M*E-*"}),
        (
            "kimi_linear",
            ("layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"),
            {"linear_attn_config": {"head_dim": 5, "num_heads": 4, "short_conv_kernel_size": 3, "full_attn_layers": [2],
                                    "kda_layers": [1, 3]}, "first_k_dense_replace": 1},
        ),
    ):  # fmt: skip
        made = make(CASES[name], tmp_path / name)
        first = shutil.copytree(made, tmp_path / f"{name} first")
        config = json.loads((made / "config.json").read_text())
        config = {key: value for key, value in config.items() if key not in gone} | instead
        (first / "config.json").write_text(json.dumps(config))
        arrays = load_file(made / "model.safetensors")
        save_file(
            {
                key.replace(
                    "model.", "backbone." if "hybrid_override_pattern" in instead else "model."
                ): array
                for key, array in arrays.items()
            },
            first / "model.safetensors",
        )
        one, other = (attncli.load(folder, note=None) for folder in (made, first))
        assert one.spec == other.spec
        assert other.warnings == one.warnings
        for a, b in zip(
            *(
                model.trace(model.tokenizer.ids_to_tokens([7, 3, 50]), idle=True)
                for model in (one, other)
            ),
            strict=True,
        ):
            assert np.array_equal(a.after, b.after)


@pytest.mark.parametrize("name", ["qwen3_next", "falcon_h1", "minimax", "gemma2", "llama"])
def test_the_derivation_ends_in_what_the_layer_has(name: str, tmp_path: Path) -> None:
    """Heads behind their gates add up to the output; x and what is added to it, a mixer beside the
    heads included, to the sum."""
    made, layer = str(make(CASES[name], tmp_path)), "1"
    after = ask(
        "explain", "--model", made, "--ids", "7 3 50 11", "--layer", layer, "--head", "0", "--json"
    ).json["after"]
    out = np.sum(after["heads"], 0) + np.asarray(after.get("bias", 0.0))
    assert np.abs(out - after["out"]).max() < 1e-4
    added = np.asarray(after.get("branch", after["out"]))
    assert np.abs(np.asarray(after["x"]) + added - after["sum"]).max() < 1e-4
    assert ("branch" in after) == (name in ("falcon_h1", "gemma2"))


def test_experts_may_lie_in_one_tensor_or_in_many(tmp_path: Path) -> None:
    """As transformers saves them, and as the models of the hub have them."""
    made = make(CASES["qwen3_5_moe_text"], tmp_path / "many")
    together = shutil.copytree(made, tmp_path / "one")
    arrays = load_file(made / "model.safetensors")
    for layer in (0, 1):
        place = next(
            name for name in arrays if f"layers.{layer}.mlp.experts.0.up" in name
        ).partition("0.up")[0]
        parts = {
            half: np.stack([arrays.pop(f"{place}{item}.{half}_proj.weight") for item in range(5)])
            for half in ("gate", "up", "down")
        }
        arrays |= {f"{place}gate_up_proj": np.concatenate([parts["gate"], parts["up"]], 1)}
        arrays |= {f"{place}down_proj": parts["down"]}
    save_file(arrays, together / "model.safetensors")
    many, one = (
        [trace.after for trace in model.trace(model.tokenizer.ids_to_tokens([7, 3, 50]), idle=True)]
        for model in (attncli.load(folder, note=None) for folder in (made, together))
    )
    assert all(np.array_equal(a, b) for a, b in zip(many, one, strict=True))


@pytest.mark.parametrize("strong", [False, True])
def test_the_recurrence_is_a_triangle_without_a_softmax(strong: bool) -> None:
    """Of tokens' numbers, multiplied out pair by pair; of the delta rule through the inverse of a
    triangle.
    """
    draw, count = np.random.default_rng(3), 7
    k, q, v = (draw.standard_normal((count, 1, width)) for width in (4, 4, 3))
    rate, step = -np.abs(draw.standard_normal((1, 1, 1))), np.abs(draw.standard_normal((count, 1)))
    strength = draw.uniform(0, 1, (count, 1)) if strong else None
    found = recur(numpy_backend("float64"), rate, step, k, v, q, strength)
    fades, keys = np.zeros((count, count)), np.zeros((count, count))
    for i in range(count):
        for j in range(i + 1):
            fades[i, j] = np.exp(rate[0, 0, 0] * step[j + 1 : i + 1, 0].sum())
            keys[i, j] = k[i, 0] @ k[j, 0]
    weights = fades * (q[:, 0] @ k[:, 0].T)
    if strength is not None:
        held = np.eye(count) + strength * np.tril(fades * keys, -1)
        weights = weights @ np.linalg.inv(held) * strength[:, 0]
    assert np.abs(found[:, 0] - weights @ v[:, 0]).max() < 1e-12
    assert np.abs(found[:, 0] - np.tril(weights, -1) @ v[:, 0]).max() > 1e-3
