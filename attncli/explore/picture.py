"""The picture: of a walk, what its frame holds on the right, and what is drawn over it."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from attncli.explore.effects import effects, values
from attncli.explore.frame import DrawPane, Frame, Notice, draw_frame
from attncli.explore.held import LoadedRun
from attncli.explore.help import help_page
from attncli.explore.links import links
from attncli.explore.models import model_list
from attncli.explore.pane import Pane, blank
from attncli.explore.search import link_name, search
from attncli.explore.tour import caption
from attncli.explore.walk import Walk
from attncli.explore.why import step_title, why
from attncli.render.phrases import say
from attncli.render.view import View


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
