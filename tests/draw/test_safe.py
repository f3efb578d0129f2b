"""Nothing that `safe` returns can act on a terminal, and widths agree with what terminals draw."""

import re
import unicodedata
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from hypothesis import given, settings
from hypothesis import strategies as st

import attncli.language
from attncli.draw.safe import cells, clusters, cut, label, pad, safe, safe_html, spell

# Every code point, surrogates included, with what makes terminals misbehave well represented.
NASTY = "\x00\x07\x08\t\n\r\x1b\x7f\x80\x85\x90\x9b\x9d\xad\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a"
NASTY += "\u202e\u2060\u2066\u2069\ufeff"
NASTY += "\ufe0e\ufe0f\U000e0041\U000e0100\u3164\u115f\u0301\ud800\udc80\ue000\U0001f3fd\U0001f468\U0001f1e9[]/א你e1"
TEXTS = st.text(st.one_of(st.characters(codec=None), st.sampled_from(NASTY)), max_size=30)
INVISIBLE = {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}


@settings(deadline=None, max_examples=300)
@given(TEXTS)
def test_no_character_that_acts_survives(text: str) -> None:
    shown = safe(text)
    for at, char in enumerate(shown):
        assert unicodedata.category(char) not in INVISIBLE
        if unicodedata.category(char) == "Cf":  # only inside an emoji
            assert at > 0
            assert char == "\u200d" or 0xE0061 <= ord(char) <= 0xE007F
    shown.encode("utf-8")
    assert safe(shown) == shown


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_ascii_is_ascii_and_printable(text: str) -> None:
    for shown in (safe(text, ascii=True), label(text, ascii=True)):
        assert shown.isascii()
        assert shown.isprintable()


@pytest.mark.parametrize(
    ("text", "shown", "ascii"),
    [
        ("a\x1b[31m", "a␛[31m", "a\\x1b[31m"),
        ("a\nb\tc\rd", "a␊b␉c␍d", "a\\nb\\tc\\rd"),
        ("\x9b2J\x7f", "\\u{9b}2J␡", "\\u{9b}2J\\x7f"),
        ("a\u202eb", "a\\u{202e}b", "a\\u{202e}b"),
        ("x\u200dy", "x\\u{200d}y", "x\\u{200d}y"),
        ("\udc80", "\\u{dc80}", "\\u{dc80}"),
        ("\u0301a", "◌\u0301a", "\\u{301}a"),
        ("a\ufe0f", "a\\u{fe0f}", "a\\u{fe0f}"),
        ("[bold]é[/bold]", "[bold]é[/bold]", "[bold]\\u{e9}[/bold]"),
        ("👨‍👩‍👧", "👨‍👩‍👧", "\\u{1f468}\\u{200d}\\u{1f469}\\u{200d}\\u{1f467}"),
        ("1️⃣❤️👍🏽", "1️⃣❤️👍🏽", "1\\u{fe0f}\\u{20e3}\\u{2764}\\u{fe0f}\\u{1f44d}\\u{1f3fd}"),
        ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",) * 2 + (
            "\\u{1f3f4}\\u{e0067}\\u{e0062}\\u{e0065}\\u{e006e}\\u{e0067}\\u{e007f}",
        ),
        ("🏴\U000e0068\U000e0069\U000e007f", "🏴\\u{e0068}\\u{e0069}\\u{e007f}",
        "\\u{1f3f4}\\u{e0068}\\u{e0069}\\u{e007f}"),
    ],
)  # fmt: skip
def test_examples(text: str, shown: str, ascii: str) -> None:
    assert safe(text) == shown
    assert safe(text, ascii=True) == ascii


def test_plain_text_is_left_alone() -> None:
    for text in (
        "The animal didn't",
        "今天我的计划",
        "שלום مرحبا",
        "नमस्ते ไทย 한국어",
        "naïve e\u0301",
    ):
        assert safe(text) == text


def test_marks_are_bounded() -> None:
    assert safe("a" + "\u0301" * 10) == "a" + "\u0301" * 8 + "\\u{301}" * 2


def test_widths() -> None:
    texts = {
        "abc": 3,
        "你好": 4,
        "e\u0301": 1,
        "👨‍👩‍👧": 2,
        "❤️": 2,
        "1️⃣": 2,
        "🇩🇪": 2,
        "👍🏽": 2,
        "한": 2,
        "שלום": 4,
        "नि": 1,
        "": 0,
    }
    assert {text: cells(text) for text in texts} == texts


@settings(deadline=None, max_examples=300)
@given(TEXTS, st.integers(0, 20), st.booleans())
def test_cut_and_pad_keep_to_the_width(text: str, width: int, ascii: bool) -> None:
    shown = safe(text, ascii=ascii)
    assert cells(cut(shown, width, ascii=ascii)) <= width
    assert "".join(clusters(shown)) == shown
    assert sum(map(cells, clusters(shown))) == cells(shown)
    for side in ("left", "right", "center"):
        assert cells(pad(cut(shown, width, ascii=ascii), width, side)) == width


def test_cut_does_not_tear() -> None:
    assert [cut("今天我的", width) for width in range(1, 9)] == [
        "…",
        "…",
        "今…",
        "今…",
        "今天…",
        "今天…",
        "今天我…",
        "今天我的",
    ]
    assert cut("👨‍👩‍👧👨‍👩‍👧", 3) == "👨‍👩‍👧…"
    assert cut("e\u0301e\u0301e\u0301", 2) == "e\u0301…"
    assert cut("abcdef", 4, ascii=True) == "abc~"


def test_labels_show_blanks() -> None:
    assert [label(text) for text in ("", " ", " a", "a ", "a b")] == ['""', "␣", "␣a", "a␣", "a b"]
    assert label(" a", ascii=True) == "_a"


def test_html_is_escaped_and_inert() -> None:
    assert (
        safe_html('<a href="x">\'&\x1b\u202e')
        == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;␛\\u{202e}"
    )


def test_a_long_text_without_blanks_takes_linear_time() -> None:
    text = "你\u200d" * 50_000
    assert len(safe(text)) == 50_000 * (1 + len("\\u{200d}"))


def test_every_sign_of_an_english_sentence_has_a_spelling_in_ascii() -> None:
    with (Path(attncli.language.__path__[0]) / "zh.po").open("rb") as file:
        catalogue = read_po(file)
    texts = [
        text
        for entry in catalogue
        for text in (entry.id if isinstance(entry.id, tuple | list) else (entry.id,))
    ]
    assert len(texts) > 4000
    han = re.compile("[\u3400-\u9fff]")  # examples in Chinese are data
    plain = [spell(text, ascii=True) for text in texts if not han.search(text)]
    assert [text for text in plain if "\\u{" in text] == []
    assert spell("Cliff's δ", ascii=True) == "Cliff's delta"
