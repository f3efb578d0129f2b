"""Screens, tables and pictures of documents that tests write as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from attncli.documents import Document
from attncli.documents.reading import document_of
from attncli.draw import screen_header
from attncli.draw.lines import Lines
from attncli.draw.view import View
from attncli.features.heads import screen as heads
from attncli.features.models import screen
from attncli.features.run import screen as run


class Loose:
    """A part of a document that a test leaves incomplete: what it does not name is absent."""

    def __init__(self, held: dict[str, Any]) -> None:
        self._held = {
            {"from": "query", "to": "key"}.get(name, name): loose(value)
            for name, value in held.items()
        }

    def __getattr__(self, name: str) -> Any:
        return self._held.get(name, UNSET)


def loose(value: Any) -> Any:
    """The value with its dictionaries as parts; metrics and the like stay dictionaries."""
    if isinstance(value, dict):
        return (
            {name: Loose(part) for name, part in value.items()}
            if "previous" in value
            else Loose(value)
        )
    return [loose(item) for item in value] if isinstance(value, list) else value


def shaped(document: dict[str, Any]) -> Document:
    """The declared document, as if it were read from a file."""
    return document_of(document, "a test's document")


def run_screen(document: dict[str, Any], view: View) -> Lines:
    return run.run_screen(shaped(document), view)


def run_rows(document: dict[str, Any]) -> Iterable[Sequence[object]]:
    return run.run_rows(shaped(document))


def heads_screen(document: dict[str, Any], view: View) -> Lines:
    return heads.heads_screen(shaped(document), view)


def heads_rows(document: dict[str, Any]) -> Iterable[Sequence[object]]:
    return heads.heads_rows(shaped(document))


def verify_screen(document: dict[str, Any], view: View) -> Lines:
    return screen.verify_screen(loose(document), view)


def header(document: dict[str, Any], view: View) -> Lines:
    return screen_header.header(shaped(document), view)
