"""The sentence itself, each word tinted by how much it is looked at: the shortest answer there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attncli.draw.headings import FAINT, remark
from attncli.draw.lines import Line, Lines, Piece, fit_to_view, stack
from attncli.draw.palette import tint
from attncli.draw.safe import cells, clusters, cut, label, safe, spell
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.token_names import MARK
from attncli.draw.view import View
from attncli.language import say

if TYPE_CHECKING:
    from attncli.documents.parts import TokenRow
    from attncli.features.compare.document import ComparedHead, CompareDocument
    from attncli.features.cross.document import CrossDocument
    from attncli.inputs.token import Token


LEAST = 0.05
"""The smallest share that is tinted; below it a word is left as it is."""
MARKS, MARKS_ASCII = "░▒▓█", ".:*#"
"""What stands on both sides of a word where there is no colour, for shares from `LEAST`, 0.25, 0.5, 0.75."""
WINDOW = 120
"""Words that are shown unless the view is full; of a longer text, those around what matters."""
AROUND = 6
"""Words kept on either side of one that matters."""


@dataclass(frozen=True)
class Word:
    """One word of a sentence. text: as it is to be read, with its blanks gone. apart: whether a blank precedes it.

    share: what is looked at it, 0 to 1, None if unknown. is_chosen: whether it is the one that looks. quiet: a token
    that is not part of the text, such as [CLS]. is_joined: whether it stands for the same character as the word
    before.
    """

    text: str
    share: float | None = None
    is_chosen: bool = False
    apart: bool = True
    quiet: bool = False
    is_joined: bool = False


def words(
    text: str | None, tokens: Sequence[TokenRow | Token], shares: Sequence[float | None], chosen_indices: frozenset[int]
) -> list[Word]:
    """The tokens as words of the sentence, spelled as the text spells them where they tell their places."""
    words_of_text: list[Word] = []
    end, after = 0, True
    for token, share in zip(tokens, shares, strict=True):
        start, stop = token.start, token.end
        word_text, apart, is_joined = token.text.strip() or token.text, True, False
        if text is not None and start is not None and stop is not None and start < stop and not token.special:
            is_joined = start < end and stop <= end and not after
            if end <= start:
                word_text = text[start:stop].strip() or text[start:stop]
                apart = after or start > end or text[start].isspace()
                end, after = stop, False
            elif not is_joined:
                after = True
        else:
            after = True
        word_text = word_text.removesuffix(MARK) + MARK if token.unknown else word_text
        words_of_text.append(
            Word(word_text or '""', share, token.index in chosen_indices, apart, bool(token.special), is_joined)
        )
    return words_of_text


def _merge_words(words: Sequence[Word]) -> list[Word]:
    """Bytes as the characters that they make, with the largest of their shares; blanks that nothing looks at as the
    gaps that they are."""
    whole_words: list[Word] = []
    gap = False
    for word in words:
        if word.is_joined and whole_words:
            before = whole_words[-1]
            share = max((value for value in (before.share, word.share) if value is not None), default=None)
            whole_words[-1] = replace(before, share=share, is_chosen=before.is_chosen or word.is_chosen)
        elif word.text.isspace() and not word.is_chosen and (word.share or 0.0) < LEAST:
            gap = True
        else:
            word_text = label(word.text) if word.text.isspace() else word.text
            whole_words.append(replace(word, text=word_text, apart=word.apart or gap))
            gap = False
    return whole_words


def sentence(words: Sequence[Word], view: View) -> Lines:
    """The words one after the other, broken to the view's width, tinted by their share; the chosen ones in brackets.

    Without colour, `MARKS` stand on both sides of a word in place of its tint. A text of more than `WINDOW` words is
    shortened to those around the chosen ones and the strongest. No words: no lines.
    """
    words = _merge_words(words)
    rows: list[Line] = []
    row: list[Piece] = []
    row_width = 0
    before, gap_mark = -1, spell(" … ", ascii=view.ascii)
    places = _places_to_show(words, view)
    place_set = frozenset(places)
    for place in places:
        word = words[place]
        has_gap, first = place != before + 1, before < 0
        before = place
        opens = word.is_chosen and (has_gap or not (place and words[place - 1].is_chosen))
        closes = word.is_chosen and (place + 1 not in place_set or not words[place + 1].is_chosen)
        pieces = [*([(gap_mark[first:], FAINT)] if has_gap else []), *_word_pieces(word, view, opens, closes)]
        gap = 1 if row and word.apart and not has_gap else 0
        size = sum(cells(text) for text, _ in pieces)
        if row and row_width + gap + size > view.width:
            rows.append(tuple(row))
            row, row_width, gap = [], 0, 0
        row += [*([(" ", "")] if gap else []), *pieces]
        row_width += gap + size
    if places and before + 1 < len(words) and row_width + cells(gap_mark) - 1 <= view.width:
        row.append((gap_mark[:-1], FAINT))
    elif places and before + 1 < len(words):
        rows, row = [*rows, tuple(row)], [(gap_mark.strip(), FAINT)]
    return fit_to_view(Lines((*rows, tuple(row)) if row else tuple(rows)), view)


def _places_to_show(words: Sequence[Word], view: View) -> list[int]:
    """Places of the words to show."""
    if view.full or len(words) <= WINDOW:
        return list(range(len(words)))
    order = sorted(
        range(len(words)), key=lambda place: (not words[place].is_chosen, -(words[place].share or 0.0), place)
    )
    places: set[int] = set()
    for place in order:
        near = set(range(max(place - AROUND, 0), min(place + AROUND + 1, len(words))))
        if len(places | near) > WINDOW // 2:
            break
        places |= near
    return sorted(places)


def _word_pieces(word: Word, view: View, opens: bool, closes: bool) -> list[Piece]:
    """A word's pieces; a bracket before the first of chosen words in a row, and one after the last."""
    text = _fitting(safe(word.text, ascii=view.ascii), view)
    faint = FAINT if word.quiet else ""
    if word.is_chosen:
        inner = _tint_word(text, word.share, view, "bold")
        return [*([("[", "bold")] if opens else []), *inner, *([("]", "bold")] if closes else [])]
    return _tint_word(text, word.share, view, faint)


