"""What holds for every test: reproducible examples, one thread per worker, no network, long files
first.
"""

from __future__ import annotations

import gc
import os
import re
import socket
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# read when torch and NumPy are first imported; workers of pytest-xdist share the machine's cores
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from browsing import browser
from hypothesis import settings

settings.register_profile("attn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("attn")

LONG = (
    "scan/test_ray_cluster.py", "tests/test_examples.py", "cli/test_unknown_words.py",
    "explore/test_keys.py", "models/test_parity.py", "draw/test_answers.py", "learn/test_command.py",
    "scan/test_worker.py", "scan/test_atlas.py", "effects/test_against_transformers.py", "cli/test_output_pairs.py",
    "effects/test_command.py", "scan/test_engines.py", "cli/test_errors.py",
    "page/test_script.py", "page/test_saved.py", "cli/test_bounds.py", "effects/test_minilm.py",
    "models/test_minilm.py", "cli/test_signals.py", "page/test_weights.py", "cli/test_long.py", "scan/test_intake.py",
)  # fmt: skip
"""Files that take long, the longest first: begun late, one would keep its worker busy when the
other is done.
"""
LOCAL = ("127.0.0.1", "::1", "localhost")


def pytest_configure(config: pytest.Config) -> None:
    """Files are handed out in the order of `pytest_collection_modifyitems`, not by how many tests
    they have.
    """
    config.option.loadscopereorder = False
    gc.disable()  # nothing that collection makes becomes garbage: a quarter of its time


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        default="0/1",
        help="only a part of the tests, dealt out by their names: 0/20, 1/20 … 19/20",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of `many` cases of one kind a thirtieth runs every day, always the same; the others are thorough."""
    if item.get_closest_marker("many") and zlib.crc32(item.nodeid.encode()) % 30:
        item.add_marker("thorough")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share, parts = map(int, config.getoption("--share").split("/"))
    # by the name read backwards: `many` has chosen by the name read forwards
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()[::-1]) % parts == share]
    places = {name: place for place, name in enumerate(LONG)}

    def place_of(item: pytest.Item) -> int:
        """Where the file of a test stands in the order: those of the house together, at the
        beginning, since they share what they have read of the package.
        """
        folder = item.path.parent.name
        if folder == "house":
            return -1
        return places.get(f"{folder}/{item.path.name}", len(LONG))

    items.sort(key=place_of)


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking through it for garbage again and again takes a fifth
    of all the time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


TORCH_IS_LACKING = find_spec("torch") is None
WITHOUT_TORCH = re.compile(
    r"No module named '?torch|torch(, which)? is not installed|with torch to read it"
)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Where torch is not installed, files of tests that import it are skipped."""
    return _skipped_without_torch((yield), collector.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Where torch is not installed, tests that ask for it are skipped; all the others have to pass
    without it.
    """
    return _skipped_without_torch((yield), item.path)


def _skipped_without_torch(report: Any, path: Path) -> Any:
    if (
        TORCH_IS_LACKING
        and report.outcome == "failed"
        and WITHOUT_TORCH.search(str(report.longrepr))
    ):
        report.outcome, report.longrepr = (
            "skipped",
            (str(path), 0, "Skipped: torch is not installed"),
        )
    return report


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
