"""Metrics of attention heads: each is declared once, as a formula over query rows, and can be called.

`attncli.metrics.entropy(weights, visible)` gives one number per head. Where the literature has
several conventions, the declaration's `note` names them. A is one head's weights, i a query's
and j a key's position, K_i the visible keys of query i and m_i their number. Empty and padded
query rows are left out; every number goes with the rows it was taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array
from attncli.measure.row_facts import NEARBY, AttentionRows
from attncli.measure.visible_keys import Bools, Floats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

REACH = 5
"""The farthest offset at which a head counts as positional."""
BAND = NEARBY
"""How far from the query `band` reaches on either side."""


class PerRow(Struct, frozen=True, eq=False):
    """A metric on a block of rows: the mean is Σ value / Σ weight over the rows used.

    value, weight: [head, row]; weight is 1 for a mean over rows. used_rows: [head or 1, row].
    """

    value: Floats
    used_rows: Bools
    weight: Floats | None = None


class Metric(Struct, frozen=True):
    """A number per head. Calling it measures weights [..., query, key] and returns float64 [...].

    formula: how it is computed. low, high: its range; None where it has no bound of its own.
    unit: "" for shares. says: what a high value means. rows: which rows the mean is over.
    note: other conventions, and what is left out. needs: what must be known beyond the
    weights ("tokens", "special", "punctuation"); without it the value is NaN. aligned: whether it compares
    positions, and so needs queries and keys of one text.
    """

    name: str
    formula: str
    low: float | None
    high: float | None
    unit: str
    says: str
    rows: str
    source: str
    of: Callable[[AttentionRows], PerRow]
    note: str = ""
    needs: str = ""
    aligned: bool = True

    def __call__(
        self,
        weights: Array | ArrayLike,
        visible: Array | ArrayLike | None = None,
        *,
        queries: Array | ArrayLike | None = None,
        tokens: Sequence[Hashable] | None = None,
        special: Sequence[bool] | Bools | None = None,
        punctuation: Sequence[bool] | Bools | None = None,
        offset: int = 0,
    ) -> Floats:
        """This metric for each head: float64 with the leading axes of `weights`, NaN where no row can be used.

        weights: [..., query, key], NumPy or torch, never written to. visible: booleans that
        broadcast to them, None where nothing is hidden. queries: booleans [..., query], False for
        padding. tokens: one id or name per key. special, punctuation: booleans [key]. offset: position of
        query 0. Raises InputError for shapes that do not fit.
        """
        from attncli.measure.head_measure import measure

        results = measure(
            weights,
            visible,
            metrics=(self.name,),
            queries=queries,
            tokens=tokens,
            special=special,
            punctuation=punctuation,
            offset=offset,
        )
        return results[self.name].value


def _mean(
    value: Callable[[AttentionRows], Floats],
    used_rows: Callable[[AttentionRows], Bools] = lambda rows: ~rows.sight.empty,
) -> Callable[[AttentionRows], PerRow]:
    return lambda rows: PerRow(value(rows), used_rows(rows))


def _several(rows: AttentionRows) -> Bools:
    return rows.sight.count >= 2


def _normalised_entropy(rows: AttentionRows) -> Floats:
    return rows.entropy / np.log(np.maximum(rows.sight.count, 2))


def _diagonality(rows: AttentionRows) -> Floats:
    farthest = np.maximum(np.abs(rows.i - rows.sight.first), np.abs(rows.sight.last - rows.i))
    return 1 - rows.moments[0] / np.maximum(farthest, 1)


def _offset_metric(offset: int) -> Callable[[AttentionRows], PerRow]:
    return _mean(lambda rows: rows.at_offset(offset), lambda rows: rows.sight.has_key(rows.i + offset))


def _band(rows: AttentionRows) -> Floats:
    return sum((rows.at_offset(offset) for offset in range(-BAND, BAND + 1)), np.zeros(()))


def _beyond(value: Callable[[AttentionRows], Floats]) -> Callable[[AttentionRows], PerRow]:
    """The share of `value` in the weight that is left without key 0 and the query itself."""

    return lambda rows: PerRow(value(rows), ~rows.sight.empty, rows.rest)


def _special(rows: AttentionRows) -> Floats:
    assert rows.about.special is not None
    return rows.mass(rows.about.special)


def _punctuation(rows: AttentionRows) -> Floats:
    assert rows.about.punctuation is not None
    return rows.mass(rows.about.punctuation)


ALL_ROWS, VOITA = "rows that see a key", "Voita et al. 2019, Analyzing multi-head self-attention"
LENS = "TransformerLens, head detector (mul)"
SAME = "the same token is the same id, without ids the same text"
WITHOUT = "Σ over all rows, key 0 and the query itself left out"

entropy = Metric(
    "entropy", "mean −Σ A ln A", 0, None, "nats", "attention is spread over many keys", ALL_ROWS,
    "Shannon 1948; Ghader and Monz 2017", _mean(lambda rows: rows.entropy), "at most ln m_i in row i", aligned=False,
)  # fmt: skip
normalised_entropy = Metric(
    "normalised_entropy", "mean (−Σ A ln A) / ln m_i", 0, 1, "", "spread, whatever the number of keys",
    "rows that see 2 keys or more", "Shannon 1948", _mean(_normalised_entropy, _several), aligned=False,
)  # fmt: skip
effective_keys = Metric(
    "effective_keys", "mean exp(−Σ A ln A)", 1, None, "keys", "how many keys a row looks at", ALL_ROWS,
    "Hill 1973", _mean(lambda rows: np.exp(rows.entropy)), aligned=False,
)  # fmt: skip
confidence = Metric(
    "confidence", "mean max_j A", 0, 1, "", "the head is sure where to look", ALL_ROWS, VOITA,
    _mean(lambda rows: rows.peak), "Voita 2019 leaves out the end-of-sentence key", aligned=False,
)  # fmt: skip
confidence_beyond_first = Metric(
    "confidence_beyond_first", "mean max_{j>0} A", 0, 1, "", "the head is sure of a key that is no sink",
    f"{ALL_ROWS}; 0 in a row that sees only key 0", VOITA, _mean(lambda rows: rows.peak_beyond_first),
    "key 0 is left out", aligned=False,
)  # fmt: skip
distance = Metric(
    "distance", "mean Σ_j A |i−j|", 0, None, "tokens", "the head looks far away", ALL_ROWS,
    "Vig and Belinkov 2019", _mean(lambda rows: rows.moments[0]),
)  # fmt: skip
signed_distance = Metric(
    "signed_distance", "mean Σ_j A (j−i)", None, None, "tokens", "the head looks ahead (below 0: back)",
    ALL_ROWS, "Vig and Belinkov 2019, with a sign", _mean(lambda rows: rows.moments[1]),
)  # fmt: skip
previous = Metric(
    "previous", "mean A_{i,i−1}", 0, 1, "", "each token looks at the one before it", "rows that see key i−1",
    "Clark et al. 2019", _offset_metric(-1), "Clark 2019 divides by all rows",
)  # fmt: skip
self = Metric(
    "self", "mean A_{i,i}", 0, 1, "", "each token looks at itself", "rows that see key i",
    "Clark et al. 2019", _offset_metric(0),
)  # fmt: skip
next = Metric(
    "next", "mean A_{i,i+1}", 0, 1, "", "each token looks at the one after it", "rows that see key i+1",
    "Clark et al. 2019", _offset_metric(1), "Clark 2019 divides by all rows",
)  # fmt: skip
sink = Metric(
    "sink", "mean A_{i,0}, i > 0", 0, 1, "", "attention rests on the first token", "rows i > 0",
    "Xiao et al. 2023; Gu et al. 2024", _mean(lambda rows: rows.key(0), lambda rows: ~rows.sight.empty & (rows.i > 0)),
    "row 0 is left out: a causal head has 1 there by construction; Gu 2024 calls a head a sink above 0.3",
)  # fmt: skip
special = Metric(
    "special", "mean Σ_{j special} A", 0, 1, "", "attention rests on special tokens", ALL_ROWS,
    "Clark et al. 2019", _mean(_special), needs="special", aligned=False,
)  # fmt: skip
punctuation = Metric(
    "punctuation", "mean Σ_{j punctuation} A", 0, 1, "", "attention rests on punctuation", ALL_ROWS,
    "Clark et al. 2019", _mean(_punctuation), needs="punctuation", aligned=False,
)  # fmt: skip
diagonality = Metric(
    "diagonality", "mean 1 − Σ_j A |i−j| / max_{j∈K_i} |i−j|", 0, 1, "",
    "attention stays near the diagonal", "rows that see 2 keys or more", "Zhang et al. 2021",
    _mean(_diagonality, _several),
)  # fmt: skip
band = Metric(
    "band", f"mean Σ_{{|i−j|≤{BAND}}} A", 0, 1, "", f"attention stays within {BAND} tokens", ALL_ROWS,
    "Kovaleva et al. 2019", _mean(_band),
)  # fmt: skip
previous_pattern = Metric(
    "previous_pattern", "Σ A⊙P / Σ A, P: j = i−1", 0, 1, "", "a previous-token head", WITHOUT, LENS,
    _beyond(lambda rows: np.where(rows.i == 1, 0.0, rows.at_offset(-1))),
)  # fmt: skip
duplicate_pattern = Metric(
    "duplicate_pattern", "Σ A⊙P / Σ A, P: same token earlier", 0, 1, "",
    "a duplicate-token head", WITHOUT, LENS, _beyond(lambda rows: rows.same(0)), SAME, needs="tokens",
)  # fmt: skip
induction_pattern = Metric(
    "induction_pattern", "Σ A⊙P / Σ A, P: after the same token earlier", 0, 1, "",
    "an induction head", WITHOUT, LENS, _beyond(lambda rows: rows.same(1)),
    f"{SAME}; Olsson et al. 2022 measure it on random repeats", needs="tokens",
)  # fmt: skip
missing = Metric(
    "missing", "mean 1 − Σ_j A", 0, 1, "", "weight that a learned sink or an exclusion took", ALL_ROWS,
    "Agarwal et al. 2025, gpt-oss", _mean(lambda rows: np.maximum(1 - rows.total, 0.0)), aligned=False,
)  # fmt: skip

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        entropy, normalised_entropy, effective_keys, confidence, confidence_beyond_first, distance, signed_distance,
        previous, self,
        next, sink, special, punctuation, diagonality, band, previous_pattern, duplicate_pattern, induction_pattern,
        missing,
    )
}  # fmt: skip
"""Every metric by name, in the order in which tables show them."""

OFFSETS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            f"offset{offset:+d}", f"mean A_{{i,i{offset:+d}}}".replace("-", "−"), 0, 1, "",
            "each token looks at a fixed offset",
            f"rows that see key i{offset:+d}".replace("-", "−"), VOITA, _offset_metric(offset),
        )
        for offset in range(-REACH, REACH + 1)
    )
}  # fmt: skip
"""The mass at each offset up to `REACH`, for positional heads; `-1`, `+0` and `+1` are previous, self and next."""

DEFAULT = ("entropy", "confidence", "distance", "previous", "self", "next", "sink")
"""The metrics that fit beside each other on a narrow screen."""
