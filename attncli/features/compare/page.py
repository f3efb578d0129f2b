"""The page of a comparison: two runs, and what differs between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from attncli.documents.header import tokens_of
from attncli.draw.page import Page, answer_of
from attncli.draw.sentence import left_out_names
from attncli.features.compare.document import CompareDocument, CompareSide
from attncli.inputs.token import Token
from attncli.language import message
from attncli.measure.document_heads import as_float32, weights_record
from attncli.measure.head_record import HeadRecord, Sides
from attncli.measure.row_facts import aligned_exclusion
from attncli.measure.run_record import RunRecord, check_heads


def compare_page_of(document: CompareDocument, lang: str, budget: int, option: str) -> Page:
    """The page of a saved comparison. It shows only the tokens that both texts have, as the document
    holds no weights of others.

    budget: bytes that the page may take, where `option` is the name of the option that sets them.
    """
    same = range(len(document.aligned))
    return compared_page(
        document, compared_records(document), (same, same), lang, budget, option, partial=True
    )


def compared_records(document: CompareDocument) -> list[RunRecord]:
    """What a page shows of the two sides of a comparison, made from the weights in the document: only
    of the tokens that both have. Paired heads stand at the same place in both."""

    def head_records(side: CompareSide, sides: Sides) -> Iterator[HeadRecord]:
        """Yield the records of one side's heads, in the order of the pairs.

        side: A or B.
        sides: the tokens of its rows and columns.
        """
        is_learned = side.model.source == "checkpoint"
        for pair in document.heads:
            place = pair.b
            values = pair.weights_b
            if side is document.a:
                place = pair.a
                values = pair.weights_a
            weights = as_float32(values)
            visibility = np.isfinite(weights)
            yield weights_record(
                place.layer, place.head, sides, np.nan_to_num(weights), visibility, is_learned
            )

    check_heads(2 * len(document.heads))  # a page holds only so many
    records = []
    places_a = [place for place, _ in document.aligned]
    places_b = [place for _, place in document.aligned]
    for side, places in ((document.a, places_a), (document.b, places_b)):
        tokens = tokens_of([side.tokens[place] for place in places])
        sides = Sides(tokens, tokens)
        heads = head_records(side, sides)
        records.append(
            RunRecord(
                name=side.name,
                text=side.text,
                sides=sides,
                model=side.model,
                attention=side.attention,
                heads=heads,
                warnings=document.warnings,
            )
        )
    return records


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
    """The page of a comparison. It begins with the difference of the head whose weight changed most.

    records: its two sides.
    pairs: the positions of the words that both have, in the records of A and of B.
    budget: bytes that the page may take, where `option` is the name of the option that sets them.
    partial: whether the records lack the words that only one text has.
    """
    # where the page begins: at the link that changed most
    start = {"view": "difference"}
    places = [place for place, _ in document.aligned]  # of A
    strongest = next(
        (link for link in document.moved if link.query in places and link.key in places), None
    )
    if strongest is not None:
        words_of_a, _ = pairs
        query, key = (
            str(words_of_a[places.index(index)]) for index in (strongest.query, strongest.key)
        )
        start |= {"head": f"{strongest.layer}.{strongest.head}", "query": query, "key": key}

    # the answer in words, and which links it leaves out
    texts = [tokens_of(side.tokens) for side in (document.a, document.b)]
    left_out = aligned_exclusion(document.links_leave_out or (), texts, document.aligned)
    # by language, the sentences, each in pieces of text and claims that lead to a place of the page
    answer = answer_of(document)
    if names := left_out_names(document):
        sentence = message(
            "The answer, the list of links and the numbers on the tiles leave out: {names}.",
            names=names,
        )
        answer = {
            spoken: [*claims, [sentence.translation(spoken)]] for spoken, claims in answer.items()
        }

    # a partial page also has the whole texts, and its claims lead to words by other positions
    whole_texts: Sequence[tuple[Sequence[Token], list[int]]] = ()
    if partial:
        answer = {
            spoken: [_moved_claims(pieces, places) for pieces in claims]
            for spoken, claims in answer.items()
        }
        places_b = [place for _, place in document.aligned]
        whole_texts = list(zip(texts, (places, places_b), strict=True))
    return Page(
        title=records[0].text,
        runs=records,
        pairs=pairs,
        start=start,
        lang=lang,
        budget=budget,
        partial=partial,
        option=option,
        left_out=left_out,
        answer=answer,
        texts=whole_texts,
    )


def _moved_claims(
    pieces: Sequence[str | tuple[str, str]], places: Sequence[int]
) -> list[str | tuple[str, str]]:
    """A sentence, in pieces of `split_claims`, whose claims lead to positions in a page that has
    only the words at `places`; a position of any other word is dropped.

    pieces: texts, and claims as (text, where it leads: "…&q=3&k=1", a query's and a key's position).
    """

    def move(match: re.Match[str]) -> str:
        """The place in the page of a word of the whole text; nothing for a word that is not there."""
        place = int(match[2])
        if place in places:
            return f"&{match[1]}={places.index(place)}"
        return ""

    moved: list[str | tuple[str, str]] = []
    for piece in pieces:
        if isinstance(piece, str):
            moved.append(piece)
        else:
            text, target = piece
            moved.append((text, re.sub(r"&([qk])=(\d+)", move, target)))
    return moved
