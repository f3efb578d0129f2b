"""What a derivation adds to the steps: one entry of q worked out, the residual and layer norm, the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.analysis.documents.derivation import SoftmaxRow
from attncli.render.glyphs import spell
from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, stack, stack_spaced
from attncli.render.numbers import brief, percent
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.sentence_answer import not_learned_note
from attncli.render.screens.shading import shaded_sentence
from attncli.render.sum_table import vector_sum
from attncli.render.tables import ledger
from attncli.render.term_digits import adding_digits
from attncli.render.token_names import quoted_token
from attncli.render.vectors import vectors
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.derivation import AttentionTopic, Projections, Scores


TERMS = 6
"""Products of one entry that have a line of their own."""
MENTIONED = 6
"""Hidden keys that are named; of more, the number is told."""
PRODUCTS = 1
"""The same where an entry is told in one line."""


def first_entry(step: Projections, name: str, view: View) -> Lines:
    """q_0 = Σ x_i·W_Q[i, 0] + bias, the largest products line by line; nothing where the document has no column of
    W_Q."""
    column = step.column
    if column is UNSET:
        return Lines()
    x, weights = np.asarray(step.x, np.float64), np.asarray(column, np.float64)
    products = x * weights
    largest_indices = (
        sorted(np.argsort(-np.abs(products), kind="stable")[:TERMS].tolist()) if not view.full else range(len(x))
    )
    rest = float(products.sum() - products[list(largest_indices)].sum())
    bias = None if step.bias is UNSET else step.bias
    total = float(products.sum() + (bias or 0.0))
    terms = (
        [float(products[index]) for index in largest_indices]
        + ([rest] if len(largest_indices) < len(x) else [])
        + ([bias] if bias is not None else [])
    )
    digits = adding_digits([(terms, total)], view.precision)
    write = f"{{:.{view.precision}f}}".format
    exact = f"{{:.{digits}f}}".format
    rows = [[str(index), write(x[index]), write(weights[index]), exact(products[index])] for index in largest_indices]
    if len(largest_indices) < len(x):
        rows.append([say(view, "others", len(x) - len(largest_indices)), "", "", exact(rest)])
    if bias is not None:
        rows.append([say(view, "worked.bias"), "", "", exact(bias)])
    ends = " " * (digits - view.precision)
    return ledger(
        ["i", "x_i", "W_Q[i, 0]", "x_i · W_Q[i, 0]"],
        rows,
        [say(view, "worked.total"), "", "", write(total) + ends],
        view,
        title=say(view, "worked.title", name),
        note=say(view, "worked.note"),
    )


def first_sum(step: Projections, name: str, view: View) -> Lines:
    """q_0 in one line, its first product written out; where the document has no column of W_Q, q itself."""
    column = step.column
    if column is UNSET:
        return vectors([step.q], [name], view, title="q")
    x, weights = np.asarray(step.x, np.float64), np.asarray(column, np.float64)
    bias = 0.0 if step.bias is UNSET else step.bias
    write = f"{{:.{view.precision}f}}".format

    def factor(value: float) -> str:
        return f"({write(value)})" if value < 0 else write(value)

    terms = [f"{factor(x[index])}·{factor(weights[index])}" for index in range(min(len(x), PRODUCTS))]
    terms += [say(view, "worked.others", len(x) - PRODUCTS)] if len(x) > PRODUCTS else []
    terms += [factor(bias)] if step.bias is not UNSET else []
    sum_text = f"{' + '.join(terms)} = {write(float(x @ weights) + bias)}"
    return remark(spell(say(view, "worked.line", name, sum_text), ascii=view.ascii), view)


def score_of_key(step: Scores, name: str, index: int, raw: float, root: str, view: View) -> Lines:
    """The score of one key in a line: q·k scaled, capped, and with what its position adds. root: of what it is divided
    by the square root, if it is."""

    def write(value: float) -> str:
        return f"{value:.{view.precision}f}"

    value = raw
    parts = [write(value)]
    if step.scale != 1:
        parts.append(
            f"{write(value)} {f'/ √{root}' if root else f'× {brief(step.scale)}'} = {write(step.scaled[index])}"
        )
        value = float(step.scaled[index])
    if step.capped is not None:
        cap = brief(step.softcap or 0.0)
        parts.append(f"{cap}·tanh({write(value)} / {cap}) = {write(step.capped[index])}")
        value = float(step.capped[index])
    if step.bias is not None:
        bias_sum = f"{write(value)} + {write(step.bias[index])} = {write(value + float(step.bias[index]))}"
        parts.append(bias_sum.replace("+ -", "− "))
    score_text = say(view, "scaled.worked", name, say(view, "multihead.and").join(parts))
    return remark(spell(score_text, ascii=view.ascii), view)


def hidden_keys(step: Scores, query_text: str, name: Callable[[int], str], view: View) -> Lines:
    """Which keys the mask hides from the query, the first by name; or that it hides none."""
    hidden = [index for index, is_visible in enumerate(step.visible) if not is_visible]
    if not hidden:
        return remark(say(view, "masked.none", query_text, len(step.visible)), view, style="")
    most = len(hidden) if view.full else MENTIONED
    names = say(view, "list.comma").join(name(index) for index in hidden[:most])
    more = say(view, "masked.more", len(hidden) - most) if len(hidden) > most else ""
    hidden_sentence = say(view, "masked.hidden", query_text, len(hidden), len(step.visible), f"{names}{more}")
    return remark(spell(hidden_sentence, ascii=view.ascii), view, style="")


def residual(document: AttentionTopic, view: View) -> Lines:
    """The query's row after the heads: each head's part of concat·W_O, then x + o and its norm where the layer has
    them."""
    after = document.after
    if after is UNSET:
        return Lines()
    mixed = Lines()
    if after.heads is not UNSET:
        terms = [(say(view, "multihead.share", index), share) for index, share in enumerate(after.heads)]
        terms += [("b_O", after.bias)] if after.bias is not UNSET else []
        title, note = say(view, "after.heads"), say(view, "after.heads.note")
        mixed = vector_sum(terms, ("O", after.out), view, title=title, note=note)
    rows = [("x", after.x), ("out", after.out), ("sum", after.sum), ("norm", after.norm)]
    vectors_by_name = [(say(view, f"after.{name}"), values) for name, values in rows if values is not UNSET]
    if len(vectors_by_name) < 3:  # neither residual nor norm
        return mixed
    query = label(document.tokens[document.query].text, ascii=view.ascii)
    title = say(view, "after", query)
    note = say(view, "after.note.norm" if after.norm is not UNSET else "after.note")
    return stack_spaced(
        (
            mixed,
            vectors(
                [values for _, values in vectors_by_name],
                [name for name, _ in vectors_by_name],
                view,
                title=title,
                note=note,
            ),
        )
    )


def explain_answer(document: AttentionTopic, view: View) -> Lines:
    """The sentence tinted by the query's weights, and what it looks at most."""
    tokens, query = document.tokens, document.query
    softmax = document.step(SoftmaxRow)
    weights: Sequence[float] = [float(value) for value in softmax.weights[: len(tokens)]]
    tinted_sentence = shaded_sentence(document.text, tokens, weights, view, query=query, tint="answer.tint.row")
    best = int(np.argmax(weights))
    query_text, sought = (quoted_token(tokens, at, view, beside=(query, best)) for at in (query, best))
    link_sentence = say(view, "answer.blind", query_text)
    if weights[best] > 0:
        link_sentence = say(view, "answer.looks.one", query_text, sought, percent(weights[best]))
    return stack((tinted_sentence, sentences((link_sentence, not_learned_note(document.model, view)), view)))
