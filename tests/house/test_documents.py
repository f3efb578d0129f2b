"""Every document is declared once and whole: a class, a schema with words, a screen, a table, and one who makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncli.analysis.documents import KINDS, NAMES
from attncli.analysis.documents.declaration import Document
from attncli.analysis.documents.json_schema import SCHEMAS
from attncli.render.screens import screen_of

PACKAGE = Path(__file__).parents[2] / "attncli"
SOURCES = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
UNSEEN = {"attn.error"}
"""Documents without a screen and a builder: the border tells an error in lines."""


def test_every_file_of_a_document_is_named():
    files = {path.stem for path in (PACKAGE / "analysis" / "documents").glob("*.py")}
    declaring = {
        stem for stem in files if f'tag="attn.{stem}' in SOURCES[PACKAGE / "analysis" / "documents" / f"{stem}.py"]
    }
    assert declaring <= set(NAMES)
    assert set(NAMES) <= files


@pytest.mark.parametrize("schema", KINDS)
def test_a_document_is_whole(schema):
    kinds = KINDS[schema]
    assert all(issubclass(kind, Document) for kind in kinds if schema not in UNSEEN)
    assert all(kind.__doc__ for kind in kinds)
    assert SCHEMAS[schema]["description"]
    for kind in kinds if schema not in UNSEEN else ():
        made = [path for path, text in SOURCES.items() if f"{kind.__name__}(" in text and "documents" not in path.parts]
        assert made, f"nobody makes a {kind.__name__}"
    if schema not in UNSEEN:
        shown = screen_of(schema)
        assert callable(shown.screen)
        assert callable(shown.rows)
