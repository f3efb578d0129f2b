"""`attn scan show --html`: the page in a real browser; its numbers, its shades, hostile texts, keys
and languages.
"""

from __future__ import annotations

import json
import shutil
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from browsing import Opened, axe_core
from firefox import firefox
from msgspec.structs import replace
from scan.conftest import with_tokenizer
from scanning import Inside, planned
from tiny_checkpoints import CASES, make

import attncli
from attncli.inputs.token import Token
from attncli.measure.labels import STATES
from attncli.measure.rest import rest_keys
from attncli.scan import report
from attncli.scan.command import PAGE_TEXTS
from attncli.scan.corpus_page import (
    BUDGET,
    DENSITIES,
    PageScan,
    density_of,
    examples_of,
    page_number,
    scan_page,
    tails,
)
from attncli.scan.engines import run
from attncli.scan.plan import read_plan
from attncli.scan.sampled_texts import alike_heads, sampled_texts

HOSTILE = "</script><img src=x onerror=globalThis.taken=2> w1 \x1b]0;t\x07 \u202ew2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page")
    (made / "model").mkdir()
    with_tokenizer(make(CASES["bert"], made / "model"), special=True)
    lines = [f"w{at} w{at + 1} , w{at % 3} {'w7 . ' * (at % 4)}" for at in range(1, 33)]
    (made / "<b>corpus.txt").write_text("\n".join([HOSTILE, *lines]))
    metrics = ("entropy", "sink", "special", "punctuation", "normalised_entropy", "massive")
    asked = {
        "metrics": metrics,
        "labels": True,
        "effects": ("zero", "L0H1"),
        "shard": 100,
        "rules": True,
    }
    plan = planned(made / "model", made / "<b>corpus.txt", made / "out", **asked)
    outcome = run(plan, made / "out", str(made / "model"), Inside())
    report.write(report.scan_document(outcome.totals), made / "out")
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    assert (
        ask(
            "scan", "show", str(folder / "out"), "--html", str(folder / "page.html"), "--quiet"
        ).code
        == 0
    )
    return folder / "page.html"


