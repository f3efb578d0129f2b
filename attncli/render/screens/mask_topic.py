"""The screen of the topic "mask": scores and weights before and after it, one row worked out, padding in a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from attncli.render.glyphs import spell
from attncli.render.headings import heading, remark, sentences
from attncli.render.lines import Lines, stack
from attncli.render.matrix import as_matrix, matrix
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screens.header import header
from attncli.render.screens.sentence_answer import not_learned_note
from attncli.render.screens.shading import shaded_sentence
from attncli.render.tables import ledger, table
from attncli.render.term_digits import adding_digits
from attncli.render.token_names import key_names, position_and_text, quoted_token, short
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.layer_topics import MaskTopic, PaddedText


CLOSE = 1e-4
"""How near the weights must be to what the sentence about them says."""
KEYS = 24
"""Keys of the worked row that have a line of their own."""
CELL = 9
"""Cells of a token in the drawing of a batch."""


def mask_topic_blocks(document: MaskTopic, view: View) -> Sequence[Lines]:
    """What a mask is for; the matrices before and after; the query's row worked out; the batch, if there is one."""
    texts = [token.text for token in document.tokens]
    lead = stack(
        (
            heading(say(view, "mask.topic.title"), document.attention.mask, view),
            remark(say(view, "mask.topic.lead"), view, style=""),
        )
    )
    masked = as_matrix(document.masked)
    pairs = [
        ("scores", document.scores, True),
        ("masked", document.masked, True),
        ("before", document.before, False),
        ("after", np.where(np.isfinite(masked), document.after, np.nan), False),
    ]
    hides = not np.isfinite(masked).all()
    if not hides:  # what is before the mask is what is after it: once is enough
        pairs = [("scores", document.scores, True), ("open", document.after, False)]
    matrices = [
        matrix(
            values,
            texts,
            key_names(texts, values),
            view,
            signed=signed,
            limits=None if signed else (0.0, 1.0),
            title=say(view, f"mask.topic.{name}"),
            note=say(view, f"mask.topic.{name}.note"),
        )
        for name, values, signed in pairs
    ]
    batch = [] if document.batch is UNSET else [_batch(document.batch, view)]
    row_block = [] if np.isfinite(masked[document.query]).all() else [_row(document, texts, view)]
    row = as_matrix(document.after)[document.query]
    tinted_sentence = shaded_sentence(
        document.text or "", document.tokens, row, view, query=document.query, tint="answer.tint.row"
    )
    # of several texts the padding is what is asked about
    mask_sentence = _redistribution_sentence(document, view) if hides or document.batch is UNSET else ""
    answers = (_padding_sentence(document, view), mask_sentence, not_learned_note(document.model, view))
    answer_lines = stack((tinted_sentence, sentences(answers, view)))
    parts = (*batch, *matrices) if not hides else (*matrices, *row_block, *batch)
    return (header(document, view), lead, *parts, answer_lines)


def _row(document: MaskTopic, texts: Sequence[str], view: View) -> Lines:
    """The query's row: score and weight without the mask, then with it."""
    query = document.query
    name = label(texts[query], ascii=view.ascii)
    scores, masked, before, after = (
        np.asarray(getattr(document, part), np.float64)[query] for part in ("scores", "masked", "before", "after")
    )
    visible = np.isfinite(masked)
    keys_shown = list(range(len(scores)))
    if len(keys_shown) > KEYS and not view.full:
        keys_shown = sorted(np.argsort(-before, kind="stable")[:KEYS].tolist())
    rest = sorted(set(range(len(scores))) - set(keys_shown))
    columns = [
        ([*map(float, values[keys_shown]), *([float(values[rest].sum())] if rest else [])], float(values.sum()))
        for values in (before, after)
    ]
    digits = [adding_digits([column], view.precision) for column in columns]
    none = spell("−∞", ascii=view.ascii)
    rows = [
        [
            position_and_text(index, texts[index] if index < len(texts) else "bias_k", 14, view),
            f"{scores[index]:.{view.precision}f}",
            f"{before[index]:.{digits[0]}f}",
            f"{masked[index]:.{view.precision}f}" if visible[index] else none,
            f"{after[index]:.{digits[1]}f}",
        ]
        for index in keys_shown
    ]
    if rest:
        sums = [f"{values[rest].sum():.{count}f}" for values, count in zip((before, after), digits, strict=True)]
        rows.append([say(view, "others", len(rest)), "", sums[0], "", sums[1]])
    totals = [
        f"{values.sum():.{view.precision}f}" + " " * (count - view.precision)
        for values, count in zip((before, after), digits, strict=True)
    ]
    return ledger(
        [say(view, f"mask.topic.column.{part}") for part in ("key", "score", "before", "masked", "after")],
        rows,
        [say(view, "sum"), "", totals[0], "", totals[1]],
        view,
        title=say(view, "mask.topic.row", name),
        note=say(view, "mask.topic.row.note"),
    )


