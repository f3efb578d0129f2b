"""The screens of `attn.effects/1` and `attn.difference/1`: effects over many texts, and of two sets of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attncli.draw.headings import heading, sentences
from attncli.draw.lines import Lines, stack
from attncli.draw.safe import label
from attncli.draw.screen_header import warning
from attncli.draw.sentence_answer import not_learned_note
from attncli.draw.text_tables import table
from attncli.draw.token_names import quote_text
from attncli.draw.view import PARTS_OF, View
from attncli.features.effects.document import readings_of
from attncli.features.effects.effect_answer import (
    capitalize,
    draw_parts,
    grids,
    head_phrase,
    more_heads_note,
    number,
    short_name,
)
from attncli.language import say

if TYPE_CHECKING:
    from attncli.features.effects.document import (
        DifferenceDocument,
        DifferentHead,
        EffectsDocument,
        Interval,
        MeanMeasures,
        Reading,
    )


PARTS = PARTS_OF["effects"]
"""Every part, in the order of the screen."""


def effects_screen(document: EffectsDocument, view: View) -> Lines:
    """The whole screen of an `attn.effects/1` document: `view.top` heads."""
    draw_by_part = dict(zip(PARTS, (_header, _grid, _heads, effects_answer), strict=True))
    return draw_parts(draw_by_part, document, view)


def effects_rows(document: EffectsDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns; the last row is all at once."""
    names = readings_of(document.measures)
    columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high", "_texts")]
    yield ("attention", "layer", "head", *columns)
    for effect in document.effects:
        yield (effect.attention, effect.layer, effect.head, *_numbers(effect.measures, names))
    yield ("together", None, None, *_numbers(document.together, names))


def _numbers(measures: MeanMeasures, names: Sequence[Reading]) -> Iterator[object]:
    for name in names:
        interval = measures.mean(name)
        yield from (None,) * 4 if interval is None else (interval.mean, interval.low, interval.high, interval.texts)


def _first(document: EffectsDocument) -> Reading:
    return readings_of(document.measures)[0]


def _header(document: EffectsDocument, view: View) -> Lines:
    name = label(document.model.name or document.model.family or document.model.source, ascii=view.ascii)
    top = heading(name, say(view, "effects.texts", document.texts), view)
    return stack((top, *(warning(warning_text, view) for warning_text in document.warnings)))


def _grid(document: EffectsDocument, view: View) -> Lines:
    means = [(effect, effect.measures.mean(_first(document))) for effect in document.effects]
    values = {
        kind: [
            (row.layer, row.head, None if mean is None else mean.mean) for row, mean in means if row.attention == kind
        ]
        for kind in ("self", "cross")
    }
    title = say(view, f"effect.grid.{document.measures[0]}")
    return grids(values, view, title, signed=document.measures[0] == "logprob")


def _heads(document: EffectsDocument, view: View) -> Lines:
    effects_shown = document.effects if view.full else document.effects[: view.top]
    if not effects_shown:
        return Lines()
    intervals = [effect.measures.mean(_first(document)) for effect in effects_shown]
    rows = [
        [short_name(effect), _mean(interval), _ends(interval)]
        for effect, interval in zip(effects_shown, intervals, strict=True)
    ]
    columns = [say(view, "effect.column.head"), say(view, f"effect.column.{document.measures[0]}")]
    body = table(
        [*columns, say(view, "effects.interval")],
        rows,
        view,
        align=["left", "right", "left"],
        title=_title(document, view),
    )
    return stack((body, more_heads_note(document.effects, effects_shown, view)))


def _title(document: EffectsDocument, view: View) -> str:
    link = document.link
    ends = () if link is None else (label(link.query, ascii=view.ascii), label(link.key, ascii=view.ascii))
    return say(view, f"effects.title.{document.by}", subject(document, view), *ends)


def subject(document: EffectsDocument, view: View) -> str:
    """What is measured in every text: a vector, or a prediction."""
    match document.measures[0], document.place:
        case "vector", "mean":
            return say(view, "effect.subject.mean")
        case "vector", "last":
            return say(view, "effects.subject.last")
        case "vector", word:
            return quote_text(word, view)
        case "kl", _:
            return say(view, "effect.subject.kl")
        case _:
            return say(view, "effects.subject.logprob")


def _mean(interval: Interval | None) -> str:
    return "-" if interval is None else number(interval.mean)


def _ends(interval: Interval | None) -> str:
    return (
        "-"
        if interval is None or interval.low is None or interval.high is None
        else f"{number(interval.low)} … {number(interval.high)}"
    )


def effect_sentences(document: EffectsDocument, view: View) -> list[str]:
    """The sentences: the head that matters most on average, whether the next one is set apart from it, and all."""
    means = [(effect, effect.measures.mean(_first(document))) for effect in document.effects]
    known_means = [(effect, mean) for effect, mean in means if mean is not None]
    answer_sentences = []
    if known_means:
        effect, first = known_means[0]
        name = "effects.answer.one" if first.low is None else "effects.answer"
        answer_sentences.append(
            say(view, name, head_phrase(effect, view), number(first.mean), _ends(first), document.texts)
        )
        if len(known_means) > 1 and first.low is not None:
            effect, second = known_means[1]
            apart = second.high is not None and second.high < first.low
            answer_sentences.append(
                say(view, "effects.apart" if apart else "effects.overlap", head_phrase(effect, view))
            )
    together = document.together.mean(_first(document))
    if together is not None:
        ends = "" if together.low is None else f" ({_ends(together)})"
        name = "effects.together" if document.link is None else "effects.together.link"
        answer_sentences.append(say(view, name, f"{number(together.mean)}{ends}"))
    return [capitalize(text) for text in answer_sentences]


def effects_answer(document: EffectsDocument, view: View) -> Lines:
    """What the numbers say."""
    answer_sentences = (*effect_sentences(document, view), not_learned_note(document.model, view))
    return sentences(answer_sentences, view)


# The screen of `attn.difference/1`: how effects of heads differ between two sets of texts, or two models.

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
