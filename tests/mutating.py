"""Documents changed at random, each change told by its seed: what somebody's editor, or somebody's
malice, makes of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2, 3, 7, 10**6, 2**63, 10**400, 0.0, -0.0, 0.5, 1.0, -1.5, 1e308, 5e-324, "", "x", "\x1b[31m",
    "causal", "none", [], {}, [0], [[0]], [[]], [None], [[None]], [[0.5, 0.5], [1.0]], [[[0.0]]], {"x": 0}, {"": None},
)  # fmt: skip
"""What takes the place of a value."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document, its own members first; of long lists the ends and some
    between.
    """
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        kept = range(len(value)) if len(value) <= 6 else (0, 1, len(value) // 2, len(value) - 1)
        items = [(at, value[at]) for at in kept]
    for name, held in items:
        yield (*path, name)
        yield from places(held, (*path, name))


def mutated(document: dict[str, Any], seed: int) -> dict[str, Any]:
    """The document with one to three changes: members dropped, retyped, emptied, doubled, cut,
    exchanged or nested.
    """
    random = Random(seed)
    found = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        paths = list(places(found))
        if not paths:
            break
        # as often at the top as deep down, where most of the values are
        depth = random.choice(sorted({len(path) for path in paths}))
        path = random.choice([path for path in paths if len(path) == depth])
        _change(found, path, random)
    return found


def _change(document: Any, path: tuple[Any, ...], random: Random) -> None:
    *outer, name = path
    holder = document
    for step in outer:
        holder = holder[step]
    value = holder[name]
    match random.randrange(9):
        case 0:
            del holder[name]
        case 1 | 2:
            holder[name] = copy.deepcopy(random.choice(VALUES))
        case 3 if isinstance(value, list) and value:
            value.insert(random.randrange(len(value) + 1), copy.deepcopy(random.choice(value)))
        case 4 if isinstance(value, list) and value:
            del value[random.randrange(len(value)) :]
        case 5 if isinstance(value, list) and value:
            random.shuffle(value)
        case 6 if type(value) in (int, float):
            holder[name] = random.choice(
                (value + 1, value - 1, -value, value * 1000, value // 3, int(value))
            )
        case 7 if isinstance(holder, dict) and len(holder) > 1:
            other = random.choice([key for key in holder if key != name])
            holder[name], holder[other] = holder[other], holder[name]
        case 8:
            holder[name] = {"nested": value} if random.random() < 0.5 else [value]
        case _:
            holder[name] = copy.deepcopy(random.choice(VALUES))


WHOLE = (0, 1, 2, 3, 17, 100, 10**6, 10**12, 2**62, 2**63 - 1)
BROKEN = (0.0, 1.0, -1.0, 0.5, 1e-9, 1e9, 1e300, -1e300, 5e-324, -0.0)
TEXTS = (
    "",
    "x",
    "\x1b[2J",
    "[bold]",
    "a" * 500,
    "\u202e",
    "\n\n",
    "面包",
    "none",
    "causal",
    "%s {} {0}",
    "e\u0301" * 9,
)


def retold(document: dict[str, Any], seed: int) -> dict[str, Any]:
    """The document with one to five values changed to others of their type, which its declaration
    lets through.
    """
    random = Random(seed)
    found = copy.deepcopy(document)
    paths = list(places(found))
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        depth = random.choice(sorted({len(path) for path in paths}))
        *outer, name = random.choice([path for path in paths if len(path) == depth])
        holder: Any = found
        try:
            for step in outer:
                holder = holder[step]
            value = holder[name]
        except (KeyError, IndexError, TypeError):  # an earlier change took it away
            continue
        match value:
            case bool():
                holder[name] = not value
            case int():
                holder[name] = random.choice((*WHOLE, value + 1, max(value - 1, 0), value * 2))
            case float():
                holder[name] = random.choice((*BROKEN, value * 2, -value, value + 1e-7))
            case str():
                holder[name] = random.choice((*TEXTS, value + value))
            case list() if value:
                holder[name] = random.choice(
                    ([], value * 2, value[:1], value[::-1], value[:-1], [*value, value[0]])
                )
            case dict() if value and random.random() < 0.4:
                del value[random.choice(list(value))]
    return found
