"""A worker's memory is given back when enough of it has gathered, and looked at often."""

from __future__ import annotations

import pytest

from attncli.scan import worker_process
from attncli.scan.worker_process import SPARE, MemoryTrimmer


def test_what_gathers_is_given_back_once_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    live, held, trims = 100 * 2**20, [0], []
    monkeypatch.setattr(worker_process, "_resident", lambda: held[0])

    def trim() -> None:
        trims.append(held[0])
        held[0] = live

    monkeypatch.setattr(worker_process, "_trim", trim)
    level = MemoryTrimmer()
    for grown in (SPARE // 2, SPARE, SPARE + 1, 0, SPARE):
        held[0] = live + grown
        level.trim_if_grown()
    assert trims == [live + SPARE // 2, live + SPARE + 1]
    held[0] = live = 50 * 2**20  # a model let go: what is needed now counts
    level.trim_if_grown()
    held[0] = live + SPARE + 1
    level.trim_if_grown()
    assert len(trims) == 3


def test_a_process_holds_something() -> None:
    assert worker_process._resident() > 2**20
    MemoryTrimmer().trim_if_grown()
