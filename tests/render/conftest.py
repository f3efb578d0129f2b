"""One browser for all tests of pages and figures."""

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started
