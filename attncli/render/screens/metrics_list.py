"""Every metric with a line: what bare `attn explain metric` shows."""

from __future__ import annotations

from collections.abc import Mapping

from attncli.render.headings import own
from attncli.render.lines import Lines
from attncli.render.tables import table
from attncli.render.view import View


def metrics_screen(meanings: Mapping[str, str], view: View) -> Lines:
    """Every metric with a line of what a high value means."""
    rows = [[name, own(meaning, view)] for name, meaning in meanings.items()]
    return table(["metric", "a high value means"], rows, view)
