"""Of the chosen weight: its derivation, and what it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attncli.errors import AttnError
from attncli.explore.effects import HeadEffects
from attncli.explore.source import live
from attncli.explore.walk import Walk
from attncli.explore.work import Work
from attncli.render.phrases import say


def why(walk: Walk) -> None:
    """Derive the chosen weight."""
    before = walk.state
    walk.state = replace(walk.state.sees("why"), focus="words")
    try:
        walk.follow()
    except AttnError:
        walk.state = before
        raise


def effect(walk: Walk) -> None:
    """Take the chosen head away and cut the chosen link; asked again, take every head away."""
    source = live(walk.source, say(walk.view, "explore.effects.saved"))
    state, before = walk.state, walk.effects
    place = (state.layer, state.head)
    new_effects = HeadEffects(place, state.query, state.key)
    again = state.sight == "effects" and before is not None and before.query == state.query
    earlier_effects = before.every if before is not None and before.query == state.query else None
    walk.state = state.sees("effects")

    def job(work: Work) -> Callable[[], None]:
        head = source.effects(state.query, place, None, work.report)
        try:
            cut_document = source.effects(state.query, place, (state.query, state.key), work.report)
        except AttnError:  # a link that the mask hides
            cut_document = None
        every = source.effects(state.query, None, None, work.report) if again else earlier_effects
        filled_effects = replace(new_effects, head=head, cut_document=cut_document, every=every)

        def take() -> None:
            walk.effects = filled_effects
            walk.follow()

        return walk.when_done(take)

    walk.begin("effects", job)
