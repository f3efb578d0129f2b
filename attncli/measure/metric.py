"""Metrics of attention heads: each is declared once, as a formula over query rows, and can be
called.

`attncli.metrics.entropy(weights, visible)` gives one number per head. Where the literature has
several conventions, the declaration's `note` names them. A is one head's weights, i a query's
and j a key's position, K_i the visible keys of query i and m_i their number. Empty and padded
query rows are left out; every number goes with the rows it was taken over. Metrics are measured
from blocks of query rows; `UniformRows` are the rows of uniform attention that they are held
against.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Sized
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, backend_of
from attncli.errors import InputError, UsageError
from attncli.language import contextual, listing, message
from attncli.measure.row_facts import (
    NEARBY,
    NEAREST,
    AttentionRows,
    Bools,
    Floats,
    Ints,
    Sight,
    TokenFacts,
    TokenPairs,
    WeightRows,
    find_sight,
)
from attncli.mechanism.checked_arguments import checked

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

REACH = 5
"""The farthest offset at which a head counts as positional."""


class PerRow(Struct, frozen=True, eq=False):
    """What a metric gives for a block of query rows: numbers whose mean over the used rows is Σ
    value / Σ weight.

    value, weight: [head, row]; weight is 1 for a mean over rows.
    used_rows: [head or 1, row].
    """

    value: Floats
    used_rows: Bools
    weight: Floats | None = None


class Metric(Struct, frozen=True):
    """A measure of attention, one number per head: calling it takes weights [..., query, key] and
    returns float64 [...].

    formula: how it is computed.
    low, high: its range; None where it has no bound of its own.
    unit: "" for shares.
    says: what a high value means.
    rows: which rows the mean is over.
    source: the literature that it is from.
    of: computes it, from a block of query rows.
    note: other conventions, and what is left out.
    needs: what must be known beyond the weights ("tokens", "special", "punctuation", "words");
        without it the value is NaN.
    aligned: whether it compares positions, and so needs queries and keys of one text.
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
        """Compute this metric for each head.

        Args:
            weights: [..., query, key], NumPy or torch, never written to.
            visible: Booleans that broadcast to the weights, True where the query sees the key; None
                for everywhere.
            queries: Booleans [..., query], False for padded queries, which are left out as empty
                rows are.
            tokens: One id or name per key, for the token patterns.
            special: Booleans [key], True for tokens that the tokenizer added.
            punctuation: Booleans [key], True for punctuation.
            offset: The position of query 0.

        Returns:
            float64 with the leading axes of `weights`, NaN where no row can be used.

        Raises:
            InputError: For shapes that do not fit.
        """

        results = measure(
            weights,
            visible,
            metrics=(self,),
            queries=queries,
            tokens=tokens,
            special=special,
            punctuation=punctuation,
            offset=offset,
        )
        return results[self.name].value


def row_mean(
    value: Callable[[AttentionRows], Floats],
    used_rows: Callable[[AttentionRows], Bools] = lambda rows: ~rows.sight.empty,
) -> Callable[[AttentionRows], PerRow]:
    """Make the formula of a metric that is the mean of `value` over `used_rows`; by default the rows
    that see at least one key.

    value, used_rows: called with a block of rows for a number, and for whether it counts, of each.
    """
    return lambda rows: PerRow(value(rows), used_rows(rows))


def _see_several(rows: AttentionRows) -> Bools:
    """Which rows see two keys or more, booleans [head or 1, row]."""
    return rows.sight.count >= 2


def _normalised_entropy(rows: AttentionRows) -> Floats:
    """Each row's entropy divided by the logarithm of how many keys it sees: 0 to 1."""
    return rows.entropy / np.log(np.maximum(rows.sight.count, 2))


def _diagonality(rows: AttentionRows) -> Floats:
    """For each row 1 − (mean distance of its attention) / (distance of its farthest visible key): 0
    to 1, [head, row].
    """
    farthest = np.maximum(np.abs(rows.i - rows.sight.first), np.abs(rows.sight.last - rows.i))
    return 1 - rows.moments[0] / np.maximum(farthest, 1)


