"""How far a long run has come, what it took, and the wait between two steps: all that a person at a
terminal is shown while a command runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from attncli.cli.environment import Environment
from attncli.language import listing, message

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from attncli.draw.view import View
    from attncli.inputs.hub import Watch
    from attncli.models.model import Model

PATIENCE = 1.0
"""Seconds before anything is said: what is done sooner needs no progress, and no Rich."""
LONG_WORK = 10.0
"""Estimated seconds from which on the cost is told before the work starts."""
LONG_TEXT = 500_000
"""Characters of a text that takes seconds to be cut into tokens."""


@contextmanager
def progress(
    environment: Environment, what: str | Callable[[], str], *, layers: bool = False
) -> Iterator[Callable[[float], None]]:
    """Context manager that yields a function to call with the share of the work that is done, 0 to
    1: it shows a bar with the time left on standard error, which disappears at the end.

    A share of 0 says that the work begins only now: what came before does not count for the time
    left. Silent where standard error is no terminal, and with `--quiet`.

    what: the label before the bar, or a function that returns it where it changes on the way.
    layers: whether the work is one run of a model, whose layers report the share by themselves.
    """
    start_time = time.monotonic()
    begin_time = start_time  # of the work itself, which the time left is estimated from
    bars: list[Progress] = []  # the bar, once there is one

    def report(share: float) -> None:
        """Show the share done, once the work has taken a while."""
        nonlocal begin_time
        if share == 0:
            begin_time = time.monotonic()
        if time.monotonic() - start_time < PATIENCE or share <= 0:
            return
        from attncli.draw.safe import safe
        from attncli.language import translate

        text = what if isinstance(what, str) else what()
        label = safe(translate(text, environment.notice_language))
        if not bars:
            bars.append(_start_bar(environment, label, begin_time))
        all_seconds = (time.monotonic() - begin_time) / share
        bars[0].update(
            bars[0].task_ids[0], completed=share, description=label, all_seconds=all_seconds
        )

    if is_watched(environment):
        callback = report
    else:
        callback = silent
    # where the layers of a model report: here, or, of work that reports its own share, nowhere
    before = environment.layers
    if layers:
        environment.layers = callback
    else:
        environment.layers = silent
    try:
        yield callback
    finally:
        environment.layers = before
        for bar in bars:
            bar.stop()


def silent(share: float) -> None:
    """Take the share done and show nothing."""


def is_watched(environment: Environment) -> bool:
    """Whether a person may be looking at standard error."""
    return environment.stderr_is_terminal and not environment.quiet


@contextmanager
def downloads(environment: Environment) -> Iterator[Watch | None]:
    """Context manager that yields a function for a download to call with a file and the share of it
    that is there, 0 to 1; None where nobody looks."""
    if not is_watched(environment):
        yield None
        return
    with ExitStack() as stack:
        bars: dict[str, Callable[[float], None]] = {}

        def report(file: str, share: float) -> None:
            """Show the share of a file that is there; each file has a bar of its own."""
            if file not in bars:
                stack.close()  # the file before is there
                bars[file] = stack.enter_context(progress(environment, file))
            bars[file](share)

        yield report


def with_layer_progress(environment: Environment, model: Model) -> Model:
    """The model, whose layers report progress as they are read: to the bar of the running work, or
    to a bar of their own where no work has one. The model itself where nobody looks.
    """
    if not is_watched(environment):
        return model
    from msgspec.structs import replace

    from attncli.models.run import ProgressStore

    stack = ExitStack()

    def report(share: float) -> None:
        """Show the share of layers read in the running work's bar; without one, in a bar that lasts
        until all layers are read.
        """
        if environment.layers is None and share < 1:
            # the bar goes also where the command ends before all layers are read
            environment.endings.push(stack)
            stack.enter_context(progress(environment, "reading the layers", layers=True))
        if environment.layers is not None:
            environment.layers(share)
        if share == 1:
            stack.close()

    decoder_store = None
    if model.decoder_store is not None:
        decoder_store = ProgressStore(model.decoder_store, report)
    return replace(model, store=ProgressStore(model.store, report), decoder_store=decoder_store)


def _start_bar(environment: Environment, label: str, start_time: float) -> Progress:
    """A progress bar that disappears when it ends: the share done and the time left, counted from
    `start_time`.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from attncli.draw.lines import console
    from attncli.draw.time_left import TimeLeftColumn
    from attncli.draw.view import View

    plain = environment.variables.get("NO_COLOR") or environment.variables.get("TERM") == "dumb"
    # "256": its colours are named ones, written the same for 16
    screen = console(
        View(width=environment.columns, color=not plain, colors="256"), environment.stderr
    )
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeLeftColumn(),
    )
    bar = Progress(
        *columns, console=screen, transient=True, refresh_per_second=5, get_time=time.monotonic
    )
    bar.add_task(label, total=1.0, all_seconds=None)
    bar.tasks[0].start_time = start_time
    bar.start()
    return bar


