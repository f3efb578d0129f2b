"""The page of `attn circuit`: what it holds, and how it is read in Chromium and Firefox."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from browsing import axe_core
from firefox import firefox
from msgspec import UNSET
from msgspec.json import encode
from msgspec.structs import replace
from small_gpt2 import small_gpt2

import attncli
from attncli.draw.page import any_page
from attncli.draw.page.page_frame import page_script
from attncli.features.circuit.document import CircuitDocument
from attncli.features.circuit.page import SCRIPTS

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"
AXE = """async () => (await axe.run({rules: {'target-size': {enabled: true}}})).violations
  .map(({id, nodes}) => [id, nodes[0].html])"""
LINES = "document.querySelectorAll('[data-edge]').length"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> CircuitDocument:
    folder = small_gpt2(tmp_path_factory.mktemp("page") / "gpt2")
    return attncli.circuit(attncli.load(folder, dtype="float64"), SAMPLES, size="33")


def page_text(document: CircuitDocument, lang: str = "en") -> str:
    return b"".join(any_page(document, lang=lang)).decode()


def meta_of(page: str) -> dict[str, Any]:
    return json.loads(page.partition('id="meta">')[2].partition("</script>")[0])


def test_the_picture_grows_with_the_size(document: CircuitDocument) -> None:
    """Each size has the strongest of its live edges, up to as many as are drawn, and every part that
    carries something in it."""
    graph = document.graph
    edges = {(edge.writer, edge.to, edge.reads): edge for edge in graph.edges}
    own = [(edge.writer, edge.to, edge.reads) for edge in document.edges]
    assert [key for key in edges if edges[key].least <= document.chosen.edges] == own
    for key, edge in zip(own, document.edges, strict=True):
        assert edges[key].score == edge.score
    inside = {node.id for node in graph.nodes if node.least <= document.chosen.edges}
    assert inside == {node.id for node in document.nodes}
    for size in document.curve:
        live = sum(edge.least <= size.edges for edge in graph.edges)
        assert live == min(size.live, graph.most)
    assert graph.edges[-1].least == document.graph_edges


def test_its_page_holds_all_sizes_and_both_figures(document: CircuitDocument) -> None:
    meta = meta_of(page_text(document))
    assert [size["edges"] for size in meta["sizes"]] == sorted(
        {size.edges for size in (*document.curve, document.chosen)}
    )
    assert meta["sizes"][meta["start"]]["edges"] == 33
    cut = document.cuts.edges[0]
    entry = next(edge for edge in meta["edges"] if edge["from"] == cut.writer)
    assert (entry["to"], entry["exact"]) == (cut.to, pytest.approx(cut.exact, rel=1e-4))
    assert sum("exact" in edge for edge in meta["edges"]) == len(document.cuts.edges)
    assert len(page_script("circuit").encode()) <= 8000
    assert not re.search(r"innerHTML|insertAdjacent|\beval\(", page_script(*SCRIPTS))
    # without the circuits of all sizes, as an earlier version wrote it, the page is the general one
    assert 'id="size"' not in page_text(replace(document, graph=UNSET))


def test_shared_keys_lead_to_each_head_of_their_group(document: CircuitDocument) -> None:
    edge = replace(document.graph.edges[0], to="L1KV0", reads="k")
    model = replace(document.model, heads=4, kv_heads=2)
    shared = replace(document, model=model, graph=replace(document.graph, edges=[edge]))
    assert meta_of(page_text(shared))["edges"][0]["ends"] == ["L1H0", "L1H1"]


def hostile(document: CircuitDocument) -> CircuitDocument:
    """The same of a file whose names are HTML."""
    mark = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"
    edges = [replace(document.graph.edges[0], writer=mark), *document.graph.edges]
    return replace(
        document,
        pairs=replace(document.pairs, name=mark),
        nodes=[replace(document.nodes[1], labels=[mark], id=mark), *document.nodes],
        graph=replace(document.graph, edges=edges),
    )


def test_names_are_only_ever_text(document: CircuitDocument) -> None:
    page = page_text(hostile(document))
    assert "<img" not in page
    assert page.count("<script") == 2


@pytest.mark.thorough
def test_it_is_read_with_mouse_and_keys(
    chromium: Any, document: CircuitDocument, tmp_path: Path
) -> None:
    saved, file = tmp_path / "circuit.json", tmp_path / "circuit.html"
    saved.write_bytes(encode(document))
    assert ask("view", str(saved), "--html", str(file)).code == 0
    sizes = [size.edges for size in document.curve]
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
        lines = page.evaluate(LINES)
        assert lines == len(document.edges)  # no key-value head is shared here
        page.focus("[data-node=L0H1]")
        assert page.inner_text("#chosen").startswith("L0H1")
        assert 0 < page.evaluate("document.querySelectorAll('.off').length") < lines
        page.keyboard.press("ArrowUp")
        assert not page.inner_text("#chosen").startswith("L0H1")
        page.keyboard.press("Escape")
        cut = document.cuts.edges[0]
        page.focus("#list button")
        both = page.inner_text("#edge")
        assert f"{cut.writer} → {cut.to}" in both
        assert f"cut alone on 2 pairs: {cut.exact:+.3f}" in both
        assert page.evaluate("document.querySelectorAll('[data-edge]:not(.off)').length") == 1
        page.focus("#size")
        page.keyboard.press("Home")
        assert page.inner_text("#keeps").startswith(f"{sizes[0]} of ")
        page.keyboard.press("End")
        assert page.inner_text("#keeps").startswith(f"{sizes[-1]} of ")
        page.click("#language")
        assert page.evaluate("document.documentElement.lang") == "zh"
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert said == []
        assert len(asked) == 1
        page.evaluate(axe_core())
        assert page.evaluate(AXE) == [], (scheme, width)
        window.close()
    file.write_text(page_text(hostile(document)))
    page = chromium.new_page()
    page.goto(file.as_uri())
    assert page.evaluate("document.images.length") == 0
    page.close()


@pytest.mark.thorough
def test_firefox_reads_it(document: CircuitDocument, tmp_path: Path) -> None:
    file = tmp_path / "circuit.html"
    file.write_text(page_text(document, "zh"))
    with firefox(tmp_path) as window:
        window.go(file.as_uri())
        end = time.monotonic() + 60
        while window.value(f"return {LINES}") != len(document.edges):
            assert time.monotonic() < end
            time.sleep(0.1)
        window.value("document.querySelector('[data-node=L0H1]').focus()")
        assert window.value("return document.querySelector('#chosen').textContent").startswith(
            "L0H1"
        )
        window.press("ArrowUp")
        chosen = window.value("return document.activeElement.dataset.node")
        assert chosen not in ("L0H1", None)
        window.value("document.querySelector('#size').focus()")
        window.press("ArrowRight")
        assert window.value("return document.querySelector('#size').getAttribute('aria-valuetext')")
        assert window.value(f"return {LINES}") > len(document.edges)
