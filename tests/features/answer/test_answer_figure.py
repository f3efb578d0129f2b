"""The figure of `attn answer`: its bars are as long as the numbers, its texts do not overlap."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from asking import ask
from draw import documents
from draw.test_figures import overlap

from attncli.documents.reading import document_of
from attncli.draw.encoding import json_pieces
from attncli.draw.figures import figure, title_and_description
from attncli.draw.figures.drawing import DARK, LIGHT, Drawing, style_of
from attncli.features.answer.document import AnswerDocument
from attncli.features.answer.figure import _axis_step

RECTANGLE = re.compile(
    r'<rect x="([-\d.]+)" y="([-\d.]+)" width="([\d.]+)" height="8.00" fill="([^"]+)"'
)


def answer_document(**sizes: int) -> AnswerDocument:
    document = document_of(documents.answer(**sizes), "test")
    assert isinstance(document, AnswerDocument)
    return document


def drawn(document: AnswerDocument, style: str = "light", lang: str = "en") -> Drawing:
    drawing = figure(document, theme=style_of(style).theme, lang=lang, room=style_of(style).room)
    assert drawing is not None
    return drawing


@pytest.mark.parametrize("style", ["light", "85mm", "60mm"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_its_texts_are_apart(style: str, lang: str) -> None:
    for sizes in (
        {"regions": 3, "sentences": 1},
        {"regions": 5, "sentences": 4},
        {"words": ["word"] * 66, "regions": 22, "sentences": 42, "length": 1},
    ):
        drawing = drawn(answer_document(**sizes), style, lang)
        boxes = sorted(drawing.boxes, key=lambda box: box.top)
        for a, b in combinations(boxes, 2):
            if b.top > a.bottom:
                continue
            assert not overlap(a, b), (sizes, a, b)
        assert max(box.right for box in drawing.boxes) <= style_of(style).room + 10
        assert min(box.left for box in drawing.boxes) > -10


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_bars_are_as_long_as_their_numbers(theme: object) -> None:
    document = answer_document(regions=5, sentences=2)
    drawing = drawn(document, "light" if theme is LIGHT else "dark")
    bars = [found.groups() for found in map(RECTANGLE.match, drawing.pieces) if found]
    half = len(document.effects)
    for rows, values in (
        (bars[:half], [abs(effect.change) for effect in document.effects]),
        (bars[half:], [effect.attention for effect in document.effects]),
    ):
        unit = float(rows[0][2]) / values[0]
        assert [float(row[2]) for row in rows] == pytest.approx(
            [unit * value for value in values], abs=0.02
        )
    # losses end at the line of 0
    losses = [row for row in bars[:half] if float(row[2])]
    assert len({round(float(x) + float(wide), 1) for x, _, wide, _ in losses}) == 1


MARK = re.compile(r'<rect x="([-\d.]+)" y="([-\d.]+)" width="1.20" height="12.00"')


@pytest.mark.parametrize(
    ("random", "gains"), [([0.4, -1.77], False), ([0.4, 0.1], False), ([-0.3, 0.9], True)]
)
def test_the_mark_of_random_spans_stands_at_its_change(random: list[float], gains: bool) -> None:
    """Its place against the line of 0, in the scale of the bars, on the side of its sign."""
    made = documents.answer(regions=5, sentences=1)
    if gains:
        changes = sorted(abs(effect["change"]) for effect in made["effects"])
        for effect, change in zip(made["effects"], changes, strict=True):
            effect["change"] = change
    made["effects"][0]["random"] = random
    document = document_of(made, "test")
    assert isinstance(document, AnswerDocument)
    drawing = drawn(document)
    bars = [found.groups() for found in map(RECTANGLE.match, drawing.pieces) if found]
    marks = [found.groups() for found in map(MARK.match, drawing.pieces) if found]
    row = max(range(5), key=lambda place: abs(document.effects[place].change))
    unit = float(bars[row][2]) / abs(document.effects[row].change)
    zero = float(bars[row][0])
    if not gains:
        zero += float(bars[row][2])
    most = max(random, key=abs)
    assert float(marks[0][0]) + 0.6 == pytest.approx(zero + most * unit, abs=0.05)
    labels = [box for box in drawing.boxes if re.fullmatch(r"[−+]\d\.\d\d", box.text)]
    assert all(not box.left < float(marks[0][0]) < box.right for box in labels[:1])


def test_it_says_what_it_shows() -> None:
    document = answer_document(regions=5, sentences=2)
    texts = " ".join(box.text for box in drawn(document).boxes)
    for words in (
        "Sentence 1.",
        "(geometric mean)",
        "change without it",
        "nats a token",
        "attention on it",
        "elsewhere",
    ):
        assert words in texts
    assert "regions shown" not in texts
    many = answer_document(words=["word"] * 90, regions=30, sentences=50, length=1)
    texts = " ".join(box.text for box in drawn(many).boxes)
    assert "20 of 30 regions shown" in texts
    assert "40 of 50 sentences shown" in texts
    title, said = title_and_description(document, "en")
    assert title == document.text
    assert "The answer rests on" in said


@pytest.mark.parametrize(
    ("largest", "step"), [(0.01, 0.005), (0.3, 0.1), (1.43, 0.5), (4.36, 2), (9.9, 5), (36.7, 10)]
)
def test_axes_have_round_numbers(largest: float, step: float) -> None:
    assert _axis_step(largest) == pytest.approx(step)


def test_the_command_writes_it(tmp_path: Path) -> None:
    saved = tmp_path / "answer.json"
    saved.write_bytes(b"".join(json_pieces(answer_document())))
    assert ask("view", str(saved), "--figure", str(tmp_path / "a.svg")).code == 0
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "<title>" in svg
    assert "The answer rests on" in svg
