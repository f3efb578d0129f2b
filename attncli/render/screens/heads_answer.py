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
from attncli.render.screens.sentence_answer import HeadLink, format_number, not_learned_note
from attncli.render.sentence import sentence, words
from attncli.render.token_names import quoted_ends, quoted_token
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.heads import HeadMetrics, HeadsDocument

HALF = 0.5
"""More than this share is most of a head's weight."""


def heads_answer(document: HeadsDocument, view: View) -> Lines:
    """The answer of an `attn.heads/1` document: where heads rest, who looks at a neighbour, the strongest link."""
    answer_sentences = [*_resting(document, view), *_positional(document, view)]
    links = [head_link for head in document.heads for head_link in [_top(head)] if head_link is not None]
    if links:
        link = max(links, key=lambda candidate: candidate.weight)
        ends = quoted_ends(document.tokens, document.tokens, link, view)
        answer_sentences.append(say(view, "answer.link.heads", *ends, percent(link.weight), link.layer, link.head))
        if any(head.top_link and head.top_link.weight > link.weight for head in document.heads):
            answer_sentences.append(say(view, "answer.link.choice"))
    answer_sentences.append(not_learned_note(document.model, view))
    shares = _attention_shares(document)
    tinted_sentence = sentence(words(document.text, document.tokens, shares, frozenset()), view) if shares else Lines()
    has_special = any(token.special for token in document.tokens)
    tint = remark(say(view, "answer.tint.plain" if has_special else "answer.tint") if shares else "", view)
    return stack((tinted_sentence, tint, sentences(answer_sentences, view)))


def _top(head: HeadMetrics) -> HeadLink | None:
    """The head's strongest link; where its query has weight on a single key, that of a query with several, if any."""
    link = head.top_link
    if not link:
        return None
    # a row of pooled weights is no query's
    whole = head.weights is not UNSET and (head.pool or 1) == 1
    rows = np.nan_to_num(as_matrix(head.weights)) if whole else np.zeros((0, 0))
    free = (rows > 0).sum(axis=1) > 1
    if not free.any() or free[link.query]:
        return HeadLink(link.query, link.key, link.weight, head.layer, head.head)
    weights = np.where(free[:, None], rows, 0.0)
    query, key = np.unravel_index(int(weights.argmax()), weights.shape)
    return HeadLink(int(query), int(key), float(weights.max()), head.layer, head.head)


def _attention_shares(document: HeadsDocument) -> list[float | None]:
    """What each word gets of all heads' weights, above an even share; special tokens are left out. Empty if unknown."""
    average = document.average.weights if document.average else None
    tokens = document.tokens
    if average is None:
        return []
    mean_weights = np.nan_to_num(as_matrix(average))[:, : len(tokens)].mean(axis=0)
    plain = np.array([not token.special for token in tokens])
    if not plain.any():
        return []
    above = np.where(plain, mean_weights - mean_weights[plain].mean(), 0.0)
    greatest = float(above.max())
    return [float(value) / greatest if greatest > 0 else 0.0 for value in above]


def _resting(document: HeadsDocument, view: View) -> list[str]:
    """How many heads keep more than half of their weight on one and the same key."""
    heads = [head for head in document.heads if head.weights is not UNSET]
    if len(heads) < 2:
        return []
    rests: dict[int, int] = {}
    for head in heads:
        mean_weights = np.nan_to_num(as_matrix(head.weights)).mean(axis=0)
        if mean_weights.max(initial=0.0) > HALF:
            rests[int(mean_weights.argmax())] = rests.get(int(mean_weights.argmax()), 0) + 1
    if not rests:
        return []
    key = max(rests, key=lambda position: (rests[position], -position))
    if key < len(document.tokens) and document.tokens[key].unknown:
        return []
    return [say(view, "answer.heads.rests", rests[key], len(heads), quoted_token(document.tokens, key, view))]


def _positional(document: HeadsDocument, view: View) -> list[str]:
    """The head that looks most at the previous word, the next, the word itself, where that is most of its weight."""
    answer_sentences = []
    for name in ("previous", "next", "self"):
        values = [(_metric(head, name), head) for head in document.heads]
        if values and max(value for value, _ in values) > HALF:
            value, head = max(values, key=lambda pair: pair[0])
            answer_sentences.append(
                say(view, f"answer.heads.{name}", head.layer, head.head, format_number(value, view))
            )
    return answer_sentences


def _metric(head: HeadMetrics, name: str) -> float:
    metric = head.metrics.get(name)
    return 0.0 if metric is None or metric.value is None else float(metric.value)
