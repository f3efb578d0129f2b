"""The screen of `attn.find/1`: the heads that send one token to another, strongest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from attncli.draw.columns import Column, column_table, columns_that_fit
from attncli.draw.lines import Lines, draw_parts, localize, remark, sentences, stack
from attncli.draw.names import bare_arrow
from attncli.draw.numbers import writer
from attncli.draw.safe import label
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.token_names import placed_token, quoted_token, region_name, rest_names
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.effect_answer import cut_link_sentences, effect_writer
from attncli.features.find.document import FindDocument, FoundHead, Reverse, counted_weight
from attncli.features.find.link_screen import (
    holds_rest,
    link_sentences,
    other_key_sentences,
    rests_on_key,
    shaded_answer,
)
from attncli.features.find.pair_link_screen import (
    lost_sentences,
    pair_link_sentences,
    pair_rows,
    pair_table,
)
from attncli.language import message

LOOKS = message("looks most at")
REVERSE = "reverse"
EFFECT = "effect"
M_COLUMN = message("m loses")
"""Names of columns."""
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

    # columns of what was not measured are left out
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
    others = document.other_keys or ()
    names += [f"weight_to_{key}" for key in others]
    yield names
    # what was measured of one head was measured of all, so that the cells stand below their names
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
        row += [link.weight for link in head.others or ()]
        yield row


def _head_table(document: FindDocument, view: View) -> Lines:
    """A table of the heads by the weight of the link, the largest first, with notes on what it leaves
    out. Where the mask hides the link in every head, it is of the link in the other direction."""
    if document.pair_links is not UNSET:
        return pair_table(document, document.pair_links, view)
    query_name = _token_name(document, document.query, view)
    key_name = _token_name(document, document.key, view)
    places = {"query": query_name, "arrow": bare_arrow(view), "key": key_name}
    heads = document.heads
    is_hidden, is_reverse_hidden = _hidden_ways(heads)
    if is_hidden and not is_reverse_hidden:
        heads = sorted(
            heads, key=lambda head: (-counted_weight(head.reverse), head.layer, head.head)
        )
        places = _swap_ends(places)
    heads_shown = heads
    if not view.full:
        heads_shown = heads[: view.top]
    columns = _columns(
        document, heads_shown, view, is_hidden=is_hidden, is_reverse_hidden=is_reverse_hidden
    )
    names_shown = [column.name for column in columns_that_fit(columns, heads_shown, view)]
    reverse_note = ""
    if REVERSE in names_shown:
        reverse_note = message("reverse: {key} {arrow} {query}", **places)
    body = column_table(
        columns,
        heads_shown,
        view,
        title=message("heads by weight, {query} {arrow} {key}", **places),
        note=reverse_note,
    )

    notes = [_count_note(len(heads_shown), len(heads))]
    if document.effect_together is not UNSET:
        notes.append(_effect_note(document, view))
    notes.append(_rest_note(document, is_hidden=is_hidden))
    if is_hidden or is_reverse_hidden:
        # of the two directions the one that the table does not show; where both are hidden, the link
        hidden = places if is_hidden and is_reverse_hidden else _swap_ends(places)
        notes.append(message("the mask hides {query} {arrow} {key} in every head", **hidden))
    return stack(body, *(remark(note, view) for note in notes))


def _count_note(shown: int, heads: int) -> str:
    """The remark on how many of the heads the table shows; "" where it shows all."""
    if shown == heads:
        return ""
    counts = {"heads_shown": shown, "heads": heads}
    return message("{heads_shown} of {heads} heads shown; --top {heads} shows all", **counts)


def _effect_note(document: FindDocument, view: View) -> str:
    """The note that says what the numbers in the column of effects are."""
    return message(
        "effect: how far the last vector of {subject} turns where this head does not see the key,"
        " 1 − cosine",
        subject=quoted_token(document.tokens, document.query, view),
    )


def _hidden_ways(heads: Sequence[FoundHead]) -> tuple[bool, bool]:
    """Whether the mask hides the link in every head, and whether it hides the link in the other
    direction in every head."""
    is_hidden = bool(heads) and all(head.rank is None for head in heads)
    return is_hidden, all(head.reverse.rank is None for head in heads)


def _rest_note(document: FindDocument, *, is_hidden: bool) -> str:
    """A note on which columns leave out resting keys (the first token and special tokens, on which
    heads put weight when they look for nothing); "" where the text has none.

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


def _swap_ends(places: dict[str, str]) -> dict[str, str]:
    """The names of a link's ends the other way round."""
    return {**places, "query": places["key"], "key": places["query"]}


