"""What a derivation adds to the steps: one entry of q worked out, the residual and layer norm, the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.analysis.documents.derivation import SoftmaxRow
from attncli.render.glyphs import spell
from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, spaced, stack
from attncli.render.numbers import brief, percent
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.sentence_answer import not_learned
from attncli.render.screens.shading import shaded
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
    shown = sorted(np.argsort(-np.abs(products), kind="stable")[:TERMS].tolist()) if not view.full else range(len(x))
    rest = float(products.sum() - products[list(shown)].sum())
    bias = None if step.bias is UNSET else step.bias
    total = float(products.sum() + (bias or 0.0))
    terms = (
        [float(products[at]) for at in shown]
        + ([rest] if len(shown) < len(x) else [])
        + ([bias] if bias is not None else [])
    )
    digits = adding_digits([(terms, total)], view.precision)
    write = f"{{:.{view.precision}f}}".format
    exact = f"{{:.{digits}f}}".format
    rows = [[str(at), write(x[at]), write(weights[at]), exact(products[at])] for at in shown]
    if len(shown) < len(x):
        rows.append([say(view, "others", len(x) - len(shown)), "", "", exact(rest)])
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

    terms = [f"{factor(x[at])}·{factor(weights[at])}" for at in range(min(len(x), PRODUCTS))]
    terms += [say(view, "worked.others", len(x) - PRODUCTS)] if len(x) > PRODUCTS else []
    terms += [factor(bias)] if step.bias is not UNSET else []
    told = f"{' + '.join(terms)} = {write(float(x @ weights) + bias)}"
    return remark(spell(say(view, "worked.line", name, told), ascii=view.ascii), view)


def one_score(step: Scores, name: str, at: int, raw: float, root: str, view: View) -> Lines:
    """The score of one key in a line: q·k scaled, capped, and with what its position adds. root: of what it is divided
    by the square root, if it is."""

    def write(value: float) -> str:
        return f"{value:.{view.precision}f}"

    value = raw
    parts = [write(value)]
    if step.scale != 1:
        parts.append(f"{write(value)} {f'/ √{root}' if root else f'× {brief(step.scale)}'} = {write(step.scaled[at])}")
        value = float(step.scaled[at])
    if step.capped is not None:
        cap = brief(step.softcap or 0.0)
        parts.append(f"{cap}·tanh({write(value)} / {cap}) = {write(step.capped[at])}")
        value = float(step.capped[at])
    if step.bias is not None:
        added = f"{write(value)} + {write(step.bias[at])} = {write(value + float(step.bias[at]))}"
        parts.append(added.replace("+ -", "− "))
    worked = say(view, "scaled.worked", name, say(view, "multihead.and").join(parts))
    return remark(spell(worked, ascii=view.ascii), view)


def hidden_keys(step: Scores, asked: str, name: Callable[[int], str], view: View) -> Lines:
    """Which keys the mask hides from the query, the first by name; or that it hides none."""
    hidden = [at for at, seen in enumerate(step.visible) if not seen]
    if not hidden:
        return remark(say(view, "masked.none", asked, len(step.visible)), view, style="")
    most = len(hidden) if view.full else MENTIONED
    names = say(view, "list.comma").join(name(at) for at in hidden[:most])
    more = say(view, "masked.more", len(hidden) - most) if len(hidden) > most else ""
    told = say(view, "masked.hidden", asked, len(hidden), len(step.visible), f"{names}{more}")
    return remark(spell(told, ascii=view.ascii), view, style="")


def residual(document: AttentionTopic, view: View) -> Lines:
    """The query's row after the heads: each head's part of concat·W_O, then x + o and its norm where the layer has
    them."""
    after = document.after
    if after is UNSET:
        return Lines()
    mixed = Lines()
    if after.heads is not UNSET:
        terms = [(say(view, "multihead.share", at), share) for at, share in enumerate(after.heads)]
        terms += [("b_O", after.bias)] if after.bias is not UNSET else []
        title, note = say(view, "after.heads"), say(view, "after.heads.note")
        mixed = vector_sum(terms, ("O", after.out), view, title=title, note=note)
    rows = [("x", after.x), ("out", after.out), ("sum", after.sum), ("norm", after.norm)]
    held = [(say(view, f"after.{name}"), values) for name, values in rows if values is not UNSET]
    if len(held) < 3:  # neither residual nor norm
        return mixed
    query = label(document.tokens[document.query].text, ascii=view.ascii)
    title = say(view, "after", query)
    note = say(view, "after.note.norm" if after.norm is not UNSET else "after.note")
    return spaced(
        (mixed, vectors([values for _, values in held], [name for name, _ in held], view, title=title, note=note))
    )


def explain_answer(document: AttentionTopic, view: View) -> Lines:
    """The sentence tinted by the query's weights, and what it looks at most."""
    tokens, query = document.tokens, document.query
    softmax = document.step(SoftmaxRow)
    weights: Sequence[float] = [float(value) for value in softmax.weights[: len(tokens)]]
    shown = shaded(document.text, tokens, weights, view, query=query, tint="answer.tint.row")
    best = int(np.argmax(weights))
    asked, sought = (quoted_token(tokens, at, view, beside=(query, best)) for at in (query, best))
    said = say(view, "answer.blind", asked)
    if weights[best] > 0:
        said = say(view, "answer.looks.one", asked, sought, percent(weights[best]))
    return stack((shown, sentences((said, not_learned(document.model, view)), view)))
