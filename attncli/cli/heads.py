"""`attn heads`: all heads of a text compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attncli.cli import answer, request
from attncli.cli.options import (
    OUTPUT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    option,
    without,
)
from attncli.cli.output import Environment

if TYPE_CHECKING:
    from attncli.inputs.text import Text
    from attncli.models.model import Model

HEADS = 8


def heads(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("top")],
    metric: Annotated[
        list[str] | None,
        option(
            "--metric", help="Metrics to show, apart by commas, or 'all'; 'attn explain metric' explains.", panel=OUTPUT, metavar="NAME"
        ),
    ] = None,
    all_links: Annotated[
        bool, option("--all-links", help="The top link may be a special token, self, a neighbour …", panel=OUTPUT)
    ] = False,
) -> None:
    """Compare all heads: small maps, metrics, the strongest link of each.

    attn heads --num-heads 8

    attn heads "The animal didn't cross the street" --num-heads 4 --show average

    attn heads --model minilm --layer 3-5 "The animal didn't cross …"
    """
    from attncli.render.screens.heads import PARTS, heads_rows, heads_screen

    environment: Environment = ctx.obj
    answer.check(output, environment, parts=PARTS)
    how = answer.view(output, environment, parts=PARTS)
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=HEADS)
    single = output.json or output.svg is not None

    def documents() -> Iterator[Mapping[str, Any]]:
        for found in iter([request.one_text(environment, text)]) if single else request.texts(environment, text):
            with request.told_where(found):
                document = _document(loaded, found, model, compute, output, metric or (), all_links)
            yield document

    answer.give(documents(), heads_screen, heads_rows, output, environment, how)


def _document(
    model: Model,
    text: Text,
    asked: ModelOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    metrics: list[str] | tuple[()],
    all_links: bool,
) -> Mapping[str, Any]:
    from attncli.analysis.heads import Compared, heads_document
    from attncli.analysis.metrics import DEFAULT, METRICS
    from attncli.analysis.running import Wanted, cost
    from attncli.render.records import NUMBER_BYTES
    from attncli.render.screens.heads import MATRICES, PARTS

    tokens = request.tokens_of(model, text)
    layers = request.numbers(asked.layer, "layer", len(model.spec.blocks))
    heads = request.numbers(asked.head, "head", min(block.attention.heads for block in model.spec.blocks))
    named = [name.strip() for name in ",".join(metrics).split(",") if name.strip()]
    names = tuple(METRICS) if "all" in named else tuple(named) or DEFAULT
    expected = cost(model, len(tokens), Wanted(layers, heads), saved=False)
    request.refuse_memory(expected.memory, compute, "a shorter text, --layer L or --head H")
    parts = answer.shown(output, PARTS)
    maps = parts is None or bool(parts & MATRICES) or output.svg is not None
    if maps and (output.json or output.ndjson):
        answer.refuse_over(expected.numbers // 2 * NUMBER_BYTES[model.backend.dtype], output, "--layer L, --head H or --show metrics")
    document = heads_document(model, text.text, tokens, Compared(layers, heads, names, maps, all_links))
    if output.svg is not None:
        answer.draw(document, output)
    return document


app = command_app(heads)
