"""Progress is drawn for a person at a terminal, after a second, and leaves nothing behind."""

from io import BytesIO, StringIO

import pytest

from attncli.cli import progress as module
from attncli.cli.output import Environment


def environment(*, terminal: bool = True, quiet: bool = False) -> Environment:
    return Environment(BytesIO(), BytesIO(), StringIO(), {}, stderr_is_terminal=terminal, quiet=quiet, width=60)


def told(found: Environment) -> str:
    with module.progress(found, "4,096 tokens [red]") as tell:
        tell(0.25)
        tell(0.5)
    return found.stderr.getvalue()  # type: ignore[attr-defined]


def test_what_takes_long_shows_its_share_and_reads_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    said = told(environment())
    assert "4,096 tokens [red]" in said
    assert "25%" in said or "50%" in said


@pytest.mark.parametrize("found", [environment(terminal=False), environment(quiet=True)])
def test_a_pipe_and_a_quiet_run_hear_nothing(found: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    assert told(found) == ""


def test_what_is_soon_done_says_nothing() -> None:
    assert told(environment()) == ""
