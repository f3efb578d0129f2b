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
    """Match regular expressions against a text or a list of names.

    Args:
        request: `patterns`, and either `text` or `names`.
        write: Called with {"place": number} before each pattern, so that the parent process knows
            which one was under way if this process is ended.

    Returns:
        For each pattern the character spans (start, end) of its matches in the text; with names,
        a span (index, index + 1) for each name that the pattern matches from its beginning.

    Raises:
        TaskError: Of the kind "pattern" for what is no regular expression, "memory" for one that
            needs too much; with the pattern's number.
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
    """The character spans of a pattern's matches in the request's text; where it has names instead,
    a span (index, index + 1) for each that the pattern matches from its beginning."""
    if "names" not in request:
        return [match.span() for match in pattern.finditer(request["text"])]
    names = enumerate(request["names"])
    return [(number, number + 1) for number, name in names if pattern.match(name)]
