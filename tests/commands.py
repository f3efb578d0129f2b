"""Every command of the program, from the program itself: none can be left out of a test for all of
them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
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


def example(path: str, text: str | None = None) -> tuple[str, ...]:
    """The words of the first example in the help of a command; samples are named by their whole
    path.

    text: stands in place of the example's own, where the command takes one.
    """
    name, *part = path.split()
    command = typer.main.get_command(app_of(name))
    inner = getattr(command, "commands", {"": command})
    shown = inner[part[0]] if part else inner.get("text", command)
    lines = (line.strip() for line in (shown.help or "").splitlines())
    line = next(line for line in lines if f"{line} ".startswith(f"attn {path} "))
    samples = str(Path(__file__).parents[1] / "sample_inputs")
    words = [word.replace("sample_inputs", samples) for word in shlex.split(line)[1:]]
    if text is not None and any(parameter.name == "text" for parameter in shown.params):
        words[1:2] = [text]
    return tuple(words)


def examples(
    lines: Mapping[str, tuple[str, ...]], elsewhere: Collection[str] = (), text: str | None = None
) -> dict[str, tuple[str, ...]]:
    """The first example of each command that none of these lines tries: a new command is tried
    without being listed.

    elsewhere: commands that are left out for a reason. text: stands in place of the examples' own.
    """
    here = {word for line in lines.values() for word in line[:1]} | {
        name.split()[0] for name in elsewhere
    }
    return {name: example(name, text) for name in COMMANDS if name not in here}
