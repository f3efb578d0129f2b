"""Which characters of a text each piece of a vocabulary covers, by one rule for all kinds of
vocabularies.

Spans tile the text: they follow one another, every character that the tokenizer keeps lies in
one, and no two share one, apart from the pieces of a single character, which all have its span.
A library's own offsets do not: a blank that it puts before a text claims the first letter, a
character that it composes of two covers the first of them alone, and a run of blanks covers one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from attncli.inputs.graphemes import clusters


class PieceSpan(Struct, frozen=True):
    """The characters [start, end) that a piece covers; none where both are equal.

    first: where the blanks begin that the piece has before them; `start` where it has none.
    is_shared: whether another piece has a part of the same characters.
    """

    start: int
    end: int
    first: int
    is_shared: bool = False


def place_pieces(
    text: str, offsets: Sequence[tuple[int, int]], blank: Sequence[bool]
) -> list[PieceSpan]:
    """The span of each piece of a text.

    Args:
        text: The text.
        offsets: For each piece the characters [start, end) that the library says it comes of, in
            order.
        blank: For each piece whether it spells nothing but blanks.

    Returns:
        A span for each piece, in order.
    """
    spans = [
        _span_of_piece(text, number, offsets, is_blank) for number, is_blank in enumerate(blank)
    ]
    if not text.isascii():  # which has no combining marks
        spans = _extend_to_marks(text, spans)
    shared = _pieces_that_share(spans)
    return [
        replace(span, is_shared=True) if number in shared else span
        for number, span in enumerate(spans)
    ]


def _span_of_piece(
    text: str, number: int, offsets: Sequence[tuple[int, int]], is_blank: bool
) -> PieceSpan:
    """The span of one piece, without the blanks before its first letter.

    number: which piece.
    offsets: of all pieces, as the library says.
    is_blank: whether the piece spells nothing but blanks.
    """
    first, end = offsets[number]
    if is_blank:
        next_start = next_end = end  # of the next piece; behind the last one there is nothing
        if number + 1 < len(offsets):
            next_start, next_end = offsets[number + 1]
        if next_start < end and next_start < next_end:
            # a blank that the tokenizer put before the text: the character belongs to the next piece
            end = first
        return PieceSpan(first, end, first)
    start = first
    while start < end - 1 and text[start] == " ":
        start += 1
    return PieceSpan(start, end, first)


def _extend_to_marks(text: str, spans: Sequence[PieceSpan]) -> list[PieceSpan]:
    """Extend each span to the end of its last character as a reader sees it: over the combining
    marks that follow and that no other piece covers."""
    # from the last piece to the first, so that it is known where the next piece's characters begin
    extended = list(spans)
    following = len(text)
    for number in reversed(range(len(spans))):
        span = spans[number]
        if span.start == span.end:
            continue
        # a next piece that shares this one's characters is no border: the one known so far holds
        if number + 1 < len(spans) and spans[number + 1].start >= span.end:
            following = spans[number + 1].start
        if span.end < following:
            end = _character_end(text, span, following)
            extended[number] = replace(span, end=end)
    return extended


def _character_end(text: str, span: PieceSpan, following: int) -> int:
    """Where the last character of a span ends, as a reader sees characters: with its combining
    marks, which may reach as far as the index `following`, exclusive."""
    size = span.end - span.start
    for _, stop in clusters(text[span.start : following]):
        if stop >= size:
            return span.start + stop
    return span.end


def _pieces_that_share(spans: Sequence[PieceSpan]) -> set[int]:
    """The numbers of the pieces that share a character with a neighbour."""
    numbers: set[int] = set()
    last = None
    for number, span in enumerate(spans):
        if span.start == span.end:
            continue
        if last is not None and span.start < spans[last].end:
            numbers |= {last, number}
        last = number
    return numbers