def _offset_metric(offset: int) -> Callable[[AttentionRows], PerRow]:
    """Make the formula of a metric: the mean weight on the key at this offset from the query, over
    rows that see it.
    """
    return row_mean(
        lambda rows: rows.at_offset(offset), lambda rows: rows.sight.has_key(rows.i + offset)
    )


def _band(rows: AttentionRows) -> Floats:
    """Each row's weight on keys at most `NEARBY` tokens from the query, [head, row]."""
    return sum((rows.at_offset(offset) for offset in NEAREST), np.zeros(()))


def _share_of_rest(value: Callable[[AttentionRows], Floats]) -> Callable[[AttentionRows], PerRow]:
    """Make the formula of a metric: Σ `value` over all rows divided by the weight on keys other than
    key 0 and the query itself."""

    return lambda rows: PerRow(value(rows), ~rows.sight.empty, rows.rest)


def _special(rows: AttentionRows) -> Floats:
    """The weight of each row on special tokens."""
    assert rows.about.special is not None
    return rows.mass(rows.about.special)


def _punctuation(rows: AttentionRows) -> Floats:
    """The weight of each row on punctuation."""
    assert rows.about.punctuation is not None
    return rows.mass(rows.about.punctuation)


def _informative_keys(about: TokenFacts) -> Bools:
    """Which keys an informative link can lead to, booleans [key]: all but the first token, special
    tokens, line breaks and other separators, on which heads put weight whatever the text says."""
    assert about.special is not None
    keys = ~about.special
    keys[:1] = False
    if about.separators is not None:
        keys &= ~about.separators
    return keys


def _strongest_link(rows: AttentionRows) -> PerRow:
    """Each row's largest weight on an informative key (`_informative_keys`) other than the query
    itself, over rows of tokens that are not special and see such a key."""
    about = rows.about
    keys = _informative_keys(about)
    assert about.special is not None
    # whether the query is no special token; a position that no key has is an ordinary one
    is_ordinary = np.ones(rows.i.size, bool)
    inside = (rows.i >= 0) & (rows.i < keys.size)
    is_ordinary[inside] = ~about.special[rows.i[inside]]
    # other rows count with weight 0 in the mean and are not left out, so that all texts of one
    # length have as many rows
    row_weights = (rows.sight.sees_any(keys, rows.i) & is_ordinary).astype(np.float64)
    return PerRow(rows.largest(keys) * row_weights, ~rows.sight.empty, row_weights)


def _after_same(rows: AttentionRows, after: int) -> Floats:
    """Each row's weight on the keys `after` tokens behind an earlier occurrence of the query's token,
    [head, row]: Σ A_ij over j = j' + after < i, where j' < i is the same token as i, without key 0.
    """
    assert rows.about.pairs is not None
    return rows.at_pairs(*rows.about.pairs.of(rows.i, after))


ALL_ROWS, VOITA = (
    message("rows that see a key"),
    message("Voita et al. 2019, Analyzing multi-head self-attention"),
)
LENS = message("TransformerLens, head detector (mul)")
SAME = message("the same token is the same id, without ids the same text")
WITHOUT = message("Σ over all rows, key 0 and the query itself left out")

