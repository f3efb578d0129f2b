"""Tokenizers with those pieces of a large vocabulary alone that a text can be cut into.

Building the whole of Gemma's vocabulary, 262,144 pieces and the 514,847 merges that make them, takes
3.4 of the 5 CPU seconds of a short run. A text of 13 tokens is made of some hundred of them: its
words, as the vocabulary's own rules cut them, are taken apart in all ways, and what the vocabulary
holds of that, with the merges among it, cuts the text exactly as the whole does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import ClassVar

import numpy as np
import tokenizers
from tokenizers import AddedToken

from attncli.errors import InputError
from attncli.inputs.string_table import Array, StringTable

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of tokens, `tokenizer.ggml.token_type`."""
WORTH_PARTS = 10_000
"""Pieces from which a vocabulary repays being built in parts."""
MOST_PARTS = 500_000
"""Parts of texts that are looked for; the whole vocabulary is as fast for more of them."""
LONGEST_PIECE = 256
"""Characters of a piece that are split in all ways; no vocabulary in use has a longer one that is made of others."""
Merge = tuple[str, str]
Encode = Callable[[tokenizers.Tokenizer, str], tokenizers.Encoding]


class PairScheme(ABC):
    """How a vocabulary of pairs that are joined cuts a text, whatever pieces are put into it.

    kind: its name in `tokenizer.ggml.model`.
    """

    kind: ClassVar[str]

    @abstractmethod
    def tokenizer(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> tokenizers.Tokenizer:
        """A tokenizer with these pieces, by their ids, and these merges in the order of their rank,
        without added tokens."""

    @abstractmethod
    def characters(self, text: str) -> Iterable[str]:
        """Every character that a text can be spelled with before it is cut, and perhaps more."""

    @abstractmethod
    def merges(self, ids: Mapping[str, int]) -> list[Merge]:
        """The merges that join two of these pieces to a third, in the order of their rank."""

    @abstractmethod
    def every_merge(self, ids: Mapping[str, int]) -> list[Merge]:
        """All merges of the vocabulary, in the order of their rank.

        ids: of all its pieces.
        """


def splits(pieces: Collection[str]) -> Iterator[Merge]:
    """Yield each two pieces (left, right) that together spell a third."""
    for piece in pieces:
        if len(piece) <= LONGEST_PIECE:
            for place in range(1, len(piece)):
                if piece[:place] in pieces and piece[place:] in pieces:
                    yield piece[:place], piece[place:]


class TextVocabulary:
    """A vocabulary of pairs, of which only those pieces are built into a tokenizer that a text needs;
    what one text needed is there for the next.

    scheme: how it cuts a text.
    tokens: its pieces by id.
    types: what kind each is, [token].
    always: ids of pieces that every tokenizer has, such as the special tokens around a text.
    finish: called with each tokenizer that is built, to add what the file says besides, such as the
        special tokens around a text.
    name: of the file, for errors.
    """

    def __init__(
        self,
        scheme: PairScheme,
        tokens: StringTable,
        types: Array,
        always: Iterable[int],
        finish: Callable[[tokenizers.Tokenizer], None],
        name: str,
    ) -> None:
        """A vocabulary of which no tokenizer is built yet.

        scheme: how a text is cut into pieces.
        tokens: the pieces by id.
        types: what kind each piece is, [token].
        always: ids of pieces that every tokenizer has, such as the special tokens around a text.
        finish: called with each tokenizer that is built, to complete it.
        name: the vocabulary's file, for errors.
        """
        self.scheme = scheme
        self.tokens = tokens
        self.types = types
        self.name = name
        self._finish = finish
        # any text may need these
        fixed = np.flatnonzero((types == BYTE) | (types == UNKNOWN)).tolist()
        # the pieces and the added tokens that the texts so far need, with their ids
        self._pieces = {tokens[number]: number for number in (*fixed, *always)}
        self._present: dict[str, int] = {}
        # the parts of texts that were looked up so far
        self._sought: set[str] = set()
        # the bytes of the longest piece, which has no more characters than that
        self._longest = int((tokens.ends - tokens.starts).max(initial=1))
        # the tokenizers made of these: under True with added tokens, under False without
        self._built: dict[bool, tokenizers.Tokenizer] = {}

    @cached_property
    def added(self) -> dict[str, int]:
        """The ids of tokens that are taken out of a text before it is cut, by their text."""
        numbers = np.flatnonzero((self.types == CONTROL) | (self.types == USER_DEFINED)).tolist()
        return {text: number for number in numbers if (text := self.tokens[number])}

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of control tokens."""
        return frozenset(number for number in self.added.values() if self.types[number] == CONTROL)

    def whole(self) -> tokenizers.Tokenizer:
        """The tokenizer with all pieces. Raises InputError for a piece that is there twice."""
        ids = {piece: number for number, piece in enumerate(self.tokens)}
        check_different(self.tokens, len(ids), self.name)
        return self._complete(ids, self.scheme.every_merge(ids), self.added)

    def for_ids(self, ids: Iterable[int]) -> tokenizers.Tokenizer:
        """A tokenizer that decodes these ids."""
        pieces = {self.tokens[number]: number for number in ids}
        added = {piece: number for piece, number in pieces.items() if piece in self.added}
        no_merges: list[Merge] = []  # they are for cutting texts, not for decoding
        return self._complete({**self._pieces, **pieces}, no_merges, added)

    def for_texts(
        self, texts: Sequence[str], encode: Encode, *, with_added: bool = True
    ) -> tokenizers.Tokenizer | None:
        """A tokenizer that cuts these texts as the whole vocabulary would; None where the texts
        have too many parts to look up.

        encode: called with a tokenizer and a text; gives the encoding without the special tokens
            that go around a text.
        with_added: whether the spelling of an added token within a text is read as that token.
        """
        # at each character as many parts may begin as a piece has lengths
        most = sum(len(text) * min(len(text), self._longest) for text in texts)
        if len(self._sought) + most > MOST_PARTS:
            return None
        added = self.added if with_added else {}
        # Gemma has 6,413 added tokens: one search in all texts instead of one in each
        joined = "\0".join(texts)
        present = {piece: number for piece, number in added.items() if piece in joined}
        parts: set[str] = set()
        for text in texts:
            parts |= self._parts(text, present, encode)
        self._look_for(parts, present)
        hf = self._built.get(with_added)
        if hf is None:  # none was built yet, or one without pieces that these texts need
            merges = self.scheme.merges(self._pieces)
            hf = self._complete(self._pieces, merges, self._present if with_added else {})
            self._built[with_added] = hf
        return hf

    def _parts(self, text: str, added: Mapping[str, int], encode: Encode) -> set[str]:
        """Every stretch of a word of the text that could be a piece of the vocabulary.

        added: the tokens that are taken out of the text before.
        """
        # a tokenizer whose only pieces are characters leaves each word in its characters
        letters = {letter: number for number, letter in enumerate(self.scheme.characters(text))}
        by_letter = self._with_added(self.scheme.tokenizer(letters, []), added)
        encoding = encode(by_letter, text)
        parts: set[str] = set()
        numbered_letters = zip(encoding.word_ids, encoding.tokens, strict=True)
        for _, letters_of_word in groupby(numbered_letters, key=itemgetter(0)):
            word = "".join(letter for _, letter in letters_of_word)
            for start in range(len(word)):
                stop = min(len(word), start + self._longest)
                parts.update(word[start:end] for end in range(start + 1, stop + 1))
        return parts

    def _look_for(self, parts: Collection[str], added: Mapping[str, int]) -> None:
        """Add to the partial vocabulary the pieces among these parts, and these added tokens; where
        that changes it, the tokenizers built of it so far are dropped."""
        # those not looked up before, by their UTF-8
        new = {part.encode(): part for part in parts if part not in self._sought}
        self._sought.update(new.values())
        hits = self.tokens.find(new)  # (UTF-8, id) of those that are pieces
        pieces = {new[piece]: number for piece, number in hits}
        # a piece with two hits is in the vocabulary twice
        check_different(self.tokens, len(self.tokens) - len(hits) + len(pieces), self.name)
        if pieces.keys() <= self._pieces.keys() and added.keys() <= self._present.keys():
            return
        self._present |= added
        self._pieces |= {**pieces, **added}
        self._built.clear()

    def _complete(
        self, ids: Mapping[str, int], merges: Sequence[Merge], added: Mapping[str, int]
    ) -> tokenizers.Tokenizer:
        """A tokenizer with these pieces and merges, to which the added tokens and whatever `finish`
        adds have been added.

        ids: the ids of the pieces, by their text.
        merges: in the order of their rank.
        added: the ids of added tokens, by their text.
        """
        hf = self._with_added(self.scheme.tokenizer(ids, merges), added)
        self._finish(hf)
        return hf

    def _with_added(
        self, hf: tokenizers.Tokenizer, added: Mapping[str, int]
    ) -> tokenizers.Tokenizer:
        """Add these tokens to the tokenizer, which then takes them out of a text before it is cut;
        returns the tokenizer.
        """
        add_tokens(hf, {piece: number in self.special_ids for piece, number in added.items()})
        return hf


def add_tokens(hf: tokenizers.Tokenizer, specials: Mapping[str, bool]) -> None:
    """Add tokens to a tokenizer, which then takes them out of a text before it cuts the rest.

    specials: for each token's text, whether it is a control token.
    """
    added = [
        AddedToken(text, special=is_special, normalized=False)
        for text, is_special in specials.items()
    ]
    if added:
        hf.add_tokens(added)


def check_different(tokens: Sequence[str], different: int, name: str) -> None:
    """Raise InputError for a vocabulary that holds a piece twice.

    different: how many different pieces the caller counted among the tokens.
    name: the vocabulary's file.
    """
    if different != len(tokens):
        raise InputError(
            "the vocabulary of {tokens:,} tokens holds {different:,} different ones",
            where=name,
            expected="each token once",
            tokens=len(tokens),
            different=different,
        )
