"""Conditions of links, as `--find` takes them: "from=it to=animal weight>=0.3 head=L5H11"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import UsageError
from attncli.inputs.token import Token
from attncli.measure.visible_keys import Ints

EXPECTED = 'such as "from=it to=animal weight>=0.3 head=L5H11"'


@dataclass(frozen=True)
class Condition:
    """Links to keep. source, target: texts of the query's and key's token, None for any. least: their smallest weight.
    heads: (layer, head) to look at; empty for all."""

    source: str | None = None
    target: str | None = None
    least: float = 0.0
    heads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class MatchedLink:
    """A link that was found: which of the batch's texts, and where."""

    text: int
    layer: int
    head: int
    query: int
    key: int
    weight: float


def parse(text: str) -> Condition:
    """A condition as written. Raises UsageError for what is none, or for one that would keep nearly every link."""
    values: dict[str, str] = {}
    for piece in text.split():
        match = re.fullmatch(r"(from|to|head)=(.+)|(weight)>=(\d+(?:\.\d+)?)", piece)
        if match is None:
            raise UsageError(f"--find {text!r}: {piece!r} is no condition", expected=EXPECTED)
        name, value = (match[1], match[2]) if match[1] else (match[3], match[4])
        if name in values:
            raise UsageError(f"--find {text!r} says {name} twice", expected=EXPECTED)
        values[name] = value
    least = float(values.get("weight", "0"))
    if least > 1:
        raise UsageError(f"--find {text!r}: no weight reaches {least:g}", expected="a weight from 0 to 1")
    if not {"from", "to"} & set(values) and (least < 0.5 or "head" not in values):
        raise UsageError(
            f"--find {text!r} would keep links of nearly every text",
            expected="a token, or a head and a weight from 0.5",
        )
    return Condition(values.get("from"), values.get("to"), least, parse_heads(values.get("head", "")))


def parse_heads(text: str) -> tuple[tuple[int, int], ...]:
    """Heads such as `L5H11,L3H1`. Raises UsageError."""
    heads = []
    for piece in filter(None, text.split(",")):
        match = re.fullmatch(r"L(\d{1,6})H(\d{1,6})", piece)
        if match is None:
            raise UsageError(f"{piece!r} is no head", expected="such as L5H11 or L5H11,L3H1")
        heads.append((int(match[1]), int(match[2])))
    return tuple(heads)


def places(condition: Condition, tokens: Sequence[Token]) -> tuple[Ints, Ints] | None:
    """The queries and keys of a text that the condition is about; None where there are none."""
    indices = []
    for text in (condition.source, condition.target):
        matches = [token.index for token in tokens if text is None or plain(token.text) == text.casefold()]
        if not matches:
            return None
        indices.append(np.array(matches, np.int64))
    return indices[0], indices[1]


def plain(text: str) -> str:
    """A token's text as a condition names it: without marks of word starts, in lower case."""
    return text.strip("Ġ▁ ").removeprefix("##").casefold()


def links(
    condition: Condition,
    backend: Backend,
    weights: Array,
    layer: int,
    where: Sequence[tuple[Ints, Ints] | None],
    *,
    first: int,
    first_head: int,
) -> list[MatchedLink]:
    """The links of a layer that meet the condition. weights: [text, head, row, key] from query `first` and head
    `first_head` on; where: `places` of each text."""
    head_range = range(first_head, first_head + weights.shape[1])
    heads = (
        [head for head_layer, head in condition.heads if head_layer == layer and head in head_range]
        if condition.heads
        else list(head_range)
    )
    matched_links = []
    for text, place in enumerate(where):
        if place is None or not heads:
            continue
        weight_rows = np.asarray(backend.numpy(weights[text]), np.float64)[[head - first_head for head in heads]]
        queries = place[0][(place[0] >= first) & (place[0] < first + weight_rows.shape[1])]
        part = weight_rows[:, queries - first][:, :, place[1]]
        for head, query, key in np.argwhere((part >= condition.least) & (part > 0)).tolist():
            weight = float(part[head, query, key])
            matched_links.append(MatchedLink(text, layer, heads[head], int(queries[query]), int(place[1][key]), weight))
    return matched_links
