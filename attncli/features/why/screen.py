"""The screen of `attn.why/1`: why a head looks there, both sides ranked, the pairs, the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import UNSET

from attncli.draw.columns import bar_column, column_table, text_column
from attncli.draw.command_lines import command_about, command_lines, options_note
from attncli.draw.lines import Lines, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import (
    format_period,
    format_small_signed,
    percent,
    percent_below,
    writer,
)
from attncli.draw.safe import spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import LEAST, not_learned_note, sentence, words
from attncli.draw.tables import table
from attncli.draw.token_names import (
    PieceRow,
    capitalize,
    claim_link,
    quote_text,
    quoted_ends,
    quoted_row,
    quoted_token,
    resting_key,
    short_token,
    token_reference,
)
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.effect_answer import grids
from attncli.features.why.document import (
    HALF,
    earlier_heads,
    is_of_source,
    part_name,
    part_title,
    ranked_parts,
    source_of,
    support,
)
from attncli.features.why.pair_reason_screen import (
    SPREAD_NAMES,
    pair_reason_sentences,
    spread_cells,
    spread_columns,
)
from attncli.language import contextual, message, plural, say
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_name

if TYPE_CHECKING:
    from attncli.features.why.document import WhyDocument, WhyPart


LONGEST = 24
"""Cells of the longest bar."""
ROWS = 5
"""Parts of each side that are shown unless more are asked for."""
NONE = 1e-4
"""An advantage below this is none."""
NEARLY_ALL = 0.95
"""A weight from which on the row expects little else than this key."""
WORD_CELLS = 16
"""Cells of a word beside a part."""
SMALL = (0.1, 0.01, 0.001)
"""An advantage below each of these gets one digit more."""
AGAINST = 0.1
"""A part that takes away at least this share of what speaks for a link is told."""


def why_rows(document: WhyDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each part of the score;
    or for each group of vector entries, where it is split by these."""
    if document.by in ("frequency", "dimension"):
        yield ("dimensions", "period", "contribution", "weight_without")
        for row in document.dimensions:
            yield (
                " ".join(map(str, row.dimensions)),
                row.period,
                row.contribution,
                row.weight_without,
            )
        return
    yield (
        "kind",
        "layer",
        "attention",
        "head",
        "place",
        "source",
        "side",
        "query_side",
        "key_side",
        "without_query",
        "without_key",
        "without_all_keys",
        *(SPREAD_NAMES if document.over_pairs is not UNSET else ()),
    )
    for part in document.parts:
        without = part.weight_without
        yield (
            part.kind,
            part.layer,
            part.attention,
            part.head,
            part.place,
            part.source,
            part.side,
            part.query_side,
            part.key_side,
            without.query,
            without.key,
            without.all_keys,
            *(spread_cells(part) if document.over_pairs is not UNSET else ()),
        )


def _part_text(part: WhyPart, document: WhyDocument, view: View) -> str:
    """The name of a part on the screen, with the word whose value a head carried: L5H3 ← Paris."""
    name = say(view, part_title(part, document))
    source = source_of(part, document)
    if source is None:
        return name
    token, occurrence = source
    text = short_token(token, WORD_CELLS, view)
    return f"{name} {spell('←', ascii=view.ascii)} {text}{occurrence}"


def _end_words(document: WhyDocument, view: View) -> tuple[str, str]:
    """The link's query and key as quoted words, with their positions where they, or the key
    compared with, are the same word. Over pairs of texts, whose words differ, they are named as in
    the command, or "the last token" and "the answer"."""
    link = document.link
    if document.over_pairs is UNSET:
        return quoted_ends(document.tokens, document.keys, link, view)
    query = say(view, "the last token")
    if document.over_pairs.query is not None:
        query = quote_text(document.over_pairs.query, view)
    key = say(view, "the answer")
    if document.over_pairs.key is not None:
        key = quote_text(document.over_pairs.key, view)
    return query, key


