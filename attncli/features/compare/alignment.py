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


class TokenAlignment(Struct, frozen=True):
    """Which tokens of texts A and B correspond: position a[k] with b[k], a rising, b too unless the
    texts hold the same tokens in another order.

    only_a, only_b: positions without a partner.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]


def align(a: Sequence[str], b: Sequence[str]) -> TokenAlignment:
    """Align two texts by their tokens, as a line-by-line comparison of files does.

    Each token has at most one partner and none crosses another. Equal texts align as they are, and
    texts of the same tokens in another order align token by token, equal ones in their order.
    Source: Ratcliff and Metzener, 1988, as in Python's difflib.
    """
    if list(a) == list(b):
        everything = tuple(range(len(a)))
        return TokenAlignment(a=everything, b=everything, only_a=(), only_b=())
    if Counter(a) == Counter(b):
        # of each token's text its positions in B, the last first, so that `pop` gives the first one left
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index in range(len(b) - 1, -1, -1):
            places[b[index]].append(index)
        return TokenAlignment(
            a=tuple(range(len(a))), b=tuple(places[text].pop() for text in a), only_a=(), only_b=()
        )
    blocks = SequenceMatcher(a=list(a), b=list(b), autojunk=False).get_matching_blocks()
    pairs = [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]
    indices_a = tuple(index for index, _ in pairs)
    indices_b = tuple(index for _, index in pairs)
    return TokenAlignment(
        a=indices_a,
        b=indices_b,
        only_a=tuple(sorted({*range(len(a))} - {*indices_a})),
        only_b=tuple(sorted({*range(len(b))} - {*indices_b})),
    )


def with_substitutions(pairs: TokenAlignment, sides: Sequence[TextTokens]) -> TokenAlignment:
    """Add to an alignment of equal tokens each word that is replaced by another: "cat" and "dog"
    between the same neighbours become partners, token by token, where both have as many tokens.

    sides: the tokens and the text of A and of B.
    """
    order = list(zip(pairs.a, pairs.b, strict=True))
    if any(right <= left for (_, left), (_, right) in pairwise(order)):
        return pairs  # the same tokens in another order: nothing is replaced
    (tokens_a, text_a), (tokens_b, text_b) = sides
    starts_a = set(word_starts(tokens_a, text_a))
    starts_b = set(word_starts(tokens_b, text_b))

    # the gaps between neighbouring pairs of equal tokens, and before the first and after the last
    ends = [(-1, -1), *order, (len(tokens_a), len(tokens_b))]
    new: list[tuple[int, int]] = []
    for (before_a, before_b), (after_a, after_b) in pairwise(ends):
        gap_a = range(before_a + 1, after_a)
        gap_b = range(before_b + 1, after_b)
        if len(gap_a) != len(gap_b):
            continue
        if _is_word(gap_a, starts_a, tokens_a, text_a) and _is_word(
            gap_b, starts_b, tokens_b, text_b
        ):
            new += zip(gap_a, gap_b, strict=True)

    partners = sorted([*order, *new])
    return TokenAlignment(
        a=tuple(first for first, _ in partners),
        b=tuple(second for _, second in partners),
        only_a=tuple(sorted(set(pairs.only_a) - {first for first, _ in new})),
        only_b=tuple(sorted(set(pairs.only_b) - {second for _, second in new})),
    )


def _is_word(places: range, starts: set[int], tokens: Sequence[Token], text: str) -> bool:
    """Whether these tokens are one word: they begin one, and no other begins among them, or they are
    written without a blank between, as words of Chinese are. False for no tokens.

    starts: the tokens with which words begin.
    """
    if not places or places.start not in starts:
        return False
    return not starts.intersection(places[1:]) or _is_written_as_one(tokens, places, text)


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
    # the words of either side, each as a run of tokens, and which of them are equal
    units = [_words(*side) for side in sides]
    if query is not None:
        units = _with_query(units, sides, query)
    names = [
        [_covered_text(tokens, run, text) for run in runs]
        for runs, (tokens, text) in zip(units, sides, strict=True)
    ]
    pairs = align(*names)
    order = list(zip(pairs.a, pairs.b, strict=True))
    # no word in common, or the same words in another order: nothing stands in another's place
    if not order or any(right <= left for (_, left), (_, right) in pairwise(order)):
        return [[], []]

    # which tokens would be compared if none were joined
    by_token = align(*([token.text for token in tokens] for tokens, _ in sides))
    partners = with_substitutions(by_token, sides)
    partner_of = dict(zip(partners.a, partners.b, strict=True))

    # words in each other's place that cannot be compared token by token are joined on both sides
    joined: list[list[range]] = [[], []]
    for runs in _corresponding_words(units, order):
        places = [range(run[0].start, run[-1].stop) for run in runs]
        # what replaces a word may be several words by the tokenizer, where a script has no spaces
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
    """Whether a word of A and one of B can be compared token by token: both are single tokens, their
    tokens are equal, or each token of one is aligned with that of the other.

    places: the tokens of the word of A, and of that of B.
    partner_of: for tokens of A, the token of B that each is aligned with.
    sides: the tokens and the text of A and of B.
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
    """Yield the words of A and of B that stand in each other's place: equal words one by one, and
    between two of these all words of either side, where both have some.

    units: the words of A and of B, each as its run of tokens.
    order: the numbers of equal words in A and B, rising.
    """
    ends = [(-1, -1), *order, (len(units[0]), len(units[1]))]
    for before, after in pairwise(ends):
        gap = [
            side[start + 1 : stop] for side, start, stop in zip(units, before, after, strict=True)
        ]
        if all(gap):
            yield gap
        if after != ends[-1]:  # the last is the end of both texts, and no word
            yield [side[place : place + 1] for side, place in zip(units, after, strict=True)]


def _words(tokens: Sequence[Token], text: str) -> list[range]:
    """The runs of tokens that make up each word of a text, in order."""
    starts = [*word_starts(tokens, text), len(tokens)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def _with_query(
    units: Sequence[list[range]], sides: Sequence[TextTokens], query: str
) -> list[list[range]]:
    """The words of both sides; where only one side has the query, its tokens there become one word,
    if they are short enough for one, so that the query can be compared as a whole.

    units: the words of A and of B, each as its run of tokens.
    """
    # the query's tokens on either side; none on a side without it
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
    """Whether these tokens cover letters alone without a blank between, at most `LONGEST_WORD`: of a
    script without spaces, longer runs are no single word."""
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
