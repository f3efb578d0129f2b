"""`attn.series/1`: what each head does in each checkpoint of one model, and when that changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from attncli.documents import (
    Count,
    Document,
    Numbers,
    Part,
    PlacedHead,
    Size,
    TokenRow,
    axes,
    describe,
)
from attncli.language import message, plural, term


class SeriesHead(PlacedHead, frozen=True, kw_only=True):
    """One head in one checkpoint."""

    metrics: Annotated[
        dict[str, float | None],
        describe(
            "Metrics by name, means over the texts; null where no row could be used. `induction`"
            " and `duplicate` are those on random repeats."
        ),
    ]
    labels: Annotated[list[str], describe("What the head looks like in half of the texts or more.")]


class SeriesCheckpoint(Part, frozen=True, kw_only=True):
    """One checkpoint."""

    name: Annotated[str, describe("As asked for: a folder, or a hub id with its revision.")]
    step: Annotated[
        Count | None, describe("The number in its name, such as 512 of step512; null without one.")
    ]
    digest: Annotated[str, describe("sha256 of its tensors, names, types, shapes and bytes.")]
    same_as: Annotated[
        str | None, describe("An earlier checkpoint whose tensors are the same, byte for byte.")
    ]
    loss: Annotated[
        float | None,
        describe(
            "The mean of −ln p of next tokens over the texts; null for a model that predicts none."
        ),
    ]
    heads: list[SeriesHead]
    maps: Annotated[
        Numbers | None,
        axes("series head", "token", "token", meaning="with --html: weights in the first text"),
    ] = None


class LabelChange(PlacedHead, frozen=True, kw_only=True):
    """A label that a head earns or loses between two checkpoints that follow each other."""

    label: str
    earned: bool
    before: Annotated[str, describe("The name of the checkpoint before.")]
    after: str


class SeriesDocument(Document, tag="attn.series/1", frozen=True, kw_only=True):
    """The checkpoints in the order of their steps."""

    text: Annotated[str, describe("The first text.")]
    tokens: Annotated[list[TokenRow], axes("token", meaning="Those of the first text.")]
    texts: Annotated[Size, describe("How many texts are measured on.")]
    layers: Size
    heads: Annotated[Size, describe("Of each layer, the most.")]
    metrics: list[str]
    checkpoints: list[SeriesCheckpoint]
    changes: list[LabelChange]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless all checkpoints have the same heads, with the same
        metrics.
        """
        if not self.checkpoints or not self.checkpoints[0].heads:
            yield "checkpoints", message("there is none, or none with heads")
            return
        places = [(head.layer, head.head) for head in self.checkpoints[0].heads]
        for number, checkpoint in enumerate(self.checkpoints):
            if [(head.layer, head.head) for head in checkpoint.heads] != places:
                yield (
                    f"checkpoints[{number}].heads",
                    message("they are not the heads of the first checkpoint"),
                )
            if any(set(head.metrics) != set(self.metrics) for head in checkpoint.heads):
                yield (
                    f"checkpoints[{number}].heads",
                    plural(
                        "its heads do not have the {count} metric",
                        "its heads do not have the {count} metrics",
                        count=len(self.metrics),
                    ),
                )


# What a checkpoint is told as: one number for each metric.

OF_ALL = ("entropy", "sink", "distance", "confidence")
"""Metrics that are told as the mean of all heads; of the others the highest head is."""


def metric_name(name: str) -> str:
    """A metric's name as a message, which is shown in the view's language."""
    return term(name)


def summary(row: SeriesCheckpoint, metric: str) -> float | None:
    """A metric of a checkpoint as one number: the mean of all heads for those of `OF_ALL`, else the
    highest.
    """
    values = [value for head in row.heads if (value := head.metrics[metric]) is not None]
    if not values:
        return None
    if metric in OF_ALL:
        return sum(values) / len(values)
    return max(values)


def has_steps(document: SeriesDocument) -> bool:
    """Whether each checkpoint is known by its step: all have one, and no two the same."""
    steps = [row.step for row in document.checkpoints]
    return None not in steps and len(set(steps)) == len(steps)


def short_names(document: SeriesDocument) -> dict[str, str]:
    """The short name of each checkpoint in tables, by its name: its step, else its name without the
    folders that all names share.
    """
    if has_steps(document):
        return {row.name: f"{row.step:,}" for row in document.checkpoints}
    paths = {row.name: row.name.rstrip("/").split("/") for row in document.checkpoints}
    common_depth = 0  # how many folders all names begin with; the last part always stays
    for parts in zip(*(path[:-1] for path in paths.values()), strict=False):
        if len(set(parts)) > 1:
            break
        common_depth += 1
    return {name: "/".join(path[common_depth:]) for name, path in paths.items()}


def curve_points(document: SeriesDocument) -> list[tuple[str, list[tuple[float, float]]]]:
    """The name and the points (x, y) of the curve of each metric that is a share: x is the step, at
    least 1, or the place from 1 on where not every checkpoint has a step."""
    series = []
    by_step = has_steps(document)
    for metric in document.metrics:
        if metric in ("entropy", "distance"):  # no shares
            continue
        points = []
        for place, row in enumerate(document.checkpoints):
            value = summary(row, metric)
            if value is None:
                continue
            if by_step:
                # a logarithmic axis has no 0; every row has a step here, which a type checker does
                # not see
                x = float(max(row.step or 0, 1))
            else:
                x = place + 1.0
            points.append((x, value))
        if points:
            series.append((metric, points))
    return series
