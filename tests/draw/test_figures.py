"""Figures: well-formed, inert, standalone; their cells are the document's numbers, their texts do
not overlap.
"""

from __future__ import annotations

import json
import re
import struct
import xml.etree.ElementTree as ET
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from draw import documents
from msgspec.structs import replace
from pictures import images, png

from attncli.documents.reading import document_of
from attncli.draw.encoding import json_pieces
from attncli.draw.figures import drawing as drawings
from attncli.draw.figures import figure
from attncli.draw.figures.charts import FigureMap, draw_curves, draw_maps
from attncli.draw.figures.drawing import DARK, LIGHT, Box, Drawing, Style, figure_bytes, style_of
from attncli.draw.figures.head_ranking import draw_ranking
from attncli.draw.view import View
from attncli.errors import InputError, UsageError

NS = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]
HOSTILE = [
    "<script>alert(1)</script>",
    '"/><a href="http://x"/>',
    "\x1b[2J",
    "&amp;",
    "\u202e",
    "שלום",
    "]]>",
    "今天",
]
TEXT = "the cat sat on the mat"
ASKED: dict[str, tuple[str, ...]] = {
    "run": ("run", TEXT),
    "run of eight heads": ("run", TEXT, "--num-heads", "8"),
    "run of a query": ("run", TEXT, "--query", "cat"),
    "run of a query of eight heads": ("run", TEXT, "--query", "cat", "--num-heads", "8"),
    "all heads": ("heads", "--model", "minilm", TEXT),
    "heads": ("heads", TEXT),
    "metrics": ("heads", TEXT, "--show", "metrics"),
    "metrics of layers": (
        "heads",
        "--model",
        "minilm",
        TEXT,
        "--show",
        "metrics",
        "--metric",
        "entropy,sink",
    ),
    "ablate": ("ablate", "--model", "minilm", TEXT, "--query", "cat", "--layer", "4-5"),
    "patch": ("patch", "--model", "minilm", TEXT, "the dog sat on the mat", "--layer", "5"),
    "find": ("find", TEXT, "--from", "cat", "--to", "mat"),
    "why": ("why", "--model", "minilm", TEXT, "--from", "cat", "--to", "mat", "--by", "token"),
    "why by frequency": (
        "why",
        TEXT,
        "--from",
        "cat",
        "--to",
        "mat",
        "--position",
        "rope",
        "--by",
        "frequency",
    ),
    "compare": ("compare", TEXT, "the dog sat on the mat"),
    "cross": (
        "cross",
        "今天 我 的 计划 是 买菜",
        "مرحبا بالعالم 👩‍👩‍👧 é a much_longer_word_than_the_others",
    ),
    "tensors": ("tensors", str(ROOT / "sample_inputs" / "captured.npz"), "--mask", "causal"),
    "mask": ("mask", "causal", "window:3"),
    "cost": ("cost",),
    "cache": ("cache", TEXT, "--mask", "causal", "--budget", "2"),
    "learn": ("learn", "sentence", "a b c", "--query", "b", "--target", "c"),
}


@cache
def document(name: str) -> Any:
    """The document of a command."""
    answer = ask(*ASKED[name], "--json")
    assert answer.code == 0, answer.err
    return document_of(json.loads(answer.out), name)


def made_of(document: Any) -> Any:
    """A document of plain dictionaries as it is declared."""
    return document_of(json.loads(b"".join(json_pieces(document))), "test")


def overlap(a: Box, b: Box) -> bool:
    return (
        min(a.right, b.right) - max(a.left, b.left) > 0.5
        and min(a.bottom, b.bottom) - max(a.top, b.top) > 0.5
    )


@pytest.mark.many
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_drawn_and_apart(name: str, theme: Any) -> None:
    drawing = figure(document(name), theme=theme)
    assert drawing is not None
    svg = drawing.svg()
    root = ET.fromstring(svg)
    assert {one.tag for one in root.iter()} <= {
        NS + tag for tag in ("svg", "rect", "text", "tspan", "title", "desc", "image", "path")
    }
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert svg == figure(document(name), theme=theme).svg()  # type: ignore[union-attr]
    assert len(drawing.boxes) > 2
    for a, b in combinations(drawing.boxes, 2):
        assert not overlap(a, b), (a, b)
    assert min(box.left for box in drawing.boxes) > -10
    assert max(box.right for box in drawing.boxes) < drawing.corner[0] + 10


