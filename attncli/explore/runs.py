"""Other runs: another text, another model, words in place of pieces, a token more or less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attncli.explore.frame import Notice
from attncli.explore.source import Live, live
from attncli.explore.state import at_pair
from attncli.explore.walk import Walk
from attncli.explore.work import Work
from attncli.render.phrases import say


def retype(walk: Walk, text: str) -> None:
    """Run another text on the same model."""
    walk.run(live(walk.source, say(walk.view, "explore.type.saved")).retold(text))


def switch(walk: Walk, name: str) -> None:
    """Run the text on another model."""
    source, load = live(walk.source, say(walk.view, "explore.type.saved")), walk.load
    assert load is not None

    def job(work: Work) -> Callable[[], None]:
        made = Live.of(load(name), source.text)
        return lambda: walk.run(made)

    walk.begin("load", job)


def choose(walk: Walk) -> None:
    """List the models there are."""
    live(walk.source, say(walk.view, "explore.type.saved"))
    walk.names = walk.models() if walk.load is not None else []
    walk.over, walk.state = "models", replace(walk.state, row=0)


def words(walk: Walk) -> None:
    """Merge pieces to words, or take words apart again."""
    source = live(walk.source, say(walk.view, "explore.type.saved"))
    walk.run(replace(source, words=not source.words))


def longer(walk: Walk) -> None:
    """Let the model add its likeliest token."""
    source = live(walk.source, say(walk.view, "explore.next.saved"))

    def job(work: Work) -> Callable[[], None]:
        made = source.longer(work.told)
        return lambda: walk.run(made, then=lambda: _at_last(walk))

    walk.begin("next", job)


def shorter(walk: Walk) -> None:
    """Take the last generated token away."""
    source = live(walk.source, say(walk.view, "explore.next.saved"))
    if len(source.tokens) > source.typed:
        walk.run(source.shorter, then=lambda: _at_last(walk))
    else:
        walk.notice = Notice(say(walk.view, "explore.previous.none"))


def _at_last(walk: Walk) -> None:
    assert walk.held is not None
    last = len(walk.held.queries) - 1
    walk.state = at_pair(walk.state, walk.held.extent, last, walk.state.key)
