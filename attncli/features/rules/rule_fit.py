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
"""Share of the rows in which a rule must find a key of its own: in all others it gives the first
token, so that a rule that seldom finds one is the rule of the first token under another name."""
FARTHEST = 256
"""Distance from which on keys count as equally far for the mean by distance."""
DISTANCES = 2 * FARTHEST + 1
"""How many distances have a bin of their own; see `distance_bins`."""


class RuleSums:
    """Sums over the attention of texts that the fit of rules to heads needs. R_r is what rule r says,
    A a head's weights, and Σ goes over all pairs of a query and a key.

    rules: how many there are; the first of them must be that of the first token.
    arrays: the sums by name. Axis `part` is 0 for the texts that are fitted to and 1 for those that
        decide which rules stay; `kind` numbers the model's masks, since what rules say is the same
        for all layers of one mask.

        - `pairs`: Σ R_r R_s, [part, kind, rule, rule].
        - `both`: Σ R_r A, [part, head, rule].
        - `squares`: Σ A², [part, head].
        - `profile`: Σ A by distance, [head, distance].
        - `chances`: how many pairs have that distance, [kind, distance].
        - `used`: in how many rows a rule finds a key of its own, [kind, rule].
        - `rows`: how many rows there are, [kind].
    """

    def __init__(self, places: HeadKinds, rules: int) -> None:
        """Begin with sums of 0, and find the first layer of each mask, in which what rules say is
        counted for all layers of that mask.

        rules: how many there are.
        """
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
            # a rule that finds no key gives the row of rule 0, the first token
            arrays["used"][block.kind] += np.any(rules != rules[0], axis=-1).sum(-1)
            arrays["rows"][block.kind] += int(keep.sum())
        arrays["both"][part, block.heads] += flat_weights @ flat.T
        arrays["squares"][part, block.heads] += np.einsum("hp,hp->h", flat_weights, flat_weights)
        self._add_profile(block, weights, block.visible[keep], block.queries[keep])

    def _add_profile(
        self, block: PatternBlock, weights: Floats, visible: Bools, queries: Ints
    ) -> None:
        """Add a block's weights to the sums by distance.

        weights: [head, row, key].
        visible: what the rows see, [row, key].
        queries: positions, [row].
        """
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
        """Choose the rules of each head, and fit their weights to all texts of this half. Returns the
        mixture of each head, [head, rule], of sum 1, and its overlap on the rows that it was chosen
        by, [head].

        samples: these rows, of each head.
        """
        kinds = self._places.head_kinds()
        found_shares = self.arrays["used"] / np.maximum(self.arrays["rows"], 1)[:, None]
        usable = found_shares >= LEAST_USE  # [kind, rule]
        usable[:, 0] = True  # the first token is always there
        # rules are chosen with the fit to some texts of the half, part 0; then weights are fitted to
        # all, parts 0 and 1
        fitted_part = self._sums(slice(0, 1))
        both_parts = self._sums(slice(0, 2))
        chosen, overlaps = choose_rules(fitted_part, samples, usable[kinds])
        return fit_mixtures(both_parts, chosen), overlaps

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
        """The sums of each head over the texts that are fitted to (part 0), those that choose (1), or
        both, as `fit_mixtures` takes them."""
        arrays = self.arrays
        pairs = arrays["pairs"][parts].sum(0)  # [kind, rule, rule]
        return PairSums(
            rules=pairs[self._places.head_kinds()],
            both=arrays["both"][parts].sum(0),
            heads=arrays["squares"][parts].sum(0),
        )


