"""Small maps of a matrix: one colour or shade character per cell, pooled when there are more cells than room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, remark
from attncli.render.lines import Line, Lines, Piece, beside, line, stack, unstyled
from attncli.render.matrix import as_matrix
from attncli.render.numbers import writer
from attncli.render.palette import DIVERGING, SEQUENTIAL, Palette, normalise, shade
from attncli.render.safe import cells, cut, label, pad
from attncli.render.view import View

NDArray = np.ndarray[Any, Any]

LABEL = 10
"""Cells that a row's name may take beside a map."""


@dataclass(frozen=True)
class Map:
    """One map of several. caption: our words. values: [row, column], NaN or null where masked."""

    caption: str
    values: Any
    remarks: tuple[str, ...] = ()


def heatmap(
    values: Any,
    view: View,
    *,
    max_width: int | None = None,
    max_height: int | None = None,
    title: str = "",
    scale: str = "",
    high: float | None = None,
    rows: Sequence[str] = (),
) -> Lines:
    """A map of a matrix [row, column] in at most max_width x max_height cells (the view's width; 24 lines).

    scale: as `normalise` takes it, the view's if "". high: the value of the strongest colour, so that several
    maps can share one. rows: names to print beside, when every row has its own line. Masked cells are blank.
    Cells that do not fit are pooled by their maximum ("signed": by largest magnitude), which the last line says.
    """
    found = as_matrix(values)
    wide, tall = max_width or view.width, max_height or 24
    if found.size == 0:
        return remark("(empty)", view)
    how = scale or view.scale_colors
    names = [label(text, ascii=view.ascii) for text in rows]
    side = min(max((cells(name) for name in names), default=-1), LABEL) + 1
    halves = view.color and not view.ascii and not names and 2 * found.shape[1] > wide
    halves = halves or (view.color and not view.ascii and not names and found.shape[0] > tall)
    across, down = (wide, 2 * tall) if halves else ((wide - side) // 2, tall)
    block = max(-(-found.shape[1] // max(across, 1)), -(-found.shape[0] // max(down, 1)), 1)
    pooled = pool(found, block, how)
    fractions = normalise(pooled, how, high=high)
    palette = DIVERGING if how == "signed" else SEQUENTIAL
    body = _halves(fractions, palette) if halves else _wholes(fractions, palette, names if block == 1 else [], side, view)
    said = f"pooled {block}×{block}, max" if block > 1 else ""
    top = line((cut(spell(title, ascii=view.ascii), wide, ascii=view.ascii), "")) if title else Lines()
    map_ = stack((top, Lines(tuple(body)), line((cut(spell(said, ascii=view.ascii), wide, ascii=view.ascii), FAINT)) if said else Lines()))
    return map_ if view.color else unstyled(map_)


def pool(values: NDArray, block: int, how: str = "linear") -> NDArray:
    """The largest value ("signed": of largest magnitude) of every block x block cells; NaN where all are masked."""
    if block == 1:
        return values
    down, across = (-(-size // block) for size in values.shape)
    padded = np.full((down * block, across * block), np.nan)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(down, block, across, block).transpose(0, 2, 1, 3).reshape(down, across, block * block)
    ranked = np.where(np.isnan(blocks), -np.inf, np.abs(blocks) if how == "signed" else blocks)
    return np.take_along_axis(blocks, ranked.argmax(axis=2)[..., None], axis=2)[..., 0]


def _wholes(fractions: NDArray, palette: Palette, names: Sequence[str], side: int, view: View) -> list[Line]:
    """Every value two cells wide and one line high."""
    out: list[Line] = []
    for at, row in enumerate(fractions):
        pieces: list[Piece] = [(pad(cut(names[at], side - 1, ascii=view.ascii), side), FAINT)] if names else []
        for value in row.tolist():
            if value != value:
                pieces.append(("  ", ""))
            elif view.color and not view.ascii:
                pieces.append(("  ", f"on {palette.colour(value)}"))
            else:
                pieces.append((shade(value, ascii=view.ascii) * 2, palette.style(value)))
        out.append(tuple(pieces))
    return out


def _halves(fractions: NDArray, palette: Palette) -> list[Line]:
    """Every value one cell wide and half a line high: the upper one in front, the lower one behind."""
    out: list[Line] = []
    for at in range(0, fractions.shape[0], 2):
        upper = fractions[at].tolist()
        lower = fractions[at + 1].tolist() if at + 1 < fractions.shape[0] else [float("nan")] * len(upper)
        out.append(tuple(_half(above, below, palette) for above, below in zip(upper, lower, strict=True)))
    return out


def _half(above: float, below: float, palette: Palette) -> Piece:
    match above == above, below == below:
        case False, False:
            return " ", ""
        case True, False:
            return "▀", palette.colour(above)
        case False, True:
            return "▄", palette.colour(below)
        case _:
            return "▀", f"{palette.colour(above)} on {palette.colour(below)}"


def legend(view: View, low: float, high: float, *, scale: str = "") -> Lines:
    """The colours or characters from `low` to `high`, with the name of the scale."""
    how = scale or view.scale_colors
    palette, write = (DIVERGING if how == "signed" else SEQUENTIAL), writer([low, high], view.precision)
    steps = [at / 15 for at in range(16)]
    if view.color and not view.ascii:
        ramp: list[Piece] = [(" ", f"on {palette.colour(step)}") for step in steps]
    else:
        ramp = [(shade(step, ascii=view.ascii), "") for step in steps]
    ends = ("row's least", "row's largest") if how == "row" else (write(low), write(high))
    block = line((ends[0] + " ", FAINT), *ramp, (" " + ends[1], FAINT), ("" if how == "linear" else f"  {how} scale", FAINT))
    return block if view.color else unstyled(block)


def side_by_side(maps: Sequence[Map], view: View, *, shared: bool = True, scale: str = "", most: int = 24) -> Lines:
    """Maps in columns, row after row within the view's width, with their captions and a legend.

    shared: one scale for all, from the lowest to the largest value of any, so that maps can be compared; otherwise each
    has its own and there is no legend. most: lines that the rows of maps may take together, before maps are pooled.
    """
    found = [as_matrix(each.values) for each in maps]
    held = [values for values in found if np.isfinite(values).any()]
    if not held:
        return remark("(empty)", view)
    how = scale or view.scale_colors
    low, high = min(float(np.nanmin(values)) for values in held), max(float(np.nanmax(values)) for values in held)
    blocks = []
    width, height = _room(found, maps, view, most)
    for each, values in zip(maps, found, strict=True):
        drawn = heatmap(values, view, max_width=width, max_height=height, scale=how, high=high if shared else None)
        captions = [cut(spell(text, ascii=view.ascii), width, ascii=view.ascii) for text in (each.caption, *each.remarks)]
        blocks.append(stack((line((captions[0], "bold")), drawn, *(line((text, FAINT)) for text in captions[1:]))))
    grid = beside(blocks, width=view.width)
    block = stack((grid, Lines(((),)), legend(view, min(low, 0.0), high, scale=how))) if shared else grid
    return block if view.color else unstyled(block)


def _room(found: Sequence[NDArray], maps: Sequence[Map], view: View, most: int) -> tuple[int, int]:
    """Width and height for each map: double cells if all rows of maps then take at most `most` lines, else half blocks."""
    down, across = (max(values.shape[axis] for values in found) for axis in (0, 1))
    caption = max(cells(text) for each in maps for text in (each.caption, *each.remarks))
    for width, height in ((2 * across, down), (across, -(-down // 2))):
        slot = min(max(width, min(caption, 26)), view.width)
        rows = -(-len(found) // max((view.width + 3) // (slot + 3), 1))
        if width <= view.width and rows * (height + 2) <= most:
            return slot, height
    small = max(min(view.width, 26), 1)
    return small, max(most // 2, 6)


if __name__ == "__main__":
    from attncli.render.lines import show

    ramp = np.add.outer(np.arange(11.0), np.arange(11.0))
    show(side_by_side([Map(f"head {at}", np.tril(np.cos(ramp * (at + 1) / 9) ** 2)) for at in range(8)], View(color=True)))
