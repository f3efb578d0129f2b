"""Why: the derivation of the chosen weight, one step at a time, each column with its sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attncli.analysis.documents.derivation import AttentionTopic, Scores, SoftmaxRow
from attncli.explore.painting import accent
from attncli.explore.pane import Pane, fit_pane
from attncli.explore.state import State
from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, remark
from attncli.render.lines import Line, Lines, line, stack
from attncli.render.phrases import say
from attncli.render.screens.derivation import Derivation
from attncli.render.view import View

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
