"""Every command starts: its options are declared, its help is drawn, and a slip in them names the
option.
"""

from __future__ import annotations

import pytest
import typer
from asking import ask

from attncli.cli.app import COMMANDS, app_of


def lines() -> list[tuple[str, ...]]:
    """Every command, and every command of a group, as it is called."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = typer.main.get_command(app_of(name))
        found += [(name, inner) for inner in getattr(command, "commands", ())] or [(name,)]
    return found


@pytest.mark.parametrize("line", lines(), ids=" ".join)
def test_a_command_starts(line: tuple[str, ...]) -> None:
    page = ask(*line, "--help")
    assert (page.code, page.err) == (0, "")
    assert f"Usage: attn {line[0]}" in page.out
    slip = ask(*line, "--no-such-option")
    assert (slip.code, slip.out) == (2, "")
    assert "--no-such-option" in slip.err
