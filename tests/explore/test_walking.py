"""The application under Textual's Pilot: what each key and each click does."""

from __future__ import annotations

from walking import SENTENCE, pressed, shown

from attncli.explore.state import State


def test_it_begins_with_the_grid_the_weights_the_sentence_and_the_keys() -> None:
    app, text = pressed(SENTENCE)
    assert "1 layer × 8 heads" in text[0]
    assert "strongest link of" in shown(text, "strongest link of")
    assert any("humpty" in line for line in text[3:])
    assert "? help" in text[-1]
    assert "q quit" in text[-1]
    assert app.walk.loaded_run is not None
    assert len(app.walk.loaded_run.heads) == 8


def test_a_word_that_looks_most_at_itself_is_not_named_twice() -> None:
    start = State(head=1, query=3, key=3)
    _, text = pressed(SENTENCE, start=start, size=(120, 40))
    assert shown(text, '"on" looks most at itself: 79% of its weight.')
    start = State(head=6, query=1, key=1)
    _, text = pressed(SENTENCE, "r", start=start, size=(120, 40))
    assert shown(text, '"dumpty" gets most from itself: 25% of its weight.')


def test_arrows_move_the_head_and_after_tab_the_words() -> None:
    app, _ = pressed(SENTENCE, "home", "right", "right")
    assert (app.walk.state.layer, app.walk.state.head) == (0, 2)
    app, _ = pressed(
        SENTENCE,
        "home",
        "tab",
        "up",
        "up",
        "up",
        "up",
        "left",
        "left",
        "left",
        "left",
        "down",
        "right",
    )
    assert (app.walk.state.head, app.walk.state.query, app.walk.state.key) == (0, 1, 1)
