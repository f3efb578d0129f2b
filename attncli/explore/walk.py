"""The walk: what is explored and looked at, and what each key does to it. Knows no terminal and no Textual."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Literal, Protocol

from attncli.analysis.documents.derivation import AttentionTopic
from attncli.errors import AttnError
from attncli.explore.effects import HeadEffects
from attncli.explore.effects import effect_rows as heads_ranked
from attncli.explore.frame import Notice
from attncli.explore.held import LoadedRun
from attncli.explore.search import search_rows as heads_found
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
WalkJob = Callable[[Work], Callable[[], None]]


class WalkStage(Protocol):
    """What the walk needs of the screen."""

    def begin(self, name: str, job: WalkJob, on_error: Callable[[Exception], None]) -> Work:
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
    is something to see; about: the word it is about, then. is_placed: that it is where somebody wants it; what comes in
    later moves it nowhere.
    """

    def __init__(
        self,
        source: Source,
        view: View,
        stage: WalkStage,
        *,
        start: State | None = None,
        about: int | None = None,
        models: Callable[[], list[str]] = list,
        load: Callable[[str], Model] | None = None,
    ) -> None:
        self.source, self.view, self.stage = source, view, stage
        self.state = start or State(query=about or 0)
        self.loaded_run: LoadedRun | None = None
        self.work: Work | None = None
        self.notice = Notice()
        self.over: Over | None = None
        self.names: list[str] = []
        self.effects: HeadEffects | None = None
        self.derivations: dict[tuple[int, int, int], AttentionTopic] = {}
        self.tour: int | None = None
        self.has_merged_words = False  # before the tour, which is about tokens
        self.is_placed, self._about = start is not None, about
        self.models, self.load = models, load
        self.refused_name: str | None = None  # the name of a file that was refused: asked for again, it is written over

    def run(self, source: Source, *, first: bool = False, then: Callable[[], None] = lambda: None) -> None:
        """Run a source; its heads appear as they come. first: whether a failure ends the program."""

        def job(work: Work) -> Callable[[], None]:
            record = source.record(work.report)
            loaded_run = LoadedRun(record)
            work.post(lambda: self._enter(source, loaded_run))
            try:
                for head in record.heads:
                    work.report(work.share)
                    work.post(lambda head=head: self._take(loaded_run, head, work))  # type: ignore[misc]
            finally:  # a run that is stopped lets its layer go
                if isinstance(record.heads, Generator):
                    record.heads.close()
            return lambda: self._finish(loaded_run, then)

        self.begin("run", job, first=first)

    def begin(self, name: str, job: WalkJob, *, first: bool = False) -> None:
        """Work that is told of in the header; what went on before is stopped."""
        self.stop()

        def on_error(error: Exception) -> None:
            self.work = None
            if first or not isinstance(error, AttnError):
                self.stage.leave(failure=error)
            else:
                self.show_message(f"{error.what}; {error.expected}" if error.expected else error.what)

        self.work = self.stage.begin(say(self.view, f"explore.work.{name}"), job, on_error)

    def when_done(self, act: Callable[[], None]) -> Callable[[], None]:
        """What a job returns: the work is over, something is taken in, and it is drawn."""

        def finish() -> None:
            self.work = None
            act()
            self.stage.draw()

        return finish

    def stop(self) -> bool:
        """Stop what is going on; whether something was."""
        if self.work is None:
            return False
        self.work.cancel()
        self.work = None
        return True

    def _enter(self, source: Source, loaded_run: LoadedRun) -> None:
        self.source, self.loaded_run = source, loaded_run
        self.effects, self.derivations = None, {}
        self.state = at_pair(self.state, loaded_run.extent, self.state.query, self.state.key)
        if self.state.sight in ("why", "effects"):
            self.state = self.state.sees("matrix")
        self.stage.draw()

    def _take(self, loaded_run: LoadedRun, head: object, work: Work) -> None:
        from attncli.analysis.records.head import HeadRecord

        assert isinstance(head, HeadRecord)
        loaded_run.add(head)
        loaded_run.share = work.share
        if loaded_run is self.loaded_run:
            self.stage.soon()

    def _finish(self, loaded_run: LoadedRun, then: Callable[[], None]) -> None:
        loaded_run.share, self.work = 1.0, None
        if not self.is_placed:
            self.is_placed = True
            self.state = strongest_place(self.state, loaded_run, self._about)
        if not loaded_run.extent.has(self.state.layer, self.state.head):
            self.state = at_head(self.state, loaded_run.extent, self.state.layer, self.state.head)
        then()
        self.stage.draw()

    def show_message(self, message: str) -> None:
        """A line in place of the answer, until the next key."""
        self.notice = Notice(message)
        self.stage.draw()

    def follow(self) -> None:
        """What moving needs: the head of the chosen row, the derivation of the chosen weight."""
        assert self.loaded_run is not None
        state = self.state
        if state.sight in ("search", "effects") and state.focus == "words":
            ranking_rows = (
                heads_found(state, self.loaded_run) if state.sight == "search" else heads_ranked(self.effects)
            )
            if ranking_rows:
                row = min(state.row, len(ranking_rows) - 1)
                self.state = replace(state, row=row, layer=ranking_rows[row].layer, head=ranking_rows[row].head)
        if state.sight == "why":
            self.state = replace(self.state, step=min(state.step, len(STEPS) - 1))
            self._derive()

    def go_to_head(self, layer: int, head: int) -> None:
        """Look at this head."""
        if self.loaded_run is not None:
            self.state = replace(at_head(self.state, self.loaded_run.extent, layer, head), focus="heads")
            self.follow()

    def pair(self, query: int, key: int) -> None:
        """Look at this pair of words."""
        if self.loaded_run is not None:
            self.state = replace(at_pair(self.state, self.loaded_run.extent, query, key), focus="words")
            self.follow()

    def word(self, index: int, *, is_turned: bool) -> None:
        """Look at what this word looks at, or, turned, at who looks at it."""
        if self.loaded_run is not None:
            query, key = (self.state.query, index) if is_turned else (index, self.state.key)
            self.state = replace(at_pair(self.state, self.loaded_run.extent, query, key), is_turned=is_turned)
            self.follow()

    @property
    def derivation(self) -> AttentionTopic | None:
        """The derivation of the chosen weight, if it is there."""
        return self.derivations.get((self.state.layer, self.state.head, self.state.query))

    def _derive(self) -> None:
        """Have the chosen weight derived, unless it is."""
        source = self.source
        place = (self.state.layer, self.state.head, self.state.query)
        if place in self.derivations:
            return

        def job(work: Work) -> Callable[[], None]:
            derivation = source.derivation(*place)
            return self.when_done(lambda: self.derivations.update({place: derivation}))

        self.begin("why", job)