def _redistribution_sentence(document: MaskTopic, view: View) -> str:
    """How the hidden keys' share goes to the others, where it goes to them in proportion."""
    query, visible_share = document.query, 1 - document.hidden
    masked, before, after = (
        np.asarray(getattr(document, part), np.float64)[query] for part in ("masked", "before", "after")
    )
    visible = np.isfinite(masked)
    name = quoted_token(document.tokens, query, view)
    if visible.all():
        return say(view, "mask.topic.all", name)
    if not visible.any():
        return say(view, "empty")
    if visible_share <= 0 or np.abs(before[visible] / visible_share - after[visible]).max() > CLOSE:
        return ""
    return say(
        view, "mask.topic.shared", name, f"{document.hidden:.{view.precision}f}", f"{visible_share:.{view.precision}f}"
    )


def _padding_sentence(document: MaskTopic, view: View) -> str:
    """That padding gets no weight and changes none, where several texts are padded together and it holds."""
    if document.batch is UNSET:
        return ""
    longest = max(len(padded_text.tokens) for padded_text in document.batch)
    padding_weight = max(
        float(np.nan_to_num(list(padded_text.weights)[len(padded_text.tokens) :]).sum())
        for padded_text in document.batch
    )
    largest_difference = max(padded_text.agreement for padded_text in document.batch)
    if padding_weight > 0 or largest_difference > CLOSE:
        return ""
    if _even(document.batch):
        return say(view, "mask.topic.even.answer", len(document.batch))
    if largest_difference == 0:
        return say(view, "mask.topic.padded.exact", len(document.batch), longest)
    return say(view, "mask.topic.padded", len(document.batch), longest, f"{largest_difference:.1e}")


def _even(batch: Sequence[PaddedText]) -> bool:
    """Whether all texts have as many tokens: nothing is padded then."""
    return len({len(text.tokens) for text in batch}) == 1


def _batch(batch: Sequence[PaddedText], view: View) -> Lines:
    """The texts below each other, padded to the longest; the last token's row of each, nothing on padding."""
    longest = max(len(padded_text.tokens) for padded_text in batch)
    even = _even(batch)
    pad = spell("·", ascii=view.ascii)
    room = max((view.width - 4) // (CELL + 2), 1)
    token_count = longest if view.full else min(longest, room)
    rows = [
        [
            str(index),
            *(
                short(padded_text.tokens[place].text, CELL, view) if place < len(padded_text.tokens) else pad
                for place in range(token_count)
            ),
        ]
        for index, padded_text in enumerate(batch)
    ]
    token_table = table(
        ["", *map(str, range(token_count))],
        rows,
        view,
        title=say(view, "mask.topic.even", len(batch)) if even else say(view, "mask.topic.batch", len(batch), longest),
        note="" if even else say(view, "mask.topic.batch.note"),
    )
    weights = [
        [float(weight) if place < len(padded_text.tokens) else None for place, weight in enumerate(padded_text.weights)]
        for padded_text in batch
    ]
    last = matrix(
        weights,
        [padded_text.tokens[-1].text for padded_text in batch],
        None,
        view,
        limits=(0.0, 1.0),
        title=say(view, "mask.topic.batch.weights"),
        note="" if even else say(view, "mask.topic.batch.weights.note"),
    )
    largest_difference = max(padded_text.agreement for padded_text in batch)
    return stack(
        (
            token_table,
            Lines(((),)),
            last,
            remark(
                say(view, "mask.topic.batch.agree", f"{largest_difference:.1e}" if largest_difference else "0"), view
            ),
        )
    )


def mask_topic_rows(document: MaskTopic) -> Iterable[list[object]]:
    """Every pair before and after the mask, for `--plain`."""
    yield ["query", "key", "score", "masked", "weight_before", "weight"]
    masked = as_matrix(document.masked)
    for query, row in enumerate(document.scores):
        for key, score in enumerate(row):
            score_masked = masked[query, key]
            pair = [float(document.before[query][key]), float(document.after[query][key])]
            yield [query, key, float(score), float(score_masked) if np.isfinite(score_masked) else None, *pair]
