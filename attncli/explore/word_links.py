"""The sentence shaded by where the chosen word looks, and two columns of words with lines between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attncli.draw.headings import FAINT, remark
from attncli.draw.lines import Line, Lines, Piece
from attncli.draw.numbers import percent
from attncli.draw.palette import tint
from attncli.draw.plot import bar, bar_pieces
from attncli.draw.safe import cells, cut, label, pad, safe, spell
from attncli.draw.sentence import LEAST, MARKS, MARKS_ASCII, Word, words
from attncli.draw.sentence_answer import EVEN, SECOND, not_learned_note
from attncli.draw.token_names import bare_text
from attncli.draw.view import View
from attncli.explore.loaded_run import LoadedRun
from attncli.explore.painting import Pane, Spot, WordSpot, accent, fit_pane
from attncli.explore.state import State
from attncli.inputs.token import Token
from attncli.language import say

NEAR = 200
"""Words before and behind the chosen one that the sentence has at most."""


def shares(state: State, loaded_run: LoadedRun) -> list[float | None]:
    """What each word gets from the chosen one, or, turned, gives it, in the chosen head; 0 where it sees nothing."""
    place = (state.layer, state.head)
    weights = loaded_run.column(place, state.key) if state.is_turned else loaded_run.row(place, state.query)
    if weights is None:
        return [None] * len(loaded_run.queries if state.is_turned else loaded_run.keys)
    return [float(value) for value in np.nan_to_num(weights)]


def sentence(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The words in this room; of a long text, the lines around the chosen one."""
    record = loaded_run.record
    tokens: Sequence[Token] = loaded_run.queries if state.is_turned else loaded_run.keys
    text = record.text if record.sides.same else None
    chosen_words = frozenset({state.word}) if record.sides.same else frozenset()
    near = slice(max(state.word - NEAR, 0), state.word + NEAR)  # of a long text, no more than can be seen
    sentence_words = words(text, tokens[near], shares(state, loaded_run)[near], chosen_words)
    end = state.query if state.is_turned else state.key
    rows: list[Line] = []
    places: list[list[tuple[int, int, int]]] = []
    row: list[Piece] = []
    spans: list[tuple[int, int, int]] = []
    column, mine = 0, 0
    for index, word in enumerate(sentence_words, near.start):
        pieces = _word_pieces(word, view, width, end=index == end)
        size = sum(cells(piece) for piece, _ in pieces)
        gap = 1 if row and word.apart else 0
        if row and column + gap + size > width:
            rows.append(tuple(row))
            places.append(spans)
            row, spans, column, gap = [], [], 0, 0
        if word.is_chosen:
            mine = len(rows)
        row += [*([(" ", "")] if gap else []), *pieces]
        spans.append((column + gap, column + gap + size, index))
        column += gap + size
    rows.append(tuple(row))
    places.append(spans)
    start = min(max(mine - height // 2, 0), max(len(rows) - height, 0))

    def spots(x: int, y: int) -> Spot | None:
        line = places[y + start] if y + start < len(places) else []
        return next((WordSpot(index) for low, high, index in line if low <= x < high), None)

    return Pane(tuple(rows[start : start + height]), spots)


def _word_pieces(word: Word, view: View, width: int, *, end: bool) -> list[Piece]:
    """One word: tinted by its share, in brackets where it is chosen, underlined at the other end of the pair."""
    text = cut(safe(word.text, ascii=view.ascii), max(width - 4, 1), ascii=view.ascii)
    word_style = FAINT if word.quiet else ""
    if word.share is not None and word.share >= LEAST:
        if view.color:
            word_style = tint(word.share, light=view.light)
        else:
            mark = (MARKS_ASCII if view.ascii else MARKS)[min(int(word.share * 4), 3)]
            text = f"{mark}{text}{mark}"
    if word.is_chosen:
        return [("[", "bold"), (text, f"bold {word_style}".strip()), ("]", "bold")]
    return [(text, f"underline {word_style}".strip() if end else word_style)]


def answer(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """What the chosen word looks at in the chosen head, or who looks at it; the chosen weight; whether it is
    learned: as many of these sentences as there is room for."""
    sentences = _looks(state, loaded_run, view)
    sentences += [say(view, "answer.unknown", *loaded_run.unknown_count)] if loaded_run.unknown_count[0] else []
    sentences += _pair(state, loaded_run, view) if state.sight != "difference" else []
    sentences += (
        _difference(state, loaded_run, view)
        if state.sight == "difference" and state.subtracted_head is not None
        else []
    )
    model = loaded_run.record.model
    if model is not None:
        sentences.append(not_learned_note(model, view))
    close, rows = replace(view, width=width), Lines()
    for count in range(1, len(sentences) + 1):
        text = say(view, "sentences").join(part for part in sentences[:count] if part)
        longer = remark(spell(text, ascii=view.ascii), close, style="")
        if count > 1 and len(longer.rows) > height:
            break
        rows = longer
    return Pane.of(rows)


def _pair(state: State, loaded_run: LoadedRun, view: View) -> list[str]:
    """The weight between the two chosen words."""
    if state.query >= len(loaded_run.queries) or state.key >= len(loaded_run.keys):
        return []
    ends = (_word_text(loaded_run.queries[state.query], view), _word_text(loaded_run.keys[state.key], view))
    weight = loaded_run.weight((state.layer, state.head), state.query, state.key)
    if weight is None:
        has_row = loaded_run.row((state.layer, state.head), state.query) is not None
        return [say(view, "explore.pair.hidden", *ends)] if has_row else []
    return [say(view, "explore.pair", *ends, f"{weight:.3f}")]


def _difference(state: State, loaded_run: LoadedRun, view: View) -> list[str]:
    """The chosen weight in both heads."""
    assert state.subtracted_head is not None
    here, there = (
        loaded_run.weight(place, state.query, state.key) for place in ((state.layer, state.head), state.subtracted_head)
    )
    if here is None or there is None:
        return _pair(state, loaded_run, view)
    ends = (_word_text(loaded_run.queries[state.query], view), _word_text(loaded_run.keys[state.key], view))
    numbers = (f"{here:.3f}", f"{there:.3f}", f"{here - there:+.3f}".replace("-", "−"))
    return [say(view, "explore.pair.difference", *ends, *numbers)]


def _looks(state: State, loaded_run: LoadedRun, view: View) -> list[str]:
    weights = np.array([0.0 if share is None else share for share in shares(state, loaded_run)])
    if not weights.size or (state.layer, state.head) not in loaded_run.heads:
        return []
    others = loaded_run.queries if state.is_turned else loaded_run.keys
    words_here = loaded_run.keys if state.is_turned else loaded_run.queries
    word_text = _word_text(words_here[min(state.word, len(words_here) - 1)], view)
    order = np.argsort(-weights, kind="stable")
    first, second = int(order[0]), int(order[1]) if len(order) > 1 else int(order[0])
    if weights[first] <= 0:
        if loaded_run.row((state.layer, state.head), 0) is None:
            return []
        return [say(view, "explore.unseen" if state.is_turned else "answer.blind", word_text)]
    if state.is_turned:
        return [say(view, "explore.looked", word_text, _word_text(others[first], view), percent(weights[first]))]
    visible_count = int(np.count_nonzero(weights > 0)) or 1
    if weights[first] < EVEN / visible_count:
        return [say(view, "answer.even", word_text, f"{weights[first]:.2f}", f"{1 / visible_count:.2f}")]
    ends = (_word_text(others[first], view), percent(weights[first]))
    if second != first and weights[second] >= SECOND * weights[first]:
        more = (_word_text(others[second], view), percent(weights[second]))
        return [say(view, "answer.looks.one.two", word_text, *ends, *more)]
    return [say(view, "answer.looks.one", word_text, *ends)]


def _word_text(token: Token, view: View) -> str:
    name = say(
        view, "quoted", cut(label(bare_text(token).strip() or token.text, ascii=view.ascii), 24, ascii=view.ascii)
    )
    return say(view, "quoted.unknown", name) if token.unknown else name


# Links: two columns of the words, and lines from the chosen one to what it looks at, or from who looks at it.

NAME, LINE, BAR = 14, 9, 24
"""Cells of a word, of the lines between, and of the longest bar."""


def links(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The words in two columns: on the left those that look, on the right those looked at.

    Of more words than lines, those with the largest shares and the chosen one.
    """
    weights = np.array([0.0 if share is None else share for share in shares(state, loaded_run)])
    mine = state.word
    order = np.argsort(-weights, kind="stable")
    indices = sorted({mine, *order[: max(height - 1, 1)].tolist()} if len(weights) > height else range(len(weights)))
    indices = [index for index in indices if index < len(weights)][:height]
    origin = indices.index(mine) if mine in indices else 0
    linked_rows = [row for row, index in enumerate(indices) if weights[index] >= LEAST]
    words = [loaded_run.names(side, ascii=view.ascii) for side in ("queries", "keys")]
    name = min(
        max(loaded_run.widest(side, ascii=view.ascii) for side in ("queries", "keys")),
        NAME,
        max((width - LINE) // 3, 3),
    )
    room = max(min(width - 2 * name - LINE - 7, BAR), 0)
    rows: list[Line] = []
    for row, index in enumerate(indices):
        share = float(weights[index])
        query_text, key_text = (
            pad(cut(side[index] if index < len(side) else "", name, ascii=view.ascii), name, align)
            for side, align in zip(words, ("right", "left"), strict=True)
        )
        text_style = tint(share, light=view.light) if view.color and share >= LEAST else FAINT if share < LEAST else ""
        chosen_style = accent(view) or "bold"
        line = _between(row, origin, linked_rows, view, is_turned=state.is_turned)
        strong = "bold" if share >= 0.5 else ""
        strip = bar_pieces(bar(share, room, ascii=view.ascii)) if room > 3 else []
        value: list[Piece] = [(f" {share:.2f} ", strong or FAINT), *strip]
        if state.is_turned:
            a, b = (query_text, text_style), (key_text, chosen_style if index == mine else FAINT)
        else:
            a, b = (query_text, chosen_style if index == mine else FAINT), (key_text, text_style)
        rows.append((a, (line, "" if row in linked_rows or row == origin else FAINT), b, *value))

    def spots(x: int, y: int) -> Spot | None:
        if y >= len(indices):
            return None
        return WordSpot(indices[y], "query" if x < name + LINE // 2 else "key")

    return fit_pane(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _between(row: int, origin: int, linked_rows: list[int], view: View, *, is_turned: bool) -> str:
    """The lines between the columns in one row: a trunk beside the chosen word, a branch to every linked one."""
    low, high = min([origin, *linked_rows]), max([origin, *linked_rows])
    inside, branch, root = (
        low <= row <= high and bool(linked_rows),
        row in linked_rows,
        row == origin and bool(linked_rows),
    )
    if view.ascii:
        stem = "-" * 3 if root else " " * 3
        arm = "-" * 3 + ">" if branch else " " * 4
        arm = arm if not is_turned else ("<---" if root else " " * 4)
        return f" {stem}{'+' if root or branch else '|' if inside else ' '}{arm}"
    up, down = inside and row > low, inside and row < high
    west, east = (root, branch) if not is_turned else (branch, root)
    stem = " " + ("───" if west else "   ")
    arm = "──▸ " if east else "    "
    return stem + _JOINTS[up, down, west, east] + arm


_JOINTS = {
    (False, False, False, False): " ", (True, True, False, False): "│", (True, True, True, False): "┤",
    (True, True, False, True): "├", (True, True, True, True): "┼", (False, True, True, False): "┐",
    (False, True, False, True): "┌", (False, True, True, True): "┬", (True, False, True, False): "┘",
    (True, False, False, True): "└", (True, False, True, True): "┴", (False, False, True, True): "─",
    (False, False, True, False): "─", (False, False, False, True): "─", (True, False, False, False): "│",
    (False, True, False, False): "│",
}  # fmt: skip
"""What joins lines upwards, downwards, to the left and to the right."""
