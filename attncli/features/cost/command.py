"""`attn cost`: pairs, operations and bytes, computed and measured."""

from __future__ import annotations

from typing import Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import PagedOutput
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import attention_number, compute_number, compute_option, redeclare, without
from attncli.cli.output import validate_options, write_with_figure
from attncli.errors import UsageError


def cost(
    ctx: typer.Context,
    output: Annotated[PagedOutput, without("precision", "top", "scale_colors", "max_output")],
    n: Annotated[int, declarations.TOKEN_COUNT] = 1000,
    d_model: Annotated[
        int | None,
        redeclare(declarations.D_MODEL, help="Width of the token vectors. [default: 512]"),
    ] = None,
    num_heads: Annotated[int | None, declarations.EIGHT_HEADS] = None,
    window: Annotated[
        int,
        attention_number(help="Keys of the sliding window, the query's own included.", metavar="W"),
    ] = 128,
    chunk: Annotated[int, attention_number(help="Chunk length of hash attention.")] = 64,
    rounds: Annotated[int, attention_number(help="Rounds of hash attention.")] = 1,
    mask: Annotated[list[str] | None, declarations.MASK] = None,
    rows: Annotated[
        int, compute_number("--block-rows", help="Query rows at a time when streaming.", rare=True)
    ] = 128,
    dtype: Annotated[str, declarations.DTYPE] = "float32",
    model: Annotated[str | None, declarations.CHECKPOINT] = None,
    measure: Annotated[
        bool,
        compute_option(
            "--time", "--measure", help="Time it on this machine, with NumPy and torch."
        ),
    ] = False,
) -> None:
    """Operations, memory and pairs of full, causal, window and hash attention and of a recurrent
    network.

    attn cost -n 1000

    attn cost -n 2048 --num-heads 4 --time

    attn cost -n 512 --model minilm
    """
    from attncli.features.cost.compute import cost as compute_cost

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "cost")
    if not measure and view.show == frozenset({"measured"}):
        raise UsageError(
            "--show measured shows what was timed, and nothing was", expected="--time as well"
        )
    # sizes are all that is needed of a model: its weights are not read
    described = None
    if model is not None:
        from attncli.cli.model_option import describe_model
        from attncli.models.description import described_model

        described = described_model(describe_model(environment, model), dtype)
    document = compute_cost(
        n,
        d_model=d_model,
        heads=num_heads,
        window=window,
        chunk=chunk,
        rounds=rounds,
        rows=rows,
        dtype=dtype,
        masks=[request.mask(mask)] if mask else [],  # several are one mask: what all of them show
        model=described,
        timed=measure,
        note=environment.note,
    )
    write_with_figure([document], output, environment, view)


cost_app = command_app(
    cost,
    essentials="-n --d-model --num-heads --window --model --time --json --brief --figure --html",
)
