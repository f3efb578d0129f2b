"""Layers × heads: one number of every head, as a grid whose rows are layers and whose columns are heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from attncli.render.lines import Lines
from attncli.render.matrix import NDArray, matrix
from attncli.render.view import View


class HeadGrid(NamedTuple):
    """values: [layer, head], NaN where there is none. layers, heads: their numbers, ascending."""

    values: NDArray
    layers: list[int]
    heads: list[int]


def head_grid(numbers: Iterable[tuple[int, int, float | None]]) -> HeadGrid:
    """The grid of (layer, head, number), None for a head without one."""
    cells = list(numbers)
    layers, heads = sorted({layer for layer, _, _ in cells}), sorted({head for _, head, _ in cells})
    values = np.full((len(layers), len(heads)), np.nan)
    for layer, head, value in cells:
        values[layers.index(layer), heads.index(head)] = np.nan if value is None else value
    return HeadGrid(values, layers, heads)


def draw_grid(
    grid: HeadGrid,
    view: View,
    *,
    title: str,
    note: str,
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    bare: bool = False,
) -> Lines:
    """A grid as a table of numbers; limits, signed, bare: as `matrix`."""
    return matrix(
        grid.values, None, None, view, title=title, note=note, limits=limits, signed=signed, bare=bare,
        row_numbers=grid.layers, column_numbers=grid.heads,
    )  # fmt: skip
