"""Effects: what changes in the chosen word when heads are taken away, or the chosen link is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attncli.analysis.documents.ablate import AblateDocument, EffectRow
from attncli.explore.held import Held, Pair
from attncli.explore.pane import Pane, sized, stacked
from attncli.explore.ranking import Ranked, ranking
from attncli.explore.search import link_name
from attncli.explore.state import State
from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.screens.effect_answer import number
from attncli.render.view import View


@dataclass(frozen=True, eq=False)
class Effects:
    """What was asked for and found. place, query, key: the head, the word and the link asked about.

    head: that head taken away; cut: the link cut in it; every: each head taken away, None where that was not asked.
    """

    place: Pair
    query: int
    key: int
    head: AblateDocument | None = None
    cut: AblateDocument | None = None
    every: AblateDocument | None = None


def turned(row: EffectRow) -> float:
    """How far the word's last vector turns: 1 − cosine; 0 where it is undefined."""
    return getattr(row.vector, "cosine", None) or 0.0


def values(found: Effects | None) -> dict[Pair, float | None] | None:
    """The effect of every head, by which the grid is coloured; None where not all were taken away."""
    if found is None or found.every is None:
        return None
    return {(row.layer, row.head): turned(row) for row in found.every.effects if row.attention == "self"}


def rows(found: Effects | None) -> list[Ranked]:
    """The ranking of all heads, the largest effect first."""
    if found is None or found.every is None:
        return []
    every = [row for row in found.every.effects if row.attention == "self"]
    most = max((turned(row) for row in every), default=0.0)
    return [
        Ranked(
            row.layer,
            row.head,
            turned(row) / most if most else 0.0,
            number(turned(row)) if turned(row) else "0",
            _baseline(row),
        )
        for row in every
    ]


def _baseline(row: EffectRow) -> str:
    """What a random change of the size of the row's own turns the word by, for the rows that have it drawn."""
    cosine = None if row.random is None else getattr(row.random.vector, "cosine", None)
    return "" if cosine is None else number(cosine)


def effects(state: State, held: Held, found: Effects | None, view: View, width: int, height: int) -> Pane:
    """What was found, in words; then all heads, if they were asked for."""
    close = replace(view, width=width)
    if found is None:
        return sized(Pane.of(remark(say(view, "explore.effects.none"), close)), width, height)
    told = _told(replace(state, query=found.query, key=found.key), held, found, close)
    ranked = rows(found)
    if not ranked:
        return sized(Pane.of(told), width, height, ascii=view.ascii)
    above = Pane.of(stack((told, Lines(((),)))))
    listed = ranking(ranked, min(state.row, len(ranked) - 1), view, width, max(height - above.height, 1))
    return sized(stacked((above, listed)), width, height, ascii=view.ascii)


def _told(state: State, held: Held, found: Effects, view: View) -> Lines:
    word = link_name(state, held, view).partition(" -> " if view.ascii else " → ")[0]
    head = say(view, "explore.head", *found.place)
    parts = []
    if found.head is not None and found.head.effects:
        row = found.head.effects[0]
        parts.append(say(view, "explore.effects.head", head, word, number(turned(row))))
        if _baseline(row):
            parts.append(say(view, "explore.effects.random", _baseline(row)))
    if found.cut is not None and found.cut.effects:
        cut = turned(found.cut.effects[0])
        parts.append(say(view, "explore.effects.cut", link_name(state, held, view), number(cut)))
    if found.every is not None:
        parts = [say(view, "explore.effects.every", word), *parts]
        parts.append(say(view, "explore.effects.column"))
        parts.append(say(view, "effect.sum"))
        return remark(say(view, "sentences").join(parts), view, style="")
    parts.append(say(view, "explore.effects.more"))
    return stack(remark(part, view, style="") for part in parts)
