"""`attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli import page_output, request
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
    without,
)
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.find import FindDocument
    from attncli.inputs.text import Text
    from attncli.models.model import Model

HEADS = 8


def find(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    page: PageOptions,
    start: Annotated[
        str | None,
        option("--from", help="The token that looks: it, the:2 (second occurrence) or #7.", panel=TEXT, metavar="TOK"),
    ] = None,
    end: Annotated[str | None, option("--to", help="The token that is looked at.", panel=TEXT, metavar="TOK")] = None,
    words: Annotated[bool, the.WORDS] = False,
    effect: Annotated[
        bool, option("--effect", help="Also what cutting the link in each head changes.", panel=OUTPUT)
    ] = False,
) -> None:
    """Find the heads that send one token to another, ranked by weight.

    attn find "The animal didn't cross the street because it was too tired" --from it --to animal

    attn find --model minilm "The animal was too tired, so it slept" --from it --to animal --top 5
    """
    from attncli.render.screens.find import PARTS, find_rows, find_screen

    environment: Environment = ctx.obj
    answer.check(output, environment, parts=PARTS)
    page_output.check(page, output, lines=text.lines)
    how = answer.view(output, environment, parts=PARTS)
    if start is None or end is None:
        raise UsageError(
            "attn find needs two tokens",
            expected="--from TOK and --to TOK",
            hint="attn find TEXT --from it --to animal",
        )
    single = output.json or output.svg is not None or page.html is not None
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=HEADS)

    def documents() -> Iterator[FindDocument]:
        for found in iter([request.one_text(environment, text)]) if single else request.texts(environment, text):
            with request.told_where(found):
                document = _document(
                    environment, loaded, found, model, compute, (start, end), words=words, effect=effect
                )
                if output.svg is not None:
                    answer.draw(document, output)
                if page.html is not None:
                    _write_page(loaded, found, model, document, page, how.lang)
            yield document

    answer.give(documents(), find_screen, find_rows, output, environment, how, several=text.lines)


def _write_page(
    model: Model, text: Text, which: ModelOptions, document: FindDocument, page: PageOptions, lang: str
) -> None:
    from attncli.analysis.records.run import run_record
    from attncli.render.page.contents import Page

    layers = request.numbers(which.layer, "layer", len(model.spec.blocks))
    heads = request.numbers(which.head, "head", min(block.attention.heads for block in model.spec.blocks))
    tokens = request.tokens_of(model, text)
    record = run_record(model, text.text, tokens, layers=layers, heads=heads, words=document.words)
    start = {"view": "search", "from": f"#{document.query}", "to": f"#{document.key}"}
    page_output.write(page, Page(text.text, [record], start=start, lang=lang, budget=page.budget))


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    asked: ModelOptions,
    compute: ComputeOptions,
    ends: tuple[str, str],
    *,
    words: bool,
    effect: bool,
) -> FindDocument:
    from attncli.analysis.find import Cutting, Sought, find_document
    from attncli.analysis.run import Wanted
    from attncli.analysis.words import joined, merged_words
    from attncli.models.row_blocks import rows_for

    tokens = request.tokens_of(model, text)
    merged = merged_words(tokens, text.text) if words else None
    named = tokens if merged is None else merged.words
    spans = {reference: request.query_span(environment, named, reference) for reference in dict.fromkeys(ends)}
    several = [span for span in dict.fromkeys(spans.values()) if span[1] - span[0] > 1]
    if several:
        taken = sorted(spans.values())
        if any(a != b and a[1] > b[0] for a, b in pairwise(taken)):
            raise UsageError(f"{ends[0]!r} and {ends[1]!r} share tokens", expected="two that do not, or the same twice")
        merged = joined(tokens, text.text, several, merged)
    # joining tokens before them moves the places of those after
    places = {
        reference: first - sum(stop - start - 1 for start, stop in several if start < first)
        for reference, (first, _) in spans.items()
    }
    layers = request.numbers(asked.layer, "layer", len(model.spec.blocks))
    heads = request.numbers(asked.head, "head", min(block.attention.heads for block in model.spec.blocks))
    wanted = Wanted(layers, heads, matrices=False)
    request.refuse_run(model, len(tokens), wanted, compute, "a shorter text", rows=rows_for(model.spec, len(tokens)))
    sought = Sought(places[ends[0]], places[ends[1]], layers, heads)
    if not effect:
        return find_document(model, text.text, tokens, sought, words=merged)
    from attncli.cli.effect_options import memory
    from attncli.cli.progress import progress

    with progress(environment, "cutting the link") as tell:
        return find_document(model, text.text, tokens, sought, words=merged, cutting=Cutting(memory(compute), tell))


app = command_app(find)