entropy = Metric(
    "entropy", "mean −Σ A ln A", 0, None, "nats", "attention is spread over many keys", ALL_ROWS,
    "Shannon 1948; Ghader and Monz 2017", row_mean(lambda rows: rows.entropy), "at most ln m_i in row i", aligned=False,
)  # fmt: skip
normalised_entropy = Metric(
    "normalised_entropy", "mean (−Σ A ln A) / ln m_i", 0, 1, "", "spread, whatever the number of keys",
    "rows that see 2 keys or more", "Shannon 1948", row_mean(_normalised_entropy, _see_several), aligned=False,
)  # fmt: skip
effective_keys = Metric(
    "effective_keys", "mean exp(−Σ A ln A)", 1, None, "keys", "how many keys a row looks at", ALL_ROWS,
    "Hill 1973", row_mean(lambda rows: np.exp(rows.entropy)), aligned=False,
)  # fmt: skip
confidence = Metric(
    "confidence", "mean max_j A", 0, 1, "", "the head is sure where to look", ALL_ROWS, VOITA,
    row_mean(lambda rows: rows.peak), "Voita 2019 leaves out the end-of-sentence key", aligned=False,
)  # fmt: skip
confidence_beyond_first = Metric(
    "confidence_beyond_first", "mean max_{j>0} A", 0, 1, "", "the head is sure of a key that is no sink",
    message("{all_rows}; 0 in a row that sees only key 0", all_rows=ALL_ROWS), VOITA,
    row_mean(lambda rows: rows.peak_beyond_first), "key 0 is left out", aligned=False,
)  # fmt: skip
strongest_link = Metric(
    "strongest_link", "mean max_{j∈I, j≠i} A, I: keys where heads do not rest", 0, 1, "",
    "each token looks at one key where heads do not rest", "rows of no special token that see a key of I, j ≠ i",
    "Xiao et al. 2023; Clark et al. 2019, for what is left out", _strongest_link,
    "I leaves out key 0, special tokens, line breaks and marks of structure; weights are not scaled to sum to 1 again",
    needs="special",
)  # fmt: skip
distance = Metric(
    "distance", "mean Σ_j A |i−j|", 0, None, "tokens", "the head looks far away", ALL_ROWS,
    "Vig and Belinkov 2019", row_mean(lambda rows: rows.moments[0]),
)  # fmt: skip
signed_distance = Metric(
    "signed_distance", "mean Σ_j A (j−i)", None, None, "tokens", "the head looks ahead (below 0: back)",
    ALL_ROWS, "Vig and Belinkov 2019, with a sign", row_mean(lambda rows: rows.moments[1]),
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
    "Xiao et al. 2023; Gu et al. 2024",
    row_mean(lambda rows: rows.key(0), lambda rows: ~rows.sight.empty & (rows.i > 0)),
    "row 0 is left out: a causal head has 1 there by construction; Gu 2024 calls a head a sink above 0.3",
)  # fmt: skip
special = Metric(
    "special", "mean Σ_{j special} A", 0, 1, "", "attention rests on special tokens", ALL_ROWS,
    "Clark et al. 2019", row_mean(_special), needs="special", aligned=False,
)  # fmt: skip
punctuation = Metric(
    "punctuation", "mean Σ_{j punctuation} A", 0, 1, "", "attention rests on punctuation", ALL_ROWS,
    "Clark et al. 2019", row_mean(_punctuation), needs="punctuation", aligned=False,
)  # fmt: skip
diagonality = Metric(
    "diagonality", "mean 1 − Σ_j A |i−j| / max_{j∈K_i} |i−j|", 0, 1, "",
    "attention stays near the diagonal", "rows that see 2 keys or more", "Zhang et al. 2021",
    row_mean(_diagonality, _see_several),
)  # fmt: skip
band = Metric(
    "band", f"mean Σ_{{|i−j|≤{NEARBY}}} A", 0, 1, "", message("attention stays within {band} tokens", band=NEARBY),
    ALL_ROWS, "Kovaleva et al. 2019", row_mean(_band),
)  # fmt: skip
previous_pattern = Metric(
    "previous_pattern", "Σ A⊙P / Σ A, P: j = i−1", 0, 1, "", "a previous-token head", WITHOUT, LENS,
    _share_of_rest(lambda rows: np.where(rows.i == 1, 0.0, rows.at_offset(-1))),
)  # fmt: skip
duplicate_pattern = Metric(
    "duplicate_pattern", "Σ A⊙P / Σ A, P: same token earlier", 0, 1, "",
    "a duplicate-token head", WITHOUT, LENS, _share_of_rest(lambda rows: _after_same(rows, 0)), SAME, needs="tokens",
)  # fmt: skip
induction_pattern = Metric(
    "induction_pattern", "Σ A⊙P / Σ A, P: after the same token earlier", 0, 1, "",
    "an induction head", WITHOUT, LENS, _share_of_rest(lambda rows: _after_same(rows, 1)),
    message("{same}; Olsson et al. 2022 measure it on random repeats", same=SAME), needs="tokens",
)  # fmt: skip
missing = Metric(
    "missing", "mean 1 − Σ_j A", 0, 1, "", "weight that a learned sink or an exclusion took", ALL_ROWS,
    "Agarwal et al. 2025, gpt-oss", row_mean(lambda rows: np.maximum(1 - rows.total, 0.0)), aligned=False,
)  # fmt: skip

