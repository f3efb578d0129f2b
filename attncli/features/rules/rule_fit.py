"""Which rules a head has, and with which weights: fitted on some texts, chosen on others.

A half of the texts is one `HalfRecord`: two thirds of it are fitted to, and the rest, which the fit
does not know, decides which rules stay. Rules join one at a time, the one along which the error
falls most, and stay if they add `GAIN` to the overlap on that rest. What is chosen is then fitted
once more to the whole half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import InputError
from attncli.features.rules.attention_rows import HeadKinds, PatternBlock
from attncli.features.rules.mixture import PairSums, fit_mixtures
from attncli.features.rules.token_patterns import Bools, Ints
from attncli.language import message

Floats = np.ndarray[Any, np.dtype[np.float64]]
Sample = np.ndarray[Any, np.dtype[np.float32]]
GAIN = 0.02
"""What a rule adds to the overlap, at least, to stay. Source: the size below which two drawings of
texts do not agree."""
TIE = 0.02
"""Share of the largest gain by which rules may fall behind and still count as equal to it."""
TRIES = 3
"""Rules in a row that add too little, after which no other is tried."""
MOST_RULES = 8
"""Rules of one head, at most."""
CHOICE_SHARE = 3
"""One text in so many of a half decides which rules stay."""
SAMPLE = 2**16
"""Pairs of query and key, about, on which it is decided."""
LEAST_USE = 0.05
"""Share of the rows in which a rule must find a key: one that seldom does is the first token under
another name, for that is where it rests."""
FARTHEST = 256
"""Distance from which on keys count as equally far for the mean by distance."""
DISTANCES = 2 * FARTHEST + 1
"""How many distances are told apart; see `distance_bins`."""


class RuleSums:
    """What texts add up to for the fit: sums over pairs, the mean weight by distance, and in how many
    rows each rule finds a key. Those of several processes add up.

    rules: how many there are; the first of them must be that of the first token. arrays: by name,
    each of its first axis text part (0: fitted to, 1: decide) where it has two: `pairs` Σ R_r R_s
    [part, kind, rule, rule], `both` Σ R_r A [part, head, rule], `squares` Σ A² [part, head];
    `profile` Σ A by distance [head, distance], `chances` pairs by distance [kind, distance]; `used`
    rows in which a rule finds a key [kind, rule], `rows` [kind]. kind: of the model's masks.
    """

    def __init__(self, places: HeadKinds, rules: int) -> None:
        self._places = places
        kinds = range(places.kind_count)
        self._first_layers = {kind: places.layers[places.kinds.index(kind)] for kind in kinds}
        self.arrays: dict[str, Floats] = {
            name: np.zeros(shape) for name, shape in sum_shapes(places, rules).items()
        }

    def is_first(self, block: PatternBlock) -> bool:
        """Whether these are the first heads of the first layer with their mask: what rules say is
        the same for all such layers and is counted once.
        """
        starts = block.heads.start == self._places.slice_of(block.layer).start
        return starts and self._first_layers[block.kind] == block.layer

    def add(self, block: PatternBlock, part: int) -> None:
        """Add the rows of one layer in one text to the sums. Rows that see a single key tell nothing
        and are left out.

        part: 1 for a text that decides which rules stay, 0 for one that rules are fitted to.
        """
        keep = block.with_choice
        if not keep.any():
            return
        weights = block.weights[:, keep]
        rules = block.rules[:, keep]
        # one long axis of (row, key) pairs
        flat = rules.reshape(len(rules), -1)
        flat_weights = weights.reshape(len(weights), -1)
        arrays = self.arrays
        if self.is_first(block):
            arrays["pairs"][part, block.kind] += flat @ flat.T
            arrays["used"][block.kind] += np.any(rules != rules[0], axis=-1).sum(-1)
            arrays["rows"][block.kind] += int(keep.sum())
        arrays["both"][part, block.heads] += flat_weights @ flat.T
        arrays["squares"][part, block.heads] += np.einsum("hp,hp->h", flat_weights, flat_weights)
        self._add_profile(block, weights, block.visible[keep], block.queries[keep])

    def _add_profile(
        self, block: PatternBlock, weights: Floats, visible: Bools, queries: Ints
    ) -> None:
        """Add to the mean weight by distance."""
        bins = distance_bins(queries, visible.shape[-1])[visible]
        if self.is_first(block):
            self.arrays["chances"][block.kind] += np.bincount(bins, minlength=DISTANCES)
        for head, rows in zip(range(block.heads.start, block.heads.stop), weights, strict=True):
            self.arrays["profile"][head] += np.bincount(bins, rows[visible], DISTANCES)

    def profile(self) -> Floats:
        """Each head's mean weight by distance, [head, distance]; see `distance_bins`."""
        chances = self.arrays["chances"][self._places.head_kinds()]
        return self.arrays["profile"] / np.maximum(chances, 1)

    def choose(self, samples: Sequence[ChoiceRows]) -> tuple[Floats, Floats]:
        """The mixture of each head, [head, rule], of sum 1, and its overlap on the rows that it was
        chosen by, [head].

        samples: these rows, of each head.
        """
        kinds = self._places.head_kinds()
        used = self.arrays["used"] / np.maximum(self.arrays["rows"], 1)[:, None] >= LEAST_USE
        used[:, 0] = True
        chosen, overlaps = choose_rules(self._sums(slice(0, 1)), samples, used[kinds])
        return fit_mixtures(self._sums(slice(0, 2)), chosen), overlaps

    def found_shares(self) -> Floats:
        """In what share of the rows each rule finds a key of its own, [rule]; in other rows it
        falls back on the first token, whose own share is therefore 1. NaN without rows.
        """
        rows = self.arrays["rows"].sum()
        if not rows:
            return np.full(self.arrays["used"].shape[1], np.nan)
        shares: Floats = self.arrays["used"].sum(0) / rows
        shares[0] = 1.0
        return shares

    def _sums(self, parts: slice) -> PairSums:
        """The sums over the texts that are fitted to (part 0), those that choose (1), or both."""
        arrays = self.arrays
        rules = arrays["pairs"][parts].sum(0)[self._places.head_kinds()]
        return PairSums(rules, arrays["both"][parts].sum(0), arrays["squares"][parts].sum(0))


