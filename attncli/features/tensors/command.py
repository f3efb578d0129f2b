"""`attn tensors`: attention over captured q, k, v arrays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.arrays.backend import numbers_of
from attncli.cli import declarations, request
from attncli.cli.declarations import ComputeOptions, OutputOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    LARGEST,
    SCREEN,
    About,
    argument,
    attention_number,
    attention_option,
    meaning,
    redeclare,
)
from attncli.cli.output import (
    PageOptions,
    refuse_over,
    validate_options,
    validate_page,
    wants_all_stages,
    write_run_page,
    write_with_figure,
)
from attncli.errors import UsageError
from attncli.language import message, term

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy as np

    from attncli.mechanism.attend import RowBlock


def tensors(
    ctx: typer.Context,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, meaning(top=About.JSON | SCREEN, full=About.JSON | SCREEN)],
    page: PageOptions,
    file: Annotated[
        Path, argument("A .safetensors, .npz or .pt file with the arrays q, k and v.", "FILE")
    ],
    layer: Annotated[int | None, declarations.ONE_LAYER] = None,
    head: Annotated[
        list[str] | None,
        redeclare(declarations.HEAD, help="Heads to show, counted from 0: 5, 0,3 or 2-5."),
    ] = None,
    mask: Annotated[list[str] | None, declarations.MASK] = None,
    scale: Annotated[str | None, declarations.SCALE] = None,
    softcap: Annotated[float | None, declarations.SOFTCAP] = None,
    offset: Annotated[
        int,
        attention_number(help="Position of query 0, for causal masks and windows.", least=-LARGEST),
    ] = 0,
    key_lengths: Annotated[
        str | None, attention_option(help='Real keys per batch entry: "5 3".', metavar="N…")
    ] = None,
    softmax_dtype: Annotated[
        str | None,
        attention_option(
            help="The type of scores and weights.", values=declarations.DTYPES, rare=True
        ),
    ] = None,
    stages: Annotated[str | None, declarations.STAGES] = None,
) -> None:
    """Attention over q, k, v arrays from a file, with every option of the core.

    q is [..., heads, query, dim], k [..., kv_heads, key, dim], v [..., kv_heads, key, v_dim];
    arrays mask, bias, sinks, offset and key_lengths are used if the file has them. Beyond 2,048
    queries or keys
    they run by blocks of rows: metrics and links remain, and nothing is held that is n × n.

    attn tensors sample_inputs/captured.npz --mask causal
    """

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "tensors", files={"--html": page.html})
    validate_page(page)
    all_stages = wants_all_stages(stages, output)
    from attncli.arrays.backend import choose
    from attncli.cli.progress import progress
    from attncli.features.tensors.compute import Options, capture_attention
    from attncli.features.tensors.compute import tensors as compute_tensors
    from attncli.inputs.tensors import read_tensors
    from attncli.models.one_layer import scale_number

    layer, head = split_layer_from_heads(layer, head)
    stored_tensors = read_tensors(file, allow_nonfinite=True)
    masks = request.mask(mask)
    if scale == "sqrt-dmodel":
        raise UsageError(
            "captured arrays have no d_model", expected="--scale sqrt-dk, none or a number"
        )
    width, work = _query_width_and_work(stored_tensors)
    scale_factor = None
    if scale is not None:
        # the last argument, d_model, only counts for sqrt-dmodel, which is refused above
        scale_factor = scale_number(scale, width, width)
    lengths = None
    if key_lengths is not None:
        lengths = request.whole_numbers(key_lengths, "--key-lengths")
    backend = choose(compute.backend, device=compute.device, dtype=compute.dtype, work=work)
    options = Options(scale_factor, softcap, masks, offset, lengths, softmax_dtype)
    arrays = capture_attention(stored_tensors, str(file), backend, options, layer=layer)
    pairs = math.prod(arrays.q.shape[:-1]) * int(arrays.k.shape[-2])
    heads = numbers_of(request.numbers(head, "head", arrays.q.shape[-3]), arrays.q.shape[-3])
    # stages in the JSON and the page need whole weights, which are not held for long texts
    by_blocks = arrays.long and not all_stages and page.html is None
    if not by_blocks:
        # six stages have a number of four bytes for each pair; in JSON a number takes about twelve
        # characters, and scores and weights are written beside the stages
        request.refuse_memory(pairs * 6 * 4, compute, "a file with fewer heads, queries or keys")
        if output.json or output.ndjson:
            arrays_written = 2
            if all_stages:
                arrays_written += 6
            refuse_over(pairs * arrays_written * 12, output, "--head H")
    traces: list[RowBlock] = []  # of the whole attention; none where it runs by blocks
    with progress(
        environment, message("{shape:,} queries", shape=arrays.q.shape[-2])
    ) as on_progress:
        document = compute_tensors(
            arrays,
            name=str(file),
            options=options,
            heads=heads,
            top=output.top,
            stages=all_stages,
            by_blocks=by_blocks,
            progress=on_progress,
            on_trace=traces.append,
        )
    if page.html is not None and traces:
        from attncli.features.tensors.compute import captured_record

        # the one trace holds all batch entries
        record = captured_record(arrays, traces[0], document, heads=heads)
        write_run_page(page, document, record, view.lang, title=file.name)
    write_with_figure([document], output, environment, view)


def _query_width_and_work(stored_tensors: Mapping[str, np.ndarray[Any, Any]]) -> tuple[int, int]:
    """(width of a file's queries, about how many multiply-adds their scores take); (1, 0) where it
    has no queries. They choose the backend before the file is checked, so any array may be missing
    or of a wrong shape.
    """
    # "q", or "layers.3.q" in a file of several layers, of which the first stands for the one asked for
    queries = (
        array for name, array in stored_tensors.items() if name == "q" or name.endswith(".q")
    )
    q = next(queries, None)
    if q is None:
        return 1, 0
    width = 1
    if q.size and q.ndim:
        width = q.shape[-1]
    rows = [array.shape[-2] for array in stored_tensors.values() if array.ndim > 1]
    # each number of q meets every key; the array with the most rows stands for the keys
    return width, 2 * q.size * max(rows, default=0)


def split_layer_from_heads(
    layer: int | None, head: list[str] | None
) -> tuple[int | None, list[str] | None]:
    """(layer, heads) as `--layer` and `--head` name them, heads as the user wrote them; heads such
    as L5H11,L5H3 name their layer, too, and become (5, ["11", "3"]).

    Raises UsageError for such heads beside `--layer`, and for heads of several layers, since one
    layer is shown.
    """
    from attncli.mechanism.spec import parse_head

    # (layer, head) of each part, None for one that names no layer
    pairs = [parse_head(part) for part in request.comma_parts(head)]
    full_names = [pair for pair in pairs if pair is not None]
    if not full_names or len(full_names) < len(pairs):
        return layer, head  # plain numbers; a mixture is refused where heads are read as numbers
    layers = sorted({number for number, _ in full_names})
    if layer is not None:
        raise UsageError("--head names layers, and so does --layer", expected="one or the other")
    if len(layers) > 1:
        raise UsageError(
            "--{what} names {numbers} {what}s",
            expected=message("one: this is about one {noun}", noun=term("layer")),
            what="layer",
            numbers=len(layers),
        )
    return layers[0], [str(number) for _, number in full_names]


tensors_app = command_app(
    tensors,
    essentials="--layer --head --mask --scale --key-lengths --offset --brief --json --figure",
)
