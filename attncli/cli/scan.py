"""`attn scan`: what every head does over a corpus; `show`, `compare` and `verify` look at what was scanned."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attncli.cli import declarations as the
from attncli.cli import delivery
from attncli.cli.grouped_command import CommandGroup
from attncli.cli.options import LOOK, OUTPUT, ComputeOptions, OutputOptions, command_app, meant, number, only, option
from attncli.cli.output import Environment
from attncli.cli.scan_options import RUNNING, CorpusOptions, MeasureOptions, RunningOptions, engine_of
from attncli.errors import AttnError, ExitCode, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attncli.scan.engines.engine import Ended
    from attncli.scan.plan import Plan
    from attncli.scan.plan_making import Wanted
    from attncli.scan.run import Outcome

START = "start"
"""The command that `attn scan MODEL CORPUS` stands for; what is no reserved word is its first argument."""
ScanOutput = Annotated[
    OutputOptions,
    only("json", "plain", "output", "color", "ascii", "lang", "quiet", "debug", "top", "show", "full", "brief"),
]
StartOutput = Annotated[
    OutputOptions, only("json", "plain", "color", "ascii", "lang", "quiet", "debug", "show", "full", "brief")
]
CompareOutput = Annotated[
    OutputOptions, only("json", "plain", "output", "color", "ascii", "lang", "quiet", "debug", "top", "full", "brief")
]
VerifyOutput = Annotated[
    OutputOptions, only("json", "plain", "output", "color", "ascii", "lang", "quiet", "debug", "brief")
]
Folder = Annotated[Path, typer.Argument(help="A folder that attn scan wrote.", metavar="OUT", show_default=False)]


def start(
    ctx: typer.Context,
    output: StartOutput,
    corpus: CorpusOptions,
    measure: MeasureOptions,
    running: RunningOptions,
    model: Annotated[str, the.MODEL_ARGUMENT],
    texts: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders or patterns: .txt, .jsonl, .parquet, also .gz and .zst; - for standard input.",
            metavar="CORPUS...",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        option("--out", "-o", help="Folder of the scan; the same command again goes on.", panel=OUTPUT, metavar="OUT"),
    ],
) -> None:
    """What every head does over a corpus: means with intervals, labels, strongest examples, links.

    attn scan minilm sentences.txt -o scan
    """
    environment: Environment = ctx.obj
    how = delivery.check(output, environment, "scan")
    from attncli.cli.checkpoint_option import fetched
    from attncli.scan import plan, plan_making, report
    from attncli.scan.run import Part, missing, parse_part, run
    from attncli.scan.totals import total

    _check(measure)
    part = Part() if running.part is None else parse_part(running.part)
    engine = engine_of(running, environment)
    loaded = fetched(environment, model, ComputeOptions(backend="torch", device=running.device, dtype=running.dtype))
    wanted = _wanted(texts, corpus, measure)
    made = plan.write(
        plan_making.make(wanted, loaded, model, out, stdin=environment.stdin, note=environment.notes), out
    )
    del loaded
    from attncli.cli.progress import progress

    counted = _Counted(made, missing(made, out, part))
    with progress(environment, counted.said) as tell:
        counted.tell = tell
        outcome = run(made, out, model, engine, part=part, progress=counted.add, ended=counted.ended)
    for shard in outcome.recomputed:
        environment.note(f"shard {shard} could not be read and was computed again")
    if outcome.totals is None:
        environment.note(f"part {part.number} of {part.count} has ended; other parts still have shards to do")
    totals = total(made, out) if outcome.totals is None and (output.json or output.plain) else outcome.totals
    if totals is not None:
        document = report.scan_document(totals, [*outcome.failed, *outcome.elsewhere])
        try:
            if outcome.totals is not None:
                report.write(document, out)
        finally:  # the numbers are there, whether or not there is room for them in the folder
            delivery.give([document], output, environment, how)
        if not document.done.texts and outcome.totals is not None and not document.done.failed:
            raise InputError(
                "no record of the corpus could be counted", where=texts[0], expected="texts, as --format says"
            )
    _told(outcome)


def _told(outcome: Outcome) -> None:
    """Raise where shards were given up: the others are done, and the same command tries these again."""
    if outcome.failed:
        first = outcome.failed[0]
        raise AttnError(
            f"{len(outcome.failed)} of the scan's shards failed; shard {first.shard}: {first.reason}",
            hint="the same command again tries only these",
        )


class _Counted:
    """How far a scan has come: the texts that are done, and the shards that were given up. shards: those to do."""

    def __init__(self, made: Plan, shards: Sequence[int]) -> None:
        self._all = max(sum(part.count for shard in shards for part in made.shards[shard]), 1)
        self._begun, self._done, self._failed = time.monotonic(), 0, 0
        self.tell: Callable[[float], None] = lambda share: None

    def add(self, texts: int) -> None:
        self._done += texts
        self.tell(min(self._done / self._all, 1.0))

    def ended(self, one: Ended) -> None:
        self._failed += bool(one.reason)

    def said(self) -> str:
        done, every = f"{self._done:,}", f"{self._all:,}"
        pace = f"{self._done / max(time.monotonic() - self._begun, 1e-9):.1f}"
        if self._failed:
            return f"{done} of {every} texts · {pace} texts/s · failed shards: {self._failed}"
        return f"{done} of {every} texts · {pace} texts/s"


def _check(measure: MeasureOptions) -> None:
    if measure.words and measure.find:
        raise UsageError("--find looks for tokens, and --words merges them", expected="one of them")
    if measure.rows or measure.find:
        from attncli.scan.tables import library

        library()


def _wanted(texts: Sequence[str], corpus: CorpusOptions, measure: MeasureOptions) -> Wanted:
    from attncli.analysis.metrics import DEFAULT, METRICS
    from attncli.scan.corpus import parse_format
    from attncli.scan.effects import checked
    from attncli.scan.plan_making import Wanted

    named = [name.strip() for given in measure.metric or () for name in given.split(",") if name.strip()]
    metrics = tuple(METRICS) if named == ["all"] else tuple(named) or (*DEFAULT, "special", "normalised_entropy")
    return Wanted(
        corpus=tuple(texts),
        metrics=metrics,
        format=None if corpus.format is None else parse_format(corpus.format),
        labels=measure.labels,
        words=measure.words,
        rows=measure.rows,
        find=tuple(measure.find or ()),
        top=measure.top,
        effects=checked(measure.effects or "", measure.head or ()),
        sample=corpus.sample,
        seed=corpus.seed,
        dedupe=corpus.dedupe,
        max_tokens=corpus.max_tokens,
        over=corpus.over,
        skip_unknown=corpus.skip_unknown,
        cluster=corpus.cluster,
    )


def show(
    ctx: typer.Context,
    output: ScanOutput,
    out: Folder,
    head: Annotated[str | None, meant(the.HEAD, help="One head closely, such as L5H11.", metavar="HEAD")] = None,
    metric: Annotated[str | None, meant(the.METRIC, help="Metric of the grid and the examples.", panel=LOOK)] = None,
    html: Annotated[Path | None, the.HTML] = None,
) -> None:
    """A scan's numbers, as far as it is done.

    attn scan show scan --head L5H11
    """
    environment: Environment = ctx.obj
    from functools import partial

    from attncli.render.screens.scan import scan_screen
    from attncli.scan import plan, report
    from attncli.scan.conditions import parse_heads
    from attncli.scan.tallies import EFFECT
    from attncli.scan.totals import total

    how = delivery.check(output, environment, "scan", written={"--html": html})
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html is {str(html)!r}", expected="a file ending in .html")
    if (output.json or output.plain) and (head is not None or metric is not None):
        raise UsageError(
            f"--{'metric' if head is None else 'head'} is about the screen", expected="no --json and no --plain"
        )
    chosen = None if head is None else parse_heads(head)[0]
    made = plan.read(out)
    finished = report.read(out) if (out / report.NAME).exists() else None
    if finished is None or finished.done.shards[0] < len(made.shards):
        finished = report.scan_document(total(made, out), report.failures(out))
    shown = (*made.metrics, EFFECT) if made.measures.effects else made.metrics
    if metric is not None and metric not in shown:
        raise UsageError(f"this scan has no metric {metric!r}", expected=", ".join(shown))
    if chosen is not None and chosen not in made.heads:
        raise UsageError(
            f"there is no head {head}", expected=f"L0H0 to L{made.model.layers - 1}H{made.model.heads[-1] - 1}"
        )
    if html is not None:
        from attncli.cli.scan_page_output import write

        write(environment, made, finished, html, how.lang)
    closely = partial(scan_screen, metric=metric, head=chosen)
    delivery.give([finished], output, environment, how, screen=closely)


def compare(ctx: typer.Context, output: CompareOutput, a: Folder, b: Folder) -> None:
    """How two scans differ: two corpora, or two models of as many heads.

    attn scan compare before after
    """
    environment: Environment = ctx.obj
    how = delivery.check(output, environment)
    from attncli.scan.comparison import compare_document

    document = compare_document(a, b)
    delivery.give([document], output, environment, how)


def verify(
    ctx: typer.Context,
    output: VerifyOutput,
    out: Folder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Where its corpus is now, if it was moved.", metavar="CORPUS...", show_default=False),
    ] = None,
    shards: Annotated[int, number("--shards", help="How many shards to compute again.", panel=RUNNING)] = 3,
) -> None:
    """Compute some shards again and compare them with their files.

    attn scan verify scan --shards 3
    """
    environment: Environment = ctx.obj
    how = delivery.check(output, environment)
    from attncli.cli.checkpoint_option import fetched
    from attncli.scan.engines.process import on_one_thread
    from attncli.scan.plan import read
    from attncli.scan.plan_making import found_again
    from attncli.scan.verification import verify_document
    from attncli.scan.worker import Worker

    made = read(out)
    if texts:
        made = found_again(made, texts, out)
    on_one_thread()
    compute = ComputeOptions(backend="torch", device=made.device, dtype=made.dtype)
    loaded = fetched(environment, made.model.name, compute)
    document = verify_document(made, out, Worker(made, out, loaded), shards)
    delivery.give([document], output, environment, how)
    if not document.passed:
        raise typer.Exit(ExitCode.FAILURE)


class ScanGroup(CommandGroup):
    """A group whose default command is the scan itself: `attn scan MODEL CORPUS`; `./show` is a model's folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [START, *args]
        return list(super().parse_args(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, left = super().resolve_command(ctx, args)
        return "" if name == START else name, command, left


app = command_app(start, show, compare, verify)
app.info.cls = ScanGroup
