"""The screen of `attn.find/1`: the heads that send one token to another, strongest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from attncli.draw.lines import Lines, localize, remark, sentences, stack
from attncli.draw.numbers import bar, writer
from attncli.draw.safe import cells, cut, label, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import find_answer
from attncli.draw.sentence import find_sentences as link_sentences
from attncli.draw.tables import GAP, table
from attncli.draw.token_names import region_name
from attncli.draw.view import Parts, ScreenPart, View, draw_parts, never
from attncli.features.effects.effect_answer import cut_link_sentences, effect_columns
from attncli.features.find.document import FindDocument, FoundHead, Reverse
from attncli.language import listing, message, term

BAR, LOOKS, REVERSE, EFFECT = "", message("looks most at"), "reverse", "effect"
"""Names of columns."""
SHORTEST, LONGEST = 4, 24
"""Cells of a bar of weight 1."""
NAME = 14
"""Cells of the text of the key that is looked at most."""


def find_screen(document: FindDocument, view: View) -> Lines:
    """The whole screen of an `attn.find/1` document."""
    return draw_parts(FIND_PARTS, with_region_names(document, view), view)


def with_region_names(document: FindDocument, view: View) -> FindDocument:
    """The document with the name of each region in place of its first token's text."""
    names = {row.tokens[0]: region_name(row.name, view) for row in document.regions or ()}
    tokens = [replace(row, text=names.get(row.index, row.text)) for row in document.tokens]
    if names:
        return replace(document, tokens=tokens)
    return document


def find_rows(document: FindDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    has_effects = document.effect_together is not UNSET
    names = (
        "layer",
        "head",
        "weight",
        "rank",
        "visible",
        "top_key",
        "reverse_weight",
        "reverse_rank",
    )
    yield (*names, "effect") if has_effects else names
    for head in document.heads:
        link = (head.layer, head.head, head.weight, head.rank, head.visible, head.top_key)
        yield (
            *link,
            head.reverse.weight,
            head.reverse.rank,
            *((head.effect,) if has_effects else ()),
        )


def _head_table(document: FindDocument, view: View) -> Lines:
    """The heads, strongest first, with what of them and of their columns is not shown."""
    names = [_token_name(document, index, view) for index in (document.query, document.key)]
    places = {"query": names[0], "arrow": spell("→", ascii=view.ascii), "key": names[1]}
    heads = document.heads
    if view.full:
        heads_shown = heads
    else:
        heads_shown = heads[: view.top]
    columns = _columns(document, heads_shown, view)
    absent = [name for name in (LOOKS, REVERSE) if name not in columns]
    body = table(
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        view,
        align=["left" if name in (BAR, LOOKS) else "right" for name in columns],
        title=message("heads by weight, {query} {arrow} {key}", **places),
        bars=list(columns).index(BAR),
        note="" if REVERSE in absent else message("reverse: {key} {arrow} {query}", **places),
    )
    counts = {"heads_shown": len(heads_shown), "heads": len(heads)}
    more = ""
    if len(heads_shown) < len(heads):
        more = message("{heads_shown} of {heads} heads shown; --top {heads} shows all", **counts)
    narrow = (
        (message("a wider terminal also shows: {absent}", absent=listing(map(term, absent))))
        if (absent)
        else ("")
    )
    hidden = message(
        "the mask hides this key from this query in every head"
        if heads and all(head.rank is None for head in heads)
        else ""
    )
    return stack(body, *(remark(note, view) for note in (more, narrow, hidden)))


def _columns(
    document: FindDocument, heads: Sequence[FoundHead], view: View
) -> dict[str, list[str]]:
    """The columns by name, with a bar in what room is left; where there is too little, less is
    shown, never half a number."""
    write = writer(
        [weight for head in heads for weight in (head.weight, head.reverse.weight)], view.precision
    )
    texts = [label(token.text, ascii=view.ascii) for token in document.tokens]
    effects = [None if head.effect is UNSET else head.effect for head in heads]
    tops = ["-" if head.top_key is None else texts[head.top_key] for head in heads]
    columns = {
        "layer": [str(head.layer) for head in heads],
        "head": [str(head.head) for head in heads],
        "weight": [write(head.weight) for head in heads],
        BAR: [""] * len(heads),
        **({} if document.effect_together is UNSET else {EFFECT: effect_columns(effects)[0]}),
        message("rank of key"): [_rank_text(head, view) for head in heads],
        LOOKS: [cut(top, NAME, ascii=view.ascii) for top in tops],
        REVERSE: [write(head.reverse.weight) for head in heads],
        "rank": [_rank_text(head.reverse, view) for head in heads],
    }
    for less in ((LOOKS,), (REVERSE, "rank")):
        if _table_width(columns) + SHORTEST > view.width:
            for name in less:
                del columns[name]
    room = min(max(view.width - _table_width(columns), SHORTEST), LONGEST)
    return columns | {BAR: [bar(head.weight, room, ascii=view.ascii) for head in heads]}


def _table_width(columns: dict[str, list[str]]) -> int:
    """Terminal cells that a table of these columns takes, bars aside."""
    return sum(max(map(cells, (name, *column))) + GAP for name, column in columns.items()) - GAP


def _rank_text(link: FoundHead | Reverse, view: View) -> str:
    """Such as "1 of 7"; "hidden" for a key that the mask hides."""
    rank = message("{rank} of {visible}", rank=link.rank, visible=link.visible)
    return localize("hidden" if link.rank is None else rank, view)


def _token_name(document: FindDocument, index: int, view: View) -> str:
    """A token's name in a title: its position and its text."""
    return f"{index} {label(document.tokens[index].text, ascii=view.ascii)}"


def _answer(document: FindDocument, view: View) -> Lines:
    """Where the link is strongest, with the shaded sentence, and what cutting it changes."""
    return stack(find_answer(document, view), sentences(cut_link_sentences(document, view), view))


def find_sentences(document: FindDocument, view: View) -> list[str]:
    """The answer in words: where the link is strongest, and what cutting it does, if that was
    measured.
    """
    document = with_region_names(document, view)
    return [*link_sentences(document, view), *cut_link_sentences(document, view)]


FIND_PARTS: Parts[FindDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("heads", _head_table),
    ScreenPart("answer", _answer),
)
