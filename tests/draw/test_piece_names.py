"""Pieces of words and characters are called by what they are pieces of, on every screen, page and
figure."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import ask
from small_gpt2 import byte_gpt2

from attncli.draw.token_names import claim, spelled_text, split_claims
from attncli.draw.view import View
from attncli.inputs.token import Token
from attncli.scan.document import FrequentLink, FrequentToken
from attncli.scan.head_screen import frequent_links, furthest_link

TEXT = "她 umpty"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A decoder whose vocabulary is bytes and a few merges: a Chinese character is three tokens."""
    return str(byte_gpt2(tmp_path_factory.mktemp("bytes") / "model", layers=1))


COMMANDS = (
    ("run", "--full"), ("run", "--query", "她"), ("run", "--generate", "2"), ("heads", "--full"),
    ("find", "--from", "umpty", "--to", "她"), ("why", "--from", "umpty", "--to", "她"), ("explain",),
    ("explain", "--query", "她"), ("explain", "--query", "umpty"), ("ablate",), ("ablate", "--query", "她"),
    ("ablate", "--target", "umpty"), ("logits",), ("logits", "--target", "umpty"), ("next", "--each"),
    ("next", "--target", "她"), ("tokens",), ("cache", "--target", "umpty"),
)  # fmt: skip


@pytest.mark.many
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_screen_shows_bytes_and_every_word_can_be_named(
    words: tuple[str, ...], lang: str, model: str
) -> None:
    command, *options = words
    for width in (60, 120):
        found = ask(command, TEXT, "--model", model, *options, "--lang", lang, width=width)
        assert found.code == 0, found.err
        assert "<0x" not in found.out


@pytest.mark.parametrize("name", ["her.html", "her.svg"])
def test_no_page_or_figure_shows_bytes(name: str, model: str, tmp_path: Path) -> None:
    option = "--html" if name.endswith("html") else "--figure"
    path = tmp_path / name
    found = ask("run", TEXT, "--model", model, "--query", "她", option, str(path))
    assert found.code == 0, found.err
    written = path.read_text("utf-8")
    assert "0xE5" not in written
    assert "她" in written


def test_a_word_of_several_tokens_says_which_of_its_places_is_meant(model: str) -> None:
    for end, place in (("她", 0), ("她:2", 4)):
        told = ask(
            "find", "她 她 umpty", "--model", model, "--from", "umpty", "--to", end, "--brief"
        )
        assert f'"她" ({place})' in " ".join(told.out.split()), told.out
    once = ask("find", TEXT, "--model", model, "--from", "umpty", "--to", "她", "--brief")
    assert '"她" (' not in once.out


def test_an_answer_names_the_word_that_a_piece_is_of(model: str) -> None:
    answers = [
        " ".join(ask("run", TEXT, "--model", model, "--query", f"#{place}", "--brief").out.split())
        for place in range(7)
    ]
    assert any('a piece of "她"' in answer for answer in answers)
    assert any('(a piece of "umpty")' in answer for answer in answers)
    chinese = ask("run", TEXT, "--model", model, "--query", "#6", "--brief", "--lang", "zh").out
    assert "的一部分" in chinese


