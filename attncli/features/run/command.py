"""`attn run`: attention on a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from attncli.cli import declarations, request
from attncli.cli.answer import Command, RunPage, TextRun, answer_texts
from attncli.cli.declarations import OutputOptions, RegionOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    DOCUMENT,
    MODEL,
    About,
    delivery_option,
    meaning,
    redeclare,
    text_option,
)
from attncli.cli.output import (
    PageOptions,
    refuse_over,
    validate_options,
    validate_page,
    wants_all_stages,
)
from attncli.cli.progress import foretell_work
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError
from attncli.features.generate import command as generate_option
from attncli.features.generate.command import GenerateOptions, WeighOptions
from attncli.language import message

WEIGHT_PARTS = {"scores", "weights", "output", "maps", "shapes"}
"""Parts of the screen that need every weight."""
TABLE_PARTS = {"scores", "weights", "output", "maps", "answer"}
"""Parts of the screen that tables of weights stand for."""

SEED = redeclare(
    declarations.SEED,
    panel=MODEL,
    help=(
        "Seed of the weights, or 'random'; with --temperature of the draws from a checkpoint."
        " [default: 0]"
    ),
)

if TYPE_CHECKING:
    from attncli.features.run.compute import BatchTraces
    from attncli.features.run.document import RunDocument
    from attncli.inputs.token import Text
    from attncli.measure.run_record import RunRecord
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model


def run(
    ctx: typer.Context,
    text: TextOptions,
    regions: RegionOptions,
    setup: Annotated[RunSetup, meaning(seed=SEED)],
    output: Annotated[
        OutputOptions, meaning(show=DOCUMENT, top=DOCUMENT, full=About.JSON | About.SCREEN)
    ],
    page: PageOptions,
    generate: GenerateOptions,
    weighing: WeighOptions,
    query: Annotated[str | None, declarations.QUERY] = None,
    stages: Annotated[str | None, declarations.STAGES] = None,
    save: Annotated[
        Path | None, delivery_option(help="Save every stage: .safetensors or .npz.", metavar="FILE")
    ] = None,
    batch: Annotated[
        bool,
        text_option(
            "--padded", "--batch", help="With --lines: pad all texts together and run them at once."
        ),
    ] = False,
    words: Annotated[bool, declarations.WORDS] = False,
    all_links: Annotated[bool, declarations.ALL_LINKS] = False,
    why: Annotated[list[str] | None, declarations.PAGE_WHY] = None,
) -> None:
    """Run attention on a text: tables, shape trace, strongest links.

    attn run "The animal didn't cross the street because it was too tired"

    attn run "humpty dumpty sat on" --query on --mask causal

    attn run --model minilm "The animal was too tired, so it slept" --query it --json
    """
    from attncli.features.run.stage_tables import PROJECTIONS, SHOWN

    environment: Environment = ctx.obj
    generate_option.check_continuation(generate, environment)
    if generate.generate is not None:
        generate_option.write_continuations(
            environment, generate, text, setup, output, regions, page, weighing
        )
        return
    _check_save(save)
    validate_page(page, lines=text.lines, why=why, words=words)
    files = {"--save": save, "--html": page.html}
    view = validate_options(output, environment, "run", files=files)
    all_stages = wants_all_stages(stages, output)
    _check_texts(is_padded=batch, has_lines=text.lines, all_stages=all_stages, words=words)
    names_regions = bool(regions.region or regions.regions)
    if names_regions and output.show == "all":  # all that there is: beside regions no weights
        view = replace(view, show=(view.show or frozenset()) - WEIGHT_PARTS - SHOWN.keys())
    parts = view.show or frozenset()
    is_implicit = "implicit" in parts and output.show != "all"  # all: what every model has
    if is_implicit:
        _check_implicit_output(output, page)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer)
    weigh_in = request.weighed_heads(loaded_model.spec, weighing.weigh, weighing.weigh_heads)
    if weighing.weigh is not None:
        _check_weighing(loaded_model, page, is_padded=batch)
    # the tables of stages that --show names need them, too; words have none
    holds_stages = all_stages or (bool(parts & SHOWN.keys()) and not words)
    # every weight is for a document, a row, or an answer that leaves out rows without a choice;
    # else links alone are kept
    every_weight = output.show is None or holds_stages or bool(parts & TABLE_PARTS)
    if every_weight:
        _check_top(environment, output)
    is_data = output.json or output.ndjson or output.plain
    hint = request.smaller_run(loaded_model.spec, "--query TOK", "--show links")

    def on_cost(expected: CostEstimate, count: int) -> None:
        """Called before a text runs with its estimated cost and number of tokens: refuse a run of too
        much memory or output, and announce a long one. Raises LimitError."""
        request.refuse_memory(expected.peak, setup.compute, hint, resident=expected.resident)
        if is_data:
            from attncli.draw.encoding import NUMBER_BYTES

            refuse_over(expected.numbers * NUMBER_BYTES[loaded_model.backend.dtype], output, hint)
        faster = request.faster_run(loaded_model.spec, setup.model.layer)
        foretell_work(environment, count, expected.seconds, faster)

    layers, heads = layers_and_heads(loaded_model, setup.model, output)
    command = Command(environment, loaded_model, text, setup, output, page, view, why)
    single = command.wants_one_text or save is not None
    texts: Sequence[Text] | None = None
    traces_of_batch: Iterator[BatchTraces | None] = repeat(None)  # each text runs by itself
    if batch:
        texts = list(request.texts(environment, text, single=single))
        traces_of_batch = iter(_run_as_batch(loaded_model, texts, setup, environment))

    # what needs the weights of single tokens, which regions would sum
    # (a figure shows weights, that of a chat as well; where regions are named it shows regions)
    is_figure_of_weights = output.svg is not None and not names_regions
    keeps_weights = any(
        (parts & WEIGHT_PARTS, holds_stages, save is not None, batch, words, is_figure_of_weights)
    )

    def compute(run: TextRun) -> RunDocument:
        """Called for each text: its document. Its stages are written to a file with `--save`."""
        from attncli.features.run import compute as runs

        padded = next(traces_of_batch)
        tokens = run.tokens
        if weighing.weigh is None:
            known_regions = request.regions_of(environment, regions, run.source, tokens)
            text_regions = known_regions
        else:
            # regions that are named for what is weighed alone leave the answer about words, and
            # that they overlap is of no account
            quiet = environment.without_notes()
            known_regions = request.regions_of(quiet, regions, run.source, tokens)
            text_regions = []
        if text_regions and keeps_weights:
            if names_regions:
                raise UsageError(
                    "regions are sums over weights, and no weights are kept",
                    expected=(
                        "no --full, --stages, --words, --save, --padded or --show weights beside --region"
                    ),
                )
            text_regions = []
        saved_stages = None
        if save is not None:
            saved_stages = runs.SavedStages(loaded_model, heads)
        document = runs.run(
            loaded_model,
            run.text,
            query=query,
            layers=layers,
            heads=heads,
            words=words,
            matrices=shows_tables(len(tokens)) or output.svg is not None,
            stages=holds_stages,
            projections=bool(parts & set(PROJECTIONS)),
            implicit=is_implicit,
            top=output.top,
            regions=text_regions,
            all_links=all_links,
            weigh=weighing.weigh,
            weigh_in=weigh_in,
            weigh_regions=known_regions,
            whole=output.full or output.svg is not None,
            tokens=tokens,
            note=environment.note,
            on_cost=on_cost,
            on_trace=None if saved_stages is None else saved_stages.add,
            progress=run.progress,
            batch=padded,
            recording=run.recording,
        )
        if saved_stages is not None and save is not None:
            runs.save_stages(save, saved_stages, document)
        return document

    def shows_tables(count: int) -> bool:
        """Whether the answer about so many tokens shows tables of weights."""
        from attncli.features.run.compute import is_long

        if is_data:
            return every_weight
        has_one_layer = len(loaded_model.spec.blocks) == 1
        is_chosen = any((has_one_layer, setup.model.layer, setup.model.head))
        has_few_rows = any((output.full, query is not None, not is_long(count)))
        return every_weight and is_chosen and has_few_rows

    def opens_at(run: TextRun, record: RunRecord) -> Mapping[str, str]:
        """What a page of this run shows first: the token asked about; {} without one."""
        if query is None:
            return {}
        # the run itself has noted already what the token's name may mean
        quiet = environment.without_notes()
        return {"query": str(request.query_index(quiet, record.sides.queries, query))}

    def after_figure(run: TextRun, document: RunDocument) -> RunDocument:
        """Called when a text's figure is drawn: the document for the answer, without the tables that
        only the figure needed."""
        from attncli.features.run.compute import without_tables

        if shows_tables(len(run.tokens)):
            return document
        return without_tables(document)

    answer_texts(
        command,
        compute,
        page=RunPage(layers=layers, heads=heads, words=words, opens_at=opens_at),
        texts=texts,
        single=single,
        after_figure=after_figure,
    )


def _check_texts(*, is_padded: bool, has_lines: bool, all_stages: bool, words: bool) -> None:
    """Raise UsageError for padding with one text, and for stages of words."""
    if is_padded and not has_lines:
        raise UsageError(
            "--padded pads several texts together, and there is one", expected="--lines as well"
        )
    if all_stages and words:
        raise UsageError(
            "every stage goes with tokens, and --words merges them", expected="one or the other"
        )


def _check_save(file: Path | None) -> None:
    """Raise UsageError for a file of stages that does not end as one of tensors."""
    if file is not None:
        from attncli.inputs.tensors import check_writable_format

        check_writable_format(file)


def _check_top(environment: Environment, output: OutputOptions) -> None:
    """Raise UsageError for a number of links where a plain answer lists every weight."""
    if output.plain and "top" in environment.explicit_options and output.svg is None:
        raise UsageError(
            "--top is about links, and --plain lists every weight", expected="--show links as well"
        )


def _check_implicit_output(output: OutputOptions, page: PageOptions) -> None:
    """Raise UsageError where implicit weights would be shown as weights of attention."""
    if page.html or output.svg or output.plain or output.table:
        raise UsageError(
            "pages, figures and tables hold weights of attention, and implicit weights are none: "
            "they may be negative, and a row sums to anything",
            expected="the screen, or --json",
            hint="attn run --show implicit --json",
        )


def _check_weighing(model: Model, page: PageOptions, *, is_padded: bool) -> None:
    """Raise UsageError where attention that is weighed cannot be shown or computed."""
    if page.html is not None:
        what = message("a page computes weights anew, without what is weighed")
        raise UsageError(what, expected="--weigh or --html")
    if is_padded or not model.own_layers:
        what = message("--weigh is about one text in layers that run one by one")
        raise UsageError(what, expected="no --padded, and a family that runs natively")


def _run_as_batch(
    model: Model, texts: Sequence[Text], setup: RunSetup, environment: Environment
) -> list[BatchTraces]:
    """Run all texts as one padded batch, and return each text's part; texts that need no padding
    get a note. Raises LimitError before it starts if the batch does not fit in memory."""
    from attncli.features.run.compute import RunRequest, cost, run_batch

    tokens = [request.tokens_of(model, text) for text in texts]
    layers, heads = layers_and_heads(model, setup.model)
    longest = max(map(len, tokens))
    if longest == min(map(len, tokens)) and len(texts) > 1:
        environment.note(
            message("{texts} texts of one length: nothing is padded", texts=len(texts))
        )
    # as many times what the longest text needs; the weights are there once
    single = cost(model, longest, RunRequest(layers, heads, matrices=False), is_saved=True)
    request.refuse_memory(
        single.resident + (single.peak - single.resident) * len(texts),
        setup.compute,
        "fewer or shorter texts, or no --padded",
        resident=single.resident,
    )
    return run_batch(model, tokens, layers, heads)


run_app = command_app(
    run, essentials="--query --model --layer --head --mask --weights --brief --json --html --figure"
)
