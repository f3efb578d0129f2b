"""The answer of `attn.heads/1`: where heads rest, who looks at a neighbour, the strongest link. Each sentence has its
rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix
from attncli.render.numbers import percent
from attncli.render.phrases import say
from attncli.render.screens.sentence_answer import Look, not_learned, rounded
from attncli.render.sentence import sentence, words
from attncli.render.token_names import quoted_ends, quoted_token
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.heads import HeadMetrics, HeadsDocument

HALF = 0.5
"""More than this share is most of a head's weight."""


def heads_answer(document: HeadsDocument, view: View) -> Lines:
    """The answer of an `attn.heads/1` document: where heads rest, who looks at a neighbour, the strongest link."""
    told = [*_resting(document, view), *_positional(document, view)]
    links = [found for head in document.heads for found in [_top(head)] if found is not None]
    if links:
        link = max(links, key=lambda each: each.weight)
        ends = quoted_ends(document.tokens, document.tokens, link, view)
        told.append(say(view, "answer.link.heads", *ends, percent(link.weight), link.layer, link.head))
        if any(head.top_link and head.top_link.weight > link.weight for head in document.heads):
            told.append(say(view, "answer.link.choice"))
    told.append(not_learned(document.model, view))
    shares = _attended(document)
    shaded = sentence(words(document.text, document.tokens, shares, frozenset()), view) if shares else Lines()
    some = any(token.special for token in document.tokens)
    tint = remark(say(view, "answer.tint.plain" if some else "answer.tint") if shares else "", view)
    return stack((shaded, tint, sentences(told, view)))


def _top(head: HeadMetrics) -> Look | None:
    """The head's strongest link; where its query has weight on a single key, that of a query with several, if any."""
    link = head.top_link
    if not link:
        return None
    # a row of pooled weights is no query's
    whole = head.weights is not UNSET and (head.pool or 1) == 1
    rows = np.nan_to_num(as_matrix(head.weights)) if whole else np.zeros((0, 0))
    free = (rows > 0).sum(axis=1) > 1
    if not free.any() or free[link.query]:
        return Look(link.query, link.key, link.weight, head.layer, head.head)
    weights = np.where(free[:, None], rows, 0.0)
    query, key = np.unravel_index(int(weights.argmax()), weights.shape)
    return Look(int(query), int(key), float(weights.max()), head.layer, head.head)


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
    if key < len(document.tokens) and document.tokens[key].unknown:
        return []
    return [say(view, "answer.heads.rests", rests[key], len(held), quoted_token(document.tokens, key, view))]


def _positional(document: HeadsDocument, view: View) -> list[str]:
    """The head that looks most at the previous word, the next, the word itself, where that is most of its weight."""
    told = []
    for name in ("previous", "next", "self"):
        held = [(_metric(head, name), head) for head in document.heads]
        if held and max(value for value, _ in held) > HALF:
            value, head = max(held, key=lambda each: each[0])
            told.append(say(view, f"answer.heads.{name}", head.layer, head.head, rounded(value, view)))
    return told


def _metric(head: HeadMetrics, name: str) -> float:
    found = head.metrics.get(name)
    return 0.0 if found is None or found.value is None else float(found.value)
