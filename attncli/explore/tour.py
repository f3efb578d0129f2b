"""The tour: stops on the way from a sentence to one weight and what it changes, each with a place and some words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attncli.explore.held import Held
from attncli.explore.state import Focus, Sight, State
from attncli.inputs.text import SAMPLE

FROM, TO = "it", "animal"
"""The link of the sample sentence that the tour is about."""


@dataclass(frozen=True)
class Stop:
    """One stop. name: of its phrase, `explore.tour.…`. step: of the derivation."""

    name: str
    sight: Sight
    focus: Focus
    step: int = 0


STOPS = (
    Stop("sentence", "matrix", "heads"),
    Stop("similarity", "why", "words", 0),
    Stop("scores", "why", "words", 1),
    Stop("softmax", "why", "words", 2),
    Stop("output", "why", "words", 3),
    Stop("heads", "search", "words"),
    Stop("effects", "effects", "words"),
    Stop("end", "matrix", "heads"),
)
"""The five steps of attention (the mask is told with the scores), with what goes before and what follows."""


def begun(state: State, held: Held) -> State:
    """Where the tour begins: at the sample's own link, in the head that has most of it; else where one is."""
    texts = [[token.text.strip().lower() for token in side] for side in (held.queries, held.keys)]
    if held.record.text != SAMPLE or FROM not in texts[0] or TO not in texts[1]:
        return state
    query, key = texts[0].index(FROM), texts[1].index(TO)
    found = held.search(query, key)
    layer, head = found[0][1] if found else (state.layer, state.head)
    return replace(state, query=query, key=key, layer=layer, head=head, turned=False)


def at_stop(state: State, stop: int) -> State:
    """The place of a stop."""
    here = STOPS[stop]
    return replace(state.sees(here.sight), focus=here.focus, step=here.step, top=0, row=0)
