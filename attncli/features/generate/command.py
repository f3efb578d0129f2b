"""`attn run --generate`: a decoder continues the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY
from attncli.cli import declarations, request
from attncli.cli.answer import Command, TextRun, answer_texts
from attncli.cli.declarations import OutputOptions, RegionOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.option import (
    DELIVERY,
    KEPT,
    LARGEST_SEED,
    RUN,
    model_number,
    number,
    subjects_of,
    without,
)
from attncli.cli.output import (
    PageOptions,
    refuse_over,
    validate_options,
    validate_page,
    write_run_page,
)
from attncli.cli.output_conflicts import refuse_beside
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError, refused_value
from attncli.language import message

if TYPE_CHECKING:
    from attncli.arrays.backend import Selection
    from attncli.features.generate.compute import GenerateDocument
    from attncli.inputs.token import Text
    from attncli.measure.run_record import Recording

MOST = 100_000
"""Tokens that `--generate` may ask for at most."""


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
        number(
            help="With --temperature: seed of the draws. [default: 0]",
            panel=KEPT,
            about=RUN,
            least=0,
            most=LARGEST_SEED,
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
            raise UsageError("--temperature belongs to --generate", hint="--generate 20")
        return
    if options.sample_seed is not None and not options.temperature:
        raise refused_value("--sample-seed", options.sample_seed, "--temperature above 0 as well")
    about = subjects_of(*CONTINUATION)  # what each of its options is about, by the option's name
    refuse_beside(environment, "--generate", about, subject=RUN | DELIVERY)
    # later checks, such as of --json, then tell of a continuation's options, not of a run's
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
    """Continue each text asked for and write the answers, as screens, JSON or files; a page shows
    the text together with its continuation."""
    from attncli.features.generate.compute import GenerateRequest, generate, memory

    validate_page(page, lines=text.lines)
    view = validate_options(output, environment, "generate", files={"--html": page.html})
    seed, setup = _seed_of_draws(environment, options, setup)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer, many_runs=True)
    layers, heads = layers_and_heads(loaded_model, setup.model)
    assert options.generate is not None  # else this is not called
    rows = output.json or output.ndjson  # whether the new tokens' rows of weights are kept
    # without a temperature: 0, for the likeliest token each time
    continuation = GenerateRequest(
        options.generate, options.temperature or 0.0, seed, layers, heads, rows
    )
    weigh_in = request.weighed_heads(loaded_model.spec, weighing.weigh, weighing.weigh_heads)
    if weighing.weigh is not None and page.html is not None:
        what = message("a page computes weights anew, without what is weighed")
        raise UsageError(what, expected="--weigh or --html")

    def compute(run: TextRun) -> GenerateDocument:
        """The document of one text: its continuation, and what each new token looks at."""
        request.refuse_memory(
            memory(loaded_model, len(run.tokens), continuation),
            setup.compute,
            "a shorter text, or a smaller --generate",
        )
        if rows:
            # about 20 bytes of JSON for each weight. How many heads were chosen is not counted: one at
            # least, so that nothing small is refused
            kept_heads = 1
            if layers is EVERY and heads is EVERY:
                kept_heads = sum(block.attention.heads for block in loaded_model.spec.blocks)
            all_tokens = len(run.tokens) + continuation.count
            weights = kept_heads * continuation.count * all_tokens
            size = weights * 20  # bytes
            refuse_over(size, output, "--layer L, --head H or a smaller --generate")
        return generate(
            loaded_model,
            run.text,
            continuation.count,
            temperature=continuation.temperature,
            seed=continuation.seed,
            layers=layers,
            heads=heads,
            rows=rows,
            regions=request.regions_of(environment, regions, run.source, run.tokens),
            weigh=weighing.weigh,
            weigh_in=weigh_in,
            tokens=run.tokens,
            note=environment.note,
            progress=run.progress,
        )

    command = Command(environment, loaded_model, text, setup, output, page, view)
    continuation_page = ContinuationPage(layers=layers, heads=heads)
    answer_texts(command, compute, page=continuation_page, label=message("generating"))


def _seed_of_draws(
    environment: Environment, options: GenerateOptions, setup: RunSetup
) -> tuple[int, RunSetup]:
    """(seed that tokens are drawn with, setup without a seed of its own): with `--temperature`
    above 0, `--seed` means the draws, not the weights. Raises UsageError where `--seed` and
    `--sample-seed` are both given."""
    # nothing is drawn, or `--seed` is not given: the setup stays as it is
    if not options.temperature or setup.model.seed is None:
        return options.sample_seed or 0, setup
    if options.sample_seed is not None:
        raise UsageError("--seed and --sample-seed name two seeds", expected="one of them")
    seed, _ = request.seed_of(setup.model, environment)
    return seed, replace(setup, model=replace(setup.model, seed=None))


class ContinuationPage(Struct, frozen=True, kw_only=True):
    """The page of a text with its continuation; it begins at the first new token."""

    layers: Selection
    heads: Selection

    def recording(self, command: Command, text: Text) -> Recording | None:
        """None: the page runs the text anew, with what was added."""
        return None

    def write(self, command: Command, run: TextRun, document: GenerateDocument) -> None:
        """Write the page to the file that `--html` names."""
        from attncli.documents.header import tokens_of
        from attncli.draw.page import bands_of
        from attncli.draw.page.page_words import in_languages
        from attncli.measure.run_record import run_record

        text = document.text + document.continuation
        prompt = len(document.tokens)
        tokens = tokens_of([*document.tokens, *document.generated])
        record = run_record(command.model, text, tokens, layers=self.layers, heads=self.heads)
        # beside the regions of the prompt, the new tokens are a band (name, first, stop) of their own
        bands = list(bands_of(document))
        if document.regions:
            bands.append((in_languages(message("new tokens")), prompt, len(tokens)))
        # the page begins at the first new token; at the last of the prompt where none was added
        start = {"query": str(min(prompt, len(tokens) - 1))}
        write_run_page(command.page, document, record, command.view.lang, start=start, bands=bands)
