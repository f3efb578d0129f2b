"""The walk: what is explored, what takes time in a thread of its own, and the tour. Knows no
terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from threading import Event, Thread
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from attncli.draw.tour import STEP, TourStep, step_title
from attncli.draw.view import View
from attncli.errors import AttnError
from attncli.explore.frame import Notice
from attncli.explore.head_grid import MEASURE_NAMES
from attncli.explore.loaded_run import LoadedRun, Source, strongest_place
from attncli.explore.panels import STEPS, HeadEffects, effect_rows, part_title, search_rows
from attncli.explore.state import Focus, SightName, State, at_head, at_pair
from attncli.features.explain.document import AttentionTopic
from attncli.features.why.document import WhyDocument
from attncli.inputs.token import SAMPLE
from attncli.language import Message, listing, message, say, say_each, translate
from attncli.measure.head_record import HeadRecord
from attncli.models.model import Model

# Work: what takes time, in a thread of its own, so that keys are heard; one piece at a time, and
# each can be stopped.

Post = Callable[[Callable[[], None]], None]
"""Has the function that it is given called soon in the thread of the screen."""
WalkJob: TypeAlias = "Callable[[Work], Callable[[], None]]"
"""What a piece of work does in a thread of its own; it returns a function, which the thread of the
screen calls at its end.
"""


class WorkCancelled(BaseException):
    """Raised in a job that was cancelled; it is no Exception, so that nothing on the way takes it
    for a failure.
    """


class Work:
    """One piece of work in a thread of its own, which can be cancelled.

    name: as shown on the screen.
    share: how much of the work is done, 0 to 1.
    """

    def __init__(
        self, post: Post, job: WalkJob, *, name: str, on_error: Callable[[Exception], None]
    ) -> None:
        """Work whose thread is not started yet.

        post: has a function called in the thread of the screen.
        job: called with this object in the new thread. It calls `report` from time to time, which
            raises `WorkCancelled` where the job is to stop.
        name: as shown on the screen.
        on_error: called in the thread of the screen with the error that ended the job.
        """
        self.name = name
        self.share = 0.0
        self._post = post
        self._job = job
        self._on_error = on_error
        self._stop = Event()
        # a daemon thread does not keep the program from ending: reading a large file, for one,
        # cannot be interrupted
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Work:
        """Start the thread of this work. Returns itself."""
        self._thread.start()
        return self

    def cancel(self) -> None:
        """Ask the job to stop: its next `report` raises WorkCancelled, and nothing that it posted
        is done any more.
        """
        self._stop.set()

    @property
    def is_cancelled(self) -> bool:
        """Whether this work is to stop."""
        return self._stop.is_set()

    def report(self, share: float) -> None:
        """Note the share of this work that is done, 0 to 1. Raises WorkCancelled where it is to
        stop.
        """
        if self.is_cancelled:
            raise WorkCancelled
        self.share = share

    def post(self, act: Callable[[], None]) -> None:
        """Have `act` called in the thread of the screen, unless this work is cancelled by then."""

        def act_unless_cancelled() -> None:
            """Call `act`, unless this work was cancelled since."""
            if not self.is_cancelled:
                act()

        self._post(act_unless_cancelled)

    def wait(self, seconds: float) -> None:
        """Wait for the end of this work, at most so many seconds."""
        self._thread.join(seconds)

    def _run(self) -> None:
        """Do the job in this thread, and post the function that it returns, or the error that it
        raises."""
        try:
            finish = self._job(self)
        except WorkCancelled:
            return
        except Exception as error:
            self.post(partial(self._on_error, error))
        else:
            self.post(finish)


Question = Literal["type", "search", "save"]
QUESTIONS: dict[Question, Message] = {
    "type": message("a new text"),
    "search": message("from → to"),
    "save": message("a file ending in .json, .svg, .png, .pdf or .html"),
}
"""What the line to type in asks for."""
WORK = {
    "run": message("running"),
    "why": message("deriving"),
    "effects": message("taking heads away"),
    "parts": message("taking the score apart"),
    "load": message("loading"),
    "next": message("generating"),
    "save": message("saving"),
}
"""What is said while work of this kind goes on."""
Over = Literal["help", "models"]
"""What is drawn over the screen."""
K = TypeVar("K")
V = TypeVar("V")


class WalkStage(Protocol):
    """What the walk needs of the screen that it is shown on."""

    def begin(self, name: str, job: WalkJob, on_error: Callable[[Exception], None]) -> Work:
        """Start a job in a thread of its own; returns its work, which may be cancelled. The
        arguments are those of `Work`."""

    def ask(self, question: Question, text: str) -> None:
        """Open a line to type in, with `text` in it already.

        question: what the answer is for: "type" for a text to run, "search" for a link, "save" for
            the name of a file.
        """

    def draw(self) -> None:
        """Draw what is looked at now."""

    def draw_soon(self) -> None:
        """Draw a moment later, once for all calls until then."""

    def leave(self, number: int | None = None, failure: Exception | None = None) -> None:
        """End the walk.

        number: of the signal that asked for it.
        failure: what ended it, if something went wrong.
        """


class Walk:
    """One walk through a source: what is looked at, what is known of it, and what is computed.

    It is used in the thread of the screen alone.

    loaded_run: what is known of the run in sight; None before the first has begun.
    work: the work in progress, None for none.
    over: what is drawn over the screen, None for nothing.
    names: the models in the list drawn over the screen.
    tour: the number of the tour's stop, None outside the tour.
    is_placed: whether the state was chosen, by `start` or by a key: then the end of a run leaves it
        as it is.
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
        """A walk that has not begun.

        stage: the screen that it is shown on.
        start: the state that it begins with; None to begin at a strong link.
        about: the position of the word whose strongest link it then begins at; None for any word.
        models: gives the names of the models that may be switched to.
        load: loads the model of a name; None where models cannot be switched.
        """
        # what is looked at; without a word asked about, the first one
        self.source = source
        self.view = view
        self.stage = stage
        self.state = start or State(query=about or 0)
        self.is_placed = start is not None
        self._about = about  # the word at whose strongest link the walk begins, by its position

        # the run in sight, and the work in the background
        self.loaded_run: LoadedRun | None = None
        self.work: Work | None = None
        self.notice = Notice()

        # what is drawn over the screen; of the list of models, their names
        self.over: Over | None = None
        self.names: list[str] = []

        # what was computed on request, kept for this run
        self.effects: HeadEffects | None = None
        self.derivations: dict[tuple[int, int, int], AttentionTopic] = {}  # layer, head, query
        self.explanations: dict[tuple[int, int, int, int], WhyDocument] = {}  # and key

        # the tour: its stop, None outside it, and whether it, which is about tokens, has split the
        # merged words
        self.tour: int | None = None
        self.has_merged_words = False

        # models that may be switched to
        self.models = models
        self.load = load
        # the name of a file that was refused: if it is given once more, the file is written over
        self.refused_name: str | None = None

    def run(
        self, source: Source, *, first: bool = False, then: Callable[[], None] = lambda: None
    ) -> None:
        """Run a source in the background; its heads appear as they are computed.

        first: whether nothing was shown yet, so that any error ends the program.
        then: called when all heads are there.
        """

        def read_heads(work: Work) -> Callable[[], None]:
            """Run the source head by head, and post each to the screen; returns the function that
            ends the run."""
            record = source.record(work.report)
            loaded_run = LoadedRun(record, source.rules)
            work.post(lambda: self._enter(source, loaded_run))
            try:
                for head in record.heads:
                    work.report(work.share)  # raises where the run is to stop
                    work.post(partial(self._add_head, loaded_run, head, work))
            finally:  # a run that is cancelled lets go of the layer that it holds
                # (an iterator over the heads of a saved file is no generator, and holds none)
                if isinstance(record.heads, Generator):
                    record.heads.close()
            return lambda: self._finish(loaded_run, then)

        self.begin("run", read_heads, first=first)

    def begin(self, name: str, job: WalkJob, *, first: bool = False) -> None:
        """Start a job in the background, after cancelling the one in progress; its name is shown in
        the header.

        name: a key of `WORK`.
        first: whether nothing was shown yet, so that any error ends the program.
        """
        self.stop()

        def on_error(error: Exception) -> None:
            """Show an error of the user's on the screen; any other error, or one of the first run,
            ends the program.
            """
            self.work = None
            if first or not isinstance(error, AttnError):
                self.stage.leave(failure=error)
            else:
                self.show_message(error_text(error, self.view))

        self.work = self.stage.begin(say(self.view, WORK[name]), job, on_error)

    def finish_with(self, act: Callable[[], None]) -> Callable[[], None]:
        """Wrap `act` as the function that a job returns: it marks the work as over, calls `act`,
        and draws the screen."""

        def finish() -> None:
            """End the work, call `act`, and draw."""
            self.work = None
            act()
            self.stage.draw()

        return finish

    def stop(self) -> bool:
        """Cancel the work in progress; returns whether there was any."""
        if self.work is None:
            return False
        self.work.cancel()
        self.work = None
        return True

    def _enter(self, source: Source, loaded_run: LoadedRun) -> None:
        """Show a run that has begun, of which no head is known yet; what was computed of the run
        before is dropped."""
        self.source = source
        self.loaded_run = loaded_run
        self.effects = None
        self.derivations = {}
        self.explanations = {}
        self.state = at_pair(self.state, loaded_run.extent, self.state.query, self.state.key)
        if self.state.sight in ("why", "effects", "parts"):
            self.state = self.state.sees("matrix")
        self.stage.draw()

    def _add_head(self, loaded_run: LoadedRun, head: HeadRecord, work: Work) -> None:
        """Add a head to its run, and draw it soon if that is the run in sight.

        work: the work that computed it, whose share is the run's.
        """
        loaded_run.add(head)
        loaded_run.share = work.share
        if loaded_run is self.loaded_run:
            self.stage.draw_soon()

    def _finish(self, loaded_run: LoadedRun, then: Callable[[], None]) -> None:
        """End a run, all of whose heads are known: go to a place that has something to see, unless
        one was chosen, and call `then`.
        """
        loaded_run.share = 1.0
        self.work = None
        if not self.is_placed:
            self.is_placed = True
            self.state = strongest_place(self.state, loaded_run, self._about)
        if not loaded_run.extent.has(self.state.layer, self.state.head):
            self.state = at_head(self.state, loaded_run.extent, self.state.layer, self.state.head)
        then()
        self.stage.draw()

    def show_message(self, message: str) -> None:
        """Show a line in place of the answer, until the next key."""
        self.notice = Notice(message)
        self.stage.draw()

    def follow(self) -> None:
        """Do what follows from a move of the user: in a list, choose the head of the chosen row;
        and compute the derivation or the score's parts, if they are shown and not yet known.
        """
        assert self.loaded_run is not None
        state = self.state
        if state.sight in ("search", "effects") and state.focus == "words":
            if state.sight == "search":
                rows = search_rows(state, self.loaded_run)
            else:
                rows = effect_rows(self.effects)
            if rows:
                row = min(state.row, len(rows) - 1)
                self.state = replace(state, row=row, layer=rows[row].layer, head=rows[row].head)
        # the sights below are others than those of lists, so that the head is still that of `state`
        source = self.source
        query = (state.layer, state.head, state.query)
        link = (*query, state.key)
        if state.sight == "why":
            self.state = replace(self.state, step=min(state.step, len(STEPS) - 1))
            self._compute_once(
                "why", self.derivations, query, lambda work: source.derivation(*query)
            )
        if state.sight == "parts":
            self._compute_once(
                "parts", self.explanations, link, lambda work: source.parts(*link, work.report)
            )

    def _compute_once(
        self, name: str, values: dict[K, V], place: K, compute: Callable[[Work], V]
    ) -> None:
        """Compute a value in the background and store it in `values[place]`, unless it is there.

        name: of the work, a key of `WORK`.
        compute: called in the background; returns the value.
        """
        if place in values:
            return

        def compute_one(work: Work) -> Callable[[], None]:
            """Compute the value in the background; returns the function that then stores it."""
            value = compute(work)
            return self.finish_with(lambda: values.update({place: value}))

        self.begin(name, compute_one)

    def go_to_head(self, layer: int, head: int) -> None:
        """Show this head."""
        if self.loaded_run is not None:
            self.state = replace(
                at_head(self.state, self.loaded_run.extent, layer, head), focus="heads"
            )
            self.follow()

    def go_to_pair(self, query: int, key: int) -> None:
        """Show the weight between these two words."""
        if self.loaded_run is not None:
            self.state = replace(
                at_pair(self.state, self.loaded_run.extent, query, key), focus="words"
            )
            self.follow()

    def go_to_word(self, index: int, *, is_turned: bool) -> None:
        """Show what the word at this position looks at or, with is_turned, which words look at
        it."""
        if self.loaded_run is not None:
            if is_turned:
                query = self.state.query
                key = index
            else:
                query = index
                key = self.state.key
            self.state = replace(
                at_pair(self.state, self.loaded_run.extent, query, key), is_turned=is_turned
            )
            self.follow()

    @property
    def known_run(self) -> LoadedRun:
        """The run in sight; only called once one has begun."""
        assert self.loaded_run is not None
        return self.loaded_run

    @property
    def derivation(self) -> AttentionTopic | None:
        """The derivation of the chosen weight, if it is there."""
        return self.derivations.get((self.state.layer, self.state.head, self.state.query))

    @property
    def explanation(self) -> WhyDocument | None:
        """The parts of the chosen link's score, if they are there."""
        return self.explanations.get(
            (self.state.layer, self.state.head, self.state.query, self.state.key)
        )


