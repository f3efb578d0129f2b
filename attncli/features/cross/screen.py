"""The screen of `attn.cross/1`: both texts, alignment, rectangular maps and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import UNSET

from attncli.documents import LinkRow, TokenRow
from attncli.draw.heatmap import side_by_side
from attncli.draw.lines import Lines, heading, remark, sentences, stack, stack_spaced
from attncli.draw.names import bare_arrow
from attncli.draw.numbers import bar, percent
from attncli.draw.safe import cut, safe, spell
from attncli.draw.screen_header import count_phrase, header_lines, tokens_part
from attncli.draw.sentence import (
    left_out_names,
    left_out_note,
    not_learned_note,
    sentence,
    shaded_sentence,
    strongest_link_sentence,
    words,
)
from attncli.draw.shaded_matrix import as_matrix, visible
from attncli.draw.tables import layer_and_head, links, table
from attncli.draw.token_names import (
    position_and_text,
    quote_text,
    quoted_ends,
    quoted_row,
    quoted_token,
    with_word,
)
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.cross.document import Aligned, BestKey, CrossDocument, CrossHead, KeyHead
from attncli.features.run.screen import head_map, head_table, more_heads, shapes_part
from attncli.language import Message, listing, message, say
from attncli.mechanism.spec import head_label, plain_link, spoken_head

ALIGNED = 64
"""Queries of the alignment that are shown unless the view is full."""
SAID_WIDTH = 12
"""Cells of the column of what is said at each query, with the gap before it."""
SPECIAL_WIDTH = 9
"""Cells of the column of what special tokens get, with the gap before it."""
END_NAME = 16
"""Cells of a token's text in the alignment."""


def cross_rows(document: CrossDocument) -> Iterable[list[object]]:
    """One line per layer, head, query and key, for `--plain`."""
    yield ["layer", "head", "query", "query_text", "key", "key_text", "weight"]
    queries = [token.text for token in document.queries]
    keys = [token.text for token in document.keys]
    for layer, head in _heads_of(document):
        for query, row in zip(document.shown_queries, head.weights, strict=True):
            for key, weight in enumerate(row):
                # learned keys come after the tokens and have no text
                text = keys[key] if key < len(keys) else None
                number = None if weight is None else float(weight)
                yield [layer, head.head, query, queries[query], key, text, number]


def _heads_of(document: CrossDocument) -> list[tuple[int, CrossHead]]:
    """Every head of the document as (layer, head), layer after layer."""
    return [(layer.layer, head) for layer in document.layers for head in layer.heads]


def _header(document: CrossDocument, view: View) -> Lines:
    """Both texts, which model ran, and how many queries and keys there are."""
    text = plain_link(document.query_text, document.key_text)
    title = cut(safe(text, ascii=view.ascii), view.width, ascii=view.ascii)
    counts = (count_phrase(len(document.queries), "query"), count_phrase(len(document.keys), "key"))
    return header_lines(title, document, view, counts=counts)


def _tokens(document: CrossDocument, view: View) -> Lines:
    """The tokens of the queries' text, then those of the keys'."""
    values = ""
    if document.value_text is not None:
        values = message("values from: {value_text}", value_text=document.value_text)
    query_lines = stack(heading("queries", "", view), tokens_part(document.queries, view))
    key_lines = stack(heading("keys and values", values, view), tokens_part(document.keys, view))
    return stack_spaced(query_lines, key_lines)


def _maps(document: CrossDocument, view: View) -> Lines:
    """Draw each head's weights, query × key, side by side."""
    heads = _heads_of(document)
    several = len({layer for layer, _ in heads}) > 1
    maps = [
        head_map(layer, head.head, visible(head.weights, head.scores), several=several)
        for layer, head in heads
    ]
    queries, _ = _query_and_key_names(document)
    shown = [queries[place] for place in document.shown_queries]
    picture = side_by_side(maps, view, limits=(0.0, 1.0), names=shown)
    return stack(heading("maps of the weights", "rows: queries, columns: keys", view), picture)


def _links(document: CrossDocument, view: View) -> Lines:
    """The strongest weights as a table: query, key and a bar, with the head where there are
    several.
    """
    queries, keys = _query_and_key_names(document, view)
    note = message("weight of a key in its query's row; bars from 0 to 1")
    # how a link's head is named; a single head needs no name
    head_of_link = layer_and_head if len(_heads_of(document)) != 1 else None
    body = links(
        document.links,
        queries,
        view,
        place=head_of_link,
        keys=keys,
        title="strongest links",
        note=note,
    )
    return stack(body, remark(left_out_note(document), view))


