"""The full-screen application: Textual's side of the walk (keys, mouse, a line to type in) and the
picture it draws.
"""

from __future__ import annotations

import io
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TextIO, assert_never

from msgspec import structs
from msgspec.structs import replace
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Click
from textual.filter import LineFilter, NoColor
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from attncli.draw.lines import (
    BLANK,
    COLOR_SYSTEMS,
    FAINT,
    Line,
    Lines,
    line,
    line_width,
    remark,
    stack,
)
from attncli.draw.safe import cells, cut, pad, safe, spell
from attncli.draw.view import View
from attncli.errors import AttnError
from attncli.explore.actions import act, choose_row, run_text, take_answer
from attncli.explore.frame import DrawPane, Frame, draw_frame, links
from attncli.explore.loaded_run import Source
from attncli.explore.panels import (
    HeadSpot,
    KeySpot,
    PairSpot,
    Pane,
    RowSpot,
    Scene,
    Spot,
    WordSpot,
    accent,
    blank,
    cursor_style,
    effect_by_head,
    effects,
    link_name,
    part_title,
    parts,
    search,
    why,
)
from attncli.explore.state import ACTIONS, KEYS, State
from attncli.explore.walk import QUESTIONS, Over, Question, Walk, WalkJob, Work, caption
from attncli.language import message, plural, say, translate
from attncli.mechanism.spec import spoken_head
from attncli.models.model import Model


def picture(walk: Walk, width: int, height: int) -> Pane:
    """The whole screen of a walk, `width` cells wide and `height` lines high; blank before the
    first run."""
    state = walk.state
    notice = walk.notice
    if walk.loaded_run is None:
        return blank(width, height)
    if walk.work is not None:
        notice = replace(notice, working=walk.work.name, share=walk.work.share)
    view = structs.replace(walk.view, width=width, height=height)
    scene = Scene(state, walk.loaded_run, view, width, height)
    title, draw_right = _right_pane(walk, scene)

    # the effects of all heads, once they are known, colour the grid in place of the measure
    values = None
    measure = ""
    if state.sight == "effects":
        values = effect_by_head(walk.effects)
    if values is not None:
        measure = say(view, "change when taken away")

    tour_text = ""
    if walk.tour is not None and not notice.message:
        tour_text = f"{caption(state, walk.tour, view)} {say(view, '(Enter: on, Esc: end)')}"
    overlays: dict[Over, DrawPane] = {
        "help": help_page,
        "models": lambda scene: model_list(scene, walk.names),
    }
    whole = None
    if walk.over is not None:
        whole = overlays[walk.over]
    frame = Frame(
        scene=scene,
        notice=notice,
        right=draw_right,
        title=title,
        whole=whole,
        values=values,
        measure=measure,
        tour_text=tour_text,
    )
    return draw_frame(frame)


def _right_pane(walk: Walk, scene: Scene) -> tuple[str, DrawPane | None]:
    """(title, drawing function) of the pane on the right; None for the function where the frame
    draws the matrix itself, whose usual title "" stands for.
    """
    state = scene.state
    view = scene.view
    if state.sight in ("search", "parts"):
        link = link_name(state, scene.loaded_run, view)
    else:
        link = ""
    match state.sight:
        case "matrix":
            return "", None
        case "difference":
            # (the type allows None, but a difference always has a head that is subtracted)
            layer, head = state.subtracted_head or (state.layer, state.head)
            head_name = say(view, spoken_head(layer, head))
            return say(view, "this head less {head} (A)", head=head_name), None
        case "links" if state.is_turned:
            return say(view, "links · who looks at the word"), links
        case "links":
            return say(view, "links · where the word looks"), links
        case "search":
            return say(view, "heads that send {link}", link=link), search
        case "effects":
            return say(view, "does it matter?"), lambda scene: effects(scene, walk.effects)
        case "why":
            title = say(view, "why · {step}", step=part_title(state, view))
            return title, lambda scene: why(scene, walk.derivation, with_words=walk.tour is None)
        case "parts":
            return say(view, "why · {link}", link=link), lambda scene: parts(
                scene, walk.explanation
            )
        case _:
            assert_never(state.sight)


