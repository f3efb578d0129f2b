"""`attn series`: what heads do over the checkpoints of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from attncli.cli import completion, declarations, request
from attncli.cli.declarations import ComputeOptions, PagedOutput, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    SUBJECT,
    argument,
    only,
    redeclare,
    subject_option,
    text_option,
    without,
)
from attncli.cli.output import validate_options, write_pieces, write_with_figure
from attncli.errors import UsageError
from attncli.language import message


def series(
    ctx: typer.Context,
    output: Annotated[PagedOutput, without("precision", "top", "max_output")],
    compute: Annotated[ComputeOptions, only("backend", "dtype")],
    models: Annotated[
        list[str],
        argument(
            "Folders, or hub ids with revisions: NAME@step1,step512.", "MODEL...", completion.models
        ),
    ],
    text: Annotated[
        str | None, text_option(help="The text that every checkpoint reads.", metavar="TEXT")
    ] = None,
    corpus: Annotated[
        Path | None,
        text_option(help="A file with a text a line; numbers are means.", metavar="FILE"),
    ] = None,
    metric: Annotated[
        list[str] | None,
        redeclare(
            declarations.METRIC,
            help=(
                "Metrics with commas between. [default: previous, induction, duplicate, sink,"
                " entropy]"
            ),
            panel=SUBJECT,
        ),
    ] = None,
    fresh: Annotated[bool, subject_option(help="Measure again what was measured before.")] = False,
) -> None:
    """Metrics, labels and scores of every head over the checkpoints of one model: what forms when.

    attn series my-model/step-* --text "a b c d a b c d"

    attn series EleutherAI/pythia-160m@step1,step512,step143000 --text "the cat sat on the mat; the cat sat"
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, "series")
    if text is not None and corpus is not None:
        raise UsageError(
            message("--text and --corpus both say what is read"),
            expected=message("one or the other"),
        )
    from attncli.cli.progress import progress
    from attncli.features.series import compute as checkpoints

    sources = request.texts(
        environment, TextOptions(text=text, file=corpus, lines=corpus is not None)
    )
    with progress(environment, "measuring checkpoints") as on_progress:
        document = checkpoints.series(
            models,
            (source.text for source in sources),
            metrics=request.comma_parts(metric) if metric else checkpoints.DEFAULT_METRICS,
            maps=output.page is not None,  # weights of the first text, which only the page draws
            backend=compute.backend,
            dtype=compute.dtype,
            variables=environment.variables,
            note=environment.notes,
            progress=on_progress,
            remember=not fresh,
        )
    if output.page is not None:
        from attncli.features.series.screen import series_page

        write_pieces(output.page, [series_page(document, view.lang)])
        # maps are for the page alone
        document = replace(
            document, checkpoints=[replace(row, maps=None) for row in document.checkpoints]
        )
    # without --html: the page is written already
    write_with_figure([document], replace(output, html=None), environment, view)


series_app = command_app(
    series,
    essentials="--text --corpus --metric --fresh --brief --full --csv --json --figure --html",
)
