"""Totals: what the texts of a shard, and the shards of a scan, add up to, exactly, in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert, field

from attncli.arrays.backend import EVERY, Array, Backend, Selection, numbers_of
from attncli.errors import AttnError, InputError
from attncli.language import message
from attncli.measure.labels import LABELS, LEAST_ROWS, Label, is_enough
from attncli.measure.layer_metrics import column_metric
from attncli.measure.metric import OFFSETS
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.scan.condition_counts import CONDITION_ARRAYS, TOGETHER_ARRAYS
from attncli.scan.frequent_links import COUNTED, KEPT, TotalLinks, links_are_whole
from attncli.scan.intake import REPLICATES, replicate_counts
from attncli.scan.plan import EFFECT, LABEL_COLUMNS, ScanPlan
from attncli.scan.rule_rows import RuleTables, rule_shapes
from attncli.scan.shard_files import ShardState, is_done, load_state, path_of
from attncli.scan.statistics import (
    UNIT,
    Scale,
    from_halves,
    halves,
    scale_of,
    square_sum,
    squares,
    to_fixed,
)
from attncli.scan.text_sample import DRAWN, TextSample
from attncli.scan.text_sample import FIELDS as SAMPLED
from attncli.scan.text_sample import MOST as NO_HASH
from attncli.scan.why_shares import WHY_VALUES, why_shapes

# The strongest examples of each head and metric: the texts with the largest values, the same in any
# order.

NONE = np.iinfo(np.int64).min
"""The value of a place that no example has taken."""
PIECE = 2048
"""Columns and heads that are sorted at once: a batch of many texts has more numbers than a model
has heads.
"""
FIELDS = ("value", "hash", "file", "line", "query", "key")
"""What is kept of an example: its value in multiples of 2⁻²⁴, a hash of the text, where it stands
(these decide between equal values), and the head's strongest link in it."""


class Examples:
    """Keeps the `top` texts with the largest value of each column (a metric or score) and head,
    largest first: `table` is [field, column, head, rank]."""

    def __init__(self, columns: int, heads: int, top: int) -> None:
        """Room for `top` examples of each of so many columns and heads, filled with `NONE`."""
        self.top = top
        self.table: Ints = np.full((len(FIELDS), columns, heads, top), -1, np.int64)
        self.table[0] = NONE

    @property
    def fields(self) -> dict[str, Ints]:
        """The arrays of the examples by name, each [column, head, place]."""
        return dict(zip(FIELDS, self.table, strict=True))

    def add(self, values: Ints, places: dict[str, Ints], links: Ints) -> None:
        """Offer a batch's values [text, column, head], in multiples of 2⁻²⁴, `NONE` where there is
        none; the largest are kept.

        places: `hash`, `file` and `line` of each text, [text].
        links: the strongest (query, key) of each text and head, [2, text, head].
        """
        if not self.top:
            return
        # only columns and heads with a text that comes up to their last example can change
        candidates = np.argwhere((values >= self.table[0, ..., -1]).any(0))
        for start in range(0, len(candidates), PIECE):
            # two arrays [candidate]
            column, head = candidates[start : start + PIECE].T
            new = np.empty((len(FIELDS), column.size, values.shape[0]), np.int64)  # as `FIELDS`
            new[0] = values[:, column, head].T
            for field_index, name in enumerate(("hash", "file", "line"), 1):
                new[field_index] = places[name]
            new[4:] = links[..., head].transpose(0, 2, 1)  # query and key
            examples = np.concatenate([self.table[:, column, head], new], -1)
            best = _largest_examples(examples, self.top)
            best[4:, best[0] == NONE] = -1  # a place without an example has no link
            self.table[:, column, head] = best

    def take(self, shard_fields: dict[str, Ints]) -> None:
        """Merge in another shard's examples (arrays by field name, as `fields` gives); the largest
        are kept.
        """
        shard_table = np.stack([shard_fields[name] for name in FIELDS])
        self.table = _largest_examples(np.concatenate([self.table, shard_table], -1), self.top)

    def text_places(self) -> set[tuple[int, int]]:
        """The texts that are examples, as (file, line)."""
        fields = self.fields
        is_filled = fields["value"] != NONE
        files = fields["file"][is_filled].tolist()
        lines = fields["line"][is_filled].tolist()
        return set(zip(files, lines, strict=True))


