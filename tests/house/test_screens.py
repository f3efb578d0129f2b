"""A part of a screen is declared once, in the table of its screen: help, completion and `--show`
read it there.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from asking import ask

from attncli.documents import NAMES, folder_of
from attncli.draw.view import ScreenPart, part_names

SCREENS = {
    name: parts
    for name in NAMES
    if name != "error" and (parts := part_names(name, folder_of(name)))
}


def test_the_screens_with_parts_are_known():
    assert {"run", "heads", "find", "explain", "ablate", "scan", "difference"} <= SCREENS.keys()


@pytest.mark.parametrize("name", SCREENS)
def test_the_names_read_off_the_source_are_those_of_the_table(name):
    table = getattr(import_module(f"{folder_of(name)}.screen"), f"{name.upper()}_PARTS")
    assert all(isinstance(part, ScreenPart) for part in table)
    assert tuple(part.name for part in table) == SCREENS[name]
    assert len(set(SCREENS[name])) == len(SCREENS[name])


@pytest.mark.parametrize("name", ["run", "find", "mask", "patch"])
def test_help_lists_the_parts(name):
    page = " ".join(ask(name, "--help").out.split())
    assert f"[{', '.join(SCREENS[name])}, all]" in page


def test_a_part_that_is_not_written_out_is_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "screen.py").write_text('PLANTED_PARTS: object = (other("header"),)\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TypeError, match="not ScreenPart"):
        part_names("planted", "planted")
