"""Every metric with a line: what bare `attn explain metric` shows."""

from __future__ import annotations

from collections.abc import Mapping

from attncli.render.headings import own, remark
from attncli.render.lines import Lines, spaced
from attncli.render.phrases import say
from attncli.render.tables import table
from attncli.render.view import View


def metrics_screen(meanings: Mapping[str, str], view: View) -> Lines:
    """Every metric with a line of what a high value means, and how to ask for more; brief, their names."""
    if view.brief:
        return remark(say(view, "metrics.brief", len(meanings), say(view, "list").join(meanings)), view, style="")
    rows = [[name, own(meaning, view)] for name, meaning in meanings.items()]
    told = remark(say(view, "metrics.answer", len(meanings)), view, style="")
    return spaced((table(["metric", "a high value means"], rows, view), told))
