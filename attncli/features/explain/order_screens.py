"""The topics "order" and "position": whether attention sees the order of tokens, and how positions enter it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import Lines, heading, remark, sentences, stack
from attncli.draw.numbers import format_fixed
from attncli.draw.safe import cells, label
from attncli.draw.screen_header import fact, header
from attncli.draw.sentence import not_learned_note, shaded_sentence
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import ledger, table, vectors
from attncli.draw.token_names import key_names, position_and_text, quoted_token
from attncli.draw.view import View
from attncli.language import contextual, message, plural, say, say_each

if TYPE_CHECKING:
    from attncli.features.explain.document import OrderRow, OrderTopic, PositionTopic, PositionWay


OUTPUTS = 8
"""Tokens whose outputs are shown in both orders."""


def order_answer(document: OrderTopic, view: View) -> Lines:
    """The sentence, tinted by how far each word's output moves without positions, or as the model ran; whether the
    order is seen: what holds of every way of telling places, or of the one that ran."""
    rows = [row for row in document.order_rows if row.order == document.order]
    plain = next((row for row in rows if (row.position, row.mask) == ("none", "none")), None)
    answer_sentences = []
    if plain is not None and plain.equal:
        answer_sentences.append(
            say(
                view,
                "Without a position encoding or a mask, permuting the tokens permutes the outputs "
                "and changes nothing else (largest difference {difference}, rounding).",
                difference=_size(plain.max_difference),
            )
        )
        changed_rows = [row for row in rows if not row.equal]
        if changed_rows:
            names = [convention(way_name(row), view) for row in changed_rows]
            sizes = [row.max_difference for row in changed_rows]
            row_names = say(view, contextual("between", ", ")).join(names)
            answer_sentences.append(
                say(
                    view,
                    "The order is seen with {ways}: an output then differs by {least} to {most}.",
                    ways=row_names,
                    least=_size(min(sizes)),
                    most=_size(max(sizes)),
                )
            )
        if any(row.order != document.order and not row.equal for row in document.order_rows):
            answer_sentences.append(
                say(
                    view,
                    "Read backwards, all distances |i − j| stay the same, and symmetric ALiBi knows "
                    "nothing else; another order it does see.",
                )
            )
    main_row = plain or document.order_rows[0]
    if not answer_sentences:
        known_indices = [index for index in range(len(main_row.per_token)) if not document.tokens[index].unknown] or [
            main_row.token
        ]
        most_moved = max(known_indices, key=lambda index: main_row.per_token[index])
        word, size = quoted_token(document.tokens, most_moved, view), _size(float(main_row.per_token[most_moved]))
        answer_sentences.append(
            say(view, "The order is not seen: the outputs only move with their tokens.")
            if main_row.equal
            else say(
                view,
                "The order is seen: the output of {word} changes by {size} where the tokens stand in the other order.",
                word=word,
                size=size,
            )
        )
    way = {"position": convention(main_row.position, view), "mask": convention(main_row.mask, view)}
    if main_row.equal:  # nothing moves, so nothing is tinted
        shares, tint = (
            None,
            remark(
                say(view, "no tint: with position {position} and mask {mask} no word's output changes", **way), view
            ),
        )
    else:
        shares, tint = np.divide(main_row.per_token, main_row.max_difference), Lines()
    tinted_sentence = shaded_sentence(
        document.text,
        document.tokens,
        shares,
        view,
        query=None,
        tint=message(
            "tint: how far the word's output moves (position {position}, mask {mask}), against the one that moves most",
            **way,
        ),
    )
    return stack((tinted_sentence, tint, sentences(answer_sentences, view)))


def way_name(row: OrderRow) -> str:
    """What one row ran with: its position encoding, or its mask where it has none."""
    return row.position if row.position != "none" else row.mask


COMMON_WORDS = {"none": message("none"), "causal": message("causal")}
"""Words among the names of position encodings and masks; the others are names."""


def convention(name: str, view: View) -> str:
    """A position encoding or a mask, as options spell it; what is a word, in the view's language."""
    return say(view, COMMON_WORDS[name]) if name in COMMON_WORDS else name


def _size(difference: float) -> str:
    """A difference of outputs in a sentence."""
    return f"{difference:.2g}" if difference < 1e-3 else f"{difference:.3g}"


