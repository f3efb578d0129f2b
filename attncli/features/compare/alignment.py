"""Which tokens of two texts correspond: the longest runs of equal tokens, and words in each other's
place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from msgspec import Struct

from attncli.errors import InputError
from attncli.inputs.token import Token, find_span
from attncli.inputs.word_groups import word_starts

TextTokens = tuple[Sequence[Token], str]
"""The tokens of a text, and the text."""
LONGEST_WORD = 4
"""Letters of a word of a script without spaces: of the words of several characters that Chinese
dictionaries list, nearly all have two to four. What is longer is rather a clause."""


class Alignment(Struct, frozen=True):
    """Which tokens of texts A and B correspond: position a[k] with b[k], a rising, b too unless the
    texts hold the same tokens in another order.

    only_a, only_b: positions without a partner.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]


def align(a: Sequence[str], b: Sequence[str]) -> Alignment:
    """Align two texts by their tokens, as a line-by-line comparison of files does.

    Each token has at most one partner and none crosses another. Equal texts align as they are, and
    texts of the same tokens in another order align token by token, equal ones in their order.
    Source: Ratcliff and Metzener, 1988, as in Python's difflib.
    """
    if list(a) == list(b):
        everything = tuple(range(len(a)))
        return Alignment(everything, everything, (), ())
    if Counter(a) == Counter(b):
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index in range(len(b) - 1, -1, -1):
            places[b[index]].append(index)
        return Alignment(tuple(range(len(a))), tuple(places[text].pop() for text in a), (), ())
    blocks = SequenceMatcher(None, list(a), list(b), autojunk=False).get_matching_blocks()
    pairs = [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]
    indices_a = tuple(pair[0] for pair in pairs)
    indices_b = tuple(pair[1] for pair in pairs)
    return Alignment(
        indices_a,
        indices_b,
        tuple(sorted({*range(len(a))} - {*indices_a})),
        tuple(sorted({*range(len(b))} - {*indices_b})),
    )


def with_substitutions(pairs: Alignment, sides: Sequence[TextTokens]) -> Alignment:
    """The alignment with each replaced word paired with its replacement, token by token; only where
    both have as many tokens and stand between the same neighbours.

    sides: A and B.
    """
    order = list(zip(pairs.a, pairs.b, strict=True))
    if any(right <= left for (_, left), (_, right) in pairwise(order)):
        return pairs  # the same tokens in another order: nothing is replaced
    starts = [set(word_starts(*side)) for side in sides]
    ends = [(-1, -1), *order, (len(sides[0][0]), len(sides[1][0]))]
    new: list[tuple[int, int]] = []
    for (before_a, before_b), (after_a, after_b) in pairwise(ends):
        gaps = (range(before_a + 1, after_a), range(before_b + 1, after_b))
        is_word = all(
            gap
            and gap.start in inside
            and (not inside.intersection(gap[1:]) or _is_written_as_one(tokens, gap, text))
            for gap, inside, (tokens, text) in zip(gaps, starts, sides, strict=True)
        )
        if is_word and len(gaps[0]) == len(gaps[1]):
            new += zip(*gaps, strict=True)
    every = sorted([*order, *new])
    return Alignment(
        tuple(first for first, _ in every),
        tuple(second for _, second in every),
        tuple(sorted(set(pairs.only_a) - {first for first, _ in new})),
        tuple(sorted(set(pairs.only_b) - {second for _, second in new})),
    )


def _is_written_as_one(tokens: Sequence[Token], places: range, text: str) -> bool:
    """Whether these tokens, each the start of a word, cover letters alone without a blank between,
    as a word of several Chinese characters does."""
    start, end = tokens[places[0]].start, tokens[places[-1]].end
    return None not in (start, end) and text[start:end].strip().isalpha()


