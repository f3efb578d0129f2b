"""Every document is declared once and whole: a class, a schema with words, a screen, a table, and
one who makes it.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from attncli.documents import (
    ABOUT_HEADS,
    KINDS,
    NAMES,
    OF_TWO_RUNS,
    SCHEMAS,
    WITHOUT_FIGURE,
    Document,
    folder_of,
)
from attncli.draw.screen_header import screen_of

PACKAGE = Path(__file__).parents[2] / "attncli"
SOURCES = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
MADE = {
    name for text in SOURCES.values() for name in re.findall(r"(?<!class )\b([A-Z]\w+)\(", text)
}
"""Documents that are made somewhere."""
UNSEEN = {"attn.error"}
"""Documents without a screen and a builder: the border tells an error in lines."""


def test_every_document_that_is_declared_is_named():
    declared = {
        name for path, text in SOURCES.items() if path.stem in ("document", "compute")
        for name in re.findall(r'tag="attn\.(\w+)', text)
    }  # fmt: skip
    # an error carries no tag
    assert declared == set(NAMES) - {"error"}, "NAMES of attncli/documents/__init__.py lists them"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "error"])
def test_a_document_has_a_figure_or_says_that_it_has_none(name):
    place = f"{folder_of(name)}.figure"
    module = import_module(place) if find_spec(place) else None
    assert hasattr(module, f"{name}_figure") == (name not in WITHOUT_FIGURE), (
        f"{place.replace('.', '/')}.py has {name}_figure, or attncli/documents/__init__.py lists"
        f" {name!r} in WITHOUT_FIGURE"
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "error"])
def test_a_document_of_heads_has_a_page_of_them(name):
    place = f"{folder_of(name)}.page"
    module = import_module(place) if find_spec(place) else None
    for made in ("document_heads", "page_focus"):
        assert hasattr(module, f"{name}_{made}") == (name in ABOUT_HEADS), (
            f"{place.replace('.', '/')}.py has {name}_{made}, and attncli/documents/__init__.py"
            f" lists {name!r} in ABOUT_HEADS; or neither"
        )
    assert hasattr(module, f"{name}_page_of") == (name in OF_TWO_RUNS)


@pytest.mark.parametrize("schema", KINDS)
def test_a_document_is_whole(schema):
    kinds = KINDS[schema]
    assert all(issubclass(kind, Document) for kind in kinds if schema not in UNSEEN)
    assert all(kind.__doc__ for kind in kinds)
    assert SCHEMAS[schema]["description"]
    for kind in kinds if schema not in UNSEEN else ():
        assert kind.__name__ in MADE, f"nobody makes a {kind.__name__}"
    if schema not in UNSEEN:
        shown = screen_of(schema)
        assert callable(shown.screen)
        assert callable(shown.rows)
