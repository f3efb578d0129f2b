"""Regions: named sets of tokens, such as a message of a chat, a document in it, or some lines of a
text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import combinations
from json import JSONDecoder
from pathlib import Path

from msgspec import Struct

from attncli.errors import InputError, UsageError
from attncli.inputs.files import read_object
from attncli.inputs.token import Text, Token, ignore
from attncli.language import listing, message

REST = "rest"
"""The name of what is in no region."""
KINDS = ("START…END", "/REGEX/", "lines:A-B", "chars:A-B", "tokens:A-B", "json:$.KEY[0]")
"""How a region says what is in it; lines count from 1, characters and tokens from 0, and both ends
belong to it.
"""
FORMS = {"lines": 1, "chars": 0, "tokens": 0}
"""Ranges by name, with the first number of each."""
MOST_WORDS = 5000
"""Words, or paths, that what is not there is compared with."""
DEEPEST = 64
"""Steps of a path."""
MOST_OPENINGS = 1000
"""Brackets of a text that may open JSON and do not: each is read as far as it goes."""
NO_TOKENS = message("text that has tokens: what it matches has none")
WORD = re.compile(r"\w+")
NAME = re.compile(r"[^\s=,]{1,64}")


class Region(Struct, frozen=True):
    """A named set of tokens of a text. tokens: their indices, ascending, at least one."""

    name: str
    tokens: tuple[int, ...]


class RegionRule(Struct, frozen=True):
    """A region as a user defines it: its name, and a specification of what it holds in one of the
    forms of `KINDS`.
    """

    name: str
    spec: str


def parse_region(text: str) -> RegionRule:
    """The rule in NAME=SPEC, whose form is one of `KINDS`. Raises UsageError where there is no name
    or no such form.
    """
    name, equals, spec = text.partition("=")
    if not equals or not spec or not NAME.fullmatch(name):
        expected = message("a name without blanks, and one of {kinds}", kinds=listing(KINDS))
        raise UsageError("--region {text} is no NAME=SPEC", expected=expected, text=repr(text))
    if name == REST:
        raise UsageError(
            "the name {name} is that of what is in no region",
            expected="another name",
            name=repr(name),
        )
    return RegionRule(name, spec)


def read_regions(path: Path) -> list[RegionRule]:
    """The rules in a JSON file, an object of region names and their specifications. Raises
    InputError.
    """
    rules = read_object(path, what=message("a file of regions"))
    if not all(isinstance(spec, str) for spec in rules.values()) or not rules:
        expected = message("an object such as {example}", example='{"doc1": "[[doc1]]…[[/doc1]]"}')
        raise InputError(
            "these regions are no names with texts", where=str(path), expected=expected
        )
    try:
        return [parse_region(f"{name}={spec}") for name, spec in rules.items()]
    except UsageError as error:
        expected = message("a name without blanks, and one of {kinds}", kinds=listing(KINDS))
        raise InputError(
            "a region in this file is no NAME=SPEC", where=str(path), expected=expected
        ) from error


def find_regions(
    rules: Sequence[RegionRule], text: Text, tokens: Sequence[Token], note: Callable[[str], None]
) -> list[Region]:
    """The regions of a text in order: the messages of a chat, those that the rules define, and
    `rest`, the tokens in none of them.

    Args:
        rules: As `parse_region` returns them.
        text: The text, or the chat.
        tokens: Its tokens.
        note: Is told which regions share tokens.

    Raises:
        InputError: For a rule that no token fits, naming what is nearest, and for a name that comes
            twice.
    """
    if text.chat is None:
        spans = {}
    else:
        spans = {part.name: [(part.start, part.end)] for part in text.chat.parts}
    regions = [Region(name, _tokens_in_spans(places, tokens)) for name, places in spans.items()]
    for rule in rules:
        regions.append(Region(rule.name, _tokens_of_rule(rule, text.text, tokens)))
    regions = [region for region in regions if region.tokens]
    names = [region.name for region in regions]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            "two regions have the name {name}",
            expected="names that differ from each other",
            name=repr(twice[0]),
        )
    shared = [
        (a.name, b.name, count)
        for a, b in combinations(regions, 2)
        if (count := len({*a.tokens} & {*b.tokens}))
    ]
    if shared:
        a, b, count = max(shared, key=lambda row: row[2])
        note(
            message(
                "regions share tokens, {a} and {b} the most ({count}): shares add up to more"
                " than all",
                a=a,
                b=b,
                count=count,
            )
        )
    inside = {index for region in regions for index in region.tokens}
    rest = tuple(token.index for token in tokens if token.index not in inside)
    if rest:
        return [*regions, Region(REST, rest)]
    return regions


def region_tokens(
    regions: Sequence[Region], name: str, note: Callable[[str], None] = ignore
) -> tuple[int, ...] | None:
    """The tokens of the region of this name; None where no region has it. note: is told that a
    region is meant.
    """
    for region in regions:
        if region.name == name:
            note(
                message(
                    "{name} is a region of {count} tokens: weights to it are summed, from it"
                    " averaged",
                    name=repr(name),
                    count=len(region.tokens),
                )
            )
            return region.tokens
    return None


def region_span(
    regions: Sequence[Region], name: str, note: Callable[[str], None] = ignore
) -> tuple[int, int] | None:
    """The tokens [first, stop) of the region of this name; None where no region has it.

    Raises InputError for a region whose tokens do not stand in a row.
    """
    tokens = region_tokens(regions, name, note)
    if tokens is None:
        return None
    if tokens[-1] - tokens[0] + 1 != len(tokens):
        raise InputError(
            "the tokens of region {name} do not stand in a row",
            expected="a region without gaps",
            name=repr(name),
        )
    return tokens[0], tokens[-1] + 1


def word_regions(regions: Sequence[Region], starts: Sequence[int]) -> list[Region]:
    """Regions of tokens turned into regions of words: a word belongs where any of its tokens does;
    `rest` holds words in no other. starts: the first token of each word."""
    words = {
        region.name: {bisect_right(starts, token) - 1 for token in region.tokens}
        for region in sorted(regions, key=lambda region: region.name == REST)
    }
    if REST in words:
        words[REST] = words[REST].difference(
            *(members for name, members in words.items() if name != REST)
        )
    return [
        Region(region.name, tuple(sorted(words[region.name])))
        for region in regions
        if words[region.name]
    ]


def _tokens_of_rule(rule: RegionRule, text: str, tokens: Sequence[Token]) -> tuple[int, ...]:
    """The indices of the tokens that a rule selects; at least one, else it raises InputError."""
    kind, colon, numbers = rule.spec.partition(":")
    if colon and kind in FORMS:
        low, high = _parse_range(rule, kind, numbers)
        if kind == "tokens":
            members = tuple(token.index for token in tokens if low <= token.index <= high)
        else:
            starts = [0, *(match.end() for match in re.finditer("\n", text))]
            if kind == "lines":
                low, high = (
                    (starts[low - 1], starts[high] if high < len(starts) else len(text))
                    if low <= len(starts)
                    else (len(text), len(text))
                )
            else:
                high += 1
            members = _tokens_in_spans([(low, high)], tokens)
        if not members:
            if kind == "tokens":
                last = len(tokens) - 1
            elif kind == "lines":
                last = text.count("\n") + 1
            else:
                last = len(text) - 1
            raise _empty_region(rule, message("{kind} up to {last}", kind=kind, last=last))
        return members
    if colon and kind == "json":
        return _tokens_of_json(rule, numbers, text, tokens)
    if rule.spec.startswith("/") and rule.spec.endswith("/") and len(rule.spec) > 2:
        try:
            places = [match.span() for match in re.finditer(rule.spec[1:-1], text)]
        except re.error as error:
            raise UsageError(
                "the pattern of region {name} is no regular expression: {reason}",
                expected="one that Python can read",
                name=repr(rule.name),
                reason=str(error),
            ) from error
        if not (members := _tokens_in_spans(places, tokens)):
            if places:
                raise _empty_region(rule, NO_TOKENS)
            raise _empty_region(
                rule,
                _nearest_word(
                    rule.spec[1:-1], text, message("a pattern that something in the text matches")
                ),
            )
        return members
    start, dots, end = rule.spec.replace("...", "…").partition("…")
    if not dots or not start or not end:
        what = message(
            "region {name} is of no form that attn knows: {spec}",
            name=repr(rule.name),
            spec=repr(rule.spec),
        )
        raise UsageError(what, expected=listing(KINDS))
    places = [
        match.span(1)
        for match in re.finditer(f"{re.escape(start)}(.*?){re.escape(end)}", text, re.DOTALL)
    ]
    if not (members := _tokens_in_spans(places, tokens)):
        if places:
            raise _empty_region(rule, NO_TOKENS)
        missing = start if start not in text else end
        raise _empty_region(
            rule, _nearest_word(missing, text, message("markers that the text has"))
        )
    return members


# What a path such as $.docs[0].title leads to in the JSON that a text holds.

JSON = JSONDecoder()
OPENING = re.compile(r"[\[{]")
BLANKS = re.compile(r"\s*")
STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+|\*)\]|\[(?:"([^"]*)"|'([^']*)')\]""")
"""A step of a path: .name or ["name"] of an object, [0] of a list; * for all."""


