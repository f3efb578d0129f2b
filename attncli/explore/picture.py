"""The picture of a walk: what its frame holds on the right, help, and the list of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from attncli.draw.headings import FAINT, remark
from attncli.draw.lines import BLANK, Line, Lines, line, stack
from attncli.draw.safe import cells, cut, pad, safe, spell
from attncli.draw.view import View
from attncli.explore.frame import DrawPane, Frame, Notice, draw_frame
from attncli.explore.loaded_run import LoadedRun
from attncli.explore.painting import Pane, RowSpot, Spot, accent, blank, cursor_style
from attncli.explore.panels import effects, link_name, search, step_title, values, why
from attncli.explore.state import KEYS, Key, State
from attncli.explore.walk import Walk, caption
from attncli.explore.word_links import links
from attncli.language import say


def picture(walk: Walk, width: int, height: int) -> Pane:
    """The screen of a walk, exactly this large; blank before the first run."""
    loaded_run, view = walk.loaded_run, replace(walk.view, width=width, height=height)
    if loaded_run is None:
        return blank(width, height)
    notice = walk.notice
    if walk.work is not None:
        notice = replace(notice, working=walk.work.name, share=walk.work.share)
    title, draw_right = _right(walk, loaded_run, view)
    frame = Frame(
        walk.state, loaded_run, view, notice, draw_right, title,
        values=values(walk.effects) if walk.state.sight == "effects" else None,
        measure=_measure(walk, view),
        whole=_over(walk, view),
        tour_text=_tour_text(walk, view, notice),
    )  # fmt: skip
    return draw_frame(frame, width, height)


def _measure(walk: Walk, view: View) -> str:
    if walk.state.sight == "effects" and walk.effects is not None and walk.effects.every is not None:
        return say(view, "explore.measure.effects")
    return ""


def _tour_text(walk: Walk, view: View, notice: Notice) -> str:
    """The words of the tour's stop, in place of the answer."""
    if walk.tour is None or notice.message:
        return ""
    return f"{caption(walk.state, walk.tour, view)} {say(view, 'explore.tour.on')}"


def _over(walk: Walk, view: View) -> DrawPane | None:
    match walk.over:
        case "help":
            return lambda width, height: help_page(walk.state, view, width, height)
        case "models":
            return lambda width, height: model_list(walk.state, walk.names, view, width, height)
        case None:
            return None
        case _:
            assert_never(walk.over)


def _right(walk: Walk, loaded_run: LoadedRun, view: View) -> tuple[str, DrawPane | None]:
    """The title and the drawing of what is looked at; None for the matrix, which the frame draws."""
    state = walk.state
    match state.sight:
        case "matrix":
            return "", None
        case "difference":
            head_name = say(view, "explore.head", *(state.subtracted_head or (state.layer, state.head)))
            return say(view, "explore.title.difference", head_name), None
        case "links":
            name = "explore.title.looked" if state.is_turned else "explore.title.links"
            return say(view, name), lambda width, height: links(state, loaded_run, view, width, height)
        case "search":
            return (
                say(view, "explore.title.search", link_name(state, loaded_run, view)),
                lambda width, height: search(state, loaded_run, view, width, height),
            )
        case "effects":
            return (
                say(view, "explore.title.effects"),
                lambda width, height: effects(state, loaded_run, walk.effects, view, width, height),
            )
        case "why":
            return (
                say(view, "explore.title.why", step_title(state, view)),
                lambda width, height: why(state, walk.derivation, view, width, height, with_words=walk.tour is None),
            )
        case _:
            assert_never(state.sight)


# Help: what the screen in view shows, and what its keys do.

ARROWS = ("left", "right", "up", "down", "pageup", "pagedown", "home", "end")
MOST, GAP = 3, 2
"""Columns of keys, at most, and cells between them."""


def help_page(state: State, view: View, width: int, height: int) -> Pane:
    """What is in view, in words; then the keys, in as many columns as fit; scrolled by `state.top`."""
    close = replace(view, width=min(width, 100))
    blocks = [
        line((spell(say(view, f"explore.help.{state.sight}.title"), ascii=view.ascii), "bold")),
        remark(say(view, f"explore.help.{state.sight}"), close, style=""),
        BLANK,
        remark(say(view, "explore.help.grid"), close, style=""),
        remark(say(view, "explore.help.sentence"), close, style=""),
        BLANK,
        _keys(state, view, width),
    ]
    block = stack(blocks)
    top = min(state.top, max(len(block.rows) - height, 0))
    lines = block.rows[top : top + height]
    if (lines_left := len(block.rows) - top - height) > 0 and height > 1:
        lines = (*lines[:-1], *remark(say(view, "explore.why.left", lines_left + 1), close).rows)
    return Pane(lines)


def _keys(state: State, view: View, width: int) -> Lines:
    arrows = "arrows" if view.ascii else "← ↑ ↓ →"
    key_texts = [(arrows, say(view, f"explore.key.arrows.{state.focus}"))]
    key_texts += [
        (_key_text(key, view), say(view, f"explore.key.{key.does}")) for key in KEYS if key.does not in ARROWS
    ]
    name = max(cells(key_name) for key_name, _ in key_texts) + GAP
    texts = [(key_name, spell(does, ascii=view.ascii)) for key_name, does in key_texts]
    for count in range(MOST, 0, -1):
        down = -(-len(texts) // count)
        columns = [texts[first : first + down] for first in range(0, len(texts), down)]
        widths = [name + max(cells(text) for _, text in column) + GAP for column in columns]
        if sum(widths) - GAP <= width:
            break
    rows: list[Line] = []
    for line_number in range(down):
        row: list[tuple[str, str]] = []
        for column, wide in zip(columns, widths, strict=True):
            for key_name, text in column[line_number : line_number + 1]:
                row += [(pad(key_name, name), accent(view) or "bold"), (pad(text, wide - name), "")]
        rows.append(tuple(row))
    return Lines(tuple(rows))


def _key_text(key: Key, view: View) -> str:
    return spell(key.symbol, ascii=view.ascii)


# The list of models that may be switched to.


def model_list(state: State, names: Sequence[str], view: View, width: int, height: int) -> Pane:
    """The names, the chosen one marked; those around it where not all fit."""
    if not names:
        return Pane.of(remark(say(view, "explore.models.none"), replace(view, width=width)))
    room = max(height - 3, 1)
    top = min(max(state.row - room // 2, 0), max(len(names) - room, 0))
    rows: list[Line] = [((say(view, "explore.models.title"), "bold"),), ()]
    for number, name in enumerate(names[top : top + room], top):
        text = f" {cut(safe(name, ascii=view.ascii), max(width - 2, 1), ascii=view.ascii)} "
        rows.append(((text, cursor_style(view) if number == state.row else ""),))
    rows.append(((spell(say(view, "explore.models.how"), ascii=view.ascii), FAINT),))

    def spots(x: int, y: int) -> Spot | None:
        number = y - 2 + top
        return RowSpot(number) if y >= 2 and number < min(top + room, len(names)) else None

    return Pane(tuple(rows), spots)
