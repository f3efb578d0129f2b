"""The page of `attn answer`: what it holds, and how it is read in Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from browsing import axe_core
from draw import documents
from msgspec.structs import replace

from attncli.documents.reading import document_of
from attncli.draw.encoding import json_pieces
from attncli.draw.page import any_page
from attncli.draw.page.page_frame import page_script
from attncli.features.answer.document import AnswerDocument, AnswerSubsets, SubsetWeight
from attncli.features.answer.page import SCRIPTS

AXE = """async () => (await axe.run({rules: {'target-size': {enabled: true}}})).violations
  .map(({id, nodes}) => [id, nodes[0].html])"""


def answer_document(**sizes: Any) -> AnswerDocument:
    document = document_of(documents.answer(**sizes), "test")
    assert isinstance(document, AnswerDocument)
    return document


def page_text(document: AnswerDocument, lang: str = "en") -> str:
    return b"".join(any_page(document, lang=lang)).decode()


def meta_of(document: AnswerDocument) -> dict[str, Any]:
    page = page_text(document)
    return json.loads(page.partition('id="meta">')[2].partition("</script>")[0])


def test_it_holds_the_prompt_in_bands_and_every_number() -> None:
    document = answer_document(regions=4, sentences=3)
    meta = meta_of(document)
    assert "".join(text for _, text in meta["bands"]) == document.text
    assert [places for places, _ in meta["bands"]] == [[0], [1], [2], [3]]
    assert [text.split() for _, text in meta["bands"]] == [
        [document.tokens[place].text for place in document.regions[effect.region].tokens]
        for effect in document.effects
    ]
    assert "".join(text + gap for text, gap in meta["sentences"]) == document.answer.text
    for entry, effect in zip(meta["regions"], document.effects, strict=True):
        assert entry["change"] == pytest.approx(effect.change, rel=1e-4)
        assert entry["bySentence"] == pytest.approx(list(effect.by_sentence), rel=1e-4)
    assert [entry["name"]["zh"] for entry in meta["regions"]][-1] == "其余"
    assert meta["regions"][0]["random"] == "0.04"
    assert meta["regions"][0]["subsets"] is None
    assert not meta["folds"]


def test_subsets_have_a_column_and_long_prompts_fold() -> None:
    document = answer_document(words=["word"] * 61, regions=3, sentences=1)
    weights = [SubsetWeight(region=1, weight=0.5), SubsetWeight(region=0, weight=-0.25)]
    subsets = AnswerSubsets(
        fitted=8,
        tested=4,
        penalty=0.1,
        intercept=0.0,
        weights=weights,
        lds=None,
        low=None,
        high=None,
    )
    meta = meta_of(replace(document, subsets=subsets))
    assert [entry["subsets"] for entry in meta["regions"]] == ["−0.25", "+0.50", None]
    assert meta["folds"]


def test_shared_tokens_and_tokens_without_places_are_written() -> None:
    document = answer_document(regions=3, sentences=1)
    first, second, rest = document.regions
    shared = replace(document, regions=[first, replace(second, tokens=[2, *second.tokens]), rest])
    assert [places for places, _ in meta_of(shared)["bands"]] == [[0], [0, 1], [1], [2]]
    tokens = [replace(token, start=None, end=None) for token in document.tokens]
    bands = meta_of(replace(document, tokens=tokens))["bands"]
    assert " ".join(text for _, text in bands) == document.text


def hostile() -> AnswerDocument:
    """A document whose every text is HTML."""
    mark = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"
    document = answer_document(words=[mark] * 6, regions=3, sentences=2)
    regions = [replace(document.regions[0], name=mark), *document.regions[1:]]
    sentences = [replace(sentence, text=mark) for sentence in document.answer.sentences]
    written = replace(document.answer, text=f"{mark} {mark}", sentences=sentences)
    return replace(document, regions=regions, answer=written)


def test_texts_are_only_ever_text() -> None:
    page = page_text(hostile())
    assert "<img" not in page
    assert page.count("<script") == 2
    assert len(page_script("answer").encode()) <= 11_000
    assert not re.search(r"innerHTML|insertAdjacent|\beval\(", page_script(*SCRIPTS))


@pytest.mark.thorough
def test_it_is_read_with_mouse_and_keys(chromium: Any, tmp_path: Path) -> None:
    document = answer_document(words=["banana"] * 240, regions=4, sentences=3)
    saved, file = tmp_path / "answer.json", tmp_path / "answer.html"
    saved.write_bytes(b"".join(json_pieces(document)))
    assert ask("view", str(saved), "--html", str(file)).code == 0
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 400)):
        window = chromium.new_context(
            color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 800}
        )
        page = window.new_page()
        said, asked = [], []
        page.on("console", lambda one, said=said: said.append(one.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda one, asked=asked: asked.append(one.url))
        page.goto(file.as_uri())
        folded = page.inner_text("#prompt")
        assert len(folded) < len(document.text)
        for _ in range(4):
            page.click("#prompt .fold[aria-expanded=false]")
        assert page.evaluate("document.activeElement.className") == "fold"
        plain = page.evaluate(
            "[...document.querySelectorAll('.band')].flatMap(one => [...one.childNodes])"
            ".filter(one => one.nodeType === 3).map(one => one.data).join('')"
        )
        assert plain == document.text
        page.click("#effects [data-region='0']")
        assert page.inner_text("#told").startswith('Without "doc1" a token')
        assert page.evaluate("document.querySelectorAll('.band.near').length") == 1
        page.focus("#matrix [tabindex='0']")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        change = f"{document.effects[1].by_sentence[1]:+.2f}".replace("-", "−")
        assert f"Sentence 2 changes by {change} nats" in page.inner_text("#told")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == (
            f"doc2, sentence 2: {change}"
        )
        page.keyboard.press("Escape")
        assert page.inner_text("#told").startswith("Choose a sentence")
        page.click("#written button:nth-of-type(3)")
        assert "sentence 3" in page.inner_text("#shade")
        page.click("#language")
        assert page.evaluate("document.documentElement.lang") == "zh"
        assert "第 3 句" in page.inner_text("#shade")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert said == []
        assert len(asked) == 1
        window.close()
    file.write_text(page_text(hostile()))
    page = chromium.new_page()
    page.goto(file.as_uri())
    assert page.evaluate("document.images.length") == 0
    page.close()


@pytest.mark.thorough
def test_nothing_keeps_people_out(chromium: Any, tmp_path: Path) -> None:
    script, file = axe_core(), tmp_path / "answer.html"
    file.write_text(page_text(answer_document(words=["banana"] * 240, regions=4, sentences=3)))
    for scheme, width in (("light", 1280), ("dark", 400)):
        window = chromium.new_context(
            color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 800}
        )
        page = window.new_page()
        page.goto(file.as_uri())
        page.evaluate(script)
        for choice in ("#language", "#effects [data-region='0']", "#matrix [data-cell='0 0']"):
            page.click(choice)
            assert page.evaluate(AXE) == [], (scheme, width, choice)
        window.close()
