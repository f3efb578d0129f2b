"""Every command's screens at narrow and wide terminals, in every language, and its JSON, as stored:
`python tests/golden_screens.py` stores them anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from commands import commands
from golden_screens import (
    ELSEWHERE,
    INSTEAD,
    OF_TRAINED,
    SCREENS,
    all_names,
    file_of,
    is_installed,
    is_near,
    json_lines,
    screen_names,
    screens,
    seeded_lines,
    stored_digests,
)

RENEW = "look at what changed, then: python tests/golden_screens.py"


LONG = {"circuit-pairs"}
"""Screens whose numbers take seconds."""


@pytest.mark.many
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.thorough] * (path in LONG)) for path in screen_names()],
)
def test_screens_are_those_that_are_stored(path: str) -> None:
    compare(path, str.__eq__)


@pytest.mark.thorough
@pytest.mark.parametrize("path", OF_TRAINED)
def test_screens_of_trained_decoders_are_those_that_are_stored(path: str) -> None:
    if not is_installed(path):
        pytest.skip(f"the model of {path} is not installed")
    compare(path, is_near)


def test_only_rounding_is_near() -> None:
    assert is_near("L1 H0  0.997  ▇▇▍ 88%", "L1 H0   1.00  ▇▇▌ 88%")
    assert not is_near("L1 H0  0.997", "L1 H0  0.897")
    assert not is_near("L1 H0  0.997", "L1 H1  0.997")
    assert not is_near("head", "heads")


def compare(path: str, is_same: Callable[[str, str], bool]) -> None:
    """Draw these screens and hold them against those that are stored."""
    stored = file_of(path).read_text("utf-8").splitlines()
    drawn = screens(path).splitlines()
    different = [
        f"line {number}\n  stored: {old}\n  drawn:  {new}"
        for number, (old, new) in enumerate(zip(stored, drawn, strict=False), 1)
        if not is_same(old, new)
    ]
    assert not different, "\n".join([f"{file_of(path).name}: {RENEW}", *different[:5]])
    assert len(stored) == len(drawn), f"{file_of(path).name}: {RENEW}"


@pytest.mark.parametrize("path", seeded_lines())
def test_json_has_the_bytes_that_are_stored(path: str) -> None:
    changed = set(json_lines(path)) - set(stored_digests())
    assert not changed, f"{changed}: {RENEW}"


def test_every_command_has_screens_or_a_reason() -> None:
    lines = seeded_lines()
    assert all(lines.values()), [path for path, examples in lines.items() if not examples]
    assert {*lines, *ELSEWHERE} == {path for path, _ in commands()}
    assert set(INSTEAD) <= set(lines)
    stored = {path.name for path in SCREENS.iterdir()}
    wanted = {file_of(path).name for path in all_names()}
    assert stored == wanted, f"{stored ^ wanted}: {RENEW}"
    known = {line for examples in lines.values() for line in examples}
    assert {line.split("\t")[0] for line in stored_digests()} <= known
