"""Regions: named sets of tokens, such as a message of a chat, a document in it, or some lines of a
text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import accumulate, combinations
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import AttnError, InputError, LimitError, UsageError, first_sentence
from attncli.inputs.files import read_object
from attncli.inputs.token import Text, Token, ignore, straight_quotes
from attncli.language import listing, message

if TYPE_CHECKING:
    from attncli.inputs.task_failure import TaskError

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
MOST_READ = 2**23
"""Characters that are read behind brackets that open no JSON after all, in two seconds at most."""
UNTOLD = 10_000
"""Characters counted for a bracket where the parser does not say how far it read."""
LONGEST_WORD = 64
"""Characters of a word that is compared with others."""
SEARCHED = 10**6
"""Characters of a text in which a similar word is looked for."""
MOST_PAIRS = 10**6
"""Pairs of regions that are counted where regions share tokens."""
NO_TOKENS = message("text that has tokens: what it matches has none")
NOTHING_BETWEEN = message(
    "tokens between the two: START…END is what stands between them, /START.*?END/ takes both as well"
)
WORD = re.compile(r"\w+")
NAME = re.compile(r"[^\s=,]{1,64}")


class Region(Struct, frozen=True):
    """A named set of tokens of a text.

    tokens: their indices, ascending, at least one.
    is_message: whether it is a message of a chat, and not one that a rule defines.
    """

    name: str
    tokens: tuple[int, ...]
    is_message: bool = False


class RegionRule(Struct, frozen=True):
    """A region as a user defines it: its name, and a specification of what it holds in one of the
    forms of `KINDS`.

    file: where it stands, "" for the command line.
    """

    name: str
    spec: str
    file: str = ""

    def error(self, what: str, expected: str) -> UsageError | InputError:
        """The error, returned and not raised, that this rule has no meaning: InputError for a rule
        of a file, UsageError for one of the command line.

        what: what is wrong with the rule.
        expected: what would be right.
        """
        if self.file:
            return InputError(what, where=self.file, expected=expected)
        return UsageError(what, expected=expected)


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
        parsed = [parse_region(f"{name}={spec}") for name, spec in rules.items()]
    except UsageError as error:
        expected = message("a name without blanks, and one of {kinds}", kinds=listing(KINDS))
        raise InputError(
            "a region in this file is no NAME=SPEC", where=str(path), expected=expected
        ) from error
    return [replace(rule, file=str(path)) for rule in parsed]


def find_regions(
    rules: Sequence[RegionRule], text: Text, tokens: Sequence[Token], note: Callable[[str], None]
) -> list[Region]:
    """The regions of a text in order: the messages of a chat, those that the rules define, and
    `rest`, the tokens in none of them.

    Args:
        rules: As `parse_region` returns them.
        text: The text, or the chat.
        tokens: Its tokens.
        note: Called with a sentence where regions share tokens.

    Returns:
        The regions with at least one token.

    Raises:
        InputError: For a rule that no token fits, naming what is nearest, and for a name that comes
            twice.
    """
    # the characters [start, end) of each message of a chat, by its name
    span_of_message = {}
    if text.chat is not None:
        span_of_message = {part.name: (part.start, part.end) for part in text.chat.parts}
    regions = [
        Region(name, _tokens_in_spans([span], tokens), is_message=True)
        for name, span in span_of_message.items()
    ]
    # for each rule where its pattern matches; none for a rule of another form
    matches = _find_patterns(rules, text.text)
    for rule, places in zip(rules, matches, strict=True):
        members = _tokens_of_rule(rule, text.text, tokens, places)
        regions.append(Region(rule.name, members))
        if len(places) > 1:
            note(
                message(
                    "the pattern of region {name} matches {count} places: all of them are in it,"
                    " {tokens} tokens",
                    name=repr(rule.name),
                    count=len(places),
                    tokens=len(members),
                )
            )
    regions = [region for region in regions if region.tokens]
    counts = Counter(region.name for region in regions)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise InputError(
            "two regions have the name {name}",
            expected="names that differ from each other",
            name=repr(twice[0]),
        )
    _note_shared_tokens(regions, note)
    inside = {index for region in regions for index in region.tokens}
    rest = tuple(token.index for token in tokens if token.index not in inside)
    if rest:
        return [*regions, Region(REST, rest)]
    return regions


def _note_shared_tokens(regions: Sequence[Region], note: Callable[[str], None]) -> None:
    """Call `note` with a sentence on which two regions share the most tokens, where any do."""
    # the numbers of the regions that hold each token; then how many tokens each such group shares
    holders: dict[int, list[int]] = {}
    for number, region in enumerate(regions):
        for token in region.tokens:
            holders.setdefault(token, []).append(number)
    groups = Counter(tuple(numbers) for numbers in holders.values() if len(numbers) > 1)
    if not groups:
        return
    # n regions make about n² / 2 pairs
    if sum(len(numbers) ** 2 for numbers in groups) > 2 * MOST_PAIRS:
        note(message("many regions share tokens: shares add up to more than all"))
        return
    shared: Counter[tuple[int, int]] = Counter()
    for numbers, count in groups.items():
        for pair in combinations(numbers, 2):
            shared[pair] += count
    # the pair with the most tokens; of equals the first, in the order of the regions
    (first, second), count = min(shared.items(), key=lambda row: (-row[1], row[0]))
    note(
        message(
            "regions share tokens, {a} and {b} the most ({count}): shares add up to more than all",
            a=regions[first].name,
            b=regions[second].name,
            count=count,
        )
    )


class LeafRegion(Struct, frozen=True):
    """A region without the regions inside it.

    name: the whole region's.
    tokens: the indices that are in none of those inside, ascending, at least one.
    without: the names of those inside.
    is_message: whether the whole region is a message of a chat.
    """

    name: str
    tokens: tuple[int, ...]
    without: tuple[str, ...] = ()
    is_message: bool = False


def leaf_regions(regions: Sequence[Region]) -> list[LeafRegion]:
    """The regions as leaves: each without the tokens of the regions that lie inside it.

    A region lies inside another whose tokens contain all of its own; of two with the same tokens
    the later one lies inside the earlier. One that others fill is left out. Regions that overlap
    otherwise keep the tokens that they share.

    Args:
        regions: As `find_regions` returns them.

    Returns:
        The leaves in the order of the regions.
    """
    sets = [frozenset(region.tokens) for region in regions]
    leaves = []
    for place, region in enumerate(regions):
        inside = [
            number
            for number, tokens in enumerate(sets)
            if tokens < sets[place] or (tokens == sets[place] and number > place)
        ]
        covered = frozenset[int]().union(*(sets[number] for number in inside))
        left = tuple(token for token in region.tokens if token not in covered)
        if left:
            names = tuple(regions[number].name for number in inside)
            leaves.append(LeafRegion(region.name, left, names, region.is_message))
    return leaves


def region_tokens(
    regions: Sequence[Region], name: str, note: Callable[[str], None] = ignore
) -> tuple[int, ...] | None:
    """The tokens of the region of this name; None where no region has it.

    note: called with a sentence that the name is a region's, and how its weights are summed, where
        a region has it.
    """
    for region in regions:
        if region.name == name:
            note(
                message(
                    "{name} is a region of {count} tokens: weights to it are added up, weights from"
                    " it averaged",
                    name=straight_quotes(name),
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
    """Regions of tokens turned into regions of words, with indices of words in place of tokens: a
    word belongs to a region where any of its tokens does; `rest` holds the words in no other.

    starts: the index of the first token of each word, ascending.
    """
    words = {
        region.name: {bisect_right(starts, token) - 1 for token in region.tokens}
        for region in regions
    }
    if REST in words:
        words[REST] = words[REST].difference(
            *(members for name, members in words.items() if name != REST)
        )
    return [
        replace(region, tokens=tuple(sorted(words[region.name])))
        for region in regions
        if words[region.name]
    ]


Span = tuple[int, int]
"""Characters [start, end) of a text."""


def _tokens_of_rule(
    rule: RegionRule, text: str, tokens: Sequence[Token], matches: Sequence[Span]
) -> tuple[int, ...]:
    """The indices of the tokens that a rule selects; at least one, else it raises InputError.

    text: the whole text.
    matches: where in it the rule's pattern matches; not used for a rule of another form.
    """
    # "lines:3-5" is a range, "json:$.docs[0]" a path, "/[Ww]ord/" a pattern, and
    # "[[doc1]]…[[/doc1]]" what stands between two markers
    kind, colon, range_or_path = rule.spec.partition(":")
    if colon and kind in FORMS:
        return _tokens_of_range(rule, kind, range_or_path, text, tokens)
    if colon and kind == "json":
        return _tokens_of_json(rule, range_or_path, text, tokens)
    # below, `missing` is what no place of the text fits: an error names the word nearest to it
    if _is_pattern(rule):
        missing = rule.spec[1:-1]
        places = matches
        expected = message("a pattern that something in the text matches")
    else:
        start, dots, end = rule.spec.replace("...", "…").partition("…")
        if not dots or not start or not end:
            what = message(
                "region {name} is of no form that attn knows: {spec}",
                name=repr(rule.name),
                spec=repr(rule.spec),
            )
            forms = listing(KINDS)
            # words of the text without a sign of regular expressions are a pattern as they stand
            if rule.spec in text and not set(rule.spec) & set(r"\.^$*+?{}[]|()/"):
                forms = message(
                    '{kinds}; words as they stand in the text: "{name}=/{words}/"',
                    kinds=forms,
                    name=rule.name,
                    words=rule.spec,
                )
            raise rule.error(what, forms)
        if start not in text:
            missing = start
        else:
            missing = end
        places = list(_spans_between(text, start, end))
        expected = message("markers that the text has")
    members = _tokens_in_spans(places, tokens)
    if members:
        return members
    # why there is none: nothing matches, or what matches has no token
    if not places:
        raise _empty_region(rule, _nearest_word(missing, text, expected))
    if _is_pattern(rule):
        raise _empty_region(rule, NO_TOKENS)
    raise _empty_region(rule, NOTHING_BETWEEN)


def _tokens_of_range(
    rule: RegionRule, kind: str, numbers: str, text: str, tokens: Sequence[Token]
) -> tuple[int, ...]:
    """The indices of the tokens in a range of lines, characters or tokens; at least one, else it
    raises InputError.

    kind: what is counted, a key of `FORMS`.
    numbers: the range as the user wrote it, such as 3-5.
    """
    low, high = _parse_range(rule, kind, numbers)
    # where each line begins, and last where the text ends
    starts = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]
    match kind:
        case "tokens":
            members = tuple(token.index for token in tokens if low <= token.index <= high)
            last = len(tokens) - 1
        case "lines":
            last = len(starts) - 1
            # lines count from 1: line 1 is starts[0] to starts[1]; behind the last there is nothing
            span = starts[min(low, last + 1) - 1], starts[min(high, last)]
            members = _tokens_in_spans([span], tokens)
        case _:
            last = len(text) - 1
            members = _tokens_in_spans([(low, high + 1)], tokens)
    if not members:
        raise _empty_region(rule, message("{kind} up to {last}", kind=kind, last=last))
    return members


def _is_pattern(rule: RegionRule) -> bool:
    """Whether a rule is a regular expression between slashes."""
    return len(rule.spec) > 2 and rule.spec.startswith("/") and rule.spec.endswith("/")


def _find_patterns(rules: Sequence[RegionRule], text: str) -> list[list[Span]]:
    """For each rule the places that its pattern matches, none for a rule of another form.

    The patterns are searched for in a process of their own, all in one: some take for ever. For
    what is no regular expression raises UsageError, or InputError where a file states the rule;
    LimitError for one that takes too long.
    """
    numbers = [number for number, rule in enumerate(rules) if _is_pattern(rule)]
    places: list[list[Span]] = [[] for _ in rules]
    if not numbers:
        return places
    from attncli.inputs.bounded_process import run_bounded
    from attncli.inputs.task_failure import TaskError

    patterns = [rules[number].spec[1:-1] for number in numbers]
    try:
        matches = run_bounded("pattern", {"patterns": patterns, "text": text})
    except TaskError as error:
        # the number of the pattern that failed; None where the process ended before the first
        rule = rules[numbers[error.place or 0]]
        raise _pattern_error(error, rule) from error
    for number, spans in zip(numbers, matches, strict=True):
        places[number] = [(start, end) for start, end in spans]
    return places


def _pattern_error(error: TaskError, rule: RegionRule) -> AttnError:
    """The error, returned and not raised, for a pattern that could not be searched for."""
    from attncli.inputs.bounded_process import SECONDS

    name = repr(rule.name)
    match error.kind:
        case "pattern":
            what = message(
                "the pattern of region {name} is no regular expression: {reason}",
                name=name,
                reason=first_sentence(error),
            )
            return rule.error(what, message("one that Python can read"))
        case "time" | "memory":
            what = message(
                "the pattern of region {name} takes more than {seconds:.0f} seconds, or too much"
                " memory, on this text",
                name=name,
                seconds=SECONDS,
            )
            expected = message(
                "a pattern with fewer ways to match, without a repetition inside a repetition"
            )
            return LimitError(what, where=rule.file or rule.spec[:LONGEST_WORD], expected=expected)
        case _:
            what = message(
                "the process that searches for patterns ended: {reason}",
                reason=first_sentence(error),
            )
            return AttnError(what)


def _spans_between(text: str, start: str, end: str) -> Iterator[Span]:
    """Yield the character spans between two markers, each from the end of a marker `start` to the
    next marker `end`."""
    place = 0
    while (opening := text.find(start, place)) >= 0:
        inside = opening + len(start)
        stop = text.find(end, inside)
        if stop < 0:
            return
        yield inside, stop
        place = stop + len(end)


# What a path such as $.docs[0].title leads to in the JSON that a text holds.

JSON = JSONDecoder()
OPENING = re.compile(r"""\{(?=\s*["}])|\[(?=\s*(?:[]["{\d-]|true|false|null|NaN|Infinity))""")
"""What may open JSON: a bracket with what may follow it."""
WINDOWS = (4096, 2**17)
"""Characters that are looked at first: the parser counts the lines before each fault."""
CUT_OFF = 64
"""Characters before the end of a window in which a fault may come of cutting the text there."""
BLANKS = re.compile(r"\s*")
STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+|\*)\]|\[(?:"([^"]*)"|'([^']*)')\]""")
"""A step of a path: .name or ["name"] of an object, [0] of a list; * for all."""


