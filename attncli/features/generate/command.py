"""`attn run --generate`: a decoder continues the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from attncli.arrays.backend import EVERY
from attncli.cli import declarations, request
from attncli.cli.declarations import OutputOptions, RegionOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.option import DELIVERY, LARGEST_SEED, RUN, model_number, subjects_of, without
from attncli.cli.output import (
    PageOptions,
    refuse_over,
    validate_options,
    validate_page,
    write_documents,
    write_run_page,
)
from attncli.cli.output_conflicts import refuse_beside
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError, refused_value
from attncli.language import message

if TYPE_CHECKING:
    from attncli.arrays.backend import Selection
    from attncli.features.generate.compute import GenerateDocument
    from attncli.models.model import Model

MOST = 100_000


class GenerateOptions(Struct, frozen=True):
    """How a decoder continues a text."""

    generate: Annotated[
        int | None,
        model_number(
            help="Continue the text by N tokens (decoders); shows where each looks.", most=MOST
        ),
    ] = None
    temperature: Annotated[
        float | None,
        model_number(
            help=(
                "With --generate: divides the logits before a token is drawn; 0 takes the"
                " likeliest. [default: 0]"
            ),
            metavar="T",
            least=0,
            most=100,
        ),
    ] = None
    sample_seed: Annotated[
        int | None,
        model_number(
            help="With --temperature: seed of the draws. [default: 0]",
            least=0,
            most=LARGEST_SEED,
            rare=True,
        ),
    ] = None


class WeighOptions(Struct, frozen=True):
    """Attention on a region weighed up or down while a text runs or is continued."""

    weigh: Annotated[str | None, declarations.WEIGH] = None
    weigh_heads: Annotated[list[str] | None, declarations.WEIGH_HEADS] = None


CONTINUATION = (
    TextOptions, RegionOptions, RunSetup, Annotated[OutputOptions, without("svg")], PageOptions, GenerateOptions,
    WeighOptions,
)  # fmt: skip
"""The options that a continuation takes, as groups; it has no use for any other of `attn run`."""


def check_continuation(options: GenerateOptions, environment: Environment) -> None:
    """Refuse options of sampling without `--generate`, and beside it those that a continuation does
    not take, before any work. Raises UsageError."""
    if options.generate is None:
        if options.temperature is not None or options.sample_seed is not None:
            raise UsageError(
                "--temperature and --sample-seed belong to --generate", hint="--generate 20"
            )
        return
    if options.sample_seed is not None and not options.temperature:
        raise refused_value("--sample-seed", options.sample_seed, "--temperature above 0 as well")
    about = subjects_of(*CONTINUATION)
    refuse_beside(environment, "--generate", about, subject=RUN | DELIVERY)
    environment.subjects = about


def write_continuations(
    environment: Environment,
    options: GenerateOptions,
    text: TextOptions,
    setup: RunSetup,
    output: OutputOptions,
    regions: RegionOptions,
    page: PageOptions,
    weighing: WeighOptions,
) -> None:
    """Continue each text asked for and answer; a page is that of the text with what was added."""
    from attncli.cli.progress import progress
    from attncli.features.generate.compute import GenerateRequest, generate, memory

    validate_page(page, lines=text.lines)
    view = validate_options(output, environment, "generate", files={"--html": page.html})
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer, many_runs=True)
    layers, heads = layers_and_heads(loaded_model, setup.model)
    assert options.generate is not None
    rows = output.json or output.ndjson
    continuation = GenerateRequest(
        options.generate, options.temperature or 0.0, options.sample_seed or 0, layers, heads, rows
    )
    single = output.json or page.html is not None
    weigh_in = request.weighed_heads(loaded_model.spec, weighing.weigh, weighing.weigh_heads)
    if weighing.weigh is not None and page.html is not None:
        what = message("a page computes weights anew, without what is weighed")
        raise UsageError(what, expected="--weigh or --html")

    def documents() -> Iterator[GenerateDocument]:
        """One document per text: its continuation, and what each new token looks at."""
        for source_text in request.texts(environment, text, single=single):
            with (
                request.errors_located_in(source_text),
                progress(environment, "generating") as on_progress,
            ):
                tokens = request.tokens_of(loaded_model, source_text)
                request.refuse_memory(
                    memory(loaded_model, len(tokens), continuation),
                    setup.compute,
                    "a shorter text, or a smaller --generate",
                )
                if rows:
                    every_head = sum(block.attention.heads for block in loaded_model.spec.blocks)
                    kept_heads = every_head if layers is EVERY and heads is EVERY else 1
                    size = kept_heads * continuation.count * (len(tokens) + continuation.count) * 20
                    refuse_over(size, output, "--layer L, --head H or a smaller --generate")
                document = generate(
                    loaded_model,
                    source_text.text,
                    continuation.count,
                    temperature=continuation.temperature,
                    seed=continuation.seed,
                    layers=layers,
                    heads=heads,
                    rows=rows,
                    regions=request.regions_of(environment, regions, source_text, tokens),
                    weigh=weighing.weigh,
                    weigh_in=weigh_in,
                    tokens=tokens,
                    note=environment.note,
                    progress=on_progress,
                )
                if page.html is not None:
                    _write_page(loaded_model, document, layers, heads, page, view.lang)
            yield document

    write_documents(documents(), output, environment, view, several=text.lines)


def _write_page(
    model: Model,
    document: GenerateDocument,
    layers: Selection,
    heads: Selection,
    page: PageOptions,
    lang: str,
) -> None:
    """Write the page of the text with its continuation; it begins at the first new token."""
    from attncli.documents.header import tokens_of
    from attncli.draw.page import bands_of
    from attncli.draw.page.page_words import in_languages
    from attncli.measure.run_record import run_record

    text = document.text + document.continuation
    prompt = len(document.tokens)
    tokens = tokens_of([*document.tokens, *document.generated])
    record = run_record(model, text, tokens, layers=layers, heads=heads)
    if document.regions:
        new_band = [(in_languages(message("new tokens")), prompt, len(tokens))]
    else:
        new_band = []
    start = {"query": str(min(prompt, len(tokens) - 1))}
    bands = [*bands_of(document), *new_band]
    write_run_page(page, document, record, lang, start=start, bands=bands)
