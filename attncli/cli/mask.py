"""`attn mask`: masks drawn, described and combined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, request
from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli import svg_output as picture
from attncli.cli.explain_options import one
from attncli.cli.options import (
    ATTENTION,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    command_app,
    meant,
    number,
    option,
    without,
)
from attncli.cli.output import Environment
from attncli.errors import InputError, UsageError

if TYPE_CHECKING:
    from attncli.analysis.mask import Bias
    from attncli.mechanism.mask import Mask
    from attncli.models.model import Model

POSITIONS = 16


def mask(
    ctx: typer.Context,
    output: Annotated[OutputOptions, without("top", "scale_colors", "max_output")],
    spec: Annotated[
        list[str] | None,
        typer.Argument(
            help="Masks or files; none draws every kind.",
            show_default=False,
            metavar="[SPEC|FILE]...",
            autocompletion=completion.offer(completion.masks),
        ),
    ] = None,
    n: Annotated[
        int | None,
        number("-n", "--positions", help="Number of queries and keys. [default: 16, or a file's]", panel=ATTENTION),
    ] = None,
    bias: Annotated[
        str | None,
        option(
            "--bias",
            help="A score bias beside it: alibi, alibi-symmetric, t5, t5-decoder.",
            panel=ATTENTION,
            metavar="NAME",
            complete=completion.words("alibi", "alibi-symmetric", "t5", "t5-decoder"),
        ),
    ] = None,
    num_heads: Annotated[
        int, meant(the.NUM_HEADS, help="Heads that ALiBi's slopes are for.", panel=ATTENTION, most=4096)
    ] = the.EIGHT,
    head: Annotated[int, the.ONE_HEAD] = 0,
    seed: Annotated[int, meant(the.SEED_NUMBER, help="Of the random parts of bigbird and lsh.", panel=ATTENTION)] = 0,
    model: Annotated[str | None, the.CHECKPOINT] = None,
    layer: Annotated[list[str] | None, the.LAYER] = None,
) -> None:
    """Draw and describe masks and their combinations, before and after a score bias.

    attn mask causal window:3 -n 12

    attn mask "window:2,2|global:0"

    attn mask causal --bias alibi --head 3
    """
    from attncli.analysis.mask import BIASES, check_n, gallery_document, mask_document

    environment: Environment = ctx.obj
    how = answer.check(output, environment, "mask")
    if bias is not None and (bias not in BIASES or model is not None):
        what = f"--bias is {bias!r}" if bias not in BIASES else "--bias does not go with --model, which brings its own"
        raise UsageError(what, expected=", ".join(BIASES) if bias not in BIASES else "one or the other")
    if layer is not None and model is None:
        raise UsageError("--layer needs --model", expected="--model NAME --layer L")
    masks = [request.mask([one_spec], seed) for one_spec in spec or ()]
    _refuse_unheeded(environment, bias, model, spec or [], seed)
    count = _positions(masks) if n is None else n
    check_n(count)
    loaded = (
        None
        if model is None
        else request.model(environment, replace(ModelOptions(), model=model), AttentionOptions(), ComputeOptions())
    )
    at = 0 if loaded is None else one(request.numbers(layer, "layer", len(loaded.spec.blocks)), "layer")
    if loaded is not None:
        masks = [loaded.spec.blocks[at].attention.mask, *masks]
    if len(masks) < 2 and how.show == frozenset({"counts"}):
        raise UsageError("--show counts sets masks beside each other, and there is one", expected="two masks or more")
    found = _bias(bias, loaded, at, head, num_heads, count)
    if found is None and "head" in environment.given:
        raise UsageError("--head is about a bias that differs by head, and this model adds none", expected="no --head")
    if not masks and bias is None:
        document = gallery_document(count, seed=seed)
    else:
        document = mask_document(masks or [request.mask(None)], count, seed=seed, bias=found, model=loaded)
    picture.give([document], output, environment, how)


def _refuse_unheeded(
    environment: Environment, bias: str | None, model: str | None, specs: list[str], seed: int
) -> None:
    """Raise UsageError for heads beside a bias that is the same for all or none, and for a seed that nothing draws
    from."""
    slopes = bias is not None and bias.startswith("alibi")
    if "head" in environment.given and not slopes and model is None:
        raise UsageError(
            "--head is about a bias that differs by head", expected="--bias alibi, or --model NAME, as well"
        )
    if "num_heads" in environment.given and not slopes:
        raise UsageError("--num-heads is about ALiBi's slopes", expected="--bias alibi as well")
    drawn = [request.mask([one_spec], seed) != request.mask([one_spec], seed + 1) for one_spec in specs]
    if "seed" in environment.given and specs and not any(drawn):
        raise UsageError("--seed is about bigbird and lsh, and none is asked for", expected="one of them as well")


def _bias(name: str | None, model: Model | None, layer: int, head: int, heads: int, n: int) -> Bias | None:
    from attncli.analysis.mask import model_bias, named_bias

    if model is not None:
        return model_bias(model, layer, head, n - 1)
    return None if name is None else named_bias(name, head, heads, n - 1)


def _positions(masks: list[Mask]) -> int:
    """The size of the files among the masks, or the usual number. Raises InputError for files of different sizes."""
    from attncli.mechanism.mask import Given

    sizes = {mask.values.shape[-1]: mask.name for mask in masks if isinstance(mask, Given)}
    if len(sizes) > 1:
        told = " and ".join(f"{Path(name).name} {size}" for size, name in sizes.items())
        raise InputError(f"the mask files have different numbers of keys: {told}", expected="one size")
    return next(iter(sizes), POSITIONS)


app = command_app(mask)