# The tour: stops on the way from a sentence to one weight and what it changes, each with a place
# and some words.

FROM, TO = "it", "animal"
"""The link of the sample sentence that the tour is about."""


class Stop(Struct, frozen=True):
    """One stop of the tour.

    words: what it says; none at the first, whose words tell what is in view.
    step: of the derivation.
    tour_step: what it is of the steps that have numbers, beside those of the derivation.
    """

    words: tuple[Message, ...]
    sight: SightName
    focus: Focus
    step: int = 0
    tour_step: TourStep | None = None


AS_MATRICES = message(
    "The same five steps for all words at once; ▸ marks the row of this word, ↓ scrolls."
)
FAREWELL = message(
    "That is all there is to one weight. i takes a sentence of yours, / searches a link, d"
    " subtracts two heads, ? tells every key."
)
STOPS = (
    Stop((), "matrix", "heads"),
    Stop((STEP["similarity"].words,), "why", "words", 0),
    Stop((STEP["scale"].words,), "why", "words", 1),
    Stop((STEP["mask"].words,), "why", "words", 2),
    Stop((STEP["softmax"].words,), "why", "words", 3),
    Stop(
        (STEP["output"].words, message("Look at one column: its terms add up to o.")),
        "why",
        "words",
        4,
    ),
    Stop((AS_MATRICES,), "why", "words", 5),
    Stop(
        (STEP["heads"].words, message("Up and down walks through them.")),
        "search",
        "words",
        tour_step=STEP["heads"],
    ),
    Stop(
        (STEP["effect"].words, message("e compares all heads.")),
        "effects",
        "words",
        tour_step=STEP["effect"],
    ),
    Stop((FAREWELL,), "matrix", "heads"),
)
"""The steps of attention, with what goes before and what follows."""


