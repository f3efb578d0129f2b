"""Cross-attention, masks, biases and costs of small checkpoints of several families."""

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from tiny_checkpoints import CASES, make
from validity import validate

from attncli.models.load import load

SOURCE, TARGET = "w9 w4 w17 w30 w5", "w3 w8 w21"


@pytest.fixture(scope="module", params=["t5", "bart", "marian"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(request.param, tmp_path_factory)


def _made(case: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a vocabulary of 61 words w0 … w60."""
    pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    path = make(CASES[case], tmp_path_factory.mktemp(case.replace(" ", "_")))
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{at}": at for at in range(61)}, unk_token="w0")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(path / "tokenizer.json"))
    return path


def test_cross_attention_of_a_decoder(folder: Path) -> None:
    document = ask(
        "cross", TARGET, SOURCE, "--model", str(folder), "--json", "--dtype", "float64"
    ).json
    validate(document, "attn.cross/1")
    model = load(str(folder), dtype="float64")
    decoder = model.decoder(SOURCE)
    traces = list(decoder.trace(TARGET))
    assert len(document["layers"]) == len(traces) == 3
    for layer, trace in zip(document["layers"], traces, strict=True):
        assert trace.cross is not None
        assert np.allclose(
            [head["weights"] for head in layer["heads"]], trace.cross.stages["weights"]
        )
        assert np.shape(layer["heads"][0]["weights"]) == (3, 5)
        assert np.allclose(np.sum([head["weights"] for head in layer["heads"]], axis=-1), 1)
    assert [token["special"] for token in document["queries"]] == [True, False, False]
    assert any("predicted" in said for said in document["warnings"])


def test_one_layer_and_head_can_be_chosen(folder: Path) -> None:
    question = ("cross", TARGET, SOURCE, "--model", str(folder), "--json")
    whole = ask(*question).json
    (layer,) = ask(*question, "--layer", "1", "--head", "2").json["layers"]
    assert (layer["layer"], [head["head"] for head in layer["heads"]]) == (1, [2])
    assert np.allclose(
        layer["heads"][0]["weights"], whole["layers"][1]["heads"][2]["weights"], atol=1e-6
    )
    assert ask(*question, "--layer", "3").code == 3
    assert ask(*question, "--value-text", SOURCE).code == 2


@pytest.mark.parametrize("command", [("run",), ("heads",), ("find", "--from", "w4", "--to", "w5")])
def test_which_side_reads_the_text_is_said(command: tuple[str, ...], folder: Path) -> None:
    assert any(
        "the encoder" in said
        for said in ask(*command, SOURCE, "--model", str(folder), "--json").json["warnings"]
    )


def test_the_learned_bias_of_t5_is_drawn(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = _made("t5", tmp_path_factory)
    document = ask("mask", "--model", str(path), "--head", "2", "-n", "7", "--json").json
    validate(document, "attn.mask/1")
    assert (document["bias"]["name"], document["bias"]["buckets"]) == ("t5-buckets", False)
    trace = next(iter(load(str(path), dtype="float64").trace("w1 w2 w3 w4 w5 w6 w7")))
    assert np.allclose(
        document["bias"]["before"],
        np.asarray(trace.stages["biased"] - trace.stages["capped"])[2],
        atol=1e-6,
    )
    assert ask("mask", "--model", str(path), "--head", "3").code == 3
    assert (
        "encoder-decoder"
        in ask("cost", "--model", str(path), "-n", "9", "--json").json["warnings"][0]
    )


def test_masks_and_costs_by_layer(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = _made("mistral", tmp_path_factory)
    document = ask("mask", "--model", str(path), "-n", "11", "--json").json
    assert document["masks"][0]["keys_per_query"]["most"] == 5
    assert document["bias"] is None
    cost = ask("cost", "--model", str(path), "-n", "11", "--json").json
    validate(cost, "attn.cost/1")
    assert {layer["pairs"] for layer in cost["layers"]} == {document["masks"][0]["pairs"]}
    assert {layer["cache_bytes"] for layer in cost["layers"]} == {2 * 5 * 20 * 4}


def test_grouped_heads_soft_caps_and_rotation_are_explained(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = _made("gemma2", tmp_path_factory)
    for head in ("0", "5"):
        question = (
            "explain",
            "w1 w2 w3 w4 w5 w6 w7",
            "--model",
            str(path),
            "--layer",
            "1",
            "--head",
            head,
            "--dtype",
            "float64",
            "--json",
        )
        document = ask(*question).json
        validate(document, "attn.explain/1")
        assert document["agreement"] < 1e-10
        assert document["rotated"]
        assert (
            next(step for step in document["steps"] if step["step"] == "scores")["softcap"]
            is not None
        )
