"""`attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.answer import Command, RunPage, TextRun, answer_texts
from attncli.cli.declarations import (
    OutputOptions,
    PairOptions,
    RegionOptions,
    RunSetup,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import About, answer_option, delivery_option, meaning, redeclare, without
from attncli.cli.output import (
    PageOptions,
    validate_options,
    validate_page,
)
from attncli.cli.pair_answer import PAIR_SUBJECTS, foretell, is_over_pairs, write_pair_answer
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError, VerdictError
from attncli.features.find.expectation import parse_expectation
from attncli.language import message

if TYPE_CHECKING:
    from attncli.draw.page import Bands
    from attncli.features.cross.document import CrossDocument
    from attncli.features.find.compute import SourceText
    from attncli.features.find.document import FindDocument
    from attncli.inputs.regions import Region
    from attncli.measure.run_record import RunRecord
    from attncli.models.model import Model


def find(
    ctx: typer.Context,
    text: TextOptions,
    regions: RegionOptions,
    setup: Annotated[RunSetup, meaning(num_heads=declarations.EIGHT_HEADS)],
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    page: PageOptions,
    pair_options: PairOptions,
    start: Annotated[str | None, declarations.FROM] = None,
    ends: Annotated[
        list[str] | None,
        redeclare(
            declarations.TO,
            help="The token that is looked at; several are set side by side, ranked by the first.",
        ),
    ] = None,
    words: Annotated[bool, declarations.WORDS] = False,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
    effect: Annotated[
        bool, answer_option(help="Also what cutting the link in each head changes.")
    ] = False,
    target: Annotated[
        str | None,
        redeclare(
            declarations.TARGET,
            help="With --effect: also what its logit less that of --versus loses; or id:N.",
        ),
    ] = None,
    versus: Annotated[str | None, declarations.VERSUS] = None,
    verify: Annotated[
        bool,
        answer_option(help="Also with another word in front of the text: heads rest on the first."),
    ] = False,
    why: Annotated[list[str] | None, declarations.PAGE_WHY] = None,
    expect: Annotated[
        str | None,
        delivery_option(
            help="Exit 1 unless this holds of the strongest head: 'weight(FROM,TO)>X'.",
            metavar="CHECK",
        ),
    ] = None,
) -> None:
    """Find the heads that send one token to another, ranked by weight.

    attn find "The animal didn't cross the street because it was too tired" --from it --to animal

    attn find --model minilm "The animal was too tired, so it slept" --from it --to animal --top 5

    attn find "The animal was too tired, so it slept" --from it --to animal --to tired

    With --source, --to may be a word of it, which cross-attention looks at:

    attn find --model FOLDER "Das Haus" --source "The house" --from Haus --to house

    attn find --model smollm2 --pairs indirect-object --effect

    attn find --model minilm "The animal was tired, so it slept" --expect "weight(it,animal)>0.5"
    """

    environment: Environment = ctx.obj
    expectation = parse_expectation(expect)
    if is_over_pairs(pair_options, text.text):
        if expectation is not None:
            raise UsageError("--expect is about texts, and pairs are asked", expected="one of them")
        if ends is not None and len(ends) > 1:
            raise UsageError(
                "--pairs finds one link, and --to names {count} keys",
                expected="--to once",
                count=len(ends),
            )
        end = ends[0] if ends else None
        _find_pairs(environment, pair_options, setup, output, (start, end), effect=effect)
        return
    view = validate_options(output, environment, "find", files={"--html": page.html})
    validate_page(page, lines=text.lines, why=why, words=words)
    if expectation is not None:
        # the check may name the link: its key stands for the first of --to, whose others stay
        start, end = expectation.link(start, ends[0] if ends else None)
        if end is not None:
            other_ends = (ends or [])[1:]
            ends = [end, *other_ends]
    if start is None or not ends:
        hint = message("attn find TEXT --from it --to animal")
        raise UsageError(
            "attn find needs two tokens", expected="--from TOK and --to TOK", hint=hint
        )
    if not effect and (target is not None or versus is not None):
        raise UsageError("--target and --versus are about cut links", expected="--effect as well")
    if not effect and (
        ignored_options := environment.options_about(setup.model, About.AFTER_HEADS)
    ):
        what = message(
            "{option} changes what leaves the layer, and links are shown",
            option=min(ignored_options),
        )
        raise UsageError(what, expected="--effect as well")
    loaded_model = request.model(
        environment,
        setup,
        tokenizer=text.tokenizer,
        heads=declarations.SEEDED_HEADS,
        many_runs=effect,
    )

    from attncli.features.find.compute import SourceLink, find_in_source
    from attncli.features.find.compute import find as compute_find

    encoder_text = _source_of(setup, loaded_model)

    # that regions overlap is of no account where one is named
    quiet_overlaps = environment.without_notes()

    layers, heads = layers_and_heads(loaded_model, setup.model)

    verdicts: list[VerdictError] = []
    # those of the text that was computed last, which its page names as well
    latest_regions: list[Region] = []

    def compute(run: TextRun) -> FindDocument | CrossDocument:
        """Called for each text: its document, with every head by the weight of the link; that of
        `attn cross` where the key is in the source that an encoder reads."""
        latest_regions[:] = request.regions_of(quiet_overlaps, regions, run.source, run.tokens)
        if encoder_text is not None and not latest_regions:
            link = SourceLink(encoder_text, run.text, run.tokens, start, ends, words=words)
            if key := link.key_in_source():
                _refuse_beside_source(environment, key, page, several=len(ends) > 1)
                return find_in_source(
                    loaded_model,
                    link,
                    layers=layers,
                    heads=heads,
                    top=output.top,
                    note=environment.note,
                )
        document = compute_find(
            loaded_model,
            run.text,
            start,
            ends,
            layers=layers,
            heads=heads,
            words=words,
            unknown=unknown,
            effect=effect,
            target=target,
            versus=versus,
            verify=verify,
            regions=latest_regions,
            memory=request.memory_left(setup.compute, loaded_model),
            tokens=run.tokens,
            note=environment.note,
            on_cost=partial(
                request.refuse_cost,
                environment,
                setup.compute,
                request.smaller_run(loaded_model.spec),
            ),
            progress=run.progress,
            recording=run.recording,
        )
        if expectation is not None and (verdict := expectation.verdict(document)) is not None:
            verdicts.append(verdict)
        return document

    def regions_of_page() -> list[Region]:
        """The regions that the page names: those of tokens, since words are none."""
        return [] if words else latest_regions

    def bands(_: TextRun) -> Bands:
        """The regions of a text as its page marks them: named stretches of tokens."""
        from attncli.draw.page import bands_of_regions

        return bands_of_regions(regions_of_page())

    def opens_at(_: TextRun, record: RunRecord) -> Mapping[str, str]:
        """What the page of this text shows first: the search for the link."""
        return _search_start(environment, record, (start, ends[0]), regions_of_page())

    search_page = RunPage(layers=layers, heads=heads, words=words, opens_at=opens_at, bands=bands)
    answer_texts(
        Command(environment, loaded_model, text, setup, output, page, view, why),
        compute,
        page=search_page,
        label=message("cutting the link") if effect else None,
    )
    if verdicts:
        raise verdicts[0]


def _source_of(setup: RunSetup, model: Model) -> SourceText | None:
    """The text that the encoder of this model has read, with its tokens; None for a model without an
    encoder, and for one that reads captured encoder states."""
    from attncli.features.find.compute import SourceText

    if setup.model.source is None or model.encoder is None:
        return None
    return SourceText(setup.model.source, model.source)


def _refuse_beside_source(
    environment: Environment, end: str, page: PageOptions, *, several: bool
) -> None:
    """Raise UsageError for options that do not go with a link to the source: cuts, checks, several
    keys, a page.

    end: the key, which is in the source.
    """
    options = ("effect", "verify", "expect")
    refused = [f"--{name}" for name in options if name in environment.explicit_options]
    if several:
        refused.append("--to")
    if page.html is not None:
        refused.append("--html")
    if refused:
        raise UsageError(
            "{end} is in the source, and {option} is about links within the text",
            expected="the weights alone, or a page by attn cross TEXT SOURCE --query TOK --to TOK",
            end=repr(end),
            option=refused[0],
        )


def _find_pairs(
    environment: Environment,
    pairs: PairOptions,
    setup: RunSetup,
    output: OutputOptions,
    ends: tuple[str | None, str | None],
    *,
    effect: bool,
) -> None:
    """Run `attn find --pairs`: what heads send from one token to another, means over pairs.

    ends: the query and the key by name; None for the last token, and for the answer.
    """

    def compute(model: Model, on_progress: Callable[[float], None]) -> FindDocument:
        """Called with the model that is loaded: the `attn.find/1` document. The file of pairs is
        always given here."""
        from attncli.features.find.pair_links import find_pairs

        return find_pairs(
            model,
            pairs.pairs or "",
            query=ends[0],
            key=ends[1],
            effect=effect,
            count=pairs.count,
            heads=request.head_selection(model.spec, setup.model),
            memory=request.memory_left(setup.compute, model),
            on_cost=partial(foretell, environment),
            progress=on_progress,
        )

    write_pair_answer(
        environment,
        setup,
        output,
        compute,
        command="find",
        label="running pairs",
        subjects=(*PAIR_SUBJECTS, "start", "ends", "effect"),
    )


def _search_start(
    environment: Environment, record: RunRecord, ends: tuple[str, str], regions: Sequence[Region]
) -> dict[str, str]:
    """The link with which a page's search opens, as the parameters of its address: "view", and the
    positions "from" and "to", such as "#3".

    ends: the names of the query and the key.
    regions: those that they may name.
    """
    from attncli.inputs.regions import region_span

    quiet = environment.without_notes()

    def first_position(name: str) -> int:
        """The position of the first token that a name stands for."""
        span = region_span(regions, name)
        if span is None:
            span = request.query_span(quiet, record.sides.queries, name)
        return span[0]

    start = first_position(ends[0])
    end = first_position(ends[1])
    return {"view": "search", "from": f"#{start}", "to": f"#{end}"}


find_app = command_app(
    find, essentials="--from --to --model --effect --layer --head --top --brief --json --html"
)
