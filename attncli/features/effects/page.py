"""What the pages of ablation, patching and logits show: what each head does, and the logit lens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from msgspec import UNSET

from attncli.draw.page import HeadEffect, PageEffects, PageFocus
from attncli.draw.safe import label
from attncli.draw.token_names import name_tokens, words_at
from attncli.features.effects.document import (
    AblateDocument,
    EffectRow,
    LogitPart,
    LogitsDocument,
    PatchDocument,
    Reading,
    reading_of,
    readings_of,
    telling_look,
)
from attncli.measure.document_heads import DocumentHeads, HeadFacts, no_facts, text_sides

EffectDocument = AblateDocument | PatchDocument | LogitsDocument


def ablate_document_heads(document: AblateDocument) -> DocumentHeads:
    """The heads that were taken away, as a page lists them, with the link that each was measured
    at."""

    def facts(layer: int, row: EffectRow) -> HeadFacts:
        """The links that the page shows for a head: the one that was cut, or the strongest of the
        token measured at."""
        del layer  # the row has it
        return HeadFacts(_looked_at(document, row))

    parts = [(row.layer, row) for row in document.effects if row.attention == "self"]
    return DocumentHeads(document.text, text_sides(document), parts, facts)


def patch_document_heads(document: PatchDocument) -> DocumentHeads:
    """The heads that were patched, as a page lists them."""
    parts = [(row.layer, row) for row in document.effects if row.attention == "self"]
    return DocumentHeads(document.text, text_sides(document), parts, no_facts)


def logits_document_heads(document: LogitsDocument) -> DocumentHeads:
    """The heads that add to the logit, as a page lists them."""
    # only heads have an attention, and they have a layer: `or 0` is for the type alone
    parts = [(part.layer or 0, part) for part in document.parts if part.attention == "self"]
    return DocumentHeads(document.text, text_sides(document), parts, no_facts)


def ablate_page_focus(document: AblateDocument) -> PageFocus:
    """What a page of an ablation shows first: the head of the largest effect in the first measure;
    the word measured at, where there are no single self-attention heads.
    """
    effects = _ablate_effects(document)
    if effects:
        return PageFocus({"view": "effects"} | _start(document, effects), effects)
    if isinstance(document.place, str):
        return PageFocus(names_heads=False)
    query, _ = _shown_link(document, None)
    return PageFocus({"query": str(query)}, names_heads=False)


def patch_page_focus(document: PatchDocument) -> PageFocus | None:
    """What a page of patching shows first: the head of the largest share; None without
    self-attention heads."""
    document = name_tokens(document)
    rows = [row for row in document.effects if row.attention == "self"]
    if not rows:
        return None
    if len(document.query) == len(document.tokens):  # measured at all tokens: no position to name
        position_text = ""
    else:
        position_text = ", ".join(words_at(document.query, document.tokens, document.text))
    # patching has no random change to compare with, and no link: the two None
    heads = [(row.layer, row.head, row.recovered, None, None) for row in rows]
    effects = [PageEffects(document.measure, document.corrupt, position_text, heads, kind="patch")]
    return PageFocus({"view": "effects"} | _start(document, effects), effects)


def logit_name(document: LogitsDocument) -> str:
    """The name of the logit that is split, such as `␣Paris`; of a difference `␣Paris − ␣Rome`."""
    name = label(document.target_name())
    versus = document.versus_name()
    if versus is None:
        return name
    return f"{name} − {label(versus)}"


def logits_page_focus(document: LogitsDocument) -> PageFocus | None:
    """What a page of logits shows first: the logit lens if the document has it, else the heads,
    with that of the largest part chosen; None without self-attention heads.
    """
    document = name_tokens(document)
    parts = [part for part in document.parts if part.attention == "self"]
    if not parts:
        return None
    # parts of self-attention are heads: they have a layer and a number; the two None stand for a
    # random change and the weight of a link, which there are none of here
    heads = [(part.layer or 0, part.head or 0, part.value, None, None) for part in parts]
    position_text = document.tokens[document.position].text
    effects = [PageEffects("logit", logit_name(document), position_text, heads, kind="logits")]
    start = _start(document, effects)
    if document.lens is UNSET:
        return PageFocus({"view": "effects"} | start, effects)
    return PageFocus({"view": "lens"} | start, effects, lens=lens_entry(document))


def _start(document: EffectDocument, effects: Sequence[PageEffects]) -> dict[str, str]:
    """The head of the largest effect in the first measure, and the query and key to show of it, as
    the page's address has them: {"head": "5.11", "query": "8", "key": "2"}.

    effects: of each measure, the effects of all heads; at least one measure and one head.
    """

    def size(row: HeadEffect) -> float:
        """The size of a head's effect, which may be undefined."""
        _, _, effect, *_ = row
        return abs(effect or 0)  # None comes last

    layer, head, *_ = max(effects[0].heads, key=size)
    query, key = _shown_link(document, (layer, head))
    return {"head": f"{layer}.{head}", "query": str(query), "key": str(key)}


