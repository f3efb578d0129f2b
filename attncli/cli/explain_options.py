"""What every topic of `attn explain` is asked with: more digits, and whether to wait between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from attncli.arrays.selection import EVERY, Selection
from attncli.cli import declarations as the
from attncli.cli import request
from attncli.cli.offered_options import without
from attncli.cli.options import ModelOptions, OutputOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.models.model import Model

DIGITS = 4
"""Digits after the point: with two, no step could be followed."""


@dataclass(frozen=True)
class ExplainOutput(OutputOptions):
    """The output options, with more digits, and a screen that waits between its steps."""

    precision: Annotated[int, the.PRECISION] = DIGITS
    step: Annotated[bool, the.STEP] = False


TextOutput = Annotated[ExplainOutput, without("scale_colors")]
TopicOutput = Annotated[ExplainOutput, without("show", "top", "scale_colors")]
"""Those of a topic about a text; its screen has no parts to choose from, and no ranking."""
SmallOutput = Annotated[ExplainOutput, without("show", "top", "scale_colors", "max_output")]
"""Those of a topic without a text, whose document is small."""


def one_layer(model: Model, asked: ModelOptions) -> int:
    """The layer that `--layer` names; the first that attends if it names none. Raises as `request.numbers`, `one`."""
    chosen = request.numbers(asked.layer, "layer", len(model.spec.blocks))
    return model.spec.attending()[0] if chosen is EVERY else one(chosen, "layer")


def one_head(model: Model, asked: ModelOptions) -> tuple[int, int]:
    """The layer and the head that `--layer` and `--head` name; the first that attends, and 0, where they name none."""
    layer = one_layer(model, asked)
    return layer, one(request.numbers(asked.head, "head", model.spec.blocks[layer].attention.heads), "head")


def one(chosen: Selection, what: str) -> int:
    """The only layer or head chosen; 0 if none was. Raises UsageError for several."""
    numbers = [0] if chosen is EVERY else list(chosen)
    if len(numbers) > 1:
        raise UsageError(f"--{what} names {len(numbers)} {what}s", expected=f"one: this is about one {what}")
    return numbers[0]
