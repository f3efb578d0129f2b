"""Actions: what keys do that is more than a move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from attncli.errors import AttnError
from attncli.explore import runs, saving, weight
from attncli.explore.frame import Notice
from attncli.explore.key_moves import MOVES, PAGE
from attncli.explore.search import find_pair, link_name
from attncli.explore.source import live
from attncli.explore.state import at_pair
from attncli.explore.tour import STOPS, at_stop, begin_tour, stop_in_sight
from attncli.explore.walk import Question, Walk
from attncli.explore.why import STEPS
from attncli.explore.work import Work
from attncli.render.phrases import say

INTERRUPT = 2
"""The number of the signal that Ctrl-C stands for."""


def enter(walk: Walk) -> None:
    """On from here: the next stop of the tour, the next step, the chosen row, or the derivation."""
    if walk.tour is not None:
        tour(walk)
    elif walk.state.sight in ("search", "effects"):
        walk.state = walk.state.sees("matrix")
    elif walk.state.sight == "why":
        walk.state = replace(walk.state, step=(walk.state.step + 1) % len(STEPS), top=0)
    else:
        weight.why(walk)


def back(walk: Walk) -> None:
    """Stop what is going on; else leave the tour, or what is looked at."""
    if walk.stop():
        walk.notice = Notice(say(walk.view, "explore.stopped"))
    elif walk.tour is not None:
        _leave_tour(walk)
    elif walk.state.sight != "matrix":
        walk.state = replace(walk.state.sees("matrix"), subtracted_head=None)


def difference(walk: Walk) -> None:
    """Look at other heads less this one, or no longer."""
    state = walk.state
    if state.sight == "difference":
        walk.state = replace(state.sees("matrix"), subtracted_head=None)
    else:
        walk.state = replace(state.sees("difference"), subtracted_head=(state.layer, state.head), focus="heads")


def tour(walk: Walk) -> None:
    """Begin the tour, or go on to its next stop."""
    source = live(walk.source, say(walk.view, "explore.tour.saved"))
    assert walk.loaded_run is not None
    if walk.tour is None:
        walk.state = replace(walk.state.sees("matrix"), subtracted_head=None)

        def begin() -> None:
            assert walk.loaded_run is not None
            walk.tour, walk.state = 0, at_stop(begin_tour(walk.state, walk.loaded_run), 0)

        walk.has_merged_words = source.words
        if source.words:  # the steps are told of tokens
            runs.words(walk, then=begin)
        else:
            begin()
        return
    if walk.tour + 1 == len(STOPS):
        _leave_tour(walk)
        walk.state = walk.state.sees("matrix")
        return
    walk.tour += 1
    walk.state = at_stop(walk.state, walk.tour)
    if STOPS[walk.tour].sight == "effects":
        weight.effect(walk)
    else:
        walk.follow()


def _leave_tour(walk: Walk) -> None:
    """End the tour; words that it took apart are merged again."""
    walk.tour = None
    if walk.has_merged_words and not live(walk.source, "").words:
        runs.words(walk)


def search(walk: Walk) -> None:
    """Ask which link to search for."""
    assert walk.loaded_run is not None
    walk.stage.ask("search", link_name(walk.state, walk.loaded_run, walk.view))


def ask_text(walk: Walk) -> None:
    """Ask for another text."""
    source = live(walk.source, say(walk.view, "explore.type.saved"))
    walk.stage.ask("type", source.text)


def ask_file(walk: Walk) -> None:
    """Ask for the name of a file."""
    walk.refused_name = None
    walk.stage.ask("save", saving.default_file_name(walk.state))


def show_help(walk: Walk) -> None:
    """Draw what the screen shows, and the keys, over it."""
    walk.over, walk.state = "help", replace(walk.state, top=0)


def _save(walk: Walk, path: Path) -> None:
    source, state, effects = walk.source, walk.state, walk.effects

    def job(work: Work) -> Callable[[], None]:
        saving.save(path, source, state, effects, lang=walk.view.lang)
        return walk.when_done(lambda: walk.show_message(say(walk.view, "explore.saved", path.name)))

    walk.begin("save", job)


def take_answer(walk: Walk, question: Question, text: str) -> None:
    """What was typed."""
    assert walk.loaded_run is not None
    walk.notice = Notice()
    try:
        match question:
            case "type":
                runs.retype(walk, text)
            case "search":
                if text != link_name(walk.state, walk.loaded_run, walk.view):  # a word may be there more than once
                    walk.state = at_pair(walk.state, walk.loaded_run.extent, *find_pair(text, walk.loaded_run))
                walk.state = replace(walk.state, focus="words").sees("search")
                walk.follow()
            case "save":
                _save(walk, saving.check(text, again=walk.refused_name == text))
            case _:
                assert_never(question)
    except AttnError as error:
        walk.refused_name = text
        walk.notice = Notice(f"{error.what}; {error.expected}" if error.expected else error.what)
        if question != "type":
            walk.stage.ask(question, text)
    walk.stage.draw()


ACTIONS: Mapping[str, Callable[[Walk], None]] = {
    "enter": enter,
    "back": back,
    "difference": difference,
    "tour": tour,
    "search": search,
    "type": ask_text,
    "save": ask_file,
    "help": show_help,
    "why": weight.why,
    "effects": weight.effect,
    "words": runs.words,
    "models": runs.choose,
    "next": runs.longer,
    "previous": runs.shorter,
}
"""By the names that keys have for them."""


def act(walk: Walk, action: str) -> None:
    """Do what a key does, and draw. A key pressed while something is drawn over the screen is its first."""
    walk.notice = Notice()
    if action in ("quit", "interrupt"):
        walk.stage.leave(INTERRUPT if action == "interrupt" else None)
    elif walk.loaded_run is not None:
        try:
            if walk.over is None or _over(walk, action):
                if action in ACTIONS:
                    ACTIONS[action](walk)
                elif action in MOVES:
                    walk.is_placed = True
                    walk.state = MOVES[action](walk.state, walk.loaded_run.extent)
                    walk.follow()
                if walk.tour is not None and action != "tour":
                    walk.tour = stop_in_sight(walk.state, walk.tour)
        except AttnError as error:
            walk.notice = Notice(error.what)
        walk.stage.draw()


def _over(walk: Walk, action: str) -> bool:
    """A key where something is drawn over the screen; whether it is still to be done below."""
    step = {"up": -1, "down": 1, "pageup": -PAGE, "pagedown": PAGE}.get(action)
    over = walk.over
    if step is not None and over == "help":
        walk.state = replace(walk.state, top=max(walk.state.top + step, 0))
    elif step is not None:
        walk.state = replace(walk.state, row=min(max(walk.state.row + step, 0), max(len(walk.names) - 1, 0)))
    else:
        walk.over, walk.state = None, replace(walk.state, top=0)
        if over == "models" and action == "enter" and walk.names:
            runs.switch(walk, walk.names[walk.state.row])
        return action not in ("help", "models", "back", "enter")
    return False


def row(walk: Walk, index: int) -> None:
    """Choose a row of a list; in a list of models, take it."""
    if walk.over == "models":
        walk.state = replace(walk.state, row=index)
        act(walk, "enter")
    else:
        walk.state = replace(walk.state, row=index, focus="words")
        walk.follow()
