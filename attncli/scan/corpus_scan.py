"""What every head does over a corpus: from a model and files of texts to the document of the scan."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from attncli.errors import AttnError, InputError
from attncli.inputs.files import is_there
from attncli.inputs.token import ignore
from attncli.language import Message, listing, message
from attncli.measure.layer_metrics import KIND_METRICS, TEXT_METRICS
from attncli.measure.metric import DEFAULT, Metric
from attncli.measure.metric_file import path_of_metric
from attncli.mechanism.checked_arguments import checked
from attncli.models.load import load
from attncli.models.model import Model
from attncli.scan import plan as plans
from attncli.scan import report
from attncli.scan.document import SKIP_NOTES, ScanDocument
from attncli.scan.engines import WHOLE, Engine, LocalWorkers, ScanPart, remaining_shards, run
from attncli.scan.plan import ScanPlan, ScanRequest
from attncli.scan.shard_files import ShardOutcome
from attncli.scan.totals import total
from attncli.scan.worker import UNKNOWN

USUAL = (*DEFAULT, "special", "normalised_entropy", *KIND_METRICS)
"""The metrics of a scan that names none."""


@checked
def scan_corpus(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    metrics: Sequence[str | Metric] = USUAL,
    sample: int = 0,
    seed: int = 0,
    rules: bool = False,
    rule_files: Sequence[str | Path] = (),
    request: ScanRequest | None = None,
    loaded_model: Model | None = None,
    engine: Engine | None = None,
    part: ScanPart = WHOLE,
    stdin: BinaryIO | None = None,
    is_partial: bool = False,
    note: Callable[[str], None] = ignore,
    on_plan: Callable[[ScanPlan, Sequence[int]], None] = ignore,
    progress: Callable[[int], None] = ignore,
    on_work: Callable[[float], None] = ignore,
    on_shard: Callable[[ShardOutcome], None] = ignore,
    on_document: Callable[[ScanDocument], None] = ignore,
) -> ScanDocument | None:
    """Scan a corpus and return its document: of every head means with intervals, labels, strongest
    examples and links; None while other parts of the scan are unfinished.

    What is done stays in the folder; the same call again goes on where it ended. Worker processes
    start this program anew, so a script that scans does so below `if __name__ == "__main__":`.

    Args:
        model: A folder, hub id or alias; workers open it by this name.
        corpus: Files, folders or patterns: .txt, .jsonl, .parquet, also .gz and .zst.
        folder: The scan's folder.
        metrics: Names of metrics, "all" for every one; or metrics themselves, also of a file of
            yours, as `attncli.metrics.load_metrics` gives them, which each worker runs.
        sample: Only so many texts, drawn by a hash of each; 0 for all.
        seed: Of the sample.
        rules: Whether every head is also described by simple rules, as `attncli.rules` does; the
            document's `rules` holds them.
        rule_files: Python files of yours with rules, which each worker runs as your own code.
        request: All that a scan may be asked, in place of corpus, metrics, sample, seed, rules and
            rule_files.
        loaded_model: The model, where it is open already.
        engine: Where shards are computed; None for a process for each processor here.
        part: One of several parts that run side by side.
        stdin: What the corpus "-" reads.
        is_partial: Whether a part that ends before the others still gives what is there.
        note: Is told what is decided on the way.
        on_plan: Is handed the plan, and the shards to do, before they start.
        progress: Is told texts as they are done; 0 when the first begin.
        on_work: Is told the work done since its last call, in records of the corpus: long texts
            count for more of it than short ones.
        on_shard: Is told what became of each shard.
        on_document: Is handed the document, also where there is no room to write it.

    Returns:
        What `attn scan --json` writes; None where other parts still have shards to do. Its
        `done.failed` counts shards that were given up.

    Raises:
        UsageError: For a metric that there is none of, or that workers cannot have.
        InputError: For a corpus that is not there, empty, or without a text that could be counted.
        UnsupportedError: For a model that cannot be scanned.
        AttnError: Where shards were given up; the same call again tries only these.
    """
    place = Path(folder)
    # a scan that counts nothing removes the folders that it made
    new_folders = [path for path in (place, *place.parents) if not is_there(path)]
    if request is None:
        request = replace(
            _request_of(corpus, metrics, sample, seed),
            rules=rules,
            rule_files=tuple(map(str, rule_files)),
        )
    if loaded_model is None:
        loaded_model = load(model, backend="torch")
    if stdin is None:
        stdin = BytesIO()
    new_plan = plans.make_plan(request, loaded_model, model, place, stdin=stdin, note=note)
    # the plan that the folder has then: of a scan that goes on, the earlier one
    scan_plan = plans.write(new_plan, place)
    del loaded_model  # workers open the model themselves, and need the memory
    on_plan(scan_plan, remaining_shards(scan_plan, place, part))
    if engine is None:
        engine = LocalWorkers(usable_processors())
    outcome = run(
        scan_plan,
        place,
        model,
        engine,
        part=part,
        progress=progress,
        on_work=on_work,
        on_shard=on_shard,
    )
    for shard in outcome.recomputed_shards:
        note(message("shard {shard} could not be read and was computed again", shard=shard))
    if outcome.totals is None:
        note(
            message(
                "part {number} of {count} has ended; other parts still have shards to do",
                number=part.number,
                count=part.count,
            )
        )
    totals = outcome.totals
    if totals is None and is_partial:  # of the shards that are done so far, of any part
        totals = total(scan_plan, place)
    document = None
    if totals is not None:
        document = report.scan_document(totals, [*outcome.failed_shards, *outcome.elsewhere])
        # all shards are done and none has a text: nothing is left to go on with
        if not document.done.texts and outcome.totals is not None and not document.done.failed:
            plans.discard(scan_plan, place, new_folders)
            raise _nothing_counted(document.done.skipped, request)
        try:
            if outcome.totals is not None:  # what a part gives is not the scan's document yet
                report.write(document, place)
        finally:  # the numbers are there, whether or not there is room for them in the folder
            on_document(document)
    if outcome.failed_shards:
        first = outcome.failed_shards[0]
        raise AttnError(
            "{failed_shards} of the scan's shards failed; shard {shard}: {reason}",
            hint="the same command again tries only these",
            failed_shards=len(outcome.failed_shards),
            shard=first.shard,
            reason=first.reason,
        )
    return document


def _request_of(
    corpus: str | Path | Sequence[str | Path],
    metrics: Sequence[str | Metric],
    sample: int,
    seed: int,
) -> ScanRequest:
    """The request of a scan from the arguments of `scan_corpus`, with the files of metrics that
    were handed over as objects."""
    if isinstance(corpus, str | Path):
        files: Sequence[str | Path] = [corpus]
    else:
        files = corpus
    if "all" in metrics:
        names = tuple(TEXT_METRICS)
    else:
        names = tuple(metric.name if isinstance(metric, Metric) else metric for metric in metrics)
    # each file once, though several of its metrics may be asked for
    metric_files = dict.fromkeys(
        path_of_metric(metric) for metric in metrics if isinstance(metric, Metric)
    )
    return ScanRequest(
        tuple(map(str, files)),
        names,
        sample=sample,
        seed=seed,
        metric_files=tuple(path for path in metric_files if path),  # built-in metrics have none
    )


def _nothing_counted(skipped: Mapping[str, int], request: ScanRequest) -> InputError:
    """The InputError, returned and not raised, for a corpus of which every record was left out; it
    tells the reasons, and what to do about the most frequent one.

    skipped: how many records were left out, by reason, as `SKIP_NOTES` names them.
    """
    reason = max(skipped, key=skipped.__getitem__)  # the most frequent
    expected = message("texts, as --format says")
    if reason == "long":
        expected = message("shorter texts, or --over truncate")
    elif reason == UNKNOWN:
        expected = message("texts of words that the model knows, or no --skip-unknown")
    reasons = [
        Message(SKIP_NOTES[name].template, {"count": f"{count:,}"})
        for name, count in skipped.items()
        if count
    ]
    what = message("no record of the corpus could be counted: {reasons}", reasons=listing(reasons))
    # of several files the first stands for the corpus
    return InputError(what, where=request.corpus[0], expected=expected)


def usable_processors() -> int:
    """How many processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
