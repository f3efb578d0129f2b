"""`attn tokens`, `attn schema`, `attn tensors`."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import numpy as np
import pytest
from asking import ask

import attncli
from attncli.analysis.documents.json_schema import SCHEMAS


def test_tokens_of_every_script_are_aligned_with_the_text() -> None:
    text = "我爱你 it's שלום e\u0301a 👩‍👩‍👧"
    for name in ("word", "whitespace", "char", "byte"):
        document = ask("tokens", text, "--tokenizer", name, "--json").json
        jsonschema.validate(document, SCHEMAS["attn.tokens/1"])
        if name != "byte":
            assert all(text[token["start"] : token["end"]] == token["text"] for token in document["tokens"])
    raw = [token["bytes"] for token in ask("tokens", text, "--tokenizer", "byte", "--json").json["tokens"]]
    assert len(raw) == len(text.encode())


def test_tokens_as_tab_separated_lines() -> None:
    found = ask("tokens", "a b", "--plain").out.splitlines()
    assert found[0].split("\t")[:2] == ["index", "text"]
    assert found[2].split("\t")[:2] == ["1", "b"]


def test_schemas_are_listed_and_each_is_a_schema() -> None:
    names = ask("schema").out.split()
    assert "attn.run/1" in names
    for name in names:
        jsonschema.Draft202012Validator.check_schema(ask("schema", name).json)
    found = ask("schema", "attn.rnu/1")
    assert (found.code, found.out) == (2, "")
    assert "attn.run/1" in found.err


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 2)))
    path = tmp_path / "captured.npz"
    np.savez(path, q=q, k=k, v=v)
    return path


def test_tensors_exposes_the_core(captured: Path) -> None:
    arrays = np.load(captured)
    expected = attncli.attention(
        arrays["q"],
        arrays["k"],
        arrays["v"],
        scale=0.3,
        softcap=2.0,
        causal=True,
        offset=3,
        key_lengths=np.array([9, 4]),
    )
    found = ask(
        "tensors",
        str(captured),
        "--json",
        "--scale",
        "0.3",
        "--softcap",
        "2",
        "--mask",
        "causal",
        "--offset",
        "3",
        "--key-lengths",
        "9,4",
    ).json
    jsonschema.validate(found, SCHEMAS["attn.tensors/1"])
    for entry in found["batch"]:
        for head in entry["heads"]:
            assert np.array_equal(np.float32(head["weights"]), expected.weights[entry["index"][0], head["head"]])
            assert np.array_equal(np.float32(head["output"]), expected.mixed[entry["index"][0], head["head"]])


def test_tensors_of_a_saved_run_give_the_run_again(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    run = ask("run", "one two three", "--num-heads", "2", "--json", "--save", str(path)).json
    again = ask("tensors", str(path), "--json").json
    for head in (0, 1):
        assert again["batch"][0]["heads"][head]["weights"] == run["layers"][0]["heads"][head]["weights"]
    assert again["warnings"] == []


def test_tensors_of_a_run_with_a_mask_of_its_own_are_said_to_differ(tmp_path: Path) -> None:
    path = str(tmp_path / "saved.safetensors")
    assert ask("run", "one two three", "--mask", "causal", "--save", path).code == 0
    (said,) = ask("tensors", path, "--json").json["warnings"]
    assert "another mask, scale, soft cap" in said
    assert "another mask, scale," in " ".join(ask("tensors", path).out.split())
    assert ask("tensors", path, "--mask", "causal", "--json").json["warnings"] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": np.zeros((2, 4, 11, 7))}, "kv_heads"),
        ({"k": np.zeros((2, 3, 11, 8))}, "8"),
        ({"v": None}, "no tensor is called v"),
    ],
)
def test_tensors_that_do_not_fit(captured: Path, change: dict[str, np.ndarray | None], says: str) -> None:
    arrays = {**np.load(captured), **change}
    np.savez(captured, **{name: array for name, array in arrays.items() if array is not None})
    found = ask("tensors", str(captured))
    assert (found.code, found.out) == (3, "")
    assert says in found.err


def test_each_of_several_texts_is_headed_by_its_number() -> None:
    brief = ask("run", "--lines", "--brief", stdin=b"a b\nc d\n").out
    assert [line for line in brief.splitlines() if line.startswith("text ")] == ["text 0  a b", "text 1  c d"]
    whole = ask("run", "--lines", stdin=b"a b\nc d\n").out.splitlines()
    assert whole[:2] == ["text 0", "a b"]
    assert not ask("run", "a b").out.startswith("text 0")


def test_what_save_wrote_is_known_as_such(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    assert ask("run", "a b", "--num-heads", "2", "--save", str(path)).code == 0
    shown = ask("weights", "show", str(path)).out
    assert "stages of a run, as attn run --save wrote them" in shown
    assert "not read as an attention" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("layers.0.weights"))
    assert row.split()[1] == "A"
