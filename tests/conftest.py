"""What holds for every test: reproducible examples, one thread per worker, no network."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

# read when torch and NumPy are first imported; workers of pytest-xdist share the machine's cores
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from browsing import browser
from hypothesis import settings

settings.register_profile("attn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("attn")

LOCAL = ("127.0.0.1", "::1", "localhost")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections leave this machine in no test; servers of the tests' own may be spoken to."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOCAL:
            raise ConnectionRefusedError(f"a test tried to reach {address[0]}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests of pages, figures and notebooks: a process cannot start two."""
    with browser() as started:
        yield started
