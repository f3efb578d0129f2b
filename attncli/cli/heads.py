"""`attn heads`: all heads of a text compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, page_output, request
from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli.chosen_heads import layers_and_heads
from attncli.cli.options import (
    ANALYSIS,
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
    from attncli.analysis.documents.heads import HeadsDocument
    from attncli.analysis.heads import Compared
    from attncli.analysis.random_repeats import Scores
    from attncli.analysis.records.recording import Recording
    from attncli.inputs.text import Text
    from attncli.models.model import Model


@dataclass(frozen=True)
class HeadsOptions:
    """What is measured of the heads, and in which order they come."""

    metric: Annotated[list[str] | None, the.METRIC] = None
    sort: Annotated[
        str | None,
        option(
            "--sort",
            help="Largest first by this metric; NAME:asc for smallest first.",
            panel=ANALYSIS,
            metavar="NAME",
            complete=completion.orders,
        ),
    ] = None
    top: Annotated[int | None, the.TOP] = None
    exclude: Annotated[
        str | None,
        option(
            "--exclude",
            help="Leave out: first, special, self, neighbours, punctuation.",
            panel=ANALYSIS,
            metavar="NAMES",
            complete=completion.several("first", "special", "self", "neighbours", "punctuation"),
        ),
    ] = None
    renormalise: Annotated[
        bool, option("--renormalise", "--renormalize", help="Scale what is left of a row to sum to 1.", panel=ANALYSIS)
    ] = False
    moved: Annotated[bool, option("--moved", help="Also weight × size of the transformed value.", panel=ANALYSIS)] = (
        False
    )
    labels: Annotated[
        bool, option("--labels", help="Name what heads do; runs random repeats for induction.", panel=ANALYSIS)
    ] = False
    across: Annotated[
        str | None,
        option(
            "--across",
            help="Add rollout, flow, similarity, circuits.",
            panel=ANALYSIS,
            metavar="NAMES",
            complete=completion.several("rollout", "flow", "similarity", "circuits"),
        ),
    ] = None
    words: Annotated[bool, the.WORDS] = False
    all_links: Annotated[bool, the.ALL_LINKS] = False


def heads(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("residual", "layer_norm"), meaning(num_heads=the.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("top")],
    page: PageOptions,
    asked: HeadsOptions,
) -> None:
    """Compare all heads: small maps, metrics, labels, the strongest link of each.

    attn heads --num-heads 8

    attn heads "The animal didn't cross the street" --metric all --sort entropy:asc --top 3

    attn heads --model minilm "The animal didn't cross the street" --exclude first,special --renormalise --labels
    """

    environment: Environment = ctx.obj
    page_output.check(page, lines=text.lines)
    how = answer.check(
        output,
        environment,
        "heads",
        written={"--html": page.html},
        heeded=("show", "top"),
        tables=("top",),
        answers=("top",),
    )
    if asked.renormalise and asked.exclude is None:
        raise UsageError(
            "--renormalise scales what --exclude leaves, and nothing is excluded", expected="--exclude NAMES"
        )
    single = output.json or any(path is not None for path in (output.svg, page.html))
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=the.EIGHT)
    wanted = _wanted(loaded, model, output, asked, how.show)
    repeats = _repeats(loaded, wanted)

    def documents() -> Iterator[HeadsDocument]:
        for found in request.texts(environment, text, single=single):
            with request.told_where(found):
                taken = page_output.recording(page, loaded, found, wanted.heads, words=wanted.words)
                document = _document(environment, loaded, found, compute, output, asked, wanted, repeats, taken)
                if page.html is not None:
                    _write_page(loaded, found, wanted, page, how.lang, taken)
            yield document

    answer.give(documents(), output, environment, how, several=text.lines)


def _write_page(
    model: Model, text: Text, wanted: Compared, page: PageOptions, lang: str, taken: Recording | None
) -> None:
    from attncli.analysis.records.head import METRICS
    from attncli.render.page.contents import Page

    record = page_output.record(model, text, wanted.layers, wanted.heads, words=wanted.words, taken=taken)
    start = {"sort": wanted.sort} if wanted.sort in METRICS else {}
    page_output.write(
        page, Page(text.text, [record], start=start, lang=lang, budget=page.budget, option=page_output.BUDGET)
    )


def _wanted(
    model: Model, which: ModelOptions, output: OutputOptions, asked: HeadsOptions, parts: frozenset[str] | None
) -> Compared:
    from attncli.analysis.across_heads import parse as parse_across
    from attncli.analysis.exclusion import parse as parse_exclude
    from attncli.analysis.heads import Compared
    from attncli.analysis.measure import known
    from attncli.analysis.metrics import DEFAULT, METRICS
    from attncli.render.screens.heads import MATRICES

    named = [name.strip() for name in ",".join(asked.metric or ()).split(",") if name.strip()]
    sort, _, way = (asked.sort or "").partition(":")
    if way not in ("", "asc", "desc"):
        raise UsageError(f"--sort {asked.sort!r} names no order", expected="NAME, NAME:asc or NAME:desc")
    for name in (*(name for name in named if name != "all"), *((sort,) if sort else ())):
        known(name)
    layers, heads = layers_and_heads(model, which)
    return Compared(
        layers=layers,
        heads=heads,
        metrics=tuple(METRICS) if "all" in named else tuple(dict.fromkeys(named)) or DEFAULT,
        maps=parts is None or bool(parts & MATRICES) or (output.svg is not None and "metrics" not in parts),
        all_links=asked.all_links,
        exclude=() if asked.exclude is None else parse_exclude(asked.exclude),
        renormalise=asked.renormalise,
        words=asked.words,
        moved=asked.moved,
        labels=asked.labels,
        across=frozenset() if asked.across is None else parse_across(asked.across),
        sort=sort or None,
        rising=way == "asc",
    )


def _repeats(model: Model, wanted: Compared) -> Scores | None:
    """Scores of random repeats; they belong to the model, whatever the text."""
    if not wanted.labels:
        return None
    from attncli.analysis.repeat_scores import repeat_scores

    return repeat_scores(model, wanted.layers)


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    compute: ComputeOptions,
    output: OutputOptions,
    asked: HeadsOptions,
    wanted: Compared,
    repeats: Scores | None,
    taken: Recording | None = None,
) -> HeadsDocument:
    from msgspec.structs import replace

    from attncli.analysis.heads import heads_document
    from attncli.analysis.run import Wanted, cost
    from attncli.cli.progress import foretell_text, foretell_work, progress
    from attncli.cli.resources import resources
    from attncli.models.row_blocks import LONG, rows_for
    from attncli.render.encoding import NUMBER_BYTES

    foretell_text(environment, len(text.text))
    tokens = request.tokens_of(model, text)
    rows = rows_for(model.spec, len(tokens)) if len(tokens) > LONG and not wanted.whole else None
    expected = cost(
        model,
        len(tokens),
        Wanted(wanted.layers, wanted.heads, matrices=wanted.maps and rows is None),
        saved=False,
        rows=rows,
    )
    request.refuse_memory(expected.memory, compute, "a shorter text, --layer L, --head H or --show metrics")
    if wanted.maps and rows is None and (output.json or output.ndjson):
        answer.refuse_over(
            expected.numbers // 2 * NUMBER_BYTES[model.backend.dtype], output, "--layer L, --head H or --show metrics"
        )
    foretell_work(environment, len(tokens), expected.estimate.seconds, "a shorter text, --layer or --head")
    before = model.store.bytes_read()
    with progress(environment, f"{len(tokens):,} tokens", layers=True) as tell:
        document = heads_document(
            model, text.text, tokens, wanted, repeats=repeats, rows=rows, progress=tell, recording=taken
        )
    document = replace(document, resources=resources(model, before, expected.memory))
    if asked.top is not None and asked.top < len(document.heads):
        document = replace(document, heads_in_all=len(document.heads), heads=document.heads[: asked.top])
    if output.svg is not None:
        answer.draw(document, output)
    return document


app = command_app(heads)
