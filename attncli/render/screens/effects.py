"""The screen of `attn.effects/1`: what taking heads away changes, over many texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attncli.analysis.documents.effects import readings_of
from attncli.render.headings import heading, sentences
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.safe import label
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens.effect_answer import begun, named, number
from attncli.render.screens.effect_parts import grids, in_parts, left_over, short_name
from attncli.render.screens.header import warning
from attncli.render.screens.sentence_answer import not_learned
from attncli.render.tables import table
from attncli.render.token_names import quoted
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.effects import EffectsDocument, Interval, MeanMeasures, Reading


PARTS = PARTS_OF["effects"]
"""Every part, in the order of the screen."""


def effects_screen(document: EffectsDocument, view: View) -> Lines:
    """The whole screen of an `attn.effects/1` document: `view.top` heads."""
    drawn = dict(zip(PARTS, (_header, _grid, _heads, effects_answer), strict=True))
    return in_parts(drawn, document, view)


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
        found = measures.mean(name)
        yield from (None,) * 4 if found is None else (found.mean, found.low, found.high, found.texts)


def _first(document: EffectsDocument) -> Reading:
    return readings_of(document.measures)[0]


def _header(document: EffectsDocument, view: View) -> Lines:
    name = label(document.model.name or document.model.family or document.model.source, ascii=view.ascii)
    top = heading(name, say(view, "effects.texts", document.texts), view)
    return stack((top, *(warning(said, view) for said in document.warnings)))


def _grid(document: EffectsDocument, view: View) -> Lines:
    found = [(effect, effect.measures.mean(_first(document))) for effect in document.effects]
    values = {
        kind: [
            (row.layer, row.head, None if mean is None else mean.mean) for row, mean in found if row.attention == kind
        ]
        for kind in ("self", "cross")
    }
    title = say(view, f"effect.grid.{document.measures[0]}")
    return grids(values, view, title, signed=document.measures[0] == "logprob")


def _heads(document: EffectsDocument, view: View) -> Lines:
    shown = document.effects if view.full else document.effects[: view.top]
    if not shown:
        return Lines()
    found = [effect.measures.mean(_first(document)) for effect in shown]
    rows = [[short_name(effect), _mean(one), _ends(one)] for effect, one in zip(shown, found, strict=True)]
    columns = [say(view, "effect.column.head"), say(view, f"effect.column.{document.measures[0]}")]
    body = table(
        [*columns, say(view, "effects.interval")],
        rows,
        view,
        align=["left", "right", "left"],
        title=_title(document, view),
    )
    return stack((body, left_over(document.effects, shown, view)))


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
            return quoted(word, view)
        case "kl", _:
            return say(view, "effect.subject.kl")
        case _:
            return say(view, "effects.subject.logprob")


def _mean(found: Interval | None) -> str:
    return "-" if found is None else number(found.mean)


def _ends(found: Interval | None) -> str:
    return (
        "-"
        if found is None or found.low is None or found.high is None
        else f"{number(found.low)} … {number(found.high)}"
    )


def told(document: EffectsDocument, view: View) -> list[str]:
    """The sentences: the head that matters most on average, whether the next one is set apart from it, and all."""
    means = [(effect, effect.measures.mean(_first(document))) for effect in document.effects]
    known = [(effect, mean) for effect, mean in means if mean is not None]
    said = []
    if known:
        effect, first = known[0]
        name = "effects.answer.one" if first.low is None else "effects.answer"
        said.append(say(view, name, named(effect, view), number(first.mean), _ends(first), document.texts))
        if len(known) > 1 and first.low is not None:
            effect, second = known[1]
            apart = second.high is not None and second.high < first.low
            said.append(say(view, "effects.apart" if apart else "effects.overlap", named(effect, view)))
    together = document.together.mean(_first(document))
    if together is not None:
        ends = "" if together.low is None else f" ({_ends(together)})"
        name = "effects.together" if document.link is None else "effects.together.link"
        said.append(say(view, name, f"{number(together.mean)}{ends}"))
    return [begun(one) for one in said]


def effects_answer(document: EffectsDocument, view: View) -> Lines:
    """What the numbers say."""
    said = (*told(document, view), not_learned(document.model, view))
    return sentences(said, view)
