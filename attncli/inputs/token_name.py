"""Naming a token of a text: `it`, `the:2`, `#7`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attncli.errors import InputError
from attncli.inputs.token import Token

MARKS = "Ġ▁ \t\n\r"
SHOWN = 30


@dataclass(frozen=True)
class Found:
    """A token that was asked for: its index, and how many tokens the reference fits (more than 1: the first was
    taken)."""

    index: int
    occurrences: int


def find_token(tokens: Sequence[Token], reference: str) -> Found:
    """The token that a reference names.

    `it` is a token's text; `the:2` its second occurrence (the first is 1); `#7` a 0-based index, `#-1` the last.
    A text is compared exactly, then without regard to case, then also without the marks that pieces carry
    (leading space, `Ġ`, `▁`, `##`); the first of these that finds anything decides. The text as a whole comes
    first, so a token that is itself `a:2` or `#7` can be named.

    Raises InputError for no such token, occurrence or index.
    """
    places = _places(tokens, reference)
    if places:
        return Found(places[0], len(places))
    if by_index := re.fullmatch(r"#(-?[0-9]{1,18})", reference):
        return Found(_index(tokens, int(by_index[1])), 1)
    if by_count := re.fullmatch(r"(.+):([0-9]{1,18})", reference, re.DOTALL):
        text, count = by_count[1], int(by_count[2])
        if places := _places(tokens, text):
            return _occurrence(places, text, count)
    raise _unknown(tokens, reference)


def _places(tokens: Sequence[Token], text: str) -> list[int]:
    keys: tuple[Callable[[str], str], ...] = (str, str.casefold, _bare)
    for key in keys:
        wanted = key(text)
        if wanted and (places := [place for place, token in enumerate(tokens) if key(token.text) == wanted]):
            return places
    return []


def _bare(text: str) -> str:
    return text.casefold().strip(MARKS.casefold()).removeprefix("##")


def _index(tokens: Sequence[Token], index: int) -> int:
    if not -len(tokens) <= index < len(tokens):
        raise InputError(
            f"there is no token #{index}", expected=f"#0 to #{len(tokens) - 1}: the text has {len(tokens)} tokens"
        )
    return index % len(tokens)


def _occurrence(places: list[int], text: str, count: int) -> Found:
    if not 1 <= count <= len(places):
        there = (
            f"{text}:1 to {text}:{len(places)}: it occurs {len(places)} times"
            if len(places) > 1
            else f"{text}:1: it occurs once"
        )
        raise InputError(f"there is no {text!r} number {count}", expected=there)
    return Found(places[count - 1], 1)


def _unknown(tokens: Sequence[Token], reference: str) -> InputError:
    from difflib import get_close_matches

    bare = re.sub(r":[0-9]+$", "", reference)
    what = f"no token {reference!r} in the text"
    if pieces := _pieces(tokens, bare):
        named = ", ".join(f"#{piece.index} {_shown(piece)}" for piece in pieces)
        hint = f"'#{pieces[0].index}' for the first of them, or in attn run and attn find --words, which merges words written with spaces"
        return InputError(what, expected=f"one token; this is {len(pieces)}: {named}", hint=hint)
    spelled = {_shown(token).casefold(): _shown(token) for token in reversed(tokens)}
    close = get_close_matches(bare.casefold(), spelled, n=1)
    names = " ".join(_shown(token) for token in tokens[:SHOWN])
    rest = f" … ({len(tokens)} in all)" if len(tokens) > SHOWN else ""
    return InputError(
        what,
        expected=f"one of: {names}{rest}; or #0 to #{len(tokens) - 1}" if tokens else "the text has no tokens",
        hint=f"did you mean {spelled[close[0]]!r}?" if close else "attn tokens lists them",
    )


def _shown(token: Token) -> str:
    """A token as it may be named; one of blanks alone is quoted, so that it can be seen."""
    return token.text.strip(MARKS) or repr(token.text)


def _pieces(tokens: Sequence[Token], text: str) -> Sequence[Token]:
    """The first tokens in a row, nothing between them, that together spell a text; none if there are no such."""
    wanted, spellings = _bare(text), [_bare(token.text) for token in tokens]
    for first in range(len(tokens)):
        spelled = spellings[first]
        last = first
        while spelled and wanted.startswith(spelled):
            if spelled == wanted:
                return tokens[first : last + 1]
            last += 1
            if last == len(tokens) or not spellings[last] or _apart(tokens[last - 1], tokens[last]):
                break
            spelled += spellings[last]
    return ()


def _apart(before: Token, token: Token) -> bool:
    return (
        before.special
        or token.special
        or (before.end is not None and token.start is not None and token.start > before.end)
    )
