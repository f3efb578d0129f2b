"""`attn scan`: what every head does over a corpus; `show`, `compare`, `verify` and `export` look at
what was scanned.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec import Struct

from attncli.cli import completion, declarations
from attncli.cli.border import ProcessStopped
from attncli.cli.declarations import ComputeOptions, OutputOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import CommandGroup, command_app
from attncli.cli.option import (
    COMPUTE,
    DRAWING,
    RUN,
    SUBJECT,
    About,
    argument,
    delivery_option,
    number,
    only,
    option,
    redeclare,
    subject_option,
)
from attncli.cli.output import validate_options, write_documents
from attncli.cli.progress import progress
from attncli.errors import AttnError, ExitCode, InputError, UsageError
from attncli.inputs.files import atomic_writer, is_folder
from attncli.language import Message, listing, message, plural
from attncli.mechanism.spec import head_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from attncli.draw.lines import Lines
    from attncli.draw.view import View
    from attncli.models.model import Model
    from attncli.scan.corpus_page import PageScan
    from attncli.scan.document import AlikeHeads, ScanCompareDocument, ScanDocument
    from attncli.scan.engines import Engine
    from attncli.scan.export_tables import Table
    from attncli.scan.head_screen import ScanShown
    from attncli.scan.plan import ScanPlan, ScanRequest
    from attncli.scan.sampled_texts import Shading
    from attncli.scan.shard_files import ShardOutcome

    Scan = tuple[ScanPlan, ScanDocument]


# The options of `attn scan`: which texts, what is measured, and how shards are computed.

CORPUS, MEASURE, RUNNING = "Corpus", message("What is measured"), "Running"
corpus_option, corpus_number = (
    partial(option, panel=CORPUS, about=RUN),
    partial(number, panel=CORPUS, about=RUN),
)
measure_option, measure_number = (
    partial(option, panel=MEASURE, about=RUN),
    partial(number, panel=MEASURE, about=RUN),
)
running_option, running_number = (
    partial(option, panel=RUNNING, about=RUN),
    partial(number, panel=RUNNING, about=RUN),
)


class CorpusOptions(Struct, frozen=True):
    """Which texts are scanned."""

    format: Annotated[
        str | None,
        corpus_option(
            help="lines, jsonl:FIELD or parquet:COLUMN. [default: by name]", metavar="KIND"
        ),
    ] = None
    sample: Annotated[
        int,
        redeclare(
            declarations.SAMPLE,
            help="Only so many texts, drawn by a hash of each; 0 for all.",
            panel=CORPUS,
        ),
    ] = 0
    seed: Annotated[int, redeclare(declarations.SEED_NUMBER, panel=CORPUS)] = 0
    dedupe: Annotated[bool, corpus_option(help="Count texts that occur again once.")] = False
    cluster: Annotated[
        str,
        corpus_option(
            help="Field that tells what belongs together, for intervals.", metavar="FIELD"
        ),
    ] = ""
    max_tokens: Annotated[
        int, corpus_number(help="Longest text; 0 for the model's own limit.", least=0)
    ] = 0
    over: Annotated[
        str, corpus_option(help="What becomes of longer texts.", values=("skip", "truncate"))
    ] = "skip"
    skip_unknown: Annotated[
        bool, corpus_option(help="Leave out texts with words that the model does not know.")
    ] = False


class StatisticsOptions(Struct, frozen=True):
    """What is measured of the heads."""

    metric: Annotated[list[str] | None, redeclare(declarations.METRIC, panel=MEASURE)] = None
    metric_file: Annotated[
        list[Path] | None, redeclare(declarations.METRIC_FILE, panel=MEASURE)
    ] = None
    labels: Annotated[
        bool, measure_option("--labels/--no-labels", help="Label the heads, with intervals.")
    ] = True
    words: Annotated[bool, redeclare(declarations.WORDS, panel=MEASURE)] = False
    exclude: Annotated[str | None, redeclare(declarations.EXCLUDE, panel=MEASURE)] = None
    rows: Annotated[
        bool, measure_option(help="Also a table of every text and head, as Parquet.")
    ] = False
    find: Annotated[
        list[str] | None,
        measure_option(
            help='Links to keep: "from=it to=animal weight>=0.3 head=L5H11"; from= and to= take one'
            " token; rest=yes also counts keys where heads rest.",
            metavar="WHICH",
        ),
    ] = None
    effects: Annotated[
        str | None,
        measure_option(
            "--effect",
            "--effects",
            help="Also what taking heads away changes; needs --head.",
            values=("zero", "mean"),
        ),
    ] = None
    head: Annotated[
        list[str] | None,
        redeclare(
            declarations.HEAD, help="Heads for --effect: L5H11,L3H1.", metavar="H", panel=MEASURE
        ),
    ] = None
    why: Annotated[
        list[str] | None,
        measure_option(
            help="Heads whose strongest link of each text is taken apart: L5H11,L3H1.",
            metavar="HEADS",
        ),
    ] = None
    rules: Annotated[
        bool,
        redeclare(
            declarations.RULES, help="Also describe every head by simple rules.", panel=MEASURE
        ),
    ] = False
    rule_file: Annotated[
        list[Path] | None,
        redeclare(
            declarations.RULE_FILE,
            help="With --rules: a Python file of yours with rules: this runs its code.",
            panel=MEASURE,
        ),
    ] = None
    examples: Annotated[
        int,
        measure_number(
            help="Texts told of each tenth of a metric's values; 0 for none.", least=0, most=20
        ),
    ] = 3
    links: Annotated[
        bool,
        measure_option(
            "--links/--no-links", help="Count which tokens the strongest links go between."
        ),
    ] = True
    top: Annotated[
        int,
        redeclare(
            declarations.TOP,
            help="Strongest texts kept of each head and metric.",
            panel=MEASURE,
            least=0,
            most=1000,
        ),
    ] = 20


class RunningOptions(Struct, frozen=True):
    """How shards are computed."""

    workers: Annotated[
        int,
        running_number(
            help="Processes, at most one per processor; 0 for as many.", least=0, most=1024
        ),
    ] = 0
    part: Annotated[
        str | None,
        running_option(help="One of several parts that run side by side: 2/8.", metavar="I/N"),
    ] = None
    engine: Annotated[
        str, running_option(help="here, ray, ray:ADDRESS or ray:local.", metavar="NAME")
    ] = "here"
    device: Annotated[str | None, redeclare(declarations.DEVICE, panel=COMPUTE, common=True)] = None
    dtype: Annotated[str, declarations.DTYPE] = "float32"


def engine_of(options: RunningOptions, environment: Environment) -> Engine:
    """The engine that computes a scan's shards (slices of the corpus), as `--engine` and
    `--workers` say: worker processes here or a Ray cluster. Raises UsageError for an unknown
    engine."""
    name, _, address = options.engine.partition(":")  # such as ray:10.0.0.1:6379
    if name == "ray":
        from attncli.scan.engines import RayCluster

        cluster = address or "auto"  # the one that this machine belongs to
        return RayCluster(cluster, options.workers, environment.note)
    if options.engine != "here":
        raise UsageError(
            "there is no engine {engine}",
            expected="here, ray, ray:ADDRESS or ray:local",
            engine=repr(options.engine),
        )
    from attncli.scan.corpus_scan import usable_processors
    from attncli.scan.engines import LocalWorkers

    # without `--workers` (0) there is one worker for each processor
    usable = usable_processors()
    if options.workers > usable:
        environment.note(
            message(
                "{workers:,} workers are no faster than {usable:,}, one for each processor:"
                " {usable:,} are started",
                workers=options.workers,
                usable=usable,
            )
        )
    return LocalWorkers(min(options.workers or usable, usable))


START = "start"
"""The command that `attn scan MODEL CORPUS` stands for; what is no reserved word is its first
argument.
"""
SHOW_TABLE = redeclare(
    declarations.SHOW,
    help="Parts of the screen to show, with commas between; --csv writes the one that is a table.",
    about=About.SCREEN | About.PLAIN,
)


class TablesOutput(OutputOptions, frozen=True):
    """The output options, of which `--show` also chooses the table for programs."""

    show: Annotated[str | None, SHOW_TABLE] = None


ScanOutput = Annotated[
    TablesOutput,
    only(
        "json",
        "plain",
        "csv",
        "output",
        "color",
        "ascii",
        "lang",
        "quiet",
        "debug",
        "top",
        "show",
        "full",
        "brief",
    ),
]
StartOutput = Annotated[
    OutputOptions,
    only("json", "plain", "color", "ascii", "lang", "quiet", "debug", "show", "full", "brief"),
]
CompareOutput = Annotated[
    OutputOptions,
    only(
        "json",
        "plain",
        "output",
        "color",
        "ascii",
        "lang",
        "quiet",
        "debug",
        "top",
        "full",
        "brief",
    ),
]
VerifyOutput = Annotated[
    OutputOptions,
    only("json", "plain", "output", "color", "ascii", "lang", "quiet", "debug", "brief"),
]
Folder = Annotated[Path, argument("A folder that attn scan wrote.", "OUT")]


def start(
    ctx: typer.Context,
    output: StartOutput,
    corpus: CorpusOptions,
    measure: StatisticsOptions,
    running: RunningOptions,
    model: Annotated[
        str | None,
        argument(
            "A folder, hub id or alias; none where --model names it.", "NAME|DIR", completion.models
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        argument(
            "Files, folders or patterns: .txt, .jsonl, .parquet, also .gz and .zst; - for standard"
            " input.",
            "CORPUS...",
        ),
    ] = None,
    model_name: Annotated[str | None, declarations.CHECKPOINT] = None,
    adapter: Annotated[list[str] | None, declarations.ADAPTER] = None,
    out: Annotated[
        Path | None,
        delivery_option(
            "--output",
            "-o",
            "--out",
            help="Folder of the scan; the same command again goes on.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """What every head does over a corpus: means with intervals, labels, strongest examples, links.

    attn scan minilm sentences.txt -o scan
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, "scan")
    # the parser calls the first argument the model; with --model it is a file of the corpus
    arguments = list(texts or ())
    if model is not None:
        arguments.insert(0, model)
    model, texts = _model_and_corpus(arguments, model_name)
    if out is None:
        raise UsageError(
            message("a scan is kept in a folder, and none is named"),
            expected="-o DIR",
            hint=_EXAMPLE,
        )
    from attncli.cli.model_option import load_checkpoint
    from attncli.scan.corpus_scan import scan_corpus
    from attncli.scan.engines import WHOLE, parse_part

    _check_measures(measure)
    if running.part is None:
        part = WHOLE
    else:
        part = parse_part(running.part)
    engine = engine_of(running, environment)
    loaded_model = load_checkpoint(
        environment,
        model,
        ComputeOptions(backend="torch", device=running.device, dtype=running.dtype),
        adapters=tuple(adapter or ()),
    )
    counter = _Counter()
    documents: list[ScanDocument] = []  # the one that the scan hands on at its end
    try:
        with progress(environment, counter.progress_text) as on_progress:
            counter.on_progress = on_progress
            scan_corpus(
                model,
                texts,
                out,
                request=_scan_request(texts, corpus, measure),
                loaded_model=loaded_model,
                engine=engine,
                part=part,
                stdin=environment.stdin,
                # a program that reads the answer gets one while other parts still run, too
                is_partial=output.json or output.plain,
                note=environment.note,
                on_plan=counter.on_plan,
                progress=counter.add,
                on_work=counter.add_work,
                on_shard=counter.on_shard,
                on_document=documents.append,
            )
    except (KeyboardInterrupt, ProcessStopped):
        kept_text = counter.kept_text(out)
        if kept_text is not None:
            environment.note(kept_text)
        raise
    finally:  # also where shards were given up: `scan_corpus` hands on the document, then raises
        if documents:
            write_documents(documents, output, environment, view)


