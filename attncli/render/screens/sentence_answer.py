"""The answer: the sentence, each word tinted by how much it is looked at, and what that says in one or two sentences.

Each sentence has its rule; none says more than the numbers of the document hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix
from attncli.render.numbers import percent
from attncli.render.phrases import say
from attncli.render.screens.overview import left_out
from attncli.render.sentence import sentence, words
from attncli.render.token_names import quoted_ends, quoted_token
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.find import FindDocument
    from attncli.analysis.documents.parts import ModelPart
    from attncli.analysis.documents.run import RunDocument, RunHead

SECOND = 0.5
"""A second key is named where its weight is at least this share of the first one's."""
EVEN = 1.5
"""A row whose largest weight is below this many even shares (1 / visible keys) is called even."""


@dataclass(frozen=True)
class Look:
    """One head's look from a query at a key: positions, weight, and which head."""

    query: int
    key: int
    weight: float
    layer: int
    head: int


def run_answer(document: RunDocument, view: View) -> Lines:
    """The answer of an `attn.run/1` document: about its query, or the strongest link of all; then whether the weights
    are learned."""
    tokens = document.tokens
    queries = document.queries
    looks = strongest(document)
    told: list[str] = []
    if queries:
        shares, chosen = _from_query(document, queries[0], looks), frozenset(queries)
        told += _about(document, queries[0], looks, view)
    else:
        link = _of_choice(document, looks)
        shares, chosen = _received(document, looks), frozenset(() if link is None else (link.query,))
        told += [] if link is None else [_link(document, link, view)]
        told += [say(view, "answer.link.choice")] if link is not None and link.weight < looks[0].weight else []
    none = "answer.links.none.unknown" if "unknown" in (document.links_leave_out or ()) else "answer.links.none"
    told += [say(view, none)] if tokens and not told and left_out(document) else []
    told += [not_learned(document.model, view)]
    return stack(
        (
            sentence(words(document.text, tokens, shares, chosen), view),
            remark(say(view, _tinted(document)), view) if any(shares) else Lines(),
            sentences(told, view),
        )
    )


def _tinted(document: RunDocument) -> str:
    """The name of the phrase that says what the tint shows."""
    held = _heads(document)
    kinds = document.links_leave_out or ()
    links = f"answer.tint.links.{'unknown' if 'unknown' in kinds else 'some'}" if kinds else "answer.tint.links"
    if document.queries:
        return "answer.tint.row" if len(held) == 1 else links
    return "answer.tint" if held else links


def strongest(document: RunDocument) -> list[Look]:
    """The strongest link of every head, strongest first: from the overview, or from the links."""
    entries = [(entry, entry.link) for entry in document.overview or () if entry.link is not None]
    found = [Look(link.query, link.key, link.weight, entry.layer, entry.head) for entry, link in entries]
    found += [Look(link.query, link.key, link.weight, link.layer, link.head) for link in document.links]
    return sorted(dict.fromkeys(found), key=lambda look: (-look.weight, look.layer, look.head, look.query, look.key))


def _of_choice(document: RunDocument, looks: Sequence[Look]) -> Look | None:
    """The strongest link of a query that sees several keys: one that sees a single key has no choice. Else the
    strongest of all."""
    scores = next((head.scores for head in _heads(document) if head.scores is not UNSET), None)
    if scores is None or not looks:
        return next(iter(looks), None)
    free = np.isfinite(as_matrix(scores)).sum(axis=1) > 1
    held = [look for look in looks if free[look.query]][:1]
    for layer in [] if held else document.layers:
        for head in layer.heads:
            if head.weights is not UNSET and free.any():
                weights = np.where(free[:, None], np.nan_to_num(as_matrix(head.weights)), 0.0)
                query, key = np.unravel_index(int(weights.argmax()), weights.shape)
                held.append(Look(int(query), int(key), float(weights.max()), layer.layer, head.head))
    return max(held, key=lambda look: look.weight, default=looks[0])


def _heads(document: RunDocument) -> list[RunHead]:
    return [head for layer in document.layers for head in layer.heads if head.weights is not UNSET]


def _from_query(document: RunDocument, query: int, looks: Sequence[Look]) -> list[float | None]:
    """What each key gets from the query: the weights of the only head, or the strongest link to it of any head."""
    count = len(document.tokens)
    held = [rows[0, :count] for rows in (as_matrix(head.weights) for head in _heads(document)) if len(rows)]
    if len(held) == 1:
        return [float(value) for value in np.nan_to_num(held[0])]
    return _most([look for look in looks if look.query == query], count)