def _query_and_key_names(
    document: CrossDocument, view: View | None = None
) -> tuple[list[str], list[str]]:
    """The names of all queries, and of all keys; learned keys come after the tokens, as "bias_k 0".

    view: of a table, in which a piece of a word is named with that word; None for the axis of a map,
        where pieces stand beside each other.
    """

    def name(token: TokenRow) -> str:
        """A token's name."""
        if view is None:
            return token.text
        return with_word(token, view)

    queries = [name(token) for token in document.queries]
    keys = [name(token) for token in document.keys]
    heads = [head for layer in document.layers for head in layer.heads]
    column_count = len(keys)
    if heads and len(heads[0].weights):  # all rows of all heads have the same keys
        column_count = len(heads[0].weights[0])
    learned_keys = [f"bias_k {index}" for index in range(column_count - len(keys))]
    return queries, keys + learned_keys


def _best_of(row: Aligned) -> BestKey | None:
    """The key that a query of the alignment looks at most, special tokens left out; None where all
    other weights are 0."""
    if row.beyond_special is not UNSET:
        return row.beyond_special
    if row.key is None:
        return None
    return BestKey(key=row.key, weight=row.weight)


def _special_note(document: CrossDocument, view: View) -> Message:
    """The remark on which special tokens the alignment leaves out, and how much of a query's weight
    they get; "" where there are none."""
    shares = [row.special for row in document.alignment if row.special is not UNSET]
    if not shares:
        return message("")
    names = (quoted_row(token, view) for token in document.keys if token.special)
    return message(
        "left out: {tokens}, with {share} of a query's weight on average",
        tokens=listing(dict.fromkeys(names)),
        share=percent(sum(shares) / len(shares)),
    )


def _alignment_cells(
    row: Aligned, queries: Sequence[str], keys: Sequence[str], room: int, view: View
) -> list[str]:
    """A line of the table: the query, an arrow, its best key, the weight and its bar of at most
    `room` cells, and, where the key text has special tokens, what these get.

    queries, keys: their names.
    """
    query = position_and_text(row.query, queries[row.query], END_NAME, view)
    best = _best_of(row)
    if best is not None:
        key = position_and_text(best.key, keys[best.key], END_NAME, view)
        weight = f"{best.weight:.{view.precision}f}"
        strip = bar(best.weight, room, ascii=view.ascii)
        cells = [query, bare_arrow(view), key, weight, strip]
    elif row.key is None:
        cells = [query, "", message("(sees nothing)"), "", ""]
    else:
        cells = [query, "", message("(special tokens alone)"), "", ""]
    if row.special is not UNSET:
        cells.append(f"{row.special:.{view.precision}f}")
    return cells


def cross_alignment(document: CrossDocument, view: View) -> Lines:
    """A table of the key that each query attends to most, on average over heads; special tokens
    are left out, with a column of what they get."""
    heads = len(_heads_of(document))
    queries, keys = _query_and_key_names(document, view)
    if view.full:
        alignment = document.alignment
    else:
        alignment = document.alignment[:ALIGNED]
    columns = ["query", "", message("best key"), "weight", ""]
    align = ["left", "left", "left", "right", "left"]
    # cells of the longest bar: 24, or what the other columns, which take 48, leave
    room = max(min(view.width - 48, 24), 0)
    left_out = _special_note(document, view)
    if left_out:
        columns.append(message("special"))
        align.append("right")
        room = max(room - SPECIAL_WIDTH, 0)
    bar_column = 4  # its index
    if document.said is not UNSET:  # a column of what is said, behind the query's
        bar_column = 5
        room = max(room - SAID_WIDTH, 0)
        columns.insert(1, message("says"))
        align.insert(1, "left")
    rows = [_alignment_cells(row, queries, keys, room, view) for row in alignment]
    if document.said is not UNSET:
        for row, cells in zip(alignment, rows, strict=True):
            cells.insert(1, cut(safe(document.said[row.query], ascii=view.ascii), SAID_WIDTH - 2))
    if heads == 1:
        note = message("the key with the largest weight; bars from 0 to 1")
    else:
        note = message(
            "the key with the largest weight, mean of {heads} heads; bars from 0 to 1", heads=heads
        )
    shown = len(alignment)
    total = len(document.alignment)
    more = message(
        "the first {shown} of {queries} queries shown; --full shows all", shown=shown, queries=total
    )
    body = table(columns, rows, view, align=align, title="alignment", note=note, bars=bar_column)
    return stack(body, remark(left_out, view), remark(more if shown < total else "", view))


