"""The plan of a scan: everything that its numbers depend on, written once and first.

It holds the model's digest, the corpus as it is, and which of its texts count. Whoever scans into a
folder makes a plan of their own; it must say the same as the one that is there.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from attncli.arrays.backend import EVERY
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError, UsageError
from attncli.features.rules.attention_rows import HeadKinds, head_places
from attncli.features.rules.head_rules import HeadRule
from attncli.features.rules.rule_file import (
    FILE_WORDS,
    FileRule,
    PluginRule,
    load_rules,
    usable_rules,
)
from attncli.inputs.adapter import CONFIG, WEIGHTS, parse_adapter
from attncli.inputs.files import (
    is_there,
    nesting_error,
    new_file,
    read_regular,
    system_errors,
)
from attncli.inputs.function_file import function_file_digest
from attncli.inputs.hub import digest
from attncli.inputs.token import ignore
from attncli.language import Message, listing, message
from attncli.measure.labels import repeat_scores
from attncli.measure.layer_metrics import column_metric, order_metrics
from attncli.measure.metric import FILE_METRICS, OFFSETS
from attncli.measure.metric_file import MetricFile, declare, load_metric_file
from attncli.measure.row_facts import parse_exclusion
from attncli.mechanism.mask import AllOf, AnyOf, Hashed, Mask, MatrixMask, SameBucket
from attncli.mechanism.spec import Spec, head_name
from attncli.models.load import CheckpointStore
from attncli.models.model import Model
from attncli.scan import intake, shard_files
from attncli.scan.frequent_links import mask_places
from attncli.scan.intake import (
    File,
    Format,
    Range,
    Record,
    ShardSizes,
    find_files,
    name_of_duplicates,
)
from attncli.scan.shard_files import PLANNING, temporary_name
from attncli.scan.statistics import WIDTH, scale_of
from attncli.scan.why_shares import WhyPlan, plan_parts
from attncli.version import __version__

NAME = "plan.json"
SCHEMA = "attn.scan.plan/7"
"""Another number for plans whose shards hold other arrays or columns."""
EXPECTED = message("a folder that attn scan wrote")
COPIES = "corpus"
"""Folder for what cannot be sought: compressed files, standard input, remote files."""
SHARD = 4096
"""Texts of a shard, at most."""
SHARD_SECONDS, LEAST_SECONDS = 30.0, 4.0
"""About how long a worker computes a shard, at most and at least: what is lost when it is stopped.
Each shard costs a second besides, for its file and for adding it up."""
SHARDS = 16
"""Shards that a corpus is cut into, at least, where they do not get too small by it: four for each
of four workers."""
TEXT_TOKENS, OPERATIONS_PER_SECOND = 26, 2.5e10
"""Tokens of a usual text, and what one thread multiplies in a second, with all that is measured on
the way: 500 sentences with MiniLM took 12 seconds."""
LARGE_SHARD, LARGE = 65_536, 10**8
"""Texts of a shard of a corpus of so many texts or more."""
NAMES = 3
"""Entries that the refusal of another plan names of each."""
LARGEST = 2**30
"""Bytes of a plan, at most: that of a million files has a third of them."""
MOST_TOP = 1000
"""Examples of each head and metric, at most."""
MOST_EXAMPLES = 20
"""Examples of each decile, at most."""
LABEL_COLUMNS = {
    "previous-token": "previous_beyond_first",
    "next-token": "next_beyond_first",
    "self": "self_beyond_first",
    "positional": "positional_beyond_first",
    "punctuation": "punctuation_beyond_first",
    "broad": "normalised_entropy_beyond_first",
}
"""The columns beside the metrics that labels are decided by, without the first token; those of
labels that say where a head rests are metrics."""
LABEL_METRICS = (
    "previous",
    "next",
    "self",
    "sink",
    "special",
    "punctuation",
    "normalised_entropy",
    *OFFSETS,
)
"""Metrics that a scan with labels measures besides those asked for: what labels are about, with the
first token."""
EFFECT = "effect"
"""How far a text's last vector turns without the head; a column beside the metrics, for chosen
heads.
"""
MOST_MASKS = 64
"""Different masks of a model's layers, at most, under which links are counted by chance."""
T = TypeVar("T")
Layers = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Heads = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class ModelPlan(Struct, frozen=True):
    """The model that a scan's plan names.

    name: as asked for.
    digest: sha256 of the weights, their config and adapters.
    tokenizer: sha256 of the tokenizer.
    heads: how many each layer has.
    adapters: those merged into the weights, each a folder, perhaps with a weight; written only
        where there are any.
    """

    name: str
    digest: str
    tokenizer: str
    layers: Layers
    heads: tuple[Heads, ...]
    adapters: tuple[str, ...] = ()


class Choice(Struct, frozen=True):
    """Which texts of the corpus are counted.

    sample: how many are drawn, 0 for all.
    threshold: the largest hash that is drawn.
    duplicates: sha256 of the list of texts left out as repeated, "" where they are kept.
    over: "skip" or "truncate" texts of more than max_tokens tokens; 0 is the model's own limit.
    cluster: the field that groups records, such as by document, for intervals; "" for none.
    skip_unknown: whether texts with words that the model does not know are left out; written only
        where they are.
    """

    sample: int = 0
    threshold: int = 2**64 - 1
    duplicates: str = ""
    max_tokens: int = 0
    over: str = "skip"
    cluster: str = ""
    skip_unknown: bool = False


