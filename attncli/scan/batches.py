"""Batches of texts with equal token counts: nothing is padded, so nothing is computed for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attncli.inputs.token import Token
from attncli.scan.corpus import Record

MOST_TOKENS = 1024
"""Tokens of a batch, at most, unless one text has more."""
MOST_WEIGHTS = 6_300_000
"""Weights of a layer of a batch (texts · heads · tokens²), at most, unless one text has more."""


@dataclass(frozen=True, eq=False)
class Counted:
    """A text that counts; its record holds what matters of it. tokens: how many it is cut into, at most what the model
    takes. hash: what decides its counts. own, name: hashes of the whole text, with the scan's seed and without."""

    record: Record
    tokens: int
    hash: int
    own: int
    name: int


@dataclass(frozen=True, eq=False)
class Cut:
    """A text of a batch, cut into its tokens. hash, own, name: as of `Counted`."""

    record: Record
    tokens: tuple[Token, ...]
    hash: int
    own: int
    name: int


def batches(texts: Sequence[Counted], heads: int) -> Iterator[list[Counted]]:
    """The texts in batches of one length each, shortest first, in the order of (tokens, file, line)."""
    ordered = sorted(texts, key=lambda text: (text.tokens, text.record.file, text.record.line))
    held: list[Counted] = []
    for text in ordered:
        count = text.tokens
        full = held and (
            held[0].tokens != count
            or (len(held) + 1) * count > MOST_TOKENS
            or (len(held) + 1) * heads * count * count > MOST_WEIGHTS
        )
        if full:
            yield held
            held = []
        held.append(text)
    if held:
        yield held