METRICS: dict[str, Metric] = {
    value.name: value for value in tuple(globals().values()) if isinstance(value, Metric)
}
"""Every metric that is declared above by name, in the order in which tables show them."""
METRIC_TITLES = {
    "entropy": message("entropy"),
    "confidence": message("confidence"),
    "distance": message("distance"),
    "previous": contextual("page", "previous token"),
    "self": message("itself"),
    "next": contextual("page", "next token"),
    "sink": message("first token"),
    "special": message("special tokens"),
    "normalised_entropy": message("normalised entropy"),
}
"""What pages and figures call metrics."""

OFFSETS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            f"offset{offset:+d}", f"mean A_{{i,i{offset:+d}}}".replace("-", "−"), 0, 1, "",
            "each token looks at a fixed offset",
            message("rows that see key i{offset}", offset=f"{offset:+d}".replace("-", "−")), VOITA,
            _offset_metric(offset),
        )
        for offset in range(-REACH, REACH + 1)
    )
}  # fmt: skip
"""The mass at each offset up to `REACH`, for positional heads; `-1`, `+0` and `+1` are previous,
self and next.
"""

FILE_METRICS: dict[str, Metric] = {}
"""Metrics of files, by name, which holds a dot; `attncli.measure.metric_file` adds them."""

DEFAULT = ("entropy", "confidence", "distance", "previous", "self", "next", "sink")
"""The metrics that fit beside each other on a narrow screen."""


# The rows of uniform attention in closed form: what every metric is held against.


