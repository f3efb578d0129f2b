"""The frame: a line that says what runs, the grid beside what is looked at, the sentence, the answer, the keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from attncli.draw.headings import FAINT, remark
from attncli.draw.lines import Line, Piece, line_width, wrap
from attncli.draw.numbers import percent
from attncli.draw.palette import shade, sign
from attncli.draw.safe import cells, cut, label, safe, spell
from attncli.draw.token_names import word_name
from attncli.draw.view import View
from attncli.explore.head_grid import about, grid, slot
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.painting import (
    SHADES,
    KeySpot,
    Pane,
    Spot,
    accent,
    beside,
    blank,
    fit_pane,
    palette_of,
    stack_panes,
)
from attncli.explore.state import KEYS, State
from attncli.explore.weight_map import matrix
from attncli.explore.word_links import answer, sentence
from attncli.language import say

LEAST_WIDTH, LEAST_HEIGHT = 40, 12
"""Below this there is nothing to see."""

LAST = ("help", "quit")
"""Keys that the footer always has."""

DrawPane = Callable[[int, int], Pane]


@dataclass(frozen=True)
class Notice:
    """What is told besides: a line in place of the answer, and how far long work has come (None for none)."""

    message: str = ""
    working: str = ""
    share: float | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """Everything the screen shows. right: draws what is looked at in a room, None for the matrix. title: its name.

    values: what colours the heads in place of the measure, and what it is called; whole: draws over everything between
    header and footer; tour_text: in place of the answer.
    """

    state: State
    loaded_run: LoadedRun
    view: View
    notice: Notice = field(default_factory=Notice)
    right: DrawPane | None = None
    title: str = ""
    whole: DrawPane | None = None
    values: dict[Pair, float | None] | None = None
    measure: str = ""
    tour_text: str = ""


def draw_frame(frame: Frame, width: int, height: int) -> Pane:
    """The screen, exactly this large."""
    view = frame.view
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return fit_pane(_small(width, height, view), width, height, ascii=view.ascii)
    top = fit_pane(Pane((_header(frame, width), _rule(width, view))), width, 2, ascii=view.ascii)
    foot = fit_pane(_footer(frame, width), width, 1, ascii=view.ascii)
    room = height - top.height - foot.height
    if frame.whole is not None:
        body = fit_pane(frame.whole(width - 2, room), width - 1, room, ascii=view.ascii)
        return stack_panes((top, beside(blank(1, room), body), foot))
    answer_pane = _answer_pane(frame, width - 2, room)
    return stack_panes((top, _body(frame, width, room - answer_pane.height), answer_pane, foot))


def _small(width: int, height: int, view: View) -> Pane:
    """How large the window must be: as a sentence, or where that has no room the size alone."""
    least = (LEAST_WIDTH, LEAST_HEIGHT)
    rows = wrap(spell(say(view, "explore.small", *least), ascii=view.ascii), width, ascii=view.ascii)
    if len(rows) > height or width < len("window"):
        rows = [spell(say(view, "explore.small.short", *least), ascii=view.ascii)]
    return Pane(tuple(((row, ""),) for row in rows))


def _body(frame: Frame, width: int, height: int) -> Pane:
    """The grid with the chosen head below it, beside what is looked at."""
    view, state, loaded_run = frame.view, frame.state, frame.loaded_run
    extent = loaded_run.extent
    most = max(width * 2 // 5, 24) if width >= 64 else width // 3
    wide = slot(extent, most)
    left_width = min(max(extent.columns * wide + extent.edge, min(26, most)), most)
    rows = min(len(extent.heads) + 1, max(height - 1, 2))
    details = height - rows - 2
    details = 0 if details < 3 else details
    name = frame.measure or say(view, f"explore.measure.{state.measure}", _word(frame))
    heads = stack_panes(
        (
            fit_pane(Pane((_title(name, view, is_focused=state.focus == "heads"),)), left_width, 1, ascii=view.ascii),
            grid(
                state, loaded_run, view, left_width, height - 1 - (details + 1 if details else 0), values=frame.values
            ),
            *((blank(left_width, 1), about(state, loaded_run, view, left_width, details)) if details else ()),
        )
    )
    room = width - left_width - 4
    title = _title(frame.title or say(view, "explore.title.matrix"), view, is_focused=state.focus == "words")
    draw_right = frame.right or (lambda w, h: matrix(state, loaded_run, view, w, h))
    legend = _legend(frame) if frame.right is None else ()
    free = room - line_width(title) - line_width(legend)
    heading: Line = (*title, (" " * free, ""), *legend) if free > 1 else title
    above = fit_pane(Pane((heading,)), room, 1, ascii=view.ascii)
    right = stack_panes((above, fit_pane(draw_right(room, height - 1), room, height - 1, ascii=view.ascii)))
    both = beside(beside(blank(1, height), fit_pane(heads, left_width, height), ""), right, "  ")
    return fit_pane(both, width, height, ascii=view.ascii)


def _word(frame: Frame) -> str:
    tokens = frame.loaded_run.keys if frame.state.is_turned else frame.loaded_run.queries
    if not tokens:
        return ""
    return cut(label(word_name(tokens[min(frame.state.word, len(tokens) - 1)]), ascii=frame.view.ascii), 14)


def _title(text: str, view: View, *, is_focused: bool) -> Line:
    """A part's name; the part that the arrows move has a mark before it."""
    mark = (">" if view.ascii else "▸") if is_focused else " "
    return ((mark, accent(view)), (spell(text, ascii=view.ascii), "bold" if is_focused else ""))


