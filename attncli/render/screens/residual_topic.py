"""The screen of the topic "residual": x + O entry by entry, and the norm worked out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.headings import heading, remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.numbers import brief
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.header import header
from attncli.render.screens.sentence_answer import not_learned_note
from attncli.render.screens.shading import shaded_sentence
from attncli.render.sum_table import vector_sum
from attncli.render.vectors import vectors
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.layer_topics import ResidualTopic


MOSTLY = 0.5
"""From this cosine on, a vector still points mostly where it did."""


def residual_blocks(document: ResidualTopic, view: View) -> Sequence[Lines]:
    """What the residual is for; the sum; the norm; how much of the vector stays."""
    query = label(document.tokens[document.query].text, ascii=view.ascii)
    lead = stack((heading(say(view, "residual.title"), "", view), remark(say(view, "residual.lead"), view, style="")))
    sum_block = vector_sum(
        [("x", document.x), ("O", document.out)],
        ("x + O", document.sum),
        view,
        title=say(view, "residual.sum", query),
        note=say(view, "residual.sum.note"),
    )
    lengths = [f"{float(np.linalg.norm(part)):.{view.precision}f}" for part in (document.x, document.out, document.sum)]
    facts = remark(say(view, "residual.lengths", *lengths), view)
    return (
        header(document, view),
        lead,
        stack((sum_block, facts)),
        _norm(document, view),
        _residual_answer(document, query, view),
    )


def _norm(document: ResidualTopic, view: View) -> Lines:
    """The norm, step by step; that there is none, where there is none."""
    norm = document.norm
    if norm is None:
        return remark(say(view, "residual.norm.none"), view)
    write = f"{{:.{view.precision}f}}".format
    first = norm.place == "attn.in"
    input_name = "x" if first else "x + O"
    rows = [(input_name, norm.vector)]
    if norm.kind == "layer":
        rows.append((f"{input_name} − μ", np.asarray(norm.vector, np.float64) - norm.mean))
    rows += [(say(view, f"residual.norm.{norm.kind}.scaled"), norm.scaled), ("· γ + β", norm.normed)]
    if np.array_equal(norm.scaled, norm.normed):
        rows.pop()
    body = vectors(
        [values for _, values in rows],
        [name for name, _ in rows],
        view,
        title=say(view, f"residual.norm.{norm.kind}"),
        note=say(view, "residual.norm.first" if first else "residual.norm.after"),
    )
    norm_sentence = say(
        view, f"residual.norm.{norm.kind}.told", write(norm.mean), write(norm.variance), brief(norm.eps)
    )
    plain = say(view, "residual.norm.plain") if np.array_equal(norm.scaled, norm.normed) else ""
    agrees = say(view, "agrees", f"{document.agreement:.1e}")
    return stack((body, *(remark(note, view) for note in (norm_sentence, plain, agrees))))


def _residual_answer(document: ResidualTopic, query: str, view: View) -> Lines:
    """The sentence, tinted by where the word looks; whether its vector still points where it did."""
    query_text = say(view, "quoted", query)
    kind = "kept" if document.cosine >= MOSTLY else "turned"
    answer_sentences = (
        say(view, f"residual.answer.{kind}", query_text, f"{document.cosine:.2f}"),
        not_learned_note(document.model, view),
    )
    weights = None if document.weights is UNSET else document.weights
    tinted_sentence = shaded_sentence(
        document.text, document.tokens, weights, view, query=document.query, tint="answer.tint.links"
    )
    return stack((tinted_sentence, sentences(answer_sentences, view)))


def residual_rows(document: ResidualTopic) -> Iterable[list[object]]:
    """Entry by entry, for `--plain`."""
    yield ["dim", "x", "out", "sum", "normed"]
    normed = None if document.norm is None or document.norm.place != "attn.sum" else document.norm.normed
    for dim, values in enumerate(zip(document.x, document.out, document.sum, strict=True)):
        yield [dim, *map(float, values), None if normed is None else float(normed[dim])]
