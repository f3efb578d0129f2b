"""What of a figure is drawn and how it stands on paper: parts, heads and rows, columns, pages, labels and
bands of long texts. The oracles are the documents' own numbers and the boxes of the texts.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from draw import documents
from msgspec.structs import replace
from pictures import images

from attncli.documents.parts import TargetToken
from attncli.documents.reading import document_of
from attncli.draw.encoding import json_pieces
from attncli.draw.figures import figure, figure_files
from attncli.draw.figures.charts import FigureMap, draw_maps
from attncli.draw.figures.drawing import LIGHT, Box, Drawing, style_of
from attncli.draw.figures.figure_choice import MM, PARTS
from attncli.draw.figures.map_edges import bands_of
from attncli.draw.view import View
from attncli.errors import AttnError, UsageError
from attncli.features.effects.figure import measure_of_target

NS = "{http://www.w3.org/2000/svg}"
WORDS = ["The", "animal", "crossed", "it"]


@cache
def heads_document(words: int = 4, heads: int = 2, layers: int = 1) -> Any:
    """A document of heads of made weights; of more than four words, w0, w1, …"""
    names = WORDS if words == 4 else [f"w{place}" for place in range(words)]
    made = documents.heads(names, count=heads, layers=layers)
    return document_of(json.loads(json.dumps(made)), "test")


def drawn(document: Any, style: str = "", parts: str = "", lang: str = "en") -> Drawing:
    """A document's figure in this style."""
    chosen = style_of(style, parts)
    drawing = figure(document, room=chosen.room, choice=chosen.choice, lang=lang)
    assert drawing is not None
    return drawing


def texts(drawing: Drawing) -> list[str]:
    """The texts of a drawing, in their order."""
    return ["".join(text.itertext()) for text in ET.fromstring(drawing.svg()).iter(f"{NS}text")]


def is_over(a: Box, b: Box) -> bool:
    """Whether two texts lie on each other."""
    across = min(a.right, b.right) - max(a.left, b.left)
    return across > 0.5 and min(a.bottom, b.bottom) - max(a.top, b.top) > 0.5


def check_colours(cells: np.ndarray, weights: np.ndarray, high: float) -> None:
    """The cells of a map have the colours of these weights, of which `high` has the last one."""
    assert cells.shape[:2] == weights.shape
    for place in np.ndindex(*weights.shape):
        expected = LIGHT.weights.rgb(float(weights[place]) / high)
        assert np.abs(cells[place][:3].astype(int) - expected).max() <= 2, place


def check_paper(drawing: Drawing, millimetres: float) -> None:
    """Texts are apart and at least five points high on paper of this width."""
    for a, b in combinations(drawing.boxes, 2):
        assert not is_over(a, b), (a, b)
    root = ET.fromstring(drawing.svg(mm=millimetres))
    shrunk = min(1.0, millimetres * MM / float(root.attrib["viewBox"].split()[2]))
    sizes = [float(text.attrib["font-size"]) * shrunk for text in root.iter(f"{NS}text")]
    assert min(sizes) >= 5


def test_only_the_parts_that_are_asked_for_are_drawn() -> None:
    document = heads_document(heads=1)
    whole = drawn(document)
    assert len(images(whole.svg())) == 2  # the matrix and its legend
    assert "entropy" in texts(whole)
    assert "<path" in whole.svg()
    links = drawn(document, parts="links")
    assert images(links.svg()) == []
    assert [text for text in texts(links) if text in WORDS] == WORDS * 2
    matrix = drawn(document, parts="matrix")
    assert "<path" not in matrix.svg()
    assert "entropy" not in texts(matrix)
    metrics = drawn(document, parts="metrics")
    assert images(metrics.svg()) == []
    assert not set(WORDS) & set(texts(metrics))
    both = drawn(heads_document(heads=5), parts="matrix,links")
    assert len(images(both.svg())) == 7  # of five heads and their average, and the legend
    assert texts(both).count("layer 0 head 3") == 2  # above its matrix and above its links


def test_a_part_that_a_figure_lacks_is_named_with_those_that_it_has() -> None:
    with pytest.raises(UsageError, match="curve: this figure has no such part") as error:
        drawn(heads_document(), parts="curve")
    assert str(error.value.expected) == "matrix, grid, links, metrics"
    with pytest.raises(UsageError, match="'curves' is no part") as error:
        style_of("", "matrix,curves")
    assert str(error.value.expected) == ", ".join(PARTS)
    many = heads_document(heads=10, layers=6)
    for part in ("matrix", "links"):
        with pytest.raises(UsageError, match=f"{part}: 6. heads are too many"):
            drawn(many, parts=part)
    with pytest.raises(UsageError, match="about maps of heads, and this figure has none"):
        drawn(cost(), "rows=it")