def _ablate_effects(document: AblateDocument) -> list[PageEffects]:
    """What each single self-attention head changes, an entry for each measure; empty without such
    heads.
    """
    document = name_tokens(document)
    if isinstance(document.place, str):  # "mean", over all tokens
        position_text = ""
    else:
        position_text = document.tokens[document.place.token].text
    # of "vector", which gives two numbers, the cosine alone
    names = [readings_of([measure])[0] for measure in document.measures]
    effects = [
        PageEffects(name, document.by, position_text, _ablated_heads(document, name))
        for name in names
    ]
    return [measured for measured in effects if measured.heads]


def _ablated_heads(document: AblateDocument, name: Reading) -> list[HeadEffect]:
    """Each self-attention head of an ablation: layer, head, what it changes in the measure `name`,
    what a random change of the same size does, and the weight of the link."""
    heads: list[HeadEffect] = []
    for row in document.effects:
        if row.attention == "self":
            if row.random is None:
                random = None
            else:
                random = reading_of(row.random, name)
            heads.append((row.layer, row.head, reading_of(row, name), random, row.weight))
    return heads


def _looked_at(document: AblateDocument, row: EffectRow) -> list[tuple[int, int, float]]:
    """The link (query, key, weight) of a head in an ablation: the one that was cut, or the strongest
    of the token measured at; empty where several tokens are meant, or keys of another text."""
    cut_link = document.link
    place = document.place
    if cut_link is not None:
        if cut_link.attention == "cross":  # its keys are another text's
            return []
        query = cut_link.query
        key = cut_link.key
        if isinstance(query, int) and isinstance(key, int) and row.weight is not None:
            return [(query, key, row.weight)]
        return []  # an end of several tokens
    looks = telling_look(row)
    if looks is None or isinstance(place, str):  # "mean" is of all tokens
        return []
    if place.last not in (UNSET, place.token):
        return []
    return [(place.token, looks.key, looks.weight)]


def _shown_link(document: EffectDocument, head: tuple[int, int] | None) -> tuple[int, int]:
    """The link (query, key) of a head that the page shows first: the first that the document names
    for this head; else that of a token to itself, namely the token measured at, or the first in
    which two texts differ."""
    # where nothing else is named, the first token that is not special; of special ones alone, token 0
    word = next((place for place, token in enumerate(document.tokens) if not token.special), 0)
    match document:
        case AblateDocument(place=place):
            rows = [row for row in document.effects if _is_of_head(row, head)]
            links = [(query, key) for row in rows for query, key, _ in _looked_at(document, row)]
            if not isinstance(place, str):
                word = place.token
        case PatchDocument():
            links = []
            word = _first_difference(document, word)
        case LogitsDocument(position=position):
            word = position
            parts = [part for part in document.parts if _is_of_head(part, head)]
            looks = [telling_look(part) for part in parts]
            links = [(word, place.key) for place in looks if place is not None]
        case _:
            assert_never(document)
    if links:
        return links[0]
    return (word, word)


def _is_of_head(row: EffectRow | LogitPart, head: tuple[int, int] | None) -> bool:
    """Whether a row is about this head of self-attention, (layer, head)."""
    return row.attention == "self" and (row.layer, row.head) == head


def _first_difference(document: PatchDocument, otherwise: int) -> int:
    """The position of the token measured at; where all tokens were, the first in which the two texts
    differ, or `otherwise` where none does.
    """
    if len(document.query) < len(document.tokens):
        return document.query[-1]
    pairs = zip(document.tokens, document.corrupt_tokens, strict=False)
    for place, (clean, corrupt) in enumerate(pairs):
        if clean.text != corrupt.text:
            return place
    return otherwise


def lens_entry(document: LogitsDocument) -> dict[str, Any]:
    """The logit lens of a document (what each layer would predict as next token) as the page's script
    reads it: the target, and rows with the layer "l" (None at the end), the stage, the target's rank
    and probability "p", and the three likeliest tokens.
    """
    rows = [
        {
            "l": row.layer,
            "stage": row.stage.replace(" ", "_"),
            "rank": row.rank,
            "p": row.probability,
            "top": [[label(entry.token.text), entry.probability] for entry in row.top[:3]],
        }
        for row in document.lens or ()
    ]
    return {"target": label(document.target_name()), "rows": rows}
