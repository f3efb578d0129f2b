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
from attncli.analysis.labels import NEEDED
from attncli.analysis.measure import metric_of
from attncli.analysis.repeat_scores import repeat_scores
from attncli.arrays.selection import EVERY
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.inputs.digests import digest
from attncli.mechanism.mask import AllOf, AnyOf, Everywhere, Given, Hashed, Mask, SameBucket
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.model import Model
from attncli.scan import conditions, duplicates, intake, plan
from attncli.scan.corpus import Format, Record, find
from attncli.scan.fixed_point import WIDTH, scale_of
from attncli.scan.intake import File
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
from attncli.scan.ranges import Range, ShardSize


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
    with _withdrawn(folder) as files:
        return _made(request, model, name, folder, stdin, note, files)


def _made(
    wanted: ScanRequest,
    model: Model,
    name: str,
    folder: Path,
    stdin: BinaryIO,
    note: Callable[[str], None] | None,
    files: list[File],
) -> ScanPlan:
    """The plan; see `make`. files: takes the files of the corpus as they are taken in."""
    metrics = tuple(dict.fromkeys((*wanted.metrics, *(NEEDED if wanted.labels else ()))))
    for one in metrics:
        metric_of(one)
    for written in wanted.find:
        _check_heads(conditions.parse(written).heads, model)
    for written in wanted.effects[1:]:
        _check_heads(conditions.parse_heads(written), model)
    names = find(wanted.corpus, out=folder, note=note or (lambda message: None))
    size = ShardSize(wanted.shard, wanted.shard, 0) if wanted.shard else ShardSize(SHARD, LARGE_SHARD, LARGE)

    def taken_in() -> list[tuple[Range, ...]]:
        _, shards = intake.take_in(
            names, wanted.format, folder / COPIES, size=size, stdin=stdin, cluster=wanted.cluster, files=files
        )
        return shards

    shards = taken_in()
    order = _order_there(files, folder)
    if order != sorted(order) and "-" not in names:
        names = [names[at] for at in order]
        files.clear()
        shards = taken_in()
    if wanted.cluster and all(file.format.kind == "lines" for file in files):
        raise UsageError(
            f"--cluster {wanted.cluster!r} names a field, and lines of text have none",
            expected="a corpus of .jsonl or .parquet",
        )
    if not shards:
        raise InputError("the corpus holds no texts", where=names[0], expected="a line of text at least")
    from attncli.arrays.torch_backend import capability

    isa, _, version = capability().partition(" · torch ")
    made = ScanPlan(
        schema=SCHEMA,
        version=__version__,
        model=_model(model, name),
        measures=MeasurePlan(
            tuple((one, metric_version(one)) for one in metrics),
            wanted.labels,
            wanted.words,
            wanted.rows,
            wanted.find,
            wanted.top,
            wanted.effects,
        ),
        choice=Choice(
            max_tokens=wanted.max_tokens, over=wanted.over, cluster=wanted.cluster, skip_unknown=wanted.skip_unknown
        ),
        files=tuple(files),
        shards=tuple(shards),
        seed=wanted.seed,
        dtype=model.backend.dtype,
        device=model.backend.device,
        isa=f"{platform.machine()} · {isa}",
        torch=version,
    )
    if wanted.cluster and not any(record.cluster for record in records(made, folder)):
        raise InputError(
            f"no record has a field {wanted.cluster!r}", where=names[0], expected="--cluster FIELD of the records"
        )
    made = replace(made, choice=_choice(wanted, made, folder, note))
    if not wanted.labels:
        return made
    scores = repeat_scores(model, EVERY, seed=wanted.seed)
    repeats = [
        (layer, head, score["repeats_duplicate"], score["repeats_induction"])
        for (layer, head), score in sorted(scores.items())
    ]
    return replace(made, repeats=tuple(repeats))


@contextmanager
def _withdrawn(folder: Path) -> Iterator[list[File]]:
    """A list of files taken in, whose copies, with the folders made for them, go again if the block fails."""
    corpus = folder / COPIES
    new = [one for one in (corpus, folder, *folder.parents) if not one.exists()]
    files: list[File] = []
    try:
        yield files
    except BaseException:
        plan.withdraw(files, folder)
        for one in new:
            with suppress(OSError):  # something else is in it
                one.rmdir()
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


def found_again(made: ScanPlan, names: Sequence[str], folder: Path) -> ScanPlan:
    """A plan whose files are where they are now: those of `names` with the same bytes.

    folder: the scan's. Copies stay where they are, in it. Raises InputError for a file that none of the names has.
    """
    found = {(intake.digest_of(name), Path(name).stat().st_size): name for name in find(names, out=folder)}
    paths = []
    for file in made.files:
        now = file.path if file.copied else found.get((file.sha256, file.size))
        if now is None:
            raise InputError(
                "no file that is named holds this part of the scan's corpus",
                where=file.name,
                expected=f"a file with sha256 {file.sha256}",
            )
        paths.append(now if file.copied else str(Path(now).absolute()))
    return plan.moved_to(made, paths)


def records(made: ScanPlan, folder: Path) -> Iterator[Record]:
    """All records of the corpus."""
    for shard in made.shards:
        yield from intake.records(made.files, shard, folder / COPIES, made.choice.cluster)


def _choice(request: ScanRequest, made: ScanPlan, folder: Path, note: Callable[[str], None] | None) -> Choice:
    left_out: set[tuple[int, int]] = set()
    choice = made.choice
    if request.dedupe:
        if made.texts > duplicates.MOST:
            if note is not None:
                note(f"repeated texts are not looked for: the corpus has more than {duplicates.MOST:,} records")
        else:
            repeats = duplicates.find_repeated(records(made, folder))
            left_out = set(repeats)
            choice = replace(choice, duplicates=duplicates.write_duplicates(folder, repeats))
    if request.sample:
        threshold = duplicates.sample_threshold(records(made, folder), request.sample, request.seed, left_out)
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
            return isinstance(mask, Given | Hashed | SameBucket) and not isinstance(mask, Everywhere)


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
