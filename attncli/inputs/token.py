"""What a token is, what a tokenizer does, and how a token is named: `it`, `the:2`, `#7`, `#3-5`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from attncli.errors import InputError


class Token(Struct, frozen=True):
    """One token of one text.

    index: 0-based position in the sequence, specials counted.
    text: what it stands for, readable: the slice of the text it covers, or the name of a special token.
    id: the tokenizer's number for it; None where the tokenizer has no vocabulary.
    start, end: character (code point) offsets in the text, end exclusive; None where it covers no text.
    special: added by the tokenizer ([CLS], <s>, …), not found in the text.
    part: 0 for the text, 1 for the second text of a pair; `start` and `end` count in that one.
    unknown: the vocabulary has no token of its own for it: it has the id that all such have, so that they are the same
    to a model.
    """

    index: int
    text: str
    id: int | None
    start: int | None
    end: int | None
    special: bool = False
    part: int = 0
    unknown: bool = False


class Tokenizer(Protocol):
    """Cuts a text into tokens."""

    @property
    def name(self) -> str:
        """`word`, `whitespace`, `char`, `byte`, or the path or model the vocabulary came from."""

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens of a text, or of a text and its pair in one sequence. A text that holds none gives []."""

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """The tokens that these ids name, without offsets. Raises InputError for an id out of range,
        UsageError where the tokenizer has no ids."""

    def text_of(self, ids: Sequence[int]) -> str:
        """What these ids say one after the other, with the blanks that some pieces begin with; special tokens say
        nothing. Raises as `ids_to_tokens`."""


# Naming a token of a text: `it`, `the:2`, `#7`; or several in a row: `#3-5`, `didn't`, `面包`.

MARKS = "Ġ▁ \t\n\r"
SHOWN = 30


class TokenMatch(Struct, frozen=True):
    """A token that was asked for: its index, and how many tokens the reference fits (more than 1: the first was
    taken)."""

    index: int
    occurrences: int


class Span(Struct, frozen=True):
    """Tokens in a row that were asked for: the first, the one after the last, and how many times they occur."""

    first: int
    stop: int
    occurrences: int = 1


def find_span(tokens: Sequence[Token], reference: str) -> Span:
    """The tokens in a row that a reference names: one as `find_token` takes it, or several.

    `#3-5` are the tokens 3 to 5; a word or phrase that the tokenizer splits, those that spell it, the first time they
    do or as `:2` says. Raises InputError for no such tokens.
    """
    try:
        match = find_token(tokens, reference)
        return Span(match.index, match.index + 1, match.occurrences)
    except InputError:
        if by_range := re.fullmatch(r"#([0-9]{1,18})-([0-9]{1,18})", reference):
            first, last = (_index(tokens, int(number)) for number in by_range.groups())
            if first > last:
                raise InputError(f"{reference!r} runs backwards", expected=f"#{last}-{first}") from None
            return Span(first, last + 1)
        text, _, count = reference.rpartition(":")
        for phrase, which in ((reference, ""), (text, count)):
            if (
                phrase
                and (not which or re.fullmatch("[0-9]{1,18}", which))
                and (places := _spelling_runs(tokens, phrase))
            ):
                number = int(which or 1)
                if not 1 <= number <= len(places):
                    _occurrence([first for first, _ in places], phrase, number)
                return Span(*places[number - 1], 1 if which else len(places))
        raise


def refuse_unknown(tokens: Sequence[Token], span: Span, reference: str) -> None:
    """Raise InputError where a reference names tokens that the vocabulary does not know: to a model all of these are
    one, so that what it does with this one says nothing about the word."""
    if not any(token.unknown for token in tokens[span.first : span.stop]):
        return
    known = dict.fromkeys(_token_text(token) for token in tokens if not token.unknown and not token.special)
    raise InputError(
        f"{reference!r} is unknown to this model: it cannot tell it from other unknown words",
        expected=f"one of: {' '.join([*known][:SHOWN])}" if known else "a text with words that the model knows",
        hint="--unknown takes it all the same",
    )


def _spelling_runs(tokens: Sequence[Token], text: str) -> list[tuple[int, int]]:
    """Every run of tokens that spells a text, blanks aside; tokens apart only where the text has a blank. Tokens that
    are single bytes spell the characters that these make."""
    bare: Callable[[str], str]
    for bare in (_bare, _strip_marks):
        target, spellings = _bytes(text, bare), [_bytes(token.text, bare) for token in tokens]
        if runs := _runs(tokens, target, spellings, blank=len(text.split()) > 1):
            return runs
    return []


def _runs(tokens: Sequence[Token], target: bytes, spellings: Sequence[bytes], *, blank: bool) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for first in range(len(tokens)):
        if runs and first < runs[-1][1]:
            continue
        spelling, stop = spellings[first], first + 1
        while spelling and target.startswith(spelling) and spelling != target and stop < len(tokens):
            if tokens[stop].special or (not blank and _apart(tokens[stop - 1], tokens[stop])):
                break
            spelling, stop = spelling + spellings[stop], stop + 1
        if spelling == target and target and not tokens[first].special:
            runs.append((first, stop))
    return runs


