"""The tour: stops on the way from a sentence to one weight and what it changes, each with a place and some words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attncli.explore.held import LoadedRun
from attncli.explore.state import Focus, SightName, State
from attncli.explore.why import step_title
from attncli.inputs.text import SAMPLE
from attncli.render.phrases import say
from attncli.render.view import View

FROM, TO = "it", "animal"
"""The link of the sample sentence that the tour is about."""


@dataclass(frozen=True)
class Stop:
    """One stop. name: of its phrase, `explore.tour.…`. step: of the derivation."""

    name: str
    sight: SightName
    focus: Focus
    step: int = 0


STOPS = (
    Stop("sentence", "matrix", "heads"),
    Stop("similarity", "why", "words", 0),
    Stop("scaled", "why", "words", 1),
    Stop("masked", "why", "words", 2),
    Stop("softmax", "why", "words", 3),
    Stop("output", "why", "words", 4),
    Stop("matrices", "why", "words", 5),
    Stop("heads", "search", "words"),
    Stop("effects", "effects", "words"),
    Stop("end", "matrix", "heads"),
)
"""The five steps of attention, with what goes before and what follows."""


def begin_tour(state: State, loaded_run: LoadedRun) -> State:
    """Where the tour begins: at the sample's own link, in the head with most of it; elsewhere where one is."""
    texts = [[token.text.strip().lower() for token in side] for side in (loaded_run.queries, loaded_run.keys)]
    if loaded_run.record.text != SAMPLE or FROM not in texts[0] or TO not in texts[1]:
        return replace(state, is_turned=False)
    query, key = texts[0].index(FROM), texts[1].index(TO)
    matches = loaded_run.search(query, key)
    layer, head = matches[0][1] if matches else (state.layer, state.head)
    return replace(state, query=query, key=key, layer=layer, head=head, is_turned=False)


def at_stop(state: State, stop: int) -> State:
    """The place of a stop."""
    here = STOPS[stop]
    return replace(state.sees(here.sight), focus=here.focus, step=here.step, top=0, row=0, subtracted_head=None)


def stop_in_sight(state: State, stop: int) -> int | None:
    """The stop that tells of what is looked at now; None where the tour has no words for it."""
    same = [
        number
        for number, tour_stop in enumerate(STOPS)
        if tour_stop.sight == state.sight and (tour_stop.step == state.step)
    ]
    return stop if stop in same else min(same, key=lambda number: abs(number - stop), default=None)


def caption(state: State, stop: int, view: View) -> str:
    """The words of a stop; a step of the derivation has the number that its title has. The colours of the heads and the
    tint of the sentence are told as they are now."""
    name = STOPS[stop].name
    if name == "sentence":
        side = "turned" if state.is_turned else "looks"
        colour = f"explore.tour.colour.{side}" if state.measure == "word" else f"explore.measure.{state.measure}"
        text = say(view, f"explore.tour.sentence.{side}", say(view, colour))
    else:
        text = say(view, f"explore.tour.{name}")
    title = f"{step_title(state, view)} · " if STOPS[stop].sight == "why" else ""
    return f"{title}{text}"
