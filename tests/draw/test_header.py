"""The top of a screen: what ran, in words, and on which tokens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from asking import ask
from draw import documents
from draw.shown import header, loose

from attncli.draw.screen_header import tokens_part
from attncli.draw.view import View

SAMPLES = Path(__file__).parents[2] / "sample_inputs"


def worded() -> dict[str, Any]:
    """A document about two words of three pieces."""
    document = documents.run(["cats", "sleep"])
    return {**document, "pieces": documents.run(["cat", "##s", "sleep"])["tokens"]}


def test_special_tokens_are_named_where_there_is_no_italic() -> None:
    tokens = documents.run(["[CLS]", "a", "[SEP]"])["tokens"]
    assert tokens_part(loose(tokens), View()).plain.splitlines()[0] == "3 tokens"
    for at in (0, 2):
        tokens[at]["special"] = True
    assert tokens_part(loose(tokens), View()).plain.splitlines()[0] == "3 tokens  special: 0, 2"


def test_merged_words_are_called_words_and_said_to_be_merged() -> None:
    assert (
        "3 tokens merged to 2 words · weights to a word are added up, weights from it averaged"
        in " ".join(header(worded(), View(width=120)).plain.split())
    )
    assert "merged" not in header(documents.run(), View()).plain
    assert tokens_part(loose(worded()["tokens"]), View(), noun="word").plain.startswith("2 words\n")


def test_the_mask_is_said_in_words_at_every_width() -> None:
    document = documents.run(causal=True)
    says = "layers 0, 2: a query sees itself and the 3 keys before it: 4 keys, its own included (i − 3 ≤ j ≤ i)"
    document["attention"]["mask_says"] = says
    for width in (40, 60, 80):
        shown = header(document, View(width=width)).plain
        assert says in " ".join(shown.split())
        assert max(map(len, shown.splitlines())) <= width
    # a saved mask of any length is not searched without end
    document["attention"]["mask"] = "(" * 200_000
    started = time.process_time()
    header(document, View(width=80))
    assert time.process_time() - started < 2
    document["attention"]["mask"] = "none"
    assert "a query" not in header(document, View()).plain


def test_conventions_of_a_run() -> None:
    document = ask("run", "a b c", "--mask", "window:2", "--json").json
    assert (
        document["attention"]["mask_says"]
        == "a query sees itself and the key before it: 2 keys, its own included (i − 1 ≤ j ≤ i)"
    )
    assert document["attention"]["mask_says"] in " ".join(
        ask("run", "a b c", "--mask", "window:2").out.split()
    )
    assert (
        ask("run", "a b c", "--json").json["attention"]["mask_says"] == "every query sees every key"
    )


def test_a_wider_type_that_was_computed_in_is_said() -> None:
    document = documents.run()
    assert "numpy float32" in header(document, View()).plain
    document["attention"]["compute_dtype"] = "float64"
    assert "numpy float64" in header(document, View()).plain


def test_a_scale_is_told_by_its_root_with_its_value_where_that_is_short() -> None:
    document = documents.run()
    for d_k, told in ((64, "scale 0.125 = 1/√64"), (32, "scale 1/√32"), (8, "scale 1/√8")):
        document["model"] |= {"d_k": d_k, "d_v": d_k}
        document["attention"]["scale"] = d_k**-0.5
        assert f" · {told} · " in header(document, View()).plain
    document["attention"]["scale"] = 0.3
    assert " · scale 0.3 · " in header(document, View()).plain


def test_what_ran_takes_three_lines_of_eighty_cells() -> None:
    lines = ask("run", "--model", "minilm", "it was too tired", "--show", "header").out.splitlines()
    assert lines == [
        "it was too tired",
        "minilm · bert · learned · 6 layers × 12 heads · mask none · position learned",
        "6 tokens · d_model 384 · d_k = d_v = 32 · scale 1/√32 · numpy float64",
    ]


def test_what_a_weight_file_lacks_is_named() -> None:
    """Each kind of vector that is drawn from the seed is named, and no other."""
    single = ("run", "a b", "--weights", str(SAMPLES / "single_head.pt"), "--show", "header")
    whole = ("run", "humpty", "--weights", str(SAMPLES / "humpty.safetensors"), "--show", "header")
    learned = ("--position", "learned")

    def shown(*words: str) -> str:
        return " ".join(ask(*words, width=200).out.split())

    assert "not in the file: word vectors X (seeded, seed 0)" in shown(*single)
    both = "not in the file: word vectors X, position vectors P (seeded, seed 3)"
    assert both in shown(*single, *learned, "--seed", "3")
    assert "not in the file: position vectors P (seeded, seed 0)" in shown(*whole, *learned)
    assert "not in the file" not in shown(*whole)
