"""Every view of the page is drawn, answers to the keyboard, and lets no token out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Opened, opened

import attncli
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.draw.page import Page, PageEffects, page_bytes
from attncli.inputs.tokenize import tokenizer
from attncli.measure.row_facts import aligned_exclusion
from attncli.measure.run_record import run_record
from attncli.mechanism.mask import Causal
from attncli.models.one_layer import Settings, seeded_model

TEXT = "The animal didn't cross the street because it was too tired"
OTHER = "The animal didn't cross the street because it was too wide"
START = "#h=5.11&q=10&k=2&v=matrix&s=linear&o=1&r=0&m=layer"
COLOURS = """(selector) => {
  const canvas = document.querySelector(selector);
  if (!canvas || !canvas.width || !canvas.height) return 0;  // not drawn yet
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) found.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  return found.size;
}"""
FOUND = "() => [...document.querySelectorAll('#view .found button')].map((one) => one.innerText.split('\\n')[0])"


def written(folder: Path, page: Page) -> Path:
    file = folder / "page.html"
    file.write_bytes(b"".join(page_bytes(page)))
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = attncli.load("minilm")
    runs = [
        run_record(model, text, model.encode(text), name=name)
        for name, text in (("A", TEXT), ("B", OTHER))
    ]
    same = [at for at in range(15) if at != 13]
    heads = [
        (layer, head, layer / 10 + head / 100, 0.01, None)
        for layer in range(6)
        for head in range(12)
    ]
    effects = [PageEffects("cosine", "zero", "it", heads), PageEffects("kl", "zero", "it", heads)]
    texts = [model.encode(text) for text in (TEXT, OTHER)]
    left_out = aligned_exclusion(("special",), texts, [(at, at) for at in same])
    page = Page(TEXT, runs, pairs=(same, same), effects=effects, left_out=left_out)
    return written(tmp_path_factory.mktemp("page"), page)


@pytest.fixture(scope="module")
def shown(chromium: Any, file: Path) -> Iterator[Opened]:
    found = opened(chromium, file, START)
    yield found
    found.page.context.close()


@pytest.fixture
def window(shown: Opened) -> Iterator[Opened]:
    """One window for all tests of one page, each from the same start."""
    shown.value(
        "() => document.querySelector('#help').open && document.querySelector('#help').close()"
    )
    shown.value(
        "(start) => { document.activeElement.blur(); location.hash = '#'; location.hash = start; }",
        START,
    )
    shown.until(
        "() => attn.state.view === 'matrix' && attn.state.head === 71 && attn.state.query === 10"
    )
    shown.until("() => document.querySelector('#view canvas.matrix:not(.waiting)')?.width > 300")
    yield shown
    shown.clean()


def test_the_overview(window: Opened) -> None:
    tiles = window.value(
        "() => [...document.querySelectorAll('#grid .tile')].map((one) => one.getAttribute('aria-label'))"
    )
    assert len(tiles) == 72
    assert tiles[71].startswith("layer 5 head 11")
    assert window.until(
        COLOURS.replace("return found.size", "return found.size > 20"), "#h71 canvas"
    )
    words = window.value(
        "() => [...document.querySelectorAll('#sentence [id^=w]')].map((one) => one.textContent)"
    )
    assert (
        " ".join(words)
        == "[CLS] The animal didn ' t cross the street because it was too tired [SEP]"
    )


def test_the_sentence_is_shaded_both_ways(window: Opened) -> None:
    shade = "(at) => Number(document.querySelector(`#w${at}`).style.getPropertyValue('--a'))"
    window.until(
        "() => document.querySelector('#direction').textContent"
        " === 'where \"it\" looks; without tint: where heads rest'"
    )
    # [CLS] and [SEP] have weight in every head, but no word looks at them
    seen = "async () => [...(await attn.weights(0, attn.state.head)).row(attn.state.query)]"
    weights = window.value(seen)
    assert min(weights[0], weights[14]) > 0
    assert [window.value(shade, at) for at in (0, 14)] == [0, 0]
    assert window.value(shade, 2) == pytest.approx(0.65 * 0.88, abs=0.013)
    assert window.value("() => document.querySelector('#said').textContent") == (
        'layer 5 head 11: "it" looks at "animal" with 0.647'
    )
    window.page.keyboard.press("r")
    window.until("() => document.querySelector('#direction').textContent === 'who looks at \"it\"'")
    assert window.value(shade, 12) > 0


@pytest.mark.parametrize("view", ["matrix", "links"])
def test_drawn_views(window: Opened, view: str) -> None:
    window.value("(view) => attn.choose({view})", view)
    window.until(f"() => document.querySelector('#view canvas.{view}')?.width > 300")
    assert window.until(
        COLOURS.replace("return found.size", "return found.size > 40"), f"#view canvas.{view}"
    )


def test_the_matrix_zooms_and_scales(window: Opened) -> None:
    seen = "() => document.querySelector('#view canvas.matrix').toDataURL().length"
    window.until("() => document.querySelector('#view canvas.matrix')?.width > 300")
    before = window.value(seen)
    for key in ("+", "s", "s", "s", "0"):
        window.page.keyboard.press(key)
    window.until("() => attn.state.scale === 'rest'")
    window.until(
        "(before) => document.querySelector('#view canvas.matrix').toDataURL().length !== before",
        before,
    )


def test_the_cross_hair_moves_over_a_picture_that_is_not_drawn_again(window: Opened) -> None:
    picture = "() => document.querySelector('#view canvas.matrix').toDataURL()"
    places = """() => ['cell', 'asks', 'asked'].map((name) => {
      const mark = document.querySelector(`.plot .${name}`), {left, top} = mark.getBoundingClientRect();
      return [mark.textContent, Math.round(left), Math.round(top)];
    })"""
    before, (cell, *_) = window.value(picture), window.value(places)
    box = window.value(
        "() => { const {x, y} = document.querySelector('.plot .cell').getBoundingClientRect(); return [x, y] }"
    )
    window.page.mouse.move(box[0] + 5 + 35, box[1] + 5 - 35)
    window.until("() => attn.state.query === 9 && attn.state.key === 3")
    after = window.until(
        f"() => {{ const now = ({places})(); return now[1][0] === 'because' && now }}"
    )
    assert [after[1][0], after[2][0]] == ["because", "didn (didn't)"]
    assert after[0][1] > cell[1]
    assert after[0][2] < cell[2]
    assert window.value(picture) == before
    assert '"because" looks at "didn (didn\'t)"' in window.value(
        "() => document.querySelector('#said').textContent"
    )
    window.page.mouse.move(0, 0)
    window.until(
        "() => attn.state.query === 10 && attn.state.key === 2"
    )  # what was chosen is there again
    window.page.mouse.click(box[0] + 5 + 35, box[1] + 5 - 35)
    window.until("() => location.hash.includes('q=9&k=3')")
    window.page.keyboard.press("Escape")
    window.page.mouse.move(0, 0)


def test_the_derivation_adds_up(window: Opened) -> None:
    window.value("() => attn.choose({view: 'derivation'})")
    window.until("() => document.querySelectorAll('#view .terms tbody tr').length")
    products, steps = window.value("""() => [
      [...document.querySelectorAll('#view .scroll tbody tr')].map((row) =>
        Number(row.children[3].textContent.replace('−', '-'))),
      [...document.querySelectorAll('#view .steps b')].map((one) => Number(one.textContent.replace('−', '-')))]""")
    assert len(products) == 32
    assert sum(products) == pytest.approx(steps[0], abs=0.02)
    assert steps[0] / 32**0.5 == pytest.approx(steps[1], abs=2e-3)
    assert steps[-1] == pytest.approx(0.6466, abs=1e-3)
    # and what leaves the head is the model's own
    table = "[...document.querySelector('#view .terms').querySelectorAll('tbody tr, tfoot tr')]"
    cells = "[...row.children].slice(1).map((cell) => Number(cell.textContent.replace('−', '-')))"
    *rows, total = window.value(f"() => {table}.map((row) => {cells})")
    assert np.sum(rows, 0) == pytest.approx(total, abs=6e-3)
    model = attncli.load("minilm")
    (trace,) = model.trace(TEXT, layers=[5], keep=["mixed"])
    assert total == pytest.approx([1, *np.asarray(trace.stages["mixed"])[11, 10, :6]], abs=2e-3)


@pytest.mark.thorough
def test_search_ranks_heads(window: Opened) -> None:
    window.page.keyboard.press("/")
    window.until("() => document.activeElement.id === 'from'")
    window.page.fill("#from", "it")
    window.page.fill("#to", "animal")
    assert window.until(FOUND)[:2] == ["layer 5 head 11", "layer 3 head 1"]
    window.page.fill("#to", "nobody")
    window.until("() => document.querySelector('#view .note').textContent.includes('nobody')")


def test_the_difference_is_signed(window: Opened) -> None:
    window.page.keyboard.press("Escape")
    window.page.keyboard.press("d")
    window.until("() => document.querySelectorAll('#view figure canvas').length === 2")
    assert window.until(
        COLOURS.replace("return found.size", "return found.size > 20"), "#view canvas.matrix"
    )
    numbers = window.until(
        "() => [...document.querySelectorAll('#view .found .number')].map((one) => one.textContent)"
    )
    assert any(one.startswith("+") for one in numbers)
    assert any(one.startswith("−") for one in numbers)
    links = window.value(
        "() => [...document.querySelectorAll('#view .found .where')].map((one) => one.textContent)"
    )
    assert len(links) == 12
    assert not any("[CLS]" in link or "[SEP]" in link for link in links), links


@pytest.mark.thorough
def test_the_difference_has_numbers_and_keys(window: Opened) -> None:
    window.page.keyboard.press("d")
    said = "() => document.querySelector('#view .pair')?.textContent"
    window.until(f"() => ({said})()?.includes('it → animal')")
    one, two, apart = (
        float(part.strip(" ()+").replace("−", "-"))
        for part in re.findall(r"[(+−]*\d\.\d+", window.value(said))
    )
    weights = [
        window.value(f"async () => (await attn.weights({run}, 71)).row(10)[2]") for run in (0, 1)
    ]
    assert [one, two] == pytest.approx(weights, abs=6e-4)
    assert apart == pytest.approx(weights[1] - weights[0], abs=1e-3)
    window.page.focus("#view canvas.matrix")
    for key, place in (
        ("ArrowDown", [11, 2]),
        ("End", [11, 14]),
        ("ArrowLeft", [11, 12]),
        ("Home", [11, 0]),
    ):
        window.page.keyboard.press(key)
        assert (
            window.value("[attn.state.query, attn.state.key]") == place
        )  # 13 is a word of one text alone
    window.until(f"() => ({said})().includes('was → [CLS]')")
    marks = "() => [...document.querySelectorAll('#view .cell')].map((one) => one.getBoundingClientRect().height > 2)"
    assert window.value(marks) == [True] * 3


@pytest.mark.thorough
def test_both_texts_stand_above_each_other(window: Opened) -> None:
    window.page.keyboard.press("d")
    pairs = window.value(
        "() => [...document.querySelectorAll('#sentence .column')].slice(1)"
        ".map((one) => [...one.children].map((word) => word.textContent))"
    )
    assert len(pairs) == 15
    assert [pair for pair in pairs if pair[0] != pair[1]] == [["tired", "wide"]]
    window.value("() => attn.choose({head: 71, query: 10, key: 2})")
    shade = "(id) => Number(document.querySelector(id)?.style.getPropertyValue('--a'))"
    for side, identity in enumerate(("#w2", "#v2")):
        weight = window.value(f"async () => (await attn.weights({side}, 71)).row(10)[2]")
        window.until(f"() => Math.abs(({shade})('{identity}') - {weight * 0.88}) < 0.011")
    # what the pointer is over in either text is chosen in both
    x, y = window.value(
        "() => { const {x, y} = document.querySelector('#v13').getBoundingClientRect(); return [x + 4, y + 4] }"
    )
    window.page.mouse.move(x, y)
    window.until(
        "() => ['w13', 'v13'].every((id) => document.getElementById(id).classList.contains('chosen'))"
    )
    assert window.value("attn.state.query") == 13
    assert window.value("() => document.querySelectorAll('#arcs path').length") > 1
    window.page.mouse.move(0, 0)
    window.until("() => attn.state.query === 10")
    window.value("() => { window.before = [...document.querySelectorAll('#sentence .w')]; }")
    window.page.keyboard.press("a")
    window.until(
        "() => attn.state.run === 1 && document.querySelector('#w13').textContent === 'wide'"
    )
    assert window.value("() => document.querySelector('#v13').textContent") == "tired"
    assert window.value(
        "() => before.length === 30 && before.every((word) => word.isConnected)"
    )  # none written again


@pytest.mark.thorough
def test_heads_are_pinned_beside_each_other(window: Opened) -> None:
    window.value("() => attn.choose({view: 'links', pins: ''})")
    window.until("() => document.querySelector('#view canvas.links')?.width > 300")
    for head in (71, 37, 48, 26, 3):
        window.value("(head) => attn.choose({head})", head)
        window.page.keyboard.press("p")
    names = "() => [...document.querySelectorAll('.pins button')].slice(1).map((one) => one.textContent)"
    window.until(
        f"() => ({names})().length === 4 && ({names})()[3] === '0.3 ✕'"
    )  # the first of five went
    assert window.value(names) == ["3.1 ✕", "4.0 ✕", "2.2 ✕", "0.3 ✕"]
    window.until("() => location.hash.includes('p=3.1,4.0,2.2,0.3')")
    colours = window.value(
        "() => [...document.querySelectorAll('.pins button')].slice(1).map((one) => getComputedStyle(one).color)"
    )
    assert len(set(colours)) == 4
    window.page.click(".pins button:nth-child(3)")
    window.until(f"() => ({names})().length === 3")
    window.value("() => attn.choose({pins: ''})")


def test_tiles_are_maps_or_lines(window: Opened) -> None:
    wide = "() => document.querySelector('#h71 canvas')?.width"
    assert window.until(wide) == 15
    window.value("() => attn.choose({tiles: 'lines'})")
    window.until(f"() => ({wide})() === 96")
    assert window.until(
        COLOURS.replace("return found.size", "return found.size > 5"), "#h71 canvas"
    )
    window.until("() => location.hash.includes('i=lines')")
    window.value("() => attn.choose({tiles: 'maps'})")
    window.until(f"() => ({wide})() === 15")


def test_rollout_sums_to_one(window: Opened) -> None:
    window.value("() => attn.choose({view: 'rollout'})")
    window.until("() => document.querySelectorAll('#view .found li').length === 14")
    numbers = window.value(
        "() => [...document.querySelectorAll('#view .number')].map((one) => Number(one.textContent))"
    )
    assert 0.8 < sum(numbers) <= 1.01


def test_effects_are_ranked(window: Opened) -> None:
    window.page.keyboard.press("e")
    assert window.until(FOUND)[0] == "layer 5 head 11"
    assert window.value("() => document.querySelector('#h71 .over').textContent") == "0.61"


@pytest.mark.many
@pytest.mark.parametrize(
    ("start", "head"),
    [
        ({"view": "search", "from": "#10", "to": "#2"}, [5, 11]),
        ({"view": "effects", "head": "3.1", "query": "10", "key": "2"}, [3, 1]),
    ],
)
def test_a_page_begins_at_the_answer(
    chromium: Any, tmp_path: Path, start: dict[str, str], head: list[int]
) -> None:
    model = attncli.load("minilm")
    effects = [PageEffects("cosine", "zero", "it", [(layer, head, float((layer, head) == (3, 1)), None, None)
               for layer in range(6) for head in range(12)])]  # fmt: skip
    page = Page(
        TEXT, [run_record(model, TEXT, model.encode(TEXT), name="A")], effects=effects, start=start
    )
    window = opened(chromium, written(tmp_path, page))
    assert (
        window.value("[attn.meta.runs[0].heads[attn.state.head]].flatMap(({ l, h }) => [l, h])")
        == head
    )
    assert window.value("attn.state.query") == 10
    window.clean()
    window.page.context.close()


@pytest.mark.thorough
def test_the_keyboard_reaches_everything(window: Opened) -> None:
    window.page.focus("#h71")
    for key, head in (
        ("ArrowLeft", "5.10"),
        ("ArrowUp", "4.10"),
        ("]", "5.10"),
        (".", "5.11"),
        ("[", "4.11"),
    ):
        window.page.keyboard.press(key)
        assert window.value("() => attn.meta.runs[0].heads[attn.state.head]")["h"] == int(
            head.split(".")[1]
        ), key
        assert window.value("() => attn.meta.runs[0].heads[attn.state.head]")["l"] == int(
            head.split(".")[0]
        ), key
    window.page.focus("#sentence")
    window.page.keyboard.press("ArrowRight")
    assert window.value("attn.state.query") == 11
    for number, view in enumerate(
        ("matrix", "links", "derivation", "search", "difference", "rollout", "effects")
    ):
        window.page.focus("#sentence")
        window.page.keyboard.press(str(number + 1))
        assert window.value("attn.state.view") == view
    window.page.keyboard.press("?")
    assert window.value("() => document.querySelector('#help').open")


def test_addresses(chromium: Any, file: Path) -> None:
    window = opened(chromium, file, "#h=99.1&q=x&k=999999&v=nothing&s=log&z=<b>")
    assert window.value("attn.state.scale") == "log"
    assert window.value("attn.state.view") == "matrix"
    # an address counts as it was entered, even where what was chosen before is kept before the page
    # is told of it
    window.value(
        "() => { location.hash = '#h=3.1&v=links'; history.replaceState(null, '', '#h=0.0&v=matrix') }"
    )
    window.until("() => attn.state.view === 'links' && location.hash.includes('h=3.1')")
    assert window.value("() => location.hash").startswith("#h=3.1")
    window.clean()
    window.page.context.close()


@pytest.mark.thorough
def test_languages_dark_narrow_and_print(chromium: Any, file: Path) -> None:
    window = opened(chromium, file, color_scheme="dark")
    dark = window.value("() => getComputedStyle(document.body).backgroundColor")
    window.page.emulate_media(color_scheme="light")
    assert window.value("() => getComputedStyle(document.body).backgroundColor") != dark
    window.page.click("#language")
    window.until(
        "() => document.documentElement.lang === 'zh' && document.querySelector('#tab-matrix').textContent === '矩阵'"
    )
    window.page.set_viewport_size({"width": 320, "height": 640})  # 1280 at 400%
    assert window.value("() => document.documentElement.scrollWidth") <= 320
    window.page.emulate_media(media="print")
    assert (
        window.value("() => getComputedStyle(document.querySelector('#help-open')).display")
        == "none"
    )
    window.clean()
    window.page.context.close()


def test_a_dark_page_is_drawn_light_before_it_is_printed(chromium: Any, file: Path) -> None:
    """A browser prints as soon as scripts are through: whatever waits for a moment of its own would
    come too late.
    """
    window = opened(chromium, file, color_scheme="dark")
    window.until("() => document.querySelectorAll('#grid canvas').length > 70")
    window.page.evaluate(
        """() => {
          let now = 0;
          performance.now = () => (now += 20);  // each step of a long work would take its pause
          window.pauses = 0;
          const wait = setTimeout;
          window.setTimeout = (...given) => { window.pauses++; return wait(...given); };
        }"""
    )
    window.page.emulate_media(media="print")
    window.until(
        """() => {
          const map = document.querySelector('#grid canvas');
          const dots = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
          return dots.reduce((sum, dot) => sum + dot, 0) / dots.length > 200;
        }"""
    )
    assert window.value("() => window.pauses") == 0
    window.page.context.close()


def test_a_choice_outlives_the_way_to_another_view(window: Opened) -> None:
    """What the pointer only passes over is shown while it is there, and nothing else is explained
    afterwards.
    """
    place = """(word) => {
      const {left, top, width, height} = document.querySelector(`#w${word}`).getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    }"""
    cell = (
        "() => { const {x, y} = document.querySelector('.plot .cell').getBoundingClientRect(); "
        "return [x + 5, y + 5] }"
    )
    mouse = window.page.mouse
    mouse.move(*window.value(place, 4))
    window.until("() => attn.state.query === 4")
    mouse.move(2, 2)
    window.until("() => attn.state.query === 10 && attn.state.key === 2")
    x, y = window.value(cell)
    mouse.click(x + 70, y - 35)
    window.until("() => attn.state.query === 9 && attn.state.key === 4")
    assert window.value("() => !document.querySelector('#pin').hidden")
    for word in (2, 5, 12):
        mouse.move(*window.value(place, word), steps=3)
    mouse.move(x, y + 60, steps=3)
    window.page.click("#tab-derivation", timeout=20_000)
    words = window.until(
        "() => [...document.querySelectorAll('#view .pair bdi')].map((one) => one.textContent)"
    )
    assert words == ["because", "' (didn't)"]
    mouse.click(*window.value(place, 4))  # what is held is let go by choosing it again
    mouse.click(*window.value(place, 4))
    window.until("() => document.querySelector('#pin').hidden && attn.state.query === 4")


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img/src=x/onerror=alert(1)>',
    "</script><b>",
    "<!--",
    "\u202egnp.exe",
    "\x1b[31m",
    "&amp;",
    "今天",
    "שלום",
    "{0}",
    "`${1}`",
]


def test_tokens_are_only_text(chromium: Any, tmp_path: Path) -> None:
    model = seeded_model(
        Settings(d_model=16, heads=2, mask=Causal()),
        0,
        "seeded",
        tokenizer("whitespace"),
        NumpyBackend("float32"),
    )
    text = " ".join(HOSTILE)
    file = written(
        tmp_path, Page(text, [run_record(model, text, model.encode(text), name=HOSTILE[0])])
    )
    window = opened(chromium, file)
    words = window.value(
        "() => [...document.querySelectorAll('#sentence .w')].map((one) => one.textContent)"
    )
    assert words[0] == HOSTILE[0]
    assert words[4] == "\\u{202e}gnp.exe"
    assert words[6] == "&amp;"
    assert (
        window.value(
            "() => document.querySelectorAll('img, .w *, .where *, .plot b *, h1 *, #line *').length"
        )
        == 0
    )
    for view in ("links", "derivation", "search", "rollout"):
        window.value("(view) => attn.choose({view})", view)
        window.page.wait_for_timeout(60)
    window.clean()
    window.page.context.close()


def test_what_does_not_fit_the_budget_is_told(chromium: Any, tmp_path: Path) -> None:
    model = attncli.load("minilm")
    record = run_record(model, TEXT, model.encode(TEXT))
    file = written(tmp_path, Page(TEXT, [record], budget=120_000, option="--html-budget"))
    assert (
        file.stat().st_size < 120_000 + 200_000
    )  # script, style and sentences are no part of the budget
    window = opened(chromium, file)
    kept = [head["r"] for head in window.value("attn.meta.runs[0].heads")]
    assert {"none", "exact"} == set(kept)
    window.value("(head) => attn.choose({head})", kept.index("none"))
    window.until(
        "() => document.querySelector('#view .lead')?.textContent.includes('--html-budget')"
    )
    window.until("() => document.querySelectorAll('#rows li').length")
    window.clean()
    window.page.context.close()


@pytest.mark.thorough
def test_a_long_text_is_drawn_in_tiles(chromium: Any, tmp_path: Path) -> None:
    model = seeded_model(
        Settings(d_model=16, heads=2, mask=Causal()),
        0,
        "seeded",
        tokenizer("whitespace"),
        NumpyBackend("float32"),
    )
    text = " ".join(f"w{at % 97}" for at in range(1300))
    window = opened(
        chromium, written(tmp_path, Page(text, [run_record(model, text, model.encode(text))]))
    )
    window.until(
        COLOURS.replace("return found.size", "return found.size > 30"), "#view canvas.matrix"
    )
    assert window.value(
        "async () => (await attn.weights(0, 1)).tile([0, 8, 0, 8, 1]) instanceof Promise"
    )
    row = window.value("async () => Array.from((await attn.weights(0, 1)).row(700))")
    assert sum(one for one in row if one >= 0) == pytest.approx(1, abs=1e-3)
    assert len([one for one in window.asked if not one.startswith("blob:")]) == 1
    assert window.said == []
    window.page.context.close()
