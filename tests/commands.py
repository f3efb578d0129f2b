"""Every command of the program, from the program itself: none can be left out of a test for all of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer

from attncli.cli.app import COMMANDS, app_of


@cache
def commands() -> tuple[tuple[str, Any], ...]:
    """The name of each, as on the command line (`scan start` is `scan`'s own), and Typer's command."""
    made = ((name, typer.main.get_command(app_of(name))) for name in COMMANDS)
    return tuple(
        (f"{name} {'' if part == 'text' else part}".strip(), inner)
        for name, command in made
        for part, inner in getattr(command, "commands", {"": command}).items()
    )