@pytest.mark.many
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ASKED)
def test_a_narrow_figure_is_laid_out_and_not_shrunk(name: str, lang: str) -> None:
    style = style_of("85mm,300dpi")
    drawing = figure(document(name), lang=lang, room=style.room)
    assert drawing is not None
    root = ET.fromstring(drawing.svg(mm=style.mm))
    wide = float(root.attrib["viewBox"].split()[2])
    shrunk = min(1.0, 85 * 72 / 25.4 / wide)
    sizes = [float(text.attrib["font-size"]) * shrunk for text in root.iter(f"{NS}text")]
    assert min(sizes) >= 6
    remarks = ["".join(text.itertext()) for text in root.iter(f"{NS}text")]
    assert not [
        text for text in remarks if re.search(r"\d\.\d+ .*…", text)
    ]  # a number's remark is whole, or not there
    assert root.attrib["width"] == "85.00mm"
    for a, b in combinations(drawing.boxes, 2):
        assert not overlap(a, b), (a, b)


def test_a_narrow_screen_has_fewer_cells_and_no_smaller_type(tmp_path: Path) -> None:
    for millimetres in (85, 120, 170):
        assert (
            ask(
                "explain",
                TEXT,
                "--figure",
                str(tmp_path / "f.svg"),
                "--figure-style",
                f"{millimetres}mm",
            ).code
            == 0
        )
        root = ET.fromstring((tmp_path / "f.svg").read_text("utf-8"))
        wide = float(root.attrib["viewBox"].split()[2])
        assert (
            min(float(text.attrib["font-size"]) for text in root.iter(f"{NS}text"))
            * millimetres
            * 72
            / 25.4
            / wide
            >= 6
        )


def test_a_figure_says_what_it_is_about_and_what_it_says(tmp_path: Path) -> None:
    for name, title in (
        ("compare", f"{TEXT} → the dog sat on the mat"),
        ("run", TEXT),
        ("tensors", "captured.npz"),
    ):
        assert ask(*ASKED[name], "--figure", str(tmp_path / "f.svg")).code == 0
        root = ET.fromstring((tmp_path / "f.svg").read_text("utf-8"))
        assert title in root.findtext(f"{NS}title", "")
        said = " ".join(ask(*ASKED[name], "--brief", width=200).out.split())
        assert said[-24:] in root.findtext(f"{NS}desc", "")


def test_a_figure_does_not_tell_where_a_model_lies() -> None:
    run = document("run")
    drawing = figure(
        replace(run, model=replace(run.model, name="/drawer/models/lookup")), lang="en"
    )
    assert drawing is not None
    text = drawing.svg()
    assert "lookup" in text
    assert "drawer" not in text


def test_a_picture_says_how_large_it_is_on_paper(tmp_path: Path) -> None:
    assert (
        ask("run", TEXT, "--figure", str(tmp_path / "f.png"), "--figure-style", "85mm,300dpi").code
        == 0
    )
    raw = (tmp_path / "f.png").read_bytes()
    place = raw.index(b"pHYs") + 4
    across, along, unit = struct.unpack(">IIB", raw[place : place + 9])
    assert (across, along, unit) == (11811, 11811, 1)
    assert struct.unpack(">I", raw[16:20])[0] == pytest.approx(85 / 25.4 * 300, abs=1)


def test_heads_of_one_query_are_rows_under_its_words() -> None:
    drawing = figure(document("run of a query of eight heads"))
    assert drawing is not None
    words = re.findall(r">([^<>]+)</text>", drawing.svg())
    assert words.count("cat") == 2  # in the sentence, and above the columns
    assert [f"L0H{head}" for head in range(8)] == [
        word for word in words if re.fullmatch(r"L0H\d", word)
    ][:8]


BOXES = """() => [...document.querySelectorAll('text:not([transform])')].map((text) => {
  const {left, top, right, bottom} = text.getBoundingClientRect(), less = (bottom - top) * 0.12;
  return [left, top + less, right, bottom - less, text.textContent];
})"""
"""Where a browser puts each level text, less the room that a line has above and below its letters.
"""


@pytest.mark.thorough
def test_texts_are_apart_in_a_browser(chromium: Any, tmp_path: Path) -> None:
    """With the typefaces that are really there, not only by the widths that were reckoned with."""
    window, file = chromium.new_page(), tmp_path / "figure.svg"
    for name in ASKED:
        drawing = figure(document(name), lang="zh" if name == "heads" else "en")
        assert drawing is not None
        file.write_text(drawing.svg(), "utf-8")
        window.goto(file.as_uri())
        boxes = [Box(*found) for found in window.evaluate(BOXES)]
        assert len(boxes) > 2
        for a, b in combinations(boxes, 2):
            assert not overlap(a, b), (name, a, b)
        wide = window.evaluate("() => document.documentElement.getBoundingClientRect().right")
        assert max(box.right for box in boxes) <= wide, name
    window.close()


