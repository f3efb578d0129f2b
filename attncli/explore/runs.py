"""Other runs: another text, another model, words in place of pieces, a token more or less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attncli.explore.frame import Notice
from attncli.explore.held import LoadedRun
from attncli.explore.source import LiveSource, live
from attncli.explore.starting_place import pair_in_head, same_words, strongest_place
from attncli.explore.state import State, at_pair
from attncli.explore.walk import Walk
from attncli.explore.work import Work
from attncli.render.phrases import say


def _move_to(walk: Walk, place: Callable[[State, LoadedRun], State]) -> None:
    """Go to a place of the run that has just come."""
    assert walk.loaded_run is not None
    walk.state = place(walk.state, walk.loaded_run)


def retype(walk: Walk, text: str) -> None:
    """Run another text on the same model."""
    new_source = live(walk.source, say(walk.view, "explore.type.saved")).with_text(text)
    walk.run(new_source, then=lambda: _move_to(walk, pair_in_head))


def switch(walk: Walk, name: str) -> None:
    """Run the text on another model."""
    source, load = live(walk.source, say(walk.view, "explore.type.saved")), walk.load
    assert load is not None

    def job(work: Work) -> Callable[[], None]:
        new_source = LiveSource.of(load(name), source.text)
        return lambda: walk.run(
            new_source, then=lambda: _move_to(walk, lambda state, loaded_run: strongest_place(state, loaded_run, None))
        )

    walk.begin("load", job)


def choose(walk: Walk) -> None:
    """List the models there are."""
    live(walk.source, say(walk.view, "explore.type.saved"))
    walk.names = walk.models() if walk.load is not None else []
    walk.over, walk.state = "models", replace(walk.state, row=0)


def words(walk: Walk, *, then: Callable[[], None] = lambda: None) -> None:
    """Merge pieces to words, or take words apart again. then: what follows at the same words."""
    source = live(walk.source, say(walk.view, "explore.type.saved"))
    before = walk.loaded_run
    assert before is not None
    state = walk.state  # the run may have fewer words than this one has

    def finish() -> None:
        _move_to(
            walk, lambda now, loaded_run: same_words(replace(now, query=state.query, key=state.key), before, loaded_run)
        )
        then()

    walk.run(replace(source, words=not source.words), then=finish)


def longer(walk: Walk) -> None:
    """Let the model add its likeliest token."""
    source = live(walk.source, say(walk.view, "explore.next.saved"))

    def job(work: Work) -> Callable[[], None]:
        new_source = source.longer(work.report)
        return lambda: walk.run(new_source, then=lambda: _at_last(walk))

    walk.begin("next", job)


def shorter(walk: Walk) -> None:
    """Take the last generated token away."""
    source = live(walk.source, say(walk.view, "explore.next.saved"))
    if len(source.tokens) > source.typed_count:
        walk.run(source.shorter, then=lambda: _at_last(walk))
    else:
        walk.notice = Notice(say(walk.view, "explore.previous.none"))


def _at_last(walk: Walk) -> None:
    assert walk.loaded_run is not None
    last = len(walk.loaded_run.queries) - 1
    walk.state = at_pair(walk.state, walk.loaded_run.extent, last, walk.state.key)
