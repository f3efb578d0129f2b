"""The sentence above an answer, its words tinted by numbers of the document: by a query's weights, or by what moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix
from attncli.render.phrases import say
from attncli.render.sentence import LEAST, sentence, words
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.parts import TokenRow
    from attncli.features.compare.document import ComparedHead, CompareDocument
    from attncli.features.cross.document import CrossDocument


def shaded_sentence(
    text: str | None,
    tokens: Sequence[TokenRow],
    shares: Iterable[float] | None,
    view: View,
    *,
    query: int | Iterable[int] | None,
    tint: str,
    values: Sequence[object] = (),
) -> Lines:
    """The text's words, tinted by their shares, the queries in brackets, and what the tint says. tint: its phrase,
    values: what stands in its places. Shares past the tokens (learned keys) are left out; words without a share stay as
    they are. shares: None where nothing tells any; then no tint is explained either."""
    known_shares = [float(share) for share in np.nan_to_num([] if shares is None else list(shares))][: len(tokens)]
    all_shares = [*known_shares, *[None] * (len(tokens) - len(known_shares))]
    chosen_indices = frozenset() if query is None else frozenset({query} if isinstance(query, int) else query)
    tint_note = say(view, tint, *values) if any(share >= LEAST for share in known_shares) else ""
    return stack((sentence(words(text, tokens, all_shares, chosen_indices), view), remark(tint_note, view)))


def shaded_cross_texts(document: CrossDocument, view: View) -> Lines:
    """Both texts: the query of the strongest link in brackets, the keys tinted by that head's weights."""
    link = document.links[0]
    layer = next(entry for entry in document.layers if entry.layer == link.layer)
    head = next(entry for entry in layer.heads if entry.head == link.head)
    no_shares: list[float | None] = [None] * len(document.queries)
    query_sentence = sentence(words(document.query_text, document.queries, no_shares, frozenset({link.query})), view)
    row = as_matrix(head.weights)[link.query]
    keys = shaded_sentence(document.key_text, document.keys, row, view, query=None, tint="answer.tint.row")
    return stack((query_sentence, keys))


def shaded_comparison(document: CompareDocument, head: ComparedHead, query: int, view: View) -> Lines:
    """The text of A: the query of the weight that moved most in brackets, each word tinted by how far its own
    moved."""
    places = [index_a for index_a, _ in document.aligned]
    differences = np.zeros(len(document.a.tokens))
    differences[places] = np.abs(np.nan_to_num(as_matrix(head.difference)[places.index(query)]))[: len(places)]
    return shaded_sentence(document.a.text, document.a.tokens, differences, view, query=query, tint="answer.tint.moved")
