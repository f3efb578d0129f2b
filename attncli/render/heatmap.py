"""Small maps of a matrix: one colour or shade character per cell, pooled when there are more cells than room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, remark
from attncli.render.lines import Line, Lines, Piece, fit_to_view, line, stack
from attncli.render.matrix import as_matrix
from attncli.render.palette import Palette, diverging, normalise, sequential, shade, sign
from attncli.render.safe import cells, cut, label, pad
from attncli.render.view import View

NDArray = np.ndarray[Any, Any]

LABEL = 10
"""Cells that a row's name may take beside a map."""


def heatmap(
    values: Any,
    view: View,
    *,
    max_width: int | None = None,
    max_height: int | None = None,
    title: str = "",
    scale: str = "",
    low: float | None = None,
    high: float | None = None,
    rows: Sequence[str] = (),
    say_pooled: bool = True,
) -> Lines:
    """A map of a matrix [row, column] in at most max_width x max_height cells (the view's width; 24 lines).

    scale: as `normalise` takes it, the view's if "". low, high: the values of the weakest and the strongest colour, so
    that several maps can share them. rows: names to print beside, if every row has its own line. Masked cells are
    blank. Cells that do not fit are pooled by their maximum ("signed": by largest magnitude), which the last line says.
    """
    matrix = as_matrix(values)
    if matrix.size == 0:
        return remark("(empty)", view)
    color_scale, wide = scale or view.scale_colors, max_width or view.width
    names = [label(text, ascii=view.ascii) for text in rows]
    side = min(max((cells(name) for name in names), default=-1), LABEL) + 1
    grain = _grain(matrix, wide - side, max_height or 24, view, whole=bool(names))
    body = _draw_map(matrix, grain, view, color_scale, low, high, names, side)
    top = line((cut(spell(title, ascii=view.ascii), wide, ascii=view.ascii), "bold")) if title else Lines()
    pooled_note = cut(spell(f"pooled {grain.block}×{grain.block}, max", ascii=view.ascii), wide, ascii=view.ascii)
    block = stack((top, body, line((pooled_note, FAINT)) if grain.block > 1 and say_pooled else Lines()))
    return fit_to_view(block, view)


def pooled_by(values: NDArray, view: View, *, max_width: int, max_height: int) -> int:
    """How many rows and columns `heatmap` pools into one cell in this room; 1 for none."""
    return _grain(values, max_width, max_height, view, whole=False).block


@dataclass(frozen=True)
class Grain:
    """How fine a map is drawn: cells across per value (2 or 1), whether two rows share a line, rows and columns pooled
    into one."""

    across: int
    halves: bool
    block: int


def _grain(matrix: NDArray, wide: int, tall: int, view: View, *, whole: bool) -> Grain:
    """Square cells if they fit, else finer ones, else pooled ones."""
    fine = Grain(1, True, 1) if view.color and not view.ascii and not whole else Grain(1, False, 1)
    down, across = matrix.shape
    if 2 * across <= wide and down <= tall:
        return Grain(2, False, 1)
    lines = 2 * tall if fine.halves else tall
    return replace(fine, block=max(-(-across // max(wide, 1)), -(-down // max(lines, 1))))


def _draw_map(
    matrix: NDArray,
    grain: Grain,
    view: View,
    color_scale: str,
    low: float | None,
    high: float | None,
    names: Sequence[str],
    side: int,
) -> Lines:
    fractions = normalise(pool(matrix, grain.block, color_scale), color_scale, low=low, high=high)
    palette = diverging(light=view.light) if color_scale == "signed" else sequential(light=view.light)
    if grain.halves:
        return Lines(tuple(_halves(fractions, palette)))
    return Lines(
        tuple(_wholes(fractions, palette, color_scale, names if grain.block == 1 else [], side, grain.across, view))
    )


def pool(values: NDArray, block: int, color_scale: str = "linear") -> NDArray:
    """The largest value ("signed": of largest magnitude) of every block x block cells; NaN where all are masked."""
    if block == 1:
        return values
    down, across = (-(-size // block) for size in values.shape)
    padded = np.full((down * block, across * block), np.nan)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(down, block, across, block).transpose(0, 2, 1, 3).reshape(down, across, block * block)
    sizes = np.where(np.isnan(blocks), -np.inf, np.abs(blocks) if color_scale == "signed" else blocks)
    return np.take_along_axis(blocks, sizes.argmax(axis=2)[..., None], axis=2)[..., 0]


def _wholes(
    fractions: NDArray, palette: Palette, color_scale: str, names: Sequence[str], side: int, across: int, view: View
) -> list[Line]:
    """Every value `across` cells wide and one line high."""
    out: list[Line] = []
    mark = sign if color_scale == "signed" else shade
    for index, row in enumerate(fractions):
        pieces: list[Piece] = [(pad(cut(names[index], side - 1, ascii=view.ascii), side), FAINT)] if names else []
        for value in row.tolist():
            if value != value:
                pieces.append((" " * across, ""))
            elif view.color and not view.ascii:
                pieces.append((" " * across, f"on {palette.colour(value)}"))
            else:
                pieces.append((mark(value, ascii=view.ascii) * across, palette.style(value)))
        out.append(tuple(pieces))
    return out


def _halves(fractions: NDArray, palette: Palette) -> list[Line]:
    """Every value one cell wide and half a line high: the upper one in front, the lower one behind."""
    out: list[Line] = []
    for index in range(0, fractions.shape[0], 2):
        upper = fractions[index].tolist()
        lower = fractions[index + 1].tolist() if index + 1 < fractions.shape[0] else [float("nan")] * len(upper)
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


if __name__ == "__main__":
    from attncli.render.lines import show

    show(
        heatmap(
            np.cos(np.add.outer(np.arange(30.0), np.arange(30.0)) / 7) ** 2,
            View(color=True),
            max_width=40,
            title="a sample",
        )
    )