_EXAMPLE = "attn scan minilm sentences.txt -o scan"


def _model_and_corpus(arguments: list[str], model: str | None) -> tuple[str, list[str]]:
    """(model, corpus): the model is `--model` or else the first argument, and all other arguments
    are the corpus. Raises UsageError where one of the two is missing.

    model: what `--model` names; None without it.
    """
    if model is None and arguments:
        model = arguments[0]
        arguments = arguments[1:]
    if model is None:
        raise UsageError(
            message("neither a model nor a corpus is named"),
            expected="attn scan MODEL CORPUS",
            hint=_EXAMPLE,
        )
    if not arguments:
        raise UsageError(
            message("no corpus is named beside the model {model}", model=repr(model)),
            expected=message("files or folders"),
            hint=_EXAMPLE,
        )
    return model, arguments


class _Counter:
    """How far a running scan has come, for its progress bar: how many texts are done, and how many
    shards failed for good.

    on_progress: called with the share of the scan that is done, 0 to 1.
    """

    def __init__(self) -> None:
        self._all = 1  # texts that this run has to do
        self._start_time = time.monotonic()
        self._done = 0
        self._work = 0.0
        self._failed = 0
        self._has_begun = False
        self.plan: ScanPlan | None = None
        self.on_progress: Callable[[float], None] = lambda share: None

    def on_plan(self, scan_plan: ScanPlan, shards: Sequence[int]) -> None:
        """Begin to count texts and time; called once, when the plan is made. shards: the numbers of
        those still to do."""
        self.plan = scan_plan
        self._all = max(sum(part.count for shard in shards for part in scan_plan.shards[shard]), 1)
        self._start_time = time.monotonic()

    def add(self, texts: int) -> None:
        """Count `texts` more texts as done. The first call starts the clock anew, so that the time
        in which workers open the model does not slow the pace: with 0 a worker, which then has
        opened it, begins a shard."""
        self._done += texts
        if not self._has_begun:
            self._has_begun = True
            self._start_time = time.monotonic()
            self.on_progress(0.0)

    def add_work(self, records: float) -> None:
        """Add the work done since the last call, and report the share of all work that is done.

        records: the work as a number of average texts. A long text counts for more than one: short
            texts come first, so that the number of texts done would promise too early an end.
        """
        self._work += records
        self.on_progress(min(self._work / self._all, 1.0))

    def kept_text(self, folder: Path) -> Message | None:
        """What an interrupted scan leaves in its folder, and how to go on with it; None before
        there is a plan.
        """
        if self.plan is None:
            return None
        from attncli.scan.shard_files import is_done

        done = [shard for shard in range(len(self.plan.shards)) if is_done(folder, shard)]
        shards = len(self.plan.shards)
        if not done:
            return message(
                "interrupted: none of {shards:,} shards is done, so that the same command begins"
                " anew",
                shards=shards,
            )
        return message(
            "interrupted: {done:,} of {shards:,} shards are kept, with {records:,} of {every:,}"
            " texts; the same command goes on from there, and {command} shows them",
            done=len(done),
            shards=shards,
            records=sum(part.count for shard in done for part in self.plan.shards[shard]),
            every=self.plan.texts,
            command=f"attn scan show {quote(str(folder))}",
        )

    def on_shard(self, shard: ShardOutcome) -> None:
        """Count a shard that has ended as failed if its outcome has a reason."""
        self._failed += bool(shard.reason)

    def progress_text(self) -> str:
        """Texts done, texts per second and failed shards, for the bar."""
        done_texts = f"{self._done:,}"
        every = f"{self._all:,}"
        seconds = max(time.monotonic() - self._start_time, 1e-9)  # never 0, to divide by
        pace = f"{self._done / seconds:.1f}"
        if self._failed:
            return message(
                "{done_texts} of {every} texts · {pace} texts/s · failed shards: {failed}",
                done_texts=done_texts,
                every=every,
                pace=pace,
                failed=self._failed,
            )
        return message(
            "{done_texts} of {every} texts · {pace} texts/s",
            done_texts=done_texts,
            every=every,
            pace=pace,
        )


