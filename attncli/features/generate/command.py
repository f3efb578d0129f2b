"""`attn run --generate`: a decoder continues the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from attncli.arrays.backend import EVERY
from attncli.cli import request
from attncli.cli.declarations import AttentionOptions, ComputeOptions, ModelOptions, OutputOptions, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.option import LARGEST_SEED, MODEL, RUN, number, subjects_of, without
from attncli.cli.output import refuse_over, validate_options, write_documents
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.features.generate.compute import GenerateDocument

MOST = 100_000


@dataclass(frozen=True)
class GenerateOptions:
    """How a decoder continues a text."""

    generate: Annotated[
        int | None,
        number(
            "--generate",
            help="Continue the text by N tokens (decoders); shows where each looks.",
            panel=MODEL,
            about=RUN,
            most=MOST,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        number(
            "--temperature",
            help="With --generate: divides the logits before a token is drawn; 0 takes the likeliest. [default: 0]",
            panel=MODEL,
            about=RUN,
            metavar="T",
            least=0,
            most=100,
        ),
    ] = None
    sample_seed: Annotated[
        int | None,
        number(
            "--sample-seed",
            help="With --temperature: seed of the draws. [default: 0]",
            panel=MODEL,
            about=RUN,
            least=0,
            most=LARGEST_SEED,
            rare=True,
        ),
    ] = None


CONTINUATION = (
    TextOptions, ModelOptions, AttentionOptions, ComputeOptions, Annotated[OutputOptions, without("svg")],
    GenerateOptions,
)  # fmt: skip
"""The options that a continuation takes, as groups; it has no use for any other of `attn run`."""


def check(options: GenerateOptions, environment: Environment) -> None:
    """Check the options before any work: with `--generate` they are those of a continuation. Raises UsageError."""
    if options.generate is None:
        if options.temperature is not None or options.sample_seed is not None:
            raise UsageError("--temperature and --sample-seed belong to --generate", hint="--generate 20")
        return
    temperature = options.temperature or 0.0
    if options.sample_seed is not None and temperature == 0:
        raise UsageError(
            "{option} is {value}",
            expected="--temperature above 0 as well",
            option="--sample-seed",
            value=options.sample_seed,
        )
    about = subjects_of(*CONTINUATION)
    if out_of_place := [
        environment.spellings[name]
        for name in environment.subjects
        if name in environment.explicit_options and name not in about
    ]:
        raise UsageError(
            "{out_of_place} does not go with --generate",
            expected="one or the other",
            out_of_place=" ".join(out_of_place),
        )
    environment.subjects = about


def write_continuations(
    environment: Environment,
    options: GenerateOptions,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: OutputOptions,
) -> None:
    """Continue each text asked for and answer."""
    from attncli.cli.progress import progress
    from attncli.features.generate.compute import GenerateRequest, generate, memory

    view = validate_options(output, environment, "generate")
    loaded_model = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    layers, heads = layers_and_heads(loaded_model, model)
    assert options.generate is not None
    rows = output.json or output.ndjson
    continuation = GenerateRequest(
        options.generate, options.temperature or 0.0, options.sample_seed or 0, layers, heads, rows
    )

    def documents() -> Iterator[GenerateDocument]:
        for source_text in request.texts(environment, text, single=output.json):
            with request.errors_located_in(source_text), progress(environment, "generating") as on_progress:
                tokens = request.tokens_of(loaded_model, source_text)
                request.refuse_memory(
                    memory(loaded_model, len(tokens), continuation), compute, "a shorter text, or a smaller --generate"
                )
                if rows:
                    kept_heads = (
                        sum(block.attention.heads for block in loaded_model.spec.blocks)
                        if layers is EVERY and heads is EVERY
                        else 1
                    )
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
                    tokens=tokens,
                    progress=on_progress,
                )
            yield document

    write_documents(documents(), output, environment, view, several=text.lines)
