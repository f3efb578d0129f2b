"""Families as if they had no file here: what runs through transformers can be tried with any of
them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attncli.models import load
from attncli.models.families import MODEL_TYPES, family


@pytest.fixture
def without_files(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide the files of these families while a test runs."""

    def hide(*names: str) -> None:
        monkeypatch.setattr(
            load, "MODEL_TYPES", tuple(name for name in MODEL_TYPES if name not in names)
        )
        monkeypatch.setattr(load, "family", lambda name: None if name in names else family(name))

    return hide
