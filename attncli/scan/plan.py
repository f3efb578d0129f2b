"""The plan of a scan: everything that its numbers depend on, written once and first.

Whoever scans into a folder makes a plan of their own; it must say the same as the one that is there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from attncli.errors import AttnError, InputError, LimitError, UsageError
from attncli.inputs.file_opening import nesting_error, read_regular
from attncli.scan.duplicates import name_of
from attncli.scan.intake import File, Range
from attncli.scan.shard_files import PLANNING, temporary

NAME = "plan.json"
SCHEMA = "attn.scan.plan/3"
"""Another number for plans whose shards hold other arrays or columns."""
EXPECTED = "a folder that attn scan wrote"
COPIES = "corpus"
"""Folder for what cannot be sought: compressed files, standard input, remote files."""
SHARD = 4096
"""Texts of a shard."""
LARGE_SHARD, LARGE = 65_536, 10**8
"""Texts of a shard of a corpus of so many texts or more."""
NAMES = 3
"""Entries that the refusal of another plan names of each."""
LARGEST = 2**30
"""Bytes of a plan, at most: that of a million files has a third of them."""
MOST_TOP = 1000
"""Examples of each head and metric, at most."""
Layers = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Heads = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


@dataclass(frozen=True)
class ModelPlan:
    """name: as asked for. digest, tokenizer: sha256 of the weights with their config, and of the tokenizer."""

    name: str
    digest: str
    tokenizer: str
    layers: Layers
    heads: tuple[Heads, ...]


@dataclass(frozen=True)
class Choice:
    """Which texts count. sample: how many are drawn, 0 for all; threshold: the largest hash that is drawn.
    duplicates: sha256 of the list of texts left out as repeated, "" where they are kept. over: "skip" or "truncate"
    texts of more than max_tokens tokens; 0 is the model's own limit. cluster: the field that tells what belongs
    together. skip_unknown: whether texts with words that the model does not know are left out; written only where they
    are."""

    sample: int = 0
    threshold: int = 2**64 - 1
    duplicates: str = ""
    max_tokens: int = 0
    over: str = "skip"
    cluster: str = ""
    skip_unknown: bool = False


@dataclass(frozen=True)
class MeasurePlan:
    """What is measured. metrics: names with the version of each formula. find: conditions of links, as written. top:
    examples of each head and metric. effects: how heads are taken away, and which: ("zero", "L5H11", …)."""

    metrics: tuple[tuple[str, str], ...]
    labels: bool = True
    words: bool = False
    rows: bool = False
    find: tuple[str, ...] = ()
    top: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOP)] = 20
    effects: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScanPlan:
    """files, shards: the corpus as it was, and which ranges of it each shard holds. seed: of draws and replicates.
    isa, torch: the instruction set and the version of torch that it was made with; machines of another set may take
    part, which each shard tells of itself. repeats: duplicate and induction scores of each head on random repeats,
    [layer, head, duplicate, induction]."""

    schema: str
    version: str
    model: ModelPlan
    measures: MeasurePlan
    choice: Choice
    files: tuple[File, ...]
    shards: tuple[tuple[Range, ...], ...]
    seed: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    threads: Annotated[int, msgspec.Meta(ge=1)] = 1
    isa: str = ""
    torch: str = ""
    repeats: tuple[tuple[int, int, float, float], ...] = field(default=())

    @property
    def digest(self) -> str:
        """sha256 of all that the numbers depend on."""
        return hashlib.sha256(msgspec.json.encode(_comparable(self))).hexdigest()

    @property
    def texts(self) -> int:
        """Records of the corpus, counted with those that hold no text."""
        return sum(part.count for shard in self.shards for part in shard)

    @property
    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of every head, in the order of all arrays."""
        return [(layer, head) for layer, count in enumerate(self.model.heads) for head in range(count)]

    @property
    def places(self) -> list[str]:
        """Where each file of the corpus is."""
        return [file.path for file in self.files]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(name for name, _ in self.measures.metrics)


def _comparable(plan: ScanPlan) -> dict[str, Any]:
    """What two plans must agree on. Scores of random repeats follow from the model and may differ in the last bits; a
    corpus may be named from another folder, its bytes decide; machines of several instruction sets may take part."""
    values = _written(plan)
    # a plan that was read without one of these has none
    values.pop("isa", None)
    values.setdefault("torch", "")
    values.pop("repeats", None)  # a plan that was read without them has none
    del values["model"]["name"]
    for file in values["files"]:
        del file["name"], file["path"], file["copied"]
    return values


def _written(plan: ScanPlan) -> dict[str, Any]:
    """What stands in the plan's file: choices that came later are there only where they were made."""
    values: dict[str, Any] = msgspec.to_builtins(plan)
    if not plan.choice.skip_unknown:
        values["choice"].pop("skip_unknown", None)  # a plan that was read without it has none
    return values


