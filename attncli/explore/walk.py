"""The walk: what is explored and looked at, and what each key does to it. Knows no terminal and no Textual."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Literal, Protocol

from attncli.analysis.documents.derivation import AttentionTopic
from attncli.errors import AttnError
from attncli.explore.effects import Effects
from attncli.explore.effects import rows as heads_ranked
from attncli.explore.frame import Notice
from attncli.explore.held import Held
from attncli.explore.search import rows as heads_found
from attncli.explore.source import Source
from attncli.explore.starting_place import strongest_place
from attncli.explore.state import State, at_head, at_pair
from attncli.explore.why import STEPS
from attncli.explore.work import Work
from attncli.models.model import Model
from attncli.render.phrases import say
from attncli.render.view import View

Question = Literal["type", "search", "save"]
"""What is asked in the line at the bottom."""
Over = Literal["help", "models"]
"""What is drawn over the screen."""
Job = Callable[[Work], Callable[[], None]]


class Stage(Protocol):
    """What the walk needs of the screen."""

    def begin(self, name: str, job: Job, failed: Callable[[Exception], None]) -> Work:
        """Work in a thread of its own."""

    def ask(self, question: Question, text: str) -> None:
        """A line to type in, with this in it already."""

    def draw(self) -> None:
        """Draw what is looked at now."""

    def soon(self) -> None:
        """Draw soon, once for all that comes until then."""

    def leave(self, number: int | None = None, failure: Exception | None = None) -> None:
        """End."""


class Walk:
    """One walk through a source.

    models: the names that may be switched to; load: the model of a name. start: where it begins, None for where there
    is something to see; about: the word it is about, then. placed: that it is where somebody wants it; what comes in
    later moves it nowhere.
    """

    def __init__(
        self,
        source: Source,
        view: View,
        stage: Stage,
        *,
        start: State | None = None,
        about: int | None = None,
        models: Callable[[], list[str]] = list,
        load: Callable[[str], Model] | None = None,
    ) -> None:
        self.source, self.view, self.stage = source, view, stage
        self.state = start or State(query=about or 0)
        self.held: Held | None = None
        self.work: Work | None = None
        self.notice = Notice()
        self.over: Over | None = None
        self.names: list[str] = []
        self.effects: Effects | None = None
        self.derivations: dict[tuple[int, int, int], AttentionTopic] = {}
        self.tour: int | None = None
        self.placed, self._about = start is not None, about
        self.models, self.load = models, load
        self.written: str | None = None  # the name of a file that was refused: asked for again, it is written over

    def run(self, source: Source, *, first: bool = False, then: Callable[[], None] = lambda: None) -> None:
        """Run a source; its heads appear as they come. first: whether a failure ends the program."""

        def job(work: Work) -> Callable[[], None]:
            record = source.record(work.told)
            held = Held(record)
            work.post(lambda: self._entered(source, held))
            try:
                for head in record.heads:
                    work.told(work.share)
                    work.post(lambda head=head: self._take(held, head, work))  # type: ignore[misc]
            finally:  # a run that is stopped lets its layer go
                if isinstance(record.heads, Generator):
                    record.heads.close()
            return lambda: self._finished(held, then)

        self.begin("run", job, first=first)

    def begin(self, name: str, job: Job, *, first: bool = False) -> None:
        """Work that is told of in the header; what went on before is stopped."""
        self.stop()

        def failed(error: Exception) -> None:
            self.work = None
            if first or not isinstance(error, AttnError):
                self.stage.leave(failure=error)
            else:
                self.tell(f"{error.what}; {error.expected}" if error.expected else error.what)

        self.work = self.stage.begin(say(self.view, f"explore.work.{name}"), job, failed)

    def done(self, act: Callable[[], None]) -> Callable[[], None]:
        """What a job returns: the work is over, something is taken in, and it is drawn."""

        def ended() -> None:
            self.work = None
            act()
            self.stage.draw()

        return ended

    def stop(self) -> bool:
        """Stop what is going on; whether something was."""
        if self.work is None:
            return False
        self.work.cancel()
        self.work = None
        return True

    def _entered(self, source: Source, held: Held) -> None:
        self.source, self.held = source, held
        self.effects, self.derivations = None, {}
        self.state = at_pair(self.state, held.extent, self.state.query, self.state.key)
        if self.state.sight in ("why", "effects"):
            self.state = self.state.sees("matrix")
        self.stage.draw()

    def _take(self, held: Held, head: object, work: Work) -> None:
        from attncli.analysis.records.head import HeadRecord

        assert isinstance(head, HeadRecord)
        held.add(head)
        held.share = work.share
        if held is self.held:
            self.stage.soon()

    def _finished(self, held: Held, then: Callable[[], None]) -> None:
        held.share, self.work = 1.0, None
        if not self.placed:
            self.placed = True
            self.state = strongest_place(self.state, held, self._about)
        if not held.extent.has(self.state.layer, self.state.head):
            self.state = at_head(self.state, held.extent, self.state.layer, self.state.head)
        then()
        self.stage.draw()

    def tell(self, said: str) -> None:
        """A line in place of the answer, until the next key."""
        self.notice = Notice(said)
        self.stage.draw()

    def follow(self) -> None:
        """What moving needs: the head of the chosen row, the derivation of the chosen weight."""
        assert self.held is not None
        state = self.state
        if state.sight in ("search", "effects") and state.focus == "words":
            found = heads_found(state, self.held) if state.sight == "search" else heads_ranked(self.effects)
            if found:
                row = min(state.row, len(found) - 1)
                self.state = replace(state, row=row, layer=found[row].layer, head=found[row].head)
        if state.sight == "why":
            self.state = replace(self.state, step=min(state.step, len(STEPS) - 1))
            self._derive()

    def at(self, layer: int, head: int) -> None:
        """Look at this head."""
        if self.held is not None:
            self.state = replace(at_head(self.state, self.held.extent, layer, head), focus="heads")
            self.follow()

    def pair(self, query: int, key: int) -> None:
        """Look at this pair of words."""
        if self.held is not None:
            self.state = replace(at_pair(self.state, self.held.extent, query, key), focus="words")
            self.follow()

    def word(self, index: int, *, turned: bool) -> None:
        """Look at what this word looks at, or, turned, at who looks at it."""
        if self.held is not None:
            query, key = (self.state.query, index) if turned else (index, self.state.key)
            self.state = replace(at_pair(self.state, self.held.extent, query, key), turned=turned)
            self.follow()

    @property
    def derivation(self) -> AttentionTopic | None:
        """The derivation of the chosen weight, if it is there."""
        return self.derivations.get((self.state.layer, self.state.head, self.state.query))

    def _derive(self) -> None:
        """Have the chosen weight derived, unless it is."""
        source = self.source
        asked = (self.state.layer, self.state.head, self.state.query)
        if asked in self.derivations:
            return

        def job(work: Work) -> Callable[[], None]:
            found = source.derivation(*asked)
            return self.done(lambda: self.derivations.update({asked: found}))

        self.begin("why", job)
