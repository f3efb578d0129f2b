"""`attn weights`: write seeded weights, list a file's tensors, convert between formats and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attncli.cli import declarations, request
from attncli.cli.completion import tensor_prefixes
from attncli.cli.declarations import ComputeOptions, ModelOptions, OutputOptions, TableOutput
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.model_option import refuse_sizes
from attncli.cli.option import argument, model_option, redeclare, text_option
from attncli.cli.output import validate_options, write_documents

if TYPE_CHECKING:
    from attncli.draw.view import View
    from attncli.models.layout import LayoutRequest

LAYOUTS = ("canonical", "torch", "single", "heads", "matrices", "fused")
"""Ways to name and to cut the tensors of one attention in a file."""

File = Annotated[Path, argument("A weight file: .safetensors, .npz, .pt or .pth.", "FILE")]
NewFile = Annotated[Path, argument("The file to write: .safetensors or .npz.", "NEW")]
Heads = Annotated[int | None, declarations.NUM_HEADS]
Prefix = Annotated[
    str,
    model_option(
        "--prefix",
        help="Take only the tensors whose name begins so.",
        metavar="NAME",
        complete=tensor_prefixes,
    ),
]
LayoutName = Annotated[
    str, model_option("--layout", help="Whose names the tensors get.", values=LAYOUTS)
]
Orientation = Annotated[
    str | None,
    model_option(
        "--orientation",
        help="How its matrices are stored: in-out (X·W) or out-in (nn.Linear).",
        values=("in-out", "out-in"),
    ),
]


def init(
    ctx: typer.Context,
    output: TableOutput,
    file: NewFile,
    seed: Annotated[
        str, redeclare(declarations.SEED, help="Seed of the weights, or 'random'.")
    ] = "0",
    d_model: Annotated[
        int, redeclare(declarations.D_MODEL, help="Width of the token vectors.")
    ] = 64,
    num_heads: Annotated[int, redeclare(declarations.NUM_HEADS, help="Number of heads.")] = 1,
    d_k: Annotated[int | None, declarations.D_K] = None,
    d_v: Annotated[int | None, declarations.D_V] = None,
    bias: Annotated[
        bool, redeclare(declarations.BIAS, help="Seeded biases on the projections.")
    ] = False,
    output_projection: Annotated[bool | None, declarations.OUTPUT_PROJECTION] = None,
    layer_norm: Annotated[bool, declarations.LAYER_NORM] = False,
    layout: LayoutName = "canonical",
    embedding_for: Annotated[
        str | None,
        text_option(help="Also the seeded embeddings of this text's tokens.", metavar="TEXT"),
    ] = None,
    tokenizer: Annotated[str | None, declarations.TOKENIZER] = None,
) -> None:
    """Write seeded weights. They are those that attn run uses with the same options.

    attn weights init seeded.safetensors --num-heads 8

    attn weights init mha.npz --num-heads 4 --bias --layout torch
    """
    environment: Environment = ctx.obj
    from attncli.errors import UsageError
    from attncli.inputs.tensors import check_writable_format
    from attncli.models.one_layer import Settings

    check_writable_format(file)
    view = validate_options(output, environment, files={"FILE": file})
    if tokenizer is not None and embedding_for is None:
        raise UsageError(
            "--tokenizer is about a text, and there is none",
            expected="--embedding-for TEXT as well",
        )
    seed_number, _ = request.seed_of(ModelOptions(seed=seed), environment)
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
    from attncli.models.weight_file import seeded_file, write_weight_file

    words = []
    if embedding_for is not None:
        words = _distinct_tokens(tokenizer or "word", embedding_for)
    write_weight_file(file, seeded_file(settings, seed_number, words), layout=layout)
    _list_tensors(file, layout_request=None, output=output, environment=environment, view=view)


def show(
    ctx: typer.Context,
    output: TableOutput,
    file: File,
    num_heads: Heads = None,
    prefix: Prefix = "",
) -> None:
    """List a file's tensors and say what attention they are read as.

    attn weights show sample_inputs/mha.safetensors --num-heads 4
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.models.layout import LayoutRequest

    _list_tensors(file, LayoutRequest(heads=num_heads, prefix=prefix), output, environment, view)


def convert(
    ctx: typer.Context,
    output: TableOutput,
    file: File,
    to: NewFile,
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
    from attncli.models.layout import LayoutRequest
    from attncli.models.weight_file import read_weight_file, write_weight_file

    check_writable_format(to)
    view = validate_options(output, environment, files={"NEW": to})
    # the parser has checked the value; here it gets its type
    matrices: Literal["in-out", "out-in"] | None = None
    if orientation == "in-out":
        matrices = "in-out"
    elif orientation is not None:
        matrices = "out-in"
    weight_file = read_weight_file(
        file, LayoutRequest(heads=num_heads, prefix=prefix, orientation=matrices)
    )
    for note in weight_file.notes:
        environment.note(note)
    if weight_file.looks_back:  # the note that its class has a causal mask
        environment.note(weight_file.looks_back)
    write_weight_file(to, weight_file, layout=layout)
    _list_tensors(to, layout_request=None, output=output, environment=environment, view=view)


def _list_tensors(
    file: Path,
    layout_request: LayoutRequest | None,
    output: OutputOptions,
    environment: Environment,
    view: View,
) -> None:
    """Write the answer of the commands: the tensors of a file and the attention that they are read
    as.

    layout_request: how the file is to be read; None to find that out.
    """
    from msgspec.structs import replace

    from attncli.features.weights.compute import weights_document
    from attncli.inputs.files import present_path
    from attncli.models.layout import EMPTY_REQUEST

    # the document names the file as the user did
    document = replace(
        weights_document(present_path(file), layout_request or EMPTY_REQUEST), file=str(file)
    )
    write_documents([document], output, environment, view)


def _distinct_tokens(tokenizer: str, text: str) -> list[str]:
    """The tokens of a text, each once, in the order in which they first occur."""
    from attncli.inputs.tokenize import tokenizer as tokenizer_named

    return list(dict.fromkeys(token.text for token in tokenizer_named(tokenizer).encode(text)))


weights_app = command_app(
    init,
    show,
    convert,
    help="""Write, list and convert weight files.

    attn weights init weights.safetensors --num-heads 4

    attn weights show sample_inputs/mha.safetensors
    """,
)