def _heads_grid(document: WhyDocument, view: View) -> Lines:
    """Layer × head grids of what each earlier head adds to the advantage, the link's score above
    its row's mean or another key's."""
    heads = earlier_heads(document)
    if document.link.attention == "self":
        return grids(
            heads,
            view,
            say(view, "what earlier heads add to the advantage, both sides"),
            signed=True,
        )
    query, key = _end_words(document, view)
    asks = grids(
        heads,
        view,
        say(view, "what earlier heads of {query} add to the advantage", query=query),
        signed=True,
    )
    # `grids` draws what stands under "self" and "cross"; the encoder's own attention is a "self"
    title = say(view, "what the encoder's heads of {key} add to the advantage", key=key)
    return stack_spaced(asks, grids({"self": heads.get("encoder", [])}, view, title, signed=True))


def _digits(document: WhyDocument, view: View) -> int:
    """How many decimals contributions have: the view's, at least 2, and up to 3 more where the
    score is little above its row's mean."""
    size = abs(document.total)
    # none for 0.1 and more, one for 0.01 and more, …
    more = len(SMALL)
    for index, least in enumerate(SMALL):
        if size >= least or size == 0:
            more = index
            break
    return max(view.precision, 2) + more


def _format_number(value: float, digits: int) -> str:
    """Write a contribution with `digits` digits after the point; one that is very large, or too small
    to show, in scientific notation.
    """
    return writer([value], digits)(value)


def _count_shown(view: View, count: int) -> int:
    """How many of `count` rows a table shows: all in a full view, else as many as `--top` asks for,
    or `ROWS` where nobody asked."""
    if view.full:
        return count
    most = view.top
    if view.few:
        most = ROWS
    return min(most, count)


def _query_side(document: WhyDocument, view: View) -> Lines:
    """The table of the query's parts that add most to the link's score."""
    return _side_table(document, view, "query")


def _key_side(document: WhyDocument, view: View) -> Lines:
    """The table of the key's parts that add most to the link's score."""
    return _side_table(document, view, "key")


def why_sides(document: WhyDocument, view: View) -> Lines:
    """The parts of the query's side and of the key's, ranked, or the vector entries where the score
    is split by them."""
    return stack_spaced(
        _query_side(document, view), _key_side(document, view), _dimensions_table(document, view)
    )


def _side_table(document: WhyDocument, view: View, side: Literal["query", "key"]) -> Lines:
    """A table of the parts of one side that add most to the link's score, the others in one row, and
    the total; empty where the score is split by vector entries, not by parts."""
    if document.by in ("frequency", "dimension"):
        return Lines()

    # what is shown: parts with what they add and the link's weight without each
    ranked = ranked_parts(document, side)
    shown = ranked[: _count_shown(view, len(ranked))]
    rest = ranked[len(shown) :]
    query, key = _end_words(document, view)
    if side == "query":
        title = say(view, "what asks: parts of {query}", query=query)
    else:
        title = say(view, "what answers: parts of {key}", key=key)
    without = [
        part.weight_without.query if side == "query" else part.weight_without.key
        for part, _ in shown
    ]
    numbers = [value for _, value in shown]
    names = [_part_text(part, document, view) for part, _ in shown]
    # the rows of the others and of the total follow; they have no weight without them
    if rest:
        numbers.append(sum(value for _, value in rest))
        names.append(say(view, plural("{count:,} other", "{count:,} others", count=len(rest))))

    # the columns, the last row being the total
    names.append(say(view, contextual("column", "total")))
    # weights have two digits at least, as one would tell too little of them
    write = writer(numbers, _digits(document, view))
    total = sum(value for _, value in ranked)
    columns = [
        names,
        [write(value) for value in (*numbers, total)],
        ["-" if value is None else f"{value:.{max(view.precision, 2)}f}" for value in without],
    ]
    titles = [
        "",
        say(view, contextual("column", "adds")),
        say(view, contextual("column", "weight without")),
    ]
    if document.over_pairs is not UNSET:
        titles[2] = say(view, contextual("column", "weight interchanged"))
        titles.append(say(view, "95% interval"))
        titles.append(say(view, "same sign"))
        columns += spread_columns([part for part, _ in shown], side)
    return _sum_table(titles, columns, [value for _, value in shown], view, title=title)


