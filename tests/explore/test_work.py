"""Long work: told of, stopped, and what goes wrong in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Event

import pytest
from msgspec.structs import replace
from processes import finish
from walking import SENTENCE, awaited, lines, pressed, seeded, shown

from attncli.draw.view import View
from attncli.errors import AttnError
from attncli.explore.actions import act
from attncli.explore.explorer import Explorer
from attncli.explore.loaded_run import LiveSource, SavedSource
from attncli.explore.state import State
from attncli.explore.walk import Work
from attncli.measure.head_record import HeadRecord
from attncli.measure.run_record import RunRecord


def halting(go_on: Event, stopped: Event) -> SavedSource:
    """A run that gives half of its heads and then waits; says when it is stopped."""
    whole = LiveSource.of(seeded(), SENTENCE).record(lambda share: None)
    heads = list(whole.heads)

    def some() -> Iterator[HeadRecord]:
        try:  # who leaves may be gone before the first four are taken
            yield from heads[:4]
            while not go_on.wait(0.3):  # Pilot waits for a moment without work
                yield heads[3]
            yield from heads[4:]
        finally:
            stopped.set()

    def make() -> RunRecord:
        return RunRecord(whole.name, whole.text, whole.sides, whole.model, whole.attention, some())

    return SavedSource("half", None, make)  # type: ignore[arg-type]


async def until(there: Callable[[], bool]) -> None:
    """Wait until something is there, a minute at most."""
    for _ in range(6000):
        if there():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


def test_heads_appear_as_they_come_keys_are_heard_meanwhile_and_esc_stops() -> None:
    go_on, stopped = Event(), Event()
    app = Explorer(halting(go_on, stopped), View(width=80, color=True), start=State(head=7))

    async def walk() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await until(
                lambda: app.walk.loaded_run is not None and len(app.walk.loaded_run.heads) == 4
            )
            await pilot.pause(0.1)
            assert "running" in lines(app)[0]
            assert "not reached this head yet" in shown(lines(app), "reached")
            await pilot.press("home")
            assert app.walk.state.head == 0
            assert any("humpty" in line for line in lines(app)[3:16])
            await pilot.press("escape")
            assert "running" not in lines(app)[0]
            assert "stopped" in shown(lines(app), "stopped")
            assert stopped.wait(60)

    awaited(walk)
    assert app.failure is None


def test_who_moves_while_heads_come_stays_there() -> None:
    go_on, stopped = Event(), Event()
    app = Explorer(halting(go_on, stopped), View(width=80))
    walk = app.walk

    async def move() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await until(lambda: walk.loaded_run is not None and len(walk.loaded_run.heads) == 4)
            await pilot.press("home")
            go_on.set()
            await until(lambda: walk.work is None)
            assert (walk.state.layer, walk.state.head) == (0, 0)

    awaited(move)


def test_nothing_of_stopped_work_arrives() -> None:
    posted: list[Callable[[], None]] = []
    done: list[str] = []

    def job(work: Work) -> Callable[[], None]:
        return lambda: done.append("done")

    work = Work(posted.append, job, name="", on_error=lambda error: done.append("failed")).start()
    work.wait(5)
    work.cancel()
    for act_now in posted:
        act_now()
    assert done == []


@pytest.mark.parametrize("error", [AttnError("the first run failed"), RuntimeError("a bug")])
def test_a_first_run_that_fails_ends_the_program_with_its_error(error: Exception) -> None:
    def make() -> RunRecord:
        raise error

    with pytest.raises(type(error), match=str(error)):
        pressed(SavedSource("broken", None, make))  # type: ignore[arg-type]


def test_what_fails_later_is_told_and_the_walk_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LiveSource, *asked: object, **choices: object) -> object:
        raise AttnError("no effects today", expected="another day")

    monkeypatch.setattr(LiveSource, "effects", refuse)
    app, text = pressed(SENTENCE, "e", start=State())
    assert "no effects today; another day" in shown(text, "today")
    assert app.walk.work is None


def test_leaving_stops_the_work() -> None:
    go_on, stopped = Event(), Event()
    app = Explorer(halting(go_on, stopped), View(width=80))

    async def walk() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await until(lambda: app.walk.loaded_run is not None)
            act(app.walk, "quit")
            await pilot.pause()

    awaited(walk)
    assert stopped.wait(60)


def test_other_commands_do_not_import_textual() -> None:
    told = "import sys; from attncli.cli import main; main({}); sys.stderr.write(str('textual' in sys.modules))"
    for arguments in (["--help"], ["run", "a b", "--brief"]):
        assert finish([__import__("sys").executable, "-c", told.format(arguments)]).stderr.endswith(
            "False"
        )


def test_what_is_typed_moves_no_cursor() -> None:
    source = replace(LiveSource.of(seeded(), "a b"), text="\x1b]0;owned\x07 a b\u202e")
    found: list[str] = []
    pressed(source, "i", last=lambda app: found.append(app.line.value))
    assert found == ["␛]0;owned␇ a b\\u{202e}"]
