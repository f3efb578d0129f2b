"""Panels beside the grid: rankings of heads, effects, a search, and the derivation of the chosen weight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attncli.draw.lines import FAINT, Line, Lines, line, remark, stack
from attncli.draw.numbers import bar, bar_pieces
from attncli.draw.safe import cells, cut, label, pad, spell
from attncli.draw.token_names import word_name
from attncli.draw.view import View
from attncli.errors import UsageError
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.painting import Pane, RowSpot, Spot, accent, cursor_style, fit_pane, stack_panes
from attncli.explore.state import State
from attncli.features.effects.document import AblateDocument, EffectRow
from attncli.features.effects.effect_answer import number
from attncli.features.explain.document import AttentionTopic, Scores, SoftmaxRow
from attncli.features.explain.screen import Derivation
from attncli.inputs.token import find_token
from attncli.language import say

# Rankings: heads below each other by a number, with its bar; the chosen row stands out.

BAR = 28
"""Cells of the longest bar."""


@dataclass(frozen=True)
class RankingRow:
    """One head of a ranking. share: of the bar, 0 to 1. value_text: its number as written. more: a remark behind."""

    layer: int
    head: int
    share: float
    value_text: str
    more: str = ""


def ranking(rows: Sequence[RankingRow], chosen_row: int, view: View, width: int, height: int) -> Pane:
    """The rows in this room, those around the chosen one."""
    room = max(height, 1)
    top = min(max(chosen_row - room // 2, 0), max(len(rows) - room, 0))
    visible_rows = rows[top : top + room]
    name = max((len(f"L{row.layer} H{row.head}") for row in visible_rows), default=0)
    number = max((cells(row.value_text) for row in visible_rows), default=0)
    more = max((cells(row.more) for row in visible_rows), default=0)
    length = max(min(width - name - number - more - 6, BAR), 0)
    lines: list[Line] = []
    for index, row in enumerate(visible_rows, top):
        text = (f"L{row.layer} H{row.head}".ljust(name), pad(row.value_text, number, "right"))
        bar_text = bar(row.share, length, ascii=view.ascii) if length > 3 else ""
        if index == chosen_row:
            lines.append(
                (
                    (f" {text[0]}  {text[1]} ", cursor_style(view)),
                    (" ", ""),
                    *bar_pieces(bar_text),
                    (f" {row.more}", ""),
                )
            )
        else:
            lines.append(((f" {text[0]}  {text[1]}  ", ""), *bar_pieces(bar_text), (f" {row.more}", FAINT)))

    def spots(x: int, y: int) -> Spot | None:
        return RowSpot(y + top) if y >= 0 and y + top < len(rows) else None

    return fit_pane(Pane(tuple(lines), spots), width, height, ascii=view.ascii)


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """What was asked for and found. place, query, key: the head, the word and the link asked about.

    head: that head taken away; cut_document: the link cut in it; every: each head taken away, None where that was
    not asked.
    """

    place: Pair
    query: int
    key: int
    head: AblateDocument | None = None
    cut_document: AblateDocument | None = None
    every: AblateDocument | None = None


def cosine_of(row: EffectRow) -> float:
    """How far the word's last vector turns: 1 − cosine; 0 where it is undefined."""
    return getattr(row.vector, "cosine", None) or 0.0


def values(head_effects: HeadEffects | None) -> dict[Pair, float | None] | None:
    """The effect of every head, by which the grid is coloured; None where not all were taken away."""
    if head_effects is None or head_effects.every is None:
        return None
    return {(row.layer, row.head): cosine_of(row) for row in head_effects.every.effects if row.attention == "self"}


def effect_rows(head_effects: HeadEffects | None) -> list[RankingRow]:
    """The ranking of all heads, the largest effect first."""
    if head_effects is None or head_effects.every is None:
        return []
    every = [row for row in head_effects.every.effects if row.attention == "self"]
    most = max((cosine_of(row) for row in every), default=0.0)
    return [
        RankingRow(
            row.layer,
            row.head,
            cosine_of(row) / most if most else 0.0,
            number(cosine_of(row)) if cosine_of(row) else "0",
            _baseline(row),
        )
        for row in every
    ]


def _baseline(row: EffectRow) -> str:
    """What a random change of the size of the row's own turns the word by, for the rows that have it drawn."""
    cosine = None if row.random is None else getattr(row.random.vector, "cosine", None)
    return "" if cosine is None else number(cosine)


def effects(
    state: State, loaded_run: LoadedRun, head_effects: HeadEffects | None, view: View, width: int, height: int
) -> Pane:
    """What was found, in words; then all heads, if they were asked for."""
    close = replace(view, width=width)
    if head_effects is None:
        return fit_pane(Pane.of(remark(say(view, "explore.effects.none"), close)), width, height)
    text_lines = _effects_text(
        replace(state, query=head_effects.query, key=head_effects.key), loaded_run, head_effects, close
    )
    ranking_rows = effect_rows(head_effects)
    if not ranking_rows:
        return fit_pane(Pane.of(text_lines), width, height, ascii=view.ascii)
    above = Pane.of(stack((text_lines, Lines(((),)))))
    list_pane = ranking(ranking_rows, min(state.row, len(ranking_rows) - 1), view, width, max(height - above.height, 1))
    return fit_pane(stack_panes((above, list_pane)), width, height, ascii=view.ascii)


