"""The screen of `attn.next/1`: the likeliest next tokens with bars, by layer, and without heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from attncli.draw.lines import Lines, sentences, stack
from attncli.draw.numbers import bar, percent
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import not_learned_note, shaded_sentence
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text, quoted_token
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.document import NextToken
from attncli.features.next.document import LayerChoice, NextDocument
from attncli.language import listing, message, say

BAR = 24
"""Cells of a bar of probability 1."""


def next_rows(document: NextDocument) -> Iterator[Sequence[object]]:
    """Yield the rows of `--plain`: the likeliest tokens, by layer, and of each position."""
    yield ("what", "place", "token", "id", "probability", "rank")
    for rank, row in enumerate(document.top, 1):
        yield ("next", document.position, row.token.text, row.token.id, row.probability, rank)
    target = document.target
    yield (
        *("target", document.position, target.token.text, target.token.id),
        *(target.probability, target.rank),
    )
    for choice in document.layers:
        entry = choice.token
        yield ("layer", choice.layer, entry.text, entry.id, choice.probability, 1)
    for following in document.following or ():
        token = document.tokens[following.token]
        place = following.token
        yield ("each", place, token.text, token.id, following.probability, following.rank)
    if document.without is not UNSET:
        for rank, row in enumerate(document.without.top, 1):
            entry = row.token
            yield ("without", document.position, entry.text, entry.id, row.probability, rank)


def _likeliest_table(document: NextDocument, view: View) -> Lines:
    """The likeliest tokens with a bar each; beside them, where heads are taken away, those then."""
    columns: list[tuple[str, list[str], str]] = _columns(document.top, view)
    bars = 2
    if document.without is not UNSET:
        (_, tokens, left), (_, shares, right), _ = _columns(document.without.top, view)
        columns += [(say(view, "without"), tokens, left), ("", shares, right)]
    after = quote_text(document.tokens[document.position].text, view)
    return table(
        [name for name, _, _ in columns],
        [list(row) for row in zip(*(cells for _, cells, _ in columns), strict=True)],
        view,
        align=[align for _, _, align in columns],
        title=say(view, "what would come after {token}", token=after),
        bars=bars,
    )


def _columns(rows: Sequence[NextToken], view: View) -> list[tuple[str, list[str], str]]:
    """Name, cells and alignment of the columns of one distribution: token, probability, bar."""
    return [
        (say(view, "token"), [quote_text(row.token.text, view) for row in rows], "left"),
        (say(view, "probability"), [percent_text(row.probability) for row in rows], "right"),
        ("", [bar(row.probability, BAR, ascii=view.ascii) for row in rows], "left"),
    ]


def percent_text(probability: float) -> str:
    """A probability as the screen writes it: whole percents, with a digit more below 10."""
    return percent(probability, 0 if probability >= 0.1 else 1)


def _layer_table(document: NextDocument, view: View) -> Lines:
    """Which token comes first from which layer on, read off through the final norm and the output
    head."""
    shown: Sequence[LayerChoice] = document.layers if view.full else document.layers[-view.top :]
    rows = [
        [f"L{row.layer}", quote_text(row.token.text, view), percent_text(row.probability)]
        for row in shown
    ]
    title = message("the likeliest token if the model ended after a layer, where it changes")
    align = ["left", "left", "right"]
    names = [say(view, "from layer"), say(view, "token"), say(view, "probability")]
    return table(names, rows, view, align=align, title=title)


def _each_table(document: NextDocument, view: View) -> Lines:
    """How likely every token was after those before it; the least likely first, unless all are
    shown."""
    if document.following is UNSET or not document.following:
        return Lines()
    rows = list(document.following)
    if not view.full and len(rows) > view.top:
        rows = sorted(
            sorted(rows, key=lambda row: row.probability)[: view.top], key=lambda r: r.token
        )
    cells = [
        [
            str(row.token),
            quote_text(document.tokens[row.token].text, view),
            percent_text(row.probability),
            f"{row.rank:,}",
        ]
        for row in rows
    ]
    names = ["", say(view, "token"), say(view, "probability"), say(view, "rank")]
    title = message("how likely each token was after those before it; the least likely")
    if view.full or len(rows) == len(document.following):
        title = message("how likely each token was after those before it")
    return table(names, cells, view, align=["right", "left", "right", "right"], title=title)


def next_sentences(document: NextDocument, view: View) -> Iterator[str]:
    """The answer in words: the likeliest token, from which layer on it comes first, the token asked
    about, and what becomes of it without the heads."""
    first = document.top[0]
    name = quote_text(first.token.text, view)
    share = percent_text(first.probability)
    last = document.layers[-1] if document.layers else None
    if last is not None and last.token.id == first.token.id and last.layer:
        yield say(
            view,
            "Next comes {token} with {share}, in the first place from layer {layer} on.",
            token=name,
            share=share,
            layer=last.layer,
        )
    else:
        yield say(view, "Next comes {token} with {share}.", token=name, share=share)
    target = document.target
    if target.token.id != first.token.id:
        yield say(
            view,
            "{token} has {share}, place {rank}.",
            token=quote_text(target.token.text, view),
            share=percent_text(target.probability),
            rank=f"{target.rank:,}",
        )
    if document.without is not UNSET:
        yield say(
            view,
            "Without {heads}, {token} has {share} (now: {now}).",
            heads=listing(
                say(view, "layer {layer} head {head}", layer=row.layer, head=row.head)
                for row in document.without.heads
            ),
            token=quote_text(target.token.text, view),
            share=percent_text(document.without.target.probability),
            now=listing(
                f"{quote_text(row.token.text, view)} {percent_text(row.probability)}"
                for row in document.without.top[:3]
            ),
        )
    if document.following is not UNSET and document.following:
        least = min(document.following, key=lambda row: row.probability)
        yield say(
            view,
            "The least likely token of the text is {token}: {share} after those before it.",
            token=quoted_token(document.tokens, least.token, view),
            share=percent_text(least.probability),
        )
    yield not_learned_note(document.model, view)


def _answer(document: NextDocument, view: View) -> Lines:
    """The text, shaded by how likely each token was where that is told, and the answer."""
    shares = [0.0] * len(document.tokens)
    for row in document.following or ():
        shares[row.token] = row.probability
    tint = message("tint: how likely each token was after those before it")
    shaded = shaded_sentence(
        document.text, document.tokens, shares, view, query=document.position, tint=tint
    )
    return stack(shaded, sentences(next_sentences(document, view), view))


NEXT_PARTS: Parts[NextDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("layers", _layer_table),
    ScreenPart("each", _each_table),
    ScreenPart("next", _likeliest_table),
    ScreenPart("answer", _answer),
)
