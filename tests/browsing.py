"""A real browser for pages: Chromium without a screen, driven by Playwright."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import pytest

CHROMIUM = which("chromium-headless-shell") or which("chromium")
DRAWN = "() => document.querySelectorAll('#grid .tile').length && document.querySelector('#chosen').textContent"
PATIENCE = 180
"""Seconds that a busy machine may take for what takes one."""
LACKING = "no chromium-headless-shell and no chromium here (a Debian package)"


def axe_core() -> str:
    """The source of axe-core, which looks for what keeps people out of a page. Skips where there is
    none: `npm install axe-core` in the project's folder, or its file named by `AXE_CORE`."""
    for path in (
        os.environ.get("AXE_CORE", ""),
        Path(__file__).parents[1] / "node_modules/axe-core/axe.min.js",
    ):
        if path and Path(path).is_file():
            return Path(path).read_text("utf-8")
    pytest.skip("no axe-core here (an npm package)")


@dataclass
class Opened:
    """A page that is open. said: what it wrote to the console. asked: the addresses that it asked
    for.
    """

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def value(self, script: str, given: Any = None) -> Any:
        """What a function gives in the page."""
        return self.page.evaluate(script, given)

    def until(self, script: str, given: Any = None, *, seconds: float = PATIENCE) -> Any:
        """What a function gives in the page, once that is something."""
        end = time.monotonic() + seconds
        while True:
            found = self.page.evaluate(script, given)
            if found:
                return found
            assert time.monotonic() < end, f"the page did not come to {script}: {self.said}"
            time.sleep(0.02)

    def go(self, file: Path, hash: str = "", drawn: str = DRAWN) -> None:
        """Open another file in this window, until its overview is drawn. drawn: tells that."""
        if self.asked:  # what a page that is left while it unpacks says is not the next one's
            self.page.goto("about:blank")
        self.said.clear()
        self.asked.clear()
        self.page.goto(file.as_uri() + hash)
        self.until(drawn)

    def clean(self) -> None:
        """Nothing was said in the console, and nothing was asked for but the page itself."""
        assert self.said == []
        assert len(self.asked) == 1


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium. Skips where there is none, or no Playwright."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no playwright here (a Python package)"
    )
    if CHROMIUM is None:
        pytest.skip(LACKING)
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE * 1000
        )
        yield started
        started.close()


def opened(
    browser: Any, file: Path, hash: str = "", *, drawn: str = DRAWN, **context: Any
) -> Opened:
    """A file opened in a window of its own, its overview drawn. drawn: tells that."""
    window = browser.new_context(viewport={"width": 1280, "height": 860}, **context)
    window.set_default_timeout(PATIENCE * 1000)
    found = Opened(window.new_page())
    # what Chromium advises tests that read pixels back is not said by the page
    found.page.on(
        "console", lambda one: None if "readback" in one.text else found.said.append(one.text)
    )
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    # a worker of the page's own is no request: its source stands in the page
    found.page.on(
        "request", lambda one: None if one.url.startswith("blob:") else found.asked.append(one.url)
    )
    found.go(file, hash, drawn)
    return found