def foretell_waiting(environment: Environment, file: Path | None) -> None:
    """Note that the command waits for texts from a named pipe, where the file is one; nothing for
    any other file.
    """
    from attncli.inputs.files import opening_waits

    if file is not None and opening_waits(file):
        environment.note(
            message(
                "{file} is a pipe: it is read when something writes to it; Ctrl-C ends the waiting",
                file=file,
            )
        )


def foretell_text(environment: Environment, characters: int) -> None:
    """Note at once that a text is long, before it is cut into tokens; nothing for a short one."""
    if characters >= LONG_TEXT:
        environment.note(
            message(
                "{characters:,} characters of text; they are cut into tokens first",
                characters=characters,
            )
        )


def foretell_work(environment: Environment, tokens: int, seconds: float, hint: str) -> None:
    """Write a note, before long work starts, on how long it will take; none for short work.

    tokens: how many the text has.
    seconds: the estimated time.
    hint: what takes less time.
    """
    if seconds >= LONG_WORK:
        from attncli.models.estimate import duration_words

        pairs = message(
            "{tokens:,} tokens are {tokens_2:,} pairs for each head",
            tokens=tokens,
            tokens_2=tokens * tokens,
        )
        note = message(
            "{pairs}: about {seconds}; what takes less: {suggestion}; Ctrl-C ends it",
            pairs=pairs,
            seconds=duration_words(seconds),
            suggestion=hint,
        )
        environment.note(note)


# What a command took: in documents, and for `--verbose`.


def effort(models: Sequence[Model], start_time: float) -> str:
    """One line on what a command took: bytes of weights read or drawn at random, backend, peak
    memory and seconds.

    start_time: of `perf_counter`, when the command began.
    """
    from attncli.draw.numbers import size_words
    from attncli.models.estimate import peak_memory

    parts: list[str] = []
    for model in models:
        untrained = model.identity.source in ("seeded", "random")
        size = size_words(model.store.bytes_read())
        parts.append(
            message("{size} of weights drawn" if untrained else "{size} of weights read", size=size)
        )
        backend = model.backend
        places = {"backend": backend.name, "dtype": backend.dtype, "device": backend.device}
        parts.append(message("{backend} {dtype} on {device}", **places))
    peak = peak_memory()
    if peak is not None:
        parts.append(message("{peak} of memory at the peak", peak=size_words(peak)))
    return listing((*parts, f"{perf_counter() - start_time:.2f} s"), "; ")


# Waiting for a key between parts of what is shown at a terminal.

QUITTING_KEYS = ("q", "Q", "\x03", "\x04", "\x1b", "")
"""Keys that end what is shown: q, Ctrl-C, Ctrl-D, Escape, and no key at all."""


def wait_for_key(question: str, view: View, environment: Environment) -> bool:
    """Ask a question at the terminal, wait for a key and wipe the question; returns whether the key
    is one that quits."""
    from attncli.draw.lines import as_text, remark
    from attncli.language import say

    assert environment.keys is not None
    prompt = as_text(remark(say(view, question), view), view).rstrip("\n")
    environment.write(prompt.encode())
    try:
        return environment.keys() in QUITTING_KEYS
    finally:  # also where Ctrl-C ends it
        environment.write(b"\r\x1b[2K")