def test_words_above_cells_that_are_narrow_stand_upright() -> None:
    """Words that lean take more of a row than their height; above low cells they would run into
    each other.
    """
    for rows, turned in ((12, 50), (60, 90)):
        drawing = Drawing()
        words = [f"word{index}" for index in range(9)]
        figure_map = FigureMap("map", np.ones((rows, 9)), [str(row) for row in range(rows)], words)
        draw_maps(drawing, [figure_map], 0, View(), scale="linear")
        turns = set(re.findall(r"rotate\(-(\d+)", drawing.svg()))
        assert turns == {str(turned)}, rows


def test_boxes_that_overlap_are_found() -> None:
    drawing = Drawing()
    drawing.text(0, 10, "one word")
    drawing.text(20, 12, "another")
    assert overlap(*drawing.boxes)


def test_metrics_are_drawn_by_their_size() -> None:
    made = document("metrics")
    drawing = figure(made)
    assert drawing is not None
    assert "<image" not in drawing.svg()
    bars = re.findall(rf'width="([\d.]+)" height="8.00" fill="{LIGHT.series[0]}"', drawing.svg())
    names = list(made.heads[0].metrics)
    values = np.array([[head.metrics[name].value for head in made.heads] for name in names])
    lengths = np.array(bars, float).reshape(values.shape)
    assert np.abs(lengths - 44 * values / values.max(1, keepdims=True)).max() < 0.01
    grids = figure(document("metrics of layers"))
    assert grids is not None
    entropy = np.array(
        [head.metrics["entropy"].value for head in document("metrics of layers").heads]
    ).reshape(6, 12)
    cells = images(grids.svg())[0]
    shares = (entropy - entropy.min()) / (entropy.max() - entropy.min())
    for place in ((0, 0), (3, 7), (5, 11)):
        assert tuple(cells[place][:3]) == LIGHT.weights.rgb(round(shares[place] * 255) / 255)


def test_figures_speak_chinese() -> None:
    for name in ASKED:
        drawing = figure(document(name), lang="zh")
        assert drawing is not None
        said = " ".join(ET.fromstring(drawing.svg()).itertext())
        assert re.search("[一-龥]", said), name
        assert not re.search(r"\b(layer|head|rows|columns|tokens)\b", said), name


ATTENDING = {"head": "self"}


def test_letters_stand_in_families_that_have_them() -> None:
    family = "👩\u200d👩\u200d👧"
    assert (
        "Emoji" not in drawings.SANS + drawings.MONO
    )  # Pango writes digits with it wherever it is named
    assert drawings.text_runs(f"a{family}b") == ["a", family, "b"]
    assert drawings.text_runs("é 猫 🐈 שלום") == ["é 猫 🐈 שלום"]
    assert drawings.text_runs("👋🏽 🇩🇪") == ["👋🏽", " ", "🇩🇪"]
    assert drawings.text_runs("שלום  →  עולם") == ["שלום", "  →  ", "עולם"]
    assert drawings.text_runs("a → b") == ["a → b"]
    assert [
        drawings.family(text) == drawings.FAMILIES["emoji"] for text in (family, "🐈", "a🐈", "猫")
    ] == [
        True,
        True,
        False,
        False,
    ]
    assert [
        drawings.family(text) == drawings.FAMILIES["han"]
        for text in ("猫 猫", "、", "a猫", "猫 шк", "é")
    ] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_emoji_among_letters_are_drawn() -> None:
    """An emoji of several, in any weight and beside any letters, makes a picture."""
    pytest.importorskip("resvg_py", reason="no resvg-py here (a Python package)")
    drawing = Drawing()
    for at, text in enumerate(
        ("the 👩\u200d👩\u200d👧 sat", "猫 👩\u200d👩\u200d👧", "السلام 👋🏽 fi", "🇩🇪 e\u0301")
    ):
        drawing.text(0, 20 + 20 * at, text, bold=at % 2 == 0)
        drawing.text(40, 20 + 20 * at, text, rotation=50, anchor="end")
    assert len(png(figure_bytes(drawing.svg(), ".png", Style()))) > 50