class UniformRows:
    """An `AttentionRows` (facts of a block of query rows) of uniform attention over visible keys
    without gaps, by formulas that cost the same at any length.

    i: the index of each query row, [row].
    sight: which keys each row sees.
    about: what is known of the tokens.
    share: the weight of each key that a row sees, [head or 1, row]; 0 where it sees none.
    """

    def __init__(self, i: Ints, sight: Sight, about: TokenFacts) -> None:
        if sight.visibility is not None:
            raise ValueError("closed forms need sight without gaps")
        self.i = i
        self.sight = sight
        self.about = about
        self.share = np.where(sight.empty, 0.0, 1.0 / np.maximum(sight.count, 1))

    @property
    def heads(self) -> int:
        """How many heads the facts have on their first axis; 1 where they hold for all heads."""
        return self.sight.count.shape[0]

    @cached_property
    def total(self) -> Floats:
        """Each row's sum of weights, Σ_j A_ij, under uniform attention; [head or 1, row]."""
        return (~self.sight.empty).astype(np.float64)

    @cached_property
    def entropy(self) -> Floats:
        """Each row's entropy −Σ_j A_ij ln A_ij in nats, under uniform attention; [head or 1, row]."""
        logs: Floats = np.log(np.maximum(self.sight.count, 1).astype(np.float64))
        return logs

    @cached_property
    def peak(self) -> Floats:
        """Each row's largest weight, under uniform attention; [head or 1, row]."""
        return self.share

    @cached_property
    def peak_beyond_first(self) -> Floats:
        """Each row's largest weight on a key other than key 0, under uniform attention; [head or 1,
        row].
        """
        return np.where(self.sight.last >= np.maximum(self.sight.first, 1), self.share, 0.0)

    @cached_property
    def entropy_beyond_first(self) -> Floats:
        """Each row's −Σ A ln(A / s) over the keys other than key 0, s their sum, under uniform
        attention; [head or 1, row]."""
        others = self.sight.count - self.sight.has_key(np.zeros_like(self.i))
        logs: Floats = np.log(np.maximum(others, 1).astype(np.float64))
        return others * self.share * logs

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """Each row's Σ_j A_ij |i − j| and Σ_j A_ij (j − i), under uniform attention; each [head or
        1, row].
        """
        # keys first..last are visible: `back` of them before the query, `ahead` after it
        back = self.i - self.sight.first
        ahead = self.sight.last - self.i
        signed_distance = np.where(
            self.sight.empty, 0.0, (self.sight.first + self.sight.last) / 2 - self.i
        )
        sums = _distance_sum(back) + _distance_sum(ahead)
        return np.where(self.sight.empty, 0.0, sums * self.share), signed_distance

    @cached_property
    def rest(self) -> Floats:
        """Each row's weight without key 0 and the query itself, under uniform attention; [head or
        1, row].
        """
        sees_first = self.sight.has_key(np.zeros_like(self.i)) & (self.i > 0)
        others = self.sight.count - self.sight.has_key(self.i) - sees_first
        counts: Floats = others.astype(np.float64)
        return counts * self.share

    def at_offset(self, offset: int) -> Floats:
        """Each row's weight on the key at this offset, A_{i, i+offset}, under uniform attention;
        [head or 1, row].
        """
        return np.where(self.sight.has_key(self.i + offset), self.share, 0.0)

    def key(self, k: int) -> Floats:
        """Each row's weight on key k, A_ik, under uniform attention; [head or 1, row]."""
        return np.where(self.sight.has_key(np.full_like(self.i, k)), self.share, 0.0)

    def mass(self, key_mask: Bools) -> Floats:
        """Each row's weight on the keys in `key_mask`, booleans [key], under uniform attention;
        [head or 1, row].
        """
        # how many of the keys stand before each key; the difference counts those a row sees
        count_before = np.concatenate([[0], np.cumsum(key_mask)])
        seen_count = count_before[self.sight.last + 1] - count_before[self.sight.first]
        return np.where(self.sight.empty, 0, seen_count) * self.share

    def largest(self, key_mask: Bools) -> Floats:
        """Each row's largest weight on the keys in `key_mask` but the query itself, booleans [key],
        under uniform attention; [head or 1, row]."""
        return np.where(self.sight.sees_any(key_mask, self.i), self.share, 0.0)

    def at_pairs(self, rows: Ints, keys: Ints) -> Floats:
        """Each row's weight on the keys of the pairs (row, key), integers [pair], under uniform
        attention; [head or 1, row]."""
        # by head, which pairs are visible, and how many of these each row has
        inside = (keys >= self.sight.first[:, rows]) & (keys <= self.sight.last[:, rows])
        counts = [np.bincount(rows[pair_mask], minlength=self.i.size) for pair_mask in inside]
        return np.stack(counts).astype(np.float64) * self.share


def _distance_sum(reach: Any) -> Any:
    """The sum of the distances 1, 2, …, `reach` of the keys on one side of each query.

    reach: how many keys from the query the farthest visible one on that side is. It is negative
        where no key on that side is visible and those on the other side begin farther than 1 away:
        the result is then negative, and takes off the distances that the other side's sum has too
        many.
    """
    distances = np.where(reach < 0, -reach - 1, reach)
    return np.sign(reach) * distances * (distances + 1) / 2


Lengthy = TypeVar("Lengthy", bound=Sized)

BLOCK = 1 << 20
"""How many weights a dense matrix is cut into at a time."""


class Measured(Struct, frozen=True, eq=False):
    """A metric's result for each head.

    value: float64 [...], NaN where no row could be used.
    rows: how many were used.

    baseline: the metric of uniform attention over the same visible keys and the same rows.
    """

    metric: Metric
    value: Floats
    rows: Ints
    baseline: Floats


