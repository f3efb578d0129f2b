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
    """The cells of `--plain` on how a part varies over pairs: for the query's side, then the key's,
    the ends of the interval and the share of pairs of the same sign; None on a side that the part
    does not have."""
    cells: list[float | None] = []
    for spread in (part.query_spread, part.key_spread):
        if isinstance(spread, PairMean):
            cells += [spread.low, spread.high, spread.sign_share]
        else:
            cells += [None, None, None]
    return cells


def spread_columns(parts: Sequence[WhyPart], side: Literal["query", "key"]) -> list[list[str]]:
    """Two columns of a table of parts, as texts: the intervals of what each part adds on one side,
    and the share of the pairs in which that has the same sign; a dash where a part has neither."""
    lows: list[float | None] = []
    highs: list[float | None] = []
    shares: list[str] = []
    for part in parts:
        spread = part.key_spread
        if side == "query":
            spread = part.query_spread
        if isinstance(spread, PairMean):
            lows.append(spread.low)
            highs.append(spread.high)
            shares.append(percent(spread.sign_share))
        else:
            lows.append(None)
            highs.append(None)
            shares.append("-")
    low_texts, high_texts = effect_columns(lows, highs)
    return [[*map(range_text, low_texts, high_texts)], shares]


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