# Help: what the screen in view shows, and what its keys do.

HELP = {
    "matrix": (
        message("One head's weights"),
        message(
            "Each row is a word that looks, each column a word looked at; the brighter, the more"
            " weight. A row sums to 1. Blank cells are hidden by the mask or left out by the colour"
            " scale. Numbers are written from 0.1 on, where there is room. The framed cell is the"
            " chosen weight."
        ),
    ),
    "links": (
        message("Links"),
        message(
            "On the left the words that look, on the right those looked at; lines lead from the"
            " chosen word to all that get a twentieth of its weight or more. r turns the direction."
        ),
    ),
    "why": (
        message("Why the weight is what it is"),
        message(
            "The derivation in five steps, with this text's own numbers: dot products, scale, mask,"
            " softmax, weighted sum; then the same as matrices. Every column adds up. Left and"
            " right change the step, up and down scroll; the last line works out the chosen weight."
        ),
    ),
    "search": (
        message("Heads by a link"),
        message(
            "How much weight every head gives the chosen link, the most first. Up and down walk"
            " through the heads, Enter stays at one, / asks for another link."
        ),
    ),
    "difference": (
        message("Two heads"),
        message(
            "The weights of the chosen head less those of the head marked A: red where this one"
            " gives more, blue where A does. Move to compare other heads; d ends it."
        ),
    ),
    "effects": (
        message("Does it matter?"),
        message(
            "A head is taken away, or the chosen link is cut in it, and the model runs on: how far"
            " does the word's last vector turn (1 − cosine)? e again takes every head away, one at"
            " a time. These numbers do not add up."
        ),
    ),
    "parts": (
        message("What the score is made of"),
        message(
            "The score of the chosen link is a sum over pairs of parts of both words: the word"
            " itself, what each earlier head brought to it, what each feed-forward part made of it."
            " Each row says what a part adds above what the row expects, and the weight without it."
            " Up and down scroll; moving takes another link apart."
        ),
    ),
}
"""The title and the words of what is looked at."""
ARROW_WORDS = {
    "heads": message("another head"),
    "words": message("another word, cell, step or row"),
}
"""What the arrows choose."""
MOST, GAP = 3, 2
"""Columns of keys, at most, and cells between them."""


def help_page(scene: Scene) -> Pane:
    """The help: what is in view, in words; then the keys, in as many columns as fit; scrolled by
    `state.top`.
    """
    state = scene.state
    view = structs.replace(scene.view, width=min(scene.width, 100))
    height = scene.height
    title, words = HELP[state.sight]
    grid_words = message(
        "On the left every head has a cell, layers in rows: its colour is the strongest link of the"
        " chosen word, or, with m, another number. Below it is the chosen head."
    )
    sentence_words = message(
        "At the bottom the sentence is shaded by where the word in brackets looks, or, turned with"
        " r, by who looks at it; under it stands the answer in words."
    )
    block = stack(
        line((spell(say(view, title), ascii=view.ascii), "bold")),
        remark(words, view, style=""),
        BLANK,
        remark(grid_words, view, style=""),
        remark(sentence_words, view, style=""),
        BLANK,
        _key_table(scene),
    )
    top = min(state.top, max(len(block.rows) - height, 0))
    lines = block.rows[top : top + height]
    if (lines_left := len(block.rows) - top - height) > 0 and height > 1:
        # the last line makes room for this note, and counts as left, too
        more = plural("↓ {count} more line", "↓ {count} more lines", count=lines_left + 1)
        lines = (*lines[:-1], *remark(more, view).rows)
    return Pane(lines)


