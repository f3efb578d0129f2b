"""What heads look at beside the first token, on which trained heads rest whatever it is: the scores
that the labels of a scan are decided by.

Each is a quotient: what a head gives to some keys, over what it gives to any key but the first. Rows
count by the weight that they have there, so that rows that rest decide nothing. Left out are the
first query, and rows that see fewer than two other keys, whose one weight is 1 by construction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attncli.language import message
from attncli.measure.metric import REACH, Metric, PerRow
from attncli.measure.row_facts import AttentionRows, Bools, Floats

ROWS = message("rows i > 0 that see 2 keys or more beside the first")
RESTS = message("Xiao et al. 2023; Voita et al. 2019")


def _several_beyond(rows: AttentionRows) -> Bools:
    """Which query rows, but for the first, see two keys or more besides key 0: booleans [head or 1,
    row]."""
    others = rows.sight.count - rows.sight.has_key(np.zeros_like(rows.i))
    return (others >= 2) & (rows.i > 0)


def _weight_beyond(rows: AttentionRows) -> Floats:
    """Each row's weight on all keys but the first, [head, row]. It is summed, since 1 less the weight
    on the first would lose the digits of what heads that look at the first token leave for others.
    """
    # `rest` leaves out the query's own key as well, at offset 0; for row 0 that is the first key
    return rows.rest + np.where(rows.i > 0, rows.at_offset(0), 0.0)


def _share(
    value: Callable[[AttentionRows], Floats],
    used_rows: Callable[[AttentionRows], Bools] = _several_beyond,
) -> Callable[[AttentionRows], PerRow]:
    """Make the formula of a score that is a share: Σ `value` divided by Σ of the weight on keys
    other than the first, over the rows used.

    value, used_rows: called with the rows for a number, and for whether it counts, of each row.
    """

    def formula(rows: AttentionRows) -> PerRow:
        """The number of each row, whether it counts, and the weight by which it is divided."""
        return PerRow(value(rows), used_rows(rows), _weight_beyond(rows))

    return formula


def _at_offset(offset: int) -> Callable[[AttentionRows], PerRow]:
    """Make the formula of the share of weight on the key `offset` tokens from the query, over the
    rows that see that key, where it is not the first."""

    def used_rows(rows: AttentionRows) -> Bools:
        """Which rows count, [row]."""
        key = rows.i + offset
        return _several_beyond(rows) & rows.sight.has_key(key) & (key != 0)

    return _share(lambda rows: rows.at_offset(offset), used_rows)


def _evenness(rows: AttentionRows) -> Floats:
    """Each row's entropy over the keys other than the first, as a share of the largest that it could
    be, times the row's weight on them, [head, row]."""
    others = rows.sight.count - rows.sight.has_key(np.zeros_like(rows.i))
    return rows.entropy_beyond_first / np.log(np.maximum(others, 2))


def _punctuation(rows: AttentionRows) -> Floats:
    """Each row's weight on punctuation, the first token left out, [head, row]."""
    assert rows.about.punctuation is not None
    keys = rows.about.punctuation.copy()
    keys[:1] = False
    return rows.mass(keys)


OFFSETS_BEYOND: dict[str, Metric] = {
    f"offset{offset:+d}": Metric(
        f"offset{offset:+d}_beyond_first",
        f"Σ A_{{i,i{offset:+d}}} / Σ_{{j>0}} A".replace("-", "−"),
        0,
        1,
        "",
        "each token looks at a fixed offset",
        ROWS,
        RESTS,
        _at_offset(offset),
    )
    for offset in range(-REACH, REACH + 1)
}
"""The share at each offset, by the name of the offset as of `attncli.measure.metric.OFFSETS`."""
PUNCTUATION_BEYOND = Metric(
    "punctuation_beyond_first",
    "Σ_{j>0 punctuation} A / Σ_{j>0} A",
    0,
    1,
    "",
    "attention rests on punctuation",
    ROWS,
    RESTS,
    _share(_punctuation),
    needs="punctuation",
)
EVENNESS_BEYOND = Metric(
    "normalised_entropy_beyond_first",
    "Σ (−Σ_{j>0} A ln (A / s)) / ln m_i / Σ s, s = Σ_{j>0} A",
    0,
    1,
    "",
    "spread, whatever the number of keys",
    ROWS,
    RESTS,
    _share(_evenness),
)
BEYOND: tuple[Metric, ...] = (*OFFSETS_BEYOND.values(), PUNCTUATION_BEYOND, EVENNESS_BEYOND)
"""All of them, in the order in which a scan measures them."""
