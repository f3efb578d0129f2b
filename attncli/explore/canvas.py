"""The canvas: the one widget of the screen; it draws a pane's lines and writes only those that changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from attncli.explore.pane import Pane, Spot
from attncli.render.headings import FAINT
from attncli.render.lines import Line, line_width

INKS = {False: ("#d7dae0", "#14161b", "#868e9c"), True: ("#1f2328", "#fbfbf9", "#6b7280")}
"""Ink, ground and faint ink of a dark and of a light screen."""


@lru_cache(4096)
def style_of(name: str, light: bool, color: bool) -> Style:
    """A piece's style on this screen. name: a Rich style."""
    ink, ground, faint = INKS[light]
    if not color:
        base = Style.parse(name) if name else Style()
        return Style(bold=base.bold, underline=base.underline, reverse=base.reverse)
    return Style(color=ink, bgcolor=ground) + (Style.parse(name.replace(FAINT, faint)) if name else Style())


class Canvas(Widget, can_focus=True):
    """Draws the pane it was given last.

    on_choice: is told what a click fell on; on_resized: called when the size is another.
    """

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(
        self, on_choice: Callable[[Spot | None], None], on_resized: Callable[[], None], *, light: bool, color: bool
    ) -> None:
        super().__init__()
        self._on_choice, self._on_resized = on_choice, on_resized
        self._light, self._color = light, color
        self.pane = Pane()

    def show(self, pane: Pane) -> None:
        """Draw this pane; lines that are as before are left as they are."""
        before, self.pane = self.pane.rows, pane
        regions = [
            Region(0, line, self.size.width, 1)
            for line, row in enumerate(pane.rows)
            if line >= len(before) or before[line] != row
        ]
        if regions:
            self.refresh(*regions)

    def on_resize(self) -> None:
        """Ask for a pane of the new size."""
        self._on_resized()

    def on_click(self, event: Click) -> None:
        """A click falls on what lies there."""
        event.stop()
        self._on_choice(self.pane.spots(event.x, event.y) if 0 <= event.y < self.pane.height else None)

    def render_line(self, y: int) -> Strip:
        """One line as Textual takes it."""
        row: Line = self.pane.rows[y] if y < self.pane.height else ()
        parts = [Segment(text, style_of(style_name, self._light, self._color)) for text, style_name in row if text]
        strip = Strip(parts, line_width(row))
        return strip.adjust_cell_length(self.size.width, style_of("", self._light, self._color))
