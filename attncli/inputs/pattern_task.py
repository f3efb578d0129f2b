"""The places that regular expressions match in a text; runs in a bounded process, for some take for
ever."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from attncli.inputs.task_failure import TaskError


def perform(
    request: Mapping[str, Any], write: Callable[[object], None]
) -> list[list[tuple[int, int]]]:
    """For each of `patterns`, the characters [start, end) of every match in `text`; where `names`
    are given in its place, the numbers [n, n + 1) of those that it matches from their beginning.

    write: is told which pattern is next. Raises TaskError of the kind "pattern" for what is no
    regular expression, with its number.
    """
    warnings.simplefilter("ignore")  # about patterns that a later Python reads otherwise
    matches = []
    for number, source in enumerate(request["patterns"]):
        write({"place": number})
        try:
            pattern = re.compile(source)
        except (re.error, RecursionError, OverflowError) as error:
            raise TaskError("pattern", str(error), number) from error
        except MemoryError as error:
            raise TaskError("memory", place=number) from error
        try:
            matches.append(_spans(pattern, request))
        except MemoryError as error:
            raise TaskError("memory", place=number) from error
    return matches


def _spans(pattern: re.Pattern[str], request: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Where a pattern matches, as `perform` says."""
    if "names" not in request:
        return [match.span() for match in pattern.finditer(request["text"])]
    names = enumerate(request["names"])
    return [(number, number + 1) for number, name in names if pattern.match(name)]