def _tokens_of_json(
    rule: RegionRule, path: str, text: str, tokens: Sequence[Token]
) -> tuple[int, ...]:
    """The indices of the tokens of the JSON values that a path leads to; at least one, else it
    raises InputError.
    """
    # $.docs[0] has the steps "docs" and "0"; a match fills one of the pattern's groups, and the
    # others are empty
    steps = ["".join(groups) for groups in STEP.findall(path[1:])]
    is_all_steps = not STEP.sub("", path[1:])
    if not path.startswith("$") or not is_all_steps or len(steps) > DEEPEST:
        what = message(
            "region {name} has no path {spec}", name=repr(rule.name), spec=repr(rule.spec)
        )
        raise rule.error(what, message("such as {example}", example="json:$.docs[0]"))

    # the values at the end of the path, in all JSON of the text; and, one level deeper than the
    # path, paths for a suggestion
    suggestions: dict[str, None] = {}  # the keys of a dictionary: each once, in their order
    places: list[Span] = []
    for opening in _json_starts(text):
        for keys, start, stop in _json_values(text, opening, keys=(), depth=len(steps) + 1):
            if len(suggestions) < MOST_WORDS:
                suggestions[_path_text(keys)] = None
            is_at_end = len(keys) == len(steps) and all(
                step in ("*", str(key)) for step, key in zip(steps, keys, strict=True)
            )
            if is_at_end and text[start] == '"':  # of a text, what stands between the quotes
                places.append((start + 1, stop - 1))
            elif is_at_end:
                places.append((start, stop))

    members = _tokens_in_spans(places, tokens)
    if members:
        return members
    # why there is none: the path leads to empty values, there is no JSON, or it leads nowhere
    if places:
        raise _empty_region(rule, message("a value with text in it"))
    if not suggestions:
        raise _empty_region(rule, message("a text with JSON in it"))
    # the nearest, however far it is; a long path is cut, as comparing takes its square in time
    close = get_close_matches(path[: LONGEST_WORD * 4], suggestions, n=1, cutoff=0)
    raise _empty_region(
        rule, message("a path of the JSON in the text, such as {path}", path=close[0])
    )