class Tally:
    """Accumulates metrics over blocks of query rows of `heads` heads; memory does not grow with the
    text.

    metrics: names out of `METRICS`, or metrics themselves, a caller's own too.
    about: what is known of the keys' tokens. Metrics that need what is not known give NaN over 0
        rows.

    Raises UsageError for an unknown name, and for two metrics of one name.
    """

    def __init__(self, heads: int, metrics: Sequence[str | Metric], about: TokenFacts) -> None:
        """Make the sums, all 0, for so many heads.

        metrics: names, or metrics themselves.
        about: what is known of the tokens; a metric that needs more stays NaN.
        """
        self._metrics = metrics_of(metrics)
        self.about = about
        # [the heads' or uniform attention's, metric, head]
        self._sums = np.zeros((2, len(self._metrics), heads))
        self._norms = np.zeros((2, len(self._metrics), heads))
        self._rows = np.zeros((len(self._metrics), heads), np.int64)
        # of the rows last added: which keys they see, and uniform attention's sums and norms
        self._even: tuple[Sight, Floats, Floats] | None = None

    def add(self, rows: WeightRows, *, first_head: int = 0, real: Bools | None = None) -> None:
        """Add a block of rows of heads first_head, first_head + 1, … to the sums.

        real: booleans [row] or [head, row], False for padding, which is left out.
        """
        heads = slice(first_head, first_head + rows.weights.shape[0])
        sums, norms, row_counts = self._sum_rows(rows, real)
        # the first axis of the sums: 0 for these weights, 1 for even attention over the same keys
        self._sums[0, :, heads] += sums
        self._norms[0, :, heads] += norms
        self._rows[:, heads] += row_counts

        # blocks of the same rows of several heads often share one `Sight` object: uniform attention
        # is computed once for these; padding may differ by head
        if self._even is None or self._even[0] is not rows.sight or real is not None:
            even_rows = uniform_rows(rows.i, rows.sight, rows.about)
            even_sums, even_norms, _ = self._sum_rows(even_rows, real)
            self._even = (rows.sight, even_sums, even_norms)
        _, even_sums, even_norms = self._even
        self._sums[1, :, heads] += even_sums
        self._norms[1, :, heads] += even_norms

    def _sum_rows(self, rows: AttentionRows, real: Bools | None) -> tuple[Floats, Floats, Ints]:
        """Σ value and Σ weight over the rows used, and the number of these, of each metric,
        [metric, head or 1].

        real: booleans [row] or [head, row], False for padding, which is left out; None without
            padding.
        """
        heads = rows.heads
        sums, norms = np.zeros((2, len(self._metrics), heads))
        counts = np.zeros((len(self._metrics), heads), np.int64)
        for index, metric in enumerate(self._metrics):
            if not _is_answerable(metric, self.about):
                continue  # its norm stays 0, which makes it NaN
            per_row = metric.of(rows)
            if real is None:
                used_rows = per_row.used_rows
            else:
                used_rows = per_row.used_rows & real
            counts[index] = used_rows.sum(-1)
            sums[index] = _sum_used(per_row.value, used_rows)
            if per_row.weight is None:  # a mean over rows
                norms[index] = counts[index]
            else:
                norms[index] = _sum_used(per_row.weight, used_rows)
        return sums, norms, counts

    def totals(self) -> tuple[Floats, Floats, Ints, Floats]:
        """The running totals, each [head, metric]: Σ value, Σ norm, rows used, and the metric of
        uniform attention (Σ value / Σ norm)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            baseline = np.where(self._norms[1] > 0, self._sums[1] / self._norms[1], np.nan)
        return self._sums[0].T, self._norms[0].T, self._rows.T, baseline.T

    def result(self, shape: tuple[int, ...] | None = None) -> dict[str, Measured]:
        """The metrics of all rows added so far, by name.

        shape: the axes of the heads; None for one axis, [head].
        """
        # [2, metric, head]: first of the weights, then of uniform attention
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(self._norms > 0, self._sums / self._norms, np.nan)
        if shape is None:
            shape = self._rows.shape[1:]
        value, baseline = means.reshape((2, len(self._metrics), *shape))
        rows = self._rows.reshape(value.shape)
        return {
            metric.name: Measured(metric, value[index], rows[index], baseline[index])
            for index, metric in enumerate(self._metrics)
        }


def _sum_used(values: Floats, used_rows: Bools) -> Floats:
    """Each head's values [head or 1, row] summed over the rows used, [head]."""
    if used_rows.all():
        return values.sum(-1)
    sums: Floats = np.where(used_rows, values, 0.0).sum(-1)
    return sums


