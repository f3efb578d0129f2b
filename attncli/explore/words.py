"""The sentence, shaded by where the chosen word looks or who looks at it, and what that says in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attncli.explore.held import Held
from attncli.explore.pane import Pane, Spot, WordSpot
from attncli.explore.state import State
from attncli.inputs.token import Token
from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, remark
from attncli.render.lines import Line, Lines, Piece
from attncli.render.numbers import percent
from attncli.render.palette import tint
from attncli.render.phrases import say
from attncli.render.safe import cells, cut, label, safe
from attncli.render.screens.sentence_answer import EVEN, SECOND, not_learned
from attncli.render.sentence import LEAST, MARKS, MARKS_ASCII, Word, words
from attncli.render.unknown_words import bare_text
from attncli.render.view import View

NEAR = 200
"""Words before and behind the chosen one that the sentence has at most."""


def shares(state: State, held: Held) -> list[float | None]:
    """What each word gets from the chosen one, or, turned, gives it, in the chosen head; 0 where it sees nothing."""
    place = (state.layer, state.head)
    found = held.column(place, state.key) if state.turned else held.row(place, state.query)
    if found is None:
        return [None] * len(held.queries if state.turned else held.keys)
    return [float(value) for value in np.nan_to_num(found)]


def sentence(state: State, held: Held, view: View, width: int, height: int) -> Pane:
    """The words in this room; of a long text, the lines around the chosen one."""
    record = held.record
    other: Sequence[Token] = held.queries if state.turned else held.keys
    text = record.text if record.sides.same else None
    chosen = frozenset({state.word}) if record.sides.same else frozenset()
    near = slice(max(state.word - NEAR, 0), state.word + NEAR)  # of a long text, no more than can be seen
    found = words(text, other[near], shares(state, held)[near], chosen)
    end = state.query if state.turned else state.key
    rows: list[Line] = []
    places: list[list[tuple[int, int, int]]] = []
    row: list[Piece] = []
    spans: list[tuple[int, int, int]] = []
    used, mine = 0, 0
    for at, word in enumerate(found, near.start):
        pieces = _drawn(word, view, width, end=at == end)
        size = sum(cells(piece) for piece, _ in pieces)
        gap = 1 if row and word.apart else 0
        if row and used + gap + size > width:
            rows.append(tuple(row))
            places.append(spans)
            row, spans, used, gap = [], [], 0, 0
        if word.chosen:
            mine = len(rows)
        row += [*([(" ", "")] if gap else []), *pieces]
        spans.append((used + gap, used + gap + size, at))
        used += gap + size
    rows.append(tuple(row))
    places.append(spans)
    start = min(max(mine - height // 2, 0), max(len(rows) - height, 0))

    def spots(x: int, y: int) -> Spot | None:
        line = places[y + start] if y + start < len(places) else []
        return next((WordSpot(at) for low, high, at in line if low <= x < high), None)

    return Pane(tuple(rows[start : start + height]), spots)


def _drawn(word: Word, view: View, width: int, *, end: bool) -> list[Piece]:
    """One word: tinted by its share, in brackets where it is chosen, underlined at the other end of the pair."""
    text = cut(safe(word.text, ascii=view.ascii), max(width - 4, 1), ascii=view.ascii)
    told = FAINT if word.quiet else ""
    if word.share is not None and word.share >= LEAST:
        if view.color:
            told = tint(word.share, light=view.light)
        else:
            mark = (MARKS_ASCII if view.ascii else MARKS)[min(int(word.share * 4), 3)]
            text = f"{mark}{text}{mark}"
    if word.chosen:
        return [("[", "bold"), (text, f"bold {told}".strip()), ("]", "bold")]
    return [(text, f"underline {told}".strip() if end else told)]


def answer(state: State, held: Held, view: View, width: int, height: int) -> Pane:
    """What the chosen word looks at in the chosen head, or who looks at it; the chosen weight; whether it is
    learned: as many of these sentences as there is room for."""
    told = _looks(state, held, view)
    told += [say(view, "answer.unknown", *held.unknown)] if held.unknown[0] else []
    told += _pair(state, held, view) if state.sight != "difference" else []
    told += _difference(state, held, view) if state.sight == "difference" and state.other is not None else []
    model = held.record.model
    if model is not None:
        told.append(not_learned(model, view))
    close, rows = replace(view, width=width), Lines()
    for count in range(1, len(told) + 1):
        said = say(view, "sentences").join(one for one in told[:count] if one)
        longer = remark(spell(said, ascii=view.ascii), close, style="")
        if count > 1 and len(longer.rows) > height:
            break
        rows = longer
    return Pane.of(rows)


def _pair(state: State, held: Held, view: View) -> list[str]:
    """The weight between the two chosen words."""
    if state.query >= len(held.queries) or state.key >= len(held.keys):
        return []
    ends = (_named(held.queries[state.query], view), _named(held.keys[state.key], view))
    weight = held.weight((state.layer, state.head), state.query, state.key)
    if weight is None:
        known = held.row((state.layer, state.head), state.query) is not None
        return [say(view, "explore.pair.hidden", *ends)] if known else []
    return [say(view, "explore.pair", *ends, f"{weight:.3f}")]


def _difference(state: State, held: Held, view: View) -> list[str]:
    """The chosen weight in both heads."""
    assert state.other is not None
    here, there = (held.weight(place, state.query, state.key) for place in ((state.layer, state.head), state.other))
    if here is None or there is None:
        return _pair(state, held, view)
    ends = (_named(held.queries[state.query], view), _named(held.keys[state.key], view))
    numbers = (f"{here:.3f}", f"{there:.3f}", f"{here - there:+.3f}".replace("-", "−"))
    return [say(view, "explore.pair.difference", *ends, *numbers)]


def _looks(state: State, held: Held, view: View) -> list[str]:
    found = np.array([0.0 if share is None else share for share in shares(state, held)])
    if not found.size or (state.layer, state.head) not in held.heads:
        return []
    others = held.queries if state.turned else held.keys
    words_here = held.keys if state.turned else held.queries
    asked = _named(words_here[min(state.word, len(words_here) - 1)], view)
    order = np.argsort(-found, kind="stable")
    first, second = int(order[0]), int(order[1]) if len(order) > 1 else int(order[0])
    if found[first] <= 0:
        if held.row((state.layer, state.head), 0) is None:
            return []
        return [say(view, "explore.unseen" if state.turned else "answer.blind", asked)]
    if state.turned:
        return [say(view, "explore.looked", asked, _named(others[first], view), percent(found[first]))]
    seen = int(np.count_nonzero(found > 0)) or 1
    if found[first] < EVEN / seen:
        return [say(view, "answer.even", asked, f"{found[first]:.2f}", f"{1 / seen:.2f}")]
    ends = (_named(others[first], view), percent(found[first]))
    if second != first and found[second] >= SECOND * found[first]:
        more = (_named(others[second], view), percent(found[second]))
        return [say(view, "answer.looks.one.two", asked, *ends, *more)]
    return [say(view, "answer.looks.one", asked, *ends)]


def _named(token: Token, view: View) -> str:
    name = say(
        view, "quoted", cut(label(bare_text(token).strip() or token.text, ascii=view.ascii), 24, ascii=view.ascii)
    )
    return say(view, "quoted.unknown", name) if token.unknown else name