class RuleFile(msgspec.Struct, frozen=True):
    """A user's Python file of rules.

    path: where it is.
    sha256: of its bytes.
    rules: name, formula and sentence of each.
    """

    path: str
    sha256: str
    rules: tuple[tuple[str, str, str], ...]


class RulePlan(Struct, frozen=True):
    """How heads are described by rules.

    versions: (name, version of its formula) of each rule that some query may follow.
    layers: those that attend.
    kinds: which of the model's masks each has.
    files: those that rules come from besides attn.
    """

    versions: tuple[tuple[str, str], ...]
    layers: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    kinds: tuple[Annotated[int, msgspec.Meta(ge=0, lt=MOST_MASKS)], ...]
    files: tuple[RuleFile, ...] = ()


class MeasurePlan(Struct, frozen=True):
    """What is measured of every head.

    metrics: (name, version of its formula).
    find: conditions of the links to keep, as written.
    top: examples of each head and metric.
    effects: how heads are removed, and which: ("zero", "L5H11", …).
    examples: sampled texts of each decile of a metric.
    links: where pairs of tokens are counted, for each layer the index of its mask among the
        distinct ones; else empty.
    metric_files: the files that metrics come from.
    why: the heads whose strongest links' scores are decomposed, each with the names of the parts.
    rules: how heads are described by rules, None where they are not.
    exclude: the kinds of pairs of query and key that no number counts, out of `row_facts.KINDS`;
        written only where there are any.
    beside_rest: whether `find` leaves out links to keys where heads rest, unless a condition asks
        for them; false in scans of earlier versions, which counted them.
    """

    metrics: tuple[tuple[str, str], ...]
    labels: bool = True
    words: bool = False
    rows: bool = False
    find: tuple[str, ...] = ()
    top: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOP)] = 20
    effects: tuple[str, ...] = ()
    examples: Annotated[int, msgspec.Meta(ge=0, le=MOST_EXAMPLES)] = 3
    links: tuple[Annotated[int, msgspec.Meta(ge=0, lt=MOST_MASKS)], ...] = ()
    metric_files: tuple[MetricFile, ...] = ()
    why: WhyPlan = ()
    rules: RulePlan | None = None
    exclude: tuple[str, ...] = ()
    beside_rest: bool = False

    @property
    def conditions(self) -> list[shard_files.Condition]:
        """The conditions of `find`."""
        conditions = [shard_files.parse_condition(text) for text in self.find]
        if self.beside_rest:
            return conditions
        return [replace(condition, rest=True) for condition in conditions]

    @property
    def rule_files(self) -> tuple[RuleFile, ...]:
        """The files that rules come from."""
        if self.rules is None:
            return ()
        return self.rules.files