def metrics_of(metrics: Sequence[str | Metric]) -> list[Metric]:
    """The metrics themselves for names and metrics, without repeats. Raises UsageError for an
    unknown name, and for two different metrics of one name, as results go by name."""
    by_name: dict[str, Metric] = {}
    for metric in map(metric_of, metrics):
        # the metric that has the name already, or this one
        if by_name.setdefault(metric.name, metric) is not metric:
            raise UsageError(
                "two metrics are called {name}", expected="a name for each", name=repr(metric.name)
            )
    return list(by_name.values())


def metric_of(name: str | Metric, *, option: str = "--metric", more: Sequence[str] = ()) -> Metric:
    """The metric of that name, or itself if it is a metric already.

    option: the command line's option that named it, for the hint of an error.
    more: other names to offer in the error.

    Raises UsageError for an unknown name, with the nearest one, and for a caller's own metric that
    has a built-in one's name.
    """
    if isinstance(name, Metric):
        built_in = METRICS.get(name.name) or OFFSETS.get(name.name)
        if built_in is not None and built_in is not name:
            raise UsageError(
                "{name} is a metric of attn's own",
                expected="another name for this one",
                name=repr(name.name),
            )
        return name
    if name in OFFSETS:
        return OFFSETS[name]
    if name in FILE_METRICS:
        return FILE_METRICS[name]
    if name not in METRICS:
        from difflib import get_close_matches

        near = get_close_matches(name, (*METRICS, *more), n=1, cutoff=0.5)
        what = message("there is no metric {name}", name=repr(name))
        raise UsageError(
            what, expected=listing((*METRICS, *more)), hint=f"{option} {near[0]}" if near else ""
        )
    return METRICS[name]


def _is_answerable(metric: Metric, about: TokenFacts) -> bool:
    """Whether a metric can be computed with what is known of the tokens: the facts that it needs are
    there, and, if it compares positions, queries and keys are of one text."""
    facts = {
        "": True,  # needs nothing
        "tokens": about.pairs,
        "special": about.special,
        "punctuation": about.punctuation,
        "words": about.words,
    }
    return facts[metric.needs] is not None and (about.aligned or not metric.aligned)


def uniform_rows(i: Ints, sight: Sight, about: TokenFacts) -> AttentionRows:
    """The rows of uniform attention over the keys that `sight` says are visible, for query positions
    i, [row]: in closed form where each row sees keys without gaps, else from an array of weights.
    """
    if sight.visibility is None:
        return UniformRows(i, sight, about)
    from attncli.arrays.backend import numpy_backend

    even = sight.spread(sight.low + sight.visibility.shape[-1])
    return WeightRows(numpy_backend("float64"), even, i, sight.low, sight, about)


