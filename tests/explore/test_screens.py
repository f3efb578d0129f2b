"""Screens as text and styles against golden files; at any size they fit; what tokens hold cannot
reach the terminal.
"""

from __future__ import annotations

import os
import unicodedata
from itertools import groupby
from pathlib import Path

import pytest
from msgspec.structs import replace
from walking import SENTENCE, decoder, pressed, seeded

from attncli.draw.safe import cells
from attncli.draw.view import View
from attncli.explore.explorer import Explorer
from attncli.explore.frame import _connector
from attncli.explore.loaded_run import LiveSource
from attncli.explore.state import State
from attncli.inputs.token import Token
from attncli.models.load import load

GOLDEN = Path(__file__).parent.parent / "golden" / "explore"
START = State(layer=0, head=3, query=3, key=1)
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "250x80": (250, 80)}
HOSTILE = [
    "\x1b[2Jred", "[bold]x[/]", "a\u202eb", "\x9b31m", "\x07", "日本語", "שלום", "e\u0301\u0301", "👩‍👩‍👧", "", "\n",
    "[@click=app.quit]",
]  # fmt: skip


def styled(app: Explorer) -> str:
    """The canvas as text, then line by line where which style begins."""
    strips = [app.canvas.render_line(y) for y in range(app.canvas.size.height)]
    text = ["".join(segment.text for segment in strip).rstrip() for strip in strips]
    styles = []
    for y, strip in enumerate(strips):
        x, runs = 0, []
        for style, segments in groupby(strip, lambda segment: str(segment.style)):
            runs.append(f"{x} {style}")
            x += sum(cells(segment.text) for segment in segments)
        styles.append(f"{y}: {'; '.join(runs)}")
    return "\n".join([*text, "", *styles, ""])


@pytest.mark.parametrize(
    ("name", "size", "keys", "view"),
    [
        *((f"weights-{name}", size, (), View(color=True)) for name, size in SIZES.items()),
        ("links-80x24-light-zh", SIZES["80x24"], ("2",), View(color=True, light=True, lang="zh")),
        ("why-120x40", SIZES["120x40"], ("enter",), View(color=True)),
        ("search-80x24-plain", SIZES["80x24"], ("slash", "enter"), View()),
        ("difference-80x24-ascii", SIZES["80x24"], ("d", "right"), View(ascii=True)),
    ],
)  # fmt: skip
def test_screens_are_as_they_were(
    name: str, size: tuple[int, int], keys: tuple[str, ...], view: View
) -> None:
    pressed(
        SENTENCE,
        *keys,
        size=size,
        view=view,
        start=START,
        last=lambda app: found.append(styled(app)),
    )
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("ATTN_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(found[-1], "utf-8")
    assert found[-1] == file.read_text("utf-8")
    if not view.color:
        assert "#" not in found[-1].partition("\n0: ")[2]
    if view.ascii:
        assert found[-1].isascii()


found: list[str] = []


@pytest.mark.parametrize(
    "size",
    [(40, 12), (61, 17), (80, 24), (250, 80), (30, 8)],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
def test_every_view_fits_at_every_size(size: tuple[int, int]) -> None:
    keys = (
        "2",
        "r",
        "1",
        "a",
        "slash",
        "enter",
        "d",
        "right",
        "d",
        "question_mark",
        "escape",
        "o",
        "escape",
        "m",
        "z",
    )
    pressed(decoder(), *keys, size=size, start=State(), each=lambda app: fits(app, size))
    pressed(SENTENCE, "enter", "t", size=size, start=START, each=lambda app: fits(app, size))


def fits(app: Explorer, size: tuple[int, int]) -> None:
    """Each line has exactly as many cells as the screen, and there are as many lines."""
    rows = app.canvas.pane.rows
    assert len(rows) == app.canvas.size.height >= size[1] - 1
    for row in rows:
        assert sum(cells(text) for text, _ in row) == size[0], row


def test_a_new_size_is_drawn_at_once() -> None:
    seen: list[int] = []
    pressed(
        SENTENCE,
        "resize100,30",
        "resize60,20",
        start=START,
        each=lambda app: seen.append(len(app.canvas.pane.rows)),
    )
    assert seen[-2:] == [30, 20]


@pytest.mark.parametrize("ascii", [False, True])
def test_hostile_tokens_are_inert(ascii: bool) -> None:
    tokens = [Token(at, text, at, None, None) for at, text in enumerate(HOSTILE)]
    model = seeded()
    source = replace(
        LiveSource.of(model, "x"), text="\x1b]0;owned\x07", tokens=tokens, typed_count=len(tokens)
    )
    texts: list[str] = []

    def keep(app: Explorer) -> None:
        fits(app, (90, 30))
        texts.extend("".join(text for text, _ in row) for row in app.canvas.pane.rows)

    keys = (
        "2",
        "r",
        "1",
        "slash",
        "enter",
        "d",
        "d",
        "question_mark",
        "escape",
        "e",
        "enter",
        "z",
        "s",
        "escape",
    )
    pressed(
        source, *keys, size=(90, 30), view=View(color=True, ascii=ascii), start=State(), each=keep
    )
    for text in texts:
        for char in text:
            assert unicodedata.category(char) not in ("Cc", "Cs", "Co", "Zl", "Zp"), repr(text)
            assert char not in "\u202e\u202d\u2066\u200f", repr(text)
            assert not ascii or char.isascii()
    whole = "\n".join(texts)
    assert "[bold]x[/]" in whole or "[bold]" in whole  # shown as it is, not taken for markup


def test_wide_words_keep_the_columns_apart() -> None:
    _, text = pressed(
        "今天 我 的 计划 是 买菜", start=State(query=3), view=View(color=True, lang="zh")
    )
    assert any("计" in line for line in text)
    _, text = pressed("שלום עולם طويل", start=State())
    assert any("שלום" in line for line in text)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [8, 12, 20, 30, 34, 39])
def test_a_window_that_is_too_small_says_how_large_it_must_be(width: int, lang: str) -> None:
    _, text = pressed(SENTENCE, size=(width, 10), view=View(lang=lang))
    said = " ".join(line.strip() for line in text if line.strip())
    assert "40 × 12" in said
    assert all(cells(line) <= width for line in text)
    assert "40 × 12" in "".join(pressed(SENTENCE, size=(width, 1), view=View(lang=lang))[1])


@pytest.mark.many
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_words_that_the_model_does_not_know_are_marked_and_told(size: tuple[int, int]) -> None:
    source = LiveSource.of(load("minilm"), "她吃苹果，他吃香蕉")
    for lang, told in (("en", "unknown to this model"), ("zh", "不认识的")):
        _, rows = pressed(
            source, "right", "right", size=size, view=View(width=size[0], color=True, lang=lang)
        )
        shown = "".join("".join(rows).split())
        assert "吃?" in shown
        assert "香蕉?" in shown
        assert told.replace(" ", "") in shown


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_lines_between_words_are_the_same_in_ascii(is_turned: bool) -> None:
    """Sign by sign; only corners are all a plus."""
    plain = str.maketrans("─│┌┐┬└┘┴├┤┼▸", "-|+++++++++>")
    for row in range(6):
        drawn, plainly = (
            _connector(row, 2, [0, 4], View(ascii=ascii), is_turned=is_turned)
            for ascii in (False, True)
        )
        assert drawn.translate(plain).replace("--> ", "--->") == plainly
