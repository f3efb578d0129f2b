"""Vectors that add up, as a table: a term a row, their sum below, with as many digits as let every column add up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.safe import cells
from attncli.render.tables import ledger
from attncli.render.term_digits import adding_digits
from attncli.render.view import View

SIGN = 5
"""Cells of an entry beside its digits: gap, sign, two places, point."""


def vector_sum(
    terms: Sequence[tuple[str, ArrayLike]], total: tuple[str, ArrayLike], view: View, *, title: str = "", note: str = ""
) -> Lines:
    """Named terms [width] and their sum [width]; the first entries that fit, or all of them in a full view."""
    values = [np.asarray(term, np.float64) for _, term in terms]
    total_vector = np.asarray(total[1], np.float64)
    side = max(cells(name) for name, _ in (*terms, total)) + 2
    digits, dims = view.precision, 1
    for _ in range(2):  # more digits take room: settle on both
        dims = (
            len(total_vector) if view.full else max(min(len(total_vector), (view.width - side) // (digits + SIGN)), 1)
        )
        columns = [([float(value[dim]) for value in values], float(total_vector[dim])) for dim in range(dims)]
        digits = adding_digits(columns, view.precision)
    exact, ends = f"{{:.{digits}f}}".format, " " * (digits - view.precision)
    rows = [[name, *map(exact, value[:dims])] for (name, _), value in zip(terms, values, strict=True)]
    last = [total[0], *(f"{value:.{view.precision}f}" + ends for value in total_vector[:dims])]
    more = say(view, "shown.dims", dims - 1, len(total_vector)) if dims < len(total_vector) else ""
    names = ["", *map(str, range(dims))]
    return stack((ledger(names, rows, last, view, title=title, note=note), remark(more, view)))
