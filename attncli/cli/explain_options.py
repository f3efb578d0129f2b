"""What every topic of `attn explain` is asked with: more digits, and whether to wait between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from attncli.arrays.backend import EVERY, Selection
from attncli.cli import declarations, request
from attncli.cli.offered_options import without
from attncli.cli.options import ComputeOptions, ModelOptions, OutputOptions
from attncli.cli.output import Environment
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.inputs.token import Token
    from attncli.models.model import Model

DIGITS = 4
"""Digits after the point: with two, no step could be followed."""


@dataclass(frozen=True)
class ExplainOutput(OutputOptions):
    """The output options, with more digits, and a screen that waits between its steps."""

    precision: Annotated[int, declarations.PRECISION] = DIGITS
    step: Annotated[bool, declarations.STEP] = False
    code: Annotated[str | None, declarations.CODE] = None


TextOutput = Annotated[ExplainOutput, without("scale_colors")]
TopicOutput = Annotated[ExplainOutput, without("show", "top", "scale_colors", "code")]
"""Those of a topic about a text; its screen has no parts to choose from, and no ranking."""
SmallOutput = Annotated[ExplainOutput, without("show", "top", "scale_colors", "max_output", "code")]
"""Those of a topic without a text, whose document is small."""


def one_layer(model: Model, options: ModelOptions) -> int:
    """The layer that `--layer` names; the first that attends if it names none. Raises as `numbers` and `single`."""
    selection = request.numbers(options.layer, "layer", len(model.spec.blocks))
    return model.spec.attending()[0] if selection is EVERY else single(selection, "layer")


def one_head(model: Model, options: ModelOptions) -> tuple[int, int]:
    """The layer and the head that `--layer` and `--head` name; the first that attends, and 0, where they name none."""
    layer = one_layer(model, options)
    return layer, single(request.numbers(options.head, "head", model.spec.blocks[layer].attention.heads), "head")


def default_query(tokens: Sequence[Token]) -> int:
    """The place of the last word that the model knows, or of the last word, or token, where it knows none."""
    words = [index for index, token in enumerate(tokens) if not token.special]
    known = [index for index in words if not tokens[index].unknown]
    return (known or words or [len(tokens) - 1])[-1]


def strongest_head(
    environment: Environment,
    model: Model,
    options: ModelOptions,
    compute: ComputeOptions,
    text: str,
    tokens: Sequence[Token],
    query: int,
) -> tuple[int, int]:
    """The layer and the head that `--layer` and `--head` name; of a checkpoint, where one of them is open, the one in
    which the query has its strongest link, as `attn run --query` counts links. Standard error says which that is."""
    from msgspec import structs

    from attncli.analysis.run import RunRequest, run_document
    from attncli.render.unknown_words import marked_text

    if model.identity.source != "checkpoint" or not (options.layer is None or options.head is None):
        return one_head(model, options)
    blocks = model.spec.blocks
    layers = list(model.spec.attending()) if options.layer is None else [one_layer(model, options)]
    heads: Selection = EVERY
    head = 0
    if options.head is not None:  # layers may have more heads or fewer
        head = single(
            request.numbers(options.head, "head", max(blocks[index].attention.heads for index in layers)), "head"
        )
        layers, heads = [index for index in layers if blocks[index].attention.heads > head], [head]
    run_request = RunRequest(layers, heads, query=query, matrices=False, top=1)
    request.refuse_run(model, len(tokens), run_request, compute, "--layer L --head H, or a shorter text")
    for every in (False, True):  # a link that says little, where there is no other
        document = run_document(model, text, tokens, structs.replace(run_request, all_links=every))
        if document.links:
            link = document.links[0]
            words = (marked_text(tokens[query]), marked_text(tokens[link.key]) if link.key < len(tokens) else "bias_k")
            environment.note(
                f"layer {link.layer} head {link.head} has the strongest link of {words[0]!r}: {words[1]!r}, "
                f"{link.weight:.2f}; --layer and --head choose another"
            )
            return link.layer, link.head
    return layers[0], head


def single(selection: Selection, what: str) -> int:
    """The only layer or head chosen; 0 if none was. Raises UsageError for several."""
    numbers = [0] if selection is EVERY else list(selection)
    if len(numbers) > 1:
        raise UsageError(f"--{what} names {len(numbers)} {what}s", expected=f"one: this is about one {what}")
    return numbers[0]
