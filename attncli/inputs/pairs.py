"""Pairs of texts that differ in one fact, with the answers that follow each: read from JSON Lines or from a template.

A pair is a clean text and a corrupt one, and two tokens that may come next: `answer`, right after the
clean text, and `versus`, right after the corrupt one. Source of the idea: Wang et al., Interpretability
in the wild, 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import cast

from msgspec import Struct

from attncli.arrays.numpy_backend import integers
from attncli.errors import InputError
from attncli.inputs.files import is_there, parse_object, read_regular
from attncli.language import listing, message

TASKS = Path(__file__).parent / "pair_tasks"
"""The files of pairs that are part of the package."""
MEMBERS = ("clean", "corrupt", "answer", "versus")
"""The members of a pair, each a text."""
FILE_LIMIT = 64 * 2**20
MOST_PAIRS = 10_000
LARGEST_SEED = 2**63 - 1
TEMPLATE_COUNT = 64
"""Pairs that a template gives where it does not say how many."""
ATTEMPTS = 20
"""Draws for each pair that is most, after which a template has no more pairs to give."""
LINES_EXPECTED = message("lines of JSON, each with {members}", members=listing(MEMBERS))


class Pair(Struct, frozen=True):
    """Two texts and two answers.

    clean: the text that `answer` follows.
    corrupt: the text that `versus` follows.
    answer, versus: the next token as text, with its blank: " Mary"; without one it is tried with a
        blank first.
    """

    clean: str
    corrupt: str
    answer: str
    versus: str


class PairFile(Struct, frozen=True):
    """Pairs as they were read.

    name: of the file or of the task.
    places: where each pair comes from, such as "pairs.jsonl:3", for errors about it.
    """

    name: str
    pairs: tuple[Pair, ...]
    places: tuple[str, ...]


def task_names() -> list[str]:
    """The names of the files of pairs that are part of the package, in alphabetical order."""
    return sorted(path.stem for path in TASKS.glob("*.json"))


def read_pairs(
    source: str | Path, *, count: int | None = None, seed: int | None = None
) -> PairFile:
    """Read pairs from a file, or those of a task of the package.

    Args:
        source: A file of JSON Lines, each a pair, or of one JSON object with a template; or the
            name of a task, such as "indirect-object".
        count: How many pairs; None for all of a file, and for what a template says.
        seed: Of the draws from the lists of a template; None for what it says.

    Returns:
        The pairs in the order of the file, or in the order drawn.

    Raises:
        InputError: For a file that cannot be read or holds no pair, with the line.
    """
    if str(source) in task_names():
        path = TASKS / f"{source}.json"
        name = str(source)
    else:
        path = Path(source)
        name = path.name
    raw = _read(path)
    template = _template_of(raw, str(path))
    if template is not None:
        pairs = tuple(_draw_pairs(template, str(path), count, seed))
        return PairFile(name, pairs, (str(path),) * len(pairs))
    entries = list(_pairs_of_lines(raw, str(path)))[:count]
    if not entries:
        raise InputError("this file holds no pair", where=str(path), expected=LINES_EXPECTED)
    return PairFile(
        name, tuple(pair for pair, _ in entries), tuple(f"{path}:{line}" for _, line in entries)
    )


def _read(path: Path) -> bytes:
    """The bytes of a file of pairs. Raises InputError, naming the tasks where there is no file."""
    try:
        return read_regular(path, what=message("the file of pairs"), limit=FILE_LIMIT)
    except InputError as error:
        if path.suffix or is_there(path):  # no name of a task
            raise
        what = message("there is no file and no task {name}", name=repr(str(path)))
        expected = message("a file of pairs, or one of {tasks}", tasks=listing(task_names()))
        raise InputError(what, expected=expected) from error


def _template_of(raw: bytes, where: str) -> Mapping[str, object] | None:
    """The JSON object of a file of pairs that holds one template; None for a file of JSON Lines.

    raw: the file's bytes.
    where: its path, for errors.

    Raises InputError for bytes that are not UTF-8, and for a first line that is no JSON where the
    whole file is none either.
    """
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = message("this file is not UTF-8 from byte {byte} on", byte=error.start)
        raise InputError(what, where=where, expected=LINES_EXPECTED) from error
    first_line = raw.lstrip().split(b"\n", 1)[0]
    if not first_line:  # blank: lines of JSON, of which there are none
        return None
    try:
        first_object = parse_object(first_line, where, message("a pair"))
    except InputError:
        expected = LINES_EXPECTED
        if first_line.startswith(b"{"):  # perhaps over several lines
            expected = message("a template of pairs")
        return parse_object(raw, where, expected)
    if "template" in first_object:
        return first_object
    return None


def _pairs_of_lines(raw: bytes, where: str) -> Iterator[tuple[Pair, int]]:
    """Yield each pair of JSON Lines with the number of its line, from 1; blank lines are passed
    over. Raises InputError for a line that is no pair, and for more than `MOST_PAIRS`."""
    pair_count = 0
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        members = parse_object(line, place, message("a pair"))
        _refuse_members(members, place)
        pair_count += 1
        if pair_count > MOST_PAIRS:
            expected = message("at most {most:,} pairs", most=MOST_PAIRS)
            raise InputError("there are more pairs", where=place, expected=expected)
        yield Pair(*(str(members[name]) for name in MEMBERS)), number


def _refuse_members(members: Mapping[str, object], place: str) -> None:
    """Raise InputError unless an object has the members of a pair, each a text that is not
    empty."""
    missing = [name for name in MEMBERS if name not in members]
    if missing:
        what = message("a pair without {missing}", missing=listing(missing))
        raise InputError(what, where=place, expected=LINES_EXPECTED)
    wrong = [name for name in MEMBERS if not (isinstance(members[name], str) and members[name])]
    if wrong:
        value = repr(members[wrong[0]])
        what = message("{name} of this pair is {value}", name=wrong[0], value=value)
        raise InputError(what, where=place, expected="a text")
    unknown = [name for name in members if name not in MEMBERS]
    if unknown:
        what = message("a pair has no {name}", name=repr(unknown[0]))
        raise InputError(what, where=place, expected=listing(MEMBERS))
    if members["answer"] == members["versus"]:
        what = message("answer and versus are both {value}", value=repr(members["answer"]))
        raise InputError(what, where=place, expected="two answers that differ")


# Templates: a text with places in braces, and lists of what may stand there.


class _Template(Struct, frozen=True):
    """A template as it is used.

    texts: the template of each member of a pair, by its name.
    lists: what may stand in each place that is drawn.
    alike: for clean and corrupt, whose value each other place repeats.
    count: how many pairs it gives.
    seed: of the draws.
    """

    texts: Mapping[str, str]
    lists: Mapping[str, Sequence[str]]
    alike: Mapping[str, Mapping[str, str]]
    count: int
    seed: int


def _draw_pairs(
    members: Mapping[str, object], where: str, count: int | None, seed: int | None
) -> Iterator[Pair]:
    """Yield pairs that differ from each other, drawn from a template's lists. No value stands in
    two drawn places of one pair. Fewer come where the lists give no more.

    members: the JSON object that describes the template.
    count, seed: how many pairs, and the seed of the draws; None for what the template says.

    Raises InputError for a template that is malformed or gives no pair.
    """
    template = _check_template(members, where)
    if count is None:
        most = template.count
    else:
        most = count
    if seed is None:
        seed = template.seed
    pairs: set[Pair] = set()
    for attempt in range(most * ATTEMPTS):
        values = _draw_values(template.lists, seed, attempt)
        if values is None:  # two places drew the same
            continue
        pair = Pair(*(_fill(template, name, values) for name in MEMBERS))
        if pair not in pairs and pair.answer != pair.versus:
            pairs.add(pair)
            yield pair
        if len(pairs) == most:
            return
    if not pairs:
        expected = message("lists long enough for values that differ within a pair")
        raise InputError("this template gives no pair", where=where, expected=expected)


def _draw_values(
    lists: Mapping[str, Sequence[str]], seed: int, attempt: int
) -> dict[str, str] | None:
    """Draw one value for each place of a template; None where two places drew the same.

    lists: the values to draw from, by place.
    attempt: which draw this is; each has random numbers of its own, the same on every machine.
    """
    values = {}
    for name, choices in lists.items():
        (number,) = integers(seed, f"pairs\0{name}\0{attempt}", 1).tolist()
        values[name] = choices[number % len(choices)]
    if len(set(values.values())) == len(values):
        return values
    return None


def _fill(template: _Template, member: str, values: Mapping[str, str]) -> str:
    """Fill the template of one text of a pair with the drawn values. A place that repeats another
    place gets the value of that one.

    member: which text of the pair.
    """
    repeated = template.alike.get(member, {})
    everything = {**values, **{name: values[source] for name, source in repeated.items()}}
    return template.texts[member].format_map(everything)


def _check_template(members: Mapping[str, object], where: str) -> _Template:
    """The template that an object describes. Raises InputError, naming the member that is wrong."""
    member_names = ("template", "lists", "clean", "corrupt", "answer", "versus", "count", "seed")
    unknown = [name for name in members if name not in member_names]
    if unknown:
        what = message("a template of pairs has no {name}", name=repr(unknown[0]))
        raise InputError(what, where=where, expected=listing(member_names))
    lists = _check_lists(members.get("lists"), where)
    # of either text the places that repeat another: {"C": "A"} writes the value of A in place of C
    alike = {
        side: _check_repeats(members.get(side), side, lists, where) for side in ("clean", "corrupt")
    }
    if alike["clean"] == alike["corrupt"]:
        what = message("clean and corrupt of this template are the same")
        raise InputError(what, where=where, expected='"clean": {"C": "A"}, "corrupt": {"C": "B"}')

    # both texts come from one template, in which some places repeat other values
    sentence = members.get("template")
    members_by_name = {
        "clean": sentence,
        "corrupt": sentence,
        "answer": members.get("answer"),
        "versus": members.get("versus"),
    }
    texts = {}
    for name, text in members_by_name.items():
        places = {*lists, *alike.get(name, {})}
        if name in alike:  # clean or corrupt, whose text is the member "template"
            member_name = "template"
        else:
            member_name = name
        texts[name] = _check_text(text, member_name, places, where)
    count = _check_number(members.get("count", TEMPLATE_COUNT), "count", 1, MOST_PAIRS, where)
    seed = _check_number(members.get("seed", 0), "seed", 0, LARGEST_SEED, where)
    return _Template(texts, lists, alike, count, seed)


def _check_number(value: object, name: str, least: int, most: int, where: str) -> int:
    """A whole number of a template, from `least` to `most`. Raises InputError for any other."""
    # True is no number, though Python has it as 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        expected = message("a whole number from {least} to {most:,}", least=least, most=most)
        what = message("{name} of this template is {value}", name=name, value=repr(value))
        raise InputError(what, where=where, expected=expected)
    return value


def _check_lists(lists: object, where: str) -> dict[str, Sequence[str]]:
    """The lists of a template by name, checked. The name of another list in place of a list stands
    for that list: in {"A": ["Mary", "John"], "B": "A"} both places draw from the same names. Raises
    InputError.
    """
    expected = '"lists": {"A": ["Mary", "John"], "B": "A"}'
    if not isinstance(lists, dict) or not lists:
        raise InputError("a template of pairs needs lists", where=where, expected=expected)
    result: dict[str, Sequence[str]] = {}
    for name, values in lists.items():
        entries = values
        if isinstance(values, str):
            entries = lists.get(values)
        if not _is_list_of_texts(entries):
            what = message("the list {name} of this template holds no texts", name=repr(name))
            raise InputError(what, where=where, expected=expected)
        result[name] = cast(list[str], entries)
    return result


def _is_list_of_texts(entries: object) -> bool:
    """Whether this is a list of texts, of at least one."""
    is_list = isinstance(entries, list) and bool(entries)
    return is_list and all(isinstance(entry, str) for entry in cast(list[object], entries))


def _check_repeats(
    repeats: object, side: str, lists: Mapping[str, object], where: str
) -> dict[str, str]:
    """Check what the clean or the corrupt text of a template repeats: {"C": "A"} says that place C
    has the value drawn for list A.

    repeats: any JSON value.
    side: "clean" or "corrupt".

    Raises InputError for anything but such an object, and for a list that does not exist.
    """
    if not isinstance(repeats, dict) or not repeats:
        expected = message("an object such as {example}", example='{"C": "A"}')
        what = message("{side} of this template says nothing", side=side)
        raise InputError(what, where=where, expected=expected)
    for name, source in repeats.items():
        if not isinstance(source, str) or source not in lists:
            what = message(
                "{side} of this template takes {name} from {source}, which is no list",
                side=side,
                name=repr(name),
                source=repr(source),
            )
            raise InputError(what, where=where, expected=listing(lists))
    return {str(name): str(source) for name, source in repeats.items()}


def _check_text(text: object, name: str, places: set[str], where: str) -> str:
    """Check one text of a template: its places in braces must be plain names out of `places`.
    Returns the text.

    text: any JSON value.
    name: what the text is called, for errors.

    Raises InputError.
    """
    if not isinstance(text, str) or not text:
        what = message("a template of pairs without {missing}", missing=name)
        raise InputError(what, where=where, expected="a text with places such as {A}")
    try:
        # "{A!r:>9}" has the field "A", the conversion "r" and the spec ">9"
        fields = [
            (field, spec or conversion) for _, field, spec, conversion in Formatter().parse(text)
        ]
    except ValueError as error:
        what = message("{name} of this template is {value}", name=name, value=repr(text))
        raise InputError(what, where=where, expected="braces in pairs, such as {A}") from error
    for field, dressing in fields:
        # only plain names: an attribute or an index in braces would read more than the lists; None
        # is the text behind the last place
        if field is not None and (field not in places or dressing):
            what = message("{name} has a place {place}", name=name, place=repr(field))
            raise InputError(what, where=where, expected=listing(sorted(places)))
    return text
