"""What rules about heads need to know of a text's tokens: words, lines, sentences, brackets, and
which tokens are alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from attncli.inputs.token import BYTES, MARKS, Token

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
NONE = -1
"""In arrays of token positions: no token."""
SENTENCE_ENDS = frozenset(".!?。！？…")
OPENING = {"(": ")", "[": "]", "{": "}", "（": "）", "「": "」", "“": "”", "《": "》", "【": "】"}
"""Brackets that open, each with the one that closes it."""
NAME = re.compile(r"\s?\w+")
"""A name in code, or a piece of one."""
BRACKET_DEPTH = 64
"""Brackets within brackets that are followed; deeper ones are not matched."""
FUNCTION_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "from", "has", "have", "he",
    "her", "his", "i", "if", "in", "is", "it", "its", "not", "of", "on", "or", "she", "so",
    "than", "that", "the", "their", "them", "then", "there", "they", "this", "to", "was", "we",
    "were", "what", "where", "which", "who", "will", "with", "would", "you", "your",
))  # fmt: skip
CLASSIFIERS = frozenset("个只条张本件位头匹辆台座块片杯瓶家间种双把支枝朵棵颗粒层场次句篇首段名群")
"""Measure words of Chinese, one character each."""


class TokenPatterns:
    """Facts about the tokens of one text that rules are made of: each property is an array by token,
    [token], computed when it is first asked for.

    texts: what each token spells; "" for a byte of a character.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.texts = [_spelled_text(token) for token in tokens]

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return len(self.tokens)

    def mark_tokens(self, holds: Callable[[str], bool]) -> Bools:
        """For which tokens `holds` is true of their spelling, booleans [token]; special tokens
        never count.
        """
        return np.array(
            [
                not token.special and holds(text)
                for token, text in zip(self.tokens, self.texts, strict=True)
            ],
            bool,
        )

    @cached_property
    def special(self) -> Bools:
        """Which tokens are special tokens of the vocabulary, booleans [token]."""
        return np.array([token.special for token in self.tokens], bool)

    @cached_property
    def punctuation(self) -> Bools:
        """Which tokens are punctuation and symbols alone, booleans [token]."""
        return self.mark_tokens(_is_punctuation)

    @cached_property
    def sentence_end(self) -> Bools:
        """Which tokens end in a mark of `SENTENCE_ENDS`, booleans [token]; those of "a.m." and
        "e.g." as well: what comes after the mark is not looked at."""
        return self.mark_tokens(lambda text: text.strip()[-1:] in SENTENCE_ENDS)

    @cached_property
    def comma(self) -> Bools:
        """Which tokens end in a mark within a sentence (a comma, colon or semicolon), booleans
        [token]."""
        marks = tuple(
            ",;:，；：、"
        )  # a tuple: "" of a blank token is in every string, and not in it
        return self.mark_tokens(lambda text: text.strip()[-1:] in marks)

    @cached_property
    def line_break(self) -> Bools:
        """Which tokens hold the end of a line, booleans [token]."""
        return self.mark_tokens(lambda text: "\n" in text)

    @cached_property
    def capital(self) -> Bools:
        """Which tokens begin with a capital letter, booleans [token]."""
        return self.mark_tokens(lambda text: text.strip()[:1].isupper())

    @cached_property
    def number(self) -> Bools:
        """Which tokens hold a digit, booleans [token]."""
        return self.mark_tokens(lambda text: any(map(str.isdigit, text)))

    @cached_property
    def function_word(self) -> Bools:
        """Which tokens are short words of English grammar, such as "the" and "of", booleans [token]."""
        return self.mark_tokens(lambda text: text.strip().lower() in FUNCTION_WORDS)

    @cached_property
    def content(self) -> Bools:
        """Which tokens have letters and are no function words, booleans [token]."""
        letters = self.mark_tokens(lambda text: any(map(str.isalpha, text)))
        return letters & ~self.function_word

    @cached_property
    def particle(self) -> Bools:
        """Which tokens are the Chinese particle 的, booleans [token]."""
        return self.mark_tokens(lambda text: text.strip() == "的")

    @cached_property
    def classifier(self) -> Bools:
        """Which tokens are a Chinese measure word after a numeral or a demonstrative, as 个 in 三个,
        booleans [token]."""
        measure_words = self.mark_tokens(lambda text: text.strip() in CLASSIFIERS)
        numerals = tuple("一二两三四五六七八九十百千几这那每")  # a tuple, as in `comma`
        counts = self.number | self.mark_tokens(lambda text: text.strip()[-1:] in numerals)
        follows_count = np.zeros(self.count, bool)
        follows_count[1:] = counts[:-1]
        return measure_words & follows_count

    @cached_property
    def identity(self) -> Ints:
        """A number for each token, equal for tokens of the same vocabulary entry (of the same text
        where there is no vocabulary)."""
        return _value_numbers(
            [token.text if token.id is None else token.id for token in self.tokens]
        )

    @cached_property
    def word_start(self) -> Bools:
        """Which tokens begin a word, booleans [token]: a blank stands before them, or they or the
        one before are punctuation or special; see `_begins_word`."""
        start = np.ones(self.count, bool)
        for place in range(1, self.count):
            start[place] = _begins_word(
                self.tokens[place - 1], self.tokens[place], self.texts[place - 1], self.texts[place]
            )
        return start

    @cached_property
    def word(self) -> Ints:
        """The number of the word that each token is a piece of."""
        return np.cumsum(self.word_start) - 1

    @cached_property
    def same_word(self) -> Ints:
        """A number for each token, equal for the pieces of words that are spelled alike, capitals or
        not; a word without letters has a number of its own."""
        spellings: dict[int, str] = {}
        for place, number in enumerate(self.word.tolist()):
            spellings[number] = spellings.get(number, "") + self.texts[place].strip().lower()
        values: list[Hashable] = []
        for number in self.word.tolist():
            has_letter = any(map(str.isalpha, spellings[number]))
            # a tuple equals no spelling, and no other word's tuple
            values.append(spellings[number] if has_letter else (number,))
        return _value_numbers(values)

    @cached_property
    def name(self) -> Ints:
        """The number of the name that each token is a piece of, as code spells names: letters,
        digits and underscores without a blank."""
        goes_on = np.zeros(self.count, bool)  # tokens that go on with the name of the one before
        for place in range(1, self.count):
            pieces = self.texts[place - 1 : place + 1]
            is_adjacent = self.tokens[place].start == self.tokens[place - 1].end
            goes_on[place] = is_adjacent and all(map(NAME.fullmatch, pieces))
        return np.cumsum(~goes_on) - 1

    @cached_property
    def same_name(self) -> Ints:
        """A number for each token, equal for the pieces of names in code (such as x_1) that are
        spelled alike; a token that is no piece of a name has a number of its own."""
        names = [""] * self.count
        for number, text in zip(self.name.tolist(), self.texts, strict=True):
            names[number] += text.strip()
        values: list[Hashable] = []
        for place, number in enumerate(self.name.tolist()):
            # a tuple equals no name, and no other token's tuple
            values.append(names[number] if NAME.fullmatch(names[number]) else (place,))
        return _value_numbers(values)

    @cached_property
    def first_of_word(self) -> Ints:
        """The position of the first piece of each token's word."""
        return latest(self.word_start)

    @cached_property
    def sentence(self) -> Ints:
        """The number of the sentence that each token stands in; its end mark belongs to it."""
        return _segments(self.sentence_end | self.line_break)

    @cached_property
    def clause(self) -> Ints:
        """The number of the clause that each token stands in: what is between two tokens of
        punctuation or symbols alone, such as a quote or the < of a tag."""
        return _segments(self.punctuation | self.line_break)

    @cached_property
    def line(self) -> Ints:
        """The number of the line that each token stands in."""
        return _segments(self.line_break)

    @cached_property
    def character(self) -> Ints:
        """A number for the character that each token is a piece of; equal where one character takes
        several tokens."""
        values: list[Hashable] = []
        for place, token in enumerate(self.tokens):
            # the bytes of one character have the same place in the text, and are one character long
            is_one_character = (
                token.start is not None and token.end is not None and token.end - token.start == 1
            )
            values.append((token.part, token.start) if is_one_character else ("token", place))
        return _value_numbers(values)

    @cached_property
    def bracket(self) -> Ints:
        """For each closing bracket, the position of the bracket that it closes; for every other
        token, that of the innermost open bracket. `NONE` where no bracket is open."""
        open_brackets: list[tuple[int, str]] = []
        places = np.full(self.count, NONE)
        for place, text in enumerate(self.texts):
            # the innermost one that is open before the token: that which a closing bracket closes
            if open_brackets:
                places[place] = open_brackets[-1][0]
            for character in text:
                if character in OPENING and len(open_brackets) < BRACKET_DEPTH:
                    open_brackets.append((place, OPENING[character]))
                elif open_brackets and character == open_brackets[-1][1]:
                    open_brackets.pop()
        return places

    @cached_property
    def indentation(self) -> Ints:
        """For each token, the first token of the last line before its own that is indented as far;
        `NONE` without one."""
        line_starts: dict[int, int] = {}  # by indentation, the first token of the last such line
        places = np.full(self.count, NONE)
        earlier = NONE
        depth = 0  # blanks since the line break
        for place in range(self.count):
            if self.line_break[place]:
                _, _, blanks = self.texts[place].rpartition("\n")
                depth = len(blanks)
            elif self.line_start[place]:
                # the token itself may begin with the last blank, which its text leaves out: its
                # bytes tell, where the tokenizer gives them
                has_blank = (self.tokens[place].utf8 or b"").startswith(b" ")
                indentation = depth + int(has_blank)
                earlier = line_starts.get(indentation, NONE)
                line_starts[indentation] = place
            elif not self.texts[place].strip():
                depth += len(self.texts[place])
            places[place] = earlier
        return places

    @cached_property
    def line_start(self) -> Bools:
        """Which tokens are the first of their line that are more than blanks, booleans [token]."""
        start = np.zeros(self.count, bool)
        begins = True
        for place, text in enumerate(self.texts):
            if self.line_break[place]:
                begins = True
            elif begins and text.strip():
                start[place] = True
                begins = False
        return start


