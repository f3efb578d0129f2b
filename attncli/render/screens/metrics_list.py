"""Every metric with a line: what bare `attn explain metric` shows."""

from __future__ import annotations

from collections.abc import Mapping

from attncli.render.headings import localize, remark
from attncli.render.lines import Lines, stack_spaced
from attncli.render.phrases import say
from attncli.render.tables import table
from attncli.render.view import View


def metrics_screen(meanings: Mapping[str, str], view: View) -> Lines:
    """Every metric with a line of what a high value means, and how to ask for more; brief, their names."""
    if view.brief:
        return remark(say(view, "metrics.brief", len(meanings), say(view, "list").join(meanings)), view, style="")
    rows = [[name, localize(meaning, view)] for name, meaning in meanings.items()]
    answer = remark(say(view, "metrics.answer", len(meanings)), view, style="")
    return stack_spaced((table(["metric", "a high value means"], rows, view), answer))