def sum_shapes(places: HeadKinds, rules: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of `RuleSums`, by name."""
    heads = places.count
    kinds = places.kind_count
    return {
        "pairs": (2, kinds, rules, rules),
        "both": (2, heads, rules),
        "squares": (2, heads),
        "profile": (heads, DISTANCES),
        "chances": (kinds, DISTANCES),
        "used": (kinds, rules),
        "rows": (kinds,),
    }


class HalfRecord:
    """What a half of the texts tells of all heads: sums to fit to, and rows to choose by.

    rules: how many there are; the first of them must be that of the first token.
    lengths: the tokens of each text.
    """

    def __init__(self, places: HeadKinds, rules: int, lengths: Sequence[int]) -> None:
        kinds = places.kind_count
        self._places = places
        self._sums = RuleSums(places, rules)
        self._choosing = {number for number in range(len(lengths)) if is_choice(number)}
        pairs = sum(lengths[number] ** 2 for number in self._choosing)
        self._stride = max(-(-pairs // (2 * SAMPLE)), 1)
        # rows are taken in turn over all texts: of many short ones not the first row alone
        self._first_rows = np.concatenate([[0], np.cumsum(lengths)])
        self._head_rows: list[list[Sample]] = [[] for _ in range(places.count)]
        self._rule_rows: list[list[Sample]] = [[] for _ in range(kinds)]
        self._rows = [0] * kinds

    def add(self, block: PatternBlock) -> None:
        """Add the rows of one layer in one text to the sums. Of a text that helps to choose the
        rules, every `_stride`-th row is kept as well.
        """
        decides = block.text in self._choosing
        self._sums.add(block, int(decides))
        if decides:
            numbers_of_rows = self._first_rows[block.text] + block.queries
            is_sampled = numbers_of_rows % self._stride == 0
            self._add_sample(block, is_sampled & block.with_choice)

    def _add_sample(self, block: PatternBlock, rows: Bools) -> None:
        """Keep these rows to choose by."""
        pairs = block.visible[rows]
        heads = range(block.heads.start, block.heads.stop)
        for head, own in zip(heads, block.weights, strict=True):
            self._head_rows[head].append(own[rows][pairs].astype(np.float32))
        if self._sums.is_first(block):
            self._rows[block.kind] += int(rows.sum())
            self._rule_rows[block.kind].append(block.rules[:, rows][:, pairs].astype(np.float32))

    def profile(self) -> Floats:
        """Each head's mean weight by distance, [head, distance]; see `distance_bins`."""
        return self._sums.profile()

    def found_shares(self) -> Floats:
        """In what share of the rows each rule finds a key of its own, [rule]."""
        return self._sums.found_shares()

    def choose(self) -> tuple[Floats, Floats]:
        """The mixture of each head, [head, rule], of sum 1, and its overlap on the rows that it was
        chosen by, [head]. Raises InputError where no row was kept to choose by."""
        if not all(self._rows):
            raise InputError(
                "no token of the texts that choose the rules sees two tokens",
                expected=message("longer texts"),
            )
        rule_rows = [np.concatenate(rows, 1) for rows in self._rule_rows]
        shares = [
            np.full(said.shape[1], 1 / rows)
            for said, rows in zip(rule_rows, self._rows, strict=True)
        ]
        return self._sums.choose(
            [
                ChoiceRows(np.concatenate(rows), rule_rows[kind], shares[kind])
                for rows, kind in zip(
                    self._head_rows, self._places.head_kinds().tolist(), strict=True
                )
            ]
        )


class ChoiceRows(Struct, frozen=True, eq=False):
    """Rows of one head that its rules are chosen by.

    weights: [pair].
    rules: [rule, pair].
    shares: how much each pair's row counts in the mean over rows, [pair]; over rows these sum to 1.
    """

    weights: Sample
    rules: Sample
    shares: Floats

    def overlap(self, mixture: Floats) -> float:
        """The overlap of the head with a mixture, [rule]: the mean over rows, each counted by its
        share, of Σ min."""
        parts = np.flatnonzero(mixture)
        said = mixture[parts].astype(np.float32) @ self.rules[parts]
        return float((np.minimum(self.weights, said) * self.shares).sum())


def choose_rules(
    sums: PairSums, samples: Sequence[ChoiceRows], usable: Bools
) -> tuple[Bools, Floats]:
    """Choose the rules of each head greedily. Returns which it keeps, [head, rule], and the overlap
    they reach on the rows they were chosen by, [head].

    sums: of the texts that are fitted to.
    samples: of each head, rows of other texts.
    usable: which rules a head may have, [head, rule]; rule 0 is that of the first token, and
        another begins only where it says `GAIN` more.
    """
    heads, rules = sums.both.shape
    chosen = np.zeros((heads, rules), bool)
    alone = np.einsum("hrr->hr", sums.rules) - 2 * sums.both
    alone[~usable] = np.inf
    chosen[np.arange(heads), _first_best(-alone)] = True
    mixtures = chosen.astype(np.float64)
    overlaps = _overlaps(samples, mixtures, np.arange(heads), np.zeros(heads))
    # the first token is what a rule says that finds no key: another one has to say more
    at_first = np.zeros_like(mixtures)
    at_first[:, 0] = 1.0
    first_overlaps = _overlaps(samples, at_first, np.arange(heads), np.zeros(heads))
    at_rest = overlaps < first_overlaps + GAIN
    chosen[at_rest] = at_first[at_rest] > 0
    mixtures[at_rest] = at_first[at_rest]
    overlaps[at_rest] = first_overlaps[at_rest]
    refused = np.zeros((heads, rules), bool)
    failures = np.zeros(heads, np.int64)
    for _ in range(MOST_RULES * TRIES):
        rows = np.flatnonzero((failures < TRIES) & (chosen.sum(-1) < MOST_RULES))
        gains = _gains(sums, mixtures)
        gains[chosen | refused | ~usable] = 0.0
        rows = rows[gains[rows].max(-1) > 0]
        if not rows.size:
            break
        entering = _first_best(gains[rows])
        trial = chosen.copy()
        trial[rows, entering] = True
        fitted = _fit_some(sums, trial, rows, mixtures)
        after = _overlaps(samples, fitted, rows, overlaps)
        stays = after[rows] >= overlaps[rows] + GAIN
        kept = rows[stays]
        refusing = rows[~stays]
        chosen[kept] = trial[kept]
        mixtures[kept] = fitted[kept]
        overlaps[kept] = after[kept]
        failures[kept] = 0
        failures[refusing] += 1
        refused[refusing, entering[~stays]] = True
    return _drop_rules(sums, samples, chosen, mixtures, overlaps)


def _drop_rules(
    sums: PairSums,
    samples: Sequence[ChoiceRows],
    chosen: Bools,
    mixtures: Floats,
    overlaps: Floats,
) -> tuple[Bools, Floats]:
    """The choice without rules that later ones have made superfluous: the lightest rule is dropped
    as long as the overlap falls by less than `GAIN`.
    """
    rows = np.arange(len(chosen))
    while True:
        rows = rows[chosen[rows].sum(-1) > 1]
        if not rows.size:
            return chosen, overlaps
        leaving = np.where(chosen[rows], mixtures[rows], np.inf).argmin(-1)
        trial = chosen.copy()
        trial[rows, leaving] = False
        fitted = _fit_some(sums, trial, rows, mixtures)
        after = _overlaps(samples, fitted, rows, overlaps)
        rows = rows[after[rows] > overlaps[rows] - GAIN]
        chosen[rows] = trial[rows]
        mixtures[rows] = fitted[rows]
        overlaps[rows] = after[rows]


def _gains(sums: PairSums, mixtures: Floats) -> Floats:
    """How much the squared error of each head falls at most on the way from its mixture to a rule
    alone, [head, rule]; 0 for rules that make it larger."""
    ahead = np.einsum("hrs,hs->hr", sums.rules, mixtures)
    gradient = ahead - sums.both
    falls = (gradient * mixtures).sum(-1, keepdims=True) - gradient
    own = np.einsum("hr,hr->h", ahead, mixtures)[:, None]
    lengths = own - 2 * ahead + np.einsum("hrr->hr", sums.rules)
    gains: Floats = np.where(falls > 0, falls, 0.0) ** 2 / np.maximum(lengths, 1e-300)
    return gains


def _first_best(gains: Floats) -> Ints:
    """The first rule of each head whose gain is close to the largest, [head]: a rule that is better
    by chance alone does not replace a plainer one.

    gains: [head, rule].
    """
    most = gains.max(-1, keepdims=True)
    return (gains >= most - TIE * np.abs(most)).argmax(-1)


def _fit_some(sums: PairSums, allowed: Bools, rows: Ints, mixtures: Floats) -> Floats:
    """The mixtures, [head, rule], those of these heads fitted anew to the rules allowed."""
    part = PairSums(sums.rules[rows], sums.both[rows], sums.heads[rows])
    fitted = mixtures.copy()
    fitted[rows] = fit_mixtures(part, allowed[rows])
    return fitted


def _overlaps(
    samples: Sequence[ChoiceRows], mixtures: Floats, rows: Ints, overlaps: Floats
) -> Floats:
    """The overlap of each head, those of these heads computed anew, [head]."""
    after = overlaps.copy()
    for head in rows.tolist():
        after[head] = samples[head].overlap(mixtures[head])
    return after


def is_choice(number: int) -> bool:
    """Whether the text of this number within its half decides which rules stay."""
    return number % CHOICE_SHARE == CHOICE_SHARE - 1


def distance_bins(queries: Ints, count: int) -> Ints:
    """The bin of each pair's distance, [query, key]: j − i + `FARTHEST`, farther ones together."""
    offsets = np.arange(count) - queries[:, None]
    return np.clip(offsets, -FARTHEST, FARTHEST) + FARTHEST