def begin_tour(state: State, loaded_run: LoadedRun) -> State:
    """The state that the tour begins with: the sample's own link, in the head with the most weight
    on it; for another text, the present place.
    """
    queries = [token.text.strip().lower() for token in loaded_run.queries]
    keys = [token.text.strip().lower() for token in loaded_run.keys]
    if loaded_run.record.text != SAMPLE or FROM not in queries or TO not in keys:
        return replace(state, is_turned=False)
    query = queries.index(FROM)
    key = keys.index(TO)
    state = replace(state, query=query, key=key, is_turned=False)
    matches = loaded_run.search(query, key)
    if matches:
        _, (layer, head) = matches[0]  # the largest weight comes first
        state = replace(state, layer=layer, head=head)
    return state


def error_text(error: AttnError, view: View) -> str:
    """What an error says and, where it tells, what was expected, in one line."""
    text: str = error.what
    if error.expected:
        text = listing([error.what, error.expected], "; ")
    return translate(text, view.lang)


def state_at_stop(state: State, number: int) -> State:
    """The state that the tour's stop of this number shows."""
    stop = STOPS[number]
    return replace(
        state.sees(stop.sight), focus=stop.focus, step=stop.step, top=0, row=0, subtracted_head=None
    )


def stop_in_sight(state: State, number: int) -> int | None:
    """The number of the tour's stop that describes what is in sight now, the nearest to the present
    stop where several do; None where none does.

    number: of the present stop.
    """
    same = [
        place
        for place, stop in enumerate(STOPS)
        if (stop.sight, stop.step) == (state.sight, state.step)
    ]
    return min(same, key=lambda place: abs(place - number), default=None)


