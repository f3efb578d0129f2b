"""What the screen of `attn why --pairs` says besides: intervals of what parts add, and over how many
pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from attncli.draw.numbers import percent
from attncli.draw.view import View
from attncli.features.effects.difference_answer import interval_text, pairs_sentences
from attncli.features.effects.effect_answer import effect_columns, range_text
from attncli.features.why.document import PairMean, PairReasons, WhyPart
from attncli.language import say

SPREAD_NAMES = tuple(
    f"{side}_{name}" for side in ("query", "key") for name in ("low", "high", "sign_share")
)
"""What `--plain` tells of means over pairs besides."""


def spread_cells(part: WhyPart) -> list[float | None]:
    """The cells of `SPREAD_NAMES` of a part."""
    cells: list[float | None] = []
    for spread in (part.query_spread, part.key_spread):
        if isinstance(spread, PairMean):
            known = spread
        else:
            known = None
        cells += [None] * 3 if known is None else [known.low, known.high, known.sign_share]
    return cells


def spread_columns(parts: Sequence[WhyPart], side: Literal["query", "key"]) -> list[list[str]]:
    """Two columns: the intervals of what parts add on one side, and the share of the pairs of the
    same sign."""
    spreads = [part.query_spread if side == "query" else part.key_spread for part in parts]
    known = [spread if isinstance(spread, PairMean) else None for spread in spreads]
    lows, highs = effect_columns(
        [None if spread is None else spread.low for spread in known],
        [None if spread is None else spread.high for spread in known],
    )
    shares = ["-" if spread is None else percent(spread.sign_share) for spread in known]
    return [[*map(range_text, lows, highs)], shares]


def pair_reason_sentences(reasons: PairReasons | UnsetType, view: View) -> Iterator[str]:
    """Yield over which pairs a score is explained, how the link's weight changes in the corrupt
    texts, and what the weights of parts mean; nothing of a single text."""
    if reasons is UNSET:
        return
    yield from pairs_sentences(reasons.measured, view)
    yield say(
        view,
        "All numbers are means over pairs. The link weighs {clean}{interval} in the clean texts and"
        " {corrupt} at the same places in the corrupt ones.",
        clean=f"{reasons.weight.mean:.2f}",
        interval=interval_text(reasons.weight.low, reasons.weight.high, view),
        corrupt=f"{reasons.corrupt.mean:.2f}",
    )
    yield say(
        view,
        "A weight interchanged is the link's in the clean text with that part as it is in the"
        " corrupt one, exactly.",
    )
