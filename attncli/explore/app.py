"""The application: keys and mouse to moves and work, and what they lead to on the canvas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from textual import events
from textual.app import App, ComposeResult
from textual.filter import LineFilter, NoColor
from textual.widgets import Input

from attncli.errors import AttnError
from attncli.explore.canvas import INKS, Canvas
from attncli.explore.frame import Frame, Notice, framed
from attncli.explore.held import Held
from attncli.explore.keys import ACTIONS
from attncli.explore.moves import MOVES
from attncli.explore.pane import HeadSpot, KeySpot, PairSpot, RowSpot, WordSpot
from attncli.explore.source import Source
from attncli.explore.state import State, at_head, at_pair
from attncli.explore.work import Work
from attncli.render.phrases import say
from attncli.render.view import View

REDRAWN = 0.05
"""Seconds between two drawings while heads come in."""


class Explorer(App[None]):
    """Everything on one screen. source: what is explored. state: where it begins."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: below; }
    #asked { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }
    """

    def __init__(
        self, source: Source, view: View, *, state: State | None = None, driver: Any = None, deep: bool = True
    ) -> None:
        super().__init__(driver_class=driver)
        self.source, self.view = source, view
        self.state = state or State()
        self.notice = Notice()
        self.held: Held | None = None
        self.work: Work | None = None
        self.stopped: int | None = None
        self.failure: BaseException | None = None
        self._plain = [NoColor()] if not view.color else None
        self._stale = False
        self._place_known = state is not None
        kind: Any = "truecolor" if deep else "256"
        self.console = Console(
            color_system=kind, file=self.console.file, markup=False, highlight=False, emoji=False,
            legacy_windows=False, force_terminal=True, safe_box=False, soft_wrap=False, _environ={},
        )  # fmt: skip
        self.canvas = Canvas(light=view.light, color=view.color)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Without colour nothing but bold, underlined and reversed text leaves."""
        return self._plain if self._plain is not None else super().get_line_filters()

    def compose(self) -> ComposeResult:
        """The canvas, and a line to type in that shows when something is asked."""
        yield self.canvas
        yield Input(id="asked")

    def on_mount(self) -> None:
        """Begin with the run."""
        ink, ground, _ = INKS[self.view.light]
        self.screen.styles.background = ground
        asked = self.query_one("#asked", Input)
        asked.styles.background, asked.styles.color = ground, ink
        self.canvas.focus()
        self.begin(self.source, first=True)

    def begin(self, source: Source, *, first: bool = False) -> None:
        """Run a source; its heads appear as they come. first: whether a failure ends the program."""
        self.stop_work()

        def job(work: Work) -> Callable[[], None]:
            record = source.record(work.told)
            held = Held(record)
            work.post(lambda: self._entered(source, held))
            for head in record.heads:
                work.told(work.share)
                work.post(lambda head=head: self._take(held, head, work))  # type: ignore[misc]
            return lambda: self._finished(held)

        def failed(error: Exception) -> None:
            if first or not isinstance(error, AttnError):
                self.failure = error
                self.exit()
            else:
                self.tell(error.what)

        self.work = self.started(say(self.view, "explore.work.run"), job, failed)

    def started(
        self, name: str, job: Callable[[Work], Callable[[], None]], failed: Callable[[Exception], None]
    ) -> Work:
        """Work in a thread of its own."""
        loop = self._loop
        assert loop is not None

        # by way of the application's own messages: what is done there may set timers
        def post(act: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(self.call_later, act)

        return Work(post, job, name=name, failed=failed).start()

    def stop_work(self) -> bool:
        """Stop what is going on; whether something was."""
        if self.work is None:
            return False
        self.work.cancel()
        self.work = None
        return True

    def _entered(self, source: Source, held: Held) -> None:
        self.source, self.held = source, held
        self.state = at_pair(self.state, held.extent, self.state.query, self.state.key)
        self.draw()

    def _take(self, held: Held, head: Any, work: Work) -> None:
        held.add(head)
        held.share = work.share
        if held is self.held:
            self.later()

    def _finished(self, held: Held) -> None:
        held.share = 1.0
        self.work = None
        if not self._place_known:
            self._place_known = True
            self.state = strongest_place(self.state, held)
        self.draw()

    def later(self) -> None:
        """Draw soon, once for all that comes until then."""
        if not self._stale:
            self._stale = True
            self.set_timer(REDRAWN, self.draw)

    def draw(self) -> None:
        """Draw what is looked at now."""
        self._stale = False
        if self.held is None or not self.is_running:
            return
        if not self.held.extent.has(self.state.layer, self.state.head):
            self.state = at_head(self.state, self.held.extent, self.state.layer, self.state.head)
        notice = self.notice
        if self.work is not None:
            notice = replace(notice, working=self.work.name, share=self.work.share)
        size = self.canvas.size
        if size.width and size.height:
            self.canvas.show(framed(Frame(self.state, self.held, self.view, notice), size.width, size.height))

    def tell(self, said: str) -> None:
        """A line in place of the answer, until the next key."""
        self.notice = Notice(said)
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.call_after_refresh(self.draw)

    def on_key(self, event: events.Key) -> None:
        """A key does what the table of keys says."""
        action = ACTIONS.get(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            self.act(action)

    def act(self, action: str) -> None:
        """Do what a key does, and draw."""
        self.notice = Notice()
        if action == "quit":
            self.leave()
            return
        if action in MOVES and self.held is not None:
            self.state = MOVES[action](self.state, self.held.extent)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """A click chooses what lies under it; a key in the footer is pressed."""
        if self.held is None:
            return
        extent, spot = self.held.extent, self.canvas.spot(event.x, event.y)
        match spot:
            case HeadSpot(layer, head):
                self.state = replace(at_head(self.state, extent, layer, head), focus="heads")
            case PairSpot(query, key):
                self.state = replace(at_pair(self.state, extent, query, key), focus="words")
            case WordSpot(index, side):
                turned = self.state.turned if side == "sentence" else side == "key"
                query, key = (self.state.query, index) if turned else (index, self.state.key)
                self.state = replace(at_pair(self.state, extent, query, key), turned=turned)
            case RowSpot(row):
                self.state = replace(self.state, row=row)
            case KeySpot(key):
                self.act(ACTIONS[key])
                return
            case None:
                return
        self.notice = Notice()
        self.draw()

    def leave(self, number: int | None = None) -> None:
        """End, and put the screen away. number: of the signal that asked for it."""
        self.stopped = number
        self.stop_work()
        self.exit()

    def leave_by(self, number: int) -> None:
        """The same from where a signal is heard."""
        self.stopped = number
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.leave, number)

    def _handle_exception(self, error: Exception) -> None:
        self.failure = error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """What went wrong is told by who started the application, once."""
        self._exit_renderables.clear()


def strongest_place(state: State, held: Held) -> State:
    """Where the strongest link between two words is that do not stand side by side: a place with something to see."""
    found = [
        (len(_letters(held, query, key)) == 2 and abs(query - key) > 1, weight, -layer, -head, query, key)
        for (layer, head), one in held.heads.items()
        for query, key, weight in one.links[:3]
    ]
    if not found:
        return state
    _, _, layer, head, query, key = max(found)
    return replace(state, layer=-layer, head=-head, query=query, key=key)


def _letters(held: Held, *places: int) -> list[str]:
    """Those of two words that are more than a sign or a letter."""
    texts = (held.queries[places[0]].text.strip(), held.keys[places[1]].text.strip())
    return [text for text in texts if text.isalpha() and (len(text) > 1 or not text.isascii())]
