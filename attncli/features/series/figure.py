"""The figure of `attn series`: scores of heads over the training of a model."""

from __future__ import annotations

from attncli.draw.figures.charts import (
    draw_curves,
    draw_title,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.safe import safe
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.features.series.document import SeriesDocument, curve_points, has_steps, metric_name
from attncli.language import listing, message, plural, say


def series_figure(document: SeriesDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw the heads' scores, a curve for each metric, over the training steps of a model's
    checkpoints.

    scale: not used, as nothing here is shaded.

    Raises:
        InputError: The metrics that were asked for are no shares.
    """
    title = plural("{count} checkpoint", "{count} checkpoints", count=len(document.checkpoints))
    if has_steps(document):
        subtitle = message("scores by step; both axes logarithmic")
        x_name = message("step")
    else:
        subtitle = message("scores by checkpoint, in their order; both axes logarithmic")
        x_name = message("checkpoint")
    top = draw_title(drawing, say(view, title), say(view, subtitle))
    series = [
        (safe(say(view, metric_name(name))), points) for name, points in curve_points(document)
    ]
    if not series:
        raise InputError(
            message(
                "the metrics {names} are no shares, so there is no curve to draw",
                names=listing(document.metrics),
            ),
            expected=message("such as --metric previous,induction"),
        )
    draw_curves(drawing, series, top, say(view, x_name), say(view, "score"))
