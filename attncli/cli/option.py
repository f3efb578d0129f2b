"""What an option is: names, words, group on the help page, and the values that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import typer

from attncli.cli.completion import Complete, offer, words
from attncli.errors import UsageError

SUBJECT, TEXT, MODEL, ATTENTION = "What to look at", "Text", "Model", "Attention"
ANALYSIS, COMPUTE, OUTPUT = "Analysis", "Compute", "Output"
PANELS = (SUBJECT, TEXT, MODEL, ATTENTION, ANALYSIS, OUTPUT, COMPUTE)
"""The groups of a help page, in the order of use."""

LARGEST = 1_000_000_000
"""The most of anything that can be asked for; memory refuses long before."""
LARGEST_SEED = 2**63 - 1


def option(
    *names: str,
    help: str,
    panel: str,
    metavar: str | None = None,
    values: Sequence[str] = (),
    with_number: bool = False,
    rare: bool = False,
    complete: Complete | None = None,
) -> Any:
    """A Typer option of one of the groups on the help page. Whether a file can be read is for its reader to find out.

    values: the words that it takes, if those are all. with_number: each also with a number after a colon.
    rare: only `--help-all` lists it.
    """

    def check_words(argument: Any) -> Any:
        for value in _values(argument):
            word, colon, count = str(value).partition(":")
            if (word if with_number and (not colon or whole(count) is not None) else value) not in values:
                from difflib import get_close_matches

                close = get_close_matches(str(value), values, 1)
                hint = f"{names[0]} {close[0]}" if close else ""
                raise UsageError(f"{names[0]} is {value!r}", expected=", ".join(values), hint=hint)
        return argument

    complete_words = offer(words(*values) if complete is None else complete)
    return typer.Option(
        *names,
        help=help,
        rich_help_panel=panel,
        metavar="|".join(values) if values and metavar is None else metavar,
        readable=False,
        hidden=rare,
        callback=check_words if values else None,
        autocompletion=complete_words if values or complete is not None else None,
    )


@dataclass(frozen=True)
class Within:
    """The numbers that an option takes, from `least` to `most`. above: `least` itself is too small."""

    name: str
    least: float
    most: float
    above: bool

    @property
    def description(self) -> str:
        return f"{'above ' if self.above else ''}{_number_text(self.least)} to {_number_text(self.most)}"

    def check(self, argument: Any) -> Any:
        """What is given. Raises UsageError for any number outside."""
        for value in _values(argument):
            # written so that nan is refused, too
            if not (self.least < value if self.above else self.least <= value) or not value <= self.most:
                raise UsageError(f"{self.name} is {value}", expected=self.description)
        return argument


def number(
    *names: str,
    help: str,
    panel: str,
    least: float = 1,
    most: float = LARGEST,
    above: bool = False,
    metavar: str = "N",
    rare: bool = False,
) -> Any:
    """An option that takes a number from `least` to `most`, which its help states. above: `least` itself is too
    small."""
    within = Within(names[0], least, most, above)
    return typer.Option(
        *names,
        help=f"{help} [{within.description}]",
        rich_help_panel=panel,
        metavar=metavar,
        hidden=rare,
        callback=within.check,
    )


def redeclare(
    declared: Any,
    *,
    help: str = "",
    panel: str = "",
    metavar: str = "",
    least: float | None = None,
    most: float | None = None,
    common: bool = False,
) -> Any:
    """A declared option as one command means it: spelled, checked and completed the same, with a sentence, a group or
    ends of its own. common: every help page lists it, though other commands' only `--help-all`."""
    own = copy(declared)
    own.rich_help_panel = panel or declared.rich_help_panel
    own.hidden = declared.hidden and not common
    own.metavar = metavar or declared.metavar
    own.help = help or declared.help
    if isinstance(ends := getattr(declared.callback, "__self__", None), Within):
        within = replace(ends, least=ends.least if least is None else least, most=ends.most if most is None else most)
        own.help = f"{help or declared.help.removesuffix(f' [{ends.description}]')} [{within.description}]"
        own.callback = within.check
    return own


def whole(text: str, most: int = LARGEST) -> int | None:
    """The whole number from 0 to `most` that a text writes; None for any other text, however long."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None
    return value if (value := int(digits)) <= most else None


def _values(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _number_text(end: float) -> str:
    return f"{end:,}" if isinstance(end, int) and abs(end) <= LARGEST else f"{end:.0e}".replace("e+", "e")
