"""Making a plan: the model's digest, the corpus as it is, and which of its texts count."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from attncli import __version__
from attncli.arrays.backend import EVERY
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.inputs.digests import digest
from attncli.measure.head_measure import metric_of
from attncli.measure.labels import NEEDED
from attncli.measure.repeats import repeat_scores
from attncli.mechanism.mask import AllOf, AnyOf, Everywhere, Hashed, Mask, MatrixMask, SameBucket
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.model import Model
from attncli.scan import conditions, duplicates, intake, plan
from attncli.scan.corpus import Format, Record, find
from attncli.scan.fixed_point import WIDTH, scale_of
from attncli.scan.intake import File, Range, ShardSize
from attncli.scan.plan import (
    COPIES,
    LARGE,
    LARGE_SHARD,
    SCHEMA,
    SHARD,
    Choice,
    MeasurePlan,
    ModelPlan,
    ScanPlan,
)


@dataclass(frozen=True)
class ScanRequest:
    """What a scan is asked for; see the options of `attn scan`. metrics: names; format: None for what names tell."""

    corpus: tuple[str, ...]
    metrics: tuple[str, ...]
    format: Format | None = None
    labels: bool = True
    words: bool = False
    rows: bool = False
    find: tuple[str, ...] = ()
    top: int = 20
    effects: tuple[str, ...] = ()
    sample: int = 0
    seed: int = 0
    dedupe: bool = False
    max_tokens: int = 0
    over: str = "skip"
    skip_unknown: bool = False
    cluster: str = ""
    shard: int = 0


def make(
    request: ScanRequest,
    model: Model,
    name: str,
    folder: Path,
    *,
    stdin: BinaryIO,
    note: Callable[[str], None] | None = None,
) -> ScanPlan:
    """The plan of a scan of `wanted.corpus` with a model called `name`. folder: the scan's; copies go there.

    note: told what is decided on the way, such as that repeated texts are not looked for.
    Raises InputError for a corpus that is not there or empty, UnsupportedError for a model that cannot be scanned.
    """
    check(model)
    with _withdraw_on_failure(folder) as files:
        return _make_plan(request, model, name, folder, stdin, note, files)


def _make_plan(
    request: ScanRequest,
    model: Model,
    name: str,
    folder: Path,
    stdin: BinaryIO,
    note: Callable[[str], None] | None,
    files: list[File],
) -> ScanPlan:
    """The plan; see `make`. files: takes the files of the corpus as they are taken in."""
    metrics = tuple(dict.fromkeys((*request.metrics, *(NEEDED if request.labels else ()))))
    for metric in metrics:
        metric_of(metric)
    for pattern in request.find:
        _check_heads(conditions.parse(pattern).heads, model)
    for pattern in request.effects[1:]:
        _check_heads(conditions.parse_heads(pattern), model)
    names = find(request.corpus, out=folder, note=note or (lambda message: None))
    size = ShardSize(request.shard, request.shard, 0) if request.shard else ShardSize(SHARD, LARGE_SHARD, LARGE)

    def taken_in() -> list[tuple[Range, ...]]:
        _, shards = intake.take_in(
            names, request.format, folder / COPIES, size=size, stdin=stdin, cluster=request.cluster, files=files
        )
        return shards

    shards = taken_in()
    order = _order_there(files, folder)
    if order != sorted(order) and "-" not in names:
        names = [names[at] for at in order]
        files.clear()
        shards = taken_in()
    if request.cluster and all(file.format.kind == "lines" for file in files):
        raise UsageError(
            f"--cluster {request.cluster!r} names a field, and lines of text have none",
            expected="a corpus of .jsonl or .parquet",
        )
    if not shards:
        raise InputError("the corpus holds no texts", where=names[0], expected="a line of text at least")
    from attncli.arrays.torch_backend import capability

    isa, _, version = capability().partition(" · torch ")
    scan_plan = ScanPlan(
        schema=SCHEMA,
        version=__version__,
        model=_model(model, name),
        measures=MeasurePlan(
            tuple((metric, metric_version(metric)) for metric in metrics),
            request.labels,
            request.words,
            request.rows,
            request.find,
            request.top,
            request.effects,
        ),
        choice=Choice(
            max_tokens=request.max_tokens, over=request.over, cluster=request.cluster, skip_unknown=request.skip_unknown
        ),
        files=tuple(files),
        shards=tuple(shards),
        seed=request.seed,
        dtype=model.backend.dtype,
        device=model.backend.device,
        isa=f"{platform.machine()} · {isa}",
        torch=version,
    )
    if request.cluster and not any(record.cluster for record in records(scan_plan, folder)):
        raise InputError(
            f"no record has a field {request.cluster!r}", where=names[0], expected="--cluster FIELD of the records"
        )
    scan_plan = replace(scan_plan, choice=_choice(request, scan_plan, folder, note))
    if not request.labels:
        return scan_plan
    scores = repeat_scores(model, EVERY, seed=request.seed)
    repeats = [
        (layer, head, score["repeats_duplicate"], score["repeats_induction"])
        for (layer, head), score in sorted(scores.items())
    ]
    return replace(scan_plan, repeats=tuple(repeats))


@contextmanager
def _withdraw_on_failure(folder: Path) -> Iterator[list[File]]:
    """A list of files taken in, whose copies, with the folders made for them, go again if the block fails."""
    corpus = folder / COPIES
    new = [path for path in (corpus, folder, *folder.parents) if not path.exists()]
    files: list[File] = []
    try:
        yield files
    except BaseException:
        plan.withdraw(files, folder)
        for path in new:
            with suppress(OSError):  # something else is in it
                path.rmdir()
        raise


def _order_there(files: Sequence[File], folder: Path) -> list[int]:
    """The files in the order in which the folder's plan has the same bytes, as numbers; in their own where it has no
    plan, or one of another corpus. Files of a folder that were renamed go by in another order."""
    own = list(range(len(files)))
    try:
        there = plan.read(folder).files
    except AttnError:
        return own
    left: dict[tuple[str, int], list[int]] = {}
    for at in reversed(own):
        left.setdefault((files[at].sha256, files[at].size), []).append(at)
    order = [places.pop() for file in there if (places := left.get((file.sha256, file.size)))]
    return order if len(order) == len(there) == len(files) else own


def locate_files(scan_plan: ScanPlan, names: Sequence[str], folder: Path) -> ScanPlan:
    """A plan whose files are where they are now: those of `names` with the same bytes.

    folder: the scan's. Copies stay where they are, in it. Raises InputError for a file that none of the names has.
    """
    names_by_digest = {(intake.digest_of(name), Path(name).stat().st_size): name for name in find(names, out=folder)}
    paths = []
    for file in scan_plan.files:
        now = file.path if file.copied else names_by_digest.get((file.sha256, file.size))
        if now is None:
            raise InputError(
                "no file that is named holds this part of the scan's corpus",
                where=file.name,
                expected=f"a file with sha256 {file.sha256}",
            )
        paths.append(now if file.copied else str(Path(now).absolute()))
    return plan.moved_to(scan_plan, paths)


def records(scan_plan: ScanPlan, folder: Path) -> Iterator[Record]:
    """All records of the corpus."""
    for shard in scan_plan.shards:
        yield from intake.records(scan_plan.files, shard, folder / COPIES, scan_plan.choice.cluster)


def _choice(request: ScanRequest, scan_plan: ScanPlan, folder: Path, note: Callable[[str], None] | None) -> Choice:
    left_out: set[tuple[int, int]] = set()
    choice = scan_plan.choice
    if request.dedupe:
        if scan_plan.texts > duplicates.MOST:
            if note is not None:
                note(f"repeated texts are not looked for: the corpus has more than {duplicates.MOST:,} records")
        else:
            repeats = duplicates.find_repeated(records(scan_plan, folder))
            left_out = set(repeats)
            choice = replace(choice, duplicates=duplicates.write_duplicates(folder, repeats))
    if request.sample:
        threshold = duplicates.sample_threshold(records(scan_plan, folder), request.sample, request.seed, left_out)
        choice = replace(choice, sample=request.sample, threshold=threshold)
    return choice


def metric_version(name: str) -> str:
    """A short digest of a metric's formula, rows, range and bins: another formula is another version."""
    metric = metric_of(name)
    scale = scale_of(metric)
    binned = (scale.kind, scale.count, scale.least, WIDTH)
    said = (metric.formula, metric.rows, metric.low, metric.high, metric.needs, binned)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]