SENTENCE = (
    message(
        "Below is the sentence; the word in brackets looks at the others, and the tint says how"
        " much. On the left every head has a colour: {colour}."
    ),
    message("how strong its strongest link from that word is"),
)
"""What the tour's first stop says, and of the colour of the heads, where the chosen word looks."""

TURNED_SENTENCE = (
    message(
        "Below is the sentence; the others look at the word in brackets, and the tint says how"
        " much. On the left every head has a colour: {colour}."
    ),
    message("how strong its strongest link to that word is"),
)
"""The same where the chosen word is looked at."""


def caption(state: State, number: int, view: View) -> str:
    """The words of the tour's stop of this number, behind the title of the step that it explains.
    The first stop describes the colours of the heads and the tint of the sentence as they are now.
    """
    stop = STOPS[number]
    title = ""
    if stop.words:
        text = " ".join(say_each(view, *stop.words))
    else:
        # the template, and what the colours of the heads show as long as no measure is chosen
        template, colour = TURNED_SENTENCE if state.is_turned else SENTENCE
        if state.measure != "word":
            colour = MEASURE_NAMES[state.measure]
        text = say(view, template, colour=say(view, colour))
    if stop.sight == "why":
        title = part_title(state, view)
    elif stop.tour_step is not None:
        title = step_title(stop.tour_step, view)
    if title:
        return f"{title} · {text}"
    return text
