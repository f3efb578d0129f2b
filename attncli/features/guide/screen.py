"""The screen of bare `attn guide`: the pages by name."""

from __future__ import annotations

from collections.abc import Mapping

from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.tables import table
from attncli.render.view import View


def contents(titles: Mapping[str, str], view: View) -> Lines:
    """Every page's name and title."""
    rows = [[name, title] for name, title in titles.items()]
    return stack((table(["", ""], rows, view, title=say(view, "guide.title")), remark(say(view, "guide.how"), view)))
