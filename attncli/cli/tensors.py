"""`attn tensors`: attention over captured q, k, v arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attncli.arrays.selection import selected
from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli import page_output, request
from attncli.cli.option import LARGEST
from attncli.cli.options import ATTENTION, ComputeOptions, OutputOptions, command_app, number, option
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import UsageError


def tensors(
    ctx: typer.Context,
    compute: ComputeOptions,
    output: OutputOptions,
    page: PageOptions,
    file: Annotated[
        Path,
        typer.Argument(
            help="A .safetensors, .npz or .pt file with the arrays q, k and v.",
            show_default=False,
            metavar="FILE",
            readable=False,
        ),
    ],
    layer: Annotated[int | None, the.ONE_LAYER] = None,
    head: Annotated[list[str] | None, the.HEAD] = None,
    mask: Annotated[list[str] | None, the.MASK] = None,
    scale: Annotated[str | None, the.SCALE] = None,
    softcap: Annotated[float | None, the.SOFTCAP] = None,
    offset: Annotated[
        int,
        number("--offset", help="Position of query 0, for causal masks and windows.", panel=ATTENTION, least=-LARGEST),
    ] = 0,
    key_lengths: Annotated[
        str | None, option("--key-lengths", help='Real keys per batch entry: "5 3".', panel=ATTENTION, metavar="N…")
    ] = None,
    softmax_dtype: Annotated[
        str | None,
        option(
            "--softmax-dtype", help="The type of scores and weights.", panel=ATTENTION, values=the.DTYPES, rare=True
        ),
    ] = None,
    stages: Annotated[str | None, the.STAGES] = None,
) -> None:
    """Attention over q, k, v arrays from a file, with every option of the core.

    q is [..., heads, query, dim], k [..., kv_heads, key, dim], v [..., kv_heads, key, v_dim]; arrays
    mask, bias, sinks, offset and key_lengths are used if the file has them. Beyond 2,048 queries or keys
    they run by blocks of rows: metrics and links remain, and nothing is held that is n × n.

    attn tensors sample_inputs/captured.npz --mask causal
    """

    environment: Environment = ctx.obj
    how = answer.check(output, environment, "tensors", written={"--html": page.html}, heeded=("top",), tables=())
    page_output.check(page)
    every = answer.stages(stages, output)
    from attncli.analysis.tensors import Options, captured, tensors_document
    from attncli.arrays.backend import choose
    from attncli.cli.progress import progress
    from attncli.inputs.tensors import read_tensors
    from attncli.models.one_layer import scale_number

    found = read_tensors(file, allow_nonfinite=True)
    masks = request.mask(mask)
    if scale == "sqrt-dmodel":
        raise UsageError("captured arrays have no d_model", expected="--scale sqrt-dk, none or a number")
    q = next((array for name, array in found.items() if name == "q" or name.endswith(".q")), None)
    width = 1 if q is None or not q.size or not q.ndim else q.shape[-1]
    number = None if scale is None else scale_number(scale, width, width)
    lengths = None if key_lengths is None else request.whole_numbers(key_lengths, "--key-lengths")
    rows = [array.shape[-2] for array in found.values() if array.ndim > 1]
    work = 0 if q is None or not rows else 2 * q.size * max(rows)
    backend = choose(compute.backend, device=compute.device, dtype=compute.dtype, work=work)
    options = Options(number, softcap, masks, offset, lengths, softmax_dtype)
    arrays = captured(found, str(file), backend, options, layer=layer)
    pairs = (
        int(arrays.q.shape[-2]) * int(arrays.k.shape[-2]) * int(arrays.q.reshape((-1, *arrays.q.shape[-2:])).shape[0])
    )
    chosen = selected(request.numbers(head, "head", arrays.q.shape[-3]), arrays.q.shape[-3])
    by_blocks = arrays.long and not every and page.html is None
    if not by_blocks:
        request.refuse_memory(pairs * 6 * 4, compute, "a file with fewer heads, queries or keys")
        if output.json or output.ndjson:
            answer.refuse_over(pairs * (2 + 6 * every) * 12, output, "--head H")
    trace = None if by_blocks else arrays.attend()
    with progress(environment, f"{arrays.q.shape[-2]:,} queries") as tell:
        document = tensors_document(
            str(file), arrays, trace, masks, heads=chosen, top=output.top, stages=every, progress=tell
        )
    if page.html is not None and trace is not None:
        from attncli.analysis.records.captured import captured_record
        from attncli.render.page.contents import Page

        record = captured_record(arrays, trace, document, heads=chosen)
        made = Page(file.name, [record], lang=how.lang, budget=page.budget, option=page_output.BUDGET)
        page_output.write(page, made)
    if output.svg is not None:
        answer.draw(document, output)
    answer.give([document], output, environment, how)


app = command_app(tensors)