def write(plan: ScanPlan, folder: Path) -> ScanPlan:
    """Put the plan into the folder; the plan that holds is returned, which may have been there before.

    The plan that was there is returned with the places that its corpus has now; they take the place of the old ones
    in the folder, so that whoever reads the plan later finds the files.
    Raises UsageError where the folder holds another plan, naming the first difference with both values; LimitError for
    a plan that nobody would read again.
    """
    beside = folder / f".plan.json.{temporary(PLANNING)}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / NAME).exists():
            _write_beside(plan, beside)
            with suppress(FileExistsError):  # who comes second compares
                os.link(beside, folder / NAME)
                return plan
        there = _read_plan(folder)
        try:
            _agree(there, plan, folder)
        except UsageError:
            withdraw(plan.files, folder, plan.choice.duplicates)
            raise
        moved = replace(there, files=plan.files)
        if moved != there:
            _write_beside(moved, beside)
            os.replace(beside, folder / NAME)  # noqa: PTH105 - beside the other calls on handles
            withdraw(there.files, folder)
        return moved
    except OSError as error:
        raise AttnError(f"cannot write the plan: {error.strerror or error}", where=str(folder)) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _write_beside(plan: ScanPlan, path: Path) -> None:
    """Write a plan to the disk under a name that nobody reads."""
    raw = msgspec.json.format(msgspec.json.encode(_written(plan)), indent=1)
    if len(raw) > LARGEST:
        raise LimitError(
            f"the plan of this scan would have {len(raw):,} bytes",
            expected=f"at most {LARGEST:,} bytes: fewer, larger files",
        )
    with path.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def moved_to(plan: ScanPlan, paths: Sequence[str]) -> ScanPlan:
    """The plan with its files at other places."""
    files = tuple(replace(file, path=path) for file, path in zip(plan.files, paths, strict=True))
    return replace(plan, files=files)


def read(folder: Path) -> ScanPlan:
    """The plan of a scan. Raises InputError where there is none, or it is no plan, or one of other shards."""
    plan, path = _read_plan(folder), folder / NAME
    if plan.schema != SCHEMA:
        raise InputError(
            f"another version of attn made this scan: its plan is {plan.schema!r}", where=str(path), expected=SCHEMA
        )
    return plan


def _read_plan(folder: Path) -> ScanPlan:
    path = folder / NAME
    try:
        path.stat()
    except OSError as error:
        reason = f"there is no scan here: {error.strerror or error}"
        raise InputError(reason, where=str(path), expected=EXPECTED) from error
    raw = read_regular(path, what=EXPECTED, limit=LARGEST)
    try:
        plan = msgspec.json.decode(raw, type=ScanPlan)
    except RecursionError as error:
        raise nesting_error(str(path), EXPECTED) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"this is no plan of a scan: {error}", where=str(path)) from error
    if (layers := plan.model.layers) != (count := len(plan.model.heads)):
        reason = f"{layers} layers with heads of {count}"
        raise InputError(f"this is no plan of a scan: {reason}", where=str(path))
    return plan


def _agree(there: ScanPlan, new_plan: ScanPlan, folder: Path) -> None:
    old, new = _comparable(there), _comparable(new_plan)
    if old == new:
        return
    name, before, now = _difference(old, new, "")
    raise UsageError(
        f"this folder holds another scan: its {name} is {before}, and {now} is asked for",
        where=str(folder),
        expected="the same model, corpus, metrics and version, or another folder",
        hint="-o ANOTHER",
    )


def withdraw(files: Sequence[File], folder: Path, duplicates: str = "") -> None:
    """Take away what a plan that is not kept left in its folder: copies of files, and its list of repeated texts. What
    the plan that holds speaks of stays."""
    kept: set[Path] = set()
    with suppress(AttnError):
        there = _read_plan(folder)
        kept = _beside(there.files, folder, there.choice.duplicates)
    for path in _beside(files, folder, duplicates) - kept:
        with suppress(OSError):
            path.unlink()


def _beside(files: Sequence[File], folder: Path, duplicates: str = "") -> set[Path]:
    """The files that a plan speaks of and that stand in its folder."""
    paths = {folder / COPIES / file.path for file in files if file.copied}
    return paths | ({folder / name_of(duplicates)} if duplicates else set())


def _difference(old: Any, new: Any, name: str) -> tuple[str, str, str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if old[key] != new.get(key):
                return _difference(old[key], new.get(key), f"{name}.{key}" if name else key)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for index, (old_entry, new_entry) in enumerate(zip(old, new, strict=True)):
            if old_entry != new_entry:
                return _difference(old_entry, new_entry, f"{name}[{index}]")
    return name, _short(old, new), _short(new, old)


def _short(value: Any, second: Any) -> str:
    """A value in few words; of a list how long it is, and the names that the other list lacks."""
    if not isinstance(value, list | tuple | dict):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}…"
    entry_names = [_name(entry) for entry in value if not isinstance(second, list | tuple) or entry not in second]
    names = [name for name in entry_names if name]
    if not names:
        return f"{len(value)} entries"
    return f"{len(value)} entries with {', '.join(names[:NAMES])}{' …' if len(names) > NAMES else ''}"


def _name(entry: Any) -> str:
    """What an entry of a list is called by: a text itself, or the first of several; "" for others."""
    first = entry[0] if isinstance(entry, list | tuple) and entry else entry
    return first if isinstance(first, str) else ""
