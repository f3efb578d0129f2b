"""`attn run --generate`: a decoder continues the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from attncli.arrays.selection import EVERY
from attncli.cli import delivery as answer
from attncli.cli import request
from attncli.cli.chosen_heads import layers_and_heads
from attncli.cli.option import LARGEST_SEED
from attncli.cli.options import (
    MODEL,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    number,
)
from attncli.cli.output import Environment
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.generate import GenerateDocument

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
            most=MOST,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        number(
            "--temperature",
            help="With --generate: draw tokens; 0 takes the likeliest. [default: 0]",
            panel=MODEL,
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
            least=0,
            most=LARGEST_SEED,
            rare=True,
        ),
    ] = None


def check(asked: GenerateOptions, out_of_place: list[str]) -> None:
    """Check the options before any work; raises UsageError. out_of_place: options given that do not go with
    `--generate`."""
    if asked.generate is None:
        if asked.temperature is not None or asked.sample_seed is not None:
            raise UsageError("--temperature and --sample-seed belong to --generate", hint="--generate 20")
        return
    temperature = asked.temperature or 0.0
    if asked.sample_seed is not None and temperature == 0:
        raise UsageError(f"--sample-seed is {asked.sample_seed}", expected="--temperature above 0 as well")
    if out_of_place:
        raise UsageError(f"{' '.join(out_of_place)} does not go with --generate", expected="one or the other")


def run(
    environment: Environment,
    asked: GenerateOptions,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: OutputOptions,
) -> None:
    """Continue each text asked for and answer."""
    from attncli.analysis.generate import Continuing, generated_document, memory
    from attncli.cli.progress import progress

    how = answer.check(output, environment, "generate")
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    layers, heads = layers_and_heads(loaded, model)
    assert asked.generate is not None
    rows = output.json or output.ndjson
    wanted = Continuing(asked.generate, asked.temperature or 0.0, asked.sample_seed or 0, layers, heads, rows)

    def documents() -> Iterator[GenerateDocument]:
        for found in request.texts(environment, text, single=output.json):
            with request.told_where(found), progress(environment, "generating") as tell:
                tokens = request.tokens_of(loaded, found)
                request.refuse_memory(
                    memory(loaded, len(tokens), wanted), compute, "a shorter text, or a smaller --generate"
                )
                if rows:
                    kept = (
                        sum(block.attention.heads for block in loaded.spec.blocks)
                        if layers is EVERY and heads is EVERY
                        else 1
                    )
                    size = kept * wanted.count * (len(tokens) + wanted.count) * 20
                    answer.refuse_over(size, output, "--layer L, --head H or a smaller --generate")
                document = generated_document(loaded, found.text, tokens, wanted, progress=tell)
            yield document

    answer.give(documents(), output, environment, how, several=text.lines)
