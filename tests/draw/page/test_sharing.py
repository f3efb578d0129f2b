"""What a reader takes along of a page: a link, a drawing, a picture, a table, a small frame; and
nothing of a page keeps anyone out."""

from __future__ import annotations

import csv
import re
import shutil
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from browsing import Opened, axe_core, opened
from firefox import Firefox, firefox
from pictures import png
from small_gpt2 import small_gpt2

TEXT = "The animal didn't cross the street because it was too tired"
OTHER = "The animal didn't cross the street because it was too wide"
FULL = ("--model", "minilm")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sharing") / "page.html"
    assert ask("run", TEXT, "--query", "it", *FULL, "--html", str(made)).code == 0
    return made


@pytest.fixture(scope="module")
def window(chromium: Any, file: Path) -> Iterator[Opened]:
    found = opened(chromium, file, "#h=5.11&q=10&k=2&v=matrix")
    yield found
    found.page.context.close()


def taken(window: Opened, way: str, folder: Path) -> Path:
    """The file that a button gives."""
    with window.page.expect_download() as waiting:
        window.page.click(f"#share-{way}")
    target: Path = folder / waiting.value.suggested_filename
    waiting.value.save_as(target)
    return target


@pytest.mark.thorough
def test_a_drawing_of_the_view_is_its_words_and_maps(window: Opened, tmp_path: Path) -> None:
    for view, maps in (("matrix", 2), ("links", 1), ("derivation", 0), ("search", 0)):
        window.value("(view) => attn.choose({view})", view)
        window.until(
            "() => document.querySelector('#view').textContent || document.querySelector('#view canvas')"
        )
        window.until("() => document.querySelector('#view canvas.waiting') === null")
        svg = taken(window, "svg", tmp_path)
        assert svg.name == f"attn-{view}.svg"
        root = ET.fromstring(svg.read_text("utf-8"))
        names = [element.tag.split("}")[1] for element in root.iter()]
        assert names.count("image") == maps
        words = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
        assert {"animal", "tired", "layer 5 head 11"} <= {*words}
        assert any(word.startswith('where "it" looks') for word in words)
        assert names.count("path") > 0  # the curves over the sentence
        assert "script" not in names
    window.clean()


@pytest.mark.thorough
def test_a_picture_of_the_view_has_its_colours(window: Opened, tmp_path: Path) -> None:
    window.value("() => attn.choose({view: 'matrix'})")
    window.until("() => document.querySelector('#view canvas.matrix')?.width > 300")
    pixels = png(taken(window, "png", tmp_path).read_bytes())
    assert pixels.shape[1] > 1500  # three dots a pixel
    assert len(np.unique(pixels[::7, ::7, :3].reshape(-1, 3), axis=0)) > 60
    window.clean()


def test_a_table_of_the_view_holds_its_numbers(window: Opened, tmp_path: Path) -> None:
    window.value("() => attn.choose({view: 'matrix'})")
    window.until("() => document.querySelector('#view canvas.matrix')?.width > 300")
    names, *rows = csv.reader(StringIO(taken(window, "csv", tmp_path).read_text("utf-8")))
    weights = ask("run", TEXT, *FULL, "--layer", "5", "--head", "11", "--json").json["layers"][0][
        "heads"
    ][0]["weights"]
    assert names[3] == rows[2][0] == "animal"
    assert np.array([row[1:] for row in rows], float) == pytest.approx(np.array(weights), abs=2e-6)
    window.value("() => attn.choose({view: 'search'})")
    window.until("() => document.querySelectorAll('#view .found li').length")
    names, first, *_ = csv.reader(StringIO(taken(window, "csv", tmp_path).read_text("utf-8")))
    assert names[1] == "number"
    assert first[:2] == ["layer 5 head 11", "0.647"]
    window.clean()


