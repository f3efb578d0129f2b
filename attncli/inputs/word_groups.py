"""Words from pieces: weights between tokens merged into weights between words.

Source: Clark et al., What does BERT look at?, 2019: attention *to* a word is the sum over its
pieces, attention *from* it the mean over its pieces, so that rows still sum to 1.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.inputs.token import Token
from attncli.inputs.tokenize import words
from attncli.language import listing, message

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
UNSPACED = ("CJK ", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI SYLLABLE")
"""Scripts that write no spaces: their tokens stay apart, as nothing on the page says where words
end.
"""


class Words(Struct, frozen=True, eq=False):
    """The words that runs of tokens make up.

    words: each as one token, indexed among the words.
    starts: the index of each word's first token.
    count: tokens of the text; rows and columns behind these (of learned keys) belong to no word.
    """

    words: tuple[Token, ...]
    starts: Ints
    count: int

    @property
    def sizes(self) -> Ints:
        """How many tokens each word has."""
        return np.diff(np.append(self.starts, self.count))

    def merge(self, weights: Floats) -> Floats:
        """Attention weights [..., token, token] as [..., word, word]: summed over a word's keys,
        averaged over its queries that see anything."""
        token_weights = np.asarray(weights, np.float64)[..., : self.count]
        # [..., token, word]; then how many tokens of each word see anything, [..., word]
        to_words = np.add.reduceat(token_weights, self.starts, axis=-1)
        sees_anything = (token_weights.sum(-1) > 0).astype(np.float64)
        query_counts = np.add.reduceat(sees_anything, self.starts, axis=-1)
        sums = np.add.reduceat(to_words, self.starts, axis=-2)
        # a word of which no token sees anything has sums of 0, and keeps them
        word_weights: Floats = sums / np.maximum(query_counts, 1)[..., None]
        return word_weights

    def average(self, rows: Any) -> Floats:
        """Token vectors, [token, dim], averaged over the tokens of each word: [word, dim]."""
        vectors = np.asarray(rows, np.float64)[: self.count]
        sums = np.add.reduceat(vectors, self.starts, axis=0)
        means: Floats = sums / self.sizes[:, None]
        return means

    def merge_visible(self, visible: Bools) -> Bools:
        """Visibility [..., token, token] as [..., word, word]: whether any piece sees any piece."""
        by_key_word = np.logical_or.reduceat(visible[..., : self.count], self.starts, axis=-1)
        return np.logical_or.reduceat(by_key_word, self.starts, axis=-2)


class WordsOfTwo(Struct, frozen=True, eq=False):
    """The words of two texts, of which one (`queries`) looks at the other (`keys`)."""

    queries: Words
    keys: Words

    def merge(self, weights: Floats) -> Floats:
        """Weights [..., query token, key token] as [..., query word, key word]: summed over a word's
        keys, averaged over its queries that see anything. Learned keys count for queries alone."""
        token_weights = np.asarray(weights, np.float64)
        # learned keys, which stand behind those of the text, are no words; a query that sees only
        # them counts in the average all the same
        of_text = token_weights[..., : self.keys.count]
        to_words = np.add.reduceat(of_text, self.keys.starts, axis=-1)
        starts = self.queries.starts
        sees_anything = (token_weights.sum(-1) > 0).astype(np.float64)
        query_counts = np.add.reduceat(sees_anything, starts, axis=-1)
        sums = np.add.reduceat(to_words, starts, axis=-2)
        # a word of which no token sees anything has sums of 0, and keeps them
        word_weights: Floats = sums / np.maximum(query_counts, 1)[..., None]
        return word_weights

    def merge_visible(self, visible: Bools) -> Bools:
        """Visibility [..., query token, key token] as [..., query word, key word]: whether any piece
        of the one sees any piece of the other."""
        of_text = visible[..., : self.keys.count]
        by_key_word = np.logical_or.reduceat(of_text, self.keys.starts, axis=-1)
        return np.logical_or.reduceat(by_key_word, self.queries.starts, axis=-2)


def word_starts(tokens: Sequence[Token], text: str) -> list[int]:
    """The index of the first token of each word that tokens of a text make up.

    Two neighbouring tokens belong to one word when their spans touch or overlap within a word of
    the text, as WordPiece, byte-level and SentencePiece tokens do; special tokens, tokens without a
    span, and tokens of scripts without spaces stay by themselves.
    """
    spans = list(words(text))
    starts = [start for start, _ in spans]
    return [
        token_index
        for token_index, token in enumerate(tokens)
        if token_index == 0
        or not _continues_word(tokens[token_index - 1], token, text, spans, starts)
    ]


def merged_words(tokens: Sequence[Token], text: str) -> Words:
    """The words that the tokens of a text make up: neighbouring tokens whose characters touch
    within a word of the text become one; special tokens stay by themselves."""
    starts = word_starts(tokens, text)
    ends = [*starts, len(tokens)][1:]
    word_tokens: list[Token] = []
    for index, (first, stop) in enumerate(zip(starts, ends, strict=True)):
        piece = tokens[first]
        last = tokens[stop - 1]
        # (of a pair's second text, part 1, offsets count in that text, which is not `text`)
        if piece.start is None or last.end is None or piece.special or piece.part:
            source_text = ""
        else:
            source_text = text[piece.start : last.end].strip()
        # a token that stands for nothing of the text is called by its own spelling; a word of one
        # token keeps its id
        word_text = source_text or piece.text
        if stop == first + 1:
            number = piece.id
        else:
            number = None
        is_unknown = any(token.unknown for token in tokens[first:stop])
        word_tokens.append(
            Token(
                index,
                word_text,
                number,
                piece.start,
                last.end,
                special=piece.special,
                part=piece.part,
                unknown=is_unknown,
                added=piece.added,
                segment=piece.segment,
            )
        )
    return Words(tuple(word_tokens), np.array(starts, np.int64), len(tokens))


def join_words(
    tokens: Sequence[Token], text: str, spans: Sequence[tuple[int, int]], words: Words | None = None
) -> Words:
    """Join tokens, or words that were merged before, to longer words.

    text: the text that the tokens are of.
    spans: runs [first, stop) of tokens, or of words, each of which becomes one word; they do not
        overlap.
    words: what the spans count in; None for the tokens.
    """
    if words is None:
        row_tokens = list(tokens)
        starts = list(range(len(tokens)))
    else:
        row_tokens = list(words.words)
        starts = words.starts.tolist()
    ends = dict(spans)  # by the first index of a run, the index behind its last
    inside = {index for first, stop in spans for index in range(first + 1, stop)}
    joined_tokens: list[Token] = []
    for index, token in enumerate(row_tokens):
        if index in inside:
            continue
        if index not in ends:
            joined_tokens.append(replace(token, index=len(joined_tokens)))
            continue
        parts = row_tokens[index : ends[index]]
        has_place = token.start is not None and parts[-1].end is not None and not token.part
        if has_place:
            spelling = text[token.start : parts[-1].end]
        else:
            spelling = "".join(part.text for part in parts)
        is_unknown = any(part.unknown for part in parts)
        joined_tokens.append(
            replace(
                token,
                index=len(joined_tokens),
                text=spelling,
                id=None,
                end=parts[-1].end,
                unknown=is_unknown,
            )
        )
    kept_starts = np.array(
        [start for index, start in enumerate(starts) if index not in inside], np.int64
    )
    return Words(tuple(joined_tokens), kept_starts, len(tokens))


def unknown_words(text: str, tokens: Sequence[Token]) -> tuple[int, int]:
    """How many words of a text hold a token that the vocabulary does not know, and how many words
    there are; (0, 0) where it knows all."""
    if not any(token.unknown for token in tokens):
        return 0, 0
    word_tokens = [word for word in merged_words(tokens, text).words if not word.special]
    return sum(word.unknown for word in word_tokens), len(word_tokens)


def token_notes_of_two(
    first: tuple[str, str, Sequence[Token]], second: tuple[str, str, Sequence[Token]]
) -> list[str]:
    """The warnings about the tokens of two texts, such as words that the model does not know, each
    headed by its text's name; where both texts have the same warnings, these once and without a
    name.

    Args:
        first: What a text is called, the text and its tokens.
        second: The same of the other.

    Returns:
        The warnings, those of the first text first.
    """
    first_name, first_text, first_tokens = first
    second_name, second_text, second_tokens = second
    notes_of_first = token_notes(first_text, first_tokens)
    notes_of_second = token_notes(second_text, second_tokens)
    if notes_of_first == notes_of_second:
        return notes_of_first
    return [
        *(listing((first_name, note), ": ") for note in notes_of_first),
        *(listing((second_name, note), ": ") for note in notes_of_second),
    ]


def token_notes(text: str, tokens: Sequence[Token]) -> list[str]:
    """The warnings about the tokens of a text: words that the model does not know, and special
    tokens that stand there twice.
    """
    return [*unknown_notes(text, tokens), *doubled_notes(tokens)]


def doubled_notes(tokens: Sequence[Token]) -> list[str]:
    """The warning that a text begins or ends with the special token that the tokenizer adds there,
    too; none where it does not.
    """
    if len(tokens) < 2:
        return []
    notes: list[str] = []
    first, second = tokens[:2]
    if first.added and second.typed and first.id == second.id:
        notes.append(
            message(
                "the text begins with {token}, which the tokenizer adds, too: it stands there twice",
                token=repr(first.text),
            )
        )
    before, last = tokens[-2:]
    if last.added and before.typed and before.id == last.id:
        notes.append(
            message(
                "the text ends with {token}, which the tokenizer adds, too: it stands there twice",
                token=repr(last.text),
            )
        )
    return notes


def unknown_notes(text: str, tokens: Sequence[Token]) -> list[str]:
    """The warning that a text has words which the model does not know; none where it knows all."""
    unknown_count, count = unknown_words(text, tokens)
    if not unknown_count:
        return []
    if unknown_count == 1:
        return [
            message(
                "1 of {count} words is unknown to this model: any other unknown word would be the"
                " same to it",
                count=count,
            )
        ]
    return [
        message(
            "{unknown_count} of {count} words are unknown to this model: it cannot tell them apart",
            unknown_count=unknown_count,
            count=count,
        )
    ]


def identities(tokens: Sequence[Token], words: Words | None = None) -> list[Hashable]:
    """A value for each token, or each merged word, that is equal for equal ones: the id (of a word
    its tokens' ids), or the text where there is no id.

    Two spellings that a vocabulary takes for one token are the same, as are two words that it does
    not know.
    """
    alone: list[Hashable] = [token.text if token.id is None else token.id for token in tokens]
    if words is None:
        return alone
    return [
        tuple(alone[first : first + size])
        for first, size in zip(words.starts, words.sizes, strict=True)
    ]


def _continues_word(
    before: Token, token: Token, text: str, spans: Sequence[tuple[int, int]], starts: Sequence[int]
) -> bool:
    """Whether a token continues the word of the token before it.

    spans: the characters [start, end) of each word in the text.
    starts: their starts, ascending.
    """
    # tokens of a pair's second text (part 1) have offsets in that text, and stay apart
    if before.special or token.special or before.part or token.part:
        return False
    if (
        before.end is None
        or before.start is None
        or token.start is None
        or token.end is None
        or token.start > before.end
    ):
        return False
    if token.start < before.end:  # bytes of one character
        return True
    if before.start == before.end == token.start:  # a blank that the vocabulary puts first
        return True
    if token.start >= len(text) or token.start == 0:  # no character on one of its sides
        return False
    # within a word of the text, and on neither side a character that is a word by itself
    word_index = bisect_right(starts, token.start) - 1
    inside = word_index >= 0 and spans[word_index][0] < token.start < spans[word_index][1]
    return inside and not (_is_unspaced(text[token.start - 1]) or _is_unspaced(text[token.start]))


def _is_unspaced(letter: str) -> bool:
    """Whether a letter is of a script that writes no spaces."""
    return not letter.isascii() and unicodedata.name(letter, "").startswith(UNSPACED)
