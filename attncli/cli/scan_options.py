"""The options of `attn scan`: which texts, what is measured, and how shards are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from attncli.cli.option import LARGEST_SEED
from attncli.cli.options import COMPUTE, number, option

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
        int,
        number("--sample", help="Only so many texts, drawn by a hash of each; 0 for all.", panel=CORPUS, least=0),
    ] = 0
    seed: Annotated[
        int,
        number("--seed", help="Seed of draws and intervals.", panel=CORPUS, least=0, most=LARGEST_SEED, metavar="S"),
    ] = 0
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


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured of the heads."""

    metric: Annotated[
        list[str] | None, option("--metric", help="Metrics, apart by commas, or 'all'.", panel=MEASURE, metavar="NAME")
    ] = None
    labels: Annotated[bool, option("--labels/--no-labels", help="Label the heads, with intervals.", panel=MEASURE)] = (
        True
    )
    words: Annotated[bool, option("--words", help="Merge pieces to words.", panel=MEASURE)] = False
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
        list[str] | None, option("--head", help="Heads for --effects: L5H11,L3H1.", panel=MEASURE, metavar="HEAD")
    ] = None
    top: Annotated[
        int, number("--top", help="Strongest texts kept of each head and metric.", panel=MEASURE, least=0, most=1000)
    ] = 20


@dataclass(frozen=True)
class RunningOptions:
    """How shards are computed."""

    workers: Annotated[
        int, number("--workers", help="Processes; 0 for one per processor.", panel=RUNNING, least=0, most=1024)
    ] = 0
    part: Annotated[
        str | None,
        option("--part", help="One of several parts that run side by side: 2/8.", panel=RUNNING, metavar="I/N"),
    ] = None
    engine: Annotated[
        str, option("--engine", help="here, ray, ray:ADDRESS or ray:local.", panel=RUNNING, metavar="NAME")
    ] = "here"
    device: Annotated[str | None, option("--device", help="cpu or cuda.", panel=COMPUTE, metavar="NAME")] = None
    dtype: Annotated[str, option("--dtype", help="float32 or bfloat16.", panel=COMPUTE, metavar="NAME")] = "float32"
