"""Totals: what the shards of a scan add up to, exactly, in any order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert

from attncli.analysis.visible_keys import Floats, Ints
from attncli.arrays.selection import EVERY, Selection, numbers_of
from attncli.errors import AttnError, InputError
from attncli.scan.examples import FIELDS, NONE, Examples
from attncli.scan.fixed_point import UNIT, from_halves, square_sum
from attncli.scan.plan import ScanPlan
from attncli.scan.shard_files import ShardState, is_done, load, path_of
from attncli.scan.tallies import columns_of, tally_shapes

HALF = 32
"""Bits of the lower half of a total: halves of 10⁹ shards add up within 64 bits."""


@dataclass(frozen=True, eq=False)
class Totals:
    """plan: of the scan. done_shards: which are in. counts: texts, tokens and skipped records. machines: what computed
    them. texts: the examples' texts by (file, line). broken: shards whose file could not be read, with the reason.
    low, high: the halves of each array's total."""

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

    def add(self, shard: int, state: ShardState) -> None:
        """Take a shard in."""
        for name, array in state.arrays.items():
            if name.startswith("top_"):
                continue
            whole = array.astype(np.int64)
            low, high = whole & ((1 << HALF) - 1), whole >> HALF
            self.low[name] = self.low[name] + low if name in self.low else low
            self.high[name] = self.high[name] + high if name in self.high else high
        new_examples = {name: state.arrays[f"top_{name}"].astype(np.int64) for name in FIELDS}
        if self.examples:
            best = Examples(*new_examples["value"].shape)
            best.take(self.examples)
            best.take(new_examples)
            self.examples.update(best.fields)
        else:
            self.examples.update(new_examples)
        for file, line, text in state.facts["examples"]:
            self.texts[file, line] = text
            self.shards[file, line] = shard
        self._forget()
        for name, count in state.facts["counts"].items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.machines.add(tuple(sorted(state.facts["machine"].items())))
        self.done_shards.append(shard)

    def _forget(self) -> None:
        """Let go of the texts that are no examples any more."""
        there = self.examples["value"] != NONE
        files, lines = (self.examples[name][there].tolist() for name in ("file", "line"))
        example_places = set(zip(files, lines, strict=True))
        for place in [text_place for text_place in self.texts if text_place not in example_places]:
            del self.texts[place], self.shards[place]

    def whole(self, name: str) -> Floats:
        """A total as float64; sums of values are divided by 2²⁴."""
        sums = self.low[name].astype(np.float64) + self.high[name].astype(np.float64) * float(1 << HALF)
        return sums / UNIT if name in VALUES else sums

    def count_total(self, name: str) -> Ints:
        """A total of counts, which 64 bits hold."""
        return self.low[name] + (self.high[name] << HALF)

    @property
    def strata_square(self) -> Floats:
        """Sums of the squares of texts' numbers [stratum, column, head]."""
        return square_sum(self.whole("strata_square"))

    @property
    def row_value(self) -> Floats:
        """Sums over the query rows of all texts [column, head]."""
        return from_halves(self.whole("row_value"))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        measures = self.plan.measures
        return columns_of(self.plan.metrics, labels=measures.labels, effects=bool(measures.effects))

    @property
    def mixed(self) -> bool:
        """Whether machines of different instruction sets or libraries computed the shards."""
        return len(self.machines) > 1

    def digest(self) -> str | None:
        """sha256 over sums, histograms and examples; None for a mixed fleet, whose last bits may differ."""
        if self.mixed:
            return None
        hasher = hashlib.sha256()
        for name in sorted(self.low):
            carried_high = self.high[name] + (self.low[name] >> HALF)
            hasher.update(name.encode() + carried_high.tobytes() + (self.low[name] & ((1 << HALF) - 1)).tobytes())
        for name in FIELDS:
            hasher.update(name.encode() + np.where(self.examples["value"] == NONE, NONE, self.examples[name]).tobytes())
        return hasher.hexdigest()


VALUES = frozenset({"value", "row_norm", "baseline", "strata_value", "replicate_value"})
"""Totals that are multiples of 2⁻²⁴."""


def total(plan: ScanPlan, folder: Path, shards: Selection = EVERY) -> Totals:
    """What is done of a scan. shards: which. A shard whose file cannot be read is in `broken`."""
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
    """What a shard tells in words; see `ShardState`."""

    plan: str
    counts: dict[str, Annotated[int, Meta(ge=0)]]
    machine: dict[str, str]
    examples: list[tuple[int, int, str]]


def read_committed(plan: ScanPlan, folder: Path, shard: int) -> ShardState:
    """A shard that is done, found to be one of this plan: its arrays have the sizes that the plan gives, its facts
    their types, and each example a text. Raises InputError, naming what does not fit."""
    state, where = load(folder, shard), str(path_of(folder, shard, "state.npz"))
    try:
        facts = convert(state.facts, ShardFacts)
    except ValidationError as error:
        raise InputError(f"this shard is not whole: {error}", where=where) from error
    if lacking := {"texts", "tokens"} - facts.counts.keys():
        raise InputError(f"this shard is not whole: it does not count {min(lacking)}", where=where)
    if facts.plan != plan.digest:
        raise InputError("this shard belongs to another plan", where=where)
    shapes = shapes_of(plan)
    for name in sorted(shapes.keys() | state.arrays.keys()):
        there = state.arrays[name].shape if name in state.arrays else "missing"
        if there != shapes.get(name):
            raise InputError(
                f"this shard is not whole: {name} is {there}",
                where=where,
                expected=str(shapes.get(name, "no such array")),
            )
        if state.arrays[name].dtype.kind not in "iu":
            raise InputError(f"this shard is not whole: {name} holds no whole numbers", where=where)
    has_example = state.arrays["top_value"] != NONE
    places = zip(*(state.arrays[f"top_{name}"][has_example].tolist() for name in ("file", "line")), strict=True)
    if not set(places) <= {(file, line) for file, line, _ in facts.examples}:
        raise InputError("this shard is not whole: an example has no text", where=where)
    return state


def shapes_of(plan: ScanPlan) -> dict[str, tuple[int, ...]]:
    """The sizes of a shard's arrays."""
    columns = columns_of(plan.metrics, labels=plan.measures.labels, effects=bool(plan.measures.effects))
    heads = len(plan.heads)
    examples = dict.fromkeys((f"top_{name}" for name in FIELDS), (len(columns), heads, plan.measures.top))
    return {**tally_shapes(columns, heads, labels=plan.measures.labels), **examples}