def _largest_examples(table: Ints, top: int) -> Ints:
    """The `top` examples with the largest values along the last axis of [field, ..., rank], the
    largest first; of equal values those with the smallest hash, file and line."""
    value, hashes, file, line = table[:4]
    # lexsort sorts by its last key first; as a float, since −`NONE` does not fit an integer
    order = np.lexsort((line, file, hashes, -value.astype(np.float64)), axis=-1)
    # the same order for every field
    return np.take_along_axis(table, order[None, ..., :top], -1)


def strongest_links(
    backend: Backend, weights: Array, choosing: Bools, rest: Bools
) -> tuple[Ints, Ints]:
    """The strongest links of a batch: the key of the largest weight of each query row, [text, head,
    query], and the (query, key) of the largest weight of each text and head, [2, text, head];
    (−1, −1) where no weight is above 0.

    weights: [text, head, query, key].
    choosing: booleans [text, query], the rows that see two keys or more where heads do not rest.
        The weight of any other row is no choice of the head's; such rows count only in a text that
        has no choosing row.
    rest: booleans [text, key], the keys where heads rest whatever a text says (the first token,
        special tokens, separators). They are left out unless a text has no others.
    """
    array: Any = backend.numpy(weights)
    # weights are 0 at least: a key that is left out gets −1, so that it is never a row's largest, and
    # a row that is left out −2, below any other row
    left_out = rest & ~rest.all(-1, keepdims=True)
    array = np.where(left_out[:, None, None, :], array.dtype.type(-1), array)
    keys = array.argmax(-1)
    peaks = np.take_along_axis(array, keys[..., None], -1)[..., 0]  # [text, head, query]
    eligible = choosing | ~choosing.any(-1, keepdims=True)
    peaks = np.where(eligible[:, None, :], peaks, -2.0)
    queries = peaks.argmax(-1)
    keys_of_queries = np.take_along_axis(keys, queries[..., None], -1)[..., 0]
    links = np.stack([queries, keys_of_queries])
    return keys, np.where(peaks.max(-1) > 0, links, -1)


# What a shard adds up: integer arrays that do not depend on the order of texts, and that add up
# with other shards'.

STRATA = (16, 32, 64, 128, 256, 512, 1024)
"""Most tokens of the texts in each stratum but the last, which has no bound."""
METRIC_LABELS = tuple(label for label in LABELS.values() if not label.score.startswith("repeats_"))


def column_of_label(label: Label) -> str:
    """The name of the column that decides a label: a score measured without the first token; for
    labels that say where a head rests, a metric.
    """
    return LABEL_COLUMNS.get(label.name, label.score)


FLUSH = 512
"""Texts that are held before they are added up: fewer would cost more steps."""


