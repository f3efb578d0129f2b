"""`attn why`: why a head looks there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from attncli.cli import declarations, request
from attncli.cli.answer import Command, DocumentPage, TextRun, answer_texts
from attncli.cli.declarations import SEEDED_HEADS, OutputOptions, PairOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import KEPT, RUN, analysis_option, meaning, option, redeclare, without
from attncli.cli.output import (
    PageOptions,
    validate_options,
    validate_page,
)
from attncli.cli.pair_answer import PAIR_SUBJECTS, foretell, is_over_pairs, write_pair_answer
from attncli.errors import UsageError
from attncli.language import choice, message

if TYPE_CHECKING:
    from attncli.features.why.document import Split, WhyDocument
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model

SPLITS: tuple[Split, ...] = ("part", "token", "frequency", "dimension")


class LinkOptions(Struct, frozen=True):
    """The options of `attn why` that name the link (the attention of one token to another) and say
    what its score is split into."""

    start: Annotated[str | None, declarations.FROM] = None
    end: Annotated[str | None, declarations.TO] = None
    than: Annotated[
        str | None,
        option(
            help="Why --to rather than this token. [default: what the row expects]",
            panel=KEPT,
            about=RUN,
            metavar="TOK",
        ),
    ] = None
    cross: Annotated[bool, declarations.CROSS] = False
    unknown: Annotated[bool, declarations.UNKNOWN] = False
    by: Annotated[str, declarations.SPLIT] = "part"
    writes: Annotated[
        bool, analysis_option(help="Also what the head writes, by the token it comes from.")
    ] = False
    target: Annotated[
        str | None,
        redeclare(
            declarations.TARGET,
            help="With --writes: the next token whose logit it adds to, or id:N.",
        ),
    ] = None
    versus: Annotated[
        str | None,
        redeclare(
            declarations.VERSUS,
            help=(
                "Why --to rather than this token; with --writes, whose logit is taken away from the"
                " target's. [default: what the row expects]"
            ),
        ),
    ] = None

    @property
    def rival(self) -> str | None:
        """The other key that the link is compared with; None where it is compared with its row's
        mean. --versus is that key, unless --writes gives it another meaning: then only --than is."""
        if self.than is not None or self.writes:
            return self.than
        return self.versus

    @property
    def target_rival(self) -> str | None:
        """The token whose logit is subtracted from that of --target: with --writes, the one that
        --versus names; else None."""
        if self.writes:
            return self.versus
        return None


def why(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[RunSetup, meaning(num_heads=declarations.EIGHT_HEADS)],
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    page: PageOptions,
    pair_options: PairOptions,
    link: LinkOptions,
) -> None:
    """Take a head's score apart: which parts of both words make it look there.

    attn why --model minilm "The animal didn't cross the street because it was too tired" --from it --to animal

    attn why --model minilm "The animal was too tired, so it slept" --from it --to animal --versus tired --head L5H11

    attn why --model smollm2 --pairs indirect-object --head L24H4
    """
    from attncli.cli.progress import foretell_work

    environment: Environment = ctx.obj
    _refuse_two_rivals(link)
    if is_over_pairs(pair_options, text.text):
        _why_pairs(environment, pair_options, setup, output, link)
        return
    view = validate_options(output, environment, "why", files={"--html": page.html})
    validate_page(page, lines=text.lines)
    start, end, split = _link_ends(link)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer, heads=SEEDED_HEADS)
    from attncli.features.why import compute as explanation

    def on_cost(expected: CostEstimate, count: int) -> None:
        """Say before a long run starts how long it will take."""
        foretell_work(environment, count, expected.seconds, message("a shorter text"))

    def compute(run: TextRun) -> WhyDocument:
        """The `attn.why/1` document of one text."""
        return explanation.why(
            loaded_model,
            run.text,
            start,
            end,
            than=link.rival,
            cross=link.cross,
            by=split,
            writes=link.writes,
            target=link.target,
            versus=link.target_rival,
            heads=request.head_selection(loaded_model.spec, setup.model),
            unknown=link.unknown,
            source_text=setup.model.source,
            memory=request.memory_left(setup.compute, loaded_model),
            tokens=run.tokens,
            note=environment.note,
            on_cost=on_cost,
            progress=run.progress,
        )

    command = Command(environment, loaded_model, text, setup, output, page, view)
    answer_texts(
        command, compute, page=DocumentPage(link.cross), label=message("taking the score apart")
    )


def _link_ends(link: LinkOptions) -> tuple[str, str, Split]:
    """The query's and the key's name from `--from` and `--to`, and the split that `--by` names.
    Raises UsageError where one is missing or options contradict each other."""
    if link.start is None or link.end is None:
        raise UsageError(
            "attn why needs two tokens",
            expected="--from TOK and --to TOK",
            hint="attn why TEXT --from it --to animal",
        )
    # the name as one of the type `Split`
    split = next((name for name in SPLITS if name == link.by), None)
    if split is None:
        raise UsageError("--by is {value}", expected=choice(SPLITS), value=repr(link.by))
    if link.target is not None and not link.writes:
        raise UsageError("--target is about what the head writes", expected="--writes as well")
    if link.target_rival is not None and link.target is None:
        raise UsageError("--versus is taken from a target", expected="--target TOK as well")
    return link.start, link.end, split


def _refuse_two_rivals(link: LinkOptions) -> None:
    """Raise UsageError where --than and --versus both name a key to compare the link with."""
    if link.than is not None and link.versus is not None and not link.writes:
        raise UsageError("--than and --versus name two other tokens", expected="one of them")


def _why_pairs(
    environment: Environment,
    pairs: PairOptions,
    setup: RunSetup,
    output: OutputOptions,
    link: LinkOptions,
) -> None:
    """Run `attn why --pairs`: explain a link's score by means over pairs of texts, and write the
    answer."""

    def compute(model: Model, on_progress: Callable[[float], None]) -> WhyDocument:
        """The `attn.why/1` document of all pairs."""
        from attncli.features.why.pair_reasons import why_pairs

        # --pairs is given, else one text would be explained
        return why_pairs(
            model,
            pairs.pairs or "",
            query=link.start,
            key=link.end,
            than=link.rival,
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
        command="why",
        label=message("taking the score apart"),
        # the options that go with pairs; others are refused
        subjects=(*PAIR_SUBJECTS, "start", "end", "than", "versus"),
    )


why_app = command_app(
    why, essentials="--from --to --versus --by --writes --model --head --full --json --figure"
)