def _key_table(scene: Scene) -> Lines:
    """A table of the keys and what each does, in as many columns as fit the scene's width, read
    downwards."""
    view = scene.view
    key_texts: list[tuple[str, str]] = [
        ("arrows" if view.ascii else "← ↑ ↓ →", ARROW_WORDS[scene.state.focus])
    ]
    key_texts += [(spell(key.symbol, ascii=view.ascii), key.words) for key in KEYS if key.words]
    name_width = max(cells(key_name) for key_name, _ in key_texts) + GAP
    texts = [(key_name, spell(say(view, does), ascii=view.ascii)) for key_name, does in key_texts]

    # try fewer and fewer columns until they fit; a single one is taken in any case
    for count in range(MOST, 0, -1):
        lines = -(-len(texts) // count)  # rounded up
        columns = [texts[first : first + lines] for first in range(0, len(texts), lines)]
        widths = [name_width + max(cells(text) for _, text in column) + GAP for column in columns]
        if sum(widths) - GAP <= scene.width:
            break

    rows: list[Line] = []
    for line_number in range(lines):
        row: list[tuple[str, str]] = []
        for column, width in zip(columns, widths, strict=True):
            if line_number < len(column):  # the last column may be shorter
                key_name, text = column[line_number]
                row.append((pad(key_name, name_width), accent(view) or "bold"))
                row.append((pad(text, width - name_width), ""))
        rows.append(tuple(row))
    return Lines(tuple(rows))


# The list of models that may be switched to.


def model_list(scene: Scene, names: Sequence[str]) -> Pane:
    """The list of models to switch to, the chosen one marked; those around it where not all fit."""
    view = scene.view
    chosen_row = scene.state.row
    if not names:
        return Pane(
            remark(
                "No models are on this machine; attn models list says how to get one.", view
            ).rows
        )
    room = max(scene.height - 3, 1)  # less the title, a blank line and the keys
    top = min(max(chosen_row - room // 2, 0), max(len(names) - room, 0))
    rows: list[Line] = [((say(view, "models on this machine"), "bold"),), ()]
    for number, name in enumerate(names[top : top + room], top):
        text = f" {cut(safe(name, ascii=view.ascii), max(scene.width - 2, 1), ascii=view.ascii)} "
        rows.append(((text, cursor_style(view) if number == chosen_row else ""),))
    rows.append(
        ((spell(say(view, "↑ ↓ choose · Enter takes it · Esc leaves"), ascii=view.ascii), FAINT),)
    )

    def spot_at(x: int, y: int) -> Spot | None:
        """The row of the list at column x of line y; None outside the list."""
        number = y - 2 + top  # two lines stand above the list
        if y >= 2 and number < min(top + room, len(names)):
            return RowSpot(number)
        return None

    return Pane(tuple(rows), spot_at)


# The canvas: the one widget of the screen; it draws a pane's lines and writes only those that
# changed.

INKS = {False: ("#d7dae0", "#14161b", "#868e9c"), True: ("#1f2328", "#fbfbf9", "#6b7280")}
"""Ink, ground and faint ink of a dark and of a light screen."""


@lru_cache(4096)
def style_of(name: str, light: bool, color: bool) -> Style:
    """The style that a name such as "bold on #ff0000" stands for, on the ink and ground of a light
    or dark screen; without colour, bold, underlined and reversed alone."""
    ink, ground, faint = INKS[light]
    if not color:
        plain_style = Style()
        if name:
            plain_style = Style.parse(name)
        return Style(
            bold=plain_style.bold, underline=plain_style.underline, reverse=plain_style.reverse
        )
    screen_style = Style(color=ink, bgcolor=ground)
    if name:
        screen_style += Style.parse(name.replace(FAINT, faint))
    return screen_style


class Canvas(Widget, can_focus=True):
    """The widget that draws the pane which `show` was given last."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(
        self,
        on_choice: Callable[[Spot | None], None],
        on_resized: Callable[[], None],
        *,
        light: bool,
        color: bool,
    ) -> None:
        """A widget that is blank until it is given a pane.

        on_choice: called with what lies under a click, None for nothing.
        on_resized: called when the widget has another size.
        light: whether the screen's ground is light.
        color: whether colours are drawn.
        """
        super().__init__()
        self._on_choice = on_choice
        self._on_resized = on_resized
        self._light = light
        self._color = color
        self.pane = Pane()

    def show(self, pane: Pane) -> None:
        """Draw this pane; only lines that differ from the pane before are written."""
        before = self.pane.rows
        self.pane = pane
        regions = [
            Region(0, line, self.size.width, 1)
            for line, row in enumerate(pane.rows)
            if line >= len(before) or before[line] != row
        ]
        if regions:
            self.refresh(*regions)

    def on_resize(self) -> None:
        """Ask for a pane of the new size."""
        self._on_resized()

    def on_click(self, event: Click) -> None:
        """Choose what lies under a click."""
        event.stop()
        spot = None
        if 0 <= event.y < self.pane.height:
            spot = self.pane.spots(event.x, event.y)
        self._on_choice(spot)

    def render_line(self, y: int) -> Strip:
        """Line y of the pane as a Textual strip as wide as the widget, blank below the pane;
        Textual calls this to draw."""
        row: Line = ()
        if y < self.pane.height:
            row = self.pane.rows[y]
        segments = [
            Segment(text, style_of(name, self._light, self._color)) for text, name in row if text
        ]
        strip = Strip(segments, line_width(row))
        return strip.adjust_cell_length(self.size.width, style_of("", self._light, self._color))


REDRAWN = 0.05
"""Seconds between two drawings while heads come in."""
INERT = r"[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*"
"""What may stand in the line to type in: nothing that moves a cursor or reorders text."""
PAUSE = 0.3
"""Seconds without a key after which what is being typed is run."""


class Explorer(App[None]):
    """The application: everything on one screen, which is the `WalkStage` of its walk.

    signal_number: the signal that ended the application, None for none.
    failure: the error that ended it, None for none.
    keys_taken: how many keys came from the terminal.
    question: what the line to type in asks for, None while it is closed.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = "#asked { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }"

    def __init__(
        self,
        source: Source,
        view: View,
        *,
        start: State | None = None,
        about: int | None = None,
        models: Callable[[], list[str]] = list,
        load: Callable[[str], Model] | None = None,
        driver: Any = None,
    ) -> None:
        """Prepare the screen; its walk begins when the application runs.

        driver: the class of Textual's driver, which writes to the terminal; None for its usual one.
            All other arguments are those of `Walk`.
        """
        super().__init__(driver_class=driver)
        self.view = view
        self.walk = Walk(source, view, self, start=start, about=about, models=models, load=load)
        self.signal_number: int | None = None
        self.keys_taken = 0
        self.failure: BaseException | None = None
        self._plain: list[LineFilter] = []  # what takes the colours out of lines
        if not view.color:
            self._plain = [NoColor()]
        self._stale = False  # whether `draw_soon` has asked for a drawing
        self.question: Question | None = None
        self._typing: Timer | None = None  # runs out when nothing was typed for a while
        # text is drawn as it is, in the colours that the view has, whatever the environment says
        self.console = Console(
            color_system=COLOR_SYSTEMS[view.colors],
            file=self.console.file,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
            force_terminal=True,
            safe_box=False,
            soft_wrap=False,
            _environ={},
        )
        self.canvas = Canvas(self.choose_spot, self.draw, light=view.light, color=view.color)
        self.line = Input(id="asked", select_on_focus=False, restrict=INERT)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """The filters that Textual passes lines through; without colour, one that takes all colours
        away."""
        return self._plain or super().get_line_filters()

    def compose(self) -> ComposeResult:
        """Yield the widgets of the screen: the canvas, and a line to type in that is hidden until
        something is asked."""
        yield self.canvas
        yield self.line

    def on_mount(self) -> None:
        """Begin the first run; called by Textual once the screen is there. A signal may have come
        before: then leave."""
        ink, ground, _ = INKS[self.view.light]
        for part in (self.screen, self.line):
            part.styles.background = ground
            part.styles.color = ink
        self.canvas.focus()
        if isinstance(self._driver, Terminal):
            self.set_interval(1.0, self._leave_lost_terminal)
        if self.signal_number is not None:
            self.exit()
        else:
            self.walk.run(self.walk.source, first=True)

    def begin(self, name: str, job: WalkJob, on_error: Callable[[Exception], None]) -> Work:
        """Start a job in a thread of its own; returns its work, which may be cancelled."""
        loop = self._loop
        assert loop is not None

        def post(callback: Callable[[], None]) -> None:
            """Have a function called in the screen's thread, unless the application has ended."""
            if not loop.is_closed():  # `call_later`: behind the messages that wait already
                loop.call_soon_threadsafe(self.call_later, callback)

        return Work(post, job, name=name, on_error=on_error).start()

    def draw_soon(self) -> None:
        """Draw a moment later, once for all calls until then."""
        if not self._stale:
            self._stale = True
            self.set_timer(REDRAWN, self.draw)

    def draw(self) -> None:
        """Draw what is looked at now."""
        self._stale = False
        size = self.canvas.size
        if self.is_running and size.width and size.height:
            self.canvas.show(picture(self.walk, size.width, size.height))

    async def on_event(self, event: events.Event) -> None:
        """Handle an event as Textual does, and count the keys among them: `Terminal` compares that
        number with the keys that it has passed on."""
        self.keys_taken += isinstance(event, events.Key)
        await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Do what the table of keys says of a key; while a line to type in is open, only Esc and
        Ctrl-C are taken, which close it."""
        if self.question is not None:
            if event.key in ("escape", "ctrl+c"):
                event.stop()
                self._close_question()
            return
        action = ACTIONS.get(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            act(self.walk, action)

    def choose_spot(self, spot: Spot | None) -> None:
        """Choose what lies under a click: a head, a pair of words, a word or a row; a key in the
        footer does what pressing it does."""
        state = self.walk.state
        match spot:
            case HeadSpot(layer, head):
                self.walk.go_to_head(layer, head)
            case PairSpot(query, key):
                self.walk.go_to_pair(query, key)
            case WordSpot(index, side):
                # a word on an axis is looked at from that side
                if side == "sentence":
                    is_turned = state.is_turned
                else:
                    is_turned = side == "key"
                self.walk.go_to_word(index, is_turned=is_turned)
            case RowSpot(row_index):
                choose_row(self.walk, row_index)
            case KeySpot(key):
                act(self.walk, ACTIONS[key])
            case None:
                return
            case _:
                assert_never(spot)
        self.draw()

    def on_mouse_scroll_down(self) -> None:
        """Do at a turn of the wheel what the key Down does."""
        act(self.walk, "down")

    def on_mouse_scroll_up(self) -> None:
        """Do at a turn back of the wheel what the key Up does."""
        act(self.walk, "up")

    def ask(self, question: Question, text: str) -> None:
        """Open a line to type in the answer to a question, with `text` in it already."""
        self.question = question
        # characters that the line refuses are replaced
        if re.fullmatch(INERT, text):
            self.line.value = text
        else:
            self.line.value = safe(text)
        self.line.placeholder = say(self.view, QUESTIONS[question])
        self.line.cursor_position = len(self.line.value)
        if question == "search":  # another pair takes the place of the chosen one
            self.line.select_all()
        self.line.display = True
        self.line.focus()

    def _close_question(self) -> None:
        """Remove the line to type in."""
        self.question = None
        if self._typing is not None:
            self._typing.stop()
        self.line.display = False
        self.canvas.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Run a new text while it is typed, each time that no key comes for `PAUSE` seconds."""
        if self._typing is not None:
            self._typing.stop()
        if self.question == "type" and event.value.strip():
            self._typing = self.set_timer(PAUSE, lambda: self._run_typed(event.value))

    def _run_typed(self, text: str) -> None:
        """Run the text as far as it is typed, unless its line was closed or it is the one shown."""
        # a saved file has no text, and nothing to run one on
        if self.question == "type" and text != getattr(self.walk.source, "text", text):
            try:
                run_text(self.walk, text)
            except AttnError as error:
                self.walk.show_message(translate(error.what, self.view.lang))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer the question with what was typed."""
        question = self.question
        text = event.value
        self._close_question()
        if question is not None:
            take_answer(self.walk, question, text)

    def leave(self, number: int | None = None, failure: Exception | None = None) -> None:
        """End the application, which puts the screen away.

        number: of the signal that asked for it, None for none.
        failure: the error that ends it, None for none.
        """
        self.signal_number = number
        self.failure = failure
        self.walk.stop()
        self.exit()

    def leave_by_signal(self, number: int) -> None:
        """End the application; called where a signal is heard, perhaps before it runs.

        number: of the signal.
        """
        self.signal_number = number
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.leave, number)

    def _leave_lost_terminal(self) -> None:
        """End as by SIGHUP where the terminal has gone and the caller ignores that signal."""
        if isinstance(self._driver, Terminal) and self._driver.is_gone():
            self.leave(int(signal.SIGHUP))

    def _handle_exception(self, error: Exception) -> None:
        """Keep an error that Textual caught, so that the command can raise it once the screen is
        put away; Textual calls this.
        """
        self.failure = error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Print no errors, which Textual calls this for: the command that started the application
        raises them."""
        self._exit_renderables.clear()


# The terminal: where Textual draws, and hears keys.


MOST_KEYS = 100
"""Keys that may wait for the application."""


class LastingOutput(io.TextIOBase):
    """A text stream that writes to another and ignores its errors, as of a terminal that has gone:
    they would end Textual's writing thread, for which the application would wait for ever."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or drop it where that fails; returns its length either way."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream where that is possible."""
        with suppress(OSError):
            self._stream.flush()

    def fileno(self) -> int:
        """The descriptor of the other stream, by which Textual learns the terminal's size."""
        return self._stream.fileno()


class Terminal(LinuxDriver):
    """Textual's driver on standard output: what goes to standard error may be on its way to a file."""

    def __init__(
        self,
        app: Any,
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        """A driver for `app`, an `Explorer`; Textual calls this, with its own settings."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        # a stream that ignores errors in place of Textual's own, since the terminal may go away
        if sys.__stdout__ is not None:
            output: Any = LastingOutput(sys.__stdout__)
            self._file = output
        self._keys = 0  # how many were passed on to the application
        self._explorer = app

    def process_message(self, message: Message) -> None:
        """Pass on what the terminal sends, except keys beyond `MOST_KEYS` that wait already: keys
        that come faster than anybody types are a paste that the terminal does not mark. Ctrl-C is
        always passed on.
        """
        if isinstance(message, events.Key):
            explorer = self._explorer
            # keys that the application has not taken yet, and those that the line to type in has
            waiting = self._keys - explorer.keys_taken + explorer.line.message_queue_size
            if waiting >= MOST_KEYS and message.key != "ctrl+c":
                return
            self._keys += 1
        super().process_message(message)

    def is_gone(self) -> bool:
        """Whether the terminal has gone, as when its window was closed."""
        poll = select.poll()
        poll.register(self.fileno, 0)  # poll reports a hangup without being asked for it
        return bool(poll.poll(0))

    def stop_application_mode(self) -> None:
        """Leave an empty screen behind: some terminals keep lines of a screen that grew while it
        was shown.
        """
        self.write("\x1b[0m\x1b[H\x1b[2J")
        super().stop_application_mode()


def release_terminal() -> None:
    """Drop what could not be written to a terminal that has gone; else Python would try once more
    at its end, and fail with an exit code of its own."""
    if sys.__stdout__ is None:
        return
    try:
        sys.__stdout__.flush()
    except OSError:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.close(sink)


def take_keyboard() -> bool:
    """Make the terminal the standard input, from which Textual reads keys, also where that was a
    pipe; returns whether there is a terminal."""
    if os.isatty(0):
        return True
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(descriptor, 0)
    os.close(descriptor)
    return True
