"""What the screens of effects are put together from: their parts in order, the grid of all heads, a head's name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from attncli.render.head_grid import draw_grid, head_grid
from attncli.render.headings import remark
from attncli.render.lines import Lines, clip_lines, stack_spaced
from attncli.render.phrases import say
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.declaration import Document
    from attncli.render.screens.effect_answer import AnyHead

AnyDocument = TypeVar("AnyDocument", bound="Document")
WHOLE = 200
"""Heads up to which a grid shows all of them, in panels where the screen is narrow."""


def draw_parts(
    draw_by_part: Mapping[str, Callable[[AnyDocument, View], Lines]],
    document: AnyDocument,
    view: View,
    *,
    hidden: Collection[str] = (),
) -> Lines:
    """The parts that are asked for, in their order; the answer alone where the view is brief.

    hidden: those shown only where they are asked for.
    """
    usual = frozenset(draw_by_part) - frozenset(hidden)
    part_names = frozenset({"answer"}) if view.brief else usual if view.show is None else view.show
    blocks = [draw(document, view) for part, draw in draw_by_part.items() if part in part_names]
    return clip_lines(stack_spaced(block for block in blocks if block.rows), view.width, ascii=view.ascii)


def grid(numbers: Sequence[tuple[int, int, float | None]], view: View, title: str, *, signed: bool) -> Lines:
    """A number of every layer and head, as (layer, head, number); nothing for one layer, or for one head.

    signed: whether numbers below 0 mean the opposite.
    """
    values = head_grid(numbers)
    if len(values.layers) < 2 or len(values.heads) < 2:
        return Lines()
    # most effects are small: a digit more tells them apart, for which without colour, where cells are wide, zeros go
    small = (
        float(np.nanmedian(np.abs(values.values))) < 0.5 * 10.0**-view.precision
        if np.isfinite(values.values).any()
        else False
    )
    finer, note = replace(view, precision=view.precision + small), say(view, "effect.grid.note")
    # in panels, so that no head is left out
    finer = replace(finer, full=view.full or values.values.size <= WHOLE)
    return draw_grid(values, finer, bare=small and not view.color, title=title, note=note, signed=signed)


def grids(
    numbers_by_kind: Mapping[str, Sequence[tuple[int, int, float | None]]], view: View, title: str, *, signed: bool
) -> Lines:
    """The grid of each kind of attention, `self` and `cross`; that of cross-attention says so beside the other."""
    cross = say(view, "effect.grid.of.cross", title) if numbers_by_kind.get("self") else title
    titles = {"self": title, "cross": cross}
    grids_drawn = (
        grid(numbers_by_kind[kind], view, titles[kind], signed=signed) for kind in titles if numbers_by_kind.get(kind)
    )
    return stack_spaced(block for block in grids_drawn if block.rows)


def short_name(effect: AnyHead) -> str:
    """A head as tables name it."""
    return f"L{effect.layer} H{effect.head}" + (" x" if effect.attention == "cross" else "")


def more_heads_note(effects: Sequence[AnyHead], effects_shown: Sequence[AnyHead], view: View) -> Lines:
    """How many heads are not shown, and how they would be."""
    rest_count = len(effects) - len(effects_shown)
    return remark(say(view, "effect.more", rest_count) if rest_count else "", view)
