"""The answer: the sentence, each word tinted by how much it is looked at, and what that says in one or two sentences.

Each sentence has its rule; none says more than the numbers of the document hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.overview import left_out
from attncli.render.sentence import sentence, words
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.find import FindDocument
    from attncli.analysis.documents.heads import HeadMetrics, HeadsDocument
    from attncli.analysis.documents.parts import Header, ModelPart
    from attncli.analysis.documents.run import RunDocument, RunHead

SECOND = 0.5
"""A second key is named where its weight is at least this share of the first one's."""
HALF = 0.5
"""More than this share is most of a head's weight."""
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
        shares, chosen = _received(document, looks), frozenset(look.query for look in looks[:1])
        told += [_link(document, looks[0], view)] if looks else []
    told += [say(view, "answer.links.none")] if tokens and not told and left_out(document) else []
    told += [not_learned(document.model, view)]
    return stack(
        (
            sentence(words(document.text, tokens, shares, chosen), view),
            remark(say(view, _tinted(document)), view) if any(shares) else Lines(),
            *(remark(said, view, style="") for said in told),
        )
    )


def _tinted(document: RunDocument) -> str:
    """The name of the phrase that says what the tint shows."""
    held = _heads(document)
    if document.queries:
        return "answer.tint.row" if len(held) == 1 else "answer.tint.links"
    return "answer.tint" if held else "answer.tint.links"


def strongest(document: RunDocument) -> list[Look]:
    """The strongest link of every head, strongest first: from the overview, or from the links."""
    entries = [(entry, entry.link) for entry in document.overview or () if entry.link is not None]
    found = [Look(link.query, link.key, link.weight, entry.layer, entry.head) for entry, link in entries]
    found += [Look(link.query, link.key, link.weight, link.layer, link.head) for link in document.links]
    return sorted(dict.fromkeys(found), key=lambda look: (-look.weight, look.layer, look.head, look.query, look.key))


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
    asked = _text(document, query, view)
    mine = [look for look in looks if look.query == query]
    average = document.average
    if not mine:
        blind = any(row.query == query for row in document.empty_rows)
        return [say(view, "answer.blind", asked)] if blind else []
    first = mine[0]
    seen = _visible(document, query)
    if first.weight < EVEN / max(seen, 1):
        return [say(view, "answer.even", asked, _number(first.weight, view), _number(1 / seen, view))]
    second = next((look for look in mine if look.key != first.key and look.weight >= SECOND * first.weight), None)
    said = [_looks(document, asked, first, second, several, view)]
    if several and average is not UNSET:
        top = int(np.argmax(average))
        if top != first.key and top < len(document.tokens):
            said.append(say(view, "answer.rests", _text(document, top, view), _number(average[top], view)))
    return said


def _looks(document: RunDocument, asked: str, first: Look, second: Look | None, several: bool, view: View) -> str:
    def place(look: Look) -> tuple[object, ...]:
        where = (look.layer, look.head) if several else ()
        number = _number(look.weight, view) if several else _share(look.weight)
        return (_text(document, look.key, view), number, *where)

    kind = "heads" if several else "one"
    if second is None:
        return say(view, f"answer.looks.{kind}", asked, *place(first))
    return say(view, f"answer.looks.{kind}.two", asked, *place(first), *place(second))


def _link(document: RunDocument, look: Look, view: View) -> str:
    several = len(document.overview or _heads(document)) > 1
    ends = (_text(document, look.query, view), _text(document, look.key, view), _share(look.weight))
    place = (look.layer, look.head) if several else ()
    return say(view, f"answer.link.{'heads' if several else 'one'}", *ends, *place)


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


def _text(document: Header, index: int, view: View) -> str:
    tokens = document.tokens
    return say(view, "quoted", label(tokens[index].text, ascii=view.ascii) if index < len(tokens) else "bias_k")


def _share(value: float) -> str:
    return f"{value:.0%}".replace("%", " %")


def _number(value: float, view: View) -> str:
    return f"{value:.{view.precision}f}"


def heads_answer(document: HeadsDocument, view: View) -> Lines:
    """The answer of an `attn.heads/1` document: where heads rest, who looks at a neighbour, the strongest link."""
    told = [*_resting(document, view), *_positional(document, view)]
    links = [(head, head.top_link) for head in document.heads if head.top_link]
    if links:
        head, link = max(links, key=lambda each: each[1].weight)
        ends = (_text(document, link.query, view), _text(document, link.key, view), _share(link.weight))
        told.append(say(view, "answer.link.heads", *ends, head.layer, head.head))
    told.append(not_learned(document.model, view))
    shares = _attended(document)
    shaded = sentence(words(document.text, document.tokens, shares, frozenset()), view) if shares else Lines()
    tint = remark(say(view, "answer.tint") if shares else "", view)
    return stack((shaded, tint, *(remark(said, view, style="") for said in told)))


def _attended(document: HeadsDocument) -> list[float | None]:
    """What each word gets of all heads' weights, above an even share; special tokens are left out. Empty if unknown."""
    average = document.average.weights if document.average else None
    tokens = document.tokens
    if average is None:
        return []
    got = np.nan_to_num(as_matrix(average))[:, : len(tokens)].mean(axis=0)
    plain = np.array([not token.special for token in tokens])
    if not plain.any():
        return []
    above = np.where(plain, got - got[plain].mean(), 0.0)
    greatest = float(above.max())
    return [float(value) / greatest if greatest > 0 else 0.0 for value in above]


def _resting(document: HeadsDocument, view: View) -> list[str]:
    """How many heads keep more than half of their weight on one and the same key."""
    held = [head for head in document.heads if head.weights is not UNSET]
    if len(held) < 2:
        return []
    rests: dict[int, int] = {}
    for head in held:
        got = np.nan_to_num(as_matrix(head.weights)).mean(axis=0)
        if got.max(initial=0.0) > HALF:
            rests[int(got.argmax())] = rests.get(int(got.argmax()), 0) + 1
    if not rests:
        return []
    key = max(rests, key=lambda at: (rests[at], -at))
    return [say(view, "answer.heads.rests", rests[key], len(held), _text(document, key, view))]


def _positional(document: HeadsDocument, view: View) -> list[str]:
    """The head that looks most at the previous word, the next, the word itself, where that is most of its weight."""
    told = []
    for name in ("previous", "next", "self"):
        held = [(_metric(head, name), head) for head in document.heads]
        if held and max(value for value, _ in held) > HALF:
            value, head = max(held, key=lambda each: each[0])
            told.append(say(view, f"answer.heads.{name}", head.layer, head.head, _number(value, view)))
    return told


def _metric(head: HeadMetrics, name: str) -> float:
    found = head.metrics.get(name)
    return 0.0 if found is None or found.value is None else float(found.value)


def find_answer(document: FindDocument, view: View) -> Lines:
    """The answer of an `attn.find/1` document: which heads send the one token to the other."""
    found = document.heads
    asked, key = (_text(document, at, view) for at in (document.query, document.key))
    visible = [head for head in found if head.rank is not None]
    if not visible:
        return remark(say(view, "answer.find.hidden", asked, key) if found else "", view, style="")
    first, *others = sorted(visible, key=lambda head: (-head.weight, head.layer, head.head))
    shares: list[float | None] = [0.0] * len(document.tokens)
    shares[document.key] = first.weight
    place = (first.layer, first.head, _share(first.weight))
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
    return stack((shaded, tint, *(remark(each, view, style="") for each in said)))