def check(model: Model) -> None:
    """Raise UnsupportedError for a model that a scan cannot carry."""
    if not isinstance(model.store, CheckpointStore):
        raise UnsupportedError("this model cannot be scanned", expected="a checkpoint of a native family")
    for block in model.spec.blocks:
        if block.attention.hashing is not None or _depends_on_text(block.attention.mask):
            raise UnsupportedError(
                "a mask that depends on the text itself cannot be scanned", expected="masks known by position"
            )


def _depends_on_text(mask: Mask) -> bool:
    match mask:
        case AllOf(parts) | AnyOf(parts):
            return any(_depends_on_text(part) for part in parts)
        case _:
            return isinstance(mask, MatrixMask | Hashed | SameBucket) and not isinstance(mask, Everywhere)


def _check_heads(heads: Sequence[tuple[int, int]], model: Model) -> None:
    for layer, head in heads:
        if layer >= len(model.spec.blocks) or head >= model.spec.blocks[layer].attention.heads:
            first = model.spec.blocks[0].attention.heads
            raise UsageError(
                f"there is no head L{layer}H{head}",
                expected=f"{len(model.spec.blocks)} layers of {first} heads, from L0H0",
            )


def digest_of(model: Model) -> str:
    """sha256 over the digests of the model's config and weights."""
    assert isinstance(model.store, CheckpointStore)
    checkpoint = model.store.checkpoint
    total = hashlib.sha256(digest(checkpoint.folder / "config.json").encode())
    for path in sorted({info.file for info in checkpoint.names().values()}):
        total.update(digest(path).encode())
    return total.hexdigest()


def _model(model: Model, name: str) -> ModelPlan:
    assert isinstance(model.store, CheckpointStore)
    tokenizer = model.store.checkpoint.tokenizer_path
    heads = tuple(block.attention.heads for block in model.spec.blocks)
    return ModelPlan(
        name, digest_of(model), "" if tokenizer is None else digest(tokenizer), len(model.spec.blocks), heads
    )
