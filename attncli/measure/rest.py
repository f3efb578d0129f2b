"""Where heads rest: the keys that take weight whatever the text says, by one rule for every
command.

A trained head that has nothing to say keeps its weight on the first token, whatever that is, on
special tokens such as [CLS], on line breaks or on separators. What is said of where a word looks
therefore leaves these keys out, and tells their share apart. Weights that nobody trained rest
nowhere.

Measured over all heads on a text of 73 to 81 tokens with headings and a table, as multiples of even
attention: the first token gets 9.7 in SmolLM2-135M and 10.8 in Gemma 3 270M, where it is <bos>;
line breaks get 2.6 at most, marks of structure 1.8 at most.

Source: Xiao et al., Efficient streaming language models with attention sinks, 2023; Clark et al.,
2019, for [SEP].
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from attncli.inputs.token import Token, Tokenizer
from attncli.inputs.word_groups import UNSPACED, Words

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

RestKind = Literal["first", "special", "separators"]
"""Kinds of keys where heads rest."""
MARKERS = "Ġ▁ "
"""What word pieces begin with in place of a blank."""
LINE_BREAKS = frozenset("\n\r\x0b\x0c\u2028\u2029")
STRUCTURE = frozenset("-=*_#~|")
"""Characters that draw lines, headings and the edges of tables."""


LEAST_ROWS = 4
"""Fewer query rows with a choice than this show no habit of a head."""


class KeyToken(Protocol):
    """What the rule asks of a token."""

    @property
    def text(self) -> str:
        """The text of the token."""

    @property
    def special(self) -> bool:
        """Whether the tokenizer added it."""


def is_learned(source: str) -> bool:
    """Whether a model's weights were trained. Only trained heads put weight on the first token and
    special tokens whatever the text says.

    Args:
        source: Where a model's weights come from, as documents name it.
    """
    return source == "checkpoint"


def is_separator(token: KeyToken) -> bool:
    """Whether a token is a line break, alone or behind a mark such as a full stop, or a mark of
    structure such as `---`, `###` or `|`."""
    return not token.special and _separates(token.text)


@lru_cache(4096)
def _separates(text: str) -> bool:
    """Whether a token's text is a line break, perhaps with other marks, or a mark of structure such
    as "---" or "|"."""
    # a byte-level vocabulary writes a line break as Ċ and a blank as Ġ; beside other characters Ċ is
    # a letter of Maltese
    if set(text) <= {"Ċ", "Ġ"}:
        bare = text.strip(MARKERS).replace("Ċ", "\n")
    else:
        bare = text.strip(" ▁")
    if LINE_BREAKS.intersection(bare):
        return not any(letter.isalnum() for letter in bare)
    bare = bare.strip(MARKERS)
    return bare == "|" or (len(bare) > 1 and STRUCTURE.issuperset(bare))


def rest_kinds(tokens: Sequence[KeyToken]) -> tuple[RestKind, ...]:
    """Which kinds of keys a text has on which trained heads put weight whatever it says: "first",
    "special" and "separators"; a first token that is special counts as special."""
    kinds: list[RestKind] = []
    if tokens and not tokens[0].special:
        kinds.append("first")
    if any(token.special for token in tokens):
        kinds.append("special")
    if any(map(is_separator, tokens[1:])):
        kinds.append("separators")
    return tuple(kinds)


def rest_keys(tokens: Sequence[KeyToken]) -> Bools:
    """Which keys of a text trained heads put weight on whatever it says: the first token, special
    tokens, line breaks and other separators.

    Returns:
        Booleans [key].
    """
    keys = np.array([token.special or is_separator(token) for token in tokens], bool)
    keys[:1] = True
    return keys


def resting_keys(tokens: Sequence[KeyToken], source: str) -> Bools:
    """Which keys of a text the heads of a model put weight on whatever it says: the first token,
    special tokens and separators; none where its weights were not trained.

    Args:
        tokens: Those of the text, or its words.
        source: Where the model's weights come from, as documents name it.

    Returns:
        Booleans [key].
    """
    if is_learned(source):
        return rest_keys(tokens)
    return np.zeros(len(tokens), bool)


def choosing_queries(weights: Floats) -> Bools:
    """Which query rows see two keys or more, so that they have a choice: in a row that sees one key
    its weight is 1 whatever the head does.

    Args:
        weights: [..., query, key] of any heads over the same keys.

    Returns:
        Booleans [query].
    """
    # a key is visible to a row where any head gives it weight
    visible = np.asarray(weights > 0).reshape((-1, *weights.shape[-2:])).any(0)
    choosing: Bools = visible.sum(-1) >= 2
    return choosing


def mean_received(weights: Floats) -> Floats:
    """The mean weight that each key gets from the rows that see two keys or more.

    Args:
        weights: [head, query, key].
    Returns:
        [head, key]; [head, 0] where fewer than `LEAST_ROWS` rows see so many.
    """
    choosing = choosing_queries(weights)
    if choosing.sum() < LEAST_ROWS:
        return np.zeros((len(weights), 0))
    means: Floats = weights[:, choosing].mean(1)
    return means


def mean_at_offset(weights: Floats, offset: int, rest: Bools) -> Floats:
    """The mean weight on the key at an offset from the query, over rows that see two keys or more
    and whose key there is not one of `rest`.

    Args:
        weights: [head, query, key].
        offset: Of the key from the query, 0 for itself.
        rest: Which keys get weight whatever the text says (`rest_keys`), booleans [key].

    Returns:
        [head]; NaN where fewer than `LEAST_ROWS` rows are left.
    """
    count = rest.size
    # the queries whose key at this offset lies within the text
    queries = np.arange(max(-offset, 0), min(count, count - offset))
    has_choice = choosing_queries(weights)[queries]
    queries = queries[has_choice & ~rest[queries + offset]]
    if queries.size < LEAST_ROWS:
        return np.full(len(weights), np.nan)
    means: Floats = weights[:, queries, queries + offset].mean(-1)
    return means


# Another word in front of a text: heads that rest on the first token whatever it is move to it.

FRONT_WORDS = ("Today", "Then")
FRONT_WORDS_UNSPACED = ("今天", "昨天")
"""Ordinary words for texts of scripts that write no spaces."""


class FrontWord(NamedTuple):
    """A text with another word in front.

    word: it.
    tokens: of the whole, positions renumbered.
    first: where the tokens of the word begin, after special ones.
    added: how many they are.
    """

    word: str
    tokens: list[Token]
    first: int
    added: int

    def new_index(self, token: int) -> int:
        """The position in the longer text of a token of the original text."""
        if token >= self.first:
            return token + self.added
        return token

    def moved_words(self, words: Words) -> Words:
        """The words of the longer text: those of the original text, moved, and each token of the
        word in front as a word of its own."""
        in_front = range(self.first, self.first + self.added)
        moved = [self.new_index(start) for start in words.starts.tolist()]
        starts = np.array(sorted([*in_front, *moved]), np.int64)
        return replace(words, words=(), starts=starts, count=len(self.tokens))


def word_in_front(tokenizer: Tokenizer, text: str, tokens: Sequence[Token]) -> FrontWord:
    """Put an ordinary word of the text's script before the text, so that all other tokens stay the
    same: to see whether heads look at the first token because it is the first.

    Args:
        tokenizer: The model's.
        text: The text.
        tokens: Its tokens.
    """
    # where the word goes: after the special tokens that begin the text
    first = next((place for place, token in enumerate(tokens) if not token.special), len(tokens))
    # in the script of the text's first letter, which may write no spaces
    letter = next((letter for letter in text if letter.isalpha()), "a")
    is_unspaced = unicodedata.name(letter, "").startswith(UNSPACED)
    if is_unspaced:
        choices = FRONT_WORDS_UNSPACED
    else:
        choices = FRONT_WORDS
    # one that the text does not begin with already: of two at least one
    word = next(choice for choice in choices if not text.lstrip().startswith(choice))
    longer = tokenizer.encode(word + text if is_unspaced else f"{word} {text}")
    count = len(longer) - len(tokens)  # tokens of the word

    # the text's first token may have another id behind a blank; if others differ, too, or the
    # tokenizer made no token more of the longer text, the word's own tokens are put before those of
    # the text instead
    following_ids = [token.id for token in longer[first + count + 1 :]]
    if count < 1 or following_ids != [token.id for token in tokens[first + 1 :]]:
        word_tokens = [token for token in tokenizer.encode(word) if not token.special]
        longer = [*tokens[:first], *word_tokens, *tokens[first:]]
        count = len(word_tokens)
    numbered = [replace(token, index=index) for index, token in enumerate(longer)]
    return FrontWord(word, numbered, first, count)
