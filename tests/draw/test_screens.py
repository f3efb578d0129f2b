"""Whole screens: golden at several widths, fitting at all of them, and true to their document."""

import copy
import json
import os
import pathlib

import numpy as np
import pytest
from draw import documents
from draw.shown import heads_rows, heads_screen, run_rows, run_screen, shaped
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.draw.encoding import json_bytes, plain
from attncli.draw.lines import Lines, line_width
from attncli.draw.screen_header import screen_of
from attncli.draw.view import View, part_names
from attncli.features.run.stage_tables import SHOWN

HEADS_PARTS = part_names("heads", "attncli.features.heads")
RUN_PARTS = part_names("run", "attncli.features.run")

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "draw"
MIXED = [
    "今天",
    "我的",
    "计划",
    "שלום",
    "مرحبا",
    "e\u0301le\u0300ve",
    "👨‍👩‍👧",
    "❤️",
    "\x1b[2J",
    "[b]x[/b]",
    "\u202e",
]


def golden(name: str, block: Lines) -> None:
    """Compare with the stored screen; `ATTN_WRITE_GOLDEN=1` stores it anew."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("ATTN_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.plain + "\n", encoding="utf-8")
    assert block.plain + "\n" == path.read_text(encoding="utf-8")


def golden_of(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_run_screens_are_as_they_were(width: int) -> None:
    golden(f"run-{width}", run_screen(documents.run(), View(width=width)))
    golden(
        f"run-{width}-heads-causal-ascii",
        run_screen(documents.run(heads=8, causal=True), View(width=width, ascii=True)),
    )
    golden(f"run-{width}-mixed", run_screen(documents.run(MIXED), View(width=width)))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_heads_screens_are_as_they_were(width: int) -> None:
    golden(f"heads-{width}", heads_screen(documents.heads(), View(width=width)))
    golden(
        f"heads-{width}-all",
        heads_screen(
            documents.heads(layers=2, count=3), View(width=width, show=frozenset(HEADS_PARTS))
        ),
    )


EFFECTS = {
    "ablate": (documents.ablate, screen_of("attn.ablate/1").screen),
    "logits": (documents.logits, screen_of("attn.logits/1").screen),
    "patch": (documents.patch, screen_of("attn.patch/1").screen),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_screens_of_effects_are_as_they_were(name: str) -> None:
    made, screen = EFFECTS[name]
    document = shaped(made())
    for width in (60, 80, 120):
        golden(f"{name}-{width}", screen(document, View(width=width, top=4)))
    golden(f"{name}-60-ascii", screen(document, View(width=60, top=4, ascii=True)))
    golden(f"{name}-80-zh", screen(document, View(width=80, top=4, lang="zh")))
    golden(f"{name}-80-mixed", screen(shaped(made([*MIXED, "it"])), View(width=80, full=True)))
    if name == "ablate":
        golden("ablate-80-link", screen(shaped(made(link=True)), View(width=80, top=4)))
    for view in (
        View(width=60, color=True, full=True),
        View(width=43, ascii=True, show=frozenset({"grid", "tokens"})),
    ):
        shown = screen(document, view)
        assert max(map(line_width, shown.rows)) <= view.width
    brief = screen(document, View(width=80, brief=True))
    assert brief.plain == golden_of(f"{name}-80")[-len(brief.plain) - 1 : -1]


WORDS = st.sampled_from([*MIXED, "The", "didn't", "x" * 50, " ", "", "\ud800", "a\nb"])


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(
    st.lists(WORDS, min_size=1, max_size=13),
    st.builds(
        View,
        width=st.integers(40, 200),
        color=st.booleans(),
        ascii=st.booleans(),
        full=st.booleans(),
        top=st.integers(1, 30),
    ),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_every_screen_fits_its_view(words: list[str], view: View, heads: int, causal: bool) -> None:
    for block in (
        run_screen(documents.run(words, heads=heads, causal=causal), view),
        heads_screen(documents.heads(words, count=heads), view),
    ):
        for row in block.rows:
            assert line_width(row) <= view.width
        text = block.plain
        assert not set(text) & set("\x1b\x07\u202e\ud800")
        text.encode("utf-8")
        assert not view.ascii or text.isascii()
        assert view.color or all(not style for row in block.rows for _, style in row)


def test_a_screen_of_the_saved_document_is_the_same() -> None:
    document = documents.run(heads=2, causal=True)
    arrays = copy.deepcopy(document)
    for head in arrays["layers"][0]["heads"]:
        head["scores"] = np.array(head["scores"], dtype=float)
        head["scores"][np.isnan(head["scores"])] = -np.inf
        head["weights"] = np.array(head["weights"])
    saved = json.loads(json_bytes(arrays))
    for view in (View(), View(color=True, full=True, width=100)):
        assert run_screen(saved, view) == run_screen(arrays, view) == run_screen(document, view)


@pytest.mark.parametrize("part", [part for part in RUN_PARTS if part not in SHOWN])
def test_each_part_alone(part: str) -> None:
    shown = run_screen(documents.run(heads=2), View(show=frozenset({part}))).plain
    title = {
        "header": "seeded, seed 0",
        "tokens": "11 tokens",
        "maps": "maps of the weights",
        "output": "output of the head",
        "links": "strongest links",
        "answer": "The strongest link",
    }
    assert title.get(part, part) in shown
    others = {"shapes": "shapes", "scores": "scores  layer", "links": "strongest links"}
    assert all(name not in shown for other, name in others.items() if other != part)


@pytest.mark.parametrize("part", HEADS_PARTS)
def test_each_part_of_heads_alone(part: str) -> None:
    block = heads_screen(documents.heads(), View(show=frozenset({part})))
    assert len(block.rows) > 1
    assert ("metrics  " in block.plain) == (part == "metrics")


def test_the_header_says_what_ran() -> None:
    document = documents.run(heads=8, causal=True)
    said = run_screen(document, View(show=frozenset({"header"}))).plain
    for fact in (
        "seed 0",
        "not learned",
        "d_model 64",
        "8 heads",
        "1 layer",
        "d_k = d_v = 8",
        "scale 1/√8",
        "mask causal",
        "numpy",
        "float32",
    ):
        assert fact in said
    document["attention"] |= {"softcap": 50.0, "scale": 2.0, "position": "rope"}
    document["model"] |= {
        "kv_heads": 1,
        "source": "checkpoint",
        "name": "x\x1by",
        "family": "bert",
        "seed": None,
    }
    document["warnings"] = ["unused tensor \x1b[31m"]
    said = run_screen(document, View(show=frozenset({"header"}))).plain
    for fact in (
        "x␛y · bert · learned",
        "1 kv head",
        "scale 2 ",
        "soft-cap 50",
        "position rope",
        "! unused tensor ␛[31m",
    ):
        assert fact in said
    assert "not learned" not in said
    for source, words in {
        "random": "drawn at random",
        "file": "from file w.npz",
        "tensors": "captured tensors w.npz",
    }.items():
        document["model"] |= {
            "source": source,
            "name": "w.npz",
            "seed": 0 if source == "random" else None,
        }
        assert words in run_screen(document, View(show=frozenset({"header"}))).plain


def test_one_head_without_projection_shows_one_output() -> None:
    document = documents.run(width=8)
    document["layers"][0]["output"] = document["layers"][0]["heads"][0]["output"]
    assert run_screen(document, View(show=frozenset({"output"}))).plain.count("output") == 1
    document["layers"][0]["output"] = [[0.0] * 8] * 11
    assert run_screen(document, View(show=frozenset({"output"}))).plain.count("output") == 2


def test_other_heads_are_named_and_full_shows_them() -> None:
    document = documents.run(heads=2, layers=2)
    short = run_screen(document, View())
    assert (
        "3 other heads not shown in full; --layer L --head H chooses, --full shows all"
        in short.plain
    )
    assert "layer 1 head 1 ·" not in short.plain
    full = run_screen(document, View(full=True)).plain
    assert all(f"weights  layer {layer} head {head}" in full for layer in (0, 1) for head in (0, 1))
    assert "--full" not in full


def test_many_heads_say_how_many_are_drawn() -> None:
    view = View(show=frozenset({"maps"}))
    assert (
        "24 of 26 heads shown"
        in run_screen(documents.run(["a", "b"], heads=13, layers=2), view).plain
    )
    assert (
        "24 of 26 heads shown"
        in heads_screen(documents.heads(["a", "b"], count=13, layers=2), view).plain
    )
    assert "heads shown" not in heads_screen(documents.heads(["a", "b"], count=8), view).plain


def test_pooled_maps_of_a_long_text_are_drawn() -> None:
    document = documents.run(["a", "b", "c"])
    cells = [[0.9, 0.0], [0.4, 0.7]]
    document["maps"] = [{"layer": 0, "head": 0, "pool": 2, "weights": cells}]
    shown = run_screen(document, View(show=frozenset({"maps"}))).plain
    assert "each cell the largest of 2×2 weights" in shown


def test_rows_of_one_query() -> None:
    document = documents.run()
    document["queries"] = [7]
    for name in ("scores", "weights", "output"):
        document["layers"][0]["heads"][0][name] = document["layers"][0]["heads"][0][name][7:8]
    document["layers"][0]["output"] = document["layers"][0]["output"][7:8]
    shown = run_screen(document, View(show=frozenset({"weights", "output"}))).plain
    assert shown.count("7 it ") == 3
    assert "0 The  " not in shown
    assert [row[2] for row in run_rows(document)][1:] == [7] * 11


def test_masked_weights_are_shown_as_hidden_and_empty_rows_are_named() -> None:
    document = documents.run(["a", "b", "c"], causal=True)
    head = document["layers"][0]["heads"][0]
    head["scores"][0], head["weights"][0] = [None] * 3, [0.0] * 3
    document["empty_rows"] = [{"layer": 0, "head": 0, "query": 0}]
    shown = run_screen(document, View(show=frozenset({"weights"}))).plain.splitlines()
    assert shown[3].split() == ["0", "a", "·", "·", "·"]
    assert shown[4].split()[-1] == "·"
    assert shown[-1] == "query 0 can see no key: weights and A·V are 0"


def test_a_document_without_layers_or_heads() -> None:
    document = {**documents.run(heads=2), "layers": [], "links": []}
    assert "(none)" in run_screen(document, View(show=frozenset(RUN_PARTS))).plain
    empty = {**documents.heads(), "heads": [], "average": None}
    assert "metrics" in heads_screen(empty, View()).plain


def test_metrics_are_those_of_the_document() -> None:
    document = documents.heads(count=2)
    document["heads"][0]["metrics"] = {
        "entropy": {"value": None, "rows": 0},
        "self": {"value": 0.25, "rows": 11},
    }
    document["heads"][1]["top_link"] = None
    rows = heads_screen(document, View(width=120, show=frozenset({"metrics"}))).plain.splitlines()
    assert rows[2].split()[:3] == ["0", "-", "0.25"]
    assert rows[-2].split()[0] == "uniform"
    document["heads"][1]["baseline"] = {"entropy": {"value": 0.75, "rows": 1}}
    document["heads"][1]["layer"] = 1
    assert heads_screen(document, View(show=frozenset({"metrics"}))).plain.count("uniform  ") == 2


def test_plain_rows_read_back() -> None:
    document = documents.run(["a", "b\t", "c"], causal=True)
    rows = [row.split("\t") for row in plain(run_rows(document)).splitlines()]
    head = document["layers"][0]["heads"][0]
    assert rows[0] == ["layer", "head", "query", "key", "query_text", "key_text", "score", "weight"]
    assert len(rows) == 10
    assert rows[2] == ["0", "0", "0", "1", "a", "b\\t", "", "0.0"]
    assert float(rows[4][7]) == head["weights"][1][0]
    table = [row.split("\t") for row in plain(heads_rows(documents.heads())).splitlines()]
    assert len(table) == 9
    assert len({len(row) for row in table}) == 1
    assert table[3][table[0].index("labels")] == "broad"


def test_links_say_where_they_are_from_unless_there_is_one_head() -> None:
    """Also where all the strongest are from the same of several heads."""
    shown = frozenset({"links"})
    for heads, named in ((1, False), (2, True)):
        document = documents.run(["a", "b", "c"], heads=heads)
        document["links"] = [link for link in document["links"] if link["head"] == 0]
        assert ("L0 H0" in run_screen(document, View(show=shown)).plain) == named
