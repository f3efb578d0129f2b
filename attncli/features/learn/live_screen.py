"""What is seen while a model trains: the loss, each head as a small map, and its scores, some ten
times a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOBase
from typing import IO, TYPE_CHECKING, cast

from attncli.cli.environment import Environment
from attncli.cli.progress import progress
from attncli.draw.view import View
from attncli.mechanism.spec import head_name

if TYPE_CHECKING:
    from rich.live import Live

    from attncli.documents import Numbers
    from attncli.draw.lines import Lines
    from attncli.features.learn.compute import LearnRequest, Moment

INTERVAL = 0.1
"""Seconds between two pictures."""
LEAST_PLOT, MOST_PLOT = 3, 8
"""Lines of the curve: what maps leave of the terminal."""
AROUND = 9
"""Lines that are no map and no curve: title, scores, blanks, the curve's axis and legend, the keys,
the cursor's.
"""
MOST_MAPS = 8
"""Heads whose maps are drawn."""
LEAST_MAP, MOST_MAP = 12, 24
"""Cells across a map."""
PATIENCE, WATCHED_PATIENCE = 3.0, 20.0
"""Seconds from which on a note says before the start how long all steps will take; more where the
training is drawn live.
"""
OFF = 2.0
"""A forecast from the first steps is noted where it is further than this factor from the one noted
before.
"""
FIRST_STEPS = 16
"""Steps whose time foretells that of all, or as many as are made in `FIRST_SECONDS`; the very first
does not count: it takes longer."""
FIRST_SECONDS = 2.0


@contextmanager
def live_training(
    environment: Environment, view: View, request: LearnRequest, expected: float
) -> Iterator[Training]:
    """A context in which a training is shown: drawn where standard output is a terminal that can be
    drawn on, elsewhere as a bar on standard error; not at all with `--quiet`. Yields the `Training`
    that shows it.

    expected: about how many seconds it takes; a note says so before the start where that is long.
    """
    # `machine`: a program reads what is written
    is_drawn = environment.can_draw_over and not environment.machine and not environment.quiet
    patience = WATCHED_PATIENCE if is_drawn else PATIENCE
    is_long = expected > patience
    if is_long:
        _tell_cost(environment, request, expected)
    with ExitStack() as stack:
        training = Training(environment, view, request, expected if is_long else None)
        if is_drawn:
            training.live = stack.enter_context(_live_display(environment, view))
            training.has_keys = stack.enter_context(_single_keys(environment))
        else:
            training.report = stack.enter_context(progress(environment, "training"))
        yield training


def _tell_cost(environment: Environment, request: LearnRequest, seconds: float) -> None:
    """Say before the start about how many seconds all steps take, and how to make it shorter."""
    from attncli.language import message
    from attncli.models.estimate import duration_words

    environment.note(
        message(
            "{steps:,} steps: about {time}; fewer --steps or a smaller model takes less, Ctrl-C"
            " shows what was learned",
            steps=request.steps * len(request.seeds),
            time=duration_words(seconds),
        )
    )


@contextmanager
def _live_display(environment: Environment, view: View) -> Iterator[Live]:
    """A context with Rich's live display on standard output: each update draws over the last one,
    and nothing stays at the end."""
    from rich.live import Live

    from attncli.draw.lines import console

    screen = console(view, cast(IO[str], _StandardOutput(environment)))
    # `Training` says when to draw, and all output goes through the environment, not `sys.stdout`
    with Live(
        console=screen,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:
        yield live


class _StandardOutput(TextIOBase):
    """Standard output as a stream of text for Rich. It writes through the environment, which ends
    the command where a write fails."""

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self._environment = environment

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._environment.write(text.encode("utf-8", "backslashreplace"))
        return len(text)


@contextmanager
def _single_keys(environment: Environment) -> Iterator[bool]:
    """A context in which pressed keys can be read one by one, without Return; the terminal's
    settings are put back after it. Yields whether that works: it does not without a terminal."""
    if environment.keys is None:
        yield False
        return
    try:
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        settings = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor)
    except (ImportError, OSError, ValueError):  # Windows has no termios
        yield False
        return
    try:
        yield True
    finally:
        with suppress(OSError):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)


class Training:
    """Shows a training while it runs, forecasts how long it takes, and reads whether someone ended
    it. Its methods are the callbacks of `learn`.

    expected: the seconds that a note has forecast already; None for none.
    live: the display to draw on; None where nothing is drawn.
    has_keys: whether pressed keys can be read.
    report: called after each step with the share done.
    """

    def __init__(
        self,
        environment: Environment,
        view: View,
        request: LearnRequest,
        expected: float | None = None,
    ) -> None:
        """Begin with nothing drawn; the caller sets `live`, `has_keys` and `report` as the terminal
        allows.

        expected: the seconds that a note has forecast already; None for none.
        """
        self.live: Live | None = None
        self.has_keys = False
        self.report: Callable[[float], None] = _ignore_share
        self._environment = environment
        self._view = view
        self._request = request
        self._expected = expected
        self._moments: list[Moment] = []  # those that the document keeps
        self._before: Moment | None = None  # the last two that were measured
        self._last: Moment | None = None
        self._steps = 0  # made so far, over all seeds
        self._drawn_at = 0.0  # times of the monotonic clock, in seconds
        self._start_time = 0.0
        self._has_forecast = False
        self._stopped = False

    def show(self, moment: Moment) -> None:
        """Called with each moment that the document keeps: draw its loss, scores and maps."""
        self._moments.append(moment)
        self._draw(moment)

    def glance(self, measure: Callable[[], Moment]) -> None:
        """Called after each other step: measure the model as it is now and draw that, if the last
        picture is older than `INTERVAL`."""
        if self.live is not None and time.monotonic() - self._drawn_at >= INTERVAL:
            self._draw(measure())

    def _draw(self, moment: Moment) -> None:
        """Remember a moment of the model, and draw it unless the last picture is younger than
        `INTERVAL`.
        """
        self._before = self._last or moment
        self._last = moment
        now = time.monotonic()
        if self.live is not None and now - self._drawn_at >= INTERVAL:
            self._drawn_at = now
            self.live.update(self._moment_lines(moment), refresh=True)

    def is_over(self) -> bool:
        """Count one more step, over all seeds, tell the share done, and return whether someone has
        pressed q.
        """
        self._steps += 1
        total = self._request.steps * len(self._request.seeds)
        self.report(self._steps / total)
        self._warn_of_long_training(total)
        if self.has_keys and not self._stopped:
            from select import select

            descriptor = sys.stdin.fileno()
            ready, _, _ = select([descriptor], [], [], 0)  # 0 seconds: without waiting
            if ready:
                import os

                self._stopped = os.read(descriptor, 1) in (b"q", b"Q")
        return self._stopped

    def _warn_of_long_training(self, total: int) -> None:
        """Once, after the first steps, note how long all of them will take, if that is long, nobody
        watches the training live, and no forecast near it was noted before.

        total: the steps of all seeds.
        """
        now = time.monotonic()
        if self._steps == 1:
            self._start_time = now
            return
        has_measured = self._steps == FIRST_STEPS or now - self._start_time > FIRST_SECONDS
        if self._has_forecast or not has_measured:
            return
        self._has_forecast = True
        seconds = (now - self._start_time) / (self._steps - 1) * total
        before = self._expected
        is_near = before is not None and before / OFF <= seconds <= before * OFF
        if seconds > PATIENCE and self.live is None and not is_near:
            _tell_cost(self._environment, self._request, seconds)

    def keeps(self) -> bool:
        """Whether the trained weights are to be saved: not after Ctrl-C."""
        return self._environment.stop_signal is None

    def maps(self) -> dict[int, Numbers]:
        """The attention weights in the example at each moment that the document keeps, by step,
        [layer, head, query, key]."""
        return {moment.step: moment.weights for moment in self._moments}

    def _moment_lines(self, last: Moment) -> Lines:
        """Draw one moment of training: the loss, the scores, and the maps of the heads."""
        from attncli.draw.lines import Lines, clip_lines, heading, remark, stack, stack_spaced
        from attncli.draw.numbers import Series, curves
        from attncli.language import message

        view = self._view
        task = self._request.task
        # a terminal that does not tell its height is taken to have 24 lines
        lines = self._environment.height or 24
        steps = self._request.steps
        progress = message(
            "step {step:,} of {steps:,}: loss {loss:.3g}",
            step=last.step,
            steps=steps,
            loss=last.loss,
        )

        # maps take what lines they need, the curve what is left
        maps = self._maps(last, lines - AROUND - LEAST_PLOT)
        plot = min(max(lines - AROUND - len(maps.rows), LEAST_PLOT), MOST_PLOT)

        # the axes are logarithmic: step 0 stands at 1
        moments = [*self._moments, last]
        # and a loss of 0 a little above it
        points = tuple((float(max(moment.step, 1)), max(moment.loss, 1e-9)) for moment in moments)
        chance = Series(message("chance"), tuple((x, task.chance) for x in (1.0, float(steps))))
        title = heading(message("learning {task}", task=task.name), progress, view)
        blocks = [
            stack(title, remark(self._best_heads_line(last), view)),
            curves([Series(message("loss"), points), chance], view, height=plot),
            maps,
        ]
        picture = clip_lines(stack_spaced(*blocks), view.width, ascii=view.ascii)
        keys = message("q stops and keeps what there is")
        # two lines are left for the remark on the keys and for the cursor
        rows = picture.rows[: max(lines - 2, 4)]
        return stack(Lines(rows), remark(keys if self.has_keys else "", view))

    def _best_heads_line(self, last: Moment) -> str:
        """One line with the best head of each score at this moment."""
        from attncli.draw.lines import localize
        from attncli.features.learn.document import score_name

        parts = []
        for name, values in last.scores.items():  # [layer, head]
            layer, head = divmod(int(values.argmax()), values.shape[1])
            parts.append(
                f"{localize(score_name(name), self._view)} {head_name(layer, head)}"
                f" {values[layer, head]:.2f}"
            )
        return " · ".join(parts)

    def _maps(self, last: Moment, lines: int) -> Lines:
        """A small map of weights for each head, [query, key]: a row of maps for each layer, or all
        in one row where they fit.

        last: the newest moment; its weights are [layer, head, query, key].
        lines: the most lines that the maps may take together.
        """
        from attncli.draw.heatmap import GAP, heatmap
        from attncli.draw.lines import beside, line, stack

        view = self._view
        layers, heads, queries = last.weights.shape[:3]
        places = [(layer, head) for layer in range(layers) for head in range(heads)][:MOST_MAPS]
        # two cells for a key; there are about as many as queries
        wide = min(max(2 * queries, LEAST_MAP), MOST_MAP)
        across = max((view.width + GAP) // (wide + GAP), 1)
        if len(places) <= across:
            in_a_row = len(places)
        else:
            in_a_row = min(heads, across)
        rows_of_maps = -(-len(places) // in_a_row)  # rounded up
        # of each row of maps one line is the titles, one parts it from the next
        tall = max(lines // rows_of_maps - 2, LEAST_PLOT)
        blocks = [
            stack(
                line((f"{head_name(layer, head)}{self._rise_mark(layer, head)}", "bold")),
                heatmap(
                    last.weights[layer, head],
                    view,
                    max_width=wide,
                    max_height=tall,
                    limits=(0.0, 1.0),
                    say_pooled=False,
                ),
            )
            for layer, head in places
        ]
        return beside(blocks, width=view.width, gap=GAP, most=in_a_row)

    def _rise_mark(self, layer: int, head: int) -> str:
        """An arrow where a score of this head rose more than any other between the last two
        moments, and by more than 0.01; else "".
        """
        before = self._before
        last = self._last
        if before is None or last is None or before is last:
            return ""
        rises = {name: last.scores[name] - before.scores[name] for name in last.scores}
        largest = max(float(rise.max()) for rise in rises.values())
        head_rise = max(float(rise[layer, head]) for rise in rises.values())
        if head_rise >= largest > 0.01:
            if self._view.ascii:
                return " ^"
            return " ↑"
        return ""


def _ignore_share(share: float) -> None:
    """Do nothing with the share of the work that is done."""
