"""The screen of topic "seq2seq" of `attn.explain/1`: the bottleneck of one vector, annotations, and
the search over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import Lines, remark, sentences, stack
from attncli.draw.numbers import bar, format_fixed, percent
from attncli.draw.safe import cut, safe
from attncli.draw.screen_header import count_phrase, header_lines
from attncli.draw.sentence import not_learned_note, sentence, shaded_sentence, words
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import table
from attncli.draw.token_names import key_names, quoted_token
from attncli.draw.view import View
from attncli.features.explain.document import Seq2seqTopic
from attncli.features.explain.softmax_screens import lead
from attncli.language import contextual, message, say, say_each
from attncli.mechanism.spec import plain_link, spoken_head

BAR = 20
"""Cells of a share's bar at most."""
HALF = 0.5
"""Below this share the bottleneck is told."""


def seq2seq_blocks(document: Seq2seqTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "seq2seq" as blocks: why one vector is too little, what it holds, the
    annotations in its place, and the search of each word."""
    text = plain_link(document.query_text, document.key_text)
    counts = (count_phrase(len(document.queries), "query"), count_phrase(len(document.keys), "key"))
    top = header_lines(
        cut(safe(text, ascii=view.ascii), view.width, ascii=view.ascii),
        document,
        view,
        counts=counts,
    )
    what = lead(
        "from one vector to a soft search",
        "An encoder–decoder without attention hands over a sentence as one vector, however long "
        "it is: a bottleneck. With attention the encoder keeps an annotation of each word, and "
        "the decoder searches them anew for every word that it says.",
        view,
        note=message("Bahdanau, Cho, Bengio 2014"),
    )
    return (
        top,
        what,
        _bottleneck_table(document, view),
        _annotations(document, view),
        _searches(document, view),
        _seq2seq_answer(document, view),
    )


def _bottleneck_table(document: Seq2seqTopic, view: View) -> Lines:
    """A table with a row for each length of a sentence: the share of its words that can be read back
    from one vector, and from annotations by a search."""
    room = max(min((view.width - 36) // 2, BAR), 0)  # cells of either bar, beside other columns
    rows = [
        [
            str(row.words),
            percent(row.vector),
            bar(row.vector, room, ascii=view.ascii),
            percent(row.search),
            bar(row.search, room, ascii=view.ascii),
        ]
        for row in document.bottleneck
    ]
    columns = [
        say(view, contextual("number of words", "words")),
        *say_each(view, "one vector", "soft search"),
    ]
    body = table(
        [columns[0], columns[1], "", columns[2], ""],
        rows,
        view,
        align=["right", "right", "left", "right", "left"],
        title="the bottleneck: words read back from a sentence",
        note=say(view, "vectors of width {width}", width=document.width),
    )
    method = say(
        view,
        "Nothing is learned in this: random words, each marked with its place, are added up to one "
        "vector; then each place is asked for, among {vocabulary} words. A row counts {reads} of them or"
        " more: with other words drawn, one vector's shares would be some points higher or lower. A"
        " trained encoder may pack better than a sum, but its vector is as wide for a hundred words"
        " as for ten.",
        reads=min(row.reads for row in document.bottleneck),
        vocabulary=document.vocabulary,
    )
    return stack(body, remark(method, view))


def _annotations(document: Seq2seqTopic, view: View) -> Lines:
    """The remark on how many numbers the decoder may read of this text: of one vector, and of an
    annotation for each word."""
    count = len(document.keys)
    return remark(
        say(
            view,
            "One vector for this text has {width} numbers; its annotations have {count} × {width} "
            "= {total}, and grow with it.",
            width=document.width,
            count=count,
            total=count * document.width,
        ),
        view,
        style="",
    )


def _searches(document: Seq2seqTopic, view: View) -> Lines:
    """The matrix of weights of every query (the decoder's words) on every annotation (the encoder's
    words)."""
    rows = [token.text for token in document.queries]
    keys = [token.text for token in document.keys]
    place = spoken_head(document.layer, document.head)
    note = message("{place} · rows: what is said, columns: what was read", place=place)
    return matrix(
        document.weights,
        rows,
        key_names(keys, document.weights),
        view,
        limits=(0.0, 1.0),
        title="the search: one row for each word that is said",
        note=note,
    )


def _seq2seq_answer(document: Seq2seqTopic, view: View) -> Lines:
    """The decoder's text with one query marked, the encoder's text tinted by that query's weights,
    and the answer in words. The query is that of the largest weight on a word."""
    keys = len(document.keys)
    # [query, key], without learned keys behind the tokens
    weights = as_matrix(document.weights)[:, :keys]
    is_word = np.array([not token.special for token in document.keys])
    on_words = np.where(is_word, weights, 0.0)
    query, key = (int(place) for place in np.unravel_index(int(on_words.argmax()), on_words.shape))
    no_shares: list[float | None] = [None] * len(document.queries)
    said = sentence(
        words(document.query_text, document.queries, no_shares, frozenset({query})), view
    )
    tint = message("tint: the weight that the word gets")
    read = shaded_sentence(
        document.key_text, document.keys, weights[query], view, query=None, tint=tint
    )
    texts = [
        say(
            view,
            "At {query} the search draws most on {key}: {share}.",
            query=quoted_token(document.queries, query, view),
            key=quoted_token(document.keys, key, view),
            share=percent(float(weights[query, key])),
        ),
        _context_sentence(document, view),
        _bottleneck_sentence(document, view),
        not_learned_note(document.model, view),
    ]
    return stack(said, read, sentences(texts, view))


def _bottleneck_sentence(document: Seq2seqTopic, view: View) -> str:
    """The sentence on how many random words can be read back, at the first length at which one
    vector gives back less than half of them, or at the longest."""
    rows = document.bottleneck
    row = next((row for row in rows if row.vector < HALF), None)
    template = message(
        "Apart from this text: of {words} random words added into one vector of width {width},"
        " {vector} can be read back, the first length tried where that is less than half; searched"
        " one by one, {search}; by guessing among {vocabulary:,} words, {chance}."
    )
    if row is None:
        row = rows[-1]
        template = message(
            "Apart from this text: of {words} random words added into one vector of width {width},"
            " {vector} can be read back, the longest length tried; searched one by one, {search}; by"
            " guessing among {vocabulary:,} words, {chance}."
        )
    return say(
        view,
        template,
        words=row.words,
        width=document.width,
        vector=percent(row.vector),
        search=percent(row.search),
        vocabulary=document.vocabulary,
        chance=percent(1 / document.vocabulary),
    )


def _context_sentence(document: Seq2seqTopic, view: View) -> str:
    """The sentence on how alike the context vectors of different queries are, or that they are the
    same; "" for one query."""
    if document.cosine is UNSET:
        return ""
    if len(document.keys) == 1:
        return say(
            view,
            "Every word that is said gets the same context vector: one annotation leaves nothing to "
            "choose from.",
        )
    cosine = format_fixed(document.cosine, 2)
    if cosine == format_fixed(1.0, 2):
        return say(
            view,
            "The context vectors of the words that are said are nearly the same here (mean cosine of "
            "two: {cosine}), as if there were one fixed vector.",
            cosine=cosine,
        )
    return say(
        view,
        "The search gives every word that is said a context vector of its own (mean cosine of two: "
        "{cosine}); one fixed vector would be the same for all (cosine 1).",
        cosine=cosine,
    )


def seq2seq_rows(document: Seq2seqTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then for each length of a sentence the
    shares of words that are read back."""
    yield ["words", "reads", "vector", "search"]
    for row in document.bottleneck:
        yield [row.words, row.reads, row.vector, row.search]
