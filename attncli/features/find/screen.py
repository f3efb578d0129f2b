"""The screen of `attn.find/1`: the heads that send one token to another, strongest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from attncli.draw.lines import Lines, draw_parts, localize, remark, sentences, stack
from attncli.draw.numbers import bar, writer
from attncli.draw.rest_names import rest_names
from attncli.draw.safe import cells, label, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.tables import GAP, table
from attncli.draw.token_names import quoted_token, region_name, short_token
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.effect_answer import cut_link_sentences, effect_columns
from attncli.features.find.document import FindDocument, FoundHead, Reverse, counted_weight
from attncli.features.find.link_screen import (
    holds_rest,
    link_sentences,
    rests_on_key,
    shaded_answer,
)
from attncli.features.find.pair_link_screen import (
    lost_sentences,
    pair_link_sentences,
    pair_rows,
    pair_table,
)
from attncli.language import listing, message, term

BAR, LOOKS, REVERSE, EFFECT = "", message("looks most at"), "reverse", "effect"
M_COLUMN = message("m loses")
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
    if document.pair_links is not UNSET:
        yield from pair_rows(document.pair_links)
        return
    has_effects = document.effect_together is not UNSET
    has_difference = document.difference_together is not UNSET
    names = ["layer", "head", "weight", "rank", "visible", "top_key"]
    names += ["reverse_weight", "reverse_rank"]
    if has_effects:
        names.append("effect")
    if document.rest is not UNSET:
        names += ["share_beyond_rest", "rank_beyond_rest"]
    if document.word_before is not UNSET:
        names.append("verified_weight")
    if has_difference:
        names.append("difference")
    yield names
    for head in document.heads:
        row: list[object] = [head.layer, head.head, head.weight, head.rank, head.visible]
        row += [head.top_key, head.reverse.weight, head.reverse.rank]
        if has_effects:
            row.append(head.effect)
        if head.beyond_rest is not UNSET:
            row += [head.beyond_rest.share, head.beyond_rest.rank]
        if head.verified is not UNSET:
            row.append(head.verified.weight)
        if head.difference is not UNSET:
            row.append(head.difference.all)
        yield row


def _head_table(document: FindDocument, view: View) -> Lines:
    """The heads, strongest first, with what of them and of their columns is not shown; where the
    mask hides the link in every head, those of the link in the other direction."""
    if document.pair_links is not UNSET:
        return pair_table(document, document.pair_links, view)
    names = [_token_name(document, index, view) for index in (document.query, document.key)]
    places = {"query": names[0], "arrow": spell("→", ascii=view.ascii), "key": names[1]}
    heads = document.heads
    is_hidden, is_one_way = _hidden_ways(heads)
    if is_hidden and not is_one_way:
        heads = sorted(
            heads, key=lambda head: (-counted_weight(head.reverse), head.layer, head.head)
        )
        places |= {"query": names[1], "key": names[0]}
    heads_shown = heads
    if not view.full:
        heads_shown = heads[: view.top]
    columns = _columns(document, heads_shown, view, is_hidden=is_hidden, is_one_way=is_one_way)
    wide_columns = [LOOKS] if is_hidden or is_one_way else [LOOKS, REVERSE]
    absent = [name for name in wide_columns if name not in columns]
    reverse_note = ""
    if REVERSE in columns:
        reverse_note = message("reverse: {key} {arrow} {query}", **places)
    body = table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        view,
        align=["left" if name in (BAR, LOOKS) else "right" for name in columns],
        title=message("heads by weight, {query} {arrow} {key}", **places),
        bars=list(columns).index(BAR),
        note=reverse_note,
    )
    notes: list[str] = []
    notes.append(_count_note(len(heads_shown), len(heads)))
    if absent:
        hidden_columns = listing(map(term, absent))
        notes.append(message("a wider terminal also shows: {absent}", absent=hidden_columns))
    if EFFECT in columns:
        notes.append(_effect_note(document, view))
    notes.append(_rest_note(document, is_hidden=is_hidden))
    if is_hidden or is_one_way:
        hidden = places if is_hidden and is_one_way else _turned(places)
        notes.append(message("the mask hides {query} {arrow} {key} in every head", **hidden))
    return stack(body, *(remark(note, view) for note in notes))


def _count_note(shown: int, heads: int) -> str:
    """How many of the heads are shown; "" for all."""
    if shown == heads:
        return ""
    counts = {"heads_shown": shown, "heads": heads}
    return message("{heads_shown} of {heads} heads shown; --top {heads} shows all", **counts)


def _effect_note(document: FindDocument, view: View) -> str:
    """What the numbers of the column of effects are."""
    return message(
        "effect: how far the last vector of {subject} turns where this head does not see the key,"
        " 1 − cosine",
        subject=quoted_token(document.tokens, document.query, view),
    )


def _hidden_ways(heads: Sequence[FoundHead]) -> tuple[bool, bool]:
    """Whether the mask hides the link in every head, and whether it hides the reverse."""
    is_hidden = bool(heads) and all(head.rank is None for head in heads)
    return is_hidden, all(head.reverse.rank is None for head in heads)


def _rest_note(document: FindDocument, *, is_hidden: bool) -> str:
    """A note on which columns leave out the keys where heads rest; "" where none is known.
    is_hidden: whether the mask hides the link in every head.
    """
    if document.rest is UNSET:
        return ""
    if rests_on_key(document) and not is_hidden:
        return message(
            "what a head looks at most leaves out where heads rest: {rest}",
            rest=rest_names(document.tokens),
        )
    if holds_rest(document) and not is_hidden:
        return message(
            "weights, ranks and what a head looks at most leave out where heads rest: {rest}",
            rest=rest_names(document.tokens),
        )
    return message(
        "ranks and what a head looks at most leave out where heads rest: {rest}",
        rest=rest_names(document.tokens),
    )


def _turned(places: dict[str, str]) -> dict[str, str]:
    """The names of a link's ends the other way round."""
    return {**places, "query": places["key"], "key": places["query"]}