def sum_shapes(places: HeadKinds, rules: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of `RuleSums`, by name; what their axes are stands there.

    rules: how many there are.
    """
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
    """Collects from a half of the texts what the rules of all heads are found by: sums that weights
    are fitted to, and a sample of rows that decide which rules stay.

    rules: how many there are; the first of them must be that of the first token.
    lengths: the tokens of each text.
    """

    def __init__(self, places: HeadKinds, rules: int, lengths: Sequence[int]) -> None:
        """Decide which texts of the half choose the rules, and which of their rows are kept for it.

        places: the model's heads, and the mask of each ("kind").
        rules: how many rules there are.
        lengths: the tokens of each text.
        """
        kinds = places.kind_count
        self._places = places
        self._sums = RuleSums(places, rules)
        self._choosing = {number for number in range(len(lengths)) if is_choice(number)}
        # every so many rows give some SAMPLE pairs; under a causal mask half of all pairs are seen
        pairs = sum(lengths[number] ** 2 for number in self._choosing)
        self._stride = max(-(-pairs // (2 * SAMPLE)), 1)  # rounded up
        # rows are taken in turn over all texts: of many short ones not the first row alone
        self._first_rows = np.concatenate([[0], np.cumsum(lengths)])
        # the pairs of the rows kept: by head the weights, by mask what each rule says; and how many
        # rows these are, by mask
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
        """Keep the pairs of query and key that these rows see, in one long axis: each head's weights,
        and, once for all layers of a mask, what each rule says.

        rows: which rows of the block, booleans [row].
        """
        pairs = block.visible[rows]
        heads = range(block.heads.start, block.heads.stop)
        for head, weights in zip(heads, block.weights, strict=True):
            self._head_rows[head].append(weights[rows][pairs].astype(np.float32))
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
        if not all(self._rows):  # under some mask no row is kept
            raise InputError(
                "no token of the texts that choose the rules sees two tokens",
                expected=message("longer texts"),
            )
        # by mask: what the rules say, [rule, pair], and the share of each pair's row
        rule_rows = [np.concatenate(rows, 1) for rows in self._rule_rows]
        shares = [
            np.full(said.shape[1], 1 / rows)
            for said, rows in zip(rule_rows, self._rows, strict=True)
        ]
        samples: list[ChoiceRows] = []
        kinds = self._places.head_kinds().tolist()
        for rows, kind in zip(self._head_rows, kinds, strict=True):
            samples.append(
                ChoiceRows(weights=np.concatenate(rows), rules=rule_rows[kind], shares=shares[kind])
            )
        return self._sums.choose(samples)


class ChoiceRows(Struct, frozen=True, eq=False):
    """Rows of one head that its rules are chosen by, as one long axis of their pairs of query and
    key.

    weights: the head's, [pair].
    rules: what each rule says, [rule, pair].
    shares: how much each pair's row counts in the mean over rows, [pair]: 1 ⁄ rows.
    """

    weights: Sample
    rules: Sample
    shares: Floats

    def overlap(self, mixture: Floats) -> float:
        """The overlap of the head's weights A with those of a mixture Â, 0 to 1: the mean over rows
        of Σ min(A, Â).

        mixture: the weight of each rule, [rule].
        """
        parts = np.flatnonzero(mixture)
        mixture_weights = mixture[parts].astype(np.float32) @ self.rules[parts]  # [pair]
        return float((np.minimum(self.weights, mixture_weights) * self.shares).sum())


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
    # begin with the rule that alone has the least squared error, Σ R² − 2 Σ R A + const
    heads, rules = sums.both.shape
    all_heads = np.arange(heads)
    chosen = np.zeros((heads, rules), bool)
    errors_alone = np.einsum("hrr->hr", sums.rules) - 2 * sums.both
    errors_alone[~usable] = np.inf
    chosen[all_heads, _first_best(-errors_alone)] = True
    mixtures = chosen.astype(np.float64)
    overlaps = _overlaps(samples, mixtures, all_heads, np.zeros(heads))

    # a rule that finds no key gives the first token: where the best rule says hardly more than
    # that rule, begin with the first token
    only_first = np.zeros_like(mixtures)
    only_first[:, 0] = 1.0
    first_overlaps = _overlaps(samples, only_first, all_heads, np.zeros(heads))
    begins_at_first = overlaps < first_overlaps + GAIN
    chosen[begins_at_first] = only_first[begins_at_first] > 0
    mixtures[begins_at_first] = only_first[begins_at_first]
    overlaps[begins_at_first] = first_overlaps[begins_at_first]

    # let the rule of the largest gain join each head, for all heads in step; it stays where the
    # overlap on other texts grows
    refused = np.zeros((heads, rules), bool)
    failures = np.zeros(heads, np.int64)
    # at most `TRIES` trials for each rule that a head may have
    for _ in range(MOST_RULES * TRIES):
        # the heads that go on: some rule that was not tried would lower their error
        rows = np.flatnonzero((failures < TRIES) & (chosen.sum(-1) < MOST_RULES))
        gains = _gains(sums, mixtures)
        gains[chosen | refused | ~usable] = 0.0
        rows = rows[gains[rows].max(-1) > 0]
        if not rows.size:
            break

        # fit each of them with one rule more
        entering = _first_best(gains[rows])
        trial = chosen.copy()
        trial[rows, entering] = True
        fitted = _fit_some(sums, trial, rows, mixtures)
        after = _overlaps(samples, fitted, rows, overlaps)

        # keep it where the overlap grew by enough; elsewhere it is not tried again
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
    """Drop the rules of each head that later ones have made superfluous: the one of the smallest
    weight, as long as the overlap falls by less than `GAIN`. Returns which rules are left, [head,
    rule], and the overlaps with them, [head]; changes the arrays it is given.

    chosen: the rules of each head, [head, rule].
    mixtures: their weights, [head, rule].
    overlaps: what they reach on the samples, [head].
    """
    rows = np.arange(len(chosen))
    while True:
        rows = rows[chosen[rows].sum(-1) > 1]
        if not rows.size:
            return chosen, overlaps
        # fit each head that has several without the rule of the smallest weight
        leaving = np.where(chosen[rows], mixtures[rows], np.inf).argmin(-1)
        trial = chosen.copy()
        trial[rows, leaving] = False
        fitted = _fit_some(sums, trial, rows, mixtures)
        after = _overlaps(samples, fitted, rows, overlaps)

        # drop it where little is lost; only these heads go on
        rows = rows[after[rows] > overlaps[rows] - GAIN]
        chosen[rows] = trial[rows]
        mixtures[rows] = fitted[rows]
        overlaps[rows] = after[rows]


def _gains(sums: PairSums, mixtures: Floats) -> Floats:
    """How much the squared error of each head falls at most on the way from its mixture to a rule
    alone, [head, rule]; 0 for rules that make it larger.

    sums: of the texts that are fitted to.
    mixtures: the weights of each head's rules, [head, rule].

    Along the direction d from the mixture to rule r the error is a parabola: it falls by at most
    (slope)² ⁄ ‖d‖².
    """
    with_mixture = np.einsum("hrs,hs->hr", sums.rules, mixtures)  # ⟨R_r, mixture⟩
    gradient = with_mixture - sums.both
    # half of how fast the error falls on the way to each rule, below 0 where it rises
    slopes = (gradient * mixtures).sum(-1, keepdims=True) - gradient
    mixture_squares = np.einsum("hr,hr->h", with_mixture, mixtures)[:, None]
    rule_squares = np.einsum("hrr->hr", sums.rules)
    lengths = mixture_squares - 2 * with_mixture + rule_squares  # ‖R_r − mixture‖²
    # 1e-300: a mixture that is one rule alone has no way to it, and nothing is divided by 0
    gains: Floats = np.where(slopes > 0, slopes, 0.0) ** 2 / np.maximum(lengths, 1e-300)
    return gains


def _first_best(gains: Floats) -> Ints:
    """The first rule of each head whose gain is within `TIE` of the largest, [head]. Rules are in
    order from the plainest, so that one that is better by chance alone replaces no plainer one.

    gains: [head, rule].
    """
    most = gains.max(-1, keepdims=True)
    return (gains >= most - TIE * np.abs(most)).argmax(-1)


def _fit_some(sums: PairSums, allowed: Bools, rows: Ints, mixtures: Floats) -> Floats:
    """A copy of the mixtures, [head, rule], in which some heads are fitted anew.

    allowed: which rules each head may have, [head, rule].
    rows: the heads that are fitted.
    """
    part = PairSums(sums.rules[rows], sums.both[rows], sums.heads[rows])
    fitted = mixtures.copy()
    fitted[rows] = fit_mixtures(part, allowed[rows])
    return fitted


def _overlaps(
    samples: Sequence[ChoiceRows], mixtures: Floats, rows: Ints, overlaps: Floats
) -> Floats:
    """A copy of the overlaps, [head], in which those of some heads are computed anew.

    samples: the rows that each head is compared on.
    mixtures: the weights of each head's rules, [head, rule].
    rows: the heads that are computed.
    overlaps: those so far, [head].
    """
    after = overlaps.copy()
    for head in rows.tolist():
        after[head] = samples[head].overlap(mixtures[head])
    return after


def is_choice(number: int) -> bool:
    """Whether the text of this number within its half decides which rules stay."""
    return number % CHOICE_SHARE == CHOICE_SHARE - 1


def distance_bins(queries: Ints, count: int) -> Ints:
    """The bin of each pair's distance, [query, key]: j − i + `FARTHEST`, where all that are farther
    than `FARTHEST` count as that far.

    queries: positions i, [query].
    count: how many keys j there are.
    """
    offsets = np.arange(count) - queries[:, None]
    return np.clip(offsets, -FARTHEST, FARTHEST) + FARTHEST
