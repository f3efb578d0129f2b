"""The screen of the topic "multihead": each head's look, their outputs side by side, and what W_O makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import heading, remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix, matrix
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.header import header
from attncli.render.screens.sentence_answer import not_learned
from attncli.render.screens.shading import shaded
from attncli.render.sum_table import vector_sum
from attncli.render.token_names import key_names, quoted
from attncli.render.vectors import vectors
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.layer_topics import MultiheadTopic


NAMED = 4
"""Heads of which the answer tells what they look at."""


def multihead_blocks(document: MultiheadTopic, view: View) -> Sequence[Lines]:
    """What heads are for; their weights and the average of these; their outputs; concat·W_O; what each looks at."""
    model, heads = document.model, document.heads
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    split = model.d_model is not None and len(heads) * model.d_v == model.d_model
    sizes = say(view, "multihead.sizes.split" if split else "multihead.sizes", len(heads), model.d_k, model.d_v)
    lead = stack(
        (
            heading(say(view, "multihead.title"), "", view),
            remark(say(view, "multihead.lead"), view, style=""),
            remark(sizes, view),
        )
    )
    names = [say(view, "multihead.head", one.head) for one in heads]
    rows = [*(one.weights for one in heads), document.average]
    weights = matrix(
        rows,
        [*names, say(view, "multihead.average")],
        key_names(texts, rows),
        view,
        limits=(0.0, 1.0),
        title=say(view, "multihead.weights", query),
        note=say(view, "multihead.weights.note"),
    )
    told = _lost(document, view)
    outputs = vectors(
        [one.output for one in heads],
        names,
        view,
        title=say(view, "multihead.outputs", query),
        note=say(view, "multihead.outputs.note", len(heads), len(heads[0].output), len(document.concat)),
    )
    return (
        header(document, view),
        lead,
        stack((weights, remark(told, view))),
        outputs,
        _projected(document, names, view),
        _answer(document, texts, view),
    )


def _lost(document: MultiheadTopic, view: View) -> str:
    """What averaging the heads loses, by entropy; nothing where there is one head."""
    if len(document.heads) < 2:
        return ""
    own = float(np.mean(document.entropies))
    return say(view, "multihead.lost", f"{document.average_entropy:.2f}", f"{own:.2f}")


def _projected(document: MultiheadTopic, names: Sequence[str], view: View) -> Lines:
    """Σ O_h·W_O^h, term by term; where there is no W_O, why there is nothing to add."""
    title = say(view, "multihead.out")
    terms = [(say(view, "multihead.share", one.head), one.share) for one in document.heads if one.share is not UNSET]
    if not terms:
        return stack((heading(title, "", view), remark(say(view, "multihead.out.none"), view)))
    terms += [("b_O", document.bias)] if document.bias is not UNSET else []
    body = vector_sum(terms, ("O", document.out), view, title=title, note=say(view, "multihead.out.note"))
    return stack((body, remark(say(view, "agrees", f"{document.agreement:.1e}"), view)))


def _answer(document: MultiheadTopic, texts: Sequence[str], view: View) -> Lines:
    """What each of the first heads looks at most."""
    parts = []
    for one in document.heads[:NAMED]:
        best = int(np.argmax(one.weights))
        if one.weights[best] > 0 and best < len(texts):
            parts.append(say(view, "multihead.looks", one.head, quoted(texts[best], view), f"{one.weights[best]:.2f}"))
    asked = quoted(texts[document.query], view)
    said = say(view, "multihead.answer", asked, say(view, "multihead.and").join(parts)) if parts else ""
    most = as_matrix([one.weights for one in document.heads]).max(axis=0)
    seen = shaded(document.text or "", document.tokens, most, view, query=document.query, tint="answer.tint.links")
    return stack((seen, sentences((said, not_learned(document.model, view)), view)))


def multihead_rows(document: MultiheadTopic) -> Iterable[list[object]]:
    """Each head's weights, key by key, for `--plain`."""
    yield ["head", "key", "weight", "average"]
    for one in document.heads:
        for key, weight in enumerate(one.weights):
            yield [one.head, key, float(weight), float(document.average[key])]
