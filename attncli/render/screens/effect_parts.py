"""What the screens of effects are put together from: their parts in order, the grid of all heads, a head's name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from attncli.render.head_grid import drawn_grid, head_grid
from attncli.render.headings import remark
from attncli.render.lines import Lines, clipped, spaced
from attncli.render.phrases import say
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.declaration import Document
    from attncli.render.screens.effect_answer import AnyHead

Shown = TypeVar("Shown", bound="Document")
WHOLE = 200
"""Heads up to which a grid shows all of them, in panels where the screen is narrow."""


def in_parts(
    drawn: Mapping[str, Callable[[Shown, View], Lines]], document: Shown, view: View, *, hidden: Collection[str] = ()
) -> Lines:
    """The parts that are asked for, in their order; the answer alone where the view is brief.

    hidden: those shown only where they are asked for.
    """
    usual = frozenset(drawn) - frozenset(hidden)
    wanted = frozenset({"answer"}) if view.brief else usual if view.show is None else view.show
    blocks = [draw(document, view) for part, draw in drawn.items() if part in wanted]
    return clipped(spaced(block for block in blocks if block.rows), view.width, ascii=view.ascii)


def grid(found: Sequence[tuple[int, int, float | None]], view: View, title: str, *, signed: bool) -> Lines:
    """A number of every layer and head, as (layer, head, number); nothing for one layer, or for one head.

    signed: whether numbers below 0 mean the opposite.
    """
    held = head_grid(found)
    if len(held.layers) < 2 or len(held.heads) < 2:
        return Lines()
    # most effects are small: a digit more tells them apart, for which without colour, where cells are wide, zeros go
    small = (
        float(np.nanmedian(np.abs(held.values))) < 0.5 * 10.0**-view.precision
        if np.isfinite(held.values).any()
        else False
    )
    finer, note = replace(view, precision=view.precision + small), say(view, "effect.grid.note")
    # in panels, so that no head is left out
    finer = replace(finer, full=view.full or held.values.size <= WHOLE)
    return drawn_grid(held, finer, bare=small and not view.color, title=title, note=note, signed=signed)


def grids(
    found: Mapping[str, Sequence[tuple[int, int, float | None]]], view: View, title: str, *, signed: bool
) -> Lines:
    """The grid of each kind of attention, `self` and `cross`; that of cross-attention says so beside the other."""
    cross = say(view, "effect.grid.of.cross", title) if found.get("self") else title
    titles = {"self": title, "cross": cross}
    drawn = (grid(found[kind], view, titles[kind], signed=signed) for kind in titles if found.get(kind))
    return spaced(block for block in drawn if block.rows)


def short_name(effect: AnyHead) -> str:
    """A head as tables name it."""
    return f"L{effect.layer} H{effect.head}" + (" x" if effect.attention == "cross" else "")


def left_over(effects: Sequence[AnyHead], shown: Sequence[AnyHead], view: View) -> Lines:
    """How many heads are not shown, and how they would be."""
    left = len(effects) - len(shown)
    return remark(say(view, "effect.more", left) if left else "", view)
