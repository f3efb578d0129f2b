"""What every topic of `attn explain` is asked with: more digits, and a language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from attncli.cli.options import OUTPUT, OutputOptions, option
from attncli.errors import UsageError

DIGITS = 4
"""Digits after the point: with two, no step could be followed."""

LangOption = Annotated[
    str, option("--lang", help="Language of the explanations: en or zh.", panel=OUTPUT, metavar="en|zh")
]


@dataclass(frozen=True)
class ExplainOutput(OutputOptions):
    """The output options, with more digits."""

    precision: Annotated[int, option("--precision", help="Digits after the point.", panel=OUTPUT, metavar="N")] = DIGITS


def language(lang: str, output: OutputOptions) -> str:
    """The language that `--lang` names. Raises UsageError for an unknown one, or one that ASCII cannot write."""
    from attncli.render.phrases import LANGUAGES

    if lang not in LANGUAGES:
        raise UsageError(f"--lang is {lang!r}", expected=", ".join(LANGUAGES))
    if lang == "zh" and output.ascii:
        raise UsageError("--lang zh cannot be written with --ascii", expected="one or the other")
    return lang


def one(chosen: list[int] | None, what: str) -> int:
    """The only layer or head chosen; 0 if none was. Raises UsageError for several."""
    if chosen is not None and len(chosen) > 1:
        raise UsageError(f"--{what} names {len(chosen)} {what}s", expected=f"one: this is about one {what}")
    return 0 if chosen is None else chosen[0]