def test_the_address_holds_the_view(window: Opened, chromium: Any) -> None:
    window.value(
        "() => attn.choose({view: 'links', lang: 'zh', out: true, scale: 'row', sort: 'sink'})"
    )
    window.page.click("#share-link")
    address = window.until(
        "() => document.querySelector('#shared input')?.value"
    )  # the clipboard is shut here
    other = opened(
        chromium, Path(window.page.url[len("file://") :].split("#")[0]), "#" + address.split("#")[1]
    )
    state = "() => JSON.stringify(attn.state)"
    assert other.value(state) == window.value(state)
    other.page.context.close()
    window.value("() => attn.choose({lang: 'en', scale: 'linear', sort: 'layer'})")
    window.clean()


def test_a_small_frame_holds_the_sentence_and_its_curves(window: Opened, chromium: Any) -> None:
    window.page.click("#share-embed")
    code = window.until(
        "() => (([, code]) => code)(/^(<iframe.*)$/.exec(document.querySelector('#shared input')?.value) ?? [])"
    )
    address = re.search(r'src="[^"#]*(#[^"]*)".*height="300"', code)
    assert address
    small = opened(chromium, Path(window.page.url[len("file://") :].split("#")[0]), address[1])
    small.page.set_viewport_size({"width": 640, "height": 300})
    assert small.until("() => document.querySelectorAll('#arcs path').length") >= 1
    assert small.value("() => document.documentElement.scrollHeight") <= 300
    shown = small.value("() => document.body.innerText")
    assert "layer 5 head 11" in shown
    assert "72 heads" not in shown
    small.page.click("#whole")
    small.until("() => document.body.innerText.includes('72 heads')")
    small.page.context.close()


ENDS = """() => {
  const middle = (id) => {
    const {left, right} = document.querySelector(id).getBoundingClientRect();
    return (left + right) / 2;
  };
  const {left} = document.querySelector('#words').getBoundingClientRect();
  const first = document.querySelector('#arcs path')?.getAttribute('d').match(/-?[\\d.]+/g).map(Number);
  return first && [first[0] + left, middle('#w10'), first[6] + left, middle('#w2')];
}"""
"""Where the first curve begins and ends, and where the two words are."""


def test_curves_lead_from_the_chosen_word(window: Opened) -> None:
    window.value("() => document.activeElement.blur()")
    window.value("() => attn.choose({head: 71, query: 10, key: 2, out: true, view: 'matrix'})")
    ends = window.until(ENDS)
    assert ends[0] == pytest.approx(ends[1], abs=1.5)
    assert ends[2] == pytest.approx(ends[3], abs=1.5)
    window.page.keyboard.press("r")
    window.until("() => document.querySelector('#words').classList.contains('in')")
    window.page.keyboard.press("r")


def test_keys_go_to_the_ends_and_by_pages(window: Opened) -> None:
    press, state = (
        window.page.keyboard.press,
        "() => [attn.state.head, attn.state.query, attn.state.key, attn.state.view]",
    )
    window.value("() => attn.choose({head: 13, query: 3, key: 3, out: true, view: 'matrix'})")
    for place, steps in {
        "#h13": (("End", 0, 71), ("Home", 0, 0), ("PageDown", 0, 48), ("PageUp", 0, 0)),
        "#sentence": (("End", 1, 14), ("Home", 1, 0), ("PageDown", 1, 10), ("PageUp", 1, 0)),
        "#tab-matrix": (("End", 3, "rollout"), ("Home", 3, "matrix")),
    }.items():
        window.value("(place) => document.querySelector(place).focus()", place)
        for key, which, value in steps:
            press(key)
            assert window.value(state)[which] == value, (place, key)
    window.until("() => document.querySelector('#view canvas.matrix')?.width > 300")
    window.page.focus("#view canvas.matrix")
    press("End")
    press("PageDown")
    assert window.value(state)[1:3] == [10, 14]
    window.clean()


