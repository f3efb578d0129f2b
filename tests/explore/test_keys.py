"""The application under Textual's Pilot: what every key does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from walking import SENTENCE, decoder, lines, pressed, shown

from attncli.explore.head_grid import MEASURES
from attncli.explore.state import ACTIONS, KEYS, SCALES, State
from attncli.inputs.token import SAMPLE

START = State(layer=0, head=3, query=1, key=2)


def walked(*keys: str, start: State = START) -> State:
    return pressed(SENTENCE, *keys, start=start)[0].walk.state


def passed(*keys: str) -> list[State]:
    """The states after each of the keys."""
    found: list[State] = []
    pressed(SENTENCE, *keys, start=START, each=lambda app: found.append(app.walk.state))
    return found


@pytest.mark.many
@pytest.mark.parametrize(
    ("keys", "head"),
    [
        (("left",), 2), (("right",), 4), (("home",), 0), (("end",), 7), (("comma",), 2), (("full_stop",), 4),
        (("left_square_bracket",), 3), (("right_square_bracket",), 3), (("up",), 3),
        (("down", "pagedown", "pageup"), 3),
        (("end", "right"), 7),
    ],
)  # fmt: skip
def test_keys_of_the_grid(keys: tuple[str, ...], head: int) -> None:
    found = walked(*keys)
    assert (found.layer, found.head, found.query, found.key) == (0, head, 1, 2)


def test_brackets_go_through_layers() -> None:
    app, _ = pressed(decoder(), "right_square_bracket", start=State())
    assert app.walk.state.layer == 1
    app, _ = pressed(
        decoder(),
        "right_square_bracket",
        "right_square_bracket",
        "left_square_bracket",
        start=State(),
    )
    assert app.walk.state.layer == 0


@pytest.mark.parametrize(
    ("keys", "pair"),
    [
        (("tab", "up"), (0, 2)), (("tab", "down"), (2, 2)), (("tab", "left"), (1, 1)), (("tab", "right"), (1, 3)),
        (("tab", "home"), (1, 0)), (("tab", "end"), (1, 3)), (("tab", "pagedown"), (3, 2)), (("tab", "pageup"), (0, 2)),
        (("b",), (0, 2)), (("f",), (2, 2)), (("r", "b"), (1, 1)), (("r", "f"), (1, 3)), (("tab", "tab", "b"), (0, 2)),
        (("2", "tab", "down"), (2, 2)),
    ],
)  # fmt: skip
def test_keys_of_the_words(keys: tuple[str, ...], pair: tuple[int, int]) -> None:
    found = walked(*keys)
    assert (found.query, found.key, found.head) == (*pair, 3)


def test_keys_that_change_what_is_shown() -> None:
    assert walked("l").sight == "links"
    assert [state.sight for state in passed("2", "1", "2", "escape")] == ["links", "matrix"] * 2
    assert walked("3").sight == walked("y").sight == walked("enter").sight == "why"
    assert [state.is_turned for state in passed("r", "r")] == [True, False]
    assert walked("z").near
    assert [START.scale, *(state.scale for state in passed("c", "c", "c"))] == list(SCALES)
    measures = [state.measure for state in passed(*["m"] * len(MEASURES))]
    assert (measures[0], measures[-1]) == (MEASURES[1], "word")


def test_enter_goes_through_the_steps_and_the_columns_add_up() -> None:
    app, text = pressed(SENTENCE, "tab", "enter", start=START, size=(120, 40))
    assert "step 1 of 7" in shown(text, "why")
    found = app.walk.derivation
    assert found is not None
    assert (found.layer, found.head, found.query) == (0, 3, 1)
    for line in (line for line in text if line[50:].strip()[:1].isdigit() and line.count(".") > 4):
        *terms, total = (float(part) for part in line[50:].split() if "." in part)
        assert sum(terms) == pytest.approx(total, abs=0.006)
    steps: list[list[str]] = []
    pressed(
        SENTENCE,
        *["enter"] * 6,
        start=START,
        size=(120, 40),
        each=lambda app: steps.append(lines(app)),
    )
    for step, name in enumerate(("similarity", "scale", "mask", "softmax", "weighted sum"), 1):
        assert f"step {step} of 7: {name}" in shown(steps[step - 1], "why")
        assert any(
            f" {step} {word}" in "".join(steps[step - 1]) for word in (name, "output of dumpty")
        )
    assert "why · as matrices" in shown(steps[5], "why")
    assert "1.0000" in "".join(steps[3]).replace("1.00 ", "1.0000")
    assert walked("enter", "right", "right").step == 2
    assert walked("enter", "right", "left").step == 0
    assert walked("enter", "end", "down", "home", "up").top == 0


def test_a_takes_the_score_apart() -> None:
    source = decoder()
    start = State(layer=1, head=0, query=3, key=1)
    app, text = pressed(source, "a", start=start, size=(120, 40))
    found = app.walk.explanation
    assert found is not None
    assert (found.link.layer, found.link.head, found.link.query, found.link.key) == (1, 0, 3, 1)
    assert sum(part.query_side or 0 for part in found.parts) == pytest.approx(found.total, abs=1e-9)
    assert "what asks: parts of" in "".join(text)
    assert f"{len(found.parts)} parts add up to the score" in " ".join(" ".join(text).split())
    app, _ = pressed(source, "a", "left", start=start, size=(120, 40))
    assert (app.walk.state.sight, app.walk.state.key) == ("parts", 0)
    assert app.walk.explanation is not None
    assert app.walk.explanation.link.key == 0
    app, text = pressed(source, "a", "right", "right", "right", start=start, size=(120, 40))
    assert "the mask hides this key" in "".join(text)  # of a decoder, what comes later
    assert walked("7").sight == "parts"
    assert walked("7", "escape").sight == "matrix"


def test_search_ranks_the_heads_and_walks_through_them() -> None:
    app, text = pressed(SENTENCE, "slash", "enter", start=START)
    held = app.walk.loaded_run
    assert held is not None
    best = max(held.heads, key=lambda place: held.weight(place, 1, 2) or 0.0)
    assert (app.walk.state.layer, app.walk.state.head) == best
    assert "dumpty → sat" in shown(text, "heads that send")
    assert walked("4", "enter", "down").head != app.walk.state.head
    assert walked("slash", "enter", "down", "enter").sight == "matrix"
    assert walked("slash", "escape").sight == "matrix"
    typed = walked("slash", *["backspace"] * 20, "=on humpty", "enter")
    assert (typed.query, typed.key, typed.sight) == (3, 0, "search")
    over = walked(
        "slash", "=on humpty", "enter"
    )  # what is typed takes the place of the pair that stood there
    assert (over.query, over.key, over.sight) == (3, 0, "search")
    again = pressed("a b a b", "slash", "enter", start=State(query=3, key=2))[0].walk.state
    assert (again.query, again.key) == (3, 2)
    app, text = pressed(SENTENCE, "slash", "=on x", "enter", start=START)
    assert "no token" in shown(text, "no token")
    assert app.question is not None


def test_difference_subtracts_the_marked_head() -> None:
    app, text = pressed(SENTENCE, "d", "right", start=START)
    assert app.walk.state.subtracted_head == (0, 3)
    assert "less layer 0 head 3 (A)" in shown(text, "less")
    assert walked("d", "right", "d") == replace(START, head=4)
    assert walked("5", "escape").subtracted_head is None


def test_effects_of_the_head_the_link_and_then_every_head() -> None:
    app, text = pressed(decoder(), "e", start=State(layer=1, head=1, query=3, key=1))
    found = app.walk.effects
    assert found is not None
    assert found.head is not None
    assert found.cut_document is not None
    assert found.every is None
    assert "Without layer 1 head 1" in shown(text, "Without")
    app, text = pressed(
        decoder(), "e", "6", "tab", "down", start=State(layer=1, head=1, query=3, key=1)
    )
    found = app.walk.effects
    assert found is not None
    assert found.every is not None
    assert len(found.every.effects) == len(app.walk.loaded_run.heads if app.walk.loaded_run else ())
    assert found.every.effects[0].random is not None
    assert "random" in "".join(text)
    second = found.every.effects[1]
    assert (app.walk.state.layer, app.walk.state.head) == (second.layer, second.head)
    assert "change when taken away" in shown(text, "change when")


def test_effects_measured_twice_keep_the_random_change_beside_them() -> None:
    app, text = pressed(decoder(), "e", "e", start=State(layer=1, head=1, query=3, key=1))
    assert app.walk.effects is not None
    assert app.walk.effects.every is not None
    assert app.walk.effects.every.effects[0].random is not None
    assert "A random change of" in shown(text, "A random")


def test_another_text_runs_while_it_is_typed_and_when_it_is_entered() -> None:
    app, text = pressed(SENTENCE, "i", "= in May", "enter", start=START)
    assert getattr(app.walk.source, "text", "") == "humpty dumpty sat on in May"
    assert "6 tokens" in text[0]
    app, text = pressed(SENTENCE, "i", "= up", "wait", start=START)
    assert "5 tokens" in text[0]
    assert app.question is not None
    app, text = pressed(SENTENCE, "i", *["backspace"] * 30, "enter", start=START)
    assert "no tokens" in shown(text, "no tokens")


def test_another_model() -> None:
    app, text = pressed(SENTENCE, "o", "down", "enter", start=START)
    assert len(app.walk.loaded_run.heads if app.walk.loaded_run else ()) == 3
    app, text = pressed(SENTENCE, "o", start=START)
    assert shown(text, "three heads")
    assert walked("o", "down", "escape").head == 3


def test_tokens_are_generated_one_by_one_and_taken_away_again() -> None:
    app, text = pressed(decoder(), "n", "n", "p", start=State())
    source = app.walk.source
    assert (
        len(app.walk.loaded_run.queries if app.walk.loaded_run else ())
        == getattr(source, "typed_count", 0) + 1
    )
    assert app.walk.state.query == getattr(source, "typed_count", 0)
    app, text = pressed(decoder(), "p", start=State())
    assert "nothing was generated" in shown(text, "nothing")
    app, text = pressed(SENTENCE, "n", start=START)
    assert "does not continue texts" in shown(text, "continue")


def test_pieces_become_words() -> None:
    app, _ = pressed(decoder(), "w", start=State())
    assert getattr(app.walk.source, "words", False)
    app, _ = pressed(decoder(), "w", "w", start=State())
    assert not getattr(app.walk.source, "words", True)


@pytest.mark.thorough
def test_saving_what_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clear = ["ctrl+u"]
    for name, keys in {
        "heads.json": (), "run.json": ("tab",), "why.json": ("enter",), "find.json": ("slash", "enter"),
        "compare.json": ("d", "right"), "effects.json": ("e",), "map.svg": (), "page.html": (), "links.png": ("2",),
    }.items():  # fmt: skip
        _, text = pressed(SENTENCE, *keys, "s", *clear, f"={name}", "enter", start=START)
        assert f"saved: {name}" in shown(text, "saved"), name
        assert (tmp_path / name).stat().st_size > 200
    schemas = {path.name: path.read_text()[:40] for path in tmp_path.glob("*.json")}
    for name in ("heads", "run", "find", "compare"):
        assert f"attn.{name}/1" in schemas[f"{name}.json"]
    assert "attn.explain/1" in schemas["why.json"]
    assert "attn.ablate/1" in schemas["effects.json"]
    before = (tmp_path / "map.svg").read_bytes()
    _, text = pressed(SENTENCE, "right", "s", *clear, "=map.svg", "enter", start=START)
    assert "there already" in shown(text, "already")
    assert (tmp_path / "map.svg").read_bytes() == before
    _, text = pressed(
        SENTENCE, "right", "tab", "s", *clear, "=map.svg", "enter", "enter", start=START
    )
    assert "saved: map.svg" in shown(text, "saved")
    assert (tmp_path / "map.svg").read_bytes() != before
    _, text = pressed(SENTENCE, "s", *clear, "=map.doc", "enter", start=START)
    assert ".json, .svg" in shown(text, "map.doc")


def test_help_tells_of_the_screen_in_view_and_of_every_key() -> None:
    for keys, title in {
        (): "One head's weights",
        ("2",): "Links",
        ("enter",): "Why the weight",
        ("d",): "Two heads",
    }.items():
        _, text = pressed(SENTENCE, *keys, "question_mark", start=START, size=(120, 44))
        assert title in shown(text, title)
    for key in KEYS[8:]:
        assert any(f" {key.symbol} " in line for line in text), key
    _, text = pressed(SENTENCE, "f1", "down", "down", start=START)
    assert "Each row is" not in "".join(text)
    for size in ((80, 24), (100, 30), (120, 44), (250, 80)):
        _, text = pressed(SENTENCE, "tab", "question_mark", start=START, size=size)
        assert re.search(
            "another word, cell, step or row(  | *$)", shown(text, "step or row").rstrip()
        ), size
        assert ("more lines" in "".join(text)) == (size[1] < 30), size
    assert walked("question_mark", "question_mark", "right").head == 4
    assert walked("question_mark", "right").head == 4
    assert walked("question_mark", "escape") == START


def test_the_tour_goes_along_the_five_steps_of_the_sample() -> None:
    app, text = pressed(SAMPLE, "t", start=START)
    assert "cross the street" in "".join(text)
    seen = [(state.sight, state.step) for state in passed("t", *["enter"] * 10)[1:]]
    steps = [("why", step) for step in range(6)]
    assert seen == [*steps, ("search", 0), ("effects", 0), ("matrix", 0), ("matrix", 0)]
    app, text = pressed(SENTENCE, "t", "t", "escape", start=START)
    assert app.walk.tour is None


def test_the_tour_takes_the_readers_own_sentence_and_leaves_it_in_place() -> None:
    for keys in (
        ("t",),
        ("t", "escape"),
        ("t", "enter", "escape", "escape"),
        ("t", *["enter"] * 10),
    ):
        app, text = pressed(SENTENCE, *keys, start=START)
        assert (app.walk.source.text, app.walk.state.query, app.walk.state.key) == (
            SENTENCE,
            1,
            2,
        ), keys
        assert "dumpty" in "".join(text)
    assert app.walk.tour is None


def test_the_tour_takes_words_apart_and_merges_them_again() -> None:
    split = []
    app, _ = pressed(
        SENTENCE,
        "w",
        "t",
        "escape",
        start=START,
        each=lambda app: split.append(app.walk.source.words),
    )
    assert split == [True, False, True]
    app, _ = pressed(SENTENCE, "w", "t", *["enter"] * 10, start=START)
    assert (app.walk.source.words, app.walk.tour) == (True, None)


def test_the_tour_has_one_numbering_and_its_words_follow_the_arrows() -> None:
    app, text = pressed(
        SENTENCE, "t", *["enter"] * 2, "right", "right", start=START, size=(120, 40)
    )
    assert "step 4 of 7: softmax" in shown(text, "why")
    assert "step 4 of 7: softmax" in shown(text, "makes shares")
    app, text = pressed(SENTENCE, "t", "enter", *["right"] * 5, start=START, size=(120, 40))
    assert shown(text, "why · as matrices")
    assert shown(text, "for all words at once")
    assert not [line for line in text if re.search(r"[0-9]/[0-9]|Steps? [0-9]", line)]
    app, text = pressed(SENTENCE, "t", "enter", "2", start=START, size=(120, 40))
    assert app.walk.tour is None
    assert shown(text, "looks most at")


@pytest.mark.parametrize("size", [(80, 24), (60, 24), (120, 40)])
@pytest.mark.parametrize(("step", "last"), [(1, "10 tired"), (4, "sum "), (5, "o  ")])
def test_the_tour_points_at_nothing_that_is_hidden(
    size: tuple[int, int], step: int, last: str
) -> None:
    _, text = pressed(SAMPLE, "t", *["enter"] * step, start=START, size=size)
    assert not [line for line in text if "more line" in line]
    assert [
        line
        for line in text
        if f" {last}" in line or "keys shown" in line or "largest weights" in line
    ]


def test_the_tour_tells_the_measure_that_colours_the_heads() -> None:
    _, text = pressed(SENTENCE, "m", "t", start=START)
    assert shown(text, "entropy, nats")
    assert "every head has a colour: entropy, nats." in " ".join(line.strip() for line in text)
    _, text = pressed(SENTENCE, "t", "m", "m", start=START)
    assert "every head has a colour: confidence." in " ".join(line.strip() for line in text)
    _, text = pressed(SENTENCE, "r", "t", start=START)
    assert "the word in brackets looks at the others" in " ".join(line.strip() for line in text)
    _, text = pressed(SENTENCE, "t", "r", start=START)
    assert "the others look at the word in brackets" in " ".join(line.strip() for line in text)
    app, _ = pressed(SENTENCE, "d", "t", start=START)
    assert app.walk.state.subtracted_head is None


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
def test_quitting(key: str) -> None:
    app, _ = pressed(SENTENCE, key)
    assert app.signal_number is None


def test_ctrl_c_is_an_interrupt() -> None:
    assert pressed(SENTENCE, "ctrl+c")[0].signal_number == 2


def test_every_key_has_an_action_and_words() -> None:
    from attncli.explore.actions import ACTIONS as DONE
    from attncli.explore.actions import MOVES

    assert {key.does for key in KEYS} == {*DONE, *MOVES, "quit", "interrupt"}
    assert len(ACTIONS) == sum(len(key.names) for key in KEYS)
    assert all(
        bool(key.words) == (index > 7) for index, key in enumerate(KEYS)
    )  # the first eight are the arrows
