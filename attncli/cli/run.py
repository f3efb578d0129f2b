"""`attn run`: attention on a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attncli.cli import answer, request
from attncli.cli.options import OUTPUT, AttentionOptions, ComputeOptions, ModelOptions, OutputOptions, TextOptions, command_app, option
from attncli.cli.output import Environment
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.inputs.text import Text
    from attncli.models.model import Model


def run(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    query: Annotated[
        str | None, option("--query", help="Only this query: a token (it), its 2nd occurrence (the:2) or index (#7).", panel=OUTPUT)
    ] = None,
    stages: Annotated[str | None, option("--stages", help="'all' adds every stage to the JSON.", panel=OUTPUT, metavar="all")] = None,
    save: Annotated[Path | None, option("--save", help="Save every stage: .safetensors or .npz.", panel=OUTPUT)] = None,
    all_links: Annotated[bool, option("--all-links", help="Also the links that say little: special tokens, self, …", panel=OUTPUT)] = False,
) -> None:
    """Run attention on a text: tables, shape trace, strongest links.

    attn run "The animal didn't cross the street because it was too tired"

    attn run "humpty dumpty sat on" --query on --mask causal

    attn run --model minilm "The animal didn't cross …" --query it --json
    """
    from attncli.render.screens.run import PARTS, run_rows, run_screen

    environment: Environment = ctx.obj
    answer.check(output, environment, parts=PARTS)
    how = answer.view(output, environment, parts=PARTS)
    if stages not in (None, "all"):
        raise UsageError(f"--stages is {stages!r}", expected="all")
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    single = output.json or save is not None or output.svg is not None

    def documents() -> Iterator[Mapping[str, Any]]:
        for found in iter([request.one_text(environment, text)]) if single else request.texts(environment, text):
            yield _document(
                environment, loaded, found, model, compute, output, query=query, stages=stages == "all", save=save, all_links=all_links
            )

    answer.give(documents(), run_screen, run_rows, output, environment, how)


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    asked: ModelOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    *,
    query: str | None,
    stages: bool,
    save: Path | None,
    all_links: bool,
) -> Mapping[str, Any]:
    from attncli.analysis.running import Wanted, cost, run_document
    from attncli.analysis.saving import Stored, metadata
    from attncli.render.records import NUMBER_BYTES

    tokens = request.tokens_of(model, text)
    layers = request.numbers(asked.layer, "layer", len(model.spec.blocks))
    heads = request.numbers(asked.head, "head", min(block.attention.heads for block in model.spec.blocks))
    at = None if query is None else request.query_index(environment, tokens, query)
    machine = output.json or output.ndjson or output.plain
    matrices = machine or len(model.spec.blocks) == 1 or bool(asked.layer or asked.head)
    wanted = Wanted(layers, heads, at, matrices=matrices, stages=stages, top=output.top, all_links=all_links)
    expected = cost(model, len(tokens), wanted, saved=save is not None)
    request.refuse_memory(expected.memory, compute, "a shorter text, --layer L, --head H or --query TOK")
    if machine:
        answer.refuse_over(expected.numbers * NUMBER_BYTES[model.backend.dtype], output, "--layer L, --head H, --query TOK or --show links")
    stored = Stored(model.backend) if save is not None else None
    document = run_document(model, text.text, tokens, wanted, see=None if stored is None else stored.add)
    if stored is not None and save is not None:
        from attncli.inputs.tensors import write_tensors

        write_tensors(save, stored.tensors, metadata(document))
    if output.svg is not None:
        answer.draw(document, output)
    return document


app = command_app(run)
