"""Maps in figures: their cells are the weights, their legends have the colours of their scale, thin
lines stay.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from draw import documents
from pictures import images

from attncli.documents.reading import document_of
from attncli.draw.encoding import json_pieces
from attncli.draw.figures import figure
from attncli.draw.figures.charts import colour_cells
from attncli.draw.figures.drawing import LIGHT, FigureChoice
from attncli.draw.heatmap import pool


def made_of(document: Any) -> Any:
    """A document of plain dictionaries as it is declared."""
    return document_of(json.loads(b"".join(json_pieces(document))), "test")


def test_cells_are_the_weights() -> None:
    made = documents.run(["a", "b", "c"], causal=True)
    drawing = figure(made_of(made))
    assert drawing is not None
    cells = images(drawing.svg())[0]
    weights = np.array(made["layers"][0]["heads"][0]["weights"])
    assert cells.shape == (3, 3, 4)
    assert (cells[..., 3] == np.where(np.tril(np.ones((3, 3))) > 0, 255, 0)).all()
    high = weights.max()
    for i in range(3):
        for j in range(i + 1):
            assert tuple(cells[i, j, :3]) == LIGHT.weights.rgb(weights[i, j] / high)


def test_signed_cells_and_pooling() -> None:
    values = np.array([[-1.0, 0.0], [np.nan, 1.0]])
    cells = colour_cells(values, LIGHT.signed, "signed", 1.0)
    assert tuple(cells[0, 0, :3]) == LIGHT.signed.rgb(0)
    assert tuple(cells[1, 1, :3]) == LIGHT.signed.rgb(1)
    assert cells[1, 0, 3] == 0
    large = np.zeros((1030, 700))
    large[1029, 699] = -3.0
    assert pool(large, 3, "signed").shape == (344, 234)
    assert pool(large, 3, "signed")[-1, -1] == -3.0
    assert pool(large, 1, "signed") is large


@pytest.mark.thorough
def test_maps_of_long_texts_keep_their_thin_lines() -> None:
    """A cell smaller than a dot of the picture is seen, and so are weights of a few hundredths."""
    made = documents.heads([f"w{at}" for at in range(300)], count=4)
    diagonal = np.eye(300, k=-1) * 0.05 + 0.001
    for one in made["heads"]:
        one["weights"] = diagonal.tolist()
    made["average"]["weights"] = diagonal.tolist()
    made["heads"][0]["weights"][299][0] = 0.9
    drawing = figure(made_of(made))
    assert drawing is not None
    svg = drawing.svg()
    assert "each dot: the largest of 6 × 6 cells; colours by square roots" in svg
    for tile in images(svg)[:4]:
        assert max(tile.shape[:2]) <= 58
        light = tile[..., :3].astype(int).sum(-1)
        beside = light[np.arange(50), np.arange(50)]
        assert (beside < light[0, -1] - 50).all()
    shown = figure(made_of(documents.run(["a", "b", "c"])), scale="row")
    assert shown is not None
    assert "s largest" in shown.svg()


def test_a_legend_has_the_colours_of_its_scale() -> None:
    made = documents.run(["a", "b", "c"])
    strips = {
        scale: images(figure(made_of(made), scale=scale).svg())[-1]
        for scale in ("linear", "log", "row")
    }
    assert (strips["linear"] == strips["row"]).all()
    assert (strips["log"].astype(int).sum(-1) <= strips["linear"].astype(int).sum(-1)).all()
    assert strips["log"][0, 6, 0] < strips["linear"][0, 6, 0]


def _two_heads(room: float, columns: int | None = None) -> str:
    """The figure of two large maps of fourteen words on paper of `room` points."""
    words = [f"word{place}" for place in range(14)]
    choice = FigureChoice(heads=((0, 0), (0, 1)), columns=columns)
    drawing = figure(made_of(documents.run(words, heads=2)), room=room, choice=choice)
    assert drawing is not None
    return drawing.svg()


def _edges_of_maps(svg: str, least: float = 100) -> list[tuple[float, float]]:
    """The left and right edges of the maps in a figure, those at least `least` points high; the bar
    of colours is no map."""
    spans = re.findall(r'<image x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="([\d.]+)"', svg)
    return [(float(x), float(x) + float(wide)) for x, wide, tall in spans if float(tall) > least]


def test_two_maps_fill_the_width_of_the_paper() -> None:
    room = 520.0
    (_, first_end), (second, end) = _edges_of_maps(_two_heads(room))
    assert first_end < second
    # what is right of the last map is its leaning word, some 25 points
    assert 0.93 * room < end < room - 5

    # much wider paper is not filled: cells stay as they are without a width
    (left, right), _ = _edges_of_maps(_two_heads(5000.0))
    assert right - left == pytest.approx(14 * 13)


def test_axes_and_colours_have_names() -> None:
    svg = _two_heads(520.0)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert texts.count("query ↓") == 2
    assert texts.count("key →") == 2
    assert texts.count("attention weight") == 1


def test_two_columns_stand_side_by_side_on_any_paper() -> None:
    """Also where the two take the whole width to the last digit."""
    for room in np.linspace(180.0, 340.0, 33):
        svg = _two_heads(float(room), columns=2)
        (_, first_end), (second, _) = _edges_of_maps(svg, least=30)
        assert first_end < second, room


@pytest.mark.parametrize("room", [90.0, 226.8])
def test_few_rows_of_a_long_text_keep_their_words(room: float) -> None:
    """The columns are too narrow for all words; the words of the rows stay apart from each other."""
    words = [f"word{place}" for place in range(30)]
    choice = FigureChoice(heads=((0, 0),), rows=("word21", "word8", "word9"), parts=("matrix",))
    drawing = figure(made_of(documents.run(words)), room=room, choice=choice)
    assert drawing is not None
    texts = re.findall(r'<text x="[^"]*" y="([\d.]+)"[^>]*>([^<]*)</text>', drawing.svg())
    heights = {name: float(y) for y, name in texts if re.fullmatch(r"word\d+", name)}
    assert list(heights) == ["word21", "word8", "word9"]
    assert min(np.diff([*heights.values()])) > 7.5
    assert max(heights.values()) < drawing.corner[1]


def test_rows_that_are_thinned_have_the_numbers_of_their_tokens() -> None:
    words = [f"word{place}" for place in range(60)]
    rows = tuple(f"word{place}" for place in range(59, 39, -1))
    choice = FigureChoice(heads=((0, 0),), rows=rows, parts=("matrix",))
    drawing = figure(made_of(documents.run(words)), room=226.8, choice=choice)
    assert drawing is not None
    numbered = re.findall(r">(\d+) word(\d+)<", drawing.svg())
    assert "59" in {number for number, _ in numbered}
    assert all(number == place for number, place in numbered)


def test_rows_that_are_heads_have_no_numbers() -> None:
    words = [f"word{place}" for place in range(40)]
    for heads in (2, 20):
        made = made_of(documents.run(words, heads=heads))
        chosen = tuple((0, head) for head in range(heads))
        choice = FigureChoice(heads=chosen, rows=("word21",), parts=("matrix",))
        drawing = figure(made, room=226.8, choice=choice)
        assert drawing is not None
        names = re.findall(r">([^<]*L0H\d+)<", drawing.svg())
        assert names[0] == "L0H0"
        assert all(name.startswith("L0H") for name in names)