def order_blocks(document: OrderTopic, view: View) -> Sequence[Lines]:
    """Both orders, then per position encoding and mask how much the outputs differ."""
    texts = [token.text for token in document.tokens]
    gap = " " if not all(len(text) == 1 for text in texts) else ""
    after = [texts[index] for index in document.order]
    lines = [
        fact(name, [label(gap.join(words), ascii=view.ascii)], view)
        for name, words in (
            (contextual("order of tokens", "from"), texts),
            (contextual("order of tokens", "to"), after),
        )
    ]
    columns = say_each(view, "position", "mask", "max |difference|", "largest at", "outputs")
    rows = [
        [
            convention(row.position, view) + ("" if row.order == document.order else " *"),
            convention(row.mask, view),
            f"{row.max_difference:.{max(view.precision - 1, 1)}e}",
            position_and_text(row.token, texts[row.token], 12, view),
            say(view, "equal, but for rounding" if row.equal else "differs"),
        ]
        for row in document.order_rows
    ]
    body = table(
        columns,
        rows,
        view,
        align=["left", "left", "right"],
        title="does attention see the order of the tokens?",
        note="the same tokens in another order; each token's output against its own",
    )
    other_orders = dict.fromkeys(tuple(row.order) for row in document.order_rows if row.order != document.order)
    order_notes = [
        remark(
            say(
                view,
                "* in another order: {text}",
                text=label(gap.join(texts[index] for index in order), ascii=view.ascii),
            ),
            view,
        )
        for order in other_orders
    ]
    sides = [_side_by_side(document, row, view) for row in _worth_seeing(document)]
    return (header(document, view), stack(lines), *sides, stack((body, *order_notes)), order_answer(document, view))


def _worth_seeing(document: OrderTopic) -> list[OrderRow]:
    """The rows whose outputs are shown: the first, without positions where it ran so, and the first that differs."""
    rows = [row for row in document.order_rows if row.order == document.order and row.outputs is not UNSET]
    return [*rows[:1], *[row for row in rows[1:] if not row.equal and rows[0].equal][:1]]


