"""Every command's screens at narrow and wide terminals, in every language, and its JSON, as stored:
`python tests/golden_screens.py` stores them anew."""

from __future__ import annotations

import pytest
from commands import commands
from golden_screens import (
    ELSEWHERE,
    INSTEAD,
    SCREENS,
    file_of,
    json_lines,
    screen_names,
    screens,
    seeded_lines,
    stored_digests,
)

RENEW = "look at what changed, then: python tests/golden_screens.py"


@pytest.mark.many
@pytest.mark.parametrize("path", screen_names())
def test_screens_are_those_that_are_stored(path: str) -> None:
    stored = file_of(path).read_text("utf-8").splitlines()
    drawn = screens(path).splitlines()
    different = [
        f"line {number}\n  stored: {old}\n  drawn:  {new}"
        for number, (old, new) in enumerate(zip(stored, drawn, strict=False), 1)
        if old != new
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
    assert {path.name for path in SCREENS.iterdir()} == {
        file_of(path).name for path in screen_names()
    }
    known = {line for examples in lines.values() for line in examples}
    assert {line.split("\t")[0] for line in stored_digests()} <= known
