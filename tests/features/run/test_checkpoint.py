"""`attn run` and `attn find` on a checkpoint of several layers and heads: what is shown, against
loops over its own weights."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from tiny_checkpoints import CASES, make

TEXT = "cats saw it and it saw cats"
VOCABULARY = ["[UNK]", "[CLS]", "[SEP]", "cat", "##s", "saw", "it", "and", "sleep", "##ing"]
BESIDE = (-1, 0, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A decoder of three layers, two of them windowed, that reads [CLS], words in pieces, [SEP]."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    path = make(CASES["gemma2"], tmp_path_factory.mktemp("gemma2"))
    made = Tokenizer(WordPiece({name: at for at, name in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    made.add_special_tokens(["[CLS]", "[SEP]"])
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.save(str(path / "tokenizer.json"))
    return str(path)


def weights_of(document: Any) -> dict[tuple[int, int], list[list[float]]]:
    return {
        (layer["layer"], head["head"]): head["weights"]
        for layer in document["layers"]
        for head in layer["heads"]
    }


def informative(tokens: list[Any], query: int, key: int) -> bool:
    return (
        not tokens[query]["special"]
        and not tokens[key]["special"]
        and key != 0
        and key - query not in BESIDE
    )


@pytest.mark.parametrize("words", [False, True])
def test_links_overview_and_average_are_those_of_the_weights(folder: str, words: bool) -> None:
    options = ("--model", folder, "--json", "--dtype", "float64", *(("--words",) if words else ()))
    document = ask("run", TEXT, *options, "--top", "5").json
    every, tokens = weights_of(document), document["tokens"]
    assert len(every) == 18
    found = [
        (-weight, *place, query, key)
        for place, rows in every.items()
        for query, row in enumerate(rows)
        for key, weight in enumerate(row)
        if weight > 0 and informative(tokens, query, key)
    ]
    links = [
        (-link["weight"], link["layer"], link["head"], link["query"], link["key"])
        for link in document["links"]
    ]
    assert links == sorted(found)[:5]
    for entry in document["overview"]:
        largest = max(
            (-link[0] for link in found if link[1:3] == (entry["layer"], entry["head"])),
            default=None,
        )
        assert (None if entry["link"] is None else entry["link"]["weight"]) == largest
    average = ask("run", TEXT, *options, "--query", "it:2").json["average"]
    row = next(token["index"] for token in reversed(tokens) if token["text"] == "it")
    assert average == pytest.approx(
        [sum(rows[row][key] for rows in every.values()) / 18 for key in range(len(tokens))]
    )


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_picture_holds_every_head_and_leaves_the_screen_as_it_is(
    folder: str, tmp_path: Path
) -> None:
    path = tmp_path / "all.svg"
    for more in ((), ("--query", "it:2"), ("--words",), ("--show", "links")):
        without = ask("run", TEXT, "--model", folder, *more)
        drawn = ask("run", TEXT, "--model", folder, *more, "--svg", str(path))
        assert (drawn.code, drawn.out) == (0, without.out), drawn.err
        assert sum(f">L1H{head}<" in path.read_text() for head in range(7)) == 6
        ET.parse(path)


def test_a_document_without_weights_is_not_drawn_again(folder: str, tmp_path: Path) -> None:
    saved = tmp_path / "links.json"
    assert (
        ask("run", TEXT, "--model", folder, "--show", "links", "--json", "-o", str(saved)).code == 0
    )
    answer = ask("view", str(saved), "--svg", str(tmp_path / "links.svg"))
    assert answer.code == 3
    assert "no weights to draw" in answer.err
    assert not (tmp_path / "links.svg").exists()


def test_what_was_saved_of_merged_words_are_the_pieces(folder: str, tmp_path: Path) -> None:
    path = str(tmp_path / "all.safetensors")
    assert (
        ask("run", TEXT, "--model", folder, "--words", "--query", "cats:2", "--save", path).code
        == 0
    )
    whole = ask("run", TEXT, "--model", folder, "--show", "tokens,overview,links").out
    assert ask("view", path, "--show", "tokens,overview,links").out == whole


def test_links_of_several_heads_say_which_even_if_all_are_of_one(folder: str) -> None:
    document = ask("run", TEXT, "--model", folder, "--all-links", "--json", "--top", "1").json
    (link,) = document["links"]
    shown = ask("run", TEXT, "--model", folder, "--all-links", "--show", "links", "--top", "1").out
    assert f"L{link['layer']} H{link['head']}" in shown


def test_masks_that_differ_name_their_layers(folder: str) -> None:
    says = ask("run", TEXT, "--model", folder, "--json", "--show", "header").json["attention"][
        "mask_says"
    ]
    assert says.startswith("layers 0, 2: a query sees itself and the 4 keys before it: 5 keys")
    assert "; layer 1: a query sees itself and the keys before it" in says


def test_what_words_do_not_have_is_said(folder: str) -> None:
    options = ("--model", folder, "--words", "--layer", "1", "--head", "0,1")
    shown = ask("run", TEXT, *options, "--show", "scores,weights,output", "--full").out
    assert (
        shown.count("words have no scores: only weights are merged")
        == shown.count("words have no output: ")
        == 1
    )
    assert shown.count("weights  layer 1 head") == 2
    assert "words have no" not in ask("run", TEXT, *options).out
    assert ask("run", TEXT, *options, "--stages", "all", "--json").code == 2


def test_what_is_left_out_is_said_once_with_either_part(folder: str) -> None:
    for parts in ("overview", "links", "overview,links"):
        assert (
            ask("run", TEXT, "--model", folder, "--show", parts).out.count(
                "left out: special tokens"
            )
            == 1
        )
    assert (
        "left out"
        not in ask("run", TEXT, "--model", folder, "--show", "overview", "--all-links").out
    )


def test_merged_words_are_said_to_be_words(folder: str) -> None:
    shown = ask("run", TEXT, "--model", folder, "--words", "--show", "header,tokens").out
    assert "11 tokens merged to 9 words" in shown
    assert "9 words  special: 0, 8" in shown
    assert (
        "11 tokens  special: 0, 10" in ask("run", TEXT, "--model", folder, "--show", "tokens").out
    )


def test_a_batch_says_what_it_was_computed_in(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "attncli.models.model.compute_dtype",
        lambda spec, count, dtype: "float64" if count < 6 else dtype,
    )

    def told(*lines: str) -> list[str | None]:
        given = ask(
            "run",
            "--lines",
            "--padded",
            "--ndjson",
            "--model",
            folder,
            stdin="\n".join(lines).encode(),
        ).out
        return [json.loads(line)["attention"].get("compute_dtype") for line in given.splitlines()]

    assert told("it saw", "it and") == ["float64"] * 2
    assert told("it saw", TEXT) == [None] * 2


def test_heads_named_with_their_layers(folder: str) -> None:
    shown = weights_of(ask("run", "--model", folder, TEXT, "--head", "L2H1,L0H1", "--json").json)
    apart = weights_of(
        ask("run", "--model", folder, TEXT, "--layer", "0,2", "--head", "1", "--json").json
    )
    assert shown == apart
    assert set(shown) == {(0, 1), (2, 1)}
    refused = ask("run", "--model", folder, TEXT, "--head", "L2H1,L0H0")
    assert (refused.code, refused.out) == (2, "")
    assert "names other heads in each layer" in refused.err
    assert "where: --head" in refused.err
    assert "try: --head L2H1" in refused.err
    style = ("--figure", "f.svg", "--figure-style", "notitle")
    refused = ask("run", "--model", folder, TEXT, "--head", "L2H1+L0H0", *style)
    assert "try: --figure-style notitle,heads=L2H1+L0H0" in refused.err