def _legend(frame: Frame) -> Line:
    """The colours from little to much, and how weights become colours."""
    view, state = frame.view, frame.state
    signed = state.sight == "difference" and state.subtracted_head is not None
    steps = [number / 7 for number in range(8)]
    if view.color and not view.ascii:
        palette = palette_of(view, signed=signed)
        shades = [palette.colour(number / (SHADES - 1)) for number in range(0, SHADES, 3)]
        ramp: list[Piece] = [(" ", f"on {colour}") for colour in shades]
    else:
        ramp = [((sign if signed else shade)(step, ascii=view.ascii), "") for step in steps]
    ends = ("−", "+") if signed else ("0", "1" if state.scale == "linear" else say(view, "explore.scale.most"))
    name = "" if signed else say(view, f"explore.scale.{state.scale}")
    return (
        (f"{spell(name, ascii=view.ascii)} " if name else "", FAINT),
        (spell(ends[0], ascii=view.ascii), FAINT),
        *ramp,
        (spell(ends[1], ascii=view.ascii), FAINT),
    )


def _answer_pane(frame: Frame, width: int, room: int) -> Pane:
    """The sentence, and below it the answer or what has just happened."""
    view, state, loaded_run = frame.view, frame.state, frame.loaded_run
    most, rows = (2, 2) if room < 24 else (3, 3) if room < 30 else (5, 4)
    text_pane = (
        Pane.of(remark(frame.tour_text, replace(view, width=width), style=accent(view)))
        if frame.tour_text
        else Pane(
            (((cut(safe(frame.notice.message, ascii=view.ascii), width, ascii=view.ascii), accent(view) or "bold"),),)
        )
        if frame.notice.message
        else answer(state, loaded_run, view, width, rows)
    )
    text_pane = Pane(text_pane.rows[: 4 if frame.tour_text else rows])
    sentence_pane = sentence(state, loaded_run, view, width, most)
    both = fit_pane(
        stack_panes((Pane(((),)), sentence_pane, text_pane)),
        width + 1,
        1 + sentence_pane.height + text_pane.height,
        ascii=view.ascii,
    )
    return beside(blank(1, both.height), both)


def _header(frame: Frame, width: int) -> Line:
    """What runs, on the left; the chosen head, or how far work has come, on the right."""
    view, record = frame.view, frame.loaded_run.record
    model = record.model
    parts = ["attn explore"]
    if model is not None:
        sizes = say(view, "explore.sizes", model.layers, model.heads)
        name = record.name or model.name or say(view, f"explore.source.{model.source}", model.seed)
        parts = [safe(name, ascii=view.ascii), *([model.family] if model.family else []), sizes]
        if record.attention is not None and record.attention.mask not in ("none", ""):
            parts.append(safe(record.attention.mask, ascii=view.ascii))
    parts.append(say(view, "explore.tokens", len(frame.loaded_run.queries)))
    notice = frame.notice
    if notice.share is not None:
        share = percent(notice.share).rjust(4)
        right: list[Piece] = [(f"{spell(notice.working, ascii=view.ascii)}{share} ", accent(view))]
    else:
        right = [
            (spell(say(view, "explore.head", frame.state.layer, frame.state.head), ascii=view.ascii) + " ", "bold")
        ]
    size = line_width(tuple(right))
    title = cut(spell(" · ".join(parts), ascii=view.ascii), max(width - size - 2, 1), ascii=view.ascii)
    return (
        (" ", ""),
        (title, "bold" if not model else ""),
        (" " * max(width - size - cells(title) - 1, 0), ""),
        *right,
    )


def _rule(width: int, view: View) -> Line:
    return (("-" * width if view.ascii else "─" * width, FAINT),)


def _footer(frame: Frame, width: int) -> Pane:
    """The keys that lead on from here, as many as fit beside those for help and the way out; each can be clicked."""
    view = frame.view
    keys = [key for key in KEYS if key.foot]
    texts = {key.does: spell(say(view, f"explore.foot.{key.does}"), ascii=view.ascii) for key in keys}
    sizes = {key.does: len(key.symbol) + 1 + cells(texts[key.does]) for key in keys}
    room = width - 2 - sum(sizes[does] + 2 for does in LAST)
    pieces: list[Piece] = [(" ", "")]
    spans: list[tuple[int, int, str]] = []
    column = 1
    for key in keys:
        size = sizes[key.does]
        if key.does not in LAST:
            if size + 2 > room:
                continue
            room -= size + 2
        spans.append((column, column + size, key.names[0]))
        pieces += [(key.symbol, accent(view) or "bold"), (f" {texts[key.does]}", FAINT), ("  ", "")]
        column += size + 2

    def spots(x: int, y: int) -> Spot | None:
        return next((KeySpot(name) for start, stop, name in spans if start <= x < stop), None)

    return Pane((tuple(pieces),), spots)
