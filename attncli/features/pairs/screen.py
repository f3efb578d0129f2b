"""The screen of `attn.pairs/1`: the pairs with their measures, what does not fit, and the means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.draw.lines import (
    Lines,
    fit_to_view,
    heading,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import format_signed, missed_by_intervals, percent
from attncli.draw.safe import label
from attncli.draw.screen_header import warning
from attncli.draw.sentence import not_learned_note
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text
from attncli.draw.view import View
from attncli.features.pairs.document import PairInterval, PairsDocument
from attncli.language import message, say
from attncli.measure.mean_intervals import no_interval

SHOWN = 10
"""Pairs that are listed, and faults, unless the view is full."""
DIGITS = 2
"""Digits after the point of a difference of logits."""


def pairs_screen(document: PairsDocument, view: View) -> Lines:
    """The pairs that fit with their measures, the faults of the others, and the answer in words."""
    answer = sentences(pairs_sentences(document, view), view)
    if view.brief:
        return fit_to_view(answer, view)
    name = label(document.name, ascii=view.ascii)
    model = label(document.model.name or document.model.source, ascii=view.ascii)
    top = stack(heading(name, model, view), *(warning(text, view) for text in document.warnings))
    return fit_to_view(
        stack_spaced(top, _pair_table(document, view), _fault_table(document, view), answer), view
    )


def pairs_rows(document: PairsDocument) -> Iterator[Sequence[object]]:
    """The pairs as a table for `--plain`, its first row the names of the columns."""
    yield ("clean", "corrupt", "answer", "versus", "tokens", "m_clean", "m_corrupt", "fault")
    for pair in document.pairs:
        texts = (pair.clean, pair.corrupt, pair.answer.text, pair.versus.text)
        yield (*texts, pair.tokens, pair.m_clean, pair.m_corrupt, None)
    for fault in document.faults:
        yield (*(None,) * 7, f"{fault.where}: {fault.fault}")  # none of a pair's seven cells


def _pair_table(document: PairsDocument, view: View) -> Lines:
    """A table with a row for each pair that fits the model: its clean text, both answers, and the
    difference of their logits after each text; no lines where none fits."""
    shown = document.pairs
    if not view.full:
        shown = document.pairs[:SHOWN]
    if not shown:
        return Lines()
    rows = [
        [
            pair.clean,
            quote_text(pair.answer.text, view),
            quote_text(pair.versus.text, view),
            format_signed(pair.m_clean, DIGITS),
            format_signed(pair.m_corrupt, DIGITS),
        ]
        for pair in shown
    ]
    names = [
        message("clean text"),
        message("answer"),
        message("versus"),
        message("clean"),
        message("corrupt"),
    ]
    body = table(
        names,
        rows,
        view,
        align=["left", "left", "left", "right", "right"],
        title=message("logit of the answer less that of versus, after each text"),
    )
    return stack(body, _hidden_rows_remark(len(document.pairs) - len(shown), view))


def _fault_table(document: PairsDocument, view: View) -> Lines:
    """A table with a row for each pair that does not fit the model: its place in the file and what
    is wrong; no lines where all fit."""
    shown = document.faults
    if not view.full:
        shown = document.faults[:SHOWN]
    if not shown:
        return Lines()
    rows = [[fault.where, localize(fault.fault, view)] for fault in shown]
    title = message("pairs that do not fit this model")
    body = table([message("place"), message("fault")], rows, view, title=title)
    return stack(body, _hidden_rows_remark(len(document.faults) - len(shown), view))


def _hidden_rows_remark(count: int, view: View) -> Lines:
    """A remark on how many rows are not shown; no lines where all are."""
    more = message("{count} more; --full shows all", count=count)
    return remark(more if count else "", view)


def pairs_sentences(document: PairsDocument, view: View) -> Iterator[str]:
    """The answer in words: how many pairs fit, how often the model is right, and the means."""
    whole = len(document.pairs) + len(document.faults)
    fit = message(
        "{fitting} of {pairs} pairs fit this model.", fitting=len(document.pairs), pairs=whole
    )
    yield say(view, fit)
    if document.right is None or document.clean is None or document.corrupt is None:
        return
    yield say(
        view,
        "It is right after {share} of the clean texts: the answer is likelier than versus.",
        share=percent(document.right),
    )
    yield say(
        view,
        "The logit of the answer less that of versus is {clean} after the clean texts and {corrupt}"
        " after the corrupt ones.",
        clean=interval_text(document.clean),
        corrupt=interval_text(document.corrupt),
    )
    if document.clean.low is None:
        yield say(view, no_interval(len(document.pairs)))
    else:
        yield say(view, missed_by_intervals(len(document.pairs)))
    yield not_learned_note(document.model, view)


def interval_text(interval: PairInterval) -> str:
    """A mean with its interval, such as `+3.83 [3.20, 4.41]`."""
    mean = format_signed(interval.mean, DIGITS)
    if interval.low is None or interval.high is None:
        return mean
    low, high = (f"{end:.{DIGITS}f}" for end in (interval.low, interval.high))
    return f"{mean} [{low}, {high}]"