@pytest.fixture(scope="module")
def opened(page: Path, chromium: Any) -> Opened:
    found = Opened(chromium.new_page(viewport={"width": 1280, "height": 860}))
    found.page.on("console", lambda one: found.said.append(one.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("request", lambda request: found.asked.append(request.url))
    found.page.goto(page.as_uri() + "#head=1.1&metric=sink&lang=xx&z=9&x=%E0&colour=nothing")
    return found


def test_a_page_does_not_tell_where_files_lie(folder: Path, page: Path) -> None:
    text = page.read_text("utf-8")
    assert str(folder) not in text
    assert "\\u003cb>corpus.txt:" in text
    assert tails(["/a/b/c.txt", "/a/d/c.txt"]) == ["b/c.txt", "d/c.txt"]
    assert tails(["corpora/c.txt"]) == ["c.txt"]
    assert tails(["/a/c.txt", "d.txt"]) == ["c.txt", "d.txt"]


ROWS = """() => [...document.querySelector('[aria-label="all metrics"] tbody').rows].map((row) =>
  [...row.cells].map((cell) => cell.textContent))"""
HEADS = "() => document.querySelectorAll('[aria-label*=\"layer 0 \"]').length"
VIEW = """(name) => document.querySelector("#metric").value === name &&
  document.querySelector("#view").textContent"""
SHADES = """() => [...document.querySelectorAll(".example")].slice(0, 3).map((one) => [
  one.querySelector(".note").textContent,
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
        low, high = (
            f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.4f}" for value in one["ci95"]
        )
        name = f"L{head['layer']} H{head['head']} {one['mean_texts']:.2f}"
        mean = f"{one['mean_texts']:.3f}"
        assert (
            told == f"{name} · layer {head['layer']} head {head['head']}: {mean} ({low} – {high})"
        )
    assert opened.value("() => document.querySelector('#chosen').textContent") == "layer 1 head 1"
    rows = opened.value(ROWS)
    chosen = next(head for head in document["heads"] if (head["layer"], head["head"]) == (1, 1))
    for row in rows:
        if row[0] == "effect":
            assert row[1] == "–"
            continue
        mean = chosen["metrics"][row[0]]["mean_texts"]
        assert row[1] == (
            "0.000" if mean == 0 else f"{mean:.3f}" if abs(mean) >= 0.01 else f"{mean:.4f}"
        )
    assert rows[-1][0] == "effect"
    table = ROWS.replace("all metrics", "massive activations")
    assert [(row[0], row[1], row[3].split("%")[0]) for row in opened.value(table)] == [
        (
            str(layer["layer"]),
            f"{layer['massive']['mean_texts']:.3f}",
            f"{100 * layer['share']:.0f}",
        )
        for layer in document["layers"]
    ]
    opened.clean()


ALIKE = """() => [...document.querySelector('[aria-label="the heads most like it"] tbody').rows].map((row) =>
  [...row.cells].map((cell) => cell.textContent))"""


def as_the_page_writes(value: float, digits: int) -> str:
    """What `toFixed` gives: of a number halfway between two, the one farther from 0."""
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):f}"


def test_what_a_page_rounds_again_is_told_as_screens_tell_it() -> None:
    drawn = np.random.default_rng(3)
    values = [
        *drawn.random(3000), *np.round(drawn.random(3000), 4), *(drawn.random(500) * 90), *(drawn.random(500) / 90),
        *np.arange(1, 256) / 256, 15.95, 0.0625, 0.9995, 0.99949999, 0.1249999, 0.005, 0.00499999, 0.009996, 1e-7, 0.0,
    ]  # fmt: skip
    for value in (float(sign * one) for one in values for sign in (1, -1)):
        digits = 3 if abs(value) >= 0.01 else 4
        kept = page_number(value)
        assert kept is not None
        assert abs(kept - value) < 10.0 ** -(digits + 1) * 1.51
        for shown in (2, digits):
            assert as_the_page_writes(kept, shown) == f"{value:.{shown}f}", (value, kept)
    assert page_number(None) is None


def test_the_heads_most_like_one_are_told(folder: Path, opened: Opened) -> None:
    plan, document = read_plan(folder / "out"), report.read_report(folder / "out")
    model = attncli.load(str(folder / "model"), backend="numpy")
    texts = sampled_texts(document, document.heads[0])[:PAGE_TEXTS]
    found = alike_heads(plan, model, [(1, 1)], texts)[1, 1]
    assert opened.value("() => document.querySelector('#chosen').textContent") == "layer 1 head 1"
    rows = opened.value(ALIKE)
    for row, doing, second in zip(rows, found.by_doing, found.by_weights, strict=True):
        assert row[::2] == [f"L{doing.layer} H{doing.head}", f"L{second.layer} H{second.head}"]
        assert [float(number) for number in row[1::2]] == pytest.approx(
            [doing.value, second.value], abs=1.1e-3
        )


def test_sentences_are_shaded_by_the_rows_of_their_strongest_links(
    folder: Path, opened: Opened
) -> None:
    model = attncli.load(str(folder / "model"), backend="numpy")
    shown = opened.value(SHADES)
    assert len(shown) == 3
    lines = (folder / "<b>corpus.txt").read_text().splitlines()
    for place, words in shown:
        text = lines[int(place.rpartition(":")[2]) - 1]
        (trace,) = model.trace(text, layers=[1])
        weights = np.asarray(trace.stages["weights"])[1]
        rest = rest_keys(model.encode(text))
        query = int(np.where(rest & ~rest.all(), -1, weights).max(-1).argmax())
        assert [at for at, (_, _, marked) in enumerate(words) if marked] == [query]
        wanted = np.rint(weights[query] * 100)
        assert np.allclose(
            [shade for _, shade, _ in words], wanted / max(wanted.max(), 1) * 0.85, atol=0.02
        )


def test_hostile_texts_are_text_and_nothing_else(page: Path, opened: Opened) -> None:
    raw = page.read_text("utf-8")
    assert raw.count("<script") == 2
    assert "\x1b" not in raw
    assert "\u202e" not in raw
    assert "default-src 'none'" in raw
    assert "http" not in raw.replace("http-equiv", "")
    assert opened.value(
        "() => globalThis.taken === undefined && document.querySelectorAll('img').length === 0"
    )
    shown = [
        (head, metric)
        for head in range(opened.value(HEADS))
        for metric in ("sink", "entropy", "special")
    ]
    said = ""
    for head, metric in shown:  # until one of them shows the hostile text
        opened.value("(hash) => { location.hash = hash; }", f"#head=0.{head}&metric={metric}")
        opened.until(
            "(name) => document.querySelector('#chosen').textContent === name",
            f"layer 0 head {head}",
        )
        said = opened.until(VIEW, metric)
        if "onerror" in said:
            break
    # this vocabulary has no "=" and no "<", and what it does not know is marked
    assert "onerror=globalThis.taken=2" in said.replace(" ", "").replace("?", "")
    assert "<b>corpus.txt" in said
    assert opened.value(
        "() => globalThis.taken === undefined && document.querySelectorAll('img').length === 0"
    )
    opened.value("() => { location.hash = '#head=1.1&metric=sink'; }")
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
    values = opened.value(
        "() => [...document.querySelectorAll('#grid b')].map((one) => Number(one.textContent))"
    )
    assert values == sorted(values, reverse=True)
    opened.value("() => document.querySelector('#language').click()")
    assert chosen()[0] == "第 0 层第 2 头"
    assert opened.value("() => document.documentElement.lang") == "zh"
    assert opened.value("() => location.hash") == (
        f"#head=0.2&metric={before}&x=previous&y=sink&colour=layer&lang=zh"
    )
    assert opened.value("() => document.querySelector('#said').textContent").startswith(
        "第 0 层第 2 头"
    )
    opened.clean()


def test_a_page_without_the_model_says_so(folder: Path, tmp_path: Path) -> None:
    (folder / "model").rename(folder / "elsewhere")
    try:
        answer = ask(
            "scan",
            "show",
            str(folder / "out"),
            "--html",
            str(tmp_path / "page.html"),
            "--lang",
            "zh",
        )
    finally:
        (folder / "elsewhere").rename(folder / "model")
    assert answer.code == 0
    assert "句子" in answer.err
    assert "句子没有着色" in (tmp_path / "page.html").read_text("utf-8")


def test_another_ending_is_refused(folder: Path) -> None:
    answer = ask("scan", "show", str(folder / "out"), "--html", "page.pdf")
    assert (answer.code, "ending in .html" in answer.err) == (2, True)


AXE = """() => axe.run(document, { resultTypes: ["violations"] }).then((told) => [told.passes.length,
  told.violations.map((one) => [one.id, one.nodes[0].html])])"""
BOX = "document.querySelector('#scatter svg').getBoundingClientRect()"
ANSWER = "document.querySelector('#answer').textContent"


OTHERS = """() => [...document.querySelector('[aria-label="the same head in the other scans"] tbody').rows]
  .map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"""
DOTS = """() => [...document.querySelectorAll(".dot")].map((one) =>
  ["data-head", "cx", "cy"].map((name) => Number(one.getAttribute(name))))"""


def lasso(box: dict[str, float]) -> list[tuple[float, float]]:
    """Around everything in a box."""
    left, top = box["x"] + 2, box["y"] + 2
    right, bottom = left + box["width"] - 4, top + box["height"] - 4
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, (top + bottom) / 2)]


@pytest.mark.thorough
def test_heads_are_chosen_and_selected_by_keyboard_and_mouse(
    folder: Path, page: Path, chromium: Any
) -> None:
    document = ask("scan", "show", str(folder / "out"), "--json").json
    found = Opened(chromium.new_page(viewport={"width": 1280, "height": 1000}))
    found.page.goto(page.as_uri() + "#head=1.1&x=sink&y=entropy&colour=label&size=special")
    press, mouse = found.page.keyboard.press, found.page.mouse
    dots = found.value(DOTS)
    assert len(dots) == len(document["heads"])
    by_sink = sorted(dots, key=lambda dot: dot[1])
    sinks = [document["heads"][head]["metrics"]["sink"]["mean_texts"] for head, _, _ in by_sink]
    assert sinks == sorted(sinks), "what is further right has more"
    assert found.value(f"() => {ANSWER}").startswith(f"{len(dots)} heads, of which ")
    earned = [
        {label["name"] for label in head["labels"] if label["earned"]} for head in document["heads"]
    ]
    resting = [names for names in earned if names & {*STATES}]
    labelled = sum(bool(names - {*STATES}) for names in earned)
    assert resting, "a state beside the label is counted apart"
    answer = found.value(f"() => {ANSWER}")
    assert f"of which {labelled} earn a label;" in answer
    both = sum(bool(names - {*STATES}) for names in resting)
    assert f"{len(resting)} of them rest, {both} of these beside a label." in answer
    box = found.value(f"() => {BOX}.toJSON()")
    at, *others = lasso(box)
    mouse.move(*at)
    mouse.down()
    for place in others:
        mouse.move(*place)
    mouse.up()
    assert found.value(f"() => {ANSWER}").startswith(f"Selected: {len(dots)} of {len(dots)} heads")
    found.value("() => document.querySelector('#scatter').focus()")
    press("Escape")
    press("Enter")
    chosen = next(head for head in document["heads"] if (head["layer"], head["head"]) == (1, 1))
    mean = f"{chosen['metrics']['sink']['mean_texts']:.3f}"
    assert f"sink is {mean} on average, from {mean} to {mean}" in found.value(f"() => {ANSWER}")
    assert found.value("() => document.querySelectorAll('.head.faint').length") == len(dots) - 1
    before = found.value("() => document.querySelector('#chosen').textContent")
    for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
        press(key)
    press("Escape")
    head, x, y = by_sink[-1]
    scale = box["width"] / 640
    mouse.move(box["x"] + x * scale, box["y"] + y * scale)
    assert "sink" in found.value("() => document.querySelector('.tip').textContent")
    mouse.click(box["x"] + x * scale, box["y"] + y * scale)
    near = found.value("() => document.querySelector('#chosen').textContent")
    assert near != before or head == document["heads"].index(chosen)
    found.page.select_option("#pick-x", "layer")
    assert "x=layer" in found.value("() => location.hash")
    label = found.value("() => document.querySelector('#pick-label').options[1].textContent")
    found.page.select_option("#pick-label", label)
    earning = sum(
        any(one["earned"] and one["name"] == label for one in head["labels"])
        for head in document["heads"]
    )
    assert f"Selected: {earning} of" in found.value(f"() => {ANSWER}")
    found.page.close()


def nothing_keeps_anyone_out(file: Path, chromium: Any, *, hash: str = "", least: int = 20) -> None:
    """axe-core finds nothing in a page, light or dark."""
    for scheme in ("light", "dark"):
        window = chromium.new_context(color_scheme=scheme, bypass_csp=True).new_page()
        window.goto(file.as_uri() + hash)
        window.evaluate(axe_core())
        passes, violations = window.evaluate(AXE)
        assert violations == [], (file.name, scheme)
        assert passes > least
        window.context.close()


def test_nothing_keeps_anyone_out_of_a_page(page: Path, chromium: Any) -> None:
    nothing_keeps_anyone_out(page, chromium)


def test_nothing_keeps_anyone_out_of_several_scans_and_sites(
    folder: Path, tmp_path: Path, chromium: Any
) -> None:
    shutil.copytree(folder / "out", tmp_path / "again")
    scans = ("scan", "show", str(folder / "out"), str(tmp_path / "again"))
    assert (
        ask(*scans, "--html", str(tmp_path / "both.html"), "--site", str(tmp_path / "site")).code
        == 0
    )
    nothing_keeps_anyone_out(
        tmp_path / "both.html", chromium, hash="#scan=1&head=1.0&colour=label&size=sink"
    )
    nothing_keeps_anyone_out(tmp_path / "site" / "index.html", chromium, least=10)


def in_firefox(window: Any, file: Path, hash: str, expected: tuple[str, int]) -> None:
    """A page is used with keys and a mouse, and axe-core finds nothing in it. expected: the head
    beside the one that `hash` names, and how many heads there are."""
    window.go(file.as_uri() + hash)
    window.value("document.querySelector('#grid [data-head][tabindex=\"0\"]').focus()")
    window.press("ArrowRight")
    assert window.value("return document.querySelector('#chosen').textContent") == expected[0]
    window.value("scrollTo(0, 0)")
    window.drag(lasso(window.value(f"return {BOX}.toJSON()")))
    heads = window.value("return document.querySelectorAll('.dot').length")
    assert heads == expected[1]
    assert window.value(f"return {ANSWER}").startswith(f"Selected: {heads} of {heads} heads")
    window.press("Escape")
    assert window.value(f"return {ANSWER}").startswith(f"{heads} heads")
    passes, violations = window.later(
        f"{axe_core()};const end = arguments[arguments.length - 1];"
        f"({AXE})().then(end, (error) => end([0, String(error)]))"
    )
    assert violations == []
    assert passes > 20


@pytest.mark.thorough
def test_firefox_is_used_with_keys_and_a_mouse(folder: Path, page: Path, tmp_path: Path) -> None:
    heads = len(ask("scan", "show", str(folder / "out"), "--json").json["heads"])
    shutil.copytree(folder / "out", tmp_path / "again")
    site = tmp_path / "site"
    scans = ("scan", "show", str(folder / "out"), str(tmp_path / "again"))
    assert ask(*scans, "--site", str(site), "--lang", "zh").code == 0
    with firefox(tmp_path) as window:
        in_firefox(
            window, page, "#head=1.1&metric=sink&x=sink&y=entropy", ("layer 1 head 2", heads)
        )
        several = "#scan=1&head=1.1&metric=sink&x=sink&y=entropy&colour=label&lang=en"
        in_firefox(window, site / "all.html", several, ("layer 1 head 2", 2 * heads))
        window.go((site / "index.html").as_uri())
        window.go(window.value("return document.querySelector('main a').href"))
        assert "个头" in window.value(f"return {ANSWER}")


def test_several_scans_are_on_one_page(folder: Path, tmp_path: Path, chromium: Any) -> None:
    shutil.copytree(folder / "out", tmp_path / "again")
    asked = ("scan", "show", str(folder / "out"), str(tmp_path / "again"))
    answer = ask(*asked, "--html", str(tmp_path / "both.html"), "--quiet")
    assert (answer.code, answer.out) == (0, "")
    found = Opened(chromium.new_page(viewport={"width": 1280, "height": 1000}))
    found.page.goto((tmp_path / "both.html").as_uri() + "#scan=1&head=1.0")
    heads = len(ask("scan", "show", str(folder / "out"), "--json").json["heads"])
    assert found.value("() => document.querySelectorAll('.dot').length") == 2 * heads
    assert found.value("() => document.querySelectorAll('.dot.k0').length") == heads
    assert found.value("() => document.querySelectorAll('#grid .head').length") == heads
    assert "scan=1" not in found.value("() => document.title")
    assert (
        found.value("() => document.querySelector('#of').textContent") == "2: model, <b>corpus.txt"
    )
    rows = found.value(OTHERS)
    assert all(first == second for first, second in rows)
    found.page.close()
    refused = ask(*asked)
    assert (refused.code, "2 scans are named, and the screen shows one" in refused.err) == (2, True)
    refused = ask(*asked, "--html", str(tmp_path / "both.html"), "--head", "L0H0")
    assert (refused.code, "--head is about one scan" in refused.err) == (2, True)


def test_a_site_is_a_folder_of_pages_that_tells_no_place(
    folder: Path, tmp_path: Path, chromium: Any
) -> None:
    shutil.copytree(folder / "out", tmp_path / "again")
    site = tmp_path / "site"
    asked = ("scan", "show", str(folder / "out"), str(tmp_path / "again"), "--site", str(site))
    for lang in ("en", "zh"):
        answer = ask(*asked, "--lang", lang)
        assert (answer.code, answer.out) == (0, ""), answer.err
    names = sorted(path.name for path in site.iterdir())
    assert names == [
        "1-model-b-corpus-txt.html", "1-model-b-corpus-txt.json", "2-model-b-corpus-txt.html",
        "2-model-b-corpus-txt.json", "all.html", "index.html",
    ]  # fmt: skip
    for path in site.iterdir():
        assert str(folder) not in path.read_text("utf-8")
    told = json.loads((site / "1-model-b-corpus-txt.json").read_text("utf-8"))
    assert told["plan"]["corpus"] == ["<b>corpus.txt"]
    found = chromium.new_page()
    found.goto((site / "index.html").as_uri())
    assert "2 次扫描" in found.text_content("#line")
    found.click("text=2: model")
    assert found.evaluate("() => document.querySelectorAll('.dot').length") > 0
    found.close()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/index.html").write_text("<p>mine</p>")
    refused = ask("scan", "show", str(folder / "out"), "--site", str(tmp_path / "mine"))
    assert (refused.code, "an index.html that attn did not write" in refused.err) == (2, True)
    assert (tmp_path / "mine/index.html").read_text() == "<p>mine</p>"


@pytest.mark.thorough
def test_a_page_of_a_thousand_heads_is_small_and_used(
    folder: Path, tmp_path: Path, chromium: Any
) -> None:
    """The numbers and 96 texts of each head of a large model over a corpus of 20,000 texts that few
    heads share.
    """
    document = report.read_report(folder / "out")
    assert document.texts
    drawn = np.random.default_rng(1)
    words = [f"w{number}" for number in range(900)]
    lines = [" ".join(drawn.choice(words, 21)) for _ in range(20_000)]
    metrics = dict.fromkeys(f"metric{number}" for number in range(8)) | dict(
        document.heads[0].metrics
    )
    some = next(iter(document.heads[0].metrics.values()))
    heads = []
    for number in range(1000):
        own = drawn.integers(0, len(lines), 96)
        sample = [
            replace(example, text=int(own[place % 96]), metric=name, decile=place // 3 + 1)
            for name in metrics
            for place, example in enumerate([document.heads[0].sample[0]] * 30)
        ]
        top = [
            replace(document.heads[0].top[0], metric=name, line=int(at), text=lines[at])
            for name in metrics
            for at in drawn.integers(0, len(lines), 3)
        ]
        measured = {
            name: replace(metric or some, mean_texts=float(drawn.random()))
            for name, metric in metrics.items()
        }
        heads.append(
            replace(
                document.heads[0],
                layer=number // 32,
                head=number % 32,
                metrics=measured,
                sample=sample,
                top=top,
            )
        )
    texts = [
        replace(document.texts[0], file=0, line=at, text=line) for at, line in enumerate(lines)
    ]
    large = replace(document, heads=heads, texts=texts)
    density = density_of([large])
    looks, tokens = {}, {}
    for head in heads:
        for example in examples_of(large, head, DENSITIES[density]):
            place = (example.file, example.line)
            tokens[place] = [
                Token(index=at, id=at, text=word) for at, word in enumerate(example.text.split())
            ]
            looks[*place, head.layer, head.head] = (1, drawn.dirichlet(np.ones(21)))
    page = scan_page([PageScan(large, tokens, looks)], lang="en", density=density)
    assert 10**6 < len(page) <= BUDGET
    assert "holds fewer texts of each head" in page.decode()
    (tmp_path / "large.html").write_bytes(page)
    chosen = "#head=7.5&x=sink&y=entropy"
    nothing_keeps_anyone_out(tmp_path / "large.html", chromium, hash=chosen)
    found = Opened(chromium.new_page(viewport={"width": 1280, "height": 1000}))
    found.page.goto((tmp_path / "large.html").as_uri() + chosen)
    assert found.value("() => document.querySelectorAll('.dot').length") == 1000
    found.value("() => document.querySelector('#grid [data-head][tabindex=\"0\"]').focus()")
    found.page.keyboard.press("ArrowRight")
    assert found.value("() => document.querySelector('#chosen').textContent") == "layer 7 head 6"
    found.value("() => scrollTo(0, 0)")
    at, *others = lasso(found.value(f"() => {BOX}.toJSON()"))
    found.page.mouse.move(*at)
    found.page.mouse.down()
    for place in others:
        found.page.mouse.move(*place)
    found.page.mouse.up()
    assert found.value(f"() => {ANSWER}").startswith("Selected: 1000 of 1000 heads")
    found.page.close()
    with firefox(tmp_path) as window:
        in_firefox(window, tmp_path / "large.html", chosen, ("layer 7 head 6", 1000))


def test_a_page_tells_which_rules_a_head_has(folder: Path, opened: Opened) -> None:
    rules = ask("scan", "show", str(folder / "out"), "--json").json["rules"]
    head = next(head for head in rules["heads"] if (head["layer"], head["head"]) == (1, 1))
    opened.page.evaluate(
        "() => { location.hash = '#head=1.1&metric=rule_overlap&y=rule_overlap&colour=rule&lang=en'; }"
    )
    opened.page.wait_for_function("() => document.querySelector('#pick-colour').value")
    told = opened.value("() => document.querySelector('#rule').textContent")
    assert told.startswith("Layer 1 head 1")
    assert f"{head['parts'][0]['weight']:.2f}" in told
    tile = opened.value(
        "() => document.querySelector('#grid [aria-pressed=true]').getAttribute('aria-label')"
    )
    assert f"{head['overlap']:.3f}" in tile
    legend = opened.value("() => document.querySelector('#legend').textContent")
    assert legend.startswith("strongest rule")
    opened.clean()
