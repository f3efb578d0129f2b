"""`attn models verify`: what it prints, and how it ends when a model differs from transformers."""

from pathlib import Path
from typing import Literal

import pytest
from asking import ask
from msgspec.structs import replace
from small_gpt2 import small_gpt2
from validity import validate

from attncli.draw.safe import cells
from attncli.models import verify
from attncli.models.verify import LayerDistance, Verification


def crafted(worst: float) -> Verification:
    layers = (
        LayerDistance("encoder", 0, (1e-16, 2e-16), (), 3e-16, 3e-16),
        LayerDistance("decoder", 0, (1e-16, worst), (4e-16, 5e-16), None, worst),
    )
    return Verification(7, "numpy", layers, 1e-7, 2e-7, 3e-6, 4e-6)


def test_minilm_agrees_with_transformers() -> None:
    pytest.importorskip("transformers")
    found = ask("models", "verify", "minilm", "--ids", "101 2009 102", "--json")
    assert found.code == 0
    validate(found.json, "attn.verify/1")
    assert [layer["layer"] for layer in found.json["layers"]] == list(range(6))
    assert 0 < found.json["float64"]["worst"] < 1e-12
    assert (found.json["tokens"], found.json["text"], found.json["passed"]) == (3, "", True)


@pytest.mark.parametrize("width", [60, 120])
def test_a_difference_ends_with_one_and_is_named(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(verify, "verify", lambda *given, **named: crafted(3e-3))
    found = ask("models", "verify", "minilm", "a text", width=width)
    assert found.code == 1
    assert "3.0e-03" in found.out
    assert "NOT equal" in found.out
    assert "3.0e-03" in found.err
    one_line = " ".join(found.out.split())
    assert "one weight in float32 is 3.0e-06, of transformers' own 4.0e-06." in one_line
    assert max(cells(line) for line in found.out.splitlines()) <= width
    document = ask("models", "verify", "minilm", "a text", "--json")
    validate(document.json, "attn.verify/1")
    assert (document.code, document.json["passed"]) == (1, False)


def test_agreement_and_plain_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "verify", lambda *given, **named: crafted(1e-11))
    assert ask("models", "verify", "minilm", "a").code == 0
    rows = [
        line.split("\t")
        for line in ask("models", "verify", "minilm", "a", "--plain").out.splitlines()
    ]
    assert [row[:4] for row in rows[1:]] == [
        ["encoder", "0", "self", "0"],
        ["encoder", "0", "self", "1"],
        ["decoder", "0", "self", "0"],
        ["decoder", "0", "self", "1"],
        ["decoder", "0", "cross", "0"],
        ["decoder", "0", "cross", "1"],
    ]


@pytest.mark.parametrize("blocks", ["gguf", "attn"])
def test_whose_code_unpacked_the_reference_is_told(
    monkeypatch: pytest.MonkeyPatch, blocks: Literal["gguf", "attn"]
) -> None:
    of_file = replace(crafted(1e-11), blocks=blocks)
    monkeypatch.setattr(verify, "verify", lambda *given, **named: of_file)
    one_line = " ".join(ask("models", "verify", "minilm", "a").out.split())
    assert ("unpacked by the gguf package" in one_line) == (blocks == "gguf")
    assert ("attn's own code, which this does not prove. " in one_line) == (blocks == "attn")
    document = ask("models", "verify", "minilm", "a", "--json")
    validate(document.json, "attn.verify/1")
    assert document.json["blocks"] == blocks


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("minilm", "x", "--ids", "1"), 2, "--ids"),
        (("minilm", "x", "--backend", "jax"), 2, "jax"),
        (("minlm",), 3, "minilm"),
        (("minilm", "x", "--decoder-text", "y"), 4, "takes one text"),
        (("minilm", ""), 3, "no text"),
        (("minilm", "-", "--decoder-text", "-"), 2, "standard input"),
    ],
)
def test_refusals(arguments: tuple[str, ...], code: int, says: str) -> None:
    found = ask("models", "verify", *arguments, HF_HUB_OFFLINE="1")
    assert (found.code, found.out) == (code, "")
    assert says in found.err


def test_a_text_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(
        verify, "verify", lambda folder, text, **named: (told.append(text), crafted(1e-11))[1]
    )
    assert (
        ask("models", "verify", "minilm", "-", "--json", stdin=b"two words\n").json["text"]
        == "two words"
    )
    assert told == ["two words"]


def test_a_family_that_transformers_runs_itself_has_nothing_to_compare(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    found = ask("models", "verify", str(tmp_path))
    assert (found.code, found.out) == (4, "")
    assert (
        "'mamba' run through transformers, which keeps what their layers do to itself" in found.err
    )
    assert "attn run and attn heads run it" in found.err


def test_an_id_that_the_embedding_lacks_is_bad_input(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = ask("models", "verify", str(small_gpt2(tmp_path / "x", vocabulary=61)), "a b")
    assert (found.code, found.out) == (3, "")
    assert "the embedding has 61 rows" in found.err