def _side_by_side(document: OrderTopic, row: OrderRow, view: View) -> Lines:
    """The first entries of each token's output in both orders."""
    assert row.outputs is not UNSET
    assert row.moved_outputs is not UNSET
    texts = [token.text for token in document.tokens]
    tokens_shown = range(len(texts) if view.full else min(len(texts), OUTPUTS))
    names = [position_and_text(index, texts[index], 12, view) for index in tokens_shown]
    before, after = as_matrix(row.outputs), as_matrix(row.moved_outputs)
    wide = view.precision + 7
    most = max((view.width - max(map(cells, names)) - 2) // (2 * wide), 1)
    entries = range(min(most, before.shape[1]))
    sides = [say(view, name) for name in (contextual("order of tokens", "from"), contextual("order of tokens", "to"))]
    columns = [say(view, "token"), *(f"{side} {index}" for side in sides for index in entries)]
    lines = [
        [
            name,
            *(
                format_fixed(float(values[index, entry]), view.precision)
                for values in (before, after)
                for entry in entries
            ),
        ]
        for index, name in zip(tokens_shown, names, strict=True)
    ]
    verdict = say(view, "equal, but for rounding" if row.equal else "differs")
    way = {"position": convention(row.position, view), "mask": convention(row.mask, view)}
    title = say(view, "outputs O in both orders, position {position}, mask {mask}: {verdict}", **way, verdict=verdict)
    more = (
        say(
            view,
            plural(
                "{count} more token; --full shows all",
                "{count} more tokens; --full shows all",
                count=len(texts) - len(tokens_shown),
            ),
        )
        if len(tokens_shown) < len(texts)
        else ""
    )
    note = (
        say(view, "the first entry of each token's output")
        if len(entries) == 1
        else say(view, "first {count} entries of each token's output", count=len(entries))
    )
    return stack((ledger(columns, lines, [], view, title=title, note=note), remark(more, view)))


def order_rows(document: OrderTopic) -> Iterable[list[object]]:
    """How far outputs move when the words are reordered, a row for each position and mask, for `--plain`."""
    yield ["position", "mask", "order", "max_difference", "token", "tolerance", "equal"]
    for row in document.order_rows:
        values = [getattr(row, name) for name in ("max_difference", "token", "tolerance", "equal")]
        yield [row.position, row.mask, " ".join(map(str, row.order)), *values]


# The screen of the topic "position": where positions enter, their numbers, and what they make of one query.

LEAST = 0.005
"""A way that moves no weight by this much is not said to move any."""
ENTRIES = {
    "nowhere": message("nowhere"),
    "input": message("the input"),
    "queries and keys": message("queries and keys"),
    "scores": message("the scores"),
}
"""Where positions enter, as a document calls it."""
TABLES = {
    "input": message("{position}: position vectors P"),
    "queries and keys": message("{position}: angles by which pairs of entries turn, in radians"),
    "scores": message("{position}: what is added to the scores"),
}
"""What the numbers of a way are, by where it enters."""


def position_blocks(document: PositionTopic, view: View) -> Sequence[Lines]:
    """What positions are for; each way's own numbers; the query's weights under each; which moves them most."""
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    ways = document.ways
    way_table = table(
        say_each(view, "position", "enters", "moves a weight by"),
        [
            [way.position, say(view, ENTRIES[way.enters]), "" if index == 0 else f"{way.moved:.{view.precision}f}"]
            for index, way in enumerate(ways)
        ],
        view,
        align=["left", "left", "right"],
        title="ways of telling positions",
    )
    weights = [way.weights for way in ways]
    rows = matrix(
        weights,
        [way.position for way in ways],
        key_names(texts, weights),
        view,
        limits=(0.0, 1.0),
        title=say(view, "weights of {query} under each", query=query),
        note="the same seeded vectors, only the positions differ",
    )
    lead = stack(
        (
            heading("how attention learns where words stand", "", view),
            remark(
                "By itself attention sees a set of words, not a row of them: attn explain order "
                "measures that. Positions can enter in three places: added to the input, turning "
                "queries and keys, or added to the scores.",
                view,
                style="",
            ),
        )
    )
    tables = [_numbers(way, texts, view) for way in ways if way.table is not UNSET]
    return (header(document, view), stack((lead, way_table)), *tables, rows, _position_answer(document, query, view))


def _numbers(way: PositionWay, texts: Sequence[str], view: View) -> Lines:
    """What a way brings in, as a table: vectors, angles, or what is added to the scores."""
    title, note = say(view, TABLES[way.enters], position=way.position), way.formula
    assert way.table is not UNSET, "only a way that brings something in has a table"
    if way.enters == "scores":
        return matrix(way.table, texts, key_names(texts, way.table), view, signed=True, title=title, note=note)
    return vectors(way.table, texts, view, title=title, note=note)


def _position_answer(document: PositionTopic, query: str, view: View) -> Lines:
    """The sentence, tinted by how far each word's weight moves where it moves most; which way that is; whether the
    weights are learned."""
    query_text = say(view, '"{text}"', text=query)
    other_ways = document.ways[1:]
    most_moving = max(other_ways, key=lambda way: way.moved, default=None)
    answer_sentences, tinted_sentence = [not_learned_note(document.model, view)], Lines()
    if most_moving is not None and most_moving.moved >= LEAST:
        answer_sentences.insert(
            0,
            say(
                view,
                "The position encoding {position} changes the weights of {query} most: one of them by {size}.",
                position=most_moving.position,
                query=query_text,
                size=f"{most_moving.moved:.2f}",
            ),
        )
        differences = np.abs(np.nan_to_num(most_moving.weights) - np.nan_to_num(document.ways[0].weights))
        tinted_sentence = shaded_sentence(
            document.text,
            document.tokens,
            differences,
            view,
            query=document.query,
            tint=message("tint: by how much the word's weight differs"),
        )
    elif other_ways:
        answer_sentences.insert(
            0, say(view, "No position encoding moves a weight of {query} by 0.005 or more.", query=query_text)
        )
    return stack((tinted_sentence, sentences(answer_sentences, view)))


def position_rows(document: PositionTopic) -> Iterable[list[object]]:
    """Each way's weights, key by key, for `--plain`."""
    yield ["position", "enters", "key", "weight", "moved"]
    for way in document.ways:
        for key, weight in enumerate(way.weights):
            yield [way.position, way.enters, key, float(weight), way.moved]
