"""How much of a file the hub's library has fetched, told to someone else than its own progress bars."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

Watch = Callable[[str, float], None]
"""Told the name of a file and the share of it that is there, 0 to 1."""


def bar_class(watch: Watch, file: str) -> type:
    """A class that the library takes in place of its bars: it draws nothing and tells `watch`."""
    from tqdm import tqdm

    class ProgressBar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        monitor_interval = 0  # nothing is drawn that a thread would have to refresh

        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": False, "file": StringIO()})

        def display(self, *args: Any, **settings: Any) -> bool:
            return True

        def update(self, n: float | None = 1) -> bool | None:
            displayed: bool | None = super().update(n)
            if self.total:
                watch(file, min(self.n / self.total, 1.0))
            return displayed

    return ProgressBar