@checked
def measure(
    weights: Array | ArrayLike,
    visible: Array | ArrayLike | None = None,
    *,
    metrics: Sequence[str | Metric] = DEFAULT,
    queries: Array | ArrayLike | None = None,
    tokens: Sequence[Hashable] | None = None,
    special: Sequence[bool] | Bools | None = None,
    punctuation: Sequence[bool] | Bools | None = None,
    offset: int = 0,
    aligned: bool = True,
) -> dict[str, Measured]:
    """Measure metrics of attention weights, several at once.

    Args:
        weights: [..., query, key], NumPy or torch, never written to.
        visible: Booleans that broadcast to the weights, True where the query sees the key; None for
            everywhere.
        metrics: Names, or metrics, a caller's own too.
        queries: Booleans [..., query], False for padded queries, which are left out as empty rows
            are.
        tokens: One id or name per key, for the token patterns.
        special: Booleans [key], True for tokens that the tokenizer added.
        punctuation: Booleans [key], True for punctuation.
        offset: The position of query 0.
        aligned: False where queries are another text than keys (cross-attention), which has no
            distances.

    Returns:
        The metrics by name; each value is float64 with the leading axes of the weights, NaN where
        no row can be used.

    Raises:
        InputError: For shapes that do not fit.
        UsageError: For an unknown name, and for two metrics of one name.
    """
    array = _as_array(weights)
    if array.ndim < 2:
        raise InputError("weights have {ndim} axes", expected="[..., query, key]", ndim=array.ndim)
    backend = backend_of(array)
    lead = tuple(array.shape[:-2])
    count, keys = array.shape[-2:]

    # what is known of the tokens, one entry for each key
    pairs = special_keys = punctuation_keys = None
    if tokens is not None:
        pairs = TokenPairs(_one_per_key(tokens, keys, "tokens"))
    if special is not None:
        special_keys = np.asarray(_one_per_key(special, keys, "special")) != 0
    if punctuation is not None:
        punctuation_keys = np.asarray(_one_per_key(punctuation, keys, "punctuation")) != 0
    about = TokenFacts(pairs, special_keys, punctuation_keys, aligned)

    # the axes before query and key as one of heads; visibility and padding likewise
    flat = array.reshape((-1, count, keys))
    if visible is None:
        visibility = None
    else:
        visibility = _truth_values(visible, (*lead, count, keys), "visible")
    if queries is None:
        real = None
    else:
        real = _truth_values(queries, (*lead, count), "queries")
    # one head after the other, some rows at a time
    tally = Tally(flat.shape[0], metrics, about)
    step = max(BLOCK // max(keys, 1), 1)  # weights may have no key
    for head in range(flat.shape[0]):
        for start in range(0, count, step):
            stop = min(start + step, count)
            row_visibility = None if visibility is None else visibility[head, start:stop]
            sight = find_sight(row_visibility, stop - start, 0, keys)
            i = np.arange(start, stop) + offset
            rows = WeightRows(backend, flat[head : head + 1, start:stop], i, 0, sight, about)
            tally.add(rows, first_head=head, real=None if real is None else real[head, start:stop])
    return tally.result(lead)


def _as_array(values: Array | ArrayLike) -> Array:
    """An array of the library that the values belong to (NumPy or torch); lists become NumPy
    arrays.
    """
    if type(values).__module__.startswith("torch"):
        return cast("Array", values)
    return np.asarray(values)


def _one_per_key(values: Lengthy, keys: int, name: str) -> Lengthy:
    """The values, checked to be one for each key; else InputError.

    keys: how many there are.
    name: what the error calls them.
    """
    if len(values) != keys:
        what = message(
            "{name} has {values} entries, the weights have {keys} keys",
            name=name,
            values=len(values),
            keys=keys,
        )
        raise InputError(what, expected="one per key")
    return values


def _truth_values(values: Array | ArrayLike, shape: tuple[int, ...], name: str) -> Bools:
    """Which values are not zero, broadcast to `shape`: [head, query, key] for the argument "visible",
    [head, query] for another, with all leading axes joined to one of heads.

    name: what an error calls them.
    """
    array = _as_array(values)
    numbers = backend_of(array).numpy(array)
    try:
        spread = np.broadcast_to(numbers != 0, shape)
    except ValueError as error:
        expected = message("a shape that broadcasts to {whole}", whole=list(shape))
        raise InputError(
            "{name} has shape {shape}", expected=expected, name=name, shape=list(numbers.shape)
        ) from error
    # the axes behind those of heads: query and key, or query alone
    last_axes = 2 if name == "visible" else 1
    return spread.reshape((-1, *shape[len(shape) - last_axes :]))
