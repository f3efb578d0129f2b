"""Draws the guide's pictures anew: `python renew_pictures.py`. They are the screens themselves, in
colour, and the page as Chromium shows it."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from browsing import browser, opened
from screen_pictures import CHINESE, SCREENS, drawn
from walking import pressed

import attncli
from attncli.draw.figures.drawing import draw_screen
from attncli.draw.lines import Lines
from attncli.draw.page import page_bytes, page_of
from attncli.draw.view import View
from attncli.explore.loaded_run import LiveSource
from attncli.explore.state import State
from attncli.language.guide import FOLDER
from attncli.measure.run_record import run_record
from attncli.models.model import Model

SENTENCE = "The animal didn't cross the street because it was too tired"
SIZE = (100, 28)


def main() -> None:
    model = attncli.load("minilm")
    (FOLDER / "pictures").mkdir(exist_ok=True)
    pictures = {f"{name}.svg": drawn(name) for name in SCREENS}
    pictures |= {f"{name}.zh.svg": drawn(name, lang="zh") for name in CHINESE}
    for name, svg in {**pictures, "explore.svg": draw_screen(explored(model)).svg()}.items():
        (FOLDER / "pictures" / name).write_text(svg, "utf-8")
        sys.stdout.write(f"{name}\n")
    (FOLDER / "pictures" / "page.png").write_bytes(opened_page(model))
    sys.stdout.write("page.png\n")


def explored(model: Model) -> Lines:
    """The explorer at layer 5 head 11, where "it" looks at "animal"."""
    source = LiveSource.of(model, SENTENCE)
    words = [token.text for token in source.tokens]
    start = State(layer=5, head=11, query=words.index("it"), key=words.index("animal"))
    app, _ = pressed(source, size=SIZE, view=View(color=True, light=True), start=start)
    return Lines(app.canvas.pane.rows)


def opened_page(model: Model) -> bytes:
    """The page of the sentence at the same head and words, as a picture."""
    tokens = model.encode(SENTENCE)
    words = [token.text for token in tokens]
    with TemporaryDirectory() as folder, browser() as chromium:
        file = Path(folder) / "page.html"
        page = page_of(
            attncli.run(model, SENTENCE, query="it"), record=run_record(model, SENTENCE, tokens)
        )
        assert page is not None
        file.write_bytes(b"".join(page_bytes(page)))
        window = opened(
            chromium, file, f"#h=5.11&q={words.index('it')}&k={words.index('animal')}&v=matrix"
        )
        window.until("() => document.querySelector('#view canvas.matrix')?.width > 300")
        window.page.wait_for_timeout(500)
        return bytes(window.page.screenshot(full_page=True))


if __name__ == "__main__":
    main()