def _received(document: RunDocument, looks: Sequence[Look]) -> list[float | None]:
    """What each key gets of all queries, in the head that gives it most: how far above an even share, the largest
    being 1."""
    count = len(document.tokens)
    held = [np.nan_to_num(as_matrix(head.weights))[:, :count].mean(axis=0) for head in _heads(document)]
    if not held:
        return _most(looks, count)
    most = np.max(held, axis=0) - 1 / max(count, 1)
    greatest = float(most.max(initial=0.0))
    return [float(value) / greatest if greatest > 0 else 0.0 for value in most]


def _most(looks: Sequence[Look], count: int) -> list[float | None]:
    shares: list[float | None] = [0.0] * count
    for look in reversed(looks):
        if look.key < count:
            shares[look.key] = look.weight
    return shares


def _about(document: RunDocument, query: int, looks: Sequence[Look], view: View) -> list[str]:
    """What the query looks at most, and where most of its weight rests over all heads."""
    several = len({(look.layer, look.head) for look in looks}) > 1 or len(document.overview or ()) > 1
    mine = [look for look in looks if look.query == query]
    average = document.average
    asked = quoted_token(document.tokens, query, view, beside=[look.key for look in mine[:2]])
    if not mine:
        blind = any(row.query == query for row in document.empty_rows)
        return [say(view, "answer.blind", asked)] if blind else []
    first = mine[0]
    seen = _visible(document, query)
    if first.weight < EVEN / max(seen, 1):
        return [say(view, "answer.even", asked, rounded(first.weight, view), rounded(1 / seen, view))]
    second = next((look for look in mine if look.key != first.key and look.weight >= SECOND * first.weight), None)
    said = [_looks(document, asked, first, second, several, view)]
    if several and average is not UNSET:
        top = int(np.argmax(average))
        if top != first.key and top < len(document.tokens) and not document.tokens[top].unknown:
            key = quoted_token(document.tokens, top, view, beside=(query, first.key))
            said.append(say(view, "answer.rests", key, rounded(average[top], view)))
    return said


def _looks(document: RunDocument, asked: str, first: Look, second: Look | None, several: bool, view: View) -> str:
    def place(look: Look) -> tuple[object, ...]:
        where = (look.layer, look.head) if several else ()
        number = rounded(look.weight, view) if several else percent(look.weight)
        beside = (look.query, *(other.key for other in (first, second) if other is not None))
        return (quoted_token(document.tokens, look.key, view, beside=beside), number, *where)

    kind = "heads" if several else "one"
    if second is None:
        return say(view, f"answer.looks.{kind}", asked, *place(first))
    return say(view, f"answer.looks.{kind}.two", asked, *place(first), *place(second))


def _link(document: RunDocument, look: Look, view: View) -> str:
    several = len(document.overview or _heads(document)) > 1
    ends = quoted_ends(document.tokens, document.tokens, look, view)
    place = (look.layer, look.head) if several else ()
    return say(view, f"answer.link.{'heads' if several else 'one'}", *ends, percent(look.weight), *place)


def _visible(document: RunDocument, query: int) -> int:
    """Keys that the query sees, by the scores where there are any, else all."""
    for head in _heads(document):
        rows = document.queries or range(len(document.tokens))
        if head.scores is not UNSET and query in rows:
            row = as_matrix(head.scores)[list(rows).index(query)]
            return int(np.isfinite(row).sum())
    return len(document.tokens)


def not_learned(model: ModelPart, view: View) -> str:
    """That weights are not learned, for those that are not; else ""."""
    match model.source:
        case "seeded":
            return say(view, "answer.seeded", model.seed)
        case "random":
            return say(view, "answer.random", model.seed)
        case _:
            return ""


def rounded(value: float, view: View) -> str:
    """A number with the view's digits."""
    return f"{value:.{view.precision}f}"


def find_answer(document: FindDocument, view: View) -> Lines:
    """The answer of an `attn.find/1` document: which heads send the one token to the other."""
    found = document.heads
    ends = (document.query, document.key)
    asked, key = (quoted_token(document.tokens, at, view, beside=ends) for at in ends)
    visible = [head for head in found if head.rank is not None]
    if not visible:
        return remark(say(view, "answer.find.hidden", asked, key) if found else "", view, style="")
    first, *others = sorted(visible, key=lambda head: (-head.weight, head.layer, head.head))
    shares: list[float | None] = [0.0] * len(document.tokens)
    shares[document.key] = first.weight
    place = (first.layer, first.head, percent(first.weight))
    told = say(
        view,
        "answer.find" if others else "answer.find.one",
        *((asked, key, *place) if others else (asked, key, place[2])),
    )
    count = sum(head.rank == 1 for head in visible)
    rank = say(view, "answer.find.first", count, len(found), key, asked) if others else ""
    shaded = sentence(words(document.text, document.tokens, shares, frozenset({document.query})), view)
    said = (told, rank, not_learned(document.model, view))
    tint = remark(say(view, "answer.tint.link", say(view, "effect.head", *place[:2])), view)
    return stack((shaded, tint, sentences(said, view)))