def test_logits_are_drawn() -> None:
    parts = [
        ("embedding", None, None, 0.5),
        ("head", 0, 0, 1.5),
        ("head", 0, 1, -2.0),
        ("mlp", 0, None, 0.25),
    ]
    made = {
        **{name: documents.run(["a", "b"])[name] for name in ("version", "text", "tokens", "model", "attention")},
        "schema": "attn.logits/1", "at": 1, "target": {"id": 3, "text": "c"}, "versus": None, "softcap": None,
        "logit": 0.25, "sum": 0.25, "warnings": [],
        "parts": [
            dict(zip(("part", "attention", "layer", "head", "value"), (kind, ATTENDING.get(kind), *rest), strict=True))
            for kind, *rest in parts
        ],
    }  # fmt: skip
    drawing = figure(made_of(made))
    assert drawing is not None
    assert [box.text for box in drawing.boxes if "L0" in box.text] == [
        "L0 H1", "L0 H0", "L0 feed-forward"
    ]  # fmt: skip
    assert any('logit of "c" at "b": 0.250' in box.text for box in drawing.boxes)
    assert not any("parts shown" in box.text for box in drawing.boxes)
    many = made["parts"] + [made["parts"][3] | {"layer": layer} for layer in range(1, 20)]
    shown = figure(made_of(made | {"parts": many}))
    assert shown is not None
    told = [box.text for box in shown.boxes if "parts shown" in box.text]
    assert told == ["20 of 23 parts shown, those furthest from 0"]
    grid = images(drawing.svg())[0]
    assert grid.shape == (1, 2, 4)
    other = {"part": "head", "attention": "cross", "layer": 0, "head": 0, "value": -1.0}
    both = figure(made_of(made | {"parts": [*made["parts"], other]}))
    assert both is not None
    assert np.array_equal(images(both.svg())[0], grid), (
        "a head that looks at another text has no cell among these"
    )


def test_hostile_text_is_only_text() -> None:
    drawing = figure(made_of(documents.run(HOSTILE)))
    assert drawing is not None
    svg = drawing.svg(title=HOSTILE[0])
    root = ET.fromstring(svg)
    assert not {one.tag for one in root.iter()} & {NS + "script", NS + "a"}
    assert not set(svg) & set("\x1b\u202e")
    assert {"שלום", "今天", "\\u{202e}"} <= {
        "".join(one.itertext()) for one in root.iter(NS + "text")
    }


def test_hebrew_words_stand_from_right_to_left() -> None:
    words = ["החיה", "לא", "חצתה", "את", "הרחוב"]
    answer = ask("run", " ".join(words), "--query", "את", "--json")
    shown = figure(document_of(json.loads(answer.out), "run"))
    assert shown is not None
    lefts = [next(box.left for box in shown.boxes if box.text == word) for word in words]
    assert lefts == sorted(lefts, reverse=True)
    found = ask("find", " ".join(words), "--from", "לא", "--to", "את", "--json")
    title = figure(document_of(json.loads(found.out), "find"))
    assert title is not None
    ends = [re.search(rf'x="([0-9.]+)"[^>]*>{word}</text>', title.svg()) for word in ("לא", "את")]
    assert all(ends)
    assert float(ends[0][1]) < float(ends[1][1])  # the one that looks comes before the arrow


@pytest.mark.parametrize(("words", "style"), [
    ("", Style()), ("dark", Style(DARK)), ("85mm, 300dpi", Style(LIGHT, 85.0, 300)),
    ("Light,10.5mm", Style(LIGHT, 10.5)),
])  # fmt: skip
def test_styles(words: str, style: Style) -> None:
    assert style_of(words) == style


@pytest.mark.parametrize("words", ["blue", "5mm", "9999dpi", "85", "mm"])
def test_no_styles(words: str) -> None:
    with pytest.raises(UsageError, match="--figure-style"):
        style_of(words)


def test_a_picture_has_the_size_that_was_asked_for() -> None:
    pytest.importorskip("resvg_py", reason="no resvg-py here (a Python package)")
    drawing = figure(made_of(documents.run(["a", "b", "c"])))
    assert drawing is not None
    style = style_of("50mm,254dpi")
    pixels = png(figure_bytes(drawing.svg(mm=style.mm), ".png", style))
    assert pixels.shape[1] == 500
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20


def test_a_page_of_pdf() -> None:
    pytest.importorskip("typst", reason="no typst here (a Python package, the extra pdf)")
    drawing = figure(made_of(documents.run(HOSTILE)))
    assert drawing is not None
    data = figure_bytes(drawing.svg(mm=85), ".pdf", Style())
    assert data.startswith(b"%PDF-")
    box = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", data)
    assert box is None or abs(float(box[1]) - 85 * 72 / 25.4) < 1


def test_a_document_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="no weights to draw"):
        figure(made_of({**documents.run(), "layers": []}))


