"""`attn weights`: write seeded weights, list a file's tensors, convert between formats and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import delivery as answer
from attncli.cli import request
from attncli.cli.options import (
    MODEL,
    TEXT,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TableOutput,
    command_app,
    option,
)
from attncli.cli.output import Environment
from attncli.cli.seeded_option import refuse_sizes
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.models.layouts.layout import Asked

File = Annotated[
    Path,
    typer.Argument(
        help="A weight file: .safetensors, .npz, .pt or .pth.", show_default=False, metavar="FILE", readable=False
    ),
]
Written = Annotated[
    Path,
    typer.Argument(help="The file to write: .safetensors or .npz.", show_default=False, metavar="NEW", readable=False),
]
Heads = Annotated[int | None, option("--num-heads", "-n", help="Number of heads.", panel=MODEL, metavar="N")]
Prefix = Annotated[
    str, option("--prefix", help="Take only the tensors whose name begins so.", panel=MODEL, metavar="NAME")
]
LayoutName = Annotated[
    str, option("--layout", help="canonical, torch, single, heads, matrices or fused.", panel=MODEL, metavar="NAME")
]  # fmt: skip
Orientation = Annotated[
    str | None,
    option(
        "--orientation",
        help="How its matrices are stored: in-out (X·W) or out-in (nn.Linear).",
        panel=MODEL,
        metavar="in-out|out-in",
    ),
]


def init(
    ctx: typer.Context,
    output: TableOutput,
    file: Written,
    seed: Annotated[
        str, option("--seed", help="Seed of the weights, or 'random'.", panel=MODEL, metavar="INT|random")
    ] = "0",
    d_model: Annotated[int, option("--d-model", help="Width of the token vectors.", panel=MODEL, metavar="N")] = 64,
    num_heads: Annotated[int, option("--num-heads", "-n", help="Number of heads.", panel=MODEL, metavar="N")] = 1,
    d_k: Annotated[
        int | None, option("--d-k", help="Width of a query and key. [default: d_model/heads]", panel=MODEL, metavar="N")
    ] = None,
    d_v: Annotated[
        int | None, option("--d-v", help="Width of a value. [default: d_model/heads]", panel=MODEL, metavar="N")
    ] = None,
    bias: Annotated[bool, option("--bias/--no-bias", help="Biases on the projections.", panel=MODEL)] = False,
    output_projection: Annotated[
        bool | None,
        option(
            "--output-projection/--no-output-projection",
            help="W_O after the heads. [default: with several heads]",
            panel=MODEL,
        ),
    ] = None,
    layer_norm: Annotated[bool, option("--layer-norm", help="Also a layer normalization.", panel=MODEL)] = False,
    layout: LayoutName = "canonical",
    embedding_for: Annotated[
        str | None,
        option("--embedding-for", help="Also the seeded embeddings of this text's tokens.", panel=TEXT, metavar="TEXT"),
    ] = None,
    tokenizer: Annotated[
        str, option("--tokenizer", help="What cuts that text into tokens.", panel=TEXT, metavar="NAME|PATH")
    ] = "word",
) -> None:
    """Write seeded weights. They are those that attn run uses with the same options.

    attn weights init seeded.safetensors --num-heads 8

    attn weights init mha.npz --num-heads 4 --bias --layout torch
    """
    environment: Environment = ctx.obj
    from attncli.inputs.tensors import check_writable_format
    from attncli.models.one_layer import Settings

    check_writable_format(file)
    answer.check(output, environment, written={"FILE": file})
    drawn, _ = request.seed_of(ModelOptions(seed=seed), environment)
    settings = Settings(
        d_model=d_model,
        heads=num_heads,
        d_k=d_k,
        d_v=d_v,
        bias=bias,
        layer_norm=layer_norm,
        output_projection=output_projection,
    )
    refuse_sizes(settings, ComputeOptions())
    from attncli.models.weight_writer import seeded_file, write_weight_file

    words = [] if embedding_for is None else _words(tokenizer, embedding_for)
    write_weight_file(file, *seeded_file(settings, drawn, words), layout=layout)
    _list(file, None, output, environment)


def show(ctx: typer.Context, output: TableOutput, file: File, num_heads: Heads = None, prefix: Prefix = "") -> None:
    """List a file's tensors and say what attention they are read as.

    attn weights show sample_inputs/mha.safetensors --num-heads 4
    """
    environment: Environment = ctx.obj
    answer.check(output, environment)
    from attncli.models.layouts.layout import Asked

    _list(file, Asked(heads=num_heads, prefix=prefix), output, environment)


def convert(
    ctx: typer.Context,
    output: TableOutput,
    file: File,
    to: Written,
    layout: LayoutName = "canonical",
    num_heads: Heads = None,
    prefix: Prefix = "",
    orientation: Orientation = None,
) -> None:
    """Convert a weight file to another format or layout.

    attn weights convert mha.pt canonical.safetensors --num-heads 4

    attn weights convert whole.pt one.npz --prefix encoder.layers.0.self_attn.
    """
    environment: Environment = ctx.obj
    from attncli.inputs.tensors import check_writable_format
    from attncli.models.layouts.layout import Asked
    from attncli.models.layouts.recognise import read_weight_file
    from attncli.models.weight_writer import recognised_file, write_weight_file

    check_writable_format(to)
    answer.check(output, environment, written={"NEW": to})
    match orientation:
        case None | "in-out" | "out-in":
            asked = Asked(heads=num_heads, prefix=prefix, orientation=orientation)
        case _:
            raise UsageError(f"--orientation is {orientation!r}", expected="in-out or out-in")
    found = read_weight_file(file, asked)
    for said in found.notes:
        environment.note(said)
    write_weight_file(to, *recognised_file(found), layout=layout)
    _list(to, None, output, environment)


def _list(file: Path, asked: Asked | None, output: OutputOptions, environment: Environment) -> None:
    from msgspec.structs import replace

    from attncli.analysis.weights import weights_document
    from attncli.inputs.atomic import written_at
    from attncli.models.layouts.layout import NOTHING_ASKED
    from attncli.render.screens.weights import weights_rows, weights_screen

    document = replace(weights_document(written_at(file), asked or NOTHING_ASKED), file=str(file))
    answer.give(iter([document]), weights_screen, weights_rows, output, environment, answer.view(output, environment))


def _words(tokenizer: str, text: str) -> list[str]:
    from attncli.inputs.tokenize import tokenizer as tokenizer_named

    return list(dict.fromkeys(token.text for token in tokenizer_named(tokenizer).encode(text)))


app = command_app(
    init,
    show,
    convert,
    help="""Write, list and convert weight files.

    attn weights init weights.safetensors --num-heads 4

    attn weights show sample_inputs/mha.safetensors
    """,
)
