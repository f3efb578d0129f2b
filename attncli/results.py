"""What draws the results of public functions, told to the engine: it imports nothing that draws."""

from __future__ import annotations

from typing import Any


def show_results() -> None:
    """Tell the engine, which imports nothing that draws, where results are drawn for notebooks and
    files. Called when a program first uses any public name; later calls change nothing."""
    from attncli.mechanism.trace import VIEWS

    if not VIEWS:
        VIEWS.append(_views)


def _views() -> Any:
    """The module `attncli.notebook`, which draws results; imported at the first call."""
    from attncli import notebook

    return notebook
