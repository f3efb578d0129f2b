"""The application under Textual's Pilot: what a click and the wheel do."""

from __future__ import annotations

from functools import cache

from walking import SENTENCE, pressed

from attncli.explore.panels import HeadSpot, PairSpot, Spot, WordSpot
from attncli.explore.state import State

START = State(layer=0, head=3, query=1, key=2)


def place(text: list[str], part: str, after: int = 0) -> str:
    """Where this part begins, as a click."""
    y = next(at for at, line in enumerate(text) if at >= after and part in line)
    return f"@{text[y].index(part)},{y}"


@cache
def spots() -> dict[Spot | None, str]:
    """Where the first cell of everything lies, as a click."""
    pane = pressed(SENTENCE, start=START)[0].canvas.pane
    cells = [(x, y) for y in range(pane.height) for x in range(80)]
    return {pane.spots(x, y): f"@{x},{y}" for x, y in reversed(cells)}


def lies(spot: Spot) -> str:
    """Where the first cell of this lies, as a click."""
    return spots()[spot]


def test_a_head_a_cell_and_words_are_chosen_by_clicks() -> None:
    assert pressed(SENTENCE, lies(HeadSpot(0, 5)), start=START)[0].walk.state.head == 5
    app, _ = pressed(SENTENCE, lies(PairSpot(2, 3)), start=START)
    assert (app.walk.state.query, app.walk.state.key, app.walk.state.focus) == (2, 3, "words")
    app, _ = pressed(SENTENCE, lies(WordSpot(2, "query")), start=START)
    assert (app.walk.state.query, app.walk.state.is_turned) == (2, False)
    app, _ = pressed(SENTENCE, lies(WordSpot(3, "key")), start=START)
    assert (app.walk.state.key, app.walk.state.is_turned) == (3, True)
    app, text = pressed(SENTENCE, lies(WordSpot(0)), start=START)
    assert app.walk.state.query == 0
    assert any("[humpty] dumpty sat on" in line for line in text)


def test_the_footer_and_lists_can_be_clicked() -> None:
    _, text = pressed(SENTENCE, start=START)
    assert pressed(SENTENCE, place(text, "? help"), start=START)[0].walk.over == "help"
    assert (
        pressed(SENTENCE, place(text, "d difference"), start=START)[0].walk.state.sight
        == "difference"
    )
    _, text = pressed(SENTENCE, "slash", "enter", start=START)
    third = next(at for at, line in enumerate(text) if "▇" in line) + 2
    app, _ = pressed(SENTENCE, "slash", "enter", f"@34,{third}", start=START)
    assert app.walk.state.row == 2
    _, text = pressed(SENTENCE, "o", start=START)
    app, _ = pressed(SENTENCE, "o", place(text, "three heads"), start=START)
    assert len(app.walk.loaded_run.heads if app.walk.loaded_run else ()) == 3


def test_the_wheel_goes_on_and_back() -> None:
    assert pressed(SENTENCE, "tab", "wheel", start=START)[0].walk.state.query == 2
    assert pressed(SENTENCE, "tab", "wheel", "wheel-", start=START)[0].walk.state.query == 1
    assert pressed(SENTENCE, "@0,0", start=START)[0].walk.state == START
