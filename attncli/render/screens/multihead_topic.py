"""The screen of the topic "multihead": each head's look, their outputs side by side, and what W_O makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import heading, remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix, matrix
from attncli.render.numbers import format_fixed
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.header import header
from attncli.render.screens.sentence_answer import not_learned_note
from attncli.render.screens.shading import shaded_sentence
from attncli.render.sum_table import vector_sum
from attncli.render.token_names import key_names, quoted_token
from attncli.render.vectors import vectors
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.layer_topics import MultiheadTopic


MOST_HEADS = 4
"""Heads of which the answer tells that they look elsewhere than their average."""
SAME, LESS, CLOSE_HEADS = 5e-3, 5e-3, 1e-4
"""Weights that differ by less are told as the same; entropies, in nats, that differ by less are not told; and how near
one head must be to attention without heads to be called it."""


def multihead_blocks(document: MultiheadTopic, view: View) -> Sequence[Lines]:
    """What heads are for; their weights and the average of these; their outputs; concat·W_O; what each looks at."""
    model, heads = document.model, document.heads
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    is_split = model.d_model is not None and len(heads) * model.d_v == model.d_model
    sizes = say(view, "multihead.sizes.split" if is_split else "multihead.sizes", len(heads), model.d_k, model.d_v)
    lead = stack(
        (
            heading(say(view, "multihead.title"), "", view),
            remark(say(view, "multihead.lead"), view, style=""),
            remark(sizes, view),
        )
    )
    names = [say(view, "multihead.head", head.head) for head in heads]
    several = len(heads) > 1  # of one head the average is that head
    rows = [*(head.weights for head in heads), *([document.average] if several else [])]
    weights = matrix(
        rows,
        [*names, *([say(view, "multihead.average")] if several else [])],
        key_names(texts, rows),
        view,
        limits=(0.0, 1.0),
        title=say(view, "multihead.weights", query),
        note=say(view, "multihead.weights.note"),
    )
    outputs = vectors(
        [head.output for head in heads],
        names,
        view,
        title=say(view, "multihead.outputs", query),
        note=say(view, "multihead.outputs.note", len(heads), len(heads[0].output), len(document.concat)),
    )
    return (
        header(document, view),
        lead,
        *((weights, outputs) if document.single is UNSET else (_single(document, texts, view),)),
        _projected_sum(document, names, view),
        _multihead_answer(document, view),
    )


def _single(document: MultiheadTopic, texts: Sequence[str], view: View) -> Lines:
    """Of one head: its weights and output beside those of attention without heads."""
    single = document.single
    if single is UNSET:
        return Lines()
    names = [say(view, "multihead.single.alone"), say(view, "multihead.single.head")]
    head = document.heads[0]
    title, note = say(view, "multihead.single"), say(view, "multihead.single.note")
    top = heading(title, note, view)
    rows = [single.weights, head.weights]
    weights = matrix(
        rows, names, key_names(texts, rows), view, limits=(0.0, 1.0), title=say(view, "multihead.single.weights")
    )
    output = vectors([single.output, head.output], names, view, title=say(view, "multihead.single.output"))
    agree = say(view, "multihead.single.agree", f"{single.agreement:.1e}" if single.agreement else "0")
    return stack((top, weights, output, remark(agree, view)))


def _loss_sentences(document: MultiheadTopic, view: View) -> list[str]:
    """What averaging the heads loses: those that look elsewhere than the average does, or, where none does, how much
    each looks; and by how much the average is less certain."""
    heads, average = document.heads, as_matrix([document.average])[0]
    if len(heads) < 2 or not average.any():
        return []
    rows = as_matrix([head.weights for head in heads])
    if np.abs(rows - average).max() < SAME:
        return [say(view, "multihead.same", len(heads))]

    best = int(np.argmax(average))
    mentioned = {document.query, best, *(int(np.argmax(row)) for row in rows)}

    def name(key: int) -> str:
        return quoted_token(document.tokens, key, view, beside=mentioned)

    answer_sentences = [
        say(view, "multihead.average.looks", name(document.query), name(best), format_fixed(float(average[best]), 2))
    ]
    heads_elsewhere = [
        index for index in range(len(heads)) if rows[index].any() and int(np.argmax(rows[index])) != best
    ]
    if heads_elsewhere:
        heads_elsewhere.sort(key=lambda index: float(average[int(np.argmax(rows[index]))] - rows[index].max()))
        parts = []
        for index in heads_elsewhere[:MOST_HEADS]:
            key = int(np.argmax(rows[index]))
            numbers = format_fixed(float(rows[index][key]), 2), format_fixed(float(average[key]), 2)
            parts.append(say(view, "multihead.elsewhere", heads[index].head, name(key), *numbers))
        more = (
            say(view, "multihead.more", len(heads_elsewhere) - MOST_HEADS) if len(heads_elsewhere) > MOST_HEADS else ""
        )
        head_list = say(view, "multihead.and").join(parts) + more
        answer_sentences.append(say(view, "multihead.loses", len(heads_elsewhere), len(heads), head_list))
    else:
        low, high = (int(index) for index in (np.argmin(rows[:, best]), np.argmax(rows[:, best])))
        ends = [(format_fixed(float(rows[index, best]), 2), heads[index].head) for index in (low, high)]
        answer_sentences.append(say(view, "multihead.alike", len(heads), *ends[0], *ends[1]))
    head_entropy = float(np.mean(document.entropies))
    if document.average_entropy - head_entropy >= LESS:
        answer_sentences.append(
            say(view, "multihead.lost", format_fixed(document.average_entropy, 2), format_fixed(head_entropy, 2))
        )
    return answer_sentences


def _projected_sum(document: MultiheadTopic, names: Sequence[str], view: View) -> Lines:
    """Σ O_h·W_O^h, term by term; where there is no W_O, why there is nothing to add."""
    title = say(view, "multihead.out")
    terms = [
        (say(view, "multihead.share", head.head), head.share) for head in document.heads if head.share is not UNSET
    ]
    if not terms:
        return stack((heading(title, "", view), remark(say(view, "multihead.out.none"), view)))
    terms += [("b_O", document.bias)] if document.bias is not UNSET else []
    body = vector_sum(terms, ("O", document.out), view, title=title, note=say(view, "multihead.out.note"))
    return stack((body, remark(say(view, "agrees", f"{document.agreement:.1e}"), view)))


def _multihead_answer(document: MultiheadTopic, view: View) -> Lines:
    """What averaging the heads loses; of one head, that it is single-head attention."""
    query_text = quoted_token(document.tokens, document.query, view)
    answer_sentences = _loss_sentences(document, view)
    if document.single is not UNSET and document.single.agreement <= CLOSE_HEADS:
        difference = document.single.agreement
        answer_sentences = [
            say(view, "multihead.single.answer", query_text, f"{difference:.1e}" if difference else "0")
        ]
    largest_weights = as_matrix([head.weights for head in document.heads]).max(axis=0)
    tinted_sentence = shaded_sentence(
        document.text or "", document.tokens, largest_weights, view, query=document.query, tint="answer.tint.links"
    )
    return stack((tinted_sentence, sentences((*answer_sentences, not_learned_note(document.model, view)), view)))


def multihead_rows(document: MultiheadTopic) -> Iterable[list[object]]:
    """Each head's weights, key by key, for `--plain`."""
    yield ["head", "key", "weight", "average"]
    for head in document.heads:
        for key, weight in enumerate(head.weights):
            yield [head.head, key, float(weight), float(document.average[key])]