def replaced_words(sides: Sequence[TextTokens], query: str | None = None) -> list[list[range]]:
    """For either side, the runs of tokens to join into one word, so that replaced words can be
    compared: words with different numbers of tokens, or whose pieces would pair across words.

    Args:
        sides: A and B.
        query: A word asked for; one that stands in one of the texts alone is one word there.

    Returns:
        For A and B as many runs, in the order of the text; the k-th of A stands where that of B
        does.
    """
    units = [_words(*side) for side in sides]
    if query is not None:
        units = _with_query(units, sides, query)
    names = [
        [_covered_text(tokens, run, text) for run in runs]
        for runs, (tokens, text) in zip(units, sides, strict=True)
    ]
    pairs = align(*names)
    order = list(zip(pairs.a, pairs.b, strict=True))
    if not order or any(right <= left for (_, left), (_, right) in pairwise(order)):
        return [[], []]
    by_token = align(*([token.text for token in tokens] for tokens, _ in sides))
    partners = with_substitutions(by_token, sides)
    partner_of = dict(zip(partners.a, partners.b, strict=True))
    joined: list[list[range]] = [[], []]
    for runs in _corresponding_words(units, order):
        places = [range(run[0].start, run[-1].stop) for run in runs]
        is_word = all(
            len(run) == 1 or _is_short_word(tokens, place, text)
            for run, place, (tokens, text) in zip(runs, places, sides, strict=True)
        )
        if is_word and not _is_token_by_token(places, partner_of, sides):
            for side, place in zip(joined, places, strict=True):
                side.append(place)
    return joined


def _is_token_by_token(
    places: Sequence[range], partner_of: Mapping[int, int], sides: Sequence[TextTokens]
) -> bool:
    """Whether two words can be compared token by token: single tokens, equal tokens, or as many as
    are partners of each other.

    partner_of: the token of B to a token of A.
    """
    if max(map(len, places)) == 1:
        return True
    spelled = [
        [token.text for token in tokens[place.start : place.stop]]
        for place, (tokens, _) in zip(places, sides, strict=True)
    ]
    if spelled[0] == spelled[1]:
        return True
    if len(places[0]) != len(places[1]):
        return False
    return all(partner_of.get(a) == b for a, b in zip(*places, strict=True))


def _corresponding_words(
    units: Sequence[Sequence[range]], order: Sequence[tuple[int, int]]
) -> Iterator[list[Sequence[range]]]:
    """Yield the words of A and of B that stand in each other's place: equal ones, then those
    between two equal ones.

    order: the numbers of equal words, rising.
    """
    ends = [(-1, -1), *order, (len(units[0]), len(units[1]))]
    for before, after in pairwise(ends):
        gap = [
            side[start + 1 : stop] for side, start, stop in zip(units, before, after, strict=True)
        ]
        if all(gap):
            yield gap
        if after != ends[-1]:
            yield [side[place : place + 1] for side, place in zip(units, after, strict=True)]


def _words(tokens: Sequence[Token], text: str) -> list[range]:
    """The tokens of each word of a text."""
    return [range(*ends) for ends in pairwise([*word_starts(tokens, text), len(tokens)])]


def _with_query(
    units: Sequence[list[range]], sides: Sequence[TextTokens], query: str
) -> list[list[range]]:
    """The words of both sides; where only one side has the query as a word, its tokens are joined
    on that side too.
    """
    places: list[range] = []
    for tokens, _ in sides:
        try:
            span = find_span(tokens, query)
        except InputError:
            places.append(range(0))
        else:
            places.append(range(span.first, span.stop))
    if all(places):
        return list(units)
    changed: list[list[range]] = []
    for runs, place, (tokens, text) in zip(units, places, sides, strict=True):
        if len(place) > 1 and _is_short_word(tokens, place, text):
            outside = [run for run in runs if run.stop <= place.start or run.start >= place.stop]
            changed.append(sorted([*outside, place], key=lambda run: run.start))
        else:
            changed.append(runs)
    return changed


def _is_short_word(tokens: Sequence[Token], places: range, text: str) -> bool:
    """Whether these tokens cover letters alone without a blank between, few enough for a word."""
    if not _is_written_as_one(tokens, places, text):
        return False
    return len(_covered_text(tokens, places, text)) <= LONGEST_WORD


def _covered_text(tokens: Sequence[Token], places: range, text: str) -> str:
    """The part of the text that these tokens cover, without blanks around it; for special tokens,
    their own texts."""
    start, end = tokens[places[0]].start, tokens[places[-1]].end
    if start is None or end is None:
        return "".join(tokens[place].text for place in places)
    return text[start:end].strip()
