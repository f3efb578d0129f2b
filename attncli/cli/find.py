"""`attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli import page_output, request
from attncli.cli.chosen_heads import layers_and_heads
from attncli.cli.options import (
    OUTPUT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    meaning,
    option,
    without,
)
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.find import FindDocument
    from attncli.analysis.records.recording import Recording
    from attncli.analysis.records.run import RunRecord
    from attncli.inputs.text import Text
    from attncli.models.model import Model


def find(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, meaning(num_heads=the.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    page: PageOptions,
    start: Annotated[str | None, the.FROM] = None,
    end: Annotated[str | None, the.TO] = None,
    words: Annotated[bool, the.WORDS] = False,
    unknown: Annotated[bool, the.UNKNOWN] = False,
    effect: Annotated[
        bool, option("--effect", help="Also what cutting the link in each head changes.", panel=OUTPUT)
    ] = False,
) -> None:
    """Find the heads that send one token to another, ranked by weight.

    attn find "The animal didn't cross the street because it was too tired" --from it --to animal

    attn find --model minilm "The animal was too tired, so it slept" --from it --to animal --top 5
    """

    environment: Environment = ctx.obj
    how = answer.check(output, environment, "find", written={"--html": page.html})
    page_output.check(page, lines=text.lines)
    if start is None or end is None:
        raise UsageError(
            "attn find needs two tokens",
            expected="--from TOK and --to TOK",
            hint="attn find TEXT --from it --to animal",
        )
    if not effect and (unseen := environment.given & {"residual", "layer_norm", "output_projection"}):
        raise UsageError(
            f"--{min(unseen).replace('_', '-')} changes what leaves the layer, and links are shown",
            expected="--effect as well",
        )
    single = output.json or output.svg is not None or page.html is not None
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=the.EIGHT)

    def documents() -> Iterator[FindDocument]:
        for found in request.texts(environment, text, single=single):
            with request.told_where(found):
                taken = page_output.recording(page, loaded, found, layers_and_heads(loaded, model)[1], words=words)
                document = _document(
                    environment, loaded, found, model, compute, (start, end),
                    words=words, unknown=unknown, effect=effect, taken=taken,
                )  # fmt: skip
                if output.svg is not None:
                    answer.draw(document, output)
                if page.html is not None:
                    record = page_output.record(
                        loaded, found, *layers_and_heads(loaded, model), words=words, taken=taken
                    )
                    _write_page(environment, record, (start, end), page, how.lang)
            yield document

    answer.give(documents(), output, environment, how, several=text.lines)


def _write_page(
    environment: Environment, record: RunRecord, ends: tuple[str, str], page: PageOptions, lang: str
) -> None:
    from attncli.render.page.contents import Page

    quiet = replace(environment, quiet=True)
    start, end = (request.query_span(quiet, record.sides.queries, reference)[0] for reference in ends)
    begin = {"view": "search", "from": f"#{start}", "to": f"#{end}"}
    page_output.write(
        page, Page(record.text, [record], start=begin, lang=lang, budget=page.budget, option=page_output.BUDGET)
    )


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    asked: ModelOptions,
    compute: ComputeOptions,
    ends: tuple[str, str],
    *,
    words: bool,
    unknown: bool,
    effect: bool,
    taken: Recording | None = None,
) -> FindDocument:
    from attncli.analysis.find import Cutting, Sought, find_document
    from attncli.analysis.run import Wanted, cost
    from attncli.analysis.words import joined, merged_words
    from attncli.cli.progress import foretell_text, foretell_work, progress
    from attncli.models.row_blocks import rows_for

    foretell_text(environment, len(text.text))
    tokens = request.tokens_of(model, text)
    merged = merged_words(tokens, text.text) if words else None
    named = tokens if merged is None else merged.words
    spans = {
        reference: request.query_span(environment, named, reference, unknown=unknown)
        for reference in dict.fromkeys(ends)
    }
    several = [span for span in dict.fromkeys(spans.values()) if span[1] - span[0] > 1]
    if several:
        if any(a != b and a[1] > b[0] for a, b in pairwise(sorted(spans.values()))):
            raise UsageError(f"{ends[0]!r} and {ends[1]!r} share tokens", expected="two that do not, or the same twice")
        merged = joined(tokens, text.text, several, merged)
    # joining tokens before them moves the places of those after
    places = {
        reference: first - sum(stop - start - 1 for start, stop in several if start < first)
        for reference, (first, _) in spans.items()
    }
    layers, heads = layers_and_heads(model, asked)
    wanted = Wanted(layers, heads, matrices=False)
    expected = cost(model, len(tokens), wanted, saved=False, rows=rows_for(model.spec, len(tokens)))
    request.refuse_memory(expected.memory, compute, "a shorter text")
    foretell_work(environment, len(tokens), expected.estimate.seconds, "a shorter text, --layer or --head")
    sought = Sought(places[ends[0]], places[ends[1]], layers, heads)
    if not effect:
        with progress(environment, f"{len(tokens):,} tokens", layers=True) as tell:
            return find_document(model, text.text, tokens, sought, words=merged, progress=tell, recording=taken)
    from attncli.cli.effect_options import memory

    with progress(environment, "cutting the link") as tell:
        cutting = Cutting(memory(compute), tell)
        return find_document(model, text.text, tokens, sought, words=merged, cutting=cutting, recording=taken)


app = command_app(find)