def _path_text(keys: Sequence[str | int]) -> str:
    """JSON keys as a path, such as $.docs[0]."""
    path = "$"
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        elif STEP.fullmatch(f".{key}"):
            path += f".{key}"
        else:
            path += f'["{key}"]'
    return path


def _json_starts(text: str) -> Iterator[int]:
    """The character index of each outermost JSON object or list in a text. Raises LimitError where
    too much text is read behind brackets that open none.
    """
    place = 0
    read = 0  # characters read behind brackets that open no JSON
    while opening := OPENING.search(text, place):
        try:
            place = _json_end(text, opening.start())
        except (ValueError, RecursionError) as error:
            place = opening.end()
            read += getattr(error, "pos", UNTOLD)  # a RecursionError does not say how far it read
            if read > MOST_READ:
                what = message("too many brackets of this text open JSON that is none")
                raise LimitError(what, expected="JSON, or a region of another form") from error
            continue
        yield opening.start()


def _json_end(text: str, start: int) -> int:
    """The index behind the JSON that begins at the character `start`. Raises ValueError where there
    is none, with how far it was read in `pos`, and RecursionError.

    Short windows of the text are tried first, as the parser counts all lines before a fault.
    """
    for size in WINDOWS:
        window = text[start : start + size]
        try:
            return start + JSON.raw_decode(window)[1]
        except JSONDecodeError as error:
            # a fault well before the window's end is one of the text; at its end, more is needed
            is_inside = error.pos < size - CUT_OFF and not error.msg.startswith("Unterminated")
            if is_inside or len(window) < size:
                raise
    return start + JSON.raw_decode(text[start:])[1]


