"""Errors at the border: how they are told."""

from __future__ import annotations

import pytest
from asking import ask


@pytest.mark.parametrize("machine", [(), ("--json",)])
def test_an_error_about_a_name_without_end_keeps_its_beginning_and_its_end(machine: tuple[str, ...]) -> None:
    answer = ask("run", "x", "--mask", "nope" * 100_000 + "no-end", *machine)
    assert answer.code in (2, 3)
    assert "nopenope" in answer.err
    assert " … " in answer.err
    assert len(answer.err) < 10_000
