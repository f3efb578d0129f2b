"""Draws the guide's pictures anew: `python renew_pictures.py`. They are the screens themselves, in colour."""

from __future__ import annotations

import sys

import attncli
from attncli.analysis.run import Wanted, run_document
from attncli.guide import FOLDER
from attncli.render.figures.screen import draw_screen
from attncli.render.screens.run import run_screen
from attncli.render.view import View

SENTENCE = "The animal didn't cross the street because it was too tired"


def main() -> None:
    model = attncli.load("minilm")
    tokens = model.encode(SENTENCE)
    (query,) = [token.index for token in tokens if token.text == "it"]
    document = run_document(model, SENTENCE, tokens, Wanted(query=query, top=3))
    view = View(width=80, color=True, light=True, show=frozenset({"overview", "links", "answer"}))
    (FOLDER / "pictures").mkdir(exist_ok=True)
    (FOLDER / "pictures" / "it.svg").write_text(draw_screen(run_screen(document, view)).svg(), "utf-8")
    sys.stdout.write("it.svg\n")


if __name__ == "__main__":
    main()