def _spelled_text(token: Token) -> str:
    """The text of a token for rules; "" for one that is a byte of a character, such as `<0xE4>`."""
    if BYTES.fullmatch(token.text):
        return ""
    return token.text


def _is_punctuation(text: str) -> bool:
    """Whether a text is punctuation and symbols alone."""
    signs = text.strip(MARKS)
    # Unicode's categories P… are punctuation, S… are symbols
    return bool(signs) and all(unicodedata.category(sign)[0] in "PS" for sign in signs)


def _begins_word(before: Token, token: Token, text_before: str, text: str) -> bool:
    """Whether a token begins a word, the one before it being `before`.

    text_before, text: what both spell.
    """
    # beside special tokens, and at the border of two texts
    if token.special or before.special or token.part != before.part:
        return True
    # after a blank token, and beside punctuation
    if _is_punctuation(text) or _is_punctuation(text_before) or not text_before.strip():
        return True
    # with a blank of its own, or a mark that stands for one
    if text[:1].isspace() or text[:1] in MARKS or (token.utf8 or b"").startswith(b" "):
        return True
    # with a blank between the two that belongs to neither
    return token.start is None or before.end is None or token.start > before.end


def _value_numbers(values: Sequence[Hashable]) -> Ints:
    """Number the values in the order in which they first occur, equal values alike, [token]: "b",
    "a", "b" become 0, 1, 0."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def _segments(end: Bools) -> Ints:
    """The number of the segment that each token stands in, [token]; a segment ends after a run of
    end marks.

    end: which tokens are end marks.
    """
    begins = np.zeros(end.size, bool)
    begins[1:] = end[:-1] & ~end[1:]
    return np.cumsum(begins)


def latest(marked: Bools) -> Ints:
    """For each position, that of the last marked token up to it; `NONE` before the first."""
    return np.maximum.accumulate(np.where(marked, np.arange(marked.size), NONE))
