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
class CountedText:
    """A text that counts; its record holds what matters of it. tokens: how many it is cut into, at most what the model
    takes. hash: what decides its counts. own, name: hashes of the whole text, with the scan's seed and without."""

    record: Record
    tokens: int
    hash: int
    own: int
    name: int


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text of a batch, cut into its tokens. hash, own, name: as of `CountedText`."""

    record: Record
    tokens: tuple[Token, ...]
    hash: int
    own: int
    name: int


def batches(texts: Sequence[CountedText], heads: int) -> Iterator[list[CountedText]]:
    """The texts in batches of one length each, shortest first, in the order of (tokens, file, line)."""
    sorted_texts = sorted(texts, key=lambda text: (text.tokens, text.record.file, text.record.line))
    batch: list[CountedText] = []
    for text in sorted_texts:
        count = text.tokens
        full = batch and (
            batch[0].tokens != count
            or (len(batch) + 1) * count > MOST_TOKENS
            or (len(batch) + 1) * heads * count * count > MOST_WEIGHTS
        )
        if full:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch
