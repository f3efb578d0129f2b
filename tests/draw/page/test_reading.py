"""How a page is read: from the right where its text is, on a phone, on paper, in scripts without
blanks.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from browsing import Opened, opened

import attncli
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.documents import Document
from attncli.documents.reading import document_of
from attncli.draw.page import Page, answer_of, page_bytes, page_of
from attncli.draw.screen_header import screen_of
from attncli.draw.view import View
from attncli.inputs.tokenize import tokenizer
from attncli.measure.labels import LABELS
from attncli.measure.run_record import run_record
from attncli.models.one_layer import Settings, seeded_model

SAMPLES = Path(__file__).parents[3] / "sample_inputs"


def written(folder: Path, page: Page) -> Path:
    file = folder / "page.html"
    file.write_bytes(b"".join(page_bytes(page)))
    return file


def seeded_page(folder: Path, text: str, **settings: Any) -> Path:
    chosen = Settings(**{"d_model": 16, "heads": 2, **settings})
    model = seeded_model(chosen, 0, "seeded", tokenizer("whitespace"), NumpyBackend("float32"))
    return written(folder, Page(text, [run_record(model, text, model.encode(text))]))


def test_the_list_of_keys_closes_on_a_phone(chromium: Any, tmp_path: Path) -> None:
    window = opened(chromium, seeded_page(tmp_path, "a b c"), has_touch=True)
    window.page.set_viewport_size({"width": 390, "height": 640})
    is_open = "() => document.querySelector('#help').open"
    for way in ("#help-close", "beside"):
        window.page.tap("#help-open")
        window.until(is_open)
        left, right = window.value(
            "() => ['left', 'right'].map((side) => document.querySelector('#help').getBoundingClientRect()[side])"
        )
        assert 0 <= left < right <= 390
        if way == "beside":
            window.page.touchscreen.tap(195, 632)
        else:
            window.page.tap(way)
        assert not window.value(is_open)
    window.clean()
    window.page.context.close()


ARABIC = "لم يعبر الحيوان الشارع لأنه كان متعبا جدا"
HEBREW = "החיה לא חצתה את הרחוב כי היא הייתה עייפה"


@pytest.mark.many
@pytest.mark.parametrize("text", [ARABIC, HEBREW])
def test_what_is_written_from_the_right_is_read_from_the_right(
    chromium: Any, tmp_path: Path, text: str
) -> None:
    model = attncli.load("minilm")
    file = written(tmp_path, Page(text, [run_record(model, text, model.encode(text))]))
    window = opened(chromium, file)
    assert window.value("() => document.querySelector('#sentence').dir") == "rtl"
    places = window.value(
        "() => [...document.querySelectorAll('#sentence .w')].map((one) => one.getBoundingClientRect().left)"
    )
    assert places == sorted(places, reverse=True)
    # pieces of a word join: the line is as wide as the same text written without pieces
    wide = window.value("""(text) => {
      const line = document.querySelector('#sentence');
      document.querySelectorAll('#sentence .special').forEach((one) => one.remove());
      document.querySelectorAll('#sentence .w').forEach((one) => (one.style.padding = '0'));
      const measure = () => {
        const range = document.createRange();
        range.selectNodeContents(line);
        const {left, right} = range.getBoundingClientRect();
        return right - left;
      };
      const pieces = measure();
      line.textContent = line.textContent.trim();
      return [pieces, measure()];
    }""")
    assert wide[0] == pytest.approx(wide[1], abs=14)
    window.page.focus("#sentence")
    window.value("() => attn.choose({query: 3})")
    window.page.keyboard.press("ArrowLeft")
    assert window.value("attn.state.query") == 4
    window.page.context.close()


def test_a_word_from_the_right_leaves_the_number_behind_it_in_its_place() -> None:
    document = document_of(ask("run", "א ב ג א ב א", "--mask", "causal", "--json").json, "run")
    answer = "".join(
        piece for text in answer_of(document)["en"] for piece in text if isinstance(piece, str)
    )
    assert re.search('"\u2068[אבג]\u2069"', answer)


BOTH = {
    "arabic": (ARABIC, ARABIC.replace("متعبا", "واسعا")),
    "hebrew": (HEBREW, HEBREW.replace("עייפה", "רחבה")),
    "chinese": ("动物 没有 过 马路", "动物 没有 过 大 马路"),
    "emoji": ("the 🐈 sat on 👩‍👩‍👧", "the 🐕 sat on 👩‍👩‍👧"),
}


CUT = """() => [...document.querySelectorAll('pre span, pre')]
    .filter((part) => part.tagName === 'SPAN' || document.querySelector('.reading'))
    .filter((part) => part.getBoundingClientRect().width)
    .filter((part) => part.getBoundingClientRect().right > document.documentElement.clientWidth
        || (part.tagName === 'PRE' && part.scrollWidth > part.clientWidth + 1))
    .map((part) => part.textContent.slice(0, 80))"""
"""Commands of a course that run past the window, and screens of a topic that do."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line",
    [
        ("guide", "lessons"),
        *(("explain", topic) for topic in ("qkv", "order", "mask", "scaling", "residual")),
    ],
    ids=" ".join,
)
def test_no_command_and_no_screen_is_cut_on_a_phone(
    line: tuple[str, ...], chromium: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    for lang in ("en", "zh"):
        assert ask(*line, "--html", str(file), "--lang", lang).code == 0
        window = opened(chromium, file, drawn="() => document.querySelector('pre').textContent")
        for width in (400, 861, 1280):
            window.page.set_viewport_size({"width": width, "height": 860})
            assert window.value("() => document.documentElement.scrollWidth") <= width
            assert window.value(CUT) == [], width
        window.page.context.close()


def test_a_screen_stands_on_a_page_for_wide_and_narrow_windows(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert ask("explain", "scaling", "--html", str(file)).code == 0
    page = file.read_text("utf-8")
    for kind, most in (("wide", 100), ("narrow", 44)):
        screens = re.findall(f'<pre class="{kind}">(.*?)</pre>', page, re.DOTALL)
        assert len(screens) == 2  # in either language
        lines = re.sub("<[^>]+>", "", html.unescape(screens[0])).splitlines()
        assert most - 15 < max(map(len, lines)) <= most


@pytest.mark.thorough
def test_both_texts_of_a_comparison_fit_phone_screen_and_paper(
    chromium: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    for name, texts in BOTH.items():
        answer = ask("compare", *texts, "--tokenizer", "whitespace", "--html", str(file))
        assert answer.code == 0, answer.err
        window = opened(chromium, file)
        columns = window.until("() => document.querySelectorAll('#sentence .column').length")
        assert columns == 1 + max(len(text.split()) for text in texts), name
        assert window.value("() => document.querySelectorAll('.w.alone').length") == (
            1 if name == "chinese" else 2
        )
        way = "rtl" if name in ("arabic", "hebrew") else "ltr"
        assert window.value("() => document.querySelector('#sentence').dir") == way
        for wide in (390, 1920):
            window.page.set_viewport_size({"width": wide, "height": 900})
            assert window.value("() => document.documentElement.scrollWidth") <= wide, (name, wide)
        rows = "() => ['w', 'v'].map((side) => document.querySelector(`#${side}0`).getBoundingClientRect().top)"
        above, below = window.value(rows)
        assert above < below
        window.page.emulate_media(media="print")
        assert (
            window.value("() => getComputedStyle(document.querySelector('#share')).display")
            == "none"
        )
        window.clean()
        window.page.context.close()


def test_a_link_of_two_arabic_words_keeps_its_direction(chromium: Any, tmp_path: Path) -> None:
    window = opened(chromium, seeded_page(tmp_path, ARABIC))
    window.value("() => attn.choose({view: 'search'})")
    window.until("() => document.querySelectorAll('#view .found li').length")
    said = window.value("() => document.querySelector('#view .note').textContent")
    assert said.count("\u2068") == said.count("\u2069") == 2
    window.clean()
    window.page.context.close()


@pytest.mark.thorough
def test_a_page_without_blanks_begins_at_a_link_of_two_words(chromium: Any, tmp_path: Path) -> None:
    model = attncli.load("minilm")
    for at, text in enumerate(("中国人的大学", "她吃苹果，他吃香蕉", "吃吃吃")):
        (tmp_path / str(at)).mkdir()
        file = written(
            tmp_path / str(at), Page(text, [run_record(model, text, model.encode(text))])
        )
        window = opened(chromium, file)
        words = [word[0] for word in window.value("attn.meta.runs[0].q")]
        query, key = window.value("[attn.state.query, attn.state.key]")
        assert "[CLS]" not in (words[query], words[key])
        assert query != key or at == 2  # of words that are all unknown, no link counts
        window.page.context.close()


def test_a_long_page_on_paper_lays_nothing_over_anything(chromium: Any, tmp_path: Path) -> None:
    window = opened(chromium, seeded_page(tmp_path, " ".join(f"word{at}" for at in range(500))))
    window.page.set_viewport_size({"width": 794, "height": 1123})
    window.page.emulate_media(media="print")
    bottom, top = window.value("""() => [
      document.querySelector('#sentence').lastElementChild.getBoundingClientRect().bottom,
      document.querySelector('#grid').getBoundingClientRect().top]""")
    assert bottom < top
    window.page.context.close()


TIRED = "The animal didn't cross the street because it was too tired"


def answered_pages() -> dict[str, Document]:
    """Documents of several kinds about one sentence."""
    model = attncli.load("minilm")
    return {
        "run": attncli.run(model, TIRED, query="it"),
        "find": attncli.find(model, TIRED, "it", "animal"),
        "ablate": attncli.ablate(model, TIRED, query="it"),
    }


@pytest.mark.thorough
def test_the_answer_stands_below_the_sentence_and_leads_to_what_it_names(
    chromium: Any, tmp_path: Path
) -> None:
    for name, document in answered_pages().items():
        page = page_of(document)
        assert page is not None
        (tmp_path / name).mkdir()
        window = opened(chromium, written(tmp_path / name, page))
        sentences = screen_of(document.schema).sentences
        assert sentences is not None
        for lang in ("en", "zh"):
            window.value("(lang) => attn.choose({lang})", lang)
            shown = window.value(
                "() => [...document.querySelectorAll('#answer p')].map((one) => one.textContent)"
            )
            assert shown == [text for text in sentences(document, View(lang=lang)) if text]
        claims = [
            piece
            for sentence in page.answer["en"]
            for piece in sentence
            if not isinstance(piece, str)
        ]
        assert claims
        # it opens where the first claim leads, and each claim is a way to its head and words
        window.value("() => attn.choose({lang: 'en'})")
        assert leads_to(window, claims[0][1])
        for number, (text, target) in enumerate(claims):
            window.value("() => attn.choose({head: 0, query: 0, key: 0})")
            assert window.page.locator(".claim").nth(number).text_content() == text
            window.page.locator(".claim").nth(number).click()
            assert leads_to(window, target)
        window.clean()
        window.page.context.close()


def leads_to(window: Opened, target: str) -> bool:
    """Whether the page shows what a claim names."""
    layer, head, *ends = window.value(
        "() => (({l, h}, {query, key}) => [l, h, query, key])(attn.meta.runs[0].heads[attn.state.head], attn.state)"
    )
    shown = {"h": f"{layer}.{head}", "q": str(ends[0]), "k": str(ends[1])}
    return all(
        shown[name] == place for name, place in (part.split("=") for part in target.split("&"))
    )


def test_labels_heads_and_tiles_say_what_they_are(chromium: Any, tmp_path: Path) -> None:
    page = page_of(attncli.heads(attncli.load("minilm"), TIRED, layers=[2]))
    assert page is not None
    window = opened(chromium, written(tmp_path, page), has_touch=True)
    window.value("() => attn.choose({lang: 'en', head: 1})")
    said = (
        "() => [...document.querySelectorAll('.meaning')].map((one) => one.textContent).join('|')"
    )
    for way, begins in (
        (".label", "On average at least 0.3 of a word's weight rests on the first token."),
        ("#chosen", "A head is one of the model's ways to look"),
        ("#heads-title", "Each tile is one head's matrix"),
    ):
        window.page.tap(way)
        assert window.value(said).startswith(begins)
        assert window.page.locator(way).first.get_attribute("aria-expanded") == "true"
    window.page.tap("#heads-title")
    assert window.value(said) == ""
    # the keyboard needs no more than to come by
    window.page.locator("#chosen").focus()
    window.page.keyboard.press("Tab")
    assert "not what it is for" in window.value(said)
    window.page.keyboard.press("Enter")
    assert window.value(said) == ""
    window.value("() => attn.choose({head: 0})")
    assert window.value(said) == ""
    window.clean()
    window.page.context.close()


def test_every_label_has_a_meaning(chromium: Any, tmp_path: Path) -> None:
    window = opened(chromium, seeded_page(tmp_path, "a b c"))
    for lang in ("en", "zh"):
        meanings = [
            window.value(f"() => attn.meta.words.{lang}[{f'means.{name}'!r}]") for name in LABELS
        ]
        assert len(set(meanings)) == len(LABELS)
        assert all(
            str(label.threshold) in text
            for label, text in zip(LABELS.values(), meanings, strict=True)
        )
    window.page.context.close()


def test_links_axes_and_lines_name_pieces_with_their_word_and_equal_words_by_number(
    chromium: Any, tmp_path: Path
) -> None:
    """The names of a link and of the chosen row and column, of a comparison of two seeded runs."""
    pieces = tokenizer(str(SAMPLES / "tokenizer.json"))
    text = "cat by cat"
    runs = [
        run_record(model, text, model.encode(text), name=name)
        for seed, name in ((0, "A"), (1, "B"))
        for model in [
            seeded_model(
                Settings(d_model=16, heads=1), seed, "seeded", pieces, NumpyBackend("float32")
            )
        ]
    ]
    places = list(range(len(runs[0].sides.queries)))
    window = opened(chromium, written(tmp_path, Page(text, runs, pairs=(places, places))))
    words = [word[0] for word in window.value("attn.meta.runs[0].q")]
    assert words == ["[CLS]", "c", "a", "t", "␣", "b", "y", "␣", "c", "a", "t", "[SEP]"]
    window.value("() => attn.choose({ query: 10, key: 3, view: 'difference' })")
    at_axes = (
        "[...document.querySelectorAll('.plot .asks, .plot .asked')].map((one) => one.textContent)"
    )
    assert window.until(f"() => {at_axes}.join(' | ') === 't (cat) | t (cat)'")
    pair = window.until("() => document.querySelector('#view p.pair')?.firstChild.textContent")
    assert pair == "t (cat):2 → t (cat)"
    listed = window.until("() => document.querySelectorAll('#view .found button').length") and (
        window.value(
            "[...document.querySelectorAll('#view .found button')].map((one) => one.firstChild.textContent)"
        )
    )
    ends = {end for name in listed for end in name.split(" → ")}
    assert ends <= {
        *("c (cat)", "a (cat)", "t (cat)", "b (by)", "y (by)", "[CLS]", "[SEP]", "␣"),
        *("c (cat):2", "a (cat):2", "t (cat):2", "␣:2"),
    }
    assert len(set(listed)) == len(listed) > 3
    said = window.value("() => document.querySelector('#said').textContent")
    assert '"t (cat):2" looks at "t (cat)"' in said
    window.clean()
    window.page.context.close()


@pytest.mark.thorough
def test_a_piece_is_named_with_its_word_and_found_again_by_that(
    chromium: Any, tmp_path: Path
) -> None:
    model = attncli.load("minilm")
    text = "dumpty sat by dumpty"
    file = written(tmp_path, Page(text, [run_record(model, text, model.encode(text))]))
    window = opened(chromium, file)
    words = [word[0] for word in window.value("attn.meta.runs[0].q")]
    assert words == ["[CLS]", "dump", "ty", "sat", "by", "dump", "ty", "[SEP]"]
    window.value("attn.choose({ query: 6, key: 3, view: 'search' })")
    window.until("() => document.querySelector('#view input')?.value")
    named = window.value("[...document.querySelectorAll('#view input')].map((one) => one.value)")
    assert named == ["ty (dumpty):2", "sat"]
    window.until("() => document.querySelector('#view [aria-live]').textContent.includes('sat')")
    window.clean()
    window.page.context.close()
