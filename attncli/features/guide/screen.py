"""The screen of bare `attn guide`: the pages by name."""

from __future__ import annotations

from collections.abc import Mapping

from attncli.draw.headings import remark
from attncli.draw.lines import Lines, stack
from attncli.draw.text_tables import table
from attncli.draw.view import View
from attncli.language import say


def contents(titles: Mapping[str, str], view: View) -> Lines:
    """Every page's name and title."""
    rows = [[name, title] for name, title in titles.items()]
    return stack((table(["", ""], rows, view, title=say(view, "guide.title")), remark(say(view, "guide.how"), view)))