def _tokens_of_json(
    rule: RegionRule, path: str, text: str, tokens: Sequence[Token]
) -> tuple[int, ...]:
    """The indices of the tokens of the JSON values that a path leads to; at least one, else it
    raises InputError.
    """
    steps = [next(filter(None, step), "") for step in STEP.findall(path[1:])]
    if not path.startswith("$") or STEP.sub("", path[1:]) or len(steps) > DEEPEST:
        what = message(
            "region {name} has no path {spec}", name=repr(rule.name), spec=repr(rule.spec)
        )
        raise UsageError(what, expected="such as {example}", example="json:$.docs[0]")
    known: dict[str, None] = {}
    places = []
    for place in _json_starts(text):
        for keys, start, stop in _json_values(text, place, (), len(steps) + 1):
            if len(known) < MOST_WORDS:
                known[_path_text(keys)] = None
            if len(keys) == len(steps) and all(
                step in ("*", str(key)) for step, key in zip(steps, keys, strict=True)
            ):
                is_text = text[start] == '"'
                places.append((start + is_text, stop - is_text))
    if not (members := _tokens_in_spans(places, tokens)):
        if not known or places:
            raise _empty_region(
                rule, message("a value with text in it" if places else "a text with JSON in it")
            )
        close = get_close_matches(path, known, n=1, cutoff=0)
        raise _empty_region(
            rule, message("a path of the JSON in the text, such as {path}", path=close[0])
        )
    return members