def _sum_table(
    titles: Sequence[str],
    columns: Sequence[Sequence[str]],
    values: Sequence[float],
    view: View,
    *,
    title: str,
) -> Lines:
    """A table whose last row is the sum of those above, in bold.

    titles, columns: the title of each column and its texts; the first has the names of the rows.
    values: a bar is drawn behind each of the first rows, one for each value.
    title: of the table.
    """
    table_columns = [text_column(titles[0], columns[0], align="left")]
    table_columns += [
        text_column(name, texts) for name, texts in zip(titles[1:], columns[1:], strict=True)
    ]
    table_columns.append(bar_column(values, LONGEST))
    rows = range(len(columns[0]))
    return column_table(table_columns, rows, view, title=title, strong=rows[-1])


def _pairs_table(document: WhyDocument, view: View) -> Lines:
    """A table of the pairs that add most to the score, each a part of the query with a part of the
    key; empty where the score is split by vector entries."""
    if document.by in ("frequency", "dimension") or not document.pairs:
        return Lines()
    shown = document.pairs[: _count_shown(view, len(document.pairs))]
    write = writer([pair.contribution for pair in shown], _digits(document, view) + 1)
    rows = [
        [
            _part_text(document.parts[pair.query_part], document, view),
            _part_text(document.parts[pair.key_part], document, view),
            write(pair.contribution),
        ]
        for pair in shown
    ]
    query, key = _end_words(document, view)
    titles = [say(view, "of {word}", word=query), say(view, "of {word}", word=key)]
    title = say(
        view,
        plural(
            "the strongest of {count:,} pair",
            "the strongest of {count:,} pairs",
            count=document.pair_count,
        ),
    )
    adds = say(view, contextual("column", "adds"))
    return table([*titles, adds], rows, view, align=["left", "left", "right"], title=title)


def _dimensions_table(document: WhyDocument, view: View) -> Lines:
    """A table of the entries of queries and keys that add most, with the period of each rotated
    pair, the others in one row, and the total; empty where the score is not split by entries."""
    rows = document.dimensions
    if not rows:
        return Lines()

    # the entries that add most, in their own order; the others as one sum
    order = sorted(range(len(rows)), key=lambda index: -abs(rows[index].contribution))
    if view.full:
        count = len(rows)
    else:
        count = min(view.top, len(rows))
    shown = [rows[index] for index in sorted(order[:count])]
    rest = [rows[index].contribution for index in order[count:]]
    numbers = [row.contribution for row in shown]
    names = [_dimension_name(row.dimensions, view) for row in shown]
    if rest:
        numbers.append(sum(rest))
        names.append(say(view, plural("{count:,} other", "{count:,} others", count=len(rest))))
    # a bias of the score by distance is no product of entries
    if any(part.kind in ("relative", "score_bias") for part in document.parts):
        numbers.append(document.total - sum(row.contribution for row in rows))
        names.append(say(view, "what the position adds"))
    names.append(say(view, contextual("column", "total")))

    write = writer(numbers, _digits(document, view))
    periods = ["-" if row.period is None else format_period(row.period) for row in shown]
    without = [f"{row.weight_without:.{max(view.precision, 2)}f}" for row in shown]
    columns = [
        names,
        periods,
        [write(value) for value in (*numbers, document.total)],
        without,
    ]
    titles = [
        say(view, contextual("column", "entries")),
        say(view, contextual("column", "period in tokens")),
        say(view, contextual("column", "adds")),
        say(view, contextual("column", "weight without")),
    ]
    # single entries have no period
    if document.by == "dimension":
        del columns[1], titles[1]
    if document.by == "frequency":
        title = say(view, "by pairs of entries that are rotated together, the fastest first")
    else:
        title = say(view, "by entries of q and k")
    contributions = [row.contribution for row in shown]
    return _sum_table(titles, columns, contributions, view, title=title)


def _dimension_name(entries: Sequence[int], view: View) -> str:
    """The name, in tables, of a group of entries of q and k: one or two entries by number; of the
    larger group of those that RoPE does not rotate, how many they are."""
    if len(entries) > 2:
        return say(view, "{count} not rotated", count=len(entries))
    return ", ".join(map(str, entries))


