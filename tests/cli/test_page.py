"""`--html` on every command that has it, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from asking import ask

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat on the mat"
COMMANDS = {
    "run": ("run", TEXT, "--num-heads", "2"),
    "run one query": ("run", TEXT, "--query", "cat"),
    "heads": ("heads", TEXT),
    "find": ("find", TEXT, "--from", "cat", "--to", "mat"),
    "compare": ("compare", TEXT, "the dog sat on the mat"),
    "cross": ("cross", TEXT, "a dog"),
    "ablate": ("ablate", TEXT, "--query", "cat"),
    "tensors": ("tensors", str(ROOT / "sample_inputs" / "captured.npz")),
}


def meta(file: Path) -> dict:
    found = re.search(r'id="meta">(.*?)</script>', file.read_text("utf-8"))
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_beside_the_answer(tmp_path: Path, name: str) -> None:
    file = tmp_path / "page.html"
    alone = ask(*COMMANDS[name])
    both = ask(*COMMANDS[name], "--html", str(file))
    assert both.code == 0, both.err
    assert both.out == alone.out
    found = meta(file)
    assert len(found["runs"]) == (2 if name == "compare" else 1)
    assert found["start"].get("view") == {
        "find": "search",
        "compare": "difference",
        "ablate": "effects",
    }.get(name)


@pytest.mark.parametrize(
    "name", ["run", "heads", "find", "cross", "tensors", "run one query", "ablate"]
)
def test_view_makes_the_page_of_what_was_saved(tmp_path: Path, name: str) -> None:
    saved, file = tmp_path / "saved.json", tmp_path / "page.html"
    assert ask(*COMMANDS[name], "--json", "-o", str(saved)).code == 0
    answer = ask("view", str(saved), "--html", str(file))
    assert answer.code == 0, answer.err
    assert [head["r"] for head in meta(file)["runs"][0]["heads"]] == (
        ["absent" if name in ("find", "ablate") else "exact"] * len(meta(file)["runs"][0]["heads"])
    )


def test_view_makes_the_page_of_a_saved_comparison(tmp_path: Path) -> None:
    saved, file = tmp_path / "saved.json", tmp_path / "page.html"
    assert ask("compare", TEXT, "a dog sat on the mat", "--json", "-o", str(saved)).code == 0
    assert ask("view", str(saved), "--html", str(file)).code == 0
    found, document = meta(file), json.loads(saved.read_text())
    assert [run["name"]["zh"] for run in found["runs"]] == ["文本 1", "文本 2"]
    words = [document["b"]["tokens"][pair[1]]["text"] for pair in document["aligned"]]
    assert [word[0] for word in found["runs"][1]["q"]] == words
    assert found["pairs"] == [list(range(len(words)))] * 2
    moved, places = document["moved"][0], [pair[0] for pair in document["aligned"]]
    assert found["start"] == {
        "view": "difference", "head": f"{moved['layer']}.{moved['head']}",
        "query": str(places.index(moved["query"])), "key": str(places.index(moved["key"])),
    }  # fmt: skip
    assert found["partial"]
    # the words that only one text has stand above each other, without a place in the runs
    columns = [
        [entry if isinstance(entry, int) else entry[0] for entry in both]
        for both in found["columns"]
    ]
    assert columns == [["the", "a"], ["cat", "dog"], *([place] * 2 for place in range(len(words)))]
    for run, side in zip(found["runs"], "ab", strict=True):
        (strongest,) = run["heads"][0]["k"][:1]
        weights = document["heads"][0][f"weights_{side}"]
        assert strongest[2] == pytest.approx(weights[strongest[0]][strongest[1]], abs=1e-6)
        assert strongest[2] == pytest.approx(max(max(row) for row in weights), abs=1e-6)


def test_view_makes_the_page_of_saved_effects(tmp_path: Path) -> None:
    saved, file = tmp_path / "saved.json", tmp_path / "page.html"
    assert ask("patch", TEXT, "the dog sat on the mat", "--json", "-o", str(saved)).code == 0
    assert ask("view", str(saved), "--html", str(file)).code == 0
    found, document = meta(file), json.loads(saved.read_text())
    assert found["start"] == {
        "view": "effects",
        "head": "0.3",
        "query": "1",
        "key": "1",
    }  # the changed word
    (effects,) = found["effects"]
    assert (effects["kind"], effects["measure"], effects["at"]) == ("patch", "cosine", "")
    told = {(one["l"], one["h"]): one["v"] for one in effects["heads"]}
    assert told == {(one["layer"], one["head"]): one["recovered"] for one in document["effects"]}
    assert f"{effects['kind']}.lead" in found["words"]["en"]


def test_effects_of_no_head_alone_have_no_view_on_a_page(tmp_path: Path) -> None:
    saved, file = tmp_path / "saved.json", tmp_path / "page.html"
    assert (
        ask(
            "ablate",
            TEXT,
            "--head",
            "0,1",
            "--together",
            "--html",
            str(file),
            "--json",
            "-o",
            str(saved),
        ).code
        == 0
    )
    found = meta(file)
    assert (found["effects"], found["start"].get("view")) == ([], None)
    assert ask("view", str(saved), "--html", str(tmp_path / "other.html")).code == 0
    assert 'id="table"' in (tmp_path / "other.html").read_text("utf-8")


def test_view_of_tensors_has_their_queries_and_keys(tmp_path: Path) -> None:
    saved, file = tmp_path / "saved.safetensors", tmp_path / "page.html"
    assert ask("run", TEXT, "--num-heads", "2", "--save", str(saved)).code == 0
    assert ask("view", str(saved), "--html", str(file)).code == 0
    assert all("p" in head for head in meta(file)["runs"][0]["heads"])


def test_a_document_without_heads_has_a_page_of_its_table(tmp_path: Path) -> None:
    saved, file = tmp_path / "mask.json", tmp_path / "page.html"
    assert ask("mask", "causal", "--json", "-o", str(saved)).code == 0
    assert ask("view", str(saved), "--html", str(file)).code == 0
    page = file.read_text("utf-8")
    rows = ask("view", str(saved), "--plain").out.splitlines()
    assert page.count("<tr>") == len(rows)
    assert page.count("data:image/svg+xml") == 4  # two themes, two languages


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--html", "page.txt"), "a file ending in .html"),
        (("--html", "page.html", "--lines"), "--html is one page of one text"),
        (("--html", "same.html", "-o", "same.html"), "--output and --html are the same file"),
        (("--html-budget", "2MB"), "none is asked for"),
        (("--html", "page.html", "--html-budget", "much"), "--html-budget is 'much'"),
    ],
    ids=str,
)
def test_misuse(arguments: tuple[str, ...], said: str) -> None:
    answer = ask("run", TEXT, *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_open_asks_for_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, asked = tmp_path / "saved.json", []
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("webbrowser.open", lambda address: asked.append(address) or False)
    assert ask("run", TEXT, "--json", "-o", str(saved)).code == 0
    answer = ask("view", str(saved), "--open")
    assert answer.code == 0
    assert len(asked) == 1
    assert asked[0].startswith("file:///")
    assert "no browser could be opened; the page is" in answer.err
