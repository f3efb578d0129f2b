"""How far a long run has come, on standard error, for a person at a terminal only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attncli.cli.output import Environment

PATIENCE = 1.0
"""Seconds before anything is said: what is done sooner needs no progress."""
PAUSE = 0.2
LONG_WORK = 10.0
"""Estimated seconds from which on the cost is told before the work starts."""
LONG_TEXT = 500_000
"""Characters of a text that takes seconds to be cut into tokens."""


@contextmanager
def progress(environment: Environment, what: str) -> Iterator[Callable[[float], None]]:
    """A function to be told the share that is done, 0 to 1; shows it with the time left, and wipes it at the end.

    Silent where standard error is no terminal, and with `--quiet`.
    """
    begun = shown = time.monotonic()
    said = False

    def tell(share: float) -> None:
        nonlocal shown, said
        now = time.monotonic()
        if now - begun < PATIENCE or now - shown < PAUSE or share <= 0:
            return
        shown, said = now, True
        left = (now - begun) * (1 - share) / share
        environment.stderr.write(f"\r{what}: {share:4.0%}, {_time(left)} left\x1b[K")
        environment.stderr.flush()

    def silent(share: float) -> None:
        return

    try:
        yield tell if environment.stderr_is_terminal and not environment.quiet else silent
    finally:
        if said:
            environment.stderr.write("\r\x1b[K")
            environment.stderr.flush()


def foretell_text(environment: Environment, characters: int) -> None:
    """Say at once that a long text is long; how many tokens it has is not known yet."""
    if characters >= LONG_TEXT:
        environment.note(f"{characters:,} characters of text; they are cut into tokens first")


def foretell_work(environment: Environment, tokens: int, seconds: float, hint: str) -> None:
    """Say what long work will cost before it starts. seconds: estimated. hint: what would take less."""
    if seconds >= LONG_WORK:
        pairs = f"{tokens:,} tokens are {tokens * tokens:,} pairs for each head"
        environment.note(f"{pairs}: about {_time(seconds)}; {hint} takes less, Ctrl-C ends it")


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
