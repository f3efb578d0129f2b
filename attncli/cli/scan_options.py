"""The options of `attn scan`: which texts, what is measured, and how shards are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from attncli.cli import declarations
from attncli.cli.options import number, option, redeclare
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.cli.output import Environment
    from attncli.scan.engines.engine import Engine

CORPUS, MEASURE, RUNNING = "Corpus", "What is measured", "Running"


@dataclass(frozen=True)
class CorpusOptions:
    """Which texts are scanned."""

    format: Annotated[
        str | None,
        option(
            "--format", help="lines, jsonl:FIELD or parquet:COLUMN. [default: by name]", panel=CORPUS, metavar="KIND"
        ),
    ] = None
    sample: Annotated[
        int, number("--sample", help="Only so many texts, drawn by a hash of each; 0 for all.", panel=CORPUS, least=0)
    ] = 0
    seed: Annotated[int, redeclare(declarations.SEED_NUMBER, panel=CORPUS)] = 0
    dedupe: Annotated[bool, option("--dedupe", help="Count texts that occur again once.", panel=CORPUS)] = False
    cluster: Annotated[
        str,
        option(
            "--cluster", help="Field that tells what belongs together, for intervals.", panel=CORPUS, metavar="FIELD"
        ),
    ] = ""
    max_tokens: Annotated[
        int, number("--max-tokens", help="Longest text; 0 for the model's own limit.", panel=CORPUS, least=0)
    ] = 0
    over: Annotated[
        str, option("--over", help="What becomes of longer texts.", panel=CORPUS, values=("skip", "truncate"))
    ] = "skip"
    skip_unknown: Annotated[
        bool, option("--skip-unknown", help="Leave out texts with words that the model does not know.", panel=CORPUS)
    ] = False


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured of the heads."""

    metric: Annotated[list[str] | None, redeclare(declarations.METRIC, panel=MEASURE)] = None
    labels: Annotated[bool, option("--labels/--no-labels", help="Label the heads, with intervals.", panel=MEASURE)] = (
        True
    )
    words: Annotated[bool, redeclare(declarations.WORDS, panel=MEASURE)] = False
    rows: Annotated[bool, option("--rows", help="Also a table of every text and head, as Parquet.", panel=MEASURE)] = (
        False
    )
    find: Annotated[
        list[str] | None,
        option(
            "--find", help='Links to keep: "from=it to=animal weight>=0.3 head=L5H11".', panel=MEASURE, metavar="WHICH"
        ),
    ] = None
    effects: Annotated[
        str | None,
        option(
            "--effects",
            help="Also what taking heads away changes; needs --head.",
            panel=MEASURE,
            values=("zero", "mean"),
        ),
    ] = None
    head: Annotated[
        list[str] | None,
        redeclare(declarations.HEAD, help="Heads for --effects: L5H11,L3H1.", metavar="HEAD", panel=MEASURE),
    ] = None
    top: Annotated[
        int,
        redeclare(
            declarations.TOP, help="Strongest texts kept of each head and metric.", panel=MEASURE, least=0, most=1000
        ),
    ] = 20


@dataclass(frozen=True)
class RunningOptions:
    """How shards are computed."""

    workers: Annotated[
        int,
        number(
            "--workers", help="Processes, at most one per processor; 0 for as many.", panel=RUNNING, least=0, most=1024
        ),
    ] = 0
    part: Annotated[
        str | None,
        option("--part", help="One of several parts that run side by side: 2/8.", panel=RUNNING, metavar="I/N"),
    ] = None
    engine: Annotated[
        str, option("--engine", help="here, ray, ray:ADDRESS or ray:local.", panel=RUNNING, metavar="NAME")
    ] = "here"
    device: Annotated[str | None, redeclare(declarations.DEVICE, help="cpu or cuda.", metavar="NAME", common=True)] = (
        None
    )
    dtype: Annotated[
        str, redeclare(declarations.DTYPE, help="float32, float64, bfloat16 or float16.", metavar="NAME")
    ] = "float32"


def engine_of(options: RunningOptions, environment: Environment) -> Engine:
    """Where shards are computed, as the options say. Raises UsageError for an engine that there is not."""
    name, _, address = options.engine.partition(":")
    if name == "ray":
        from attncli.scan.engines.ray_cluster import RayCluster

        return RayCluster(address or "auto", options.workers, environment.note)
    if options.engine != "here":
        raise UsageError(f"there is no engine {options.engine!r}", expected="here, ray, ray:ADDRESS or ray:local")
    import sys
    from os import cpu_count, sched_getaffinity

    from attncli.scan.engines.here import LocalWorkers

    usable = len(sched_getaffinity(0)) if sys.platform == "linux" else cpu_count() or 1
    if options.workers > usable:
        environment.note(
            f"{options.workers:,} workers are no faster than {usable:,}, one for each processor: {usable:,} are started"
        )
    return LocalWorkers(min(options.workers or usable, usable))