def _writes_table(document: WhyDocument, view: View) -> Lines:
    """A table of what the head writes into the query's vector, a row for each token whose value it
    carried, those of the largest share first; empty without --writes."""
    if document.writes is UNSET:
        return Lines()
    writes = document.writes
    ranked = sorted(writes.sources, key=lambda row: -abs(row.share))
    shown = ranked[: _count_shown(view, len(ranked))]

    # words that stand more than once get their position
    texts = [key.text.strip() for key in document.keys]
    names = []
    for row in shown:
        if row.source >= len(texts):
            names.append(say(view, "learned key"))
            continue
        place = ""
        if texts.count(texts[row.source]) > 1:
            place = f" #{row.source}"
        names.append(short_token(document.keys[row.source], WORD_CELLS, view) + place)

    norms = [row.norm for row in shown]
    write_norm = writer(norms, _digits(document, view))
    columns = [
        names,
        [f"{row.weight:.{max(view.precision, 2)}f}" for row in shown],
        [write_norm(norm) for norm in norms],
        [percent(row.share) for row in shown],
    ]
    titles = [
        say(view, contextual("column", "from")),
        say(view, contextual("column", "weight")),
        say(view, contextual("column", "norm")),
        say(view, contextual("column", "share")),
    ]
    if writes.target is not None:
        # with a target each row has a logit
        logits = [row.logit or 0.0 for row in shown]
        write = writer(logits, _digits(document, view))
        columns.append([write(value) for value in logits])
        titles.append(
            say(view, "to the logit of {word}", word=quote_text(writes.target.text, view))
        )
    query, _ = _end_words(document, view)
    return table(
        titles,
        [list(row) for row in zip(*columns, strict=True)],
        view,
        align=["left", *["right"] * (len(columns) - 1)],
        title=say(view, "what the head writes for {query}", query=query),
    )


def why_answer(document: WhyDocument, view: View) -> Lines:
    """The text with each word tinted by how far its score stands above the row's weighted mean, and
    the answer in sentences; over pairs the sentences alone, as each has its own text."""
    if document.over_pairs is not UNSET:
        return sentences(why_sentences(document, view), view)

    # how strongly each key is tinted, 0 to 1; learned keys stand after the words
    keys = document.keys
    shares = [0.0] * len(keys)
    for row in document.row:
        if row.key < len(keys):
            shares[row.key] = max(row.advantage, 0.0)
    if _is_saturated(document):  # what advantages are left is rounding: no word is tinted
        largest = 0.0
    else:
        largest = max(shares, default=0.0)
    shares = [share / largest if largest > 0 else 0.0 for share in shares]

    # the text with the query marked; a link to another text shows both
    query = frozenset({document.link.query})
    if document.link.attention == "self":
        blocks = [sentence(words(document.text, document.tokens, shares, query), view)]
    else:
        source_text = None
        if isinstance(document.source_text, str):
            source_text = document.source_text
        no_shares = [None] * len(document.tokens)  # no word of it is tinted
        blocks = [
            sentence(words(document.text, document.tokens, no_shares, query), view),
            sentence(words(source_text, keys, shares, frozenset()), view),
        ]
    if any(share >= LEAST for share in shares):
        blocks.append(
            remark("tint: how far above what its row expects the score of each word is", view)
        )
    matters = command_lines(
        _next_command(document, view), view, before=say(view, "Does it matter?")
    )
    return stack(
        *blocks, sentences(why_sentences(document, view), view), matters, options_note(view)
    )


def why_sentences(document: WhyDocument, view: View) -> list[str]:
    """The answer in sentences: where the head looks, which parts are the reason, how exactly they
    add up, and what limits the split."""
    texts = [
        *pair_reason_sentences(document.over_pairs, view),
        _look_sentence(document, view),
        _resting_sentence(document, view),
        *_reasons(document, view),
        _exactness_sentence(document, view),
        *_writes_sentences(document, view),
    ]
    texts.append(_versus_note(document, view))
    if document.softcap is not None:
        texts.append(
            say(
                view,
                "A soft cap follows, which no parts explain: they explain the score before it.",
            )
        )
    if document.by_layer:
        texts.append(say(view, "To save memory, the heads of each layer are one part here."))
    texts.append(not_learned_note(document.model, view))
    return [capitalize(text) for text in texts if text]


