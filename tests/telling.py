"""A document as plain dictionaries and lists, for tests that compare parts of it whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attncli.documents import Part, members


def told(value: Any) -> Any:
    """Parts as dictionaries, tuples as lists; arrays and everything else as it is."""
    match value:
        case Part():
            return {name: told(held) for name, held in members(value)}
        case dict():
            return {name: told(held) for name, held in value.items()}
        case list() | tuple():
            return [told(held) for held in value]
        case _:
            return value


def telling(build: Callable[..., Any]) -> Callable[..., Any]:
    """A builder of documents that gives them as dictionaries."""
    return lambda *given, **named: told(build(*given, **named))
