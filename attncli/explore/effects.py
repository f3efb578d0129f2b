"""Effects: what changes in the chosen word when heads are taken away, or the chosen link is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attncli.analysis.documents.ablate import AblateDocument, EffectRow
from attncli.explore.held import LoadedRun, Pair
from attncli.explore.pane import Pane, fit_pane, stack_panes
from attncli.explore.ranking import RankingRow, ranking
from attncli.explore.search import link_name
from attncli.explore.state import State
from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.screens.effect_answer import number
from attncli.render.view import View


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """What was asked for and found. place, query, key: the head, the word and the link asked about.

    head: that head taken away; cut_document: the link cut in it; every: each head taken away, None where that was
    not asked.
    """

    place: Pair
    query: int
    key: int
    head: AblateDocument | None = None
    cut_document: AblateDocument | None = None
    every: AblateDocument | None = None


def cosine_of(row: EffectRow) -> float:
    """How far the word's last vector turns: 1 − cosine; 0 where it is undefined."""
    return getattr(row.vector, "cosine", None) or 0.0


def values(head_effects: HeadEffects | None) -> dict[Pair, float | None] | None:
    """The effect of every head, by which the grid is coloured; None where not all were taken away."""
    if head_effects is None or head_effects.every is None:
        return None
    return {(row.layer, row.head): cosine_of(row) for row in head_effects.every.effects if row.attention == "self"}


def effect_rows(head_effects: HeadEffects | None) -> list[RankingRow]:
    """The ranking of all heads, the largest effect first."""
    if head_effects is None or head_effects.every is None:
        return []
    every = [row for row in head_effects.every.effects if row.attention == "self"]
    most = max((cosine_of(row) for row in every), default=0.0)
    return [
        RankingRow(
            row.layer,
            row.head,
            cosine_of(row) / most if most else 0.0,
            number(cosine_of(row)) if cosine_of(row) else "0",
            _baseline(row),
        )
        for row in every
    ]


def _baseline(row: EffectRow) -> str:
    """What a random change of the size of the row's own turns the word by, for the rows that have it drawn."""
    cosine = None if row.random is None else getattr(row.random.vector, "cosine", None)
    return "" if cosine is None else number(cosine)


def effects(
    state: State, loaded_run: LoadedRun, head_effects: HeadEffects | None, view: View, width: int, height: int
) -> Pane:
    """What was found, in words; then all heads, if they were asked for."""
    close = replace(view, width=width)
    if head_effects is None:
        return fit_pane(Pane.of(remark(say(view, "explore.effects.none"), close)), width, height)
    text_lines = _effects_text(
        replace(state, query=head_effects.query, key=head_effects.key), loaded_run, head_effects, close
    )
    ranking_rows = effect_rows(head_effects)
    if not ranking_rows:
        return fit_pane(Pane.of(text_lines), width, height, ascii=view.ascii)
    above = Pane.of(stack((text_lines, Lines(((),)))))
    list_pane = ranking(ranking_rows, min(state.row, len(ranking_rows) - 1), view, width, max(height - above.height, 1))
    return fit_pane(stack_panes((above, list_pane)), width, height, ascii=view.ascii)


def _effects_text(state: State, loaded_run: LoadedRun, head_effects: HeadEffects, view: View) -> Lines:
    word = link_name(state, loaded_run, view).partition(" -> " if view.ascii else " → ")[0]
    head = say(view, "explore.head", *head_effects.place)
    parts = []
    if head_effects.head is not None and head_effects.head.effects:
        row = head_effects.head.effects[0]
        parts.append(say(view, "explore.effects.head", head, word, number(cosine_of(row))))
        if _baseline(row):
            parts.append(say(view, "explore.effects.random", _baseline(row)))
    if head_effects.cut_document is not None and head_effects.cut_document.effects:
        cut_size = cosine_of(head_effects.cut_document.effects[0])
        parts.append(say(view, "explore.effects.cut", link_name(state, loaded_run, view), number(cut_size)))
    if head_effects.every is not None:
        parts = [say(view, "explore.effects.every", word), *parts]
        parts.append(say(view, "explore.effects.column"))
        parts.append(say(view, "effect.sum"))
        return remark(say(view, "sentences").join(parts), view, style="")
    parts.append(say(view, "explore.effects.more"))
    return stack(remark(part, view, style="") for part in parts)