def _bytes(text: str, bare: Callable[[str], str]) -> bytes:
    """What a token's text spells, without blanks, as UTF-8; of bytes such as `<0xE7><0x88>`, these: what case they
    have cannot be told."""
    if re.fullmatch("(<0x[0-9A-F]{2}>)+", text):
        return b"".join(bytes.fromhex(text.replace("<0x", "").replace(">", "")).split())
    return "".join(bare(text).split()).encode("utf-8", "surrogatepass")


def find_token(tokens: Sequence[Token], reference: str) -> TokenMatch:
    """The token that a reference names.

    `it` is a token's text; `the:2` its second occurrence (the first is 1); `#7` a 0-based index, `#-1` the last.
    A text is compared exactly, then without regard to case, then also without the marks that pieces carry
    (leading space, `Ġ`, `▁`, `##`); the first of these that finds anything decides. The text as a whole comes
    first, so a token that is itself `a:2` or `#7` can be named.

    Raises InputError for no such token, occurrence or index.
    """
    places = _places(tokens, reference)
    if places:
        return TokenMatch(places[0], len(places))
    if by_index := re.fullmatch(r"#(-?[0-9]{1,18})", reference):
        return TokenMatch(_index(tokens, int(by_index[1])), 1)
    if by_count := re.fullmatch(r"(.+):([0-9]{1,18})", reference, re.DOTALL):
        text, count = by_count[1], int(by_count[2])
        if places := _places(tokens, text):
            return _occurrence(places, text, count)
    raise _unknown_token(tokens, reference)


def _places(tokens: Sequence[Token], text: str) -> list[int]:
    keys: tuple[Callable[[str], str], ...] = (str, str.casefold, _bare)
    for key in keys:
        target = key(text)
        if target and (places := [place for place, token in enumerate(tokens) if key(token.text) == target]):
            return places
    return []


def _bare(text: str) -> str:
    return text.casefold().strip(MARKS.casefold()).removeprefix("##")


def _strip_marks(text: str) -> str:
    """The same in the case that it has."""
    return text.strip(MARKS).removeprefix("##")


def _index(tokens: Sequence[Token], index: int) -> int:
    if not -len(tokens) <= index < len(tokens):
        raise InputError(
            f"there is no token #{index}", expected=f"#0 to #{len(tokens) - 1}: the text has {len(tokens)} tokens"
        )
    return index % len(tokens)


def _occurrence(places: list[int], text: str, count: int) -> TokenMatch:
    if not 1 <= count <= len(places):
        there = (
            f"{text}:1 to {text}:{len(places)}: it occurs {len(places)} times"
            if len(places) > 1
            else f"{text}:1: it occurs once"
        )
        raise InputError(f"there is no {text!r} number {count}", expected=there)
    return TokenMatch(places[count - 1], 1)


def _unknown_token(tokens: Sequence[Token], reference: str) -> InputError:
    from difflib import get_close_matches

    bare = re.sub(r":[0-9]+$", "", reference)
    what = f"no token {reference!r} in the text"
    if pieces := _pieces(tokens, bare):
        pieces_text = ", ".join(f"#{piece.index} {_token_text(piece)}" for piece in pieces)
        words = "or in attn run and attn find --words, which merges words written with spaces"
        hint = f"'#{pieces[0].index}' for the first of them, {words}"
        return InputError(what, expected=f"one token; this is {len(pieces)}: {pieces_text}", hint=hint)
    text_by_key = {_token_text(token).casefold(): _token_text(token) for token in reversed(tokens)}
    close = get_close_matches(bare.casefold(), text_by_key, n=1)
    names = " ".join(_token_text(token) for token in tokens[:SHOWN])
    rest = f" … ({len(tokens)} in all)" if len(tokens) > SHOWN else ""
    return InputError(
        what,
        expected=f"one of: {names}{rest}; or #0 to #{len(tokens) - 1}" if tokens else "the text has no tokens",
        hint=f"did you mean {text_by_key[close[0]]!r}?" if close else "attn tokens lists them",
    )


def _token_text(token: Token) -> str:
    """A token as it may be named; one of blanks alone is quoted, so that it can be seen."""
    return token.text.strip(MARKS) or repr(token.text)


def _pieces(tokens: Sequence[Token], text: str) -> Sequence[Token]:
    """The first tokens in a row, nothing between them, that together spell a text; none if there are no such."""
    target, spellings = _bare(text), [_bare(token.text) for token in tokens]
    for first in range(len(tokens)):
        spelling = spellings[first]
        last = first
        while spelling and target.startswith(spelling):
            if spelling == target:
                return tokens[first : last + 1]
            last += 1
            if last == len(tokens) or not spellings[last] or _apart(tokens[last - 1], tokens[last]):
                break
            spelling += spellings[last]
    return ()


def _apart(before: Token, token: Token) -> bool:
    return (
        before.special
        or token.special
        or (before.end is not None and token.start is not None and token.start > before.end)
    )
