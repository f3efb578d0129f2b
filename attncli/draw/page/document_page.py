"""The page of a document: its heads, what it says of their effects, and where the page begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from attncli.documents import Document
from attncli.documents.header import tokens_of
from attncli.draw.page import BUDGET, Page, PageEffects
from attncli.features.compare.document import CompareDocument
from attncli.features.effects.document import AblateDocument, LogitsDocument, PatchDocument, reading_of, readings_of
from attncli.features.find.document import FindDocument
from attncli.features.run.document import RunDocument
from attncli.measure.row_facts import aligned_exclusion
from attncli.measure.run_record import RunRecord
from attncli.measure.saved_record import compared_records, document_record


def page_of(
    document: Document, *, record: RunRecord | None = None, lang: str = "en", budget: int = BUDGET, option: str = ""
) -> Page | None:
    """The page of what a document holds; None for one that tells of no head alone.

    Args:
        document: of any kind.
        record: its heads, where more is known of them than the document says.
        lang: "en" or "zh".
        budget: bytes of data at most.
        option: what raises the budget, as the page names it; "" where nothing does.
    """
    if isinstance(document, CompareDocument):
        same = range(len(document.aligned))
        return compared_page(document, compared_records(document), (same, same), lang, budget, option, partial=True)
    effects = effects_of(document)
    if isinstance(document, AblateDocument | PatchDocument | LogitsDocument) and not effects:
        return None  # of all heads at once, or of those that look at another text
    run_record = document_record(document) if record is None else record
    if run_record is None:
        return None
    return Page(run_record.text, [run_record], None, effects, start_of(document), lang, budget, option=option)


def compared_page(
    document: CompareDocument,
    records: Sequence[RunRecord],
    pairs: tuple[Sequence[int], Sequence[int]],
    lang: str,
    budget: int,
    option: str,
    *,
    partial: bool = False,
) -> Page:
    """The page of a comparison. records: its two sides; pairs: the places of the words that both have, in either.

    partial: whether the records lack the other words.
    """
    start = {"view": "difference"}
    places = [pair[0] for pair in document.aligned]
    strongest = next((link for link in document.moved if link.query in places and link.key in places), None)
    if strongest is not None:
        query, key = (str(pairs[0][places.index(index)]) for index in (strongest.query, strongest.key))
        start |= {"head": f"{strongest.layer}.{strongest.head}", "query": query, "key": key}
    texts = [tokens_of(side.tokens) for side in (document.a, document.b)]
    left_out = aligned_exclusion(document.links_leave_out or (), texts, document.aligned)
    return Page(records[0].text, records, pairs, (), start, lang, budget, partial, option, left_out)


def start_of(document: Document) -> Mapping[str, str]:
    """Where the page of a document begins: its view, and the words that it is about."""
    match document:
        case FindDocument():
            return {"view": "search", "from": f"#{document.query}", "to": f"#{document.key}"}
        case AblateDocument():
            place = document.place
            return {"view": "effects"} | ({} if isinstance(place, str) else {"query": str(place.token)})
        case PatchDocument():
            whole = len(document.query) == len(document.tokens)
            return {"view": "effects"} | ({} if whole else {"query": str(document.query[-1])})
        case LogitsDocument():
            return {"view": "effects", "query": str(document.position)}
        case RunDocument() if document.queries is not UNSET and len(document.queries) == 1:
            return {"query": str(document.queries[0])}
        case _:
            return {}


def effects_of(document: Document) -> list[PageEffects]:
    """What a document of effects says of its heads, measure by measure; nothing for another document, nor for one that
    tells of no head alone, or only of heads that look at another text."""
    return [effects for effects in _effects_of(document) if effects.heads]


def _effects_of(document: Document) -> list[PageEffects]:
    match document:
        case AblateDocument():
            return _ablation_effects(document)
        case PatchDocument():
            rows = [row for row in document.effects if row.attention == "self"]
            patched_heads = [(row.layer, row.head, row.recovered, None, None) for row in rows]
            is_whole_text = len(document.query) == len(document.tokens)
            position_text = "" if is_whole_text else ", ".join(document.tokens[place].text for place in document.query)
            return [PageEffects(document.measure, document.corrupt, position_text, patched_heads, kind="patch")]
        case LogitsDocument():
            heads = [part for part in document.parts if part.attention == "self"]
            logit_heads = [(part.layer or 0, part.head or 0, part.value, None, None) for part in heads]
            position_text = document.tokens[document.position].text
            return [PageEffects("logit", document.target.text, position_text, logit_heads, kind="logits")]
        case _:
            return []


def _ablation_effects(document: AblateDocument) -> list[PageEffects]:
    place = "" if isinstance(document.place, str) else document.tokens[document.place.token].text
    effects = []
    for measure in document.measures:
        name = readings_of([measure])[0]
        heads = [
            (
                row.layer,
                row.head,
                reading_of(row, name),
                None if row.random is None else reading_of(row.random, name),
                row.weight,
            )
            for row in document.effects
            if row.attention == "self"
        ]
        effects.append(PageEffects(name, document.by, place, heads))
    return effects