def test_the_document_keeps_the_bytes(model: str) -> None:
    tokens = ask("run", TEXT, "--model", model, "--json").json["tokens"]
    assert [token["text"] for token in tokens[:3]] == ["<0xE5>", "<0xA5>", "<0xB9>"]
    listed = ask("tokens", TEXT, "--model", model).out
    assert [f"她 {place}/3" in listed for place in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize(
    "line",
    [
        ("ablate", TEXT),
        ("ablate", TEXT, "--each-region", "--region", "a=/umpty/", "--region", "b=/她/"),
        ("cache", TEXT, "--policy", "sinks:2,4", "--budget", "4"),
    ],
    ids=["ablate", "regions", "cache"],
)
def test_an_answer_of_several_bytes_is_shown_by_its_characters(
    line: tuple[str, ...], model: str
) -> None:
    found = ask(*line, "--model", model, "--target", "他她", width=200)
    assert found.code == 0, found.err
    assert '"他她"' in found.out


def test_a_page_of_patches_names_the_word_that_it_measures_at(model: str, tmp_path: Path) -> None:
    page = tmp_path / "patch.html"
    line = ("patch", "她 umpty", "他 umpty", "--query", "umpty", "--html", str(page))
    found = ask(*line, "--target", "x", "--model", model)
    assert found.code == 0, found.err
    assert '"umpty"' in page.read_text("utf-8")


def test_titles_of_a_derivation_name_the_word_of_a_piece() -> None:
    told = ask("explain", "dumpty sat", "--model", "minilm", "--query", "#2", "--layer", "0",
               "--head", "0")  # fmt: skip
    assert "similarity of ty (dumpty) with each key" in told.out
    assert "softmax of ty (dumpty)" in told.out


@pytest.mark.parametrize(
    ("name", "leads"),
    [
        ('"didn" (a piece of "didn\'t")', "didn"),
        ("“didn”（“didn't”的一部分）", "didn"),
        ('"a (b" (3)', "a (b"),
        ('"""', '"'),
        ("layer 1 head 2", "layer 1 head 2"),
    ],
)
def test_a_name_leads_to_its_head_without_the_note_behind_it(name: str, leads: str) -> None:
    pieces = split_claims(claim(name, View(claims=True), layer=1, head=2, key=3))
    assert [piece for piece in pieces if isinstance(piece, tuple)] == [(leads, "h=1.2&k=3")]
    assert "".join(piece if isinstance(piece, str) else piece[0] for piece in pieces) == name


def test_links_of_tables_name_the_word_of_a_piece_and_the_place_of_equal_words() -> None:
    text = "the cat saw the dumpty because the cat was tired"
    grid = ask("heads", text, "--model", "minilm", width=110).out
    assert "9 cat → 2 cat" in grid
    assert "ty (dumpty) → 4 the" in grid
    assert "6 ty (dumpty)" in ask("run", text, "--model", "minilm", "--top", "8", width=110).out
    looks = ask("find", text, "--from", "tired", "--to", "saw", "--model", "minilm", width=110).out
    assert re.search(r"1[0-9] of 11|[2-9] of 11 +(2|9) cat ", looks)
    residual = ("explain", "residual", text, "--query", "cat:2", "--model", "minilm")
    told = ask(*residual, width=200)
    assert 'the vector of "cat" (9)' in told.out
    assert '"cat" (9)' in told.err


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (((" the", 0, 4), ("umpty", 5, 10)), " the umpty"),
        ((("<0xE6><0x88>", 0, 1), ("<0x91>", 0, 1), ("爱", 1, 2)), "我爱"),
        ((("<0xE6><0x88>", 0, 1), ("爱", 1, 2)), ""),  # a part of a character spells none
        ((("[CLS]", None, None), ("did", 0, 3), ("n", 3, 4)), "didn"),
        ((("s0", None, None),), ""),  # captured states stand in no text
    ],
)
def test_a_text_is_what_its_tokens_spell(
    tokens: tuple[tuple[str, int | None, int | None], ...], text: str
) -> None:
    rows = [Token(place, spelling, place, *span) for place, (spelling, *span) in enumerate(tokens)]
    assert spelled_text(rows) == text


def test_a_scan_names_tokens_of_bytes_by_their_bytes_and_says_so() -> None:
    """Over a corpus a token of bytes is a piece of many characters: no one of them is its name."""
    link = FrequentLink(
        query=FrequentToken(id=7, text="<0xE5><0x9B>"),
        key=FrequentToken(id=8, text="，"),
        links=4,
        most=4,
        chance=0.1,
        lift=31.6,
        lift_ci95=None,
        texts=2,
        share_ci95=None,
    )
    head: Any = SimpleNamespace(layer=3, head=2, links=[link])
    shown: Any = SimpleNamespace(
        document=SimpleNamespace(done=SimpleNamespace(texts=12), link_rows=269)
    )
    screen = frequent_links(head, shown, View()).plain
    assert "0xE5 0x9B → ，" in screen
    assert "a token of bytes is a piece of any character" in screen
    assert '"0xE5 0x9B" → "，", is above chance' in furthest_link(head, View())[0]
