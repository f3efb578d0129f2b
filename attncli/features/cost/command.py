"""`attn cost`: pairs, operations and bytes, computed and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import AttentionOptions, ComputeOptions, ModelOptions, OutputOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import ATTENTION, COMPUTE, RUN, number, option, redeclare, without
from attncli.cli.output import validate_options, write_with_figure
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.features.cost.compute import Sizes
    from attncli.models.model import Model


def cost(
    ctx: typer.Context,
    output: Annotated[OutputOptions, without("precision", "top", "scale_colors", "max_output")],
    n: Annotated[int, declarations.TOKEN_COUNT] = 1000,
    d_model: Annotated[
        int | None, redeclare(declarations.D_MODEL, help="Width of the token vectors. [default: 512]")
    ] = None,
    num_heads: Annotated[int | None, declarations.EIGHT_HEADS] = None,
    window: Annotated[
        int,
        number(
            "--window",
            help="Keys of the sliding window, the query's own included.",
            panel=ATTENTION,
            about=RUN,
            metavar="W",
        ),
    ] = 128,
    chunk: Annotated[int, number("--chunk", help="Chunk length of hash attention.", panel=ATTENTION, about=RUN)] = 64,
    rounds: Annotated[int, number("--rounds", help="Rounds of hash attention.", panel=ATTENTION, about=RUN)] = 1,
    mask: Annotated[list[str] | None, declarations.MASK] = None,
    rows: Annotated[
        int, number("--block-rows", help="Query rows at a time when streaming.", panel=COMPUTE, about=RUN, rare=True)
    ] = 128,
    dtype: Annotated[str, declarations.DTYPE] = "float32",
    model: Annotated[str | None, declarations.CHECKPOINT] = None,
    measure: Annotated[
        bool,
        option("--time", "--measure", help="Time it on this machine, with NumPy and torch.", panel=COMPUTE, about=RUN),
    ] = False,
) -> None:
    """Operations, memory and pairs of full, causal, window and hash attention and of a recurrent network.

    attn cost -n 1000

    attn cost -n 2048 --num-heads 4 --time

    attn cost -n 512 --model minilm
    """
    from attncli.features.cost.compute import check, cost_document

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "cost")
    if not measure and view.show == frozenset({"measured"}):
        raise UsageError("--show measured shows what was timed, and nothing was", expected="--time as well")
    loaded_model = (
        None
        if model is None
        else request.model(environment, ModelOptions(model=model), AttentionOptions(), ComputeOptions(dtype=dtype))
    )
    if loaded_model is not None and (d_model is not None or num_heads is not None):
        raise UsageError(
            "--d-model and --num-heads do not go with --model, which has its own", expected="one or the other"
        )
    sizes = _sizes(
        loaded_model,
        n,
        d_model,
        num_heads,
        window=window,
        chunk=chunk,
        rounds=rounds,
        rows=rows,
        dtype=dtype,
        masks=mask,
    )
    check(sizes)
    timings = []
    if measure:
        from attncli.features.cost.compute import measure as measure_times

        timings = measure_times(sizes, note=environment.note)
    write_with_figure([cost_document(sizes, model=loaded_model, timings=timings)], output, environment, view)


def _sizes(
    model: Model | None,
    n: int,
    d_model: int | None,
    heads: int | None,
    *,
    window: int,
    chunk: int,
    rounds: int,
    rows: int,
    dtype: str,
    masks: list[str] | None,
) -> Sizes:
    from attncli.features.cost.compute import Sizes

    more = (request.mask(masks),) if masks else ()
    if model is not None:
        first = model.spec.blocks[0].attention
        return Sizes(
            n, model.spec.d_model, first.heads, first.head_dim, first.v_dim, dtype, window, chunk, rounds, rows, more
        )
    width, count = 512 if d_model is None else d_model, declarations.EIGHT if heads is None else heads
    if count < 1 or width % count:
        raise UsageError(
            "d_model {width} is not divisible by {count} heads",
            expected="d_model divisible by the number of heads",
            width=width,
            count=count,
        )
    return Sizes(n, width, count, width // count, width // count, dtype, window, chunk, rounds, rows, more)


cost_app = command_app(
    cost,
    essentials=(
        "-n",
        "--d-model",
        "--num-heads",
        "--window",
        "--model",
        "--time",
        "--json",
        "--brief",
        "--figure",
    ),
)