def _effects_text(state: State, loaded_run: LoadedRun, head_effects: HeadEffects, view: View) -> Lines:
    word = link_name(state, loaded_run, view).partition(" -> " if view.ascii else " → ")[0]
    head = say(view, "explore.head", *head_effects.place)
    parts = []
    if head_effects.head is not None and head_effects.head.effects:
        row = head_effects.head.effects[0]
        parts.append(say(view, "explore.effects.head", head, word, number(cosine_of(row))))
        if _baseline(row):
            parts.append(say(view, "explore.effects.random", _baseline(row)))
    if head_effects.cut_document is not None and head_effects.cut_document.effects:
        cut_size = cosine_of(head_effects.cut_document.effects[0])
        parts.append(say(view, "explore.effects.cut", link_name(state, loaded_run, view), number(cut_size)))
    if head_effects.every is not None:
        parts = [say(view, "explore.effects.every", word), *parts]
        parts.append(say(view, "explore.effects.column"))
        parts.append(say(view, "effect.sum"))
        return remark(say(view, "sentences").join(parts), view, style="")
    parts.append(say(view, "explore.effects.more"))
    return stack(remark(part, view, style="") for part in parts)


# Search: which heads send one word to another.


def find_pair(text: str, loaded_run: LoadedRun) -> tuple[int, int]:
    """The positions of the words in "it → animal", "it animal" or "#7 #2". Raises UsageError for another number of
    words, InputError for a word that there is not."""
    parts = [part.strip() for part in re.split(r"→|->", text)]
    parts = parts if len(parts) == 2 else text.split()
    if len(parts) != 2 or not all(parts):
        raise UsageError(f"{text!r} does not name two words", expected="FROM → TO, such as it → animal")
    return find_token(loaded_run.queries, parts[0]).index, find_token(loaded_run.keys, parts[1]).index


def search_rows(state: State, loaded_run: LoadedRun) -> list[RankingRow]:
    """Every head by the weight of the chosen link."""
    weights = loaded_run.search(state.query, state.key)
    return [RankingRow(layer, head, weight, f"{weight:.3f}") for weight, (layer, head) in weights]


def search(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The ranking; each row's head is chosen as one moves along it."""
    ranking_rows = search_rows(state, loaded_run)
    if not ranking_rows:
        return Pane.of(remark(say(view, "explore.search.none"), replace(view, width=width)))
    return ranking(ranking_rows, min(state.row, len(ranking_rows) - 1), view, width, height)


def link_name(state: State, loaded_run: LoadedRun, view: View) -> str:
    """The chosen link as it is written."""
    ends = (loaded_run.queries[state.query], loaded_run.keys[state.key])
    texts = [cut(label(word_name(token), ascii=view.ascii), 16, ascii=view.ascii) for token in ends]
    return (" -> " if view.ascii else " → ").join(texts)


# Why: the derivation of the chosen weight, one step at a time, each column with its sum.

STEPS = ("similarity", "scaled", "masked", "softmax", "output", "matrices")
"""The parts of a derivation that are gone through, one at a time: five numbered steps, and all of them as matrices."""
NUMBERED = 5
"""How many of them have a number."""


def step_title(state: State, view: View) -> str:
    """The number of the step in sight and its name; of the matrices, the name alone."""
    step = min(state.step, len(STEPS) - 1)
    name = say(view, f"explore.why.{STEPS[step]}.title")
    return say(view, "explore.why.step", step + 1, NUMBERED, name) if step < NUMBERED else name


def why(
    state: State, derivation: AttentionTopic | None, view: View, width: int, height: int, *, with_words: bool = True
) -> Pane:
    """The step in this room, from the line on that is its first; below it the chosen weight in one line.

    with_words: whether it says in words what the step does.
    """
    if derivation is None:
        return fit_pane(Pane.of(remark(say(view, "explore.why.waiting"), replace(view, width=width))), width, height)
    close = replace(view, width=width, top=min(10, max(height - 8, 3)))
    step = STEPS[min(state.step, len(STEPS) - 1)]
    sum_of = _in_a_line(derivation, state.key, close)
    room = max(height - len(sum_of.rows) - 1, 1)
    if with_words:
        words = remark(say(view, f"explore.why.{step}"), close, style="")
        block = stack((words, line(""), getattr(Derivation(derivation, close), step)()))
    else:
        block = _whole(derivation, step, close, room)
    top = min(state.top, max(len(block.rows) - room, 0))
    lines = block.rows[top : top + room]
    lines_left = len(block.rows) - top - len(lines)
    more: Line = ((spell(say(view, "explore.why.left", lines_left), ascii=view.ascii), FAINT),) if lines_left else ()
    rows = [*lines, *([()] * (room - len(lines))), more, *sum_of.rows]
    return fit_pane(Pane(tuple(rows)), width, height, ascii=view.ascii)


def _whole(derivation: AttentionTopic, step: str, view: View, room: int) -> Lines:
    """A step with as many keys as leave its last line in sight; the others are told in one line."""
    keys = len(derivation.tokens) + derivation.extra_keys
    block: Lines = getattr(Derivation(derivation, view, keys), step)()
    while step != "matrices" and len(block.rows) > room and keys > 1:
        keys = max(min(keys - 1, keys - (len(block.rows) - room)), 1)
        block = getattr(Derivation(derivation, replace(view, top=keys), 0), step)()
    return block


def _in_a_line(derivation: AttentionTopic, key: int, view: View) -> Lines:
    """The chosen weight from its score: exp(score − max) / sum."""
    scores, softmax = derivation.step(Scores), derivation.step(SoftmaxRow)
    score = scores.scores[key] if key < len(scores.scores) else None
    if score is None or softmax.highest is None:
        return remark(say(view, "explore.why.hidden"), view, style=accent(view))
    weight = float(np.asarray(softmax.weights)[key])
    formula = f"w = exp({score:.3f} − {softmax.highest:.3f}) / {softmax.sum:.3f} = {weight:.3f}".replace("− -", "+ ")
    return remark(spell(formula, ascii=view.ascii), view, style=accent(view) or "bold")