class ScanPlan(Struct, frozen=True):
    """All that a scan's numbers depend on, as its folder's plan.json holds it.

    files: the corpus as it was.
    shards: the ranges of records of each shard.
    seed: of draws and bootstrap replicates.
    isa, torch: the instruction set and the version of torch of the machine that planned it; others
        may compute shards, which each shard notes.
    repeats: scores of each head on random repeated tokens, [layer, head, duplicate, induction].
    repeat_shares: in the order of `repeats`, the share of each head's weight that these are of.
    """

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
    repeats: tuple[tuple[int, int, float, float], ...] = ()
    repeat_shares: tuple[float, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 of the fields that the scan's numbers depend on, as `_comparable` picks them."""
        return hashlib.sha256(msgspec.json.encode(_comparable(self))).hexdigest()

    @property
    def texts(self) -> int:
        """How many records the corpus has, including those that hold no text."""
        return sum(part.count for shard in self.shards for part in shard)

    @property
    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of every head, in the order of the head axis of all arrays."""
        return [
            (layer, head) for layer, count in enumerate(self.model.heads) for head in range(count)
        ]

    @property
    def places(self) -> list[str]:
        """The path of each file of the corpus, then of each file of metrics, then of rules."""
        return [
            *(file.path for file in self.files),
            *(file.path for file in self.measures.metric_files),
            *(file.path for file in self.measures.rule_files),
        ]

    @property
    def head_kinds(self) -> HeadKinds:
        """The heads that rules describe, with the mask of each layer; the plan must have rules."""
        rules = self.measures.rules
        assert rules is not None
        counts = [self.model.heads[layer] for layer in rules.layers]
        starts = tuple(np.cumsum([0, *counts]).tolist())
        return HeadKinds(rules.layers, starts, rules.kinds)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(name for name, _ in self.measures.metrics)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names along the column axis of all arrays: the metrics, then the scores that decide
        labels where heads are labelled, then the effect where heads are removed."""
        columns = list(self.metrics)
        if self.measures.labels:
            columns += LABEL_COLUMNS.values()
        if self.measures.effects:
            columns.append(EFFECT)
        return tuple(columns)


def _comparable(plan: ScanPlan) -> dict[str, Any]:
    """The fields of a plan that must be equal in two plans of one scan: all but those that may
    differ, such as the corpus's paths and the machine."""
    values = _plan_fields(plan)
    values.setdefault("torch", "")  # left out of a plan that does not say torch's version
    # last digits of the scores on repeated tokens depend on the machine
    for name in ("isa", "repeats", "repeat_shares"):
        values.pop(name, None)

    # models and files are known by their digests, wherever they are and whatever they are called
    del values["model"]["name"]
    values["model"].pop("adapters", None)  # the model's digest covers what they hold
    for file in values["files"]:
        del file["name"], file["path"], file["copied"]
    rules = values["measures"].get("rules", {})  # left out where there are none
    for file in (*values["measures"].get("metric_files", ()), *rules.get("files", ())):
        del file["path"]
    return values


def _plan_fields(plan: ScanPlan) -> dict[str, Any]:
    """The fields of plan.json, as plain values. Optional fields that came later are left out where
    they are empty, so that the plans of earlier versions, and their digests, stay the same.
    """
    values: dict[str, Any] = msgspec.to_builtins(plan)
    later_fields = (  # the part of the plan, and the field in it
        ("choice", "skip_unknown"),
        ("model", "adapters"),
        ("measures", "metric_files"),
        ("measures", "rules"),
        ("measures", "exclude"),
        ("measures", "beside_rest"),
    )
    for part, name in later_fields:
        if not values[part].get(name):
            values[part].pop(name, None)
    return values


def write(plan: ScanPlan, folder: Path) -> ScanPlan:
    """Write the plan to the folder, and return the plan that is there then.

    An earlier plan of the same scan is kept, but for the paths of its files: these become the new
    plan's, so that whoever reads it later finds the files. Raises UsageError where the folder holds
    the plan of another scan, naming the first difference with both values; AttnError where the
    folder cannot be written; LimitError for a plan too large to be read back.
    """
    beside = folder / f".plan.json.{temporary_name(PLANNING)}.tmp"
    try:
        with system_errors("cannot write the plan: {strerror}", str(folder), kind=AttnError):
            if not is_there(folder / NAME):
                # a link is made only where nothing is: of two processes that plan at once one gets
                # here first, and the other goes on to compare its plan with that one
                _write_to_disk(plan, beside)
                with suppress(FileExistsError):
                    os.link(beside, folder / NAME)
                    return plan
            old_plan = _read_plan(folder)
            _check_same_scan(old_plan, plan, folder)
            # the old plan, with the files of the corpus, of metrics and of rules where they are now
            metric_files = plan.measures.metric_files
            measures = replace(
                old_plan.measures, metric_files=metric_files, rules=plan.measures.rules
            )
            plan_with_new_paths = replace(old_plan, files=plan.files, measures=measures)
            if plan_with_new_paths != old_plan:
                _write_to_disk(plan_with_new_paths, beside)
                os.replace(beside, folder / NAME)  # noqa: PTH105 - beside the other calls on handles
                delete_leftovers(old_plan.files, folder)  # copies that only the old plan used
            return plan_with_new_paths
    finally:
        with suppress(OSError):  # it was never written, or has its final name
            beside.unlink()


def _write_to_disk(plan: ScanPlan, path: Path) -> None:
    """Write a plan to a file, synced to the disk. Raises LimitError for a plan too large to be read
    again.
    """
    raw = msgspec.json.format(msgspec.json.encode(_plan_fields(plan)), indent=1)
    if len(raw) > LARGEST:
        what = message("the plan of this scan would have {raw:,} bytes", raw=len(raw))
        raise LimitError(
            what,
            expected=message("at most {largest:,} bytes: fewer, larger files", largest=LARGEST),
        )
    with new_file(path) as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def with_files_at(plan: ScanPlan, paths: Sequence[str]) -> ScanPlan:
    """The plan with its files at other paths.

    paths: one for each of `ScanPlan.places`, in their order.
    """
    measures = plan.measures
    # files of the corpus, then of metrics, then of rules
    metrics_start = len(plan.files)
    rules_start = metrics_start + len(measures.metric_files)
    corpus_paths = paths[:metrics_start]
    metric_paths = paths[metrics_start:rules_start]
    rule_paths = paths[rules_start:]
    files = tuple(
        replace(file, path=path) for file, path in zip(plan.files, corpus_paths, strict=True)
    )
    metric_files = tuple(
        structs.replace(file, path=path)
        for file, path in zip(measures.metric_files, metric_paths, strict=True)
    )
    rule_files = tuple(
        structs.replace(file, path=path)
        for file, path in zip(measures.rule_files, rule_paths, strict=True)
    )
    measures = replace(measures, metric_files=metric_files)
    if measures.rules is not None:
        measures = replace(measures, rules=replace(measures.rules, files=rule_files))
    return replace(plan, files=files, measures=measures)


def read_plan(folder: Path) -> ScanPlan:
    """The plan in a scan's folder. Raises InputError where there is none, it is no plan, or one of
    another version of attn."""
    plan = _read_plan(folder)
    path = folder / NAME
    if plan.schema != SCHEMA:
        what = message(
            "another version of attn made this scan: its plan is {schema}", schema=repr(plan.schema)
        )
        raise InputError(what, where=str(path), expected=SCHEMA)
    return plan


def _read_plan(folder: Path) -> ScanPlan:
    """The plan in a scan's folder, also one of another version of attn. Raises InputError where
    there is none, or it is no plan."""
    path = folder / NAME
    missing = message("there is no scan here: {strerror}")
    plan = read_json(
        path, ScanPlan, missing=missing, damaged=message("this is no plan of a scan: {error}")
    )
    layers = plan.model.layers
    count = len(plan.model.heads)
    if layers != count:
        reason = message("{layers} layers with heads of {count}", layers=layers, count=count)
        raise InputError("this is no plan of a scan: {reason}", where=str(path), reason=reason)
    # makes the names and ranges of the user's metrics known without running their code
    for file in plan.measures.metric_files:
        declare(file)
    return plan


def read_json(path: Path, kind: type[T], *, missing: Message, damaged: Message) -> T:
    """A JSON file of a scan's folder, decoded to the type `kind`. Raises InputError with the
    message `missing`, in which {strerror} is filled in, where the file is not there, and with
    `damaged`, which takes {error}, where it cannot be decoded.
    """
    with system_errors(missing.template, str(path), expected=EXPECTED):
        path.stat()
    raw = read_regular(path, what=EXPECTED, limit=LARGEST)
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError as error:
        raise nesting_error(str(path), EXPECTED) from error
    except ValueError as error:
        raise InputError(damaged.template, where=str(path), error=error) from error


def _check_same_scan(old_plan: ScanPlan, new_plan: ScanPlan, folder: Path) -> None:
    """Raise UsageError where the plan in a folder is of another scan than the new one, naming the
    first difference with both values; the files that the new plan left in the folder are deleted
    before."""
    old = _comparable(old_plan)
    new = _comparable(new_plan)
    if old == new:
        return
    # what `intake` copied for the new plan, before the error ends it
    delete_leftovers(new_plan.files, folder, new_plan.choice.duplicates)
    name, before, now = _first_difference(old, new, "")
    raise UsageError(
        "this folder holds another scan: its {name} is {before}, and {now} is asked for",
        where=str(folder),
        expected="the same model, corpus, metrics and version, or another folder",
        hint="-o ANOTHER",
        name=name,
        before=before,
        now=now,
    )


def delete_leftovers(files: Sequence[File], folder: Path, duplicates: str = "") -> None:
    """Delete the copies of corpus files and the list of repeated texts that a plan made in a
    folder, except those that the plan now in the folder uses.

    files: the corpus of the plan that is given up.
    duplicates: sha256 of its list, "" for none.
    """
    used_paths: set[Path] = set()
    with suppress(AttnError):  # there may be no plan, and then nothing uses them
        plan = _read_plan(folder)
        used_paths = _files_in_folder(plan.files, folder, plan.choice.duplicates)
    for path in _files_in_folder(files, folder, duplicates) - used_paths:
        with suppress(OSError):  # gone already, or not ours to delete: it only takes room
            path.unlink()


def discard(plan: ScanPlan, folder: Path, new_folders: Sequence[Path]) -> None:
    """Delete a scan that counted no text: its plan, its shards, the files beside them, and the
    folders made for it that are empty then.

    new_folders: the folders that were made for it, innermost first.
    """
    shards = range(len(plan.shards))
    paths = [path for shard in shards for path in shard_files.paths_of(folder, shard)]
    paths += [*_files_in_folder(plan.files, folder, plan.choice.duplicates), folder / NAME]
    for path in paths:
        with suppress(OSError):  # most of these files a shard does not have
            path.unlink()
    # folders from the inside out, as only an empty one can be removed
    inner_folders = dict.fromkeys(path.parent for path in paths if path.parent != folder)
    for path in (*inner_folders, folder / shard_files.FOLDER, folder / COPIES, *new_folders):
        with suppress(OSError):  # something else is in it
            path.rmdir()


def _files_in_folder(files: Sequence[File], folder: Path, duplicates: str = "") -> set[Path]:
    """The paths inside a scan's folder that its plan uses: copies of corpus files, and the list of
    repeated texts.

    duplicates: sha256 of the list, "" for none.
    """
    paths = {folder / COPIES / file.path for file in files if file.copied}
    return paths | ({folder / name_of_duplicates(duplicates)} if duplicates else set())


def _first_difference(old: Any, new: Any, name: str) -> tuple[str, str, str]:
    """(name, old value, new value) of the first difference between two plans' values, the name such
    as `model.heads[3]`, the values shortened. Dictionaries, and lists of equal length, are looked
    into, down to the value that differs.

    name: of the values compared, "" for whole plans.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        # those of the old plan first, then those that only the new one has
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) != new.get(key):
                if name:
                    key_name = f"{name}.{key}"
                else:
                    key_name = key
                return _first_difference(old.get(key), new.get(key), key_name)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for index, (old_entry, new_entry) in enumerate(zip(old, new, strict=True)):
            if old_entry != new_entry:
                return _first_difference(old_entry, new_entry, f"{name}[{index}]")
    return name, _shorten_value(old, new), _shorten_value(new, old)


def _shorten_value(value: Any, second: Any) -> str:
    """A value shortened for an error message; of a list its length, and the names of entries that
    the list `second` lacks."""
    if not isinstance(value, list | tuple | dict):
        text = repr(value)
        if len(text) <= 80:  # a line of a terminal
            return text
        return f"{text[:77]}…"
    others = second if isinstance(second, list | tuple) else ()
    names = []
    for entry in value:
        if entry in others:
            continue
        # an entry is called by its text, or by the first of several: a metric is (name, version)
        first = entry[0] if isinstance(entry, list | tuple) and entry else entry
        if first and isinstance(first, str):
            names.append(first)
    if not names:  # entries that are only numbers, or objects
        return f"{len(value)} entries"
    if len(names) > NAMES:
        more = " …"
    else:
        more = ""
    return message(
        "{value} entries with {names}{value_2}",
        value=len(value),
        names=listing(names[:NAMES]),
        value_2=more,
    )


class ScanRequest(Struct, frozen=True):
    """The options of `attn scan` that decide its numbers.

    metrics: names.
    format: None to tell it from file names.
    exclude: kinds of pairs of query and key that no number counts, out of "first", "special",
        "self", "neighbours", "punctuation", "separators".
    """

    corpus: tuple[str, ...]
    metrics: tuple[str, ...]
    format: Format | None = None
    labels: bool = True
    words: bool = False
    rows: bool = False
    find: tuple[str, ...] = ()
    top: int = 20
    effects: tuple[str, ...] = ()
    examples: int = 3
    links: bool = True
    metric_files: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    rules: bool = False
    rule_files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sample: int = 0
    seed: int = 0
    dedupe: bool = False
    max_tokens: int = 0
    over: str = "skip"
    skip_unknown: bool = False
    cluster: str = ""
    shard: int = 0


def make_plan(
    request: ScanRequest,
    model: Model,
    name: str,
    folder: Path,
    *,
    stdin: BinaryIO,
    note: Callable[[str], None] = ignore,
) -> ScanPlan:
    """Plan a scan of `request.corpus` with a model: read the corpus, cut it into shards, choose
    texts.

    name: what the user called the model.
    folder: the scan's; copies of packed or piped files go there.
    note: called with what is decided on the way, such as that repeated texts are not looked for.

    Raises InputError for a corpus that is not there or empty, UnsupportedError for a model that
    cannot be scanned.
    """
    check_model(model)
    # first, so that a corpus which is not there is refused before the model runs for `--why`
    names = find_files(request.corpus, out=folder, note=note)
    measures = _plan_measures(request, model)
    with _withdraw_on_failure(folder) as files:
        sizes = shard_sizes(model.spec)
        if request.shard:  # a size that is asked for, whatever the number of texts
            sizes = ShardSizes((), request.shard)
        shards = _take_in_corpus(names, request, folder, stdin, files, sizes)
        if not shards:
            raise InputError(
                "the corpus holds no texts", where=names[0], expected="a line of text at least"
            )

        from attncli.arrays.torch_backend import capability

        isa, _, version = capability().partition(" · torch ")  # such as "AVX2 · torch 2.6.0"
        choice = Choice(
            max_tokens=request.max_tokens,
            over=request.over,
            cluster=request.cluster,
            skip_unknown=request.skip_unknown,
        )
        scan_plan = ScanPlan(
            schema=SCHEMA,
            version=__version__,
            model=_plan_model(model, name),
            measures=measures,
            choice=choice,
            files=tuple(files),
            shards=tuple(shards),
            seed=request.seed,
            dtype=model.backend.dtype,
            device=model.backend.device,
            isa=f"{platform.machine()} · {isa}",
            torch=version,
        )

        # with this plan the records can be read: to look for the field that groups them, up to the
        # first that has it, and to choose texts
        if request.cluster and not any(
            record.cluster for record in planned_records(scan_plan, folder)
        ):
            what = message("no record has a field {cluster}", cluster=repr(request.cluster))
            raise InputError(what, where=names[0], expected="--cluster FIELD of the records")
        choice = _choose_texts(request, scan_plan, folder, note)

        # the scores that decide duplicate and induction labels do not depend on the corpus
        if request.labels:
            scores_by_head = repeat_scores(model, EVERY, seed=request.seed)
        else:
            scores_by_head = {}
        repeats = []
        repeat_shares = []
        for (layer, head), scores in sorted(scores_by_head.items()):
            duplicate = scores["repeats_duplicate_beyond_first"]
            induction = scores["repeats_induction_beyond_first"]
            repeats.append((layer, head, duplicate, induction))
            repeat_shares.append(scores["repeats_share"])
        return replace(
            scan_plan, choice=choice, repeats=tuple(repeats), repeat_shares=tuple(repeat_shares)
        )


def _plan_measures(request: ScanRequest, model: Model) -> MeasurePlan:
    """The part of a plan about what the request measures. Raises UsageError for heads or metrics
    that do not exist.
    """
    # first, as it makes the names of their metrics known
    metric_files = tuple(load_metric_file(path) for path in request.metric_files)
    label_metrics = LABEL_METRICS if request.labels else ()
    metrics = order_metrics((*request.metrics, *label_metrics))
    versions = tuple((metric, metric_version(metric)) for metric in metrics)
    for pattern in request.find:
        _check_heads(shard_files.parse_condition(pattern).heads, model)
        shard_files.check_tokens(pattern, model.tokenizer, model.spec.vocabulary)
    for pattern in request.effects[1:]:  # the first says how heads are removed
        _check_heads(shard_files.parse_heads(pattern), model)
    why_heads = [pair for pattern in request.why for pair in shard_files.parse_heads(pattern)]
    _check_heads(why_heads, model)
    exclude: tuple[str, ...] = ()
    if request.exclude:
        exclude = parse_exclusion(",".join(request.exclude))
        _check_beside_exclusion(request)
    # links are counted by pairs of tokens, which merged words and weights without some pairs lack
    links: tuple[int, ...] = ()
    if request.links and not request.words and not exclude:
        links = mask_places(model.spec)
    why: WhyPlan = ()
    if why_heads:
        why = plan_parts(model, list(dict.fromkeys(why_heads)))
    return MeasurePlan(
        metrics=versions,
        labels=request.labels,
        words=request.words,
        rows=request.rows,
        find=request.find,
        beside_rest=bool(request.find),  # plans of earlier versions counted links to resting keys
        top=request.top,
        effects=request.effects,
        examples=request.examples,
        links=links,
        metric_files=metric_files,
        why=why,
        rules=_plan_rules(request, model),
        exclude=exclude,
    )


def _check_beside_exclusion(request: ScanRequest) -> None:
    """Raise UsageError for measures that do not go with `--exclude`, as they look at whole rows of
    weights or at links that are asked for by name.
    """
    options = (
        ("--rules", request.rules),
        ("--why", bool(request.why)),
        ("--find", bool(request.find)),
    )
    for option, is_given in options:
        if is_given:
            raise UsageError(
                "{option} is about rows of weights as they are, and --exclude leaves pairs out",
                expected="one of them",
                option=option,
            )


def _plan_rules(request: ScanRequest, model: Model) -> RulePlan | None:
    """The part of a plan about describing heads by rules; None where the request does not ask for
    it. Raises UsageError where words are merged, InputError for a file of rules that fails,
    UnsupportedError for a rule of a plugin."""
    if not request.rules:
        if request.rule_files:
            raise UsageError("--rule-file is about --rules", expected="--rules as well")
        return None
    if request.words:
        raise UsageError(
            "--rules tell of tokens, and --words merges them to words", expected="one of them"
        )
    places = head_places(model)
    own_rules = load_rules(request.rule_files)
    for rule in own_rules:
        if isinstance(rule, PluginRule):  # a plan names files by their bytes; a plugin has no file
            raise UnsupportedError(
                "the rule {name} is a plugin's, and a scan takes rules of files alone",
                expected="--rule-file FILE.py",
                name=repr(rule.name),
            )
    rules = usable_rules(places, own_rules)
    return RulePlan(
        versions=tuple((rule.name, rule_version(rule)) for rule in rules),
        layers=places.layers,
        kinds=places.kinds,
        files=plan_rule_files(own_rules),
    )


def plan_rule_files(rules: Sequence[FileRule]) -> tuple[RuleFile, ...]:
    """The files that these rules come from, each once, with the rules that it declares."""
    rules_by_path: dict[Path, list[FileRule]] = {}
    for rule in rules:
        rules_by_path.setdefault(rule.path, []).append(rule)
    return tuple(
        RuleFile(
            str(path.absolute()),
            file_rules[0].sha256,  # of the file, which all its rules share
            tuple((rule.name, rule.formula, rule.sentence) for rule in file_rules),
        )
        for path, file_rules in rules_by_path.items()
    )


def planned_rules(files: Sequence[RuleFile]) -> list[FileRule]:
    """The rules of the files that a plan names; this runs the files as Python code. Raises
    InputError, before any of it is run, where the contents of one have changed since."""
    for file in files:
        if function_file_digest(file.path, FILE_WORDS) != file.sha256:
            raise InputError(
                "this file of rules is another one than the scan began with",
                where=file.path,
                expected="sha256 {digest}",
                digest=file.sha256,
            )
    return load_rules([file.path for file in files])


def rule_version(rule: HeadRule) -> str:
    """The version of a built-in rule: the first 12 digits of a sha256 of what it looks at, so that
    another formula is another version. "" for a rule from a file, which is identified by the file's
    bytes."""
    if isinstance(rule, FileRule):
        return ""
    # what a rule is called may change
    values = {**structs.asdict(rule), "label": "", "sentence": ""}
    return hashlib.sha256(repr((type(rule).__name__, values)).encode()).hexdigest()[:12]


def _take_in_corpus(
    names: list[str],
    request: ScanRequest,
    folder: Path,
    stdin: BinaryIO,
    files: list[File],
    sizes: ShardSizes,
) -> list[tuple[Range, ...]]:
    """Read the corpus, and return the ranges of records of each shard.

    names: its files; the list is put in the order that an earlier plan in the folder has.
    files: an empty list, to which each file is added when it is read.
    sizes: how many records a shard has.
    """
    take_in = partial(
        intake.take_in, sizes=sizes, stdin=stdin, cluster=request.cluster, files=files
    )
    _, shards = take_in(names, request.format, folder / COPIES)  # the files are in `files`
    order = _order_of_old_plan(files, folder)
    if order != sorted(order) and "-" not in names:
        # files are known by their bytes, so they had to be read to find their order; shards follow
        # that order, so they are cut again. Standard input cannot be read twice.
        names[:] = [names[index] for index in order]
        files.clear()
        _, shards = take_in(names, request.format, folder / COPIES)
    if request.cluster and all(file.format.kind == "lines" for file in files):
        what = message(
            "--cluster {cluster} names a field, and lines of text have none",
            cluster=repr(request.cluster),
        )
        raise UsageError(what, expected="a corpus of .jsonl or .parquet")
    return shards


def shard_sizes(spec: Spec) -> ShardSizes:
    """How many texts a shard has under a model: what a thread computes in about half a minute where
    texts are of usual length, and less where the corpus would be cut into few shards.

    It follows from the model and the number of texts alone, so that whoever plans the same scan has
    the same shards, whatever the machine and its workers.

    Args:
        spec: The model's.

    Returns:
        The sizes, each twice the one before it up to the usual one.
    """
    # a layer of the usual shape has 12 · width² weights
    weights = 12 * spec.d_model**2 * len(spec.blocks)
    # of one text: a multiplication and an addition for each token and weight
    text_seconds = 2 * weights * TEXT_TOKENS / OPERATIONS_PER_SECOND
    usual = _largest_power_of_two(SHARD_SECONDS / text_seconds)
    size = _largest_power_of_two(LEAST_SECONDS / text_seconds)
    # shards grow with the corpus: a size is used until it would give twice `SHARDS` shards
    steps = []
    while size < usual:
        steps.append((size, SHARDS * 2 * size))
        size *= 2
    steps.append((usual, LARGE))
    return ShardSizes(tuple(steps), max(LARGE_SHARD, usual))


def _largest_power_of_two(texts: float) -> int:
    """The largest power of two that is not above a number of texts; from 1 to `SHARD`."""
    size = 1
    while 2 * size <= min(texts, SHARD):
        size *= 2
    return size


@contextmanager
def _withdraw_on_failure(folder: Path) -> Iterator[list[File]]:
    """Context for reading a corpus: gives an empty list, to which the block adds each file that it
    reads. If the block fails, the copies of these files, and the folders that were made for them,
    are deleted."""
    corpus = folder / COPIES
    # innermost first
    new_folders = [path for path in (corpus, folder, *folder.parents) if not is_there(path)]
    files: list[File] = []
    try:
        yield files
    except BaseException:  # also where the user stops it
        delete_leftovers(files, folder)
        for path in new_folders:
            with suppress(OSError):  # something else is in it
                path.rmdir()
        raise


def _order_of_old_plan(files: Sequence[File], folder: Path) -> list[int]:
    """The indices of `files` in the order in which the plan in the folder has files of the same
    bytes; 0, 1, … where there is no such plan, or one of another corpus."""
    given_order = list(range(len(files)))
    try:
        old_files = read_plan(folder).files
    except AttnError:
        return given_order
    # by the bytes of a file, the indices of the files that hold them, the first of equal ones last
    indices: dict[tuple[str, int], list[int]] = {}
    for index in reversed(given_order):  # `pop` takes the last of them
        indices.setdefault((files[index].sha256, files[index].size), []).append(index)
    order = []
    for file in old_files:
        equal_files = indices.get((file.sha256, file.size))
        if equal_files:
            order.append(equal_files.pop())
    if len(order) == len(old_files) == len(files):
        return order
    return given_order


def locate_files(scan_plan: ScanPlan, names: Sequence[str], folder: Path) -> ScanPlan:
    """The plan with each file of its corpus at the path of the file with the same bytes among
    `names`. Copies stay where they are, in the scan's folder. Raises InputError where no named file
    holds the bytes.

    names: files, folders or patterns.
    folder: the scan's.
    """
    # by sha256 and size in bytes, as plans have of a file
    names_by_content = {}
    for name in find_files(names, out=folder):
        content = (intake.file_digest(name), Path(name).stat().st_size)
        names_by_content[content] = name
    paths = []
    for file in scan_plan.files:
        if file.copied:
            paths.append(file.path)
            continue
        new_name = names_by_content.get((file.sha256, file.size))
        if new_name is None:
            what = message("no file that is named holds this part of the scan's corpus")
            raise InputError(
                what,
                where=file.name,
                expected=message("a file with sha256 {sha256}", sha256=file.sha256),
            )
        paths.append(str(Path(new_name).absolute()))
    # behind the corpus stand the files of metrics and rules, which stay where they are
    return with_files_at(scan_plan, [*paths, *scan_plan.places[len(paths) :]])


def planned_records(scan_plan: ScanPlan, folder: Path) -> Iterator[Record]:
    """Yield all records of a plan's corpus, including those that hold no text.

    folder: the scan's.
    """
    for shard in scan_plan.shards:
        yield from intake.records(scan_plan.files, shard, folder / COPIES, scan_plan.choice.cluster)


def _choose_texts(
    request: ScanRequest, scan_plan: ScanPlan, folder: Path, note: Callable[[str], None]
) -> Choice:
    """The plan's choice of texts, with repeated texts left out and a sample drawn where the request
    asks for it.
    """
    left_out: set[tuple[int, int]] = set()
    choice = scan_plan.choice
    most = intake.MOST  # hashes of more texts would take too much memory
    if request.dedupe and scan_plan.texts > most:
        note(
            message(
                "repeated texts are not looked for: the corpus has more than {most:,} records",
                most=most,
            )
        )
    elif request.dedupe:
        repeats = intake.find_repeated(planned_records(scan_plan, folder))
        left_out = set(repeats)
        choice = replace(choice, duplicates=intake.write_duplicates(folder, repeats))
    if request.sample:
        threshold = intake.sample_threshold(
            planned_records(scan_plan, folder), request.sample, request.seed, left_out
        )
        choice = replace(choice, sample=request.sample, threshold=threshold)
    return choice


def metric_version(name: str) -> str:
    """The first 12 digits of a sha256 of a metric's formula, rows, range and bins, so that another
    formula is another version."""
    metric = column_metric(name)
    scale = scale_of(metric)
    binned = (scale.kind, scale.count, scale.least, WIDTH)
    definition: tuple[object, ...] = (
        metric.formula,
        metric.rows,
        metric.low,
        metric.high,
        metric.needs,
        binned,
    )
    # of a metric from a file the formula is Python code; `source` has the digest of the file
    if name in FILE_METRICS:
        definition = (*definition, metric.source)
    return hashlib.sha256(repr(definition).encode()).hexdigest()[:12]


def check_model(model: Model) -> None:
    """Raise UnsupportedError for a model that cannot be scanned: one that is not read from a
    checkpoint, or whose masks depend on the text."""
    if not isinstance(model.store, CheckpointStore):
        raise UnsupportedError(
            "this model cannot be scanned", expected="a checkpoint of a native family"
        )
    for block in model.spec.blocks:
        if block.attention.hashing is not None or _depends_on_run(block.attention.mask):
            raise UnsupportedError(
                "a mask that depends on the text itself cannot be scanned",
                expected="masks known by position",
            )


def _depends_on_run(mask: Mask) -> bool:
    """Whether the keys that a mask hides depend on more than positions: on the text, whose vectors
    hashing reads, or on its length, which a matrix is made for."""
    if isinstance(mask, AllOf | AnyOf):
        return any(map(_depends_on_run, mask.parts))
    return isinstance(mask, MatrixMask | Hashed | SameBucket)


def _check_heads(heads: Sequence[tuple[int, int]], model: Model) -> None:
    """Raise UsageError for a (layer, head) that the model does not have."""
    for layer, head in heads:
        if layer >= len(model.spec.blocks) or head >= model.spec.blocks[layer].attention.heads:
            # where layers differ, the first one's number of heads stands for all
            first = model.spec.blocks[0].attention.heads
            expected = message(
                "{blocks} layers of {first} heads, from L0H0",
                blocks=len(model.spec.blocks),
                first=first,
            )
            raise UsageError(
                "there is no head {head}", expected=expected, head=head_name(layer, head)
            )


def model_digest(model: Model) -> str:
    """sha256 over the digests of a model's config, weights and adapters; the model must be of a
    checkpoint."""
    assert isinstance(model.store, CheckpointStore)
    checkpoint = model.store.checkpoint
    hasher = hashlib.sha256()
    if checkpoint.format != "gguf":  # a GGUF file holds the config itself
        hasher.update(digest(checkpoint.folder / "config.json").encode())
    weight_files = {tensor.file for tensor in checkpoint.names().values()}
    for path in sorted(weight_files):
        hasher.update(digest(path).encode())
    for request in map(parse_adapter, model.identity.adapters):
        for name in (CONFIG, WEIGHTS):
            hasher.update(digest(request.folder / name).encode())
        hasher.update(f"{request.weight!r}".encode())
    return hasher.hexdigest()


def _plan_model(model: Model, name: str) -> ModelPlan:
    """The part of a plan about the model: name, digests, layers and heads.

    name: as asked for.
    """
    assert isinstance(model.store, CheckpointStore)
    tokenizer = model.store.checkpoint.tokenizer_path
    if tokenizer is None:
        tokenizer_digest = ""
    else:
        tokenizer_digest = digest(tokenizer)
    heads = tuple(block.attention.heads for block in model.spec.blocks)
    # as `--adapter` writes them, a folder and perhaps a weight, from any working folder
    requests = map(parse_adapter, model.identity.adapters)
    adapters = tuple(
        structs.replace(request, folder=request.folder.absolute()).label for request in requests
    )
    return ModelPlan(name, model_digest(model), tokenizer_digest, len(heads), heads, adapters)


def check_scanned_model(scan_plan: ScanPlan, model: Model, name: str) -> None:
    """Raise InputError unless a model is the one that was scanned, wherever it is now.

    name: what the user calls the model now.
    """
    # the folders of adapters may have moved; what they hold is part of the digest
    model_plan = replace(
        _plan_model(model, scan_plan.model.name), adapters=scan_plan.model.adapters
    )
    if model_plan != scan_plan.model:
        raise InputError(
            "this is another model than the one that was scanned",
            where=name,
            expected="the weights and the tokenizer of {model}, digest {digest}",
            hint="--model names its place",
            model=scan_plan.model.name,
            digest=scan_plan.model.digest[:16],
        )