def _head_tables(part: str, document: CrossDocument, view: View) -> Lines:
    """The tables of one array of the document (`part`, such as "weights"): for the first head, or
    in a full view for every head."""
    heads = _heads_of(document)
    queries, keys = _query_and_key_names(document)
    queries = [queries[place] for place in document.shown_queries]
    heads = [(layer, head) for layer, head in heads if getattr(head, part) is not UNSET]
    if view.full:
        heads_shown = heads
    else:
        heads_shown = heads[:1]
    blocks = []
    for layer, head in heads_shown:
        place = spoken_head(layer, head.head)
        # of an output; tables of scores and weights have notes of their own
        note = message("{place} · one vector per query", place=place)
        blocks.append(head_table(part, head, place, queries, keys, view, note=note))
    # the remark on further heads stands once: under the weights where they are shown, too
    has_weights = view.show is None or not view.show.isdisjoint({"weights", "all"})
    if part == "weights" or not has_weights:
        more = more_heads(len(heads) - len(heads_shown))
    else:
        more = ""
    return stack(stack_spaced(*blocks), remark(more, view))


def _key_heads(document: CrossDocument, view: View) -> Lines:
    """With a query and a key: the heads by the weight between both, as a table."""
    if document.key_heads is UNSET:
        return Lines()
    rows_shown = document.key_heads
    if not view.full:
        rows_shown = rows_shown[: view.top]
    has_special = any(row.beyond_special is not UNSET for row in rows_shown)
    columns = [message("head"), message("weight"), "", message("rank")]
    align = ["left", "right", "left", "right"]
    if has_special:
        columns.append(message("without special tokens"))
        align.append("right")
    # cells of the longest bar: 24, or what the other columns, which take 56, leave
    room = max(min(view.width - 56, 24), 0)
    rows = []
    for row in rows_shown:
        cells = [
            head_label(row.layer, row.head),
            f"{row.weight:.{view.precision}f}",
            bar(row.weight, room, ascii=view.ascii),
            "–" if row.rank is None else str(row.rank),
        ]
        if has_special:
            beyond = row.beyond_special
            cells.append("–" if beyond is None or beyond is UNSET else str(beyond))
        rows.append([spell(cell, ascii=view.ascii) for cell in cells])
    query, key = _asked_ends(document, view)
    title = message("what {query} gives {key} in each head", query=query, key=key)
    note = message("rank among the keys of this query; bars from 0 to 1")
    shown, total = len(rows), len(document.key_heads)
    more = message("{shown} of {count} heads shown; --full shows all", shown=shown, count=total)
    # column 2 has the bars
    body = table(columns, rows, view, align=align, title=title, note=note, bars=2)
    return stack(body, remark(more if shown < total else "", view))


def _asked_ends(document: CrossDocument, view: View) -> tuple[str, str]:
    """The query and the key that are asked for, each as it is quoted in a sentence."""
    assert document.query is not UNSET
    assert document.key is not UNSET
    return (
        quoted_token(document.queries, document.query, view),
        quoted_token(document.keys, document.key, view),
    )


# The answers of the screens that are not about one sentence: what was compared, counted or
# captured, in words.


def cross_answer(document: CrossDocument, view: View) -> Lines:
    """The answer of an `attn.cross/1` document: both texts, tinted by the strongest link, and the
    answer in words.
    """
    text_lines = sentences(cross_sentences(document, view), view)
    if document.links or document.key_heads:
        return stack(_shaded_texts(document, view), text_lines)
    return text_lines


def cross_sentences(document: CrossDocument, view: View) -> list[str]:
    """The answer in sentences: on the strongest link and its weight; where a query and a key were
    asked about, on the heads that link them."""
    note = not_learned_note(document.model, view)
    if document.key_heads:
        assert document.query is not UNSET
        said = _said_sentence(document, document.query, view)
        return [*_key_sentences(document, view), said, note]
    if not document.links:
        return [note]
    link = document.links[0]  # the largest weight comes first
    has_several_heads = len(_heads_of(document)) > 1
    ends = quoted_ends(document.queries, document.keys, link, view)
    # `others` so that the sentence says where another link is as strong
    strongest = strongest_link_sentence(
        link, ends, view, several=has_several_heads, others=document.links
    )
    said = _said_sentence(document, link.query, view)
    names = left_out_names(document)
    left_out = say(view, "Not counted: {names}.", names=names) if names else ""
    return [strongest, said, left_out, note]