@pytest.mark.thorough
def test_every_command_with_a_shape_writes_it(tmp_path: Path) -> None:
    for name, asked in ASKED.items():
        file = tmp_path / f"{name}.svg"
        answer = ask(*asked, "--figure", str(file))
        assert answer.code == 0, answer.err
        assert ET.fromstring(file.read_text("utf-8")).get("width", "").endswith("mm"), name


def test_what_is_told_in_words_is_drawn_as_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "explain.svg"
    assert ask("explain", TEXT, "--figure", str(file)).code == 0
    root = ET.fromstring(file.read_text("utf-8"))
    assert not any("textLength" in one.attrib for one in root.iter())
    assert root.get("width", "").endswith("mm")
    assert ask("explain", TEXT, "--figure", str(file), "--figure-style", "dark,85mm").code == 0
    dark = ET.fromstring(file.read_text("utf-8"))
    assert dark.get("width") == "85.00mm"
    assert dark.find(f"{NS}rect").get("fill") == DARK.paper  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--figure", "a.gif"), "a file ending in .svg, .png or .pdf"),
        (("--figure-style", "dark"), "none is asked for"),
    ],
    ids=str,
)
def test_misuse(arguments: tuple[str, ...], said: str) -> None:
    answer = ask("run", TEXT, *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_curves_lie_within_their_axes() -> None:
    drawing = Drawing()
    end = draw_curves(
        drawing, [("a", [(1, 1000), (10, 10)]), ("b", [(1, 100), (1000, 100_000)])], 20, "x", "y"
    )
    paths = re.findall(r'<path d="([^"]+)"', " ".join(drawing.pieces))
    points = [
        (float(x), float(y))
        for path in paths
        for x, y in re.findall(r"([-.\d]+)[ ,]([-.\d]+)", path)
    ]
    assert len(points) >= 2 * (5 + 4 + 2)  # lines of powers of ten, and two curves
    assert all(44 <= x <= 304 and 38 <= y <= end for x, y in points)


def test_a_ranking_says_how_many_heads_it_shows_and_how_many_have_a_random_change() -> None:
    drawing = Drawing()
    rows = [(layer, 0, 1.0 + layer, 0.5 if layer > 20 else None) for layer in range(25)]
    draw_ranking(drawing, rows, 0, View())
    told = [box.text for box in drawing.boxes if "shown" in box.text or "line" in box.text]
    assert told == [
        "20 of 25 heads shown, those furthest from 0",
        "line: a random change of the same size, made for 4",
    ]
    drawing = Drawing()
    draw_ranking(drawing, rows[-2:], 0, View())
    told = [box.text for box in drawing.boxes if "shown" in box.text or "line" in box.text]
    assert told == ["line: a random change of the same size"]


@pytest.mark.parametrize(
    "asked", [("find", "a b", "--from", "b", "--to", "a"), ("compare", "a b", "a c")]
)
def test_a_figure_says_how_many_heads_it_leaves_out(asked: tuple[str, ...]) -> None:
    answer = ask(*asked, "--num-heads", "32", "--d-model", "64", "--json")
    drawing = figure(document_of(json.loads(answer.out), asked[0]))
    assert drawing is not None
    assert [box.text for box in drawing.boxes if "shown" in box.text] == [
        "20 of 32 heads shown, those furthest from 0"
    ]


def test_a_curve_of_one_point_is_seen() -> None:
    def longest_path(line: list[tuple[float, float]]) -> float:
        """How wide the curve itself is, in points."""
        drawing = Drawing()
        draw_curves(drawing, [("one", line), ("two", [(1, 1), (9, 9)])], 0, "x", "y")
        (curve,) = [
            piece for piece in drawing.pieces if LIGHT.series[0] in piece and "<path" in piece
        ]
        xs = [float(x) for x in re.findall(r"[ML ]([\d.]+)[ ,][\d.]+", curve)]
        return max(xs) - min(xs)

    assert longest_path([(3, 5)]) > 2
    assert longest_path([(1, 5), (9, 5)]) > 50


@pytest.mark.parametrize(("mono", "bold"), [(False, False), (False, True), (True, False)])
def test_each_piece_of_a_text_begins_where_the_one_before_ends(mono: bool, bold: bool) -> None:
    """An emoji of several characters is a piece of its own."""
    family = "👩\u200d👩\u200d👧"
    whole = Drawing(mono=mono)
    whole.text(0, 0, f"many letters {family}", bold=bold)
    alone = Drawing(mono=mono)
    alone.text(0, 0, "many letters ", bold=bold)
    begins = float(re.findall(r'<text x="([\d.]+)"', whole.pieces[1])[0])
    assert begins == pytest.approx(alone.boxes[0].right, abs=0.01)
