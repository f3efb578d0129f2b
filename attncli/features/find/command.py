"""`attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import (
    OUTPUT,
    RUN,
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
from attncli.cli.output import (
    PAGE_BUDGET,
    PageOptions,
    page_record,
    page_recording,
    validate_options,
    validate_page,
    write_documents,
    write_figure,
    write_page,
)
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError
from attncli.language import message

if TYPE_CHECKING:
    from attncli.features.find.document import FindDocument
    from attncli.inputs.token import Text
    from attncli.measure.run_record import Recording, RunRecord
    from attncli.models.model import Model


def find(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    page: PageOptions,
    start: Annotated[str | None, declarations.FROM] = None,
    end: Annotated[str | None, declarations.TO] = None,
    words: Annotated[bool, declarations.WORDS] = False,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
    effect: Annotated[
        bool, option("--effect", help="Also what cutting the link in each head changes.", panel=OUTPUT, about=RUN)
    ] = False,
) -> None:
    """Find the heads that send one token to another, ranked by weight.

    attn find "The animal didn't cross the street because it was too tired" --from it --to animal

    attn find --model minilm "The animal was too tired, so it slept" --from it --to animal --top 5
    """

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "find", files={"--html": page.html})
    validate_page(page, lines=text.lines)
    if start is None or end is None:
        raise UsageError(
            "attn find needs two tokens",
            expected="--from TOK and --to TOK",
            hint="attn find TEXT --from it --to animal",
        )
    if not effect and (
        ignored_options := environment.explicit_options & {"residual", "layer_norm", "output_projection"}
    ):
        raise UsageError(
            "--{smallest} changes what leaves the layer, and links are shown",
            expected="--effect as well",
            smallest=min(ignored_options).replace("_", "-"),
        )
    single = output.json or output.svg is not None or page.html is not None
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )

    def documents() -> Iterator[FindDocument]:
        for source_text in request.texts(environment, text, single=single):
            with request.errors_located_in(source_text):
                recording = page_recording(
                    page, loaded_model, source_text, layers_and_heads(loaded_model, model)[1], words=words
                )
                document = _document(
                    environment, loaded_model, source_text, model, compute, (start, end),
                    words=words, unknown=unknown, effect=effect, recording=recording,
                )  # fmt: skip
                if output.svg is not None:
                    write_figure(document, output)
                if page.html is not None:
                    record = page_record(
                        loaded_model,
                        source_text,
                        *layers_and_heads(loaded_model, model),
                        words=words,
                        recording_of_run=recording,
                    )
                    _write_page(environment, record, (start, end), page, view.lang)
            yield document

    write_documents(documents(), output, environment, view, several=text.lines)


def _write_page(
    environment: Environment, record: RunRecord, ends: tuple[str, str], page: PageOptions, lang: str
) -> None:
    from attncli.draw.page import Page

    quiet = replace(environment, quiet=True)
    start, end = (request.query_span(quiet, record.sides.queries, reference)[0] for reference in ends)
    begin = {"view": "search", "from": f"#{start}", "to": f"#{end}"}
    write_page(page, Page(record.text, [record], start=begin, lang=lang, budget=page.budget, option=PAGE_BUDGET))


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    options: ModelOptions,
    compute: ComputeOptions,
    ends: tuple[str, str],
    *,
    words: bool,
    unknown: bool,
    effect: bool,
    recording: Recording | None = None,
) -> FindDocument:
    from attncli.cli.progress import foretell_text, foretell_work, progress
    from attncli.features.find.compute import CutOptions, SearchRequest, find_document
    from attncli.features.run.compute import RunRequest, cost
    from attncli.inputs.word_groups import join_words, merged_words
    from attncli.models.run import rows_for

    foretell_text(environment, len(text.text))
    tokens = request.tokens_of(model, text)
    merged_tokens = merged_words(tokens, text.text) if words else None
    named_tokens = tokens if merged_tokens is None else merged_tokens.words
    spans = {
        reference: request.query_span(environment, named_tokens, reference, unknown=unknown)
        for reference in dict.fromkeys(ends)
    }
    several = [span for span in dict.fromkeys(spans.values()) if span[1] - span[0] > 1]
    if several:
        if any(a != b and a[1] > b[0] for a, b in pairwise(sorted(spans.values()))):
            raise UsageError(
                "{end} and {end_2} share tokens",
                expected="two that do not, or the same twice",
                end=repr(ends[0]),
                end_2=repr(ends[1]),
            )
        merged_tokens = join_words(tokens, text.text, several, merged_tokens)
    # joining tokens before them moves the places of those after
    places = {
        reference: first - sum(stop - start - 1 for start, stop in several if start < first)
        for reference, (first, _) in spans.items()
    }
    layers, heads = layers_and_heads(model, options)
    run_request = RunRequest(layers, heads, matrices=False)
    expected = cost(model, len(tokens), run_request, is_saved=False, rows=rows_for(model.spec, len(tokens)))
    request.refuse_memory(expected.memory, compute, "a shorter text")
    foretell_work(environment, len(tokens), expected.estimate.seconds, "a shorter text, --layer or --head")
    sought = SearchRequest(places[ends[0]], places[ends[1]], layers, heads)
    if not effect:
        with progress(environment, message("{tokens:,} tokens", tokens=len(tokens)), layers=True) as on_progress:
            return find_document(
                model, text.text, tokens, sought, words=merged_tokens, progress=on_progress, recording=recording
            )
    from attncli.features.effects.command import memory

    with progress(environment, "cutting the link") as on_progress:
        cutting = CutOptions(memory(compute), on_progress)
        return find_document(
            model, text.text, tokens, sought, words=merged_tokens, cutting=cutting, recording=recording
        )


find_app = command_app(find)
