"""`attn scan show --html`: the page in a real browser; its numbers, its shades, hostile texts, keys and languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from browsing import Opened
from scan.conftest import with_tokenizer
from scanning import Inside, planned
from tiny_checkpoints import CASES, make

import attncli
from attncli.draw.page.corpus_page import tails
from attncli.scan import report
from attncli.scan.engines import run

HOSTILE = "</script><img src=x onerror=globalThis.taken=2> w1 \x1b]0;t\x07 \u202ew2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page")
    (made / "model").mkdir()
    with_tokenizer(make(CASES["bert"], made / "model"), special=True)
    lines = [f"w{at} w{at + 1} , w{at % 3} {'w7 . ' * (at % 4)}" for at in range(1, 33)]
    (made / "<b>corpus.txt").write_text("\n".join([HOSTILE, *lines]))
    metrics = ("entropy", "sink", "special", "punctuation", "normalised_entropy")
    asked = {"metrics": metrics, "labels": True, "effects": ("zero", "L0H1"), "shard": 100}
    plan = planned(made / "model", made / "<b>corpus.txt", made / "out", **asked)
    outcome = run(plan, made / "out", str(made / "model"), Inside())
    report.write(report.scan_document(outcome.totals), made / "out")
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    assert ask("scan", "show", str(folder / "out"), "--html", str(folder / "page.html"), "--quiet").code == 0
    return folder / "page.html"


@pytest.fixture(scope="module")
def opened(page: Path, chromium: Any) -> Opened:
    found = Opened(chromium.new_page(viewport={"width": 1280, "height": 860}))
    found.page.on("console", lambda one: found.said.append(one.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("request", lambda request: found.asked.append(request.url))
    found.page.goto(page.as_uri() + "#h=1.1&m=sink&g=xx&z=9")
    return found


def test_a_page_does_not_tell_where_files_lie(folder: Path, page: Path) -> None:
    text = page.read_text("utf-8")
    assert str(folder) not in text
    assert "\\u003cb>corpus.txt:" in text
    assert tails(["/a/b/c.txt", "/a/d/c.txt"]) == ["b/c.txt", "d/c.txt"]
    assert tails(["corpora/c.txt"]) == ["c.txt"]
    assert tails(["/a/c.txt", "d.txt"]) == ["c.txt", "d.txt"]


ROWS = """() => [...document.querySelector(".figures tbody").rows].map((row) =>
  [...row.cells].map((cell) => cell.textContent))"""
HEADS = "() => document.querySelectorAll('[aria-label^=\"layer 0 \"]').length"
VIEW = """(name) => document.querySelector("#metric").value === name &&
  document.querySelector("#view").textContent"""
SHADES = """() => [...document.querySelectorAll(".example")].map((one) => [one.querySelector(".note").textContent,
  [...one.querySelectorAll(".w")].map((word) => [word.textContent, Number(word.style.getPropertyValue("--a")),
    word.classList.contains("from")])])"""


def test_the_grid_and_the_tables_say_what_the_document_says(folder: Path, opened: Opened) -> None:
    document = ask("scan", "show", str(folder / "out"), "--json").json
    tiles = opened.value(
        "() => [...document.querySelectorAll('#grid button')].map((one) => one.getAttribute('aria-label'))"
    )
    assert len(tiles) == len(document["heads"])
    for told, head in zip(tiles, document["heads"], strict=True):
        one = head["metrics"]["sink"]
        low, high = (f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.4f}" for value in one["ci95"])
        assert told == f"layer {head['layer']} head {head['head']}: {one['mean_texts']:.3f} ({low} – {high})"
    assert opened.value("() => document.querySelector('#chosen').textContent") == "layer 1 head 1"
    rows = opened.value(ROWS)
    chosen = next(head for head in document["heads"] if (head["layer"], head["head"]) == (1, 1))
    for row in rows:
        if row[0] == "effect":
            assert row[1] == "–"
            continue
        mean = chosen["metrics"][row[0]]["mean_texts"]
        assert row[1] == ("0.000" if mean == 0 else f"{mean:.3f}" if abs(mean) >= 0.01 else f"{mean:.4f}")
    assert rows[-1][0] == "effect"
    opened.clean()


def test_sentences_are_shaded_by_the_rows_of_their_strongest_links(folder: Path, opened: Opened) -> None:
    model = attncli.load(str(folder / "model"), backend="numpy")
    shown = opened.value(SHADES)
    assert len(shown) == 3
    lines = (folder / "<b>corpus.txt").read_text().splitlines()
    for place, words in shown:
        text = lines[int(place.rpartition(":")[2]) - 1]
        (trace,) = model.trace(text, layers=[1])
        weights = np.asarray(trace.stages["weights"])[1]
        query = int(weights.max(-1).argmax())
        assert [at for at, (_, _, marked) in enumerate(words) if marked] == [query]
        wanted = np.rint(weights[query] * 100)
        assert np.allclose([shade for _, shade, _ in words], wanted / max(wanted.max(), 1) * 0.85, atol=0.02)


def test_hostile_texts_are_text_and_nothing_else(page: Path, opened: Opened) -> None:
    raw = page.read_text("utf-8")
    assert raw.count("<script") == 2
    assert "\x1b" not in raw
    assert "\u202e" not in raw
    assert "default-src 'none'" in raw
    assert "http" not in raw.replace("http-equiv", "")
    assert opened.value("() => globalThis.taken === undefined && document.querySelectorAll('img').length === 0")
    shown = [(head, metric) for head in range(opened.value(HEADS)) for metric in ("sink", "entropy", "special")]
    said = ""
    for head, metric in shown:  # until one of them shows the hostile text
        opened.value("(hash) => { location.hash = hash; }", f"#h=0.{head}&m={metric}")
        opened.until("(name) => document.querySelector('#chosen').textContent === name", f"layer 0 head {head}")
        said = opened.until(VIEW, metric)
        if "onerror" in said:
            break
    # this vocabulary has no "=" and no "<", and what it does not know is marked
    assert "onerror=globalThis.taken=2" in said.replace(" ", "").replace("?", "")
    assert "<b>corpus.txt" in said
    assert opened.value("() => globalThis.taken === undefined && document.querySelectorAll('img').length === 0")
    opened.value("() => { location.hash = '#h=1.1&m=sink'; }")
    opened.until("() => document.querySelector('#chosen').textContent === 'layer 1 head 1'")


def test_keys_languages_and_addresses(opened: Opened) -> None:
    press = opened.page.keyboard.press

    def chosen() -> list[str]:
        return opened.value(
            "() => [document.querySelector('#chosen').textContent, document.querySelector('#metric').value]"
        )

    opened.value("() => document.querySelector('#grid [data-head]').focus()")
    press("ArrowRight")
    assert chosen()[0] == "layer 1 head 2"
    press("ArrowUp")
    assert chosen()[0] == "layer 0 head 2"
    before = chosen()[1]
    press("]")
    assert chosen()[1] != before
    press("[")
    assert chosen() == ["layer 0 head 2", before]
    opened.value("() => document.querySelector('#sorted').click()")
    values = opened.value("() => [...document.querySelectorAll('#grid b')].map((one) => Number(one.textContent))")
    assert values == sorted(values, reverse=True)
    opened.value("() => document.querySelector('#language').click()")
    assert chosen()[0] == "第 0 层第 2 头"
    assert opened.value("() => document.documentElement.lang") == "zh"
    assert opened.value("() => location.hash") == f"#h=0.2&m={before}&g=zh"
    assert opened.value("() => document.querySelector('#said').textContent").startswith("第 0 层第 2 头")
    opened.clean()


def test_a_page_without_the_model_says_so(folder: Path, tmp_path: Path) -> None:
    (folder / "model").rename(folder / "elsewhere")
    try:
        answer = ask("scan", "show", str(folder / "out"), "--html", str(tmp_path / "page.html"), "--lang", "zh")
    finally:
        (folder / "elsewhere").rename(folder / "model")
    assert answer.code == 0
    assert "句子" in answer.err
    assert "句子没有着色" in (tmp_path / "page.html").read_text("utf-8")


def test_another_ending_is_refused(folder: Path) -> None:
    answer = ask("scan", "show", str(folder / "out"), "--html", "page.pdf")
    assert (answer.code, "ending in .html" in answer.err) == (2, True)
