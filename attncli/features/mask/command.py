"""`attn mask`: masks drawn, described and combined."""

from __future__ import annotations

from typing import Annotated

import typer

from attncli.cli import completion, declarations, request
from attncli.cli.declarations import ModelOptions, PagedOutput, RunSetup
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import ATTENTION, argument, attention_option, redeclare, without
from attncli.cli.output import validate_options, write_with_figure
from attncli.errors import UsageError, refused_value
from attncli.features.explain.command import single_number
from attncli.language import choice


def mask(
    ctx: typer.Context,
    output: Annotated[PagedOutput, without("top", "scale_colors", "max_output")],
    spec: Annotated[
        list[str] | None,
        argument("Masks or files; none draws every kind.", "[SPEC|FILE]...", completion.masks),
    ] = None,
    n: Annotated[
        int | None,
        redeclare(
            declarations.TOKEN_COUNT, help="Tokens: queries and keys. [default: 16, or a file's]"
        ),
    ] = None,
    bias: Annotated[
        str | None,
        attention_option(
            "--score-bias",
            help="A score bias beside it: alibi, alibi-symmetric, t5, t5-decoder.",
            metavar="NAME",
            complete=completion.words("alibi", "alibi-symmetric", "t5", "t5-decoder"),
        ),
    ] = None,
    num_heads: Annotated[
        int,
        redeclare(
            declarations.NUM_HEADS,
            help="Heads that ALiBi's slopes are for.",
            panel=ATTENTION,
            most=4096,
        ),
    ] = declarations.SEEDED_HEADS,
    head: Annotated[int, declarations.ONE_HEAD] = 0,
    seed: Annotated[
        int,
        redeclare(
            declarations.SEED_NUMBER, help="Seed of bigbird, lsh and random.", panel=ATTENTION
        ),
    ] = 0,
    model: Annotated[str | None, declarations.CHECKPOINT] = None,
    layer: Annotated[list[str] | None, declarations.LAYER] = None,
) -> None:
    """Draw and describe masks and their combinations, before and after a score bias.

    attn mask causal window:3 -n 12

    attn mask "window:2,2|global:0"

    attn mask causal --score-bias alibi --head 3
    """
    from attncli.features.mask.compute import (
        BIASES,
        check_positions,
        model_bias,
        named_bias,
        positions_of,
    )
    from attncli.features.mask.compute import mask as compute_mask

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "mask")
    if bias not in (None, *BIASES):
        raise refused_value("--score-bias", bias, choice(BIASES))
    if bias is not None and model is not None:
        raise UsageError(
            "--score-bias does not go with --model, which brings its own",
            expected="one or the other",
        )
    if layer is not None and model is None:
        raise UsageError("--layer needs --model", expected="--model NAME --layer L")
    masks = [request.mask([one_spec], seed) for one_spec in spec or ()]
    _refuse_unused_options(environment, bias, model, spec or [], seed)
    count = n
    if count is None:
        count = positions_of(masks)  # those of a mask file, else 16
    check_positions(count)  # before a model is loaded
    loaded_model = None
    layer_index = 0
    if model is not None:
        loaded_model = request.model(environment, RunSetup(ModelOptions(model=model)))
        layer_index = single_number(
            request.numbers(layer, "layer", len(loaded_model.spec.blocks)), "layer"
        )
        # the layer's own mask first, then those that are laid over it
        masks = [loaded_model.spec.blocks[layer_index].attention.mask, *masks]
    if len(masks) < 2 and view.show == frozenset({"counts"}):
        raise UsageError(
            "--show counts sets masks beside each other, and there is one",
            expected="two masks or more",
        )
    score_bias = None
    if loaded_model is not None:
        # of distances up to count − 1, as far apart as two of the positions can be
        score_bias = model_bias(loaded_model, layer_index, head, count - 1)
    elif bias is not None:
        score_bias = named_bias(bias, head, num_heads, count - 1)
    if score_bias is None and "head" in environment.explicit_options:
        raise UsageError(
            "--head is about a bias that differs by head, and this model adds none",
            expected="no --head",
        )
    document = compute_mask(masks, count, seed=seed, bias=score_bias, model=loaded_model)
    write_with_figure([document], output, environment, view)


def _refuse_unused_options(
    environment: Environment, bias: str | None, model: str | None, specs: list[str], seed: int
) -> None:
    """Raise UsageError for options that would change nothing: heads where no bias differs by head,
    and a seed where no mask is drawn at random.

    bias: the name of a score bias, None for none.
    specs: the masks as they were written.
    """
    has_slopes = bias is not None and bias.startswith("alibi")
    if "head" in environment.explicit_options and not has_slopes and model is None:
        raise UsageError(
            "--head is about a bias that differs by head",
            expected="--score-bias alibi, or --model NAME, as well",
        )
    if "num_heads" in environment.explicit_options and not has_slopes:
        raise UsageError(
            "--num-heads is about ALiBi's slopes", expected="--score-bias alibi as well"
        )
    # a mask that another seed changes is drawn at random; without masks every kind is drawn, those
    # among them
    depends_on_seed = [
        request.mask([one_spec], seed) != request.mask([one_spec], seed + 1) for one_spec in specs
    ]
    if "seed" in environment.explicit_options and specs and not any(depends_on_seed):
        raise UsageError(
            "--seed is about bigbird, lsh and random, and none is asked for",
            expected="one of them as well",
        )


mask_app = command_app(
    mask, essentials="-n --score-bias --head --figure --html --json --brief --full --seed"
)
