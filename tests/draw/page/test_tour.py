"""The tour on a page: the steps of the explorer, with the numbers that the derivation has; each in
the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from browsing import Opened, opened

from attncli.draw.tour import TOUR, step_title
from attncli.draw.view import View
from attncli.explore.walk import STOPS
from attncli.language import say

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tour") / "page.html"
    assert ask("run", TEXT, "--num-heads", "2", "--html", str(made)).code == 0
    return made


@pytest.fixture(scope="module")
def window(chromium: Any, file: Path) -> Iterator[Opened]:
    found = opened(chromium, file)
    yield found
    found.page.context.close()


@pytest.mark.thorough
def test_every_step_has_its_view_its_words_and_its_address(window: Opened) -> None:
    window.page.click("#tour-open")
    word = window.value("attn.meta.runs[0].q[attn.state.query][0]")
    views = ["matrix", *["derivation"] * 5, "search", "search"]
    for number, (step, view) in enumerate(zip(TOUR, views, strict=True)):
        for lang in ("en", "zh"):
            window.value("(lang) => attn.choose({lang})", lang)
            said = window.value("() => document.querySelector('#tour').innerText")
            for sentence in (step.words, step.title, step.lead):
                assert sentence is None or say(View(lang=lang), sentence, query=word) in said
            assert (f"{number}" in said) == (number > 0)
            assert number == 0 or step_title(step, View(lang=lang)) in said
        assert window.value("attn.state.view") == view
        window.until(f"() => location.hash.includes('t={number + 1}')")
        window.page.click("#tour-on")
    assert window.value("attn.state.tour") == len(TOUR)
    window.page.click("#tour-close")
    assert window.value("() => document.querySelector('#tour').hidden")
    window.value("() => attn.choose({lang: 'en'})")
    window.clean()


@pytest.mark.thorough
def test_arrows_and_play_go_through_the_steps(window: Opened, chromium: Any, file: Path) -> None:
    window.value("() => attn.choose({tour: 1, view: 'matrix'})")
    window.page.focus("#tour-on")
    for key, number in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
        window.page.keyboard.press(key)
        assert window.value("attn.state.tour") == number
    assert window.value("document.activeElement.id") == "tour-on"
    window.value("() => document.activeElement.blur()")
    for key, number in (("ArrowRight", 3), ("ArrowLeft", 2)):  # wherever the page is looked at
        window.page.keyboard.press(key)
        assert window.value("attn.state.tour") == number
    window.page.click("#tour-play")
    window.until("() => attn.state.tour === 3", seconds=60)
    window.page.click("#tour-play")
    again = opened(chromium, file, "#t=5&v=derivation")
    assert "softmax" in again.value("() => document.querySelector('#tour').innerText")
    assert again.until("() => document.querySelector('#view .now code')?.textContent").startswith(
        "exp(s"
    )
    again.page.context.close()
    window.page.click("#tour-close")
    window.clean()


def test_page_explorer_and_derivation_number_the_steps_alike() -> None:
    words = [stop.words[0] for stop in STOPS if stop.words]
    assert [step.words for step in TOUR if step.words in words] == [step.words for step in TOUR[1:]]
    assert [stop.tour_step for stop in STOPS if stop.tour_step] == list(TOUR[-2:])
    numbers = {step.name: str(number) for number, step in enumerate(TOUR)}
    screen = ask("explain", TEXT, "--query", "cat").out
    titles = re.findall(r"(?m)^([1-5]) (\w+)", screen)
    steps = {name: number for number, name in titles if name in numbers}
    assert list(steps) == ["similarity", "scale", "mask", "softmax", "output"]
    assert steps.items() <= numbers.items()
    assert all(f"\n{number} {TOUR[number].title}" in screen for number in (6, 7))
