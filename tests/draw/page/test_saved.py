"""Pages of saved documents: what a document holds is shown, what it does not hold is not spoken of,
and a page of what was saved opens where the page of the run itself does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from browsing import Opened, opened
from small_gpt2 import small_gpt2

import attncli
from attncli.notebook import bundle

ROOT = Path(__file__).parents[3]
TEXT = "The animal didn't cross the street because it was too tired"
OTHER = "The animal didn't cross the street because it was too wide"
FULL = ("--model", "minilm")
TILES = """() => [...document.querySelectorAll('#grid .tile')].map((tile) => {
  const canvas = tile.querySelector('canvas');
  const [r, g, b] = canvas.getContext('2d').getImageData(0, 0, 1, 1).data;
  return [tile.getAttribute('aria-label').split(' · ')[0], tile.querySelector('.over').textContent, r + g + b];
})"""
VIEWS = "() => [...document.querySelectorAll('#tabs button')].map((one) => one.id)"
SENTENCE = "() => document.querySelector('#direction').textContent"
BEGINNING = """() => {
  const {run, head, view, query, key} = attn.state, {l, h} = attn.meta.runs[run].heads[head];
  return [l, h, view, document.querySelector('.w.chosen')?.textContent ?? '', query, key];
}"""


@pytest.fixture(scope="module")
def window(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """One window for all pages."""
    file = tmp_path_factory.mktemp("first") / "page.html"
    assert ask("run", "a b", "--html", str(file)).code == 0
    found = opened(chromium, file)
    yield found
    found.page.context.close()


def saved_page(folder: Path, *command: str) -> Path:
    """The page of what a command saved."""
    document, page = folder / "saved.json", folder / "saved.html"
    answer = ask(*command, "--json", "-o", str(document))
    assert answer.code == 0, answer.err
    answer = ask("view", str(document), "--html", str(page))
    assert answer.code == 0, answer.err
    return page


EFFECTS = {
    "find": ("find", TEXT, "--from", "it", "--to", "animal", *FULL),
    "ablate": ("ablate", TEXT, "--query", "it", "--layer", "3-5", "--baseline", "none", *FULL),
    "ablate mean": ("ablate", TEXT, "--layer", "3-5", "--baseline", "none", *FULL),
    "cut": (
        "ablate",
        TEXT,
        "--from",
        "it",
        "--to",
        "animal",
        "--layer",
        "3-5",
        "--baseline",
        "none",
        *FULL,
    ),
    "patch": ("patch", TEXT, OTHER, "--layer", "3-5", *FULL),
}


@pytest.mark.many
@pytest.mark.parametrize("name", EFFECTS)
def test_heads_without_weights_are_shown_by_what_is_known_of_them(
    window: Opened, tmp_path: Path, name: str
) -> None:
    window.go(saved_page(tmp_path, *EFFECTS[name]))
    view = "tab-search" if name == "find" else "tab-effects"
    window.until(
        "(view) => document.querySelector(`#${view}`).getAttribute('aria-selected') === 'true'",
        view,
    )
    window.until(
        "() => [...document.querySelectorAll('#grid .over')].every((one) => one.textContent)"
    )
    tiles = window.value(TILES)
    layers = range(6) if name == "find" else range(3, 6)
    assert [tile[0] for tile in tiles] == [
        f"layer {layer} head {head}" for layer in layers for head in range(12)
    ]
    numbers = [abs(float(tile[1])) for tile in tiles]
    strongest = numbers.index(max(numbers))
    assert min(range(len(tiles)), key=lambda at: tiles[at][2]) in (
        strongest,
        numbers.index(sorted(numbers)[-2]),
    )
    assert len({tile[2] for tile in tiles}) > 4
    shown = window.value(VIEWS)
    assert set(shown) <= {"tab-search", "tab-effects"}
    assert view in shown
    assert window.value("() => document.querySelectorAll('#view .found li').length") > 5
    told = window.value(SENTENCE)
    assert "[CLS]" not in told
    expected = {
        "find": '"it" looks at "animal" with 0.647',
        "cut": '"it" looks at "animal" with 0.6',
        "patch": "",
    }
    assert told.startswith(expected.get(name, ""))
    assert bool(told) == (name not in ("ablate mean", "patch"))
    page = window.value("() => document.body.innerText")
    assert "--html-budget" not in page
    assert "No head sees" not in page
    window.clean()


@pytest.mark.thorough
def test_why_is_told_of_the_link_that_the_document_is_about(window: Opened, tmp_path: Path) -> None:
    asked = ("why", TEXT, "--from", "it", "--to", "animal", "--head", "L5H11", *FULL)
    document, direct = ask(*asked, "--json").json, tmp_path / "direct.html"
    assert ask(*asked, "--html", str(direct)).code == 0
    added = {
        (part["layer"], part["head"]): 0.0 for part in document["parts"] if part["kind"] == "head"
    }
    for part in document["parts"]:
        if part["kind"] == "head":
            added[part["layer"], part["head"]] += part["query_side"] + part["key_side"]
    for file in (saved_page(tmp_path, *asked), direct):
        window.go(file)
        sides = window.until("() => { const all = [...document.querySelectorAll('#view .asked .side')]; "
            "return all.length && all.map((one) => one.querySelector('.where').textContent) }")  # fmt: skip
        assert sides == ["L4 feed-forward", "token"]
        window.until(
            "() => [...document.querySelectorAll('#grid .over')].some((one) => one.textContent)"
        )
        told = {name: number for name, number, _ in window.value(TILES) if number}
        assert len(told) == 60
        assert float(told["layer 4 head 0"]) == pytest.approx(added[4, 0], abs=5.1e-3)
        assert "85 parts add up to the score 4.1412" in window.value(
            "() => document.querySelector('#view').innerText"
        )
        window.page.locator("#view .asked button", has_text="L4 H0").first.click()
        window.until("() => attn.state.head === 48")
        held = "() => [...document.querySelectorAll('#view .found .where')].map((one) => one.textContent)"
        assert window.until(held) == ["layer 5 head 11 · it → animal"]
        window.page.locator("#view .found button").first.click()
        assert window.until("() => document.querySelectorAll('#view .asked .side').length") == 2
        window.value("() => attn.choose({lang: 'zh'})")
        assert window.until(
            "() => document.querySelector('#view .lead').textContent.includes('该行的期望')"
        )
        window.clean()


def test_the_lens_is_told_layer_by_layer(window: Opened, tmp_path: Path) -> None:
    small_gpt2(tmp_path / "gpt2")
    asked = ("logits", "the cat sat on", "--model", str(tmp_path / "gpt2"), "--lens")
    lens = ask(*asked, "--json").json["lens"]
    for file in (saved_page(tmp_path, *asked), tmp_path / "direct.html"):
        assert ask(*asked, "--html", str(tmp_path / "direct.html")).code == 0
        window.go(file)
        rows = window.until("() => { const all = [...document.querySelectorAll('#view .found li')]; "
            "return all.length && all.map((one) => one.innerText) }")  # fmt: skip
        assert len(rows) == len(lens)
        for row, entry in zip(rows, lens, strict=True):
            assert f"rank {entry['rank']} · " in row
        # the tiles are not empty beside it: they have what each head adds to the logit
        assert window.until(
            "() => [...document.querySelectorAll('#grid .over')].every((one) => one.textContent)"
        )
        window.clean()


def test_a_link_that_the_mask_hides_is_said_to_be_hidden(window: Opened, tmp_path: Path) -> None:
    hidden = (
        "find",
        "the cat sat on the mat",
        "--num-heads",
        "4",
        "--mask",
        "causal",
        "--from",
        "cat",
        "--to",
        "mat",
    )
    window.go(saved_page(tmp_path, *hidden))
    assert (
        window.until("() => document.querySelector('#view .note')?.textContent")
        == "No head sees this pair."
    )
    assert [tile[1] for tile in window.value(TILES)] == ["hidden"] * 4
    assert window.value(SENTENCE) == '"cat" does not see "mat"'
    assert "0.00" not in window.value("() => document.body.innerText")
    window.clean()


def test_a_search_for_what_a_document_does_not_hold_says_so(window: Opened, tmp_path: Path) -> None:
    window.go(
        saved_page(tmp_path, "find", TEXT, "--from", "it", "--to", "animal", *FULL, "--layer", "5")
    )
    window.until("() => document.querySelectorAll('#view .found li').length")
    window.page.fill("#to", "street")
    said = window.until(
        "() => !document.querySelector('#view .found li') && document.querySelector('#view .note').textContent"
    )
    assert said == "Of 12 of 12 heads the page holds no weight of this pair."
    window.clean()


def test_pooled_weights_of_a_long_text_are_shown_as_a_map(window: Opened, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text(" ".join(f"w{at % 97}" for at in range(3000)))
    window.go(saved_page(tmp_path, "heads", "--file", str(text), "--num-heads", "2"))
    wide, tall = window.until(
        "() => { const map = document.querySelector('#view canvas.small'); return map && [map.width, map.height] }"
    )
    assert min(wide, tall) > 20
    assert window.value(VIEWS) == ["tab-matrix", "tab-search"]
    window.clean()


COMMANDS = {
    "run": ("run", TEXT, *FULL),
    "run chinese": ("run", "她吃苹果，他吃香蕉", *FULL, "--lang", "zh"),
    "run query": ("run", TEXT, "--query", "it", *FULL),
    "run words": ("run", TEXT, "--words", *FULL),
    "run seeded": ("run", "the cat sat on the mat", "--num-heads", "4"),
    "heads": ("heads", TEXT, *FULL),
    "find": ("find", TEXT, "--from", "it", "--to", "animal", *FULL),
    "ablate": ("ablate", TEXT, "--query", "it", "--baseline", "none", *FULL),
    "why": ("why", TEXT, "--from", "it", "--to", "animal", "--head", "L5H11", *FULL),
    "compare": ("compare", TEXT, OTHER, *FULL),
    "compare shifted": ("compare", TEXT, f"Here {TEXT}", *FULL),
    "patch": ("patch", TEXT, OTHER, "--layer", "3-5", *FULL),
    "logits": ("logits", "the cat sat on", "--model", "{t}/gpt2"),
    "cross": ("cross", "the cat sat", "on a mat"),
    "tensors": ("tensors", str(ROOT / "sample_inputs" / "captured.npz")),
}
SOONEST = ("run", "find", "compare shifted", "why", "tensors")
"""Those that are always tried; the others take long."""


@pytest.mark.many
@pytest.mark.parametrize(
    "name",
    [
        name if name in SOONEST else pytest.param(name, marks=pytest.mark.thorough)
        for name in COMMANDS
    ],
)
def test_saved_and_direct_pages_open_at_the_same_place(
    window: Opened, tmp_path: Path, name: str
) -> None:
    direct = tmp_path / "direct.html"
    if name == "logits":
        small_gpt2(tmp_path / "gpt2")
    asked = [part.replace("{t}", str(tmp_path)) for part in COMMANDS[name]]
    assert ask(*asked, "--html", str(direct)).code == 0
    beginnings = []
    for file in (direct, saved_page(tmp_path, *asked)):
        window.go(file)
        beginnings.append(window.value(BEGINNING))
        window.clean()
    if name.startswith("compare"):  # one of the pages has the words that only one text has, too
        beginnings = [entry[:4] for entry in beginnings]
    assert beginnings[0] == beginnings[1]
    assert beginnings[0][-1] != "[CLS]"
    said = " ".join(ask(*asked, "--brief", "--lang", "en").out.split())
    head = re.search(r"layer (\d+) head (\d+)", said)
    link = re.search(r'"([^"]+)"( looks at | → )"([^"]+)"', said)
    assert head or link or name in ("tensors", "run chinese")
    if head:
        assert beginnings[0][:2] == [int(head[1]), int(head[2])]
    if link:
        words = [window.value("() => { const {query, key} = attn.state, run = attn.meta.runs[0];"
            "return [run.q[query][0], (run.k ?? run.q)[key][0]] }")]  # fmt: skip
        assert words == [[link[1], link[3]]]


MOVED = """() => [...document.querySelectorAll('#view .found li')].map((row) =>
  [row.querySelector('.where').textContent, Number(row.querySelector('.number').textContent.replace('−', '-'))])"""


@pytest.mark.parametrize("options", [(), ("--all-links",)])
@pytest.mark.thorough
def test_a_page_lists_the_links_that_the_terminal_lists(
    window: Opened, tmp_path: Path, options: tuple[str, ...]
) -> None:
    asked = ("compare", TEXT, OTHER, *FULL, "--layer", "3", "--head", "1", "--top", "12", *options)
    document = ask(*asked, "--json").json
    assert document.get("links_leave_out", []) == (
        [] if options else ["special", "self", "neighbours", "first"]
    )
    moved = [round(link["difference"], 3) for link in document["moved"]]
    direct = tmp_path / "direct.html"
    assert ask(*asked, "--html", str(direct)).code == 0
    for file in (direct, saved_page(tmp_path, *asked)):
        window.go(file)
        rows = window.until(f"() => {{ const rows = ({MOVED})(); return rows.length && rows }}")
        assert [number for _, number in rows] == pytest.approx(moved, abs=2e-3)
        assert any("[CLS]" in name for name, _ in rows) == bool(options)
        window.clean()


@pytest.mark.many
@pytest.mark.parametrize(
    ("name", "lang", "lead"),
    [
        ("ablate mean", "en", "What changes in the mean of all vectors when one head is taken away (it passes on "
         "nothing): how far the vector turns, 1 − cosine"),
        ("ablate", "zh", "去掉一个头（不传递任何内容）会使“it”改变多少：向量转动多少，1 − 余弦"),
        ("patch", "en", f'Heads of the clean text are put into "{OTHER}" one at a time: how much each brings back in '
         "the mean of all vectors, measured by the cosine with the clean text's vector"),
    ],
)  # fmt: skip
def test_a_page_says_in_words_what_is_measured(
    window: Opened, tmp_path: Path, name: str, lang: str, lead: str
) -> None:
    window.go(saved_page(tmp_path, *EFFECTS[name]))
    window.value("(lang) => attn.choose({lang})", lang)
    said = window.until("() => document.querySelector('#view .lead')?.textContent")
    assert said == lead
    window.clean()


def test_a_trace_in_a_notebook_has_its_text(window: Opened, tmp_path: Path) -> None:
    trace = next(iter(attncli.load("minilm").trace(TEXT, layers=[5])))
    frame = bundle(trace)["text/html"]
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>n</title>{frame}", "utf-8")
    window.page.goto(file.as_uri())
    inner = window.page.frames[1]
    for _ in range(600):
        if inner.evaluate("() => document.querySelectorAll('#grid .tile').length"):
            break
        window.page.wait_for_timeout(50)
    text = inner.evaluate(
        "() => document.querySelector('#sentence').innerText.replace(/\\s+/g, ' ')"
    )
    assert text == f"[CLS] {TEXT} [SEP]"
    assert inner.evaluate("() => document.querySelector('.w.chosen').textContent") != "[CLS]"


def test_a_notebook_names_no_option_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncli.notebook.BUDGET", 2_000)
    trace = next(iter(attncli.load("minilm").trace(TEXT, layers=[5])))
    page = bundle(trace)["text/html"]
    assert "&quot;r&quot;:&quot;none&quot;" in page
    assert "--html-budget" not in page


def test_documents_in_a_notebook_are_the_pages_of_view(tmp_path: Path) -> None:
    from attncli.documents.reading import document_of

    for name in ("find", "ablate", "patch"):
        document = document_of(ask(*EFFECTS[name], "--json").json, name)
        page = bundle(document)["text/html"]
        assert (
            f"&quot;start&quot;:{{&quot;view&quot;:&quot;{'search' if name == 'find' else 'effects'}"
            in page
        )
    document = document_of(ask("compare", "a b", "a c", "--json").json, "compare")
    assert "&quot;view&quot;:&quot;difference&quot;" in bundle(document)["text/html"]