def _versus_note(document: WhyDocument, view: View) -> str:
    """The note that a comparison with another key (--versus) says more, for a row that has nearly all
    of its weight on the link's key, so that its mean is nearly that key's score; "" for other rows,
    and where the key is compared with another already.
    """
    if document.centred != "row" or len(document.row) == 1:
        return ""
    if _is_saturated(document):
        return say(view, "--versus compares it with another key.")
    if document.weight < NEARLY_ALL:
        return ""
    return say(
        view,
        "With a weight of {weight} the row expects little but this key, so contributions are small;"
        " --versus compares with another one.",
        weight=f"{document.weight:.2f}",
    )


def _resting_sentence(document: WhyDocument, view: View) -> str:
    """The sentence that the key of the link is a token on which heads put weight when they look for
    nothing, such as the first token; "" for other keys, and over pairs of texts, where each has a
    key of its own.
    """
    key = document.link.key
    is_learned_key = key >= len(document.keys)  # it stands behind those of the tokens
    if document.over_pairs is not UNSET or is_learned_key:
        return ""
    is_resting = resting_keys(document.keys, document.model.source)[key]
    if not is_resting:
        return ""
    return resting_key(document.keys, key, view)  # the sentence


def _writes_sentences(document: WhyDocument, view: View) -> list[str]:
    """Sentences on what the head writes: from which token most of it comes, and what that adds to
    the target's logit. Empty if this was not asked for."""
    if document.writes is UNSET or not document.writes.sources:
        return []
    writes = document.writes
    most = max(writes.sources, key=lambda row: row.share)
    query, _ = _end_words(document, view)
    if most.source < len(document.keys):
        source = quoted_token(document.keys, most.source, view)
    else:
        source = say(view, "a learned key")
    texts = [
        say(
            view,
            "Of what the head writes for {query}, {share} comes from {source}.",
            query=query,
            share=percent(most.share),
            source=source,
        )
    ]
    if writes.target is not None and writes.logit is not None:
        word = quote_text(writes.target.text, view)
        amount = format_small_signed(writes.logit, 2)
        if writes.versus is UNSET:
            template = message("It adds {amount} to the logit of {word}.")
            texts.append(say(view, template, amount=amount, word=word))
        else:
            versus = quote_text(writes.versus.text, view)
            template = message("It adds {amount} to the logit of {word} less that of {versus}.")
            texts.append(say(view, template, amount=amount, word=word, versus=versus))
    return texts


def _next_command(document: WhyDocument, view: View) -> list[str]:
    """The words of the `attn ablate` command that tests whether the link matters."""
    link = document.link
    sides = ((document.tokens, link.query), (document.keys, link.key))
    ends = [token_reference(tokens, index, view) for tokens, index in sides]
    options = ["--from", ends[0], "--to", ends[1], "--head", head_name(link.layer, link.head)]
    if link.attention == "cross":
        options.append("--cross")
    return command_about(document, "ablate", options, view)