def _tint_word(text: str, share: float | None, view: View, style: str) -> list[Piece]:
    if share is None or share < LEAST:
        return [(text, style)]
    if view.color:
        return [(text, f"{style.replace(FAINT, '')} {tint(share, light=view.light)}".strip())]
    mark = (MARKS_ASCII if view.ascii else MARKS)[min(int(share * 4), 3)]
    return [(f"{mark}{text}{mark}", style)]


def _fitting(text: str, view: View) -> str:
    """A word no wider than a line, with room for what stands around it."""
    room = max(view.width - 4, 1)
    return text if cells(text) <= room or not list(clusters(text)) else cut(text, room, ascii=view.ascii)


def scale(view: View) -> Lines:
    """The tints from 0 to 1, for a legend."""
    steps = (0.0, 0.25, 0.5, 0.75, 1.0)
    if view.color:
        ramp: list[Piece] = [("  ", tint(step, light=view.light) if step else "") for step in steps]
    else:
        ramp = [(mark, "") for mark in (MARKS_ASCII if view.ascii else MARKS)]
    return fit_to_view(Lines((((f"{LEAST:.2f} ", FAINT), *ramp, (" 1", FAINT)),)), view)


if __name__ == "__main__":
    from attncli.draw.lines import show

    text = ["The", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
    shares = (0, 0.65, 0, 0.02, 0, 0.12, 0.05, 0, 0, 0, 0.3)
    sample = [Word(word, share, word == "it") for word, share in zip(text, shares, strict=True)]
    show(sentence(sample, View(color=True)), sentence(sample, View()), sentence(sample, View(ascii=True)))


# The sentence above an answer, its words tinted by numbers of the document: by a query's weights, or by what moved.


def shaded_sentence(
    text: str | None,
    tokens: Sequence[TokenRow],
    shares: Iterable[float] | None,
    view: View,
    *,
    query: int | Iterable[int] | None,
    tint: str,
    values: Sequence[object] = (),
) -> Lines:
    """The text's words, tinted by their shares, the queries in brackets, and what the tint says. tint: its phrase,
    values: what stands in its places. Shares past the tokens (learned keys) are left out; words without a share stay as
    they are. shares: None where nothing tells any; then no tint is explained either."""
    known_shares = [float(share) for share in np.nan_to_num([] if shares is None else list(shares))][: len(tokens)]
    all_shares = [*known_shares, *[None] * (len(tokens) - len(known_shares))]
    chosen_indices = frozenset() if query is None else frozenset({query} if isinstance(query, int) else query)
    tint_note = say(view, tint, *values) if any(share >= LEAST for share in known_shares) else ""
    return stack((sentence(words(text, tokens, all_shares, chosen_indices), view), remark(tint_note, view)))


def shaded_cross_texts(document: CrossDocument, view: View) -> Lines:
    """Both texts: the query of the strongest link in brackets, the keys tinted by that head's weights."""
    link = document.links[0]
    layer = next(entry for entry in document.layers if entry.layer == link.layer)
    head = next(entry for entry in layer.heads if entry.head == link.head)
    no_shares: list[float | None] = [None] * len(document.queries)
    query_sentence = sentence(words(document.query_text, document.queries, no_shares, frozenset({link.query})), view)
    row = as_matrix(head.weights)[link.query]
    keys = shaded_sentence(document.key_text, document.keys, row, view, query=None, tint="answer.tint.row")
    return stack((query_sentence, keys))


def shaded_comparison(document: CompareDocument, head: ComparedHead, query: int, view: View) -> Lines:
    """The text of A: the query of the weight that moved most in brackets, each word tinted by how far its own
    moved."""
    places = [index_a for index_a, _ in document.aligned]
    differences = np.zeros(len(document.a.tokens))
    differences[places] = np.abs(np.nan_to_num(as_matrix(head.difference)[places.index(query)]))[: len(places)]
    return shaded_sentence(document.a.text, document.a.tokens, differences, view, query=query, tint="answer.tint.moved")