Keys = tuple[str | int, ...]


def _json_values(text: str, start: int, keys: Keys, depth: int) -> Iterator[tuple[Keys, int, int]]:
    """Yield the JSON value that begins at character `start`, and all values within it: each as its
    keys, first character and end. Raises ValueError where there is none.

    keys: those that lead to the value at `start`.
    depth: how many levels of values within it to go down.
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
        # the first of these is the member itself, which says where the next one begins
        inner = _json_values(text, place, (*keys, key), depth - 1)
        member = next(inner)
        yield member
        yield from inner
        place = _after_blanks(text, member[2])
        if text[place] == ",":
            place = _after_blanks(text, place + 1)
        number += 1


def _after_blanks(text: str, place: int) -> int:
    """The index of the first character from `place` on that is not blank."""
    blanks = BLANKS.match(text, place)
    if blanks is None:
        return place
    return blanks.end()


def _nearest_word(missing: str, text: str, expected: str) -> str:
    """What an error expects: the message `expected`, with the word of the text that is most like
    the missing word, if one is alike."""
    if len(missing) > LONGEST_WORD:
        return expected
    beginning = text[:SEARCHED]
    candidates = (*beginning.split()[:MOST_WORDS], *WORD.findall(beginning)[:MOST_WORDS])
    words = {word.casefold(): word for word in candidates if len(word) <= LONGEST_WORD}
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
    """The first and the last number of a range such as 3-5 or 3. Raises UsageError for anything
    else, or InputError where a file states the rule.

    kind: what is counted, a key of `FORMS`.
    """
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", numbers)
    if match is not None:
        first = int(match[1])
        last = int(match[2] or match[1])  # a single number is a range of one
        if FORMS[kind] <= first <= last:
            return first, last
    what = message("region {name} has no range {spec}", name=repr(rule.name), spec=repr(rule.spec))
    expected = message(
        "such as {kind}:{first}-{last}, counted from {first}",
        kind=kind,
        first=FORMS[kind],
        last=FORMS[kind] + 9,
    )
    raise rule.error(what, expected)


def _empty_region(rule: RegionRule, expected: str) -> InputError:
    """The error, returned and not raised, that a rule selects no token.

    expected: what would select one.
    """
    return InputError(
        "nothing in the text is in region {name}: {spec}",
        expected=expected,
        name=repr(rule.name),
        spec=rule.spec,
    )


def _tokens_in_spans(places: Sequence[Span], tokens: Sequence[Token]) -> tuple[int, ...]:
    """The indices of the tokens that share a character with one of these spans [start, end)."""
    spans = sorted(places)
    starts = [start for start, _ in spans]
    # reach[i] is the furthest end of the spans up to number i: a token meets a span if, of all
    # spans that begin before the token ends, the furthest end lies behind the token's start
    reach = list(accumulate((end for _, end in spans), max))
    members = []
    for token in tokens:
        if token.start is None or token.end is None:
            continue
        before = bisect_left(starts, token.end)
        if before and reach[before - 1] > token.start:
            members.append(token.index)
    return tuple(members)