def _look_sentence(document: WhyDocument, view: View) -> str:
    """The sentence that the head looks from query to key, with the weight and how far the score
    stands above the row's weighted mean or the other key's."""
    query, key = _end_words(document, view)
    link = document.link
    key = claim_link(key, link, view)
    places = {
        "query": query,
        "key": key,
        "weight": f"{document.weight:.2f}",
        "layer": link.layer,
        "head": link.head,
    }
    if len(document.row) == 1:
        alone = message(
            "In layer {layer} head {head} {query} sees nothing but {key}: there is nothing to"
            " explain."
        )
        return say(view, alone, **places)
    places["advantage"] = _format_number(abs(document.total), _digits(document, view))
    if not isinstance(document.centred, str):
        than = quoted_token(document.keys, document.centred.key, view)
        places |= {"other": than, "other_weight": f"{document.centred.weight:.2f}"}
        if document.total < 0:
            template = message(
                "In layer {layer} head {head} {query} looks less at {key} ({weight}) than at"
                " {other} ({other_weight}): the score is {advantage} lower. --to and --versus the"
                " other way round tell why."
            )
        else:
            template = message(
                "In layer {layer} head {head} {query} looks at {key} ({weight}) rather than at"
                " {other} ({other_weight}): the score is {advantage} higher."
            )
    elif _is_saturated(document):
        template = message(
            "In layer {layer} head {head} {query} looks at {key} alone ({weight}): its row expects"
            " nothing else, so the score has no advantage to be split."
        )
    # an advantage between −`NONE` and `NONE` is none
    elif document.total <= -NONE:
        template = message(
            "In layer {layer} head {head} {query} looks at {key} ({weight}) less than its row"
            " expects: its score is {advantage} below that."
        )
    elif document.total < NONE:
        places["advantage"] = _format_number(document.total, _digits(document, view))
        template = message(
            "In layer {layer} head {head} {query} looks at {key} ({weight}) no more than its row"
            " expects: the advantage of its score is {advantage}."
        )
    else:
        template = message(
            "In layer {layer} head {head} {query} looks at {key} ({weight}): its score is"
            " {advantage} above what the row expects."
        )
    return say(view, template, **places)


def _is_saturated(document: WhyDocument) -> bool:
    """Whether the link's key has the whole weight of its row: the row's weighted mean is then that
    key's own score, so that there is no advantage to split.
    """
    has_all = document.weight > 1 - NONE and abs(document.total) < NONE
    return has_all and document.over_pairs is UNSET and len(document.row) > 1


def _reasons(document: WhyDocument, view: View) -> list[str]:
    """Sentences that name the largest part of each side where it makes half or more of what speaks
    for the link there; for sides without one, over how many parts the reason is spread. [] where
    nothing speaks for the link."""
    if len(document.row) == 1 or document.total < NONE:
        return []
    if document.by in ("frequency", "dimension"):
        return [_dimension_reason(document, view)]
    query, key = _end_words(document, view)
    sides: tuple[tuple[Literal["query", "key"], str], ...] = (("query", query), ("key", key))
    said = [text for side, word in sides for text in _side_reasons(document, side, word, view)]
    return [*said, *_median_without(document, view)]


def _median_without(document: WhyDocument, view: View) -> Iterator[str]:
    """Yield the weight without the middle one of all parts of either side, for comparison with that
    without the largest; nothing over pairs, where parts are interchanged and not taken out."""
    if document.over_pairs is not UNSET:
        return
    without = [part.weight_without for part in document.parts]
    of_query = [weights.query for weights in without if weights.query is not None]
    of_key = [weights.key for weights in without if weights.key is not None]
    if len(of_query) < LEAST_PARTS or len(of_key) < LEAST_PARTS:
        return
    yield say(
        view,
        "For comparison: over all {count} parts, each taken out alone, the median weight is {query}"
        " on the side that asks and {key} on the side that answers.",
        count=len(of_query),
        query=f"{np.median(of_query):.2f}",
        key=f"{np.median(of_key):.2f}",
    )


LEAST_PARTS = 5
"""Parts of a side from which on their median is told."""


def _side_reasons(
    document: WhyDocument, side: Literal["query", "key"], word: str, view: View
) -> Iterator[str]:
    """Yield sentences on one side of a link: the main reason for it, or that there are many, and
    what speaks most against it.

    word: the link's word on that side, quoted.
    """
    # from the part that adds most to the one that takes away most
    parts = sorted(ranked_parts(document, side), key=lambda ranked: -ranked[1])
    backing = support(value for _, value in parts)
    if not backing.total:
        yield say(view, NOTHING_SPEAKS[side])
        return
    first, value = parts[0]
    if side == "query":
        without = first.weight_without.query
    else:
        without = first.weight_without.key
    digits = _digits(document, view)
    places = {
        "reason": reason(first, document, word, view),
        "value": _format_number(value, digits),
        "total": _format_number(backing.total, digits),
        "share": percent_below(backing.share, HALF),
        "count": backing.half,
        "without": "-" if without is None else f"{without:.2f}",
    }
    is_over_pairs = document.over_pairs is not UNSET
    is_main = backing.share >= HALF
    if is_main and is_over_pairs:
        templates = PAIR_SIDE_REASONS
    elif is_main:
        templates = SIDE_REASONS
    elif is_over_pairs:
        templates = PAIR_SPREAD_REASONS
    else:
        templates = SPREAD_REASONS
    yield say(view, templates[side], **places)

    # what takes away most is named where it is large, above all if it is the largest part at all
    against, lowest = parts[-1]
    if lowest <= -AGAINST * backing.total or -lowest > value:
        yield say(
            view,
            "Most against it speaks {reason}: {value}.",
            reason=reason(against, document, word, view),
            value=_format_number(lowest, digits),
        )