PAGES = {
    "run": ("run", TEXT, "--mask", "causal", *FULL),
    "compare": ("compare", TEXT, OTHER, "--layer", "3-5", *FULL),
    "find": ("find", TEXT, "--from", "it", "--to", "animal", *FULL),
    "heads": ("heads", TEXT, "--layer", "5", *FULL),
    "ablate": ("ablate", TEXT, "--query", "it", "--layer", "5", "--baseline", "none", *FULL),
    "patch": ("patch", TEXT, OTHER, "--layer", "5", *FULL),
    "cross": ("cross", "the cat sat", "on a mat"),
    "why": ("why", TEXT, "--from", "it", "--to", "animal", "--head", "L5H11", *FULL),
    "lens": ("logits", "the cat sat on", "--model", "{t}/gpt2", "--lens"),
    "series": ("series", "{t}/gpt2", "{t}/again", "--text", "the cat sat on"),
    "cache": ("cache", "the cat sat on the", "--model", "{t}/gpt2", "--policy", "h2o"),
    "mask": ("mask", "causal", "window:3"),
    "cost": ("cost", "--tokens", "64"),
    "explain": ("explain", TEXT),
    "learn": ("learn", "order", "--steps", "3"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of every kind, as `attn view` makes it of what was saved."""
    folder = tmp_path_factory.mktemp("kinds")
    small_gpt2(folder / "gpt2")
    shutil.copytree(folder / "gpt2", folder / "again")
    made = {}
    for name, command in PAGES.items():
        saved, made[name] = folder / f"{name}.json", folder / f"{name}.html"
        answer = ask(
            *(part.replace("{t}", str(folder)) for part in command), "--json", "-o", str(saved)
        )
        assert answer.code == 0, answer.err
        assert ask("view", str(saved), "--html", str(made[name])).code == 0
    return made


AXE = """async () => {
  const {passes, violations} = await axe.run({rules: {'target-size': {enabled: true}}});
  return [passes.length, violations.map(({id, nodes}) => [id, nodes[0].html, nodes[0].failureSummary])];
}"""


@pytest.mark.thorough
def test_nothing_keeps_anyone_out(chromium: Any, pages: dict[str, Path]) -> None:
    source = axe_core()
    for scheme in ("light", "dark"):
        window = chromium.new_context(
            color_scheme=scheme, bypass_csp=True, viewport={"width": 1280, "height": 860}
        )
        shown = window.new_page()
        for name, page in pages.items():
            shown.goto(page.as_uri() + "#p=5.11,5.1")
            shown.wait_for_timeout(300)
            shown.evaluate(source)
            tabs = shown.evaluate(
                "() => [...document.querySelectorAll('#tabs button')].map(({ id }) => `#${id}`)"
            )
            has_tour = shown.evaluate("() => document.querySelector('#tour-open') !== null")
            for press in [*tabs, *(["#tour-open", "#tour-on"] if has_tour else [])] or [""]:
                if press:
                    shown.click(press)
                    shown.wait_for_timeout(150)
                passes, violations = shown.evaluate(AXE)
                assert violations == [], (name, scheme, press)
                assert passes > 15
        window.close()


@pytest.mark.thorough
def test_nothing_keeps_anyone_out_of_firefox(pages: dict[str, Path], tmp_path: Path) -> None:
    source = axe_core()
    end = "arguments[arguments.length - 1]"
    with firefox(tmp_path) as browser:
        for name, page in pages.items():
            browser.go(page.as_uri() + "#t=6")
            patience = time.monotonic() + 60
            while (
                browser.value("return document.readyState + location.pathname") != f"complete{page}"
            ):
                assert time.monotonic() < patience, name
                time.sleep(0.1)
            time.sleep(0.4)
            assert browser.value("return document.body.innerText.length") > 40, name
            browser.value(source + "; window.axe = axe")
            _, violations = browser.later(f"({AXE})().then({end})")
            assert violations == [], name
        browser.go(pages["run"].as_uri() + "#h=5.11&q=10&k=2&v=matrix&embed=1")
        browser.later(f"setTimeout({end}, 500)")
        assert (
            browser.value("return getComputedStyle(document.querySelector('.detail')).display")
            == "none"
        )
        reads_comparisons(browser, pages["compare"], end)


def reads_comparisons(browser: Firefox, page: Path, end: str) -> None:
    """Both texts of a comparison with keys, a finger and on paper, on a phone and on a wide screen."""
    browser.go(page.as_uri())
    browser.later(f"setTimeout({end}, 1500)")
    chosen = "return [attn.state.run, attn.state.query, attn.state.view]"
    browser.value("attn.choose({query: 4, out: true}); document.querySelector('#sentence').focus()")
    browser.press("ArrowRight", "ArrowRight")
    assert browser.value(chosen)[:2] == [0, 6]
    browser.press("a", "ArrowLeft")
    assert browser.value(chosen) == [1, 5, "difference"]
    x, y = browser.value(
        "scrollTo(0, 0); const {x, y} = document.querySelector('#v3').getBoundingClientRect(); return [x + 4, y + 4]"
    )
    browser.tap(x, y)
    assert browser.value(chosen)[1] == 3
    assert browser.value("return document.querySelectorAll('.w.chosen').length") == 2
    for wide in (500, 1920):  # no window of Firefox is narrower than 450
        browser.ask("WebDriver:SetWindowRect", {"width": wide, "height": 900})
        browser.later(f"setTimeout({end}, 300)")
        assert browser.value("return document.documentElement.scrollWidth - innerWidth") <= 0, wide
    paper = browser.printed()
    assert paper.startswith(b"%PDF")
    assert len(paper) > 20_000


MEASURED = """() => {
  window.measured = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const one = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const numbers = (colour) => {
    one.fillStyle = colour;
    one.fillRect(0, 0, 1, 1);
    return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const at = this.getTransform().transformPoint(new DOMPoint(x, y));
    const under = [...this.getImageData(at.x, at.y, 1, 1).data];
    const ground = under[3] > 250 ? under : numbers(getComputedStyle(document.body).backgroundColor);
    const [low, high] = [light(numbers(this.fillStyle)), light(ground.slice(0, 3))].sort((a, b) => a - b);
    measured.push([(high + 0.05) / (low + 0.05), text]);
    write.call(this, text, x, y);
  };
}"""
"""From now on, the contrast of what is written on canvases is measured against what is there."""


@pytest.mark.thorough
def test_what_is_written_on_canvases_and_tinted_words_can_be_read(
    chromium: Any, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert ask("compare", TEXT, OTHER, "--layer", "3,5", *FULL, "--html", str(page)).code == 0
    for scheme in ("light", "dark"):
        window = opened(chromium, page, "#p=5.11,3.1,3.2,5.5&v=search", color_scheme=scheme)
        window.value(MEASURED)
        for view in ("matrix", "links", "difference"):
            window.value(
                "(view) => { measured.length = 0; attn.choose({view, query: 10, key: 2}) }", view
            )
            least, text = min(window.until("() => measured.length > 25 && measured"))
            assert least >= 4.5, (scheme, view, text)
        paper = window.value("() => getComputedStyle(document.body).backgroundColor")
        for out in (True, False):
            window.value("(out) => attn.choose({out, query: 10, key: 2})", out)
            tint, ink = window.until("""(out) => {
              const word = document.querySelector('#w10');
              word.style.setProperty('--a', 0.88);
              const { backgroundColor, color } = getComputedStyle(word);
              return document.querySelector('#words').classList.contains('in') !== out && [backgroundColor, color];
            }""", out)  # fmt: skip
            *colour, alpha = map(float, re.findall(r"[\d.]+", tint))
            below, above = (list(map(float, re.findall(r"\d+", text))) for text in (paper, ink))
            ground = [
                alpha * over + (1 - alpha) * under
                for over, under in zip(colour, below, strict=True)
            ]
            low, high = sorted(map(luminance, (ground, above)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, tint, ink)
        window.clean()
        window.page.context.close()


def luminance(rgb: list[float]) -> float:
    """The relative luminance of a colour, each part from 0 to 255. Source: WCAG 2.2."""
    levels = [
        part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb
    ]
    return float(np.dot(levels, [0.2126, 0.7152, 0.0722]))
