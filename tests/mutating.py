"""Documents changed at random, each change told by its seed: what somebody's editor, or somebody's malice, makes of
them."""

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
    """The path of every value in a document, its own members first; of long lists the ends and some between."""
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
    """The document with one to three changes: members dropped, retyped, emptied, doubled, cut, exchanged or nested."""
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
            holder[name] = random.choice((value + 1, value - 1, -value, value * 1000, value / 3, int(value)))
        case 7 if isinstance(holder, dict) and len(holder) > 1:
            other = random.choice([key for key in holder if key != name])
            holder[name], holder[other] = holder[other], holder[name]
        case 8:
            holder[name] = {"nested": value} if random.random() < 0.5 else [value]
        case _:
            holder[name] = copy.deepcopy(random.choice(VALUES))
