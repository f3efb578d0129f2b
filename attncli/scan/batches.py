"""Batches of texts with equal token counts: nothing is padded, so nothing is computed for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attncli.inputs.token import Token
from attncli.scan.corpus import Record

MOST_TOKENS = 2048
"""Tokens of a batch, at most, unless one text has more."""
MOST_WEIGHTS = 12_600_000
"""Weights of a layer of a batch (texts · heads · tokens²), at most, unless one text has more."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A text and its tokens. truncated: whether tokens were taken off its end. hash: what decides its counts."""

    record: Record
    tokens: tuple[Token, ...]
    truncated: bool
    hash: int


def batches(texts: Sequence[Cut], heads: int) -> Iterator[list[Cut]]:
    """The texts in batches of one length each, shortest first, in the order of (tokens, file, line)."""
    ordered = sorted(texts, key=lambda cut: (len(cut.tokens), cut.record.file, cut.record.line))
    held: list[Cut] = []
    for cut in ordered:
        count = len(cut.tokens)
        full = held and (
            len(held[0].tokens) != count
            or (len(held) + 1) * count > MOST_TOKENS
            or (len(held) + 1) * heads * count * count > MOST_WEIGHTS
        )
        if full:
            yield held
            held = []
        held.append(cut)
    if held:
        yield held