def _said_sentence(document: CrossDocument, query: int, view: View) -> str:
    """What is said at a query, which is what it looks for; "" where that is not known."""
    if document.said is UNSET:
        return ""
    return say(
        view,
        "At {query} the decoder is to say {said}.",
        query=quoted_token(document.queries, query, view),
        said=quote_text(document.said[query], view),
    )


def _key_sentences(document: CrossDocument, view: View) -> list[str]:
    """Sentences on the head in which the query gives the key most, and on how many heads there are in
    which it is the key with the largest weight; on a hidden key, that alone."""
    assert document.key_heads is not UNSET
    query, key = _asked_ends(document, view)
    first = document.key_heads[0]  # the largest weight comes first
    if first.rank is None:  # the mask hides it even in the head with the largest weight
        return [say(view, "The mask hides {key} from {query}.", query=query, key=key)]
    places = {"query": query, "key": key, "head": say(view, spoken_head(first.layer, first.head))}
    share = percent(first.weight)
    count = len(document.key_heads)
    most = message("{query} gives {key} most in {head}: {share} of its weight, rank {rank}.")
    if count == 1:  # there is no other in which it gives less
        most = message("In {head} {query} gives {key} {share} of its weight, rank {rank}.")
    sentences_said = [say(view, most, share=share, rank=first.rank, **places)]
    has_special = any(row.beyond_special is not UNSET for row in document.key_heads)
    if count > 1 and has_special:
        leading = sum(row.beyond_special == 1 for row in document.key_heads)
        template = message(
            "Without special tokens it is the key with the largest weight in {leading} of {count}"
            " heads."
        )
        sentences_said.append(say(view, template, leading=leading, count=count))
    elif count > 1:
        leading = sum(row.rank == 1 for row in document.key_heads)
        template = message("It is the key with the largest weight in {leading} of {count} heads.")
        sentences_said.append(say(view, template, leading=leading, count=count))
    return sentences_said


def _is_of_all(document: CrossDocument, view: View) -> bool:
    """Whether a document is about all weights; false where it is about one query and one key."""
    return document.key_heads is UNSET


CROSS_PARTS: Parts[CrossDocument] = (
    ScreenPart("header", _header),
    ScreenPart("tokens", _tokens, _is_of_all),
    ScreenPart("shapes", lambda document, view: shapes_part(document.shapes, view), _is_of_all),
    ScreenPart(
        "maps",
        _maps,
        lambda document, view: _is_of_all(document, view) and len(_heads_of(document)) > 1,
    ),
    ScreenPart("alignment", cross_alignment, _is_of_all),
    ScreenPart("heads", _key_heads),
    ScreenPart("scores", partial(_head_tables, "scores"), _is_of_all),
    ScreenPart("weights", partial(_head_tables, "weights"), _is_of_all),
    ScreenPart("output", partial(_head_tables, "output"), _is_of_all),
    ScreenPart("links", _links, _is_of_all),
    ScreenPart("answer", cross_answer),
)


def _shaded_texts(document: CrossDocument, view: View) -> Lines:
    """Both texts: the one that looks with the query of the strongest link in brackets, the one looked
    at tinted by that query's weights in the link's head.
    """
    # of links, and of the heads that link query and key, the largest weight comes first
    link: LinkRow | KeyHead
    if document.key_heads and document.query is not UNSET:
        link = document.key_heads[0]
        query = document.query
    else:
        link = document.links[0]
        query = document.links[0].query
    heads = {(layer, head.head): head for layer, head in _heads_of(document)}
    head = heads[link.layer, link.head]
    no_shares: list[float | None] = [None] * len(document.queries)  # no word is tinted
    query_sentence = sentence(
        words(document.query_text, document.queries, no_shares, frozenset({query})), view
    )
    row = as_matrix(head.weights)[document.shown_queries.index(query)]
    tint = message("tint: the weight that the word gets")
    keys = shaded_sentence(document.key_text, document.keys, row, view, query=None, tint=tint)
    return stack(query_sentence, keys)
