"""The figure of `attn learn`: the loss by step, and what the heads have learned."""

from __future__ import annotations

from attncli.draw.figures.charts import (
    Bar,
    draw_bars,
    draw_curves,
    draw_title,
)
from attncli.draw.figures.drawing import Drawing, broken_to_fit
from attncli.draw.safe import safe
from attncli.draw.view import View
from attncli.features.learn.document import LearnDocument, curve_note, reference_name, score_name
from attncli.language import message, say
from attncli.mechanism.spec import head_name


def learn_figure(document: LearnDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a training: the loss by step beside the losses to compare it with, then for each score
    of heads (such as induction) the head that has most of it, untrained and trained."""
    # distances are in points; a line of small text is 11 high
    title = say(view, "learning {task}", task=safe(document.task))
    top = draw_title(drawing, title, say(view, curve_note(document)))
    # the loss, and losses to compare it with as flat lines over the same steps, at least 1 to 2, as
    # the axis of steps is logarithmic; a loss that is no number stands at 0
    points = [(point.step, point.loss or 0.0) for point in document.curve]
    ends = (1, max(document.curve[-1].step, 2))
    loss = say(view, "loss")
    flat = [(say(view, "chance"), document.chance)]
    flat += [
        (say(view, reference_name(reference.name)), reference.loss)
        for reference in document.references
    ]
    series = [(loss, points), *((name, [(x, number) for x in ends]) for name, number in flat)]
    top = draw_curves(drawing, series, top, say(view, "step"), loss)
    if not drawing.shows("bars"):
        return

    # a bar for each score, of the first seed, whose model is shown
    heads = {(head.layer, head.head): head for head in document.heads}
    bars = []
    for row in document.runs[0].best:
        score = heads[row.layer, row.head].scores[row.score]
        name = f"{safe(say(view, score_name(row.score)))} {head_name(row.layer, row.head)}"
        bars.append(
            Bar(name, score.last, f"{score.first:.2f} → {score.last:.2f}", mark=score.chance)
        )
    end = draw_bars(drawing, bars, top + 10, most=1.0)
    note = message(
        "bar: weight on the keys in question, untrained → trained; line: of a head that looks at"
        " all alike"
    )
    # in lines as wide as the drawing has room for, 460 points at most, and 11 points apart
    for index, line in enumerate(broken_to_fit(say(view, note), 8, min(460.0, drawing.room))):
        drawing.text(0, end + 12 + index * 11, line, size=8, quiet=True)