def _path_text(keys: Sequence[str | int]) -> str:
    """JSON keys as a path, such as $.docs[0]."""
    parts = [
        (
            f"[{key}]"
            if isinstance(key, int)
            else f".{key}"
            if STEP.fullmatch(f".{key}")
            else f'["{key}"]'
        )
        for key in keys
    ]
    return "".join(("$", *parts))


def _json_starts(text: str) -> Iterator[int]:
    """The character index of each outermost JSON object or list in a text."""
    place = 0
    failures = 0
    while failures < MOST_OPENINGS and (opening := OPENING.search(text, place)):
        try:
            _, place = JSON.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            place = opening.end()
            failures = failures + 1
            continue
        yield opening.start()


Keys = tuple[str | int, ...]


def _json_values(text: str, start: int, keys: Keys, depth: int) -> Iterator[tuple[Keys, int, int]]:
    """The JSON value that begins at character `start`, and all values within it: each as its keys,
    first character and end. Raises ValueError where there is none.

    depth: how far down.
    """
    _, stop = JSON.raw_decode(text, start)
    yield keys, start, stop
    if text[start] not in "{[" or not depth:
        return
    place = _after_blanks(text, start + 1)
    number = 0
    while text[place] not in "]}":
        key: str | int = number
        if text[start] == "{":
            key, place = JSON.raw_decode(text, place)
            place = _after_blanks(text, _after_blanks(text, place) + 1)  # the colon
        inner = _json_values(text, place, (*keys, key), depth - 1)
        member = next(inner)
        yield member
        yield from inner
        place = _after_blanks(text, member[2])
        place = _after_blanks(text, place + (text[place] == ","))
        number += 1


def _after_blanks(text: str, place: int) -> int:
    """The index of the first character from `place` on that is not blank."""
    blanks = BLANKS.match(text, place)
    if blanks is None:
        return place
    return blanks.end()


def _nearest_word(missing: str, text: str, expected: str) -> str:
    """`expected`, with the word of the text that is most similar to `missing` where one is similar."""
    words = {
        word.casefold(): word
        for word in (*text.split()[:MOST_WORDS], *WORD.findall(text)[:MOST_WORDS])
    }
    close = [words[word] for word in get_close_matches(missing.casefold(), words, n=1)]
    if not close:
        return expected
    return message(
        "{expected}; {close} is nearest to {missing}",
        expected=expected,
        close=repr(close[0]),
        missing=missing,
    )


def _parse_range(rule: RegionRule, kind: str, numbers: str) -> tuple[int, int]:
    """The first and the last number of a range such as 3-5 or 3. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", numbers)
    first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (0, -1)
    if match is None or first < FORMS[kind] or last < first:
        what = message(
            "region {name} has no range {spec}", name=repr(rule.name), spec=repr(rule.spec)
        )
        expected = message(
            "such as {kind}:{first}-{last}, counted from {first}",
            kind=kind,
            first=FORMS[kind],
            last=FORMS[kind] + 9,
        )
        raise UsageError(what, expected=expected)
    return first, last


def _empty_region(rule: RegionRule, expected: str) -> InputError:
    """The error, returned and not raised, that a rule selects no token. expected: what would."""
    return InputError(
        "nothing in the text is in region {name}: {spec}",
        expected=expected,
        name=repr(rule.name),
        spec=rule.spec,
    )


def _tokens_in_spans(places: Sequence[tuple[int, int]], tokens: Sequence[Token]) -> tuple[int, ...]:
    """The indices of the tokens that share a character with one of these spans [start, end)."""
    return tuple(
        token.index
        for token in tokens
        if token.start is not None
        and token.end is not None
        and any(token.start < end and start < token.end for start, end in places)
    )
