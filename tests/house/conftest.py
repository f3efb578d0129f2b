"""What holds for tests of the house: they share the trees of the package's sources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import syntax


@pytest.fixture(scope="package", autouse=True)
def _trees_are_let_go() -> Iterator[None]:
    """Other tests of this process have no use for them."""
    yield
    syntax.forget()
