"""What the figures of all documents share: their titles and the rows of their rankings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attncli.analysis.documents.parts import Header, TokenRow
from attncli.features.cross.document import CrossDocument
from attncli.features.tensors.document import TensorsDocument
from attncli.render.figures.charts import Bar
from attncli.render.figures.drawing import Drawing, shorten_to_fit
from attncli.render.safe import label

Say: TypeAlias = Callable[..., str]
"""A phrase by its name, in the language that was asked for."""
RANKED = 20
"""Rows of a ranking, at most."""


def draw_title(drawing: Drawing, title: str, subtitle: str) -> float:
    """Write the title and what is to be known of it. Returns where the figure begins."""
    drawing.text(0, 10, shorten_to_fit(title, 12, 400), size=12, bold=True)
    drawing.text(0, 25, shorten_to_fit(subtitle, 9, 460), quiet=True)
    return 44


def names_of(tokens: Sequence[TokenRow]) -> list[str]:
    """The texts of tokens, safe to write."""
    return [label(token.text) for token in tokens]


def model_note(document: Header | CrossDocument | TensorsDocument, say: Say) -> str:
    """Which weights ran, and under which conventions; and which side of a map is which."""
    model, attention = document.model, document.attention
    parts = [model.name or model.source]
    parts += [say("seed", model.seed)] if model.source in ("seeded", "random") else []
    conventions = (("mask", attention.mask), ("position", attention.position))
    return "; ".join((*parts, *(say(name, value) for name, value in conventions if value != "none"), say("sides")))


def bar_of(name: str, value: float, *, signed: bool = False, mark: float | None = None, more: str = "") -> Bar:
    """A row of a ranking with its number. mark: another number on the same bar. more: what is told beside it."""
    text = (f"{value:+.3f}" if signed else f"{value:.3f}").replace("-", "−")
    return Bar(name, value, f"{text}  {more}".rstrip(), mark)