def _columns(
    document: FindDocument,
    heads: Sequence[FoundHead],
    view: View,
    *,
    is_hidden: bool,
    is_reverse_hidden: bool,
) -> list[Column[FoundHead]]:
    """The columns of the table of heads. Those with a `leave_out` number go where there is too little
    room, the largest number first.

    is_hidden: whether the mask hides the link in every head, so that the link in the other
        direction (the reverse) is shown in its place.
    is_reverse_hidden: whether it hides the reverse in every head.
    """
    write = writer(
        [counted_weight(link) for head in heads for link in (head, head.reverse)], view.precision
    )
    texts = [
        placed_token(document.tokens, index, NAME, view) for index in range(len(document.tokens))
    ]

    # how each cell of a head is written
    def link_of(head: FoundHead) -> FoundHead | Reverse:
        """The link of a head that the table is about: the one asked for, or, where the mask hides
        that everywhere, the one in the other direction."""
        if is_hidden and not is_reverse_hidden:
            return head.reverse
        return head

    def weight_text(head: FoundHead) -> str:
        """The weight of that link."""
        return write(counted_weight(link_of(head)))

    def rank_text(head: FoundHead) -> str:
        """The rank of its key among the keys that are seen."""
        rank, visible, _ = _ranked_link(link_of(head), document)
        return _rank_text(rank, visible, view)

    def top_text(head: FoundHead) -> str:
        """The key that is looked at most."""
        _, _, top_key = _ranked_link(link_of(head), document)
        if top_key is None:
            return "-"
        return texts[top_key]

    def reverse_rank_text(head: FoundHead) -> str:
        """The rank of the link in the other direction."""
        rank, visible, _ = _ranked_link(head.reverse, document)
        return _rank_text(rank, visible, view)

    # further keys were asked for: they are left out last, one by one
    others = len(document.other_keys or ())
    columns: list[Column[FoundHead]] = [
        Column("layer", lambda head: str(head.layer)),
        Column("head", lambda head: str(head.head)),
        Column("weight", weight_text),
        Column(share=lambda head: counted_weight(link_of(head)), align="left"),  # a bar
        *_other_columns(document, view, is_turned=is_hidden and not is_reverse_hidden),
        *_effect_columns_of(document, heads),
        Column(message("rank of key"), rank_text),
        Column(LOOKS, top_text, align="left", leave_out=others + 2),
    ]
    if not is_hidden and not is_reverse_hidden:
        columns += [
            Column(REVERSE, lambda head: write(counted_weight(head.reverse)), leave_out=others + 1),
            Column("rank", reverse_rank_text, leave_out=others + 1),
        ]
    return columns


def _other_columns(
    document: FindDocument, view: View, *, is_turned: bool
) -> Iterator[Column[FoundHead]]:
    """Yield a column for each further key: what the query gives it in the same head.

    is_turned: whether the first column is of the reverse link, so that these name their query.
    """
    heads = document.heads
    weights = [link.weight for head in heads for link in head.others or ()]
    write = writer(weights, view.precision)

    def column(place: int, key: int) -> Column[FoundHead]:
        """The column of one further key, whose index among them is `place`."""

        def text(head: FoundHead) -> str:
            """The cell of a head: the key's weight, or that the mask hides it."""
            if head.others is UNSET:
                return ""
            if head.others[place].rank is None:
                return localize("hidden", view)
            return write(head.others[place].weight)

        arrow = bare_arrow(view)
        name = f"{arrow} {placed_token(document.tokens, key, NAME, view)}"
        if is_turned:
            name = f"{placed_token(document.tokens, document.query, NAME, view)} {name}"
        return Column(name, text, leave_out=place + 1)

    for place, key in enumerate(document.other_keys or ()):
        yield column(place, key)


def _effect_columns_of(
    document: FindDocument, heads: Sequence[FoundHead]
) -> Iterator[Column[FoundHead]]:
    """Yield the columns of what cutting the link changes, where that was measured."""
    if document.effect_together is not UNSET:
        write_effect = effect_writer(map(_effect, heads))
        yield Column(EFFECT, lambda head: write_effect(_effect(head)))
    if document.difference_together is not UNSET:
        write_loss = effect_writer(map(_lost_difference, heads))
        yield Column(M_COLUMN, lambda head: write_loss(_lost_difference(head)))


def _effect(head: FoundHead) -> float | None:
    """How far the query's vector turns without this head's link; None where not measured."""
    if head.effect is UNSET:
        return None
    return head.effect


def _lost_difference(head: FoundHead) -> float | None:
    """What the difference of two logits loses without this head's link; None where not measured."""
    if head.difference is UNSET:
        return None
    return head.difference.all


def _ranked_link(
    link: FoundHead | Reverse, document: FindDocument
) -> tuple[int | None, int, int | None]:
    """The rank of the link's key (None where the mask hides it), of how many keys that is, and the
    key that is looked at most. Resting keys (the first token and special tokens) are left out,
    except for the rank of such a key itself."""
    if link.beyond_rest is UNSET:
        return link.rank, link.visible, link.top_key
    beyond = link.beyond_rest
    key = document.query  # of a reverse link
    if isinstance(link, FoundHead):
        key = document.key
    if document.rest is not UNSET and key in document.rest:
        return link.rank, link.visible, beyond.top_key
    return beyond.rank, beyond.visible, beyond.top_key


def _rank_text(rank: int | None, visible: int, view: View) -> str:
    """A rank in a cell, such as "1 of 7"; "hidden" for a key that the mask hides, whose rank is
    None."""
    if rank is None:
        return localize("hidden", view)
    return localize(message("{rank} of {visible}", rank=rank, visible=visible), view)


def _token_name(document: FindDocument, index: int, view: View) -> str:
    """A token's name in a title: its position and its text."""
    return f"{index} {label(document.tokens[index].text, ascii=view.ascii)}"


def _answer(document: FindDocument, view: View) -> Lines:
    """Draw the answer: where the link is strongest, the shaded sentence, and what cutting the link
    changes."""
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
        *other_key_sentences(document, view),
    ]


FIND_PARTS: Parts[FindDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("heads", _head_table),
    ScreenPart("answer", _answer),
)