class TextValues(Struct, frozen=True, eq=False, dict=True):
    """The numbers of one batch of texts of equal length.

    value, norm: float64 [text, column, head]; a column's number is value / norm.
    baseline: its value under uniform attention, [text, column, head].
    rows: query rows used, integers [column, head].
    tokens: in each text.
    hashes: of each text; they decide how often it counts in each bootstrap replicate.
    offsets: the index in `OFFSETS` at which each text's and head's positional score is, [text,
        head]; empty where heads are not labelled.
    """

    value: Floats
    norm: Floats
    baseline: Floats
    rows: Ints
    tokens: int
    hashes: Sequence[int]
    offsets: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    @cached_property
    def mean(self) -> Floats:
        """Each text's number, value / norm, [text, column, head]; NaN where it has none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.norm > 0, self.value / self.norm, np.nan)


def scale_named(column: str) -> Scale:
    """How the histogram of a column (the name of a metric, or of a score such as the effect) is
    binned.
    """
    if column == EFFECT:
        return Scale("size")
    if column in LABEL_COLUMNS.values():
        return Scale("share")
    return scale_of(column_metric(column))


def least_deviation(column: str) -> float:
    """The smallest standard deviation over texts at which a column's mean gets an interval, in the
    column's unit.

    Where nearly all texts of a head are alike, a rare one differs by far. Before such a text is
    seen, an interval would hold the true mean in half of all scans or fewer, as
    `tests/benchmarks/intervals.py` measures; skewness does not help, as it shows only once one is
    seen.
    """
    if column == EFFECT:
        return 0.0
    if scale_named(column).kind == "share":
        return 0.002
    return 0.05


def bins_of(columns: Sequence[str]) -> list[slice]:
    """The slice of each column's bins on the bin axis of `histogram` [head, bin], which holds all
    columns' bins side by side."""
    ends = np.cumsum([0, *(scale_named(column).count for column in columns)]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def tally_shapes(columns: Sequence[str], heads: int, *, labels: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that `Tallies` adds up, by name; it says what each holds.

    heads: how many in all, over all layers.
    labels: whether heads are labelled.
    """
    shape = (len(columns), heads)
    # `row_value` has two parts and `strata_square` three, as sums of one number would overflow
    plain = ("texts", "value", "row_norm", "rows", "baseline")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(plain, shape)
    shapes["row_value"] = (2, *shape)
    shapes["histogram"] = (heads, bins_of(columns)[-1].stop)
    shapes |= dict.fromkeys(("strata_texts", "strata_value"), (len(STRATA) + 1, *shape))
    shapes["strata_square"] = (3, len(STRATA) + 1, *shape)
    shapes |= dict.fromkeys(("replicate_texts", "replicate_value"), (REPLICATES, *shape))
    shapes["replicate_strata"] = (REPLICATES, len(STRATA) + 1, len(columns))
    if labels:
        shapes |= {
            "label_texts": (len(METRIC_LABELS), heads),
            "label_offsets": (heads, len(OFFSETS)),
        }
    return shapes


class Tallies:
    """Sums, histograms and bootstrap replicates over a shard's texts, batch by batch.

    arrays: integers by name: `texts value row_norm rows baseline` [column, head];
    `row_value` [2, column, head], see `halves`;
    `histogram` [head, bin], where `bins_of` tells; `strata_texts strata_value` [stratum, column,
    head]; `strata_square` [3, stratum, column, head], see `squares`;
    `replicate_texts replicate_value` [replicate, column, head]; `replicate_strata` [replicate,
    stratum, column], texts that any head has the number of; `label_texts` [label, head];
    `label_offsets` [head, offset]. Sums of values are in multiples of 2⁻²⁴.
    """

    def __init__(self, columns: Sequence[str], heads: int, *, labels: bool) -> None:
        """Sums of nothing yet.

        columns: names, as of the plan.
        heads: how many in all, over all layers.
        labels: whether heads are labelled.
        """
        self.columns = tuple(columns)
        self.heads = heads
        self.labels = labels
        shapes = tally_shapes(columns, heads, labels=labels)
        self.arrays: dict[str, Ints] = {
            name: np.zeros(shape, np.int64) for name, shape in shapes.items()
        }
        # of each column how its histogram is binned, and its slice of the bin axis
        self._scales = list(zip(map(scale_named, columns), bins_of(columns), strict=True))
        # the texts that wait for `flush`: their means [text, column, head], hashes and strata.
        # One array for all means: pieces of their own, living side by side with a batch's, would
        # scatter memory
        self._means: Floats = np.empty((FLUSH, len(columns), heads))
        self._hashes: list[int] = []
        self._strata: list[int] = []

    def add(self, batch: TextValues) -> None:
        """Add a batch of texts of equal length to the sums at once, and hold the texts for `flush`,
        which adds them to histograms and replicates."""
        mean = batch.mean
        is_number = ~np.isnan(mean)
        arrays = self.arrays
        # whole numbers, so that sums are exact; `halves` and `squares` keep large ones in parts;
        # "value" sums the numbers of texts, "row_value" and "row_norm" give the mean over all rows
        value = to_fixed(mean)
        arrays["texts"] += is_number.sum(0)
        arrays["value"] += value.sum(0)
        arrays["row_value"] += halves(to_fixed(np.where(is_number, batch.value, 0.0)))
        arrays["row_norm"] += to_fixed(np.where(is_number, batch.norm, 0.0)).sum(0)
        arrays["rows"] += batch.rows * is_number.sum(0)
        arrays["baseline"] += to_fixed(np.where(is_number, batch.baseline, 0.0)).sum(0)
        stratum = int(np.searchsorted(STRATA, batch.tokens))
        arrays["strata_texts"][stratum] += is_number.sum(0)
        arrays["strata_value"][stratum] += value.sum(0)
        arrays["strata_square"][:, stratum] += squares(value)
        if self.labels:
            self._count_labels(mean, batch)

        # hold the texts; `_means` has room for `FLUSH` of them
        for start in range(0, len(mean), FLUSH):
            new_means = mean[start : start + FLUSH]
            if len(self._hashes) + len(new_means) > FLUSH:
                self.flush()
            held_count = len(self._hashes)
            self._means[held_count : held_count + len(new_means)] = new_means
            self._hashes += batch.hashes[start : start + FLUSH]
            self._strata += [stratum] * len(new_means)

    def _count_labels(self, mean: Floats, batch: TextValues) -> None:
        """Count the texts that earn each label, by head.

        mean: each text's number [text, column, head].
        """
        for place, label in enumerate(METRIC_LABELS):
            column = self.columns.index(column_of_label(label))
            # a mean over few rows earns no label
            score = np.where(batch.rows[column] >= LEAST_ROWS, mean[:, column], np.nan)
            is_earned = is_enough(label, score, batch.baseline[:, column])
            self.arrays["label_texts"][place] += is_earned.sum(0)
            if label.score == "positional":
                # by the index of the offset at which the head looks in each text
                for offset in range(len(OFFSETS)):
                    is_at_offset = is_earned & (batch.offsets == offset)
                    self.arrays["label_offsets"][:, offset] += is_at_offset.sum(0)

    def flush(self) -> None:
        """Add the texts that `add` has buffered to histograms and replicates."""
        if not self._hashes:
            return
        mean = self._means[: len(self._hashes)]
        # how often each text counts in each replicate of the bootstrap, [text, replicate]
        times = replicate_counts(self._hashes)
        stratum_flags = np.eye(len(STRATA) + 1)[self._strata]  # 1 at its stratum, [text, stratum]
        self._hashes = []
        self._strata = []
        is_number = ~np.isnan(mean)

        # the bins of all heads are counted at once, as if they stood in one row
        for column, (scale, column_bins) in enumerate(self._scales):
            bins = scale.bins(mean[:, column]) + np.arange(self.heads) * scale.count
            # without texts that have no number
            present_bins = bins[is_number[:, column]]
            bin_counts = np.bincount(present_bins, minlength=self.heads * scale.count)
            histogram = bin_counts.reshape((self.heads, scale.count))
            self.arrays["histogram"][:, column_bins] += histogram

        # products of whole numbers far below 2**53 are exact in float64, which multiplies matrices
        # quickly
        weights = times.T.astype(np.float64)
        any_head_has_number: Any = is_number.any(-1)  # [text, column]
        # [text, stratum, column]: 1 for a text of the stratum in which any head has the number
        strata = stratum_flags[:, :, None] * any_head_has_number[:, None, :]
        # what each text adds to the sums of a replicate in which it counts once
        additions = (
            ("replicate_value", to_fixed(mean)),
            ("replicate_texts", is_number),
            ("replicate_strata", strata),
        )
        for name, values in additions:
            by_text = values.reshape((len(mean), -1)).astype(np.float64)
            sums = (weights @ by_text).astype(np.int64)
            self.arrays[name] += sums.reshape(self.arrays[name].shape)


HALF = 32
"""Bits of the lower half of a total: halves of 10⁹ shards add up within 64 bits."""


class Totals(Struct, frozen=True, eq=False, dict=True):
    """The sums over all finished shards of a scan.

    plan: of the scan.
    done_shards: the numbers of those added.
    counts: of texts, tokens and skipped records.
    machines: that computed shards.
    texts: the examples' texts by (file, line).
    shards: by (file, line), the shard that an example's text is from.
    broken: shards whose file could not be read, with the reason.
    low, high: the lower and upper 32 bits of each array's total, by name.
    links: counts of pairs of tokens.
    rules: rows that rules are chosen by and measured on.
    uncounted: shards of an earlier version, which do not count the links of `--find`.
    uncounted_together: those that do not count the texts of several `--find` together.
    """

    plan: ScanPlan
    done_shards: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    machines: set[tuple[tuple[str, str], ...]] = field(default_factory=set)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    shards: dict[tuple[int, int], int] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    low: dict[str, Ints] = field(default_factory=dict)
    high: dict[str, Ints] = field(default_factory=dict)
    examples: dict[str, Ints] = field(default_factory=dict)
    links: TotalLinks = field(default_factory=TotalLinks)
    rules: RuleTables = field(default_factory=RuleTables)
    uncounted: list[int] = field(default_factory=list)
    uncounted_together: list[int] = field(default_factory=list)

    @cached_property
    def sample(self) -> TextSample:
        """Each head's random sample of texts, over all shards."""
        return TextSample(
            len(self.columns), len(self.plan.heads), DRAWN * self.plan.measures.examples
        )

    def add(self, shard: int, state: ShardState) -> None:
        """Add a shard's state to the totals."""
        # sums add up number by number, in two halves that do not overflow; these others do not add up
        for name, array in state.arrays.items():
            if name.startswith(("top_", "sample_", "link_", "rule_table_", "rule_counts")):
                continue
            whole = array.astype(np.int64)
            low = whole & ((1 << HALF) - 1)
            high = whole >> HALF
            self.low[name] = self.low.get(name, 0) + low
            self.high[name] = self.high.get(name, 0) + high

        # examples, samples, links and rules have ways of their own to join shards
        new_examples = {name: state.arrays[f"top_{name}"].astype(np.int64) for name in FIELDS}
        best = Examples(*new_examples["value"].shape)
        if self.examples:
            best.take(self.examples)
        best.take(new_examples)
        self.examples.update(best.fields)
        arrays = {
            name: array.astype(np.int64)
            for name, array in state.arrays.items()
            if name.startswith(("sample_", "link_"))
        }
        self.sample.add_shard(arrays)
        if self.plan.measures.links:
            self.links.add_shard(arrays, state.facts["tokens"])
        if self.plan.measures.rules is not None:
            self.rules.add_shard(shard, state.arrays)

        # the texts of examples; those that are no examples any more are let go
        for file, line, text in state.facts["examples"]:
            self.texts[file, line] = text
            self.shards[file, line] = shard
        for place in self.texts.keys() - best.text_places() - self.sample.text_places():
            del self.texts[place], self.shards[place]

        for name, count in state.facts["counts"].items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.machines.add(tuple(sorted(state.facts["machine"].items())))
        self.done_shards.append(shard)
        if CONDITION_ARRAYS[0] not in state.arrays:
            self.uncounted.append(shard)
        if TOGETHER_ARRAYS[0] not in state.arrays:
            self.uncounted_together.append(shard)

    def float_total(self, name: str) -> Floats:
        """The total of this name as float64; sums of values, which are kept in multiples of 2⁻²⁴,
        are divided by 2²⁴."""
        low = self.low[name].astype(np.float64)
        high = self.high[name].astype(np.float64)
        sums = low + high * float(1 << HALF)
        if name in VALUES or name.startswith(RULE_SUMS):
            return sums / UNIT
        return sums

    def count_total(self, name: str) -> Ints:
        """The total of this name as a count, which 64 bits hold."""
        return self.low[name] + (self.high[name] << HALF)

    @property
    def strata_square(self) -> Floats:
        """Sums of the squares of texts' numbers, float64 [stratum, column, head]; a stratum is a
        range of text lengths."""
        return square_sum(self.float_total("strata_square"))

    @property
    def row_value(self) -> Floats:
        """Sums over the query rows of all texts, float64 [column, head]."""
        return from_halves(self.float_total("row_value"))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: metrics, then scores, as the plan has them."""
        return self.plan.columns

    @property
    def is_mixed_fleet(self) -> bool:
        """Whether machines of different instruction sets or libraries computed the shards."""
        return len(self.machines) > 1

    def digest(self) -> str | None:
        """sha256 over sums, histograms, examples and links; None for a mixed fleet, whose last bits
        may differ.
        """
        if self.is_mixed_fleet:
            return None
        hasher = hashlib.sha256()
        for name in sorted(self.low):
            # lower halves may add up to more than 32 bits: what is above is carried
            carried_high = self.high[name] + (self.low[name] >> HALF)
            low = self.low[name] & ((1 << HALF) - 1)
            hasher.update(name.encode() + carried_high.tobytes() + low.tobytes())
        # a place without an example has NONE as its value; its other fields mean nothing
        has_none = self.examples["value"] == NONE
        for name in FIELDS:
            field_values = np.where(has_none, NONE, self.examples[name])
            hasher.update(name.encode() + field_values.tobytes())
        for name, array in self.sample.arrays.items():
            hasher.update(name.encode() + array.tobytes())
        hasher.update(self.links.state())
        for piece in self.rules.state():
            hasher.update(piece)
        return hasher.hexdigest()


VALUES = (
    frozenset({"value", "row_norm", "baseline", "strata_value", "replicate_value", "find_weight"})
    | WHY_VALUES
)
"""Totals that are multiples of 2⁻²⁴."""
RULE_SUMS = ("rule_0_", "rule_1_")
"""How the names of totals about rules begin, which are multiples of 2⁻²⁴ as well."""


def total(plan: ScanPlan, folder: Path, shards: Selection = EVERY) -> Totals:
    """Add up the finished shards of a scan; one whose file cannot be read is put in `broken`.

    shards: the numbers of those to add; `EVERY` for all.
    """
    totals = Totals(plan)
    for shard in numbers_of(shards, len(plan.shards)):
        if not is_done(folder, shard):
            continue
        try:
            totals.add(shard, read_committed(plan, folder, shard))
        except AttnError as error:
            totals.broken[shard] = str(error)
    return totals


class ShardFacts(Struct, frozen=True):
    """The type that `ShardState.facts` must have: a shard's counts of texts, its machine, and the
    texts of its examples and tokens."""

    plan: str
    counts: dict[str, Annotated[int, Meta(ge=0)]]
    machine: dict[str, str]
    examples: list[tuple[int, int, str]]
    tokens: list[tuple[Annotated[int, Meta(ge=0, lt=2**31)], str]] = []


ANY_SIZE = -1
"""A side of an array that may be of any size."""
OF_ANY_SIZE = ("link_tokens", "rule_table_0", "rule_table_1")
"""Arrays whose second side is."""


def read_committed(plan: ScanPlan, folder: Path, shard: int) -> ShardState:
    """Read the state of a finished shard and check it against the plan: the sizes of its arrays,
    the types of its facts, and that each example has a text. Raises InputError naming what does not
    fit."""
    state = load_state(folder, shard)
    where = str(path_of(folder, shard, "state.npz"))
    try:
        facts = convert(state.facts, ShardFacts)
    except ValidationError as error:
        raise InputError("this shard is not whole: {error}", where=where, error=error) from error
    if lacking := {"texts", "tokens"} - facts.counts.keys():
        raise InputError(
            "this shard is not whole: it does not count {smallest}",
            where=where,
            smallest=min(lacking),
        )
    if facts.plan != plan.digest:
        raise InputError("this shard belongs to another plan", where=where)

    # every array is there with its shape, and no other; shards of earlier versions lack those that
    # were not counted yet
    shapes = shapes_of(plan)
    for name in sorted(shapes.keys() | state.arrays.keys()):
        if name in (*CONDITION_ARRAYS, *TOGETHER_ARRAYS) and name not in state.arrays:
            continue
        if name not in state.arrays:
            shape: tuple[int, ...] | str = "missing"
        elif name in OF_ANY_SIZE:
            sides = state.arrays[name].shape
            shape = (*sides[:1], ANY_SIZE, *sides[2:])
        else:
            shape = state.arrays[name].shape
        if shape != shapes.get(name):
            what = message("this shard is not whole: {name} is {shape}", name=name, shape=shape)
            raise InputError(what, where=where, expected=str(shapes.get(name, "no such array")))
        if state.arrays[name].dtype.kind not in "iu":
            raise InputError(
                "this shard is not whole: {name} holds no whole numbers", where=where, name=name
            )

    # each example and sampled text, as (file, line), has its text among the facts
    example_places: set[tuple[int, int]] = set()
    # by the field that tells whether a place is taken, and its value where it is not
    for kind, field_name, free_value in (("top", "value", NONE), ("sample", "hash", NO_HASH)):
        has_example = state.arrays[f"{kind}_{field_name}"] != free_value
        files = state.arrays[f"{kind}_file"][has_example].tolist()
        lines = state.arrays[f"{kind}_line"][has_example].tolist()
        example_places.update(zip(files, lines, strict=True))
    if not example_places <= {(file, line) for file, line, _ in facts.examples}:
        raise InputError("this shard is not whole: an example has no text", where=where)
    token_ids = {token_id for token_id, _ in facts.tokens}
    if plan.measures.links and not links_are_whole(state.arrays, token_ids):
        raise InputError(
            "this shard is not whole: a link's token is not among its tokens", where=where
        )
    return state


def shapes_of(plan: ScanPlan) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a shard's file, by name."""
    columns = len(plan.columns)
    heads = len(plan.heads)
    measures = plan.measures
    sizes = tally_shapes(plan.columns, heads, labels=measures.labels) | why_shapes(measures.why)
    sizes |= dict.fromkeys((f"top_{name}" for name in FIELDS), (columns, heads, measures.top))
    sample_size = DRAWN * measures.examples
    sizes |= dict.fromkeys((f"sample_{name}" for name in SAMPLED), (heads, sample_size))
    if measures.find:
        sizes |= dict.fromkeys(CONDITION_ARRAYS, (len(measures.find), heads))
    if len(measures.find) > 1:
        sizes |= dict.fromkeys(TOGETHER_ARRAYS, (heads,))
    sizes |= {"sample_value": (columns, heads, sample_size)}
    if measures.links:
        sizes |= dict.fromkeys(("link_pairs", *(f"link_{name}" for name in COUNTED)), (heads, KEPT))
        # a token's id, then two numbers for each of the model's masks
        mask_count = 1 + max(measures.links)
        sizes |= {"link_lost": (2, heads), "link_tokens": (1 + 2 * mask_count, ANY_SIZE)}
    if measures.rules is not None:
        sizes |= rule_shapes(plan.head_kinds, len(measures.rules.versions), ANY_SIZE)
    return sizes