SIDE_REASONS = {
    "query": message(
        "What asks is above all {reason}: {value} of the {total} that speak for the link; without"
        " it the weight is {without}."
    ),
    "key": message(
        "What answers is above all {reason}: {value} of the {total} that speak for the link;"
        " without it the weight is {without}."
    ),
}
"""What is said of the largest part of each side where it is the reason."""
SPREAD_REASONS = {
    "query": message(
        "On the side that asks the reason is spread: {count} parts make half of the {total} that"
        " speak for the link. The largest, {reason}, makes {share}; without it the weight is"
        " {without}."
    ),
    "key": message(
        "On the side that answers the reason is spread: {count} parts make half of the {total} that"
        " speak for the link. The largest, {reason}, makes {share}; without it the weight is"
        " {without}."
    ),
}
"""What is said of a side of which no part makes half."""
PAIR_SIDE_REASONS = {
    "query": message(
        "What asks is above all {reason}: {value} of the {total} that speak for the link; with that"
        " as in the corrupt texts the weight is {without}."
    ),
    "key": message(
        "What answers is above all {reason}: {value} of the {total} that speak for the link; with"
        " that as in the corrupt texts the weight is {without}."
    ),
}
"""The same over pairs, where weights are interchanged."""
PAIR_SPREAD_REASONS = {
    "query": message(
        "On the side that asks the reason is spread: {count} parts make half of the {total} that"
        " speak for the link. The largest, {reason}, makes {share}; with that as in the corrupt"
        " texts the weight is {without}."
    ),
    "key": message(
        "On the side that answers the reason is spread: {count} parts make half of the {total} that"
        " speak for the link. The largest, {reason}, makes {share}; with that as in the corrupt"
        " texts the weight is {without}."
    ),
}
"""The same of a side of which no part makes half."""
NOTHING_SPEAKS = {
    "query": message("On the side that asks nothing speaks for the link."),
    "key": message("On the side that answers nothing speaks for the link."),
}
"""What is said of a side whose parts all take away."""


def _dimension_reason(document: WhyDocument, view: View) -> str:
    """A sentence on the vector entries that add most where they make half or more of what speaks for
    the link; else that the reason is spread."""
    backing = support(row.contribution for row in document.dimensions)
    first = max(document.dimensions, key=lambda row: row.contribution)
    digits = _digits(document, view)
    places = {
        "entries": _dimension_name(first.dimensions, view),
        "amount": message(
            "{value} of the {total} that speak for the link",
            value=_format_number(first.contribution, digits),
            total=_format_number(backing.total, digits),
        ),
        "without": f"{first.weight_without:.2f}",
        "period": "" if first.period is None else format_period(first.period),
    }
    if backing.share < HALF:
        if document.by == "frequency":
            spread = message(
                "The reason is spread: {count} pairs of entries make half of the {total} that speak for"
                " the link."
            )
        else:
            spread = message(
                "The reason is spread: {count} entries of q and k make half of the {total} that speak"
                " for the link."
            )
        total = _format_number(backing.total, digits)
        return say(view, spread, count=backing.half, total=total)
    if document.by == "dimension":
        template = message(
            "Above all it is entry {entries} of q and k: {amount}; without it the weight is"
            " {without}."
        )
    elif first.period is None:
        template = message(
            "Above all it is the entries that do not turn: {amount}; without them the weight is"
            " {without}."
        )
    else:
        template = message(
            "Above all it is the entries {entries}, which turn once in {period} tokens: {amount};"
            " without them the weight is {without}."
        )
    return say(view, template, **places)


