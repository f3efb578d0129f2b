"""What every topic of `attn explain` has in common: its options, and whether its screen waits between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.arrays.backend import EVERY, Selection
from attncli.cli import declarations, request
from attncli.cli.environment import Environment
from attncli.cli.option import without
from attncli.cli.options import ComputeOptions, ModelOptions, OutputOptions
from attncli.cli.output import render_text, validate_options, write_with_figure
from attncli.cli.progress import wait_for_key
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.draw.view import View
    from attncli.features.explain.document import ExplainDocument
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

    from attncli.draw.token_names import marked_text
    from attncli.features.run.compute import RunRequest, run_document

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


# How a topic of `attn explain` is answered: at once, or step by step at a terminal.


def give_topic(ctx: typer.Context, document: ExplainDocument, output: ExplainOutput) -> None:
    """Answer with the document of a topic."""
    environment: Environment = ctx.obj
    check_steps(output, environment)
    write_explanation(
        document, output, environment, validate_options(output, environment, document_options=("max_output",))
    )


def write_explanation(document: ExplainDocument, output: ExplainOutput, environment: Environment, view: View) -> None:
    """Answer with an explanation: one step after each key with `--step`, else at once."""
    if output.step:
        _by_steps(document, environment, view)
        return
    write_with_figure([document], output, environment, view)


def check_steps(output: ExplainOutput, environment: Environment) -> None:
    """Raise UsageError where `--step` has no one to wait for, or goes with what is no screen."""
    if not output.step:
        return
    formats = {"--json": output.json, "--ndjson": output.ndjson, "--plain": output.plain, "--brief": output.brief}
    formats |= {"--output": output.file is not None, "--figure": output.svg is not None}
    format_option = next((name for name, value in formats.items() if value), None)
    if format_option is not None:
        raise UsageError(
            f"--step waits between the steps of a screen, and {format_option} has none", expected="one of them"
        )
    if not (environment.stdin_is_terminal and environment.stdout_is_terminal) or environment.keys is None:
        raise UsageError("--step waits for a key, and nobody is at a terminal", expected="a terminal, or no --step")


def _by_steps(document: ExplainDocument, environment: Environment, view: View) -> None:
    from attncli.features.explain.screen import explain_blocks

    for index, block in enumerate(block for block in explain_blocks(document, view) if block.rows):
        if index:
            environment.write(b"\n")
            if wait_for_key("step.wait", view, environment):
                return
        environment.write(render_text(block, view, environment).encode())
