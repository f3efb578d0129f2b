"""Which output options do not go together: two files in one place, looks where nothing is drawn, rows that are cut and
shown whole. Nothing that is asked for is dropped without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attncli.cli.options import OutputOptions
from attncli.cli.output import Environment
from attncli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LOOKS = ("show", "code", "brief", "full", "precision", "top", "ascii", "scale_colors")
"""The options about how a screen looks, by name."""


def refuse_looks(
    options: OutputOptions, environment: Environment, machine: str, document_options: Sequence[str]
) -> None:
    """Raise UsageError where the command line asks how a screen looks that is not drawn; variables and settings that
    do not apply are silent."""
    for option in (
        f"--{name.replace('_', '-')}"
        for name in LOOKS
        if name in environment.explicit_options and name not in document_options
    ):
        raise UsageError(f"{option} is about the screen, and {machine} draws none", expected="one or the other")
    if options.color == "always" and "color" in environment.explicit_options:
        raise UsageError(f"--color always does not go with {machine}", expected="no colour, or a screen")


def refuse_dropped(options: OutputOptions, environment: Environment, answers: Sequence[str], *, ranked: bool) -> None:
    """Raise UsageError where one option about the screen leaves nothing for another to change. answers: options that
    change what --brief shows; ranked: whether --top is about the rows that --full shows."""
    cut = [
        name
        for name in LOOKS
        if name in environment.explicit_options and name not in ("brief", "code", "ascii", *answers)
    ]
    if options.brief and cut:
        option = f"--{cut[0].replace('_', '-')}"
        raise UsageError(f"{option} is about the tables, and --brief shows none", expected="one or the other")
    if options.full and ranked and "top" in environment.explicit_options:
        raise UsageError("--full shows every row, and --top only the first", expected="one or the other")


def check_files(options: OutputOptions, environment: Environment, written: Mapping[str, Path | None]) -> None:
    """Raise UsageError where two outputs are the same file, however it is spelled, AttnError where one cannot be
    written. written: files of the command's own options."""
    from attncli.inputs.atomic import check_writable, place_of

    files = {"--output": options.file, "--figure": options.svg, "--csv": options.csv, **written}
    name_of_file: dict[str, str] = {}
    for name, path in files.items():
        if path is None:
            continue
        if str(path) == "-":
            raise UsageError(f"{name} names no file", where="-", expected="a file; --output - is standard output")
        first_name = name_of_file.setdefault(place_of(path), name)
        if first_name == name and options.file is None and environment.writes_to(path):
            first_name = "standard output"
        if first_name != name:
            raise UsageError(f"{first_name} and {name} are the same file", where=str(path), expected="a file for each")
        check_writable(path)
