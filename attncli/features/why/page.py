"""What the page of an explained link shows: the parts of both sides, and the earlier heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from attncli.documents.header import tokens_of
from attncli.draw.page import PageFocus
from attncli.draw.page.page_frame import as_json
from attncli.draw.safe import label
from attncli.draw.token_names import name_tokens, with_word
from attncli.draw.view import View
from attncli.features.why.document import (
    HALF,
    WhyDocument,
    WhyLink,
    WhyPart,
    part_title,
    ranked_parts,
    source_of,
    support,
)
from attncli.language import languages, translate
from attncli.measure.document_heads import DocumentHeads, HeadFacts, text_sides
from attncli.measure.head_record import Sides

MOST_PARTS = 12
"""Parts of either side of a link that a page tells."""


class EarlierHead(NamedTuple):
    """A head before the one that a link belongs to, of which only its number is known."""

    head: int


def why_document_heads(document: WhyDocument) -> DocumentHeads:
    """The heads that the page of an explained link shows: the link's own, with its row, and the
    earlier heads that are parts of its score."""
    if document.source_tokens is UNSET:
        sides = text_sides(document)
    else:
        sides = Sides(tokens_of(document.tokens), tokens_of(document.source_tokens))

    def facts(layer: int, head: Any) -> HeadFacts:
        """What the page lists beside a head: for the link's own, the weights of the link's row, the
        link first and then by size; nothing for earlier heads."""
        del layer
        if not isinstance(head, WhyLink):
            return HeadFacts()
        # learned keys, which stand after the tokens, are left out
        links = [
            (document.link.query, row.key, row.weight)
            for row in document.row
            if row.key < len(sides.keys)
        ]

        def order(row: tuple[int, int, float]) -> tuple[bool, float]:
            """The link itself comes first, then the largest weight."""
            _, key, weight = row
            return key != document.link.key, -weight

        links.sort(key=order)
        return HeadFacts(links)

    parts = [(document.link.layer, document.link), *_earlier_heads(document)]
    return DocumentHeads(text=document.text, sides=sides, parts=parts, facts=facts)


def _earlier_heads(document: WhyDocument) -> list[tuple[int, EarlierHead]]:
    """The heads of earlier layers that are parts of a link's explanation, each with its layer. []
    for a link to another text: the page shows that text, to which they do not attend.
    """
    if document.link.attention == "cross":
        return []
    places = {
        (part.layer, part.head)
        for part in document.parts
        if part.kind == "head" and part.layer is not None and part.head is not None
    }
    return [(layer, EarlierHead(head)) for layer, head in places]


def why_page_focus(document: WhyDocument) -> PageFocus:
    """Where the page of an explained link begins: at the link in its head's matrix, or at the parts
    of the link where the document has them."""
    link = document.link
    place = {
        "head": f"{link.layer}.{link.head}",
        "query": str(link.query),
        "key": str(link.key),
    }
    if not document.parts:
        return PageFocus({"view": "matrix"} | place)
    return PageFocus({"view": "why"} | place, why=[why_entry(document)])


def why_entry(document: WhyDocument) -> dict[str, Any]:
    """An explanation of a link's weight (as of `attn why`) for the page's script (`why.js`), which
    knows it by short keys.

    Returns: the link: its layer, head, query, key, weight and score (`l h q k w s`); the sum of all
    parts, the key that the score is relative to, and how far the sum is from the score (`t than
    d`); how many parts there are, in all and on either side (`count counts`), and whether none of
    them makes half of what speaks for the link (`spread`); the largest parts of the query and of
    the key (`asks answers`); and what each earlier head adds (`heads`).
    """
    link = document.link
    query_parts = ranked_parts(document, "query")
    key_parts = ranked_parts(document, "key")
    largest_share = max(
        support(value for _, value in parts).share for parts in (query_parts, key_parts)
    )
    if link.attention == "self":
        heads = [[*place, value] for place, value in _head_sums(document).items()]
    else:
        heads = []
    shown_document = name_tokens(document)
    return {
        "l": link.layer,
        "h": link.head,
        "q": link.query,
        "k": link.key,
        "w": document.weight,
        "s": document.score,
        "t": document.total,
        "than": None if isinstance(document.centred, str) else document.centred.key,
        "d": f"{abs(document.difference):.0e}" if document.difference else "0",
        "count": len(document.parts),
        "counts": [len(query_parts), len(key_parts)],
        "spread": document.total > 0 and largest_share < HALF,
        "asks": [
            _part_entry(part, value, "query", shown_document)
            for part, value in query_parts[:MOST_PARTS]
        ],
        "answers": [
            _part_entry(part, value, "key", shown_document)
            for part, value in key_parts[:MOST_PARTS]
        ],
        "heads": heads,
    }


def _head_sums(document: WhyDocument) -> dict[tuple[int, int], float]:
    """What each earlier head adds to the score, by (layer, head): the sum over query side and key
    side, and over the tokens that it is split by where it is."""
    sums: dict[tuple[int, int], float] = {}
    for part in document.parts:
        if part.kind != "head" or part.attention != "self":
            continue
        if part.layer is None or part.head is None:
            continue
        place = (part.layer, part.head)
        # a part of one side alone adds nothing on the other
        both_sides = (part.query_side or 0.0) + (part.key_side or 0.0)
        sums[place] = sums.get(place, 0.0) + both_sides
    return sums


def why_entries(documents: Sequence[WhyDocument]) -> list[dict[str, Any]]:
    """Explanations of links (as of `attn why`) for the page's script."""
    return [why_entry(document) for document in documents]


def why_size(documents: Sequence[WhyDocument]) -> int:
    """How many bytes explanations of links (as of `attn why`) take in a page, written as JSON."""
    return sum(len(as_json(why_entry(document)).encode()) for document in documents)


def _part_entry(part: WhyPart, value: float, side: str, document: WhyDocument) -> dict[str, Any]:
    """A part of the query's or the key's vector, as `side` says, for the page's script: its name by
    language (`n`), what it adds (`v`), the link's weight without it (`w`), and for a head that the
    page can show its layer and number (`l h`).

    value: what it adds to the score.
    """
    # the token whose value a head carried, and its place such as " #3", or None
    source = source_of(part, document)
    names: dict[str, str] = {}
    for lang in languages():
        names[lang] = translate(part_title(part, document), lang)
        if source is not None:
            token, place = source
            names[lang] += f" ← {label(with_word(token, View(lang=lang)))}{place}"
    is_head = part.kind == "head" and part.attention == "self" and document.link.attention == "self"
    return {
        "n": names,
        "v": value,
        "w": part.weight_without.query if side == "query" else part.weight_without.key,
        "l": part.layer if is_head else None,
        "h": part.head if is_head else None,
    }
