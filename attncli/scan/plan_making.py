"""Making a plan: the model's digest, the corpus as it is, and which of its texts count."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from attncli import __version__
from attncli.analysis.labels import NEEDED
from attncli.analysis.measure import known
from attncli.analysis.repeat_scores import repeat_scores
from attncli.arrays.selection import EVERY
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.inputs.digests import digest
from attncli.mechanism.mask import AllOf, AnyOf, Everywhere, Given, Hashed, Mask, SameBucket
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.model import Model
from attncli.scan import conditions, duplicates, intake
from attncli.scan.corpus import Format, Record, find
from attncli.scan.plan import COPIES, LARGE, LARGE_SHARD, SCHEMA, SHARD, Choice, Measures, ModelPlan, Plan, versions
from attncli.scan.ranges import ShardSize


@dataclass(frozen=True)
class Wanted:
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
    cluster: str = ""
    shard: int = 0


def make(
    wanted: Wanted, model: Model, name: str, folder: Path, *, stdin: BinaryIO, note: Callable[[str], None] | None = None
) -> Plan:
    """The plan of a scan of `wanted.corpus` with a model called `name`. folder: the scan's; copies go there.

    note: told what is decided on the way, such as that repeated texts are not looked for.
    Raises InputError for a corpus that is not there or empty, UnsupportedError for a model that cannot be scanned.
    """
    check(model)
    metrics = tuple(dict.fromkeys((*wanted.metrics, *(NEEDED if wanted.labels else ()))))
    for one in metrics:
        known(one)
    for written in wanted.find:
        _check_heads(conditions.parse(written).heads, model)
    for written in wanted.effects[1:]:
        _check_heads(conditions.parse_heads(written), model)
    names = find(wanted.corpus)
    size = ShardSize(wanted.shard, wanted.shard, 0) if wanted.shard else ShardSize(SHARD, LARGE_SHARD, LARGE)
    files, shards = intake.take_in(
        names, wanted.format, folder / COPIES, size=size, stdin=stdin, cluster=wanted.cluster
    )
    if wanted.cluster and all(file.format.kind == "lines" for file in files):
        raise UsageError(
            f"--cluster {wanted.cluster!r} names a field, and lines of text have none",
            expected="a corpus of .jsonl or .parquet",
        )
    if not shards:
        raise InputError("the corpus holds no texts", where=names[0], expected="a line of text at least")
    from attncli.arrays.torch_backend import capability

    isa, _, version = capability().partition(" · torch ")
    plan = Plan(
        schema=SCHEMA,
        version=__version__,
        model=_model(model, name),
        measures=Measures(
            versions(metrics), wanted.labels, wanted.words, wanted.rows, wanted.find, wanted.top, wanted.effects
        ),
        choice=Choice(max_tokens=wanted.max_tokens, over=wanted.over, cluster=wanted.cluster),
        files=tuple(files),
        shards=tuple(shards),
        seed=wanted.seed,
        dtype=model.backend.dtype,
        device=model.backend.device,
        isa=f"{platform.machine()} · {isa}",
        torch=version,
    )
    if wanted.cluster and not any(record.cluster for record in records(plan, folder)):
        raise InputError(
            f"no record has a field {wanted.cluster!r}", where=names[0], expected="--cluster FIELD of the records"
        )
    plan = replace(plan, choice=_choice(wanted, plan, folder, note))
    if not wanted.labels:
        return plan
    scores = repeat_scores(model, EVERY, seed=wanted.seed)
    repeats = [
        (layer, head, score["repeats_duplicate"], score["repeats_induction"])
        for (layer, head), score in sorted(scores.items())
    ]
    return replace(plan, repeats=tuple(repeats))


def records(plan: Plan, folder: Path) -> Iterator[Record]:
    """All records of the corpus."""
    for shard in plan.shards:
        yield from intake.records(plan.files, shard, folder / COPIES, plan.choice.cluster)


def _choice(wanted: Wanted, plan: Plan, folder: Path, note: Callable[[str], None] | None) -> Choice:
    left_out: set[tuple[int, int]] = set()
    choice = plan.choice
    if wanted.dedupe:
        if plan.texts > duplicates.MOST:
            if note is not None:
                note(f"repeated texts are not looked for: the corpus has more than {duplicates.MOST:,} records")
        else:
            found = duplicates.repeated(records(plan, folder))
            left_out = set(found)
            choice = replace(choice, duplicates=duplicates.write_duplicates(folder, found))
    if wanted.sample:
        threshold = duplicates.drawn(records(plan, folder), wanted.sample, wanted.seed, left_out)
        choice = replace(choice, sample=wanted.sample, threshold=threshold)
    return choice


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
