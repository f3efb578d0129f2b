"""`attn run`: attention on a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli import generate as generate_option
from attncli.cli import page_output, request
from attncli.cli.chosen_heads import layers_and_heads
from attncli.cli.generate import GenerateOptions
from attncli.cli.options import (
    OUTPUT,
    TEXT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    option,
)
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.run import RunDocument
    from attncli.analysis.records.recording import Recording
    from attncli.analysis.run import Batched, Wanted
    from attncli.inputs.text import Text
    from attncli.inputs.token import Token
    from attncli.models.model import Model


def run(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    page: PageOptions,
    generate: GenerateOptions,
    query: Annotated[str | None, the.QUERY] = None,
    stages: Annotated[str | None, the.STAGES] = None,
    save: Annotated[
        Path | None, option("--save", help="Save every stage: .safetensors or .npz.", panel=OUTPUT, metavar="FILE")
    ] = None,
    batch: Annotated[
        bool, option("--batch", help="With --lines: pad all texts together and run them at once.", panel=TEXT)
    ] = False,
    words: Annotated[bool, the.WORDS] = False,
    all_links: Annotated[bool, the.ALL_LINKS] = False,
) -> None:
    """Run attention on a text: tables, shape trace, strongest links.

    attn run "The animal didn't cross the street because it was too tired"

    attn run "humpty dumpty sat on" --query on --mask causal

    attn run --model minilm "The animal was too tired, so it slept" --query it --json
    """
    from attncli.render.screens.stages import PROJECTIONS, SHOWN

    environment: Environment = ctx.obj
    options = {
        "--query": query,
        "--stages": stages,
        "--save": save,
        "--batch": batch,
        "--words": words,
        "--all-links": all_links,
    }
    generate_option.check(
        generate, [name for name, value in {**options, "--svg": output.svg, "--html": page.html}.items() if value]
    )
    if generate.generate is not None:
        generate_option.run(environment, generate, text, model, attention, compute, output)
        return
    if save is not None:
        from attncli.inputs.tensors import check_writable_format

        check_writable_format(save)
    page_output.check(page, lines=text.lines)
    written = {"--save": save, "--html": page.html}
    how = answer.check(output, environment, "run", written=written, heeded=("show", "top"))
    if batch and not text.lines:
        raise UsageError("--batch pads several texts together, and there is one", expected="--lines as well")
    every = answer.stages(stages, output)
    if every and words:
        raise UsageError("--stages all goes with tokens, and --words merges them", expected="one or the other")
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    named = how.show or frozenset()
    every = every or (bool(named & SHOWN.keys()) and not words)
    asked = Asked(query, every, save, all_links, words, bool(named & set(PROJECTIONS)), named)
    if output.plain and "top" in environment.given and output.svg is None and _in_tables(output, asked):
        raise UsageError("--top is about links, and --plain lists every weight", expected="--show links as well")
    single = output.json or any(path is not None for path in (save, output.svg, page.html))

    def documents() -> Iterator[RunDocument]:
        found = request.texts(environment, text, single=single)
        for each, batched in (
            _together(loaded, list(found), model, compute) if batch else ((each, None) for each in found)
        ):
            with request.told_where(each):
                taken = page_output.recording(page, loaded, each, layers_and_heads(loaded, model)[1], words=words)
                document = _document(environment, loaded, each, model, compute, output, asked, batched, taken)
                if page.html is not None:
                    _write_page(environment, loaded, each, model, asked, page, how.lang, taken)
            yield document

    answer.give(documents(), output, environment, how, several=text.lines)


def _write_page(
    environment: Environment,
    model: Model,
    text: Text,
    which: ModelOptions,
    asked: Asked,
    page: PageOptions,
    lang: str,
    taken: Recording | None,
) -> None:
    from attncli.render.page.contents import Page

    record = page_output.record(model, text, *layers_and_heads(model, which), words=asked.words, taken=taken)
    start = {}
    if asked.query is not None:
        start["query"] = str(request.query_index(replace(environment, quiet=True), record.sides.queries, asked.query))
    page_output.write(
        page, Page(text.text, [record], start=start, lang=lang, budget=page.budget, option=page_output.BUDGET)
    )


def _together(
    model: Model, texts: list[Text], which: ModelOptions, compute: ComputeOptions
) -> Iterator[tuple[Text, Batched]]:
    """Each text with its part of one padded batch; refused before it starts where it would not fit."""
    from attncli.analysis.run import Wanted, cost, run_batch

    tokens = [request.tokens_of(model, text) for text in texts]
    layers, heads = layers_and_heads(model, which)
    longest = max(map(len, tokens))
    needed = cost(model, longest, Wanted(layers, heads, matrices=False), saved=True).memory * len(texts)
    request.refuse_memory(needed, compute, "fewer or shorter texts, or no --batch")
    yield from zip(texts, run_batch(model, tokens, layers, heads), strict=True)


@dataclass(frozen=True)
class Asked:
    """What only `attn run` asks for."""

    query: str | None
    stages: bool
    save: Path | None
    all_links: bool
    words: bool
    projections: bool
    parts: frozenset[str]


def _in_tables(output: OutputOptions, asked: Asked) -> bool:
    """Whether every weight is asked for, in a document or as a row; else links alone."""
    return output.show is None or asked.stages or bool(asked.parts & {"scores", "weights", "output", "maps"})


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    which: ModelOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    asked: Asked,
    batched: Batched | None = None,
    taken: Recording | None = None,
) -> RunDocument:
    from msgspec.structs import replace

    from attncli.analysis.run import cost, run_document
    from attncli.analysis.saved_tensors import Stored, metadata
    from attncli.cli.progress import foretell_text, foretell_work, progress
    from attncli.cli.resources import resources
    from attncli.render.encoding import NUMBER_BYTES

    foretell_text(environment, len(text.text))
    tokens = request.tokens_of(model, text)
    wanted, rows, tables = _plan(environment, model, text, tokens, which, output, asked)
    expected = cost(model, len(tokens), wanted, saved=asked.save is not None, rows=rows)
    hint = "a shorter text, --layer L, --head H, --query TOK or --show links"
    request.refuse_memory(expected.memory, compute, hint)
    if output.json or output.ndjson or output.plain:
        answer.refuse_over(expected.numbers * NUMBER_BYTES[model.backend.dtype], output, hint)
    stored = Stored(model.backend) if asked.save is not None else None
    foretell_work(environment, len(tokens), expected.estimate.seconds, "a shorter text, --layer or --head")
    before = model.store.bytes_read()
    with progress(environment, f"{len(tokens):,} tokens", layers=True) as tell:
        see = None if stored is None else stored.add
        document = run_document(
            model, text.text, tokens, wanted, see=see, rows=rows, progress=tell, batched=batched, recording=taken
        )
    document = replace(document, resources=resources(model, before, expected.memory))
    if stored is not None and asked.save is not None:
        from attncli.inputs.tensors import write_tensors

        write_tensors(asked.save, stored.tensors, metadata(document))
    if asked.projections:
        from attncli.analysis.projection_matrices import with_projections

        document = with_projections(document, model)
    if output.svg is not None:
        answer.draw(document, output)
    # without tables, they were for the picture alone
    return document if tables else replace(document, layers=[])


def _plan(
    environment: Environment,
    model: Model,
    text: Text,
    tokens: list[Token],
    which: ModelOptions,
    output: OutputOptions,
    asked: Asked,
) -> tuple[Wanted, int | None, bool]:
    """What goes into the document; how many query rows to compute at a time, None for all, as long as the text is
    short; and whether matrices are for the answer, not for a picture alone."""
    from attncli.analysis.run import Wanted
    from attncli.models.row_blocks import LONG, rows_for

    layers, heads = layers_and_heads(model, which)
    named = tokens
    if asked.words:
        from attncli.analysis.words import merged_words

        named = list(merged_words(tokens, text.text).words)
    span = None if asked.query is None else request.query_span(environment, named, asked.query)
    at = None if span is None else span[0]
    several = span if span is not None and span[1] - span[0] > 1 else None
    machine = output.json or output.ndjson or output.plain
    tables = _in_tables(output, asked)
    short = len(tokens) <= LONG or output.full
    if not machine:
        tables = (
            tables and (short or at is not None) and (len(model.spec.blocks) == 1 or bool(which.layer or which.head))
        )
    matrices = tables or output.svg is not None
    wanted = Wanted(layers, heads, at, matrices, asked.stages, output.top, asked.all_links, asked.words, several)
    whole = (
        short
        or asked.stages
        or asked.words
        or several is not None
        or asked.save is not None
        or output.svg is not None
        or (matrices and at is None)
    )
    return wanted, None if whole else rows_for(model.spec, len(tokens)), tables


app = command_app(run)
