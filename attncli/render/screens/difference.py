"""The screen of `attn.difference/1`: how effects of heads differ between two sets of texts, or two models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attncli.render.headings import heading, sentences
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens.effect_answer import capitalize, head_phrase, number
from attncli.render.screens.effect_parts import draw_parts, more_heads_note, short_name
from attncli.render.screens.header import warning
from attncli.render.tables import table
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.difference import DifferenceDocument, DifferentHead


DIFFERENCE_PARTS = PARTS_OF["difference"]
"""Every part, in the order of the screen."""


def difference_screen(document: DifferenceDocument, view: View) -> Lines:
    """The whole screen of an `attn.difference/1` document: `view.top` heads."""
    return draw_parts(
        dict(zip(DIFFERENCE_PARTS, (_difference_header, _difference_heads, _answer), strict=True)), document, view
    )


def difference_rows(document: DifferenceDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    yield ("attention", "layer", "head", "a", "b", "difference", "low", "high")
    for head in document.heads:
        yield (head.attention, head.layer, head.head, head.a, head.b, head.difference, head.low, head.high)


def _difference_header(document: DifferenceDocument, view: View) -> Lines:
    sides = [label(side.name, ascii=view.ascii) for side in (document.a, document.b)]
    note = say(view, "difference.texts", document.a.texts, document.b.texts)
    top = heading(f"A {sides[0]} · B {sides[1]}", note, view)
    return stack((top, *(warning(warning_text, view) for warning_text in document.warnings)))


def _difference_heads(document: DifferenceDocument, view: View) -> Lines:
    heads_shown = document.heads if view.full else document.heads[: view.top]
    rows = [
        [short_name(head), number(head.a), number(head.b), number(head.difference), _difference_ends(head)]
        for head in heads_shown
    ]
    body = table(
        [say(view, "effect.column.head"), "A", "B", "B - A", say(view, "effects.interval")],
        rows,
        view,
        align=["left", "right", "right", "right", "left"],
        title=say(view, "difference.title"),
    )
    return stack((body, more_heads_note(document.heads, heads_shown, view)))


def _difference_ends(head: DifferentHead) -> str:
    return "-" if head.low is None or head.high is None else f"{number(head.low)} … {number(head.high)}"


def _answer(document: DifferenceDocument, view: View) -> Lines:
    """How many heads differ by more than their interval, and which differs most."""
    first = document.heads[0]
    intervals = [(head.low, head.high) for head in document.heads if head.low is not None and head.high is not None]
    excludes_zero = [low > 0 or high < 0 for low, high in intervals]
    answer_sentences = [say(view, "difference.most", head_phrase(first, view), number(first.a), number(first.b))]
    if intervals:
        answer_sentences.append(say(view, "difference.sure", sum(excludes_zero), len(intervals)))
        chance = len(intervals) * 0.05
        answer_sentences.append(say(view, "difference.many", f"{chance:.0f}" if chance >= 1 else f"{chance:.1g}"))
    return sentences(map(capitalize, answer_sentences), view)
