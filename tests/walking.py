"""Run the explorer under Textual's Pilot, without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar
from unittest.mock import patch

import induction_model

from attncli.draw.view import View
from attncli.explore.actions import act
from attncli.explore.explorer import Explorer
from attncli.explore.loaded_run import LiveSource, Source
from attncli.explore.state import State
from attncli.models.load import load
from attncli.models.model import Model

T = TypeVar("T")
SENTENCE = "humpty dumpty sat on"


@cache
def seeded() -> Model:
    """Eight heads of seeded weights."""
    return load(seed=0, d_model=16, heads=8)


def other(name: str) -> Model:
    """The models that may be switched to."""
    return load(
        seed=0, d_model=15 if name == "three heads" else 16, heads=3 if name == "three heads" else 8
    )


def decoder() -> LiveSource:
    """Two layers of three heads that continue "abcab" with c."""
    return LiveSource.of(induction_model.model(), "abcab")


def pressed(
    source: Source | str,
    *keys: str,
    size: tuple[int, int] = (80, 24),
    view: View | None = None,
    start: State | None = None,
    each: Callable[[Explorer], None] = lambda app: None,
    last: Callable[[Explorer], None] = lambda app: None,
) -> tuple[Explorer, list[str]]:
    """The application after these keys, and the lines of its screen.

    A key `=text` is typed, `@x,y` is a click, `wheel` and `wheel-` turn the mouse's wheel, `wait`
    takes half a second,
    `resize80,24` is another size. each: is called after every key, last: at the end.
    """
    how = View(width=size[0], color=True) if view is None else view
    found = LiveSource.of(seeded(), source) if isinstance(source, str) else source
    app = Explorer(
        found, how, start=start, models=lambda: ["eight heads", "three heads"], load=other
    )

    async def walk() -> list[str]:
        async with app.run_test(size=size) as pilot:
            await _settled(app, pilot)
            for key in keys:
                if key.startswith("@"):
                    x, y = map(int, key[1:].split(","))
                    await pilot.click(offset=(x, y))
                elif key.startswith("resize"):
                    width, height = map(int, key[6:].split(","))
                    await pilot.resize_terminal(width, height)
                    while len(app.canvas.pane.rows) != height:
                        await pilot.pause(0.01)
                elif key.startswith("wheel"):
                    act(app.walk, "up" if key.endswith("-") else "down")
                elif key == "wait":
                    await pilot.pause(0.5)
                elif key.startswith("="):
                    await pilot.press(*("space" if letter == " " else letter for letter in key[1:]))
                else:
                    await pilot.press(key)
                await _settled(app, pilot)
                each(app)
            last(app)
            return lines(app)

    with patch("textual.pilot.wait_for_idle", _a_turn), patch("textual.app.wait_for_idle", _a_turn):
        text = awaited(walk)
    if app.failure is not None:
        raise app.failure
    return app, text


def awaited(walk: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What it returns, in a loop of a thread's own: the browser of other tests keeps one in this
    thread.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(walk())).result()


async def _a_turn(*_: float) -> None:
    """Messages have their turn. Textual's Pilot waits till the processor idles: on a busy machine,
    a second a key.
    """
    await asyncio.sleep(0)


async def _settled(app: Explorer, pilot: object) -> None:
    """Until no work is going on and all messages are through."""
    from textual.pilot import Pilot

    assert isinstance(pilot, Pilot)
    await pilot.pause()
    for _ in range(6000):
        if app.failure is not None or (app.walk.loaded_run is not None and app.walk.work is None):
            break
        await asyncio.sleep(0.01)
    await pilot.pause()


def lines(app: Explorer) -> list[str]:
    """The text of the canvas, line by line."""
    strips = [app.canvas.render_line(y) for y in range(app.canvas.size.height)]
    return ["".join(segment.text for segment in strip) for strip in strips]


def shown(text: list[str], part: str) -> str:
    """The first line with this part; "" where there is none."""
    return next((line for line in text if part in line), "")