@cache
def cost() -> Any:
    """The document of `attn cost`, whose figure is curves and bars."""
    return document_of(json.loads(ask("cost", "--json").out), "cost")


def test_curves_and_bars_are_parts() -> None:
    assert "<path" in drawn(cost(), parts="curve").svg()
    bars = drawn(cost(), parts="bars")
    assert "<path" not in bars.svg()
    assert len(texts(bars)) < len(texts(drawn(cost())))


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("columns=0", "columns=1 to columns=100"),
        ("columns=x", "columns=1 to columns=100"),
        ("columns=" + "9" * 5000, "columns=1 to columns=100"),
        ("maxheight=240", "maxheight=20mm to maxheight=5000mm"),
        ("maxheight=1mm", "maxheight=20mm to maxheight=5000mm"),
        ("maxheight=" + "9" * 5000 + "mm", "maxheight=20mm to maxheight=5000mm"),
        ("heads=5", "heads=L5H11, several joined by +"),
        ("heads=L" + "9" * 5000 + "H1", "heads=L5H11, several joined by +"),
        ("rows=+", "rows=it, several joined by +"),
        ("title", "light, dark, 85mm"),
        ("dark=1", "light, dark, 85mm"),
        ("columns=", "light, dark, 85mm"),
    ],
)
def test_a_wrong_word_of_a_style_says_what_was_expected(style: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        style_of(style)
    assert expected in str(error.value.expected)


def test_a_figure_without_title_begins_with_its_maps() -> None:
    document = heads_document()
    with_title, without = drawn(document), drawn(document, "notitle")
    assert texts(with_title)[0] == " ".join(WORDS)
    assert texts(without) == texts(with_title)[2:]
    assert without.corner[1] < with_title.corner[1] - 20


def test_heads_and_rows_are_those_that_are_named() -> None:
    document = heads_document(heads=5)
    drawing = drawn(document, "heads=L0H3+L0H1,rows=it+animal", "matrix")
    maps = images(drawing.svg())[:-1]
    chosen = [np.array(document.heads[head].weights)[[3, 1]] for head in (3, 1)]
    high = max(float(weights.max()) for weights in chosen)
    for cells, weights in zip(maps, chosen, strict=True):
        assert cells.shape[:2] == (2, 4)
        check_colours(cells, weights, high)
    assert [text for text in texts(drawing) if text in ("it", "animal")][:2] == ["it", "animal"]
    measured = drawn(document, "heads=L0H3", "metrics")
    assert [text for text in texts(measured) if "head" in text] == ["layer 0 head 3"]
    with pytest.raises(UsageError, match="no head L1H0") as error:
        drawn(document, "heads=L1H0")
    assert str(error.value.expected) == "L0H0 to L0H4"
    with pytest.raises(AttnError, match="no token 'dog' in the text"):
        drawn(document, "rows=dog")


def test_named_heads_are_large_maps_with_words_and_others_are_small() -> None:
    """A dozen at most; the names above them are those of all screens."""
    many = heads_document(heads=9, layers=4)
    chosen = [f"L{place % 4}H{place}" for place in range(6)]
    drawing = drawn(many, f"180mm,notitle,heads={'+'.join(chosen)}", "matrix,grid")
    assert [text for text in texts(drawing) if text.startswith("layer")] == [
        f"layer {place % 4} head {place}" for place in range(6)
    ]
    large = drawn(many, f"180mm,notitle,heads={'+'.join(chosen)}")
    assert [text for text in texts(large) if text in WORDS][:8] == WORDS * 2  # beside and above
    check_paper(large, 180)
    commas = drawn(many, f"180mm,heads={','.join(chosen)},notitle")
    assert commas.svg() == large.svg()
    small = drawn(heads_document(heads=9, layers=2), "notitle", "grid")
    assert [text for text in texts(small) if text[:1] == "L"] == [
        f"L{layer}H{head}" for layer in range(2) for head in range(9)
    ]
    assert not set(WORDS) & set(texts(small))


def test_heads_of_head_are_large_too(tmp_path: Path) -> None:
    """Those that --head names, and not those of a whole layer."""
    asked = (" ".join(WORDS), "--num-heads", "8", "--figure")
    choices = (((), 1), (("--head", "0,2,4-6"), 5), (("--head", "L0H0+L0H7"), 2))
    for command, (head, count) in product(("run", "heads"), choices):
        assert ask(command, *asked, str(tmp_path / "f.svg"), *head).code == 0
        words = re.findall(">([^<]+)</text>", (tmp_path / "f.svg").read_text())
        maps = count + (command == "heads")  # their average
        assert words.count("animal") == (2 * maps if head else 0)


def test_captured_heads_have_no_layer(tmp_path: Path) -> None:
    vectors = np.ones((14, 2, 3, 4))
    np.savez(tmp_path / "captured.npz", q=vectors, k=vectors, v=vectors)
    picture = tmp_path / "f.svg"
    assert ask("tensors", str(tmp_path / "captured.npz"), "--figure", str(picture)).code == 0
    words = re.findall(">([^<]+)</text>", picture.read_text())
    assert "13" in words
    assert not any(word.startswith("L") for word in words)


def test_maps_stand_in_as_many_columns_as_are_asked_for() -> None:
    document = heads_document(heads=5)
    for columns in (1, 2, 3, 5):
        drawing = drawn(document, f"180mm,columns={columns}", "matrix")
        captions = [box for box in drawing.boxes if box.text.startswith("layer")]
        lefts = {round(box.left, 2) for box in captions}
        assert len(lefts) == columns
        check_paper(drawing, 180)


def test_many_layers_stand_beside_each_other() -> None:
    """30 layers of 9 heads are wide; each map lies in the column of its layer and in the row of its
    head, and has the weights of that head."""
    document = heads_document(heads=9, layers=30)
    drawing = drawn(document, parts="grid")
    assert drawing.corner[0] > 2 * drawing.corner[1]
    places = re.findall(r'<image x="([\d.]+)" y="([\d.]+)"', drawing.svg())[:270]
    lefts = sorted({float(x) for x, _ in places})
    tops = sorted({float(y) for _, y in places})
    assert (len(lefts), len(tops)) == (30, 9)
    high = max(float(np.max(row.weights)) for row in document.heads)
    for place in (0, 100, 269):
        head = document.heads[place]
        x, y = (float(number) for number in places[place])
        assert (lefts.index(x), tops.index(y)) == (head.layer, head.head)
        check_colours(images(drawing.svg())[place], np.array(head.weights), high)
    for millimetres in (85, 180):
        check_paper(drawn(document, f"{millimetres}mm", "grid"), millimetres)


def test_what_is_higher_than_a_page_goes_onto_further_pages(tmp_path: Path) -> None:
    """Every piece is on one page, no page is higher than it may be, and a .pdf has them all."""
    document = heads_document(heads=9, layers=30)
    style = style_of("85mm,maxheight=100mm")
    drawing = figure(document, room=style.room, choice=style.choice)
    assert drawing is not None
    pages = drawing.pages()
    assert len(pages) > 2
    svgs = [drawing.svg(mm=85, page=page) for page in pages]
    for svg in svgs:
        assert float(ET.fromstring(svg).attrib["height"].removesuffix("mm")) <= 100
    pieces = [piece for svg in svgs for piece in svg.splitlines()[3:-1]]
    assert sorted(pieces) == sorted(drawing.svg(mm=85).splitlines()[3:-1])
    assert pages[0][0] == 0
    assert pages[-1][1] == drawing.corner[1]
    files = figure_files(drawing, style, tmp_path / "f.svg")
    assert [file.name for file in files] == [f"f-{page}.svg" for page in range(1, len(pages) + 1)]
    pytest.importorskip("typst")
    ((file, data),) = figure_files(drawing, style, tmp_path / "f.pdf").items()
    assert file.name == "f.pdf"
    assert len(re.findall(rb"/Type\s*/Page\b", data)) == len(pages)
    assert len(drawn(document, "85mm,maxheight=5000mm").pages()) == 1


def test_a_command_says_which_files_hold_the_pages(tmp_path: Path) -> None:
    line = ("heads", "the cat sat on the mat", "--num-heads", "8", "--brief")
    file = str(tmp_path / "f.svg")
    answer = ask(*line, "--figure", file, "--figure-style", "85mm,maxheight=40mm")
    assert answer.code == 0
    names = sorted(made.name for made in tmp_path.iterdir())
    assert names == [f"f-{page}.svg" for page in range(1, len(names) + 1)]
    assert f"{len(names)} pages: f-1.svg to f-{len(names)}.svg" in answer.err


@cache
def long_document() -> Any:
    """Heads of a text of 100 tokens, with regions: two documents, and a question in two parts."""
    made = documents.heads([f"w{place}" for place in range(100)], count=1)
    made["regions"] = [
        {"name": "doc one", "tokens": list(range(10, 40))},
        {"name": "doc two", "tokens": list(range(40, 60))},
        {"name": "question", "tokens": [*range(2, 6), *range(70, 90)]},
    ]
    return document_of(json.loads(json.dumps(made)), "test")


def bands(drawing: Drawing, ink: str) -> list[tuple[float, float, float, float]]:
    """The rectangles of a colour: left, top, width, height."""
    found = re.findall(
        rf'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"\s*fill="{ink}"',
        drawing.svg(),
    )
    return [tuple(float(number) for number in one) for one in found]  # type: ignore[misc]


@pytest.mark.parametrize("millimetres", [85, 180])
def test_a_long_text_has_every_nth_label_and_bands(millimetres: int) -> None:
    document = long_document()
    regions = [(row.name, row.tokens) for row in document.regions]
    names = [token.text for token in document.tokens]
    both = bands_of(regions, range(100))
    weights = np.array(document.heads[0].weights)
    figure_map = FigureMap("head", weights, names, names, row_bands=both, column_bands=both)
    drawing = Drawing(room=style_of(f"{millimetres}mm").room)
    draw_maps(drawing, [figure_map], 0, View(), scale="linear")
    check_paper(drawing, millimetres)
    said = texts(drawing)
    labels = [text for text in said if re.fullmatch(r"\d+ w\d+", text)]
    numbers = [int(label.split()[0]) for label in labels]
    step = numbers[1]
    assert step in (5, 10)
    assert numbers == [*range(0, 100, step)] * 2  # at the left, then above
    assert all(
        label == f"{number} w{number}" for label, number in zip(labels, numbers, strict=True)
    )
    (image,) = re.findall(r'<image x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', drawing.svg())[:1]
    x, y, wide = (float(number) for number in image)
    for number, (_, tokens) in enumerate(regions):
        found = bands(drawing, LIGHT.series[number])
        runs = np.split(np.array(tokens), np.flatnonzero(np.diff(tokens) != 1) + 1)
        below = [band for band in found if band[3] == 5.0]
        beside = [band for band in found if band[2] == 5.0]
        for run, column, row in zip(runs, below, beside, strict=True):
            ends = run[0] * wide / 100, len(run) * wide / 100
            assert column[0] - x == pytest.approx(ends[0], abs=0.02)
            assert column[2] == pytest.approx(ends[1], abs=0.02)
            assert row[1] - y == pytest.approx(ends[0], abs=0.02)
            assert row[3] == pytest.approx(ends[1], abs=0.02)
    assert [text for text in said if text in dict(regions)] == ["question", "doc one", "doc two"]


def test_a_token_of_two_regions_is_in_the_first() -> None:
    first, second = bands_of([("a", [1, 2, 3]), ("b", [2, 3, 4, 7])], range(8))
    assert first.runs == ((1, 4),)
    assert second.runs == ((4, 5), (7, 8))


def test_line_breaks_are_spelled() -> None:
    made = documents.run(["a", "b", "c"])
    made["text"] = "a \n c"
    made["tokens"][1] |= {"text": "\n", "start": 2, "end": 3}
    drawing = drawn(document_of(json.loads(b"".join(json_pieces(document_of(made, "x")))), "x"))
    said = texts(drawing)
    assert said[0] == "a \\n c"
    assert said.count("\\n") == 4  # at the left of the map and above it, and at both ends of links
    assert "␊" not in "".join(said)


def test_chinese_beside_latin_letters_is_in_one_font() -> None:
    drawing = drawn(heads_document(heads=1), "85mm", lang="zh")
    for text in ET.fromstring(drawing.svg()).iter(f"{NS}text"):
        if re.search("[一-龥]", "".join(text.itertext())):
            assert text.attrib["font-family"].startswith("'Noto Sans CJK SC'")
    check_paper(drawing, 85)


def test_captions_name_the_target() -> None:
    document: Any = document_of(documents.ablate(), "test")
    target, versus = TargetToken(id=3, text="cat"), TargetToken(id=4, text="dog")
    named = replace(document, target=target)
    told = {
        ("logprob", named): 'the log-probability of "cat"',
        ("difference", replace(named, versus=versus)): 'the logit of "cat" less that of "dog"',
        ("cosine", named): "how far the vector turns, 1 − cosine",
        ("logprob", document): "the log-probability of the next token",
    }
    for (name, made), caption in told.items():
        assert measure_of_target(name, made, View()) == caption
    patched = replace(
        document_of(documents.patch(), "test"), measure="log probability", target=target
    )
    assert 'the log-probability of "cat"' in " ".join(texts(drawn(patched)))