def _columns(
    document: FindDocument,
    heads: Sequence[FoundHead],
    view: View,
    *,
    is_hidden: bool,
    is_one_way: bool,
) -> dict[str, list[str]]:
    """The columns by name, with a bar in what room is left; where there is too little, less is
    shown, never half a number. is_hidden: whether the mask hides the link in every head, so that
    its reverse is shown alone; is_one_way: whether it hides the reverse."""
    write = writer(
        [counted_weight(link) for head in heads for link in (head, head.reverse)], view.precision
    )
    texts = [short_token(token, NAME, view) for token in document.tokens]
    shown: list[FoundHead | Reverse] = list(heads)
    if is_hidden and not is_one_way:
        shown = [head.reverse for head in heads]
    columns = {
        "layer": [str(head.layer) for head in heads],
        "head": [str(head.head) for head in heads],
        "weight": [write(counted_weight(link)) for link in shown],
        BAR: [""] * len(heads),
        **_effect_columns_of(document, heads),
    }
    columns |= _key_columns([_ranked_link(link, document) for link in shown], texts, view)
    if not is_hidden and not is_one_way:
        columns[REVERSE] = [write(counted_weight(head.reverse)) for head in heads]
        columns["rank"] = [
            _rank_text(*_ranked_link(head.reverse, document)[:2], view) for head in heads
        ]
    for less in ((LOOKS,), (REVERSE, "rank")):
        if _table_width(columns) + SHORTEST > view.width:
            for name in less:
                columns.pop(name, None)
    room = min(max(view.width - _table_width(columns), SHORTEST), LONGEST)
    return columns | {BAR: [bar(counted_weight(link), room, ascii=view.ascii) for link in shown]}


def _key_columns(
    ranked: Sequence[tuple[int | None, int, int | None]], texts: Sequence[str], view: View
) -> dict[str, list[str]]:
    """The columns of the rank of the key, and of what a head looks at most. ranked: as of
    `_ranked_link`.
    """
    ranks = []
    looks = []
    for rank, visible, top in ranked:
        ranks.append(_rank_text(rank, visible, view))
        looks.append("-" if top is None else texts[top])
    return {message("rank of key"): ranks, LOOKS: looks}


def _effect_columns_of(document: FindDocument, heads: Sequence[FoundHead]) -> dict[str, list[str]]:
    """The columns of what cutting the link changes, where that was measured."""
    columns = {}
    if document.effect_together is not UNSET:
        effects = [None if head.effect is UNSET else head.effect for head in heads]
        columns[EFFECT] = effect_columns(effects)[0]
    if document.difference_together is not UNSET:
        differences = [None if head.difference is UNSET else head.difference.all for head in heads]
        columns[M_COLUMN] = effect_columns(differences)[0]
    return columns


def _ranked_link(
    link: FoundHead | Reverse, document: FindDocument
) -> tuple[int | None, int, int | None]:
    """The rank of the key, of how many keys, and the key that is looked at most: without those
    where heads rest, except for the rank of such a key itself."""
    if link.beyond_rest is UNSET:
        return link.rank, link.visible, link.top_key
    beyond = link.beyond_rest
    if isinstance(link, FoundHead):
        end = document.key
    else:
        end = document.query
    if document.rest is not UNSET and end in document.rest:
        return link.rank, link.visible, beyond.top_key
    return beyond.rank, beyond.visible, beyond.top_key


def _table_width(columns: dict[str, list[str]]) -> int:
    """Terminal cells that a table of these columns takes, bars aside."""
    return sum(max(map(cells, (name, *column))) + GAP for name, column in columns.items()) - GAP


def _rank_text(rank: int | None, visible: int, view: View) -> str:
    """Such as "1 of 7"; "hidden" for a key that the mask hides."""
    text = message("{rank} of {visible}", rank=rank, visible=visible)
    return localize("hidden" if rank is None else text, view)


def _token_name(document: FindDocument, index: int, view: View) -> str:
    """A token's name in a title: its position and its text."""
    return f"{index} {label(document.tokens[index].text, ascii=view.ascii)}"


def _answer(document: FindDocument, view: View) -> Lines:
    """Where the link is strongest, with the shaded sentence, and what cutting it changes."""
    if document.pair_links is not UNSET:
        return sentences(find_sentences(document, view), view)
    return shaded_answer(document, find_sentences(document, view), view)


def find_sentences(document: FindDocument, view: View) -> list[str]:
    """The answer in words: where the link is strongest, and what cutting it does, if that was
    measured.
    """
    if document.pair_links is not UNSET:
        return pair_link_sentences(document, view)
    document = with_region_names(document, view)
    return [
        *link_sentences(document, view),
        *cut_link_sentences(document, view),
        *lost_sentences(document, view),
    ]


FIND_PARTS: Parts[FindDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("heads", _head_table),
    ScreenPart("answer", _answer),
)