def _check_measures(measure: StatisticsOptions) -> None:
    """Raise UsageError for measures that exclude each other, UnsupportedError for tables without
    pyarrow.
    """
    if measure.words and measure.why:
        raise UsageError(
            "--why takes links between tokens apart, and --words merges them",
            expected="one of them",
        )
    if measure.words and measure.find:
        raise UsageError("--find looks for tokens, and --words merges them", expected="one of them")
    if measure.rows:
        from attncli.scan.shard_files import import_pyarrow

        import_pyarrow()


def _scan_request(
    texts: Sequence[str], corpus: CorpusOptions, measure: StatisticsOptions
) -> ScanRequest:
    """The `ScanRequest` that the command's options stand for. Raises UsageError, InputError for a
    bad file of metrics."""
    from attncli.measure.layer_metrics import TEXT_METRICS
    from attncli.measure.metric_file import load_metrics
    from attncli.measure.row_facts import parse_exclusion
    from attncli.scan.corpus_scan import USUAL
    from attncli.scan.intake import parse_format
    from attncli.scan.plan import ScanRequest
    from attncli.scan.worker import check_effects

    files = tuple(str(path) for path in measure.metric_file or ())
    file_metrics = [metric.name for path in files for metric in load_metrics(path)]
    names: list[str] = []
    for listed_names in measure.metric or ():  # with commas between them
        names += [name.strip() for name in listed_names.split(",") if name.strip()]
    if names == ["all"]:
        metrics = tuple(TEXT_METRICS)
    else:
        metrics = tuple(names) or USUAL
    # whoever names single metrics also names those of the files that are meant
    if names in ([], ["all"]):
        metrics = (*metrics, *file_metrics)
    return ScanRequest(
        corpus=tuple(texts),
        metrics=metrics,
        format=None if corpus.format is None else parse_format(corpus.format),
        labels=measure.labels,
        words=measure.words,
        rows=measure.rows,
        find=tuple(measure.find or ()),
        top=measure.top,
        effects=check_effects(measure.effects or "", measure.head or ()),
        examples=measure.examples,
        metric_files=files,
        links=measure.links,
        why=tuple(measure.why or ()),
        rules=measure.rules,
        exclude=() if measure.exclude is None else parse_exclusion(measure.exclude),
        rule_files=tuple(str(path) for path in measure.rule_file or ()),
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
    out: Annotated[
        list[Path],
        argument("Folders that attn scan wrote; several for --html or --site.", "OUT..."),
    ],
    head: Annotated[
        str | None,
        redeclare(declarations.HEAD, help="One head closely, such as L5H11.", metavar="H"),
    ] = None,
    metric: Annotated[
        str | None,
        redeclare(
            declarations.METRIC,
            help="Metric of the grid and the examples.",
            panel=SUBJECT,
            about=DRAWING,
        ),
    ] = None,
    deciles: Annotated[
        bool,
        option(
            help="Texts of each tenth of the metric's values; needs --head.",
            panel=SUBJECT,
            about=DRAWING,
        ),
    ] = False,
    alike: Annotated[
        bool,
        subject_option(
            help=(
                "Heads most like it, over its texts and by their weights, which runs the model;"
                " needs --head."
            )
        ),
    ] = False,
    shade: Annotated[
        bool,
        option(
            help="Shade these texts by where the head looks, which runs the model; needs --head.",
            panel=SUBJECT,
            about=DRAWING,
        ),
    ] = False,
    html: Annotated[Path | None, declarations.HTML] = None,
    site: Annotated[
        Path | None,
        delivery_option(
            help="Also write a folder for a web server: an index, a page and JSON of each scan.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """A scan's numbers, as far as it is done; of several scans a page or a site.

    attn scan show scan --head L5H11

    attn scan show before after --head L5H11

    attn scan show before after --html both.html
    """
    environment: Environment = ctx.obj
    from attncli.scan.report import head_document
    from attncli.scan.screen import scan_shown, shown_screen
    from attncli.scan.shard_files import parse_heads

    files = {"--html": html}
    # a folder that is there already cannot be the file of another output
    if site is not None and not is_folder(site):
        files["--site"] = site
    view = validate_options(output, environment, "scan", files=files)
    _check_page_name(html)
    has_pages = html is not None or site is not None
    # of two scans the screen shows one head: as it is in the first, and how it differs
    is_beside = len(out) == 2 and head is not None and not has_pages
    about_one_scan: dict[str, object] = {
        "--json": output.json,
        "--plain": output.plain,
        "--csv": output.csv,
        "--output": output.file,
    }
    about_one_screen: dict[str, object] = {
        "--head": head,
        "--metric": metric,
        "--deciles": deciles,
        "--alike": alike,
        "--shade": shade,
        "--show": output.show,
        "--full": output.full,
        "--brief": output.brief,
        "--top": "top" in environment.explicit_options,
    }
    if is_beside:
        _check_several_scans(len(out), about_one_scan, has_pages=True)
    elif len(out) > 1:
        _check_several_scans(len(out), about_one_scan | about_one_screen, has_pages=has_pages)
    head_place = None  # (layer, head)
    if head is not None:
        head_place = parse_heads(head)[0]  # a screen shows one head: of several the first
    else:
        _refuse_without_head(deciles=deciles, alike=alike, shade=shade)
    if site is not None:
        from attncli.scan.site import check_site

        check_site(site)
    scans = [_read_scan(folder) for folder in out]
    scan_plan, document = scans[0]
    _check_shown(scan_plan, metric, head, head_place)
    if html is not None:
        _write_page(environment, scans, html, view.lang)
    if site is not None:
        _write_site(environment, scans, site, view.lang)
    if len(out) > 1 and not is_beside:  # of several scans there are pages alone, and no screen
        return
    alike_heads = None
    shades = None
    if head_place is not None:
        if alike:
            alike_heads = _heads_most_like(environment, scans[0], head_place)
        if shade:
            shades = _shade_metric_texts(environment, scans[0], head_place, metric)
        # what programs read is about this head alone; the screen compares it with the others
        if any((output.json, output.plain, output.csv)):
            document = head_document(document, head_place, alike_heads)
    comparison = _comparison_of(out)

    def shown(document: ScanDocument) -> ScanShown:
        """The parts of a scan that the options choose."""
        return scan_shown(
            document,
            metric=metric,
            head=head_place,
            deciles=deciles,
            alike=alike_heads,
            comparison=comparison,
            shades=shades,
        )

    def screen(document: ScanDocument, view: View) -> Lines:
        """The screen of the parts that the options choose."""
        return shown_screen(shown(document), view)

    def rows(document: ScanDocument) -> Iterator[Sequence[object]]:
        """The table that `--plain` and `--csv` write of these parts, header first."""
        from attncli.scan.shown_tables import table_rows

        option_name = "--csv"
        if output.plain:
            option_name = "--plain"
        parts = view.show or ()
        beside_screen = output.table is not None
        return table_rows(shown(document), parts, option_name, beside_screen=beside_screen)

    write_documents([document], output, environment, view, screen=screen, rows=rows)


def _check_page_name(html: Path | None) -> None:
    """Raise UsageError where the file of `--html` does not end in .html or .htm."""
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            "{option} is {value}",
            expected="a file ending in .html",
            option="--html",
            value=repr(str(html)),
        )


def _check_several_scans(
    count: int, about_one_scan: Mapping[str, object], *, has_pages: bool
) -> None:
    """Raise UsageError where several scans are named but something that can show only one scan was
    asked for.

    count: how many scans are named.
    about_one_scan: by name, the value of each option that is about one scan; false for an option
        that was not given.
    has_pages: whether pages are written, which show several scans; without them the screen is
        asked for, which does not.
    """
    if not has_pages:
        raise UsageError(
            "{count} scans are named, and the screen shows one",
            expected=(
                "--html FILE or --site DIR, or one scan; of two one head, --head L5H11; attn scan"
                " compare A B compares two"
            ),
            count=count,
        )
    for name, value in about_one_scan.items():
        if value:
            raise UsageError("{option} is about one scan", expected="one scan", option=name)


def _refuse_without_head(*, deciles: bool, alike: bool, shade: bool) -> None:
    """Raise UsageError for the first of these options that was given: each needs `--head`, and is
    checked here where `--head` is missing."""
    if deciles:
        raise UsageError(
            "--deciles shows the texts of one head", expected="--head", hint="--head L0H0 --deciles"
        )
    if alike:
        raise UsageError("--alike is about one head", expected="--head", hint="--head L0H0 --alike")
    if shade:
        raise UsageError("--shade is about one head", expected="--head", hint="--head L0H0 --shade")


def _comparison_of(folders: Sequence[Path]) -> ScanCompareDocument | None:
    """The comparison of the two scans in these folders; None where there is one folder."""
    if len(folders) == 1:
        return None
    from attncli.scan.report import scan_compare_document

    return scan_compare_document(*folders)


def _read_scan(folder: Path) -> Scan:
    """The (plan, document) of the scan in a folder; of an unfinished scan the document is computed
    from the shards that are done."""
    from attncli.scan.open_scan import open_scan

    scan = open_scan(folder)
    return scan.plan, scan.document


def _check_shown(
    scan_plan: ScanPlan, metric: str | None, head: str | None, head_place: tuple[int, int] | None
) -> None:
    """Raise UsageError for a metric or a head that a scan does not have.

    head: as it was written.
    head_place: the same as (layer, head); None where no head is named.
    """
    from attncli.measure.layer_metrics import MASSIVE
    from attncli.scan.plan import EFFECT

    # MASSIVE is a metric of layers, which no head has
    metric_names = [name for name in scan_plan.metrics if name != MASSIVE]
    if scan_plan.measures.effects:
        metric_names.append(EFFECT)
    if metric is not None and metric not in metric_names:
        raise UsageError(
            "this scan has no metric {metric}", expected=listing(metric_names), metric=repr(metric)
        )
    if head_place is not None and head_place not in scan_plan.heads:
        last_layer = scan_plan.model.layers - 1
        last_head = scan_plan.model.heads[last_layer] - 1  # `heads`: how many each layer has
        expected = message(
            "{first} to {last}", first=head_name(0, 0), last=head_name(last_layer, last_head)
        )
        raise UsageError("there is no head {head}", expected=expected, head=head)


def compare(ctx: typer.Context, output: CompareOutput, a: Folder, b: Folder) -> None:
    """How two scans differ: two corpora, or two models of as many heads.

    attn scan compare before after
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.scan.report import scan_compare_document

    document = scan_compare_document(a, b)
    write_documents([document], output, environment, view)


def verify(
    ctx: typer.Context,
    output: VerifyOutput,
    out: Folder,
    texts: Annotated[
        list[str] | None, argument("Where its corpus is now, if it was moved.", "CORPUS...")
    ] = None,
    model: Annotated[
        str | None,
        redeclare(declarations.CHECKPOINT, help="Where its model is now, if it was moved."),
    ] = None,
    shards: Annotated[int, running_number(help="How many shards to compute again.")] = 3,
    metric_file: Annotated[
        list[Path] | None, redeclare(declarations.METRIC_FILE, panel=RUNNING)
    ] = None,
    rule_file: Annotated[
        list[Path] | None, redeclare(declarations.RULE_FILE, panel=RUNNING)
    ] = None,
) -> None:
    """Compute some shards again and compare them with their files.

    attn scan verify scan --shards 3
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.cli.model_option import load_checkpoint
    from attncli.scan.engines import verify_document
    from attncli.scan.plan import check_scanned_model, locate_files, read_plan
    from attncli.scan.worker import Worker
    from attncli.scan.worker_process import on_one_thread

    scan_plan = read_plan(out)
    if texts:
        scan_plan = locate_files(scan_plan, texts, out)
    scan_plan = _with_named_files(scan_plan, metric_file or (), rule_file or ())
    on_one_thread()  # as workers compute: with more threads, sums have other last digits
    compute = ComputeOptions(backend="torch", device=scan_plan.device, dtype=scan_plan.dtype)
    name = model or scan_plan.model.name
    loaded_model = load_checkpoint(environment, name, compute, adapters=scan_plan.model.adapters)
    check_scanned_model(scan_plan, loaded_model, name)
    document = verify_document(scan_plan, out, Worker(scan_plan, out, loaded_model), shards)
    write_documents([document], output, environment, view)
    if not document.passed:
        raise typer.Exit(ExitCode.FAILURE)


def _with_named_files(
    scan_plan: ScanPlan, metric_paths: Sequence[Path], rule_paths: Sequence[Path]
) -> ScanPlan:
    """The plan with its files of metrics and of rules, which are Python code, at the paths that the
    user gave: code is run from those alone, never from a path that a scan's folder names.

    Raises UsageError where a file that the scan used is not among them; files are told apart by
    their sha256.
    """
    from attncli.features.rules.rule_file import load_rules
    from attncli.measure.metric_file import load_metric_file
    from attncli.scan.plan import plan_rule_files, with_files_at

    paths_by_digest = {file.sha256: file.path for file in map(load_metric_file, metric_paths)}
    given_paths = []  # of metrics, then of rules, in the plan's order
    for file in scan_plan.measures.metric_files:
        if file.sha256 not in paths_by_digest:
            what = message("this scan measured with a file of metrics, and verifying runs its code")
            expected = message(
                "--metric-file FILE, the file with sha256 {digest}", digest=file.sha256
            )
            raise UsageError(what, expected=expected)
        given_paths.append(paths_by_digest[file.sha256])

    paths_by_digest = {file.sha256: file.path for file in plan_rule_files(load_rules(rule_paths))}
    for rule_file in scan_plan.measures.rule_files:
        if rule_file.sha256 not in paths_by_digest:
            raise UsageError(
                "this scan compared heads with a file of rules, and verifying runs its code",
                expected="--rule-file FILE, the file with sha256 {digest}",
                digest=rule_file.sha256,
            )
        given_paths.append(paths_by_digest[rule_file.sha256])

    # a plan's places are those of the corpus first, then of metrics, then of rules
    corpus_paths = scan_plan.places[: len(scan_plan.files)]
    return with_files_at(scan_plan, [*corpus_paths, *given_paths])


ExportOutput = Annotated[OutputOptions, only("color", "ascii", "lang", "quiet", "debug")]


def export(
    ctx: typer.Context,
    output: ExportOutput,
    out: Folder,
    file: Annotated[Path, argument("A file ending in .parquet, .csv or .jsonl.", "FILE")],
    table: Annotated[
        str,
        subject_option(
            help="heads: a line for each head and metric; rows, of --rows; links, of --find.",
            values=("heads", "rows", "links"),
        ),
    ] = "heads",
) -> None:
    """A scan's numbers as one table in a file for other programs.

    attn scan export scan heads.csv
    """
    environment: Environment = ctx.obj
    validate_options(output, environment, files={"FILE": file})
    from attncli.scan.export_tables import export_table
    from attncli.scan.open_scan import open_scan

    count = export_table(open_scan(out), file, cast("Table", table))
    environment.note(
        plural("{count:,} line in {file}", "{count:,} lines in {file}", count=count, file=str(file))
    )


class ScanGroup(CommandGroup):
    """The command group `attn scan`: a first word that is no subcommand begins a scan, `attn scan
    MODEL CORPUS`; a model's folder called "show" is written `./show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as those of the command that starts a scan where the first names no
        subcommand.
        """
        if not args or args[0] not in self.commands:
            args = [START, *args]
        return list(super().parse_args(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """(name, command, remaining arguments); the command that starts a scan has the name "", for
        nobody types it.
        """
        name, command, remaining = super().resolve_command(ctx, args)
        return "" if name == START else name, command, remaining


scan_app = command_app(
    start,
    show,
    compare,
    verify,
    export,
    essentials={
        "start": "--output --metric --format --sample --dedupe --find --effect --workers --part --json",
        "show": "--head --metric --top --show --brief --json --html --site",
        "compare": "--top --full --brief --json",
        "export": "--table",
    },
)  # fmt: skip
scan_app.info.cls = ScanGroup


# `attn scan show --html`: the page of scans, their sentences shaded by each scan's own model.


def _write_page(environment: Environment, scans: Sequence[Scan], file: Path, lang: str) -> None:
    """Write one HTML page about these scans to `file`. Where a scan's model cannot be loaded, its
    texts are not shaded by weights, and the page says so."""
    from attncli.scan.corpus_page import density_of, scan_page

    density = density_of([document for _, document in scans])
    page_scans = [_page_scan(environment, scan, density) for scan in scans]
    with atomic_writer(file) as stream:
        stream.write(scan_page(page_scans, lang=lang, density=density))


def _write_site(environment: Environment, scans: Sequence[Scan], site: Path, lang: str) -> None:
    """Write a folder for a web server to `site`: an index, and of each scan a page and its JSON."""
    from attncli.scan.site import write_site

    # documents cannot be keys of a dictionary, so that they are looked up by identity
    plans = {id(document): plan for plan, document in scans}

    def page_scan(document: ScanDocument, density: int) -> PageScan:
        """What the page of one of the documents needs, with so many examples as `density` says."""
        return _page_scan(environment, (plans[id(document)], document), density)

    files = write_site([document for _, document in scans], site, page_scan, lang=lang)
    environment.note(message("{count} files in {site}", count=len(files), site=str(site)))


def _scanned_model(environment: Environment, plan: ScanPlan) -> Model:
    """The model that a scan was made with, loaded by the plan's name for it. Raises InputError
    where that name now stands for other weights."""
    from attncli.cli.model_option import load_checkpoint
    from attncli.scan.plan import check_model, model_digest

    loaded_model = load_checkpoint(
        environment, plan.model.name, ComputeOptions(), adapters=plan.model.adapters
    )
    check_model(loaded_model)
    if model_digest(loaded_model) != plan.model.digest:
        raise InputError("the model of this name is another one now", where=plan.model.name)
    return loaded_model


def _shade_metric_texts(
    environment: Environment, scan: Scan, place: tuple[int, int], metric: str | None
) -> Shading:
    """The attention weights of one head in the texts that its screen shows for a metric, as
    `shading` gives them; runs the model.

    place: the head as (layer, head).
    metric: None for the scan's first metric.
    """
    from attncli.scan.sampled_texts import shading, texts_of_metric

    plan, document = scan
    texts = texts_of_metric(document, place, metric)
    with progress(environment, message("{texts} texts", texts=len(texts))) as on_progress:
        return shading(
            plan, _scanned_model(environment, plan), {place: texts}, progress=on_progress
        )


def _heads_most_like(environment: Environment, scan: Scan, place: tuple[int, int]) -> AlikeHeads:
    """The heads most like the one at `place` (layer, head), over the texts sampled for it; runs the
    model.
    """
    from attncli.scan.sampled_texts import alike_heads, sampled_texts

    plan, document = scan
    model = _scanned_model(environment, plan)
    texts = []  # of a scan of which nothing is done, which has no heads
    for head in document.heads:
        if (head.layer, head.head) == place:
            texts = sampled_texts(document, head)
    with progress(environment, message("{texts} texts", texts=len(texts))) as on_progress:
        return alike_heads(plan, model, [place], texts, progress=on_progress)[place]


PAGE_TEXTS = 16
"""Texts over which all heads of a page are compared with each other."""


def _page_scan(environment: Environment, scan: Scan, density: int) -> PageScan:
    """What a page needs of a scan: its document, its examples' attention weights, and the heads
    most like each head; the document alone where the model cannot be loaded. density: how many
    examples per head, an index of `DENSITIES`."""
    from attncli.scan.corpus_page import PageScan
    from attncli.scan.sampled_texts import alike_heads, sampled_texts

    plan, document = scan
    try:
        model = _scanned_model(environment, plan)
        tokens, looks = _shade_examples(environment, scan, density, model)
        alike: Mapping[tuple[int, int], AlikeHeads] = {}
        if document.heads:
            # all heads are compared over the same texts, those sampled for the first
            texts = sampled_texts(document, document.heads[0])[:PAGE_TEXTS]
            alike = alike_heads(plan, model, plan.heads, texts)
        return PageScan(document, tokens, looks, alike)
    except AttnError as error:
        environment.note(message("the page's sentences are not shaded: {what}", what=error.what))
        return PageScan(document, tokens={}, looks={})


def _shade_examples(environment: Environment, scan: Scan, density: int, model: Model) -> Shading:
    """Each head's attention weights in the examples that a page shows of it, as `shading` gives
    them; runs the model.

    density: how many examples per head, an index of `DENSITIES`."""
    from attncli.scan.corpus_page import DENSITIES, examples_of
    from attncli.scan.sampled_texts import shading

    plan, document = scan
    texts = {}
    for head in document.heads:
        examples = examples_of(document, head, DENSITIES[density])
        head_texts = {(example.file, example.line): example.text for example in examples}
        texts[head.layer, head.head] = head_texts
    with progress(environment, message("{examples} heads", examples=len(texts))) as on_progress:
        return shading(plan, model, texts, progress=on_progress)
