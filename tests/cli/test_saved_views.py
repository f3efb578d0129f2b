"""Every document that a command saves, opened as screen, figure, page and in the explorer: it is
shown, or refused by design, and no document can be without one of the two."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from commands import example
from scanning import inside
from small_gpt2 import small_gpt2

from attncli.cli.app import COMMANDS
from attncli.documents import KINDS, NAMES
from attncli.documents.reading import document_of, topic_of
from attncli.draw.safe import cells
from attncli.errors import InputError
from attncli.explore.command import _saved_source
from attncli.features.explain.document import TOPICS
from attncli.notebook import bundle

ROOT = Path(__file__).parents[2]
TEXT, OTHER = "the cat sat on the mat", "the dog sat on the mat"
HEADS = ("--num-heads", "4")
SUMMED = (*HEADS, "--residual")
GPT2 = ("--model", "{t}/gpt2")
SAVED: dict[str, tuple[str, ...]] = {
    "run": ("run", TEXT, *HEADS),
    "run of a query": ("run", TEXT, *HEADS, "--query", "cat"),
    "run of a model": ("run", TEXT, *GPT2, "--words"),
    "generate": ("run", TEXT, *GPT2, "--generate", "2"),
    "heads": ("heads", TEXT, *HEADS, "--labels"),
    "heads without maps": ("heads", TEXT, *HEADS, "--show", "metrics"),
    "heads sorted": ("heads", TEXT, *GPT2, "--sort", "entropy", "--top", "4"),
    "find": ("find", TEXT, *GPT2, "--from", "cat", "--to", "the"),
    "find with effects": ("find", TEXT, *SUMMED, "--from", "cat", "--to", "mat", "--effect"),
    "tokens": ("tokens", TEXT),
    "weights": ("weights", "show", str(ROOT / "sample_inputs" / "humpty.safetensors")),
    "tensors": ("tensors", str(ROOT / "sample_inputs" / "captured.npz")),
    "models": ("models", "list"),
    "model": ("models", "show", "{t}/gpt2"),
    "verify": ("models", "verify", "{t}/gpt2", TEXT),
    "explain": ("explain", TEXT),
    "explain softmax": ("explain", "softmax", "2.0", "1.0"),
    "explain scaling": ("explain", "scaling"),
    "explain matrix-softmax": ("explain", "matrix-softmax"),
    "explain order": ("explain", "order"),
    "explain position": ("explain", "position"),
    "explain mask": ("explain", "mask"),
    "explain multihead": ("explain", "multihead"),
    "explain residual": ("explain", "residual"),
    "explain training": ("explain", "training"),
    "explain qkv": ("explain", "qkv"),
    "explain seq2seq": ("explain", "seq2seq", "a b", "c d"),
    "explain metric": ("explain", "metric", "entropy"),
    "explain rule": ("explain", "rule", "bracket"),
    "mask": ("mask", "causal", "window:3"),
    "cross": ("cross", "the cat sat", "on a mat"),
    "compare": ("compare", TEXT, OTHER, *HEADS),
    "cost": ("cost",),
    "ablate": ("ablate", TEXT, *SUMMED, "--query", "cat"),
    "ablate at the mean": ("ablate", TEXT, *SUMMED),
    "ablate a link": ("ablate", TEXT, *SUMMED, "--from", "cat", "--to", "mat"),
    "ablate together": ("ablate", TEXT, *SUMMED, "--head", "0,1", "--together"),
    "retrieval": ("heads", *GPT2, "--retrieval", "--needle", "{t}/needle", "--lengths", "24"),
    "rules": ("heads", *GPT2, "--rules", "--lines", "--file", "{t}/rules.txt"),
    "regions": ("ablate", TEXT, *GPT2, "--region", "cat=/cat/", "--each-region"),
    "cache": ("cache", TEXT, *GPT2, "--region", "cat=/cat/", "--budget", "4"),
    "effects": ("ablate", *SUMMED, "--lines", "--file", "{t}/corpus.txt"),
    "difference": ("compare", "{t}/effects.json", "{t}/effects.json"),
    "logits": ("logits", TEXT, *GPT2),
    "logits with the lens": ("logits", TEXT, *GPT2, "--lens", "--by", "token"),
    "answer": ("answer", TEXT, *GPT2, "--region", "cat=/cat/", "--tokens", "4"),
    "circuit": ("circuit", "--pairs", str(ROOT / "sample_inputs" / "pairs.jsonl"), *GPT2),
    "circuit_compare": ("circuit", "compare", "{t}/circuit.json", "{t}/circuit.json"),
    "compare_models": ("compare", "{t}/gpt2", "{t}/again", TEXT, "--lines"),
    "pairs": ("pairs", "check", str(ROOT / "sample_inputs" / "pairs.jsonl"), *GPT2),
    "next": ("next", TEXT, *GPT2, "--each", "--without", "L0H0"),
    "patch": ("patch", TEXT, OTHER, *SUMMED),
    "learn": ("learn", "order", "--steps", "5"),
    "tasks": ("learn",),
    "check": ("check",),
    "series": ("series", "{t}/gpt2", "{t}/again", "--text", TEXT),
    "why": ("why", TEXT, *HEADS, "--from", "sat", "--to", "cat"),
    "why of a model": (
        "why",
        TEXT,
        *GPT2,
        "--from",
        "on",
        "--to",
        "cat",
        "--head",
        "L1H0",
        "--by",
        "token",
    ),
    "scan": ("scan", "show", "{t}/scan"),
    "scan_compare": ("scan", "compare", "{t}/scan", "{t}/scan"),
    "scan_verify": ("scan", "verify", "{t}/scan"),
    "error": ("run", ""),
}
"""A command for each kind of document, and for each way in which one can lack what another holds.
Of a kind that is not listed, the first example of its command."""
SAVED |= {name: example(name) for name in NAMES if name in COMMANDS and name not in SAVED}
MADE_OF = {"difference": "effects", "circuit_compare": "circuit"}
"""Documents of commands that read another saved one."""
PAGED = {
    *("run", "run of a query", "run of a model", "heads", "heads without maps", "heads sorted", "find"),
    *("find with effects", "tensors", "cross", "compare", "logits", "patch"),
    *("logits with the lens", "why", "why of a model"),
    *("ablate", "ablate at the mean", "ablate a link"),
}  # fmt: skip
"""What has a page of its heads. The others tell of no head of one text: they have a page of steps,
of a scan, or of their answer, figure and table."""
OWN_PAGES = {"learn": 'id="curve"', "series": 'id="curve"', "scan": 'id="scatter"'}
"""What only a page of steps, or of a scan, has."""
SHOWN = [name for name in SAVED if name != "error"]
EXPLORED = {*PAGED - {"compare"}, "ablate together"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("saved")
    shutil.copytree(small_gpt2(made / "gpt2"), made / "again")
    (made / "rules.txt").write_text("".join(f"the cat sat {word}\n" for word in "abcdef"))
    (made / "needle").write_text("the cat\tsat\n")
    (made / "corpus.txt").write_text(f"{TEXT}\n{OTHER}\na bird sang\n")
    with inside():
        assert (
            ask("scan", str(made / "gpt2"), str(made / "corpus.txt"), "-o", str(made / "scan")).code
            == 0
        )
    return made


def saved(folder: Path, name: str) -> Path:
    """The document of a command in a file, made once."""
    file = folder / f"{name}.json"
    if not file.exists():
        if name in MADE_OF:
            saved(folder, MADE_OF[name])
        answer = ask(*(part.replace("{t}", str(folder)) for part in SAVED[name]), "--json")
        assert answer.code == (3 if name == "error" else 0), answer.err
        file.write_text(answer.err if name == "error" else answer.out)
    return file


def test_every_kind_of_document_is_here(folder: Path) -> None:
    held = [json.loads(saved(folder, name).read_text()) for name in SAVED]
    assert {entry.get("schema", "attn.error") for entry in held} == set(KINDS)
    assert {entry["topic"] for entry in held if "topic" in entry} == {
        str(topic_of(kind)) for kind in TOPICS
    }


def test_an_error_is_no_answer_in_any_view(folder: Path) -> None:
    file = str(saved(folder, "error"))
    for options in (
        (),
        ("--figure", str(folder / "error.svg")),
        ("--html", str(folder / "error.html")),
    ):
        answer = ask("view", file, *options)
        assert (answer.code, answer.out) == (3, "")
        assert "this is what attn said when it failed, and no answer" in answer.err
    with pytest.raises(InputError, match="this is what attn said when it failed"):
        _saved_source(Path(file))


@pytest.mark.many
@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("name", SHOWN)
def test_a_saved_document_has_a_screen(folder: Path, name: str, width: int) -> None:
    for lang in ("en", "zh"):
        answer = ask("view", str(saved(folder, name)), "--lang", lang, width=width)
        assert (answer.code, answer.err) == (0, "")
        assert len(answer.out.split()) > 3
        assert max(cells(line) for line in answer.out.splitlines()) <= width


@pytest.mark.many
@pytest.mark.parametrize("name", SHOWN)
def test_a_saved_document_has_a_figure(folder: Path, name: str) -> None:
    file = folder / f"{name}.svg"
    answer = ask("view", str(saved(folder, name)), "--figure", str(file))
    assert answer.code == 0, answer.err
    root = ET.fromstring(file.read_text("utf-8"))
    assert sum(1 for one in root.iter() if one.tag.endswith("text") and one.text) > 1


def letters(text: str) -> str:
    """A text without what stands between its words, or beside them where a terminal has no colours."""
    return "".join(filter(str.isalnum, text))


def page_meta(file: Path) -> Any:
    found = re.search(r'id="meta">(.*?)</script>', file.read_text("utf-8"))
    assert found
    return json.loads(found[1])


@pytest.mark.many
@pytest.mark.parametrize("name", SHOWN)
def test_a_saved_document_has_a_page(folder: Path, name: str) -> None:
    file = folder / f"{name}.html"
    answer = ask("view", str(saved(folder, name)), "--html", str(file))
    document = document_of(json.loads(saved(folder, name).read_text()), name)
    assert ("<iframe" in bundle(document)["text/html"]) == (
        name in PAGED
    )  # others are shown as their screen
    assert answer.code == 0, answer.err
    page = file.read_text("utf-8")
    assert str(folder) not in page
    assert page.count("<h1>") == 1
    if name not in PAGED:
        assert (OWN_PAGES.get(name, 'id="table"')) in page
        answer = ask("view", str(saved(folder, name)), "--brief", width=100)
        lines = answer.out.replace(f"{folder}/", "").splitlines()
        said = letters(unescape(re.sub("<[^>]+>", "", page)))
        assert name in OWN_PAGES or [row for row in lines if letters(row) not in said] == []
        return
    meta = page_meta(file)
    for run in meta["runs"]:
        places = [(head["l"], head["h"]) for head in run["heads"]]
        assert places == sorted(places)
        assert run["q"]
    held = {head["r"] for run in meta["runs"] for head in run["heads"]}
    linked = any(head["k"] for run in meta["runs"] for head in run["heads"])
    assert held != {"absent"} or linked or meta["effects"]
    views = [view for view in ("lens", "why", "effects") if meta[view]]
    assert meta["start"].get("view") in (views[:1] or (None, "search", "difference"))


@pytest.mark.many
@pytest.mark.parametrize("name", SHOWN)
def test_a_saved_document_is_explored_or_refused(folder: Path, name: str) -> None:
    if name in EXPLORED:
        heads = list(_saved_source(saved(folder, name)).record(lambda share: None).heads)
        assert [(head.layer, head.head) for head in heads] == sorted(
            (head.layer, head.head) for head in heads
        )
        return
    with pytest.raises(InputError, match="holds no heads to look at"):
        _saved_source(saved(folder, name))
