"""The screen of the topic "position": where positions enter, their numbers, and what they make of one query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import heading, remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.matrix import matrix
from attncli.render.phrases import say, say_each
from attncli.render.safe import label
from attncli.render.screens.header import header
from attncli.render.screens.sentence_answer import not_learned_note
from attncli.render.screens.shading import shaded_sentence
from attncli.render.tables import table
from attncli.render.token_names import key_names
from attncli.render.vectors import vectors
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.layer_topics import PositionTopic, PositionWay


LEAST = 0.005
"""A way that moves no weight by this much is not said to move any."""


def position_blocks(document: PositionTopic, view: View) -> Sequence[Lines]:
    """What positions are for; each way's own numbers; the query's weights under each; which moves them most."""
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    ways = document.ways
    way_table = table(
        say_each(view, "position", "way", "enters", "moved"),
        [
            [
                way.position,
                say(view, f"position.enters.{way.enters}"),
                "" if index == 0 else f"{way.moved:.{view.precision}f}",
            ]
            for index, way in enumerate(ways)
        ],
        view,
        align=["left", "left", "right"],
        title=say(view, "position.ways"),
    )
    weights = [way.weights for way in ways]
    rows = matrix(
        weights,
        [way.position for way in ways],
        key_names(texts, weights),
        view,
        limits=(0.0, 1.0),
        title=say(view, "position.weights", query),
        note=say(view, "position.weights.note"),
    )
    lead = stack((heading(say(view, "position.title"), "", view), remark(say(view, "position.lead"), view, style="")))
    tables = [_numbers(way, texts, view) for way in ways if way.table is not UNSET]
    return (header(document, view), stack((lead, way_table)), *tables, rows, _position_answer(document, query, view))


def _numbers(way: PositionWay, texts: Sequence[str], view: View) -> Lines:
    """What a way brings in, as a table: vectors, angles, or what is added to the scores."""
    title, note = say(view, f"position.table.{way.enters}", way.position), way.formula
    assert way.table is not UNSET, "only a way that brings something in has a table"
    if way.enters == "scores":
        return matrix(way.table, texts, key_names(texts, way.table), view, signed=True, title=title, note=note)
    return vectors(way.table, texts, view, title=title, note=note)


def _position_answer(document: PositionTopic, query: str, view: View) -> Lines:
    """The sentence, tinted by how far each word's weight moves where it moves most; which way that is; whether the
    weights are learned."""
    query_text = say(view, "quoted", query)
    other_ways = document.ways[1:]
    most_moving = max(other_ways, key=lambda way: way.moved, default=None)
    answer_sentences, tinted_sentence = [not_learned_note(document.model, view)], Lines()
    if most_moving is not None and most_moving.moved >= LEAST:
        answer_sentences.insert(
            0, say(view, "position.answer", most_moving.position, query_text, f"{most_moving.moved:.2f}")
        )
        differences = np.abs(np.nan_to_num(most_moving.weights) - np.nan_to_num(document.ways[0].weights))
        tinted_sentence = shaded_sentence(
            document.text, document.tokens, differences, view, query=document.query, tint="answer.tint.moved"
        )
    elif other_ways:
        answer_sentences.insert(0, say(view, "position.answer.none", query_text))
    return stack((tinted_sentence, sentences(answer_sentences, view)))


def position_rows(document: PositionTopic) -> Iterable[list[object]]:
    """Each way's weights, key by key, for `--plain`."""
    yield ["position", "enters", "key", "weight", "moved"]
    for way in document.ways:
        for key, weight in enumerate(way.weights):
            yield [way.position, way.enters, key, float(weight), way.moved]