def reason(part: WhyPart, document: WhyDocument, word: str, view: View) -> str:
    """The phrase by which sentences call a part of a word's vector, such as "what layer 5 head 11
    brought to 'it'"; a part that the encoder wrote is marked as such.

    word: the link's word on that side, quoted.
    """
    text = _reason_text(part, document, word, view)
    if is_of_source(part, document):
        return say(view, "{reason} (in the encoder)", reason=text)
    return text


PART_REASONS = {
    "token": message("the word {word} itself"),
    "position": message("where {word} stands"),
    "type": message("the token type of {word}"),
    "head": message("what layer {layer} head {head} brought to {word}"),
    "heads": message("what the heads of layer {layer} brought to {word}"),
    "feed_forward": message("what layer {layer}'s feed-forward made of {word}"),
    "convolution": message("what layer {layer}'s convolution made of {word}"),
    "mixer": message("what layer {layer} mixed into {word} without attention"),
    "relative": message("the distance between the two words"),
    "score_bias": message("the distance between the two words"),
    "states": message("the state {word}"),
}
"""What a part of a word is called in a sentence, by its kind."""


def _reason_text(part: WhyPart, document: WhyDocument, word: str, view: View) -> str:
    """The phrase by which sentences call a part of a word's vector, by the kind of the part, such as
    "what layer 5 head 11 brought to 'it'"; of a head that carried the value of one word, with that
    word.

    word: the link's word on that side, quoted.
    """
    places = {"layer": part.layer, "head": part.head, "word": word, "part": part_name(part)}
    template = PART_REASONS.get(part.kind, message("what is the same for every word ({part})"))
    # a piece of a word is not called "the word"
    if part.kind == "token" and _is_piece(word, document, view):
        template = message("{word} itself")
    if part.kind == "head" and (source := source_of(part, document)):
        # the place is "" for a word that stands once
        token, place = source
        name = quoted_row(token, view)
        if place:
            name = say(view, "{name} ({place})", name=name, place=token.index)
        template = message("what layer {layer} head {head} brought to {word} from {source}")
        places = places | {"source": name}
    elif part.kind == "head" and part.attention == "cross":
        template = message("what layer {layer} cross head {head} brought to {word}")
    return say(view, template, **places)


def _is_piece(word: str, document: WhyDocument, view: View) -> bool:
    """Whether `word`, the quoted name of one end of the link, names a token that is only a piece of a
    word."""
    link = document.link
    # a learned key, which stands after the tokens, gives an empty slice
    ends = [document.tokens[link.query], *document.keys[link.key : link.key + 1]]
    return any(isinstance(end, PieceRow) and quoted_row(end, view) in word for end in ends)


def _exactness_sentence(document: WhyDocument, view: View) -> str:
    """The sentence on how many parts add up to the score, and by how much their sum differs from it,
    which is rounding.
    """
    difference = "0"
    if document.difference:
        difference = f"{abs(document.difference):.0e}"
    return say(
        view,
        plural(
            "{count:,} part adds up to the score {score} (difference {difference}).",
            "{count:,} parts add up to the score {score} (difference {difference}).",
            count=len(document.parts),
            score=_format_number(document.score, 4),
            difference=difference,
        ),
    )


def _has_advantage(document: WhyDocument, view: View) -> bool:
    """Whether the link's score stands apart from its row's mean, so that there is something for parts
    to add to."""
    return not _is_saturated(document)


def _shows_pairs(document: WhyDocument, view: View) -> bool:
    """Whether the table of pairs is shown: there is an advantage, and no table of what the head
    writes (`--writes`)."""
    return document.writes is UNSET and _has_advantage(document, view)


WHY_PARTS: Parts[WhyDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("grid", _heads_grid, _has_advantage),
    ScreenPart("query", _query_side, _has_advantage),
    ScreenPart("key", _key_side, _has_advantage),
    ScreenPart("pairs", _pairs_table, _shows_pairs),
    ScreenPart("dimensions", _dimensions_table, _has_advantage),
    ScreenPart("writes", _writes_table),
    ScreenPart("answer", why_answer),
)
