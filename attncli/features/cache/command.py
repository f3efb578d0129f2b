"""`attn cache`: what a cache of keys may forget."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, declarations, request
from attncli.cli.declarations import PagedOutput, RegionOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import attention_option, meaning, redeclare, without
from attncli.cli.output import keeping_runs, validate_options, write_with_figure
from attncli.cli.progress import progress
from attncli.language import message

if TYPE_CHECKING:
    from attncli.features.cache.document import CacheDocument

POLICIES = ("h2o", "snapkv", "tova", "sinks", "random")
"""The policies, as `mechanism.mask.cache_policy` has them; completion needs no NumPy."""


def cache(
    ctx: typer.Context,
    text: Annotated[TextOptions, without("lines")],
    regions: RegionOptions,
    setup: Annotated[
        RunSetup, without("layer", "head", "attention"), meaning(num_heads=declarations.EIGHT_HEADS)
    ],
    output: Annotated[PagedOutput, without("precision", "scale_colors", "max_output")],
    policy: Annotated[
        list[str] | None,
        attention_option(
            help=(
                "h2o, snapkv, tova, sinks or random, alone or with numbers: h2o:256. Repeatable."
                " [default: all]"
            ),
            metavar="SPEC",
            complete=completion.words(*POLICIES),
        ),
    ] = None,
    budget: Annotated[
        str | None,
        attention_option(
            help="Keys to keep, each tried: 64,128. [default: a quarter of the text]", metavar="N,N"
        ),
    ] = None,
    target: Annotated[
        str | None,
        redeclare(
            declarations.TARGET,
            help=(
                "The answer that is measured: a text, or id:N. [default: the model's first choice]"
            ),
            metavar="TEXT|id:N",
        ),
    ] = None,
) -> None:
    """What a cache of keys with a budget keeps of what is looked at, and what forgetting the rest
    changes.

    attn cache "humpty dumpty sat on a wall" --mask causal

    attn cache --model DIR --chat chat.json --policy h2o --policy snapkv --budget 64,128,256

    attn cache --model DIR --chat chat.json --policy sinks:4,252 --target Paris
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, "cache")
    if budget is None:
        budgets = []  # a quarter of the text, whose tokens are counted later
    else:
        budgets = sorted({*request.whole_numbers(budget, "--budget")})
    loaded_model = request.model(
        environment,
        setup,
        tokenizer=text.tokenizer,
        heads=declarations.SEEDED_HEADS,
        many_runs=True,
    )
    from attncli.features.cache import compute as caches
    from attncli.inputs.hub import own_cache_folder

    hint = message("a shorter text, or fewer policies")

    def documents() -> Iterator[CacheDocument]:
        """The one document: what each policy keeps of the text, at each budget."""
        source_text = request.one_text(environment, text)
        with request.errors_located_in(source_text):
            tokens = request.tokens_of(loaded_model, source_text)
            with (
                keeping_runs(output, environment, view) as kept_runs,
                progress(environment, "forgetting keys") as on_progress,
            ):
                document = caches.cache(
                    loaded_model,
                    source_text.text,
                    policy or POLICIES,
                    budgets=budgets,
                    target=target,
                    regions=request.regions_of(environment, regions, source_text, tokens),
                    tokens=tokens,
                    kept=own_cache_folder(environment.variables) / "caches",
                    note=environment.note,
                    on_cost=partial(request.refuse_cost, environment, setup.compute, hint),
                    on_result=kept_runs.count,
                    # on Ctrl-C, a document of the runs done so far is still drawn
                    on_interruption=kept_runs.documents.append,
                    progress=on_progress,
                )
        yield document

    write_with_figure(documents(), output, environment, view)


cache_app = command_app(
    cache,
    essentials="--policy --budget --model --chat --region --target --mask --brief --json --html",
)
