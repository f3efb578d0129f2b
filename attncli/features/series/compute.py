"""What heads do over the checkpoints of one model, one checkpoint in memory at a time."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import EVERY
from attncli.documents import TokenRow
from attncli.documents.header import token_rows, tokens_of
from attncli.errors import AttnError, InputError, UsageError
from attncli.features.heads.compute import heads as measured_heads
from attncli.features.heads.document import HeadMetrics
from attncli.features.series.document import (
    LabelChange,
    SeriesCheckpoint,
    SeriesDocument,
    SeriesHead,
)
from attncli.inputs.files import LARGEST_FILE, open_regular
from attncli.inputs.hub import Fetch, own_cache_folder
from attncli.inputs.word_groups import token_notes
from attncli.language import message, plural
from attncli.measure.kept_results import KeptResults, description_digest
from attncli.measure.labels import repeat_scores
from attncli.measure.layer_metrics import column_metric
from attncli.mechanism.checked_arguments import checked
from attncli.models.aliases import locate
from attncli.models.estimate import duration_words
from attncli.models.load import load, open_checkpoint
from attncli.models.model import Model
from attncli.version import __version__

Floats = np.ndarray[Any, Any]

REPEATS = {"induction": "repeats_induction", "duplicate": "repeats_duplicate"}
"""Scores on random repeats, by the name that they have here."""
DEFAULT_METRICS = ("previous", "induction", "duplicate", "sink", "entropy")
"""What is measured where nobody says what."""
PIECE = 2**22
"""Bytes of a file that are read at once."""
MOST_CELLS = 4_000_000
"""Weights that a page of a series may hold."""


class SeriesRequest(Struct, frozen=True):
    """What is measured of each checkpoint of a series, and how.

    names: the checkpoints, as models are named.
    texts: what they read.
    metrics: of `attn heads`, or of `REPEATS`.
    maps: whether the weights of the first text are kept.
    backend, dtype: what computes.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]
    metrics: tuple[str, ...] = DEFAULT_METRICS
    maps: bool = False
    backend: str = "auto"
    dtype: str = "float32"


class MeasuredCheckpoint(Struct, frozen=True):
    """What was measured of one checkpoint, as it is kept on disk, found by the digest of its
    weights and of the request."""

    layers: int
    loss: float | None
    heads: list[SeriesHead]
    tokens: list[TokenRow]
    warnings: list[str]


def checkpoint_names(arguments: Sequence[str]) -> tuple[str, ...]:
    """The names of the checkpoints that a command line's arguments stand for: "m@a,b" is "m@a" and
    "m@b", two revisions of one model; any other is one checkpoint.

    Raises UsageError for fewer than two, and for one named twice.
    """
    names: list[str] = []
    for argument in arguments:
        base, _, revisions = argument.partition("@")
        if "," not in revisions:
            names.append(argument)
            continue
        for revision in revisions.split(","):
            if revision.strip():  # a comma at the end names nothing
                # "m@a,@b" means the same
                names.append(f"{base}@{revision.strip().removeprefix('@')}")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(
            message("the checkpoint {name} is named twice", name=repr(twice)),
            expected=message("each once"),
        )
    if len(names) < 2:
        raise UsageError(
            message("a series has two checkpoints or more, and {count} is named", count=len(names)),
            expected=message("folders such as my-model/step-*, or NAME@step1,step512"),
        )
    return tuple(names)


def step_of(name: str) -> int | None:
    """The number behind "step" or "checkpoint" in the last part of a name, else the last number in
    it: 512 of `owner/model@step512`, 9 of `step9-tokens2B`, 64 of `model/64`; None without a
    number.
    """
    last = _last_part(name)
    # perhaps with a sign between the two: step512, step-512, step_512
    numbers = re.findall(r"(?:step|checkpoint)[^\w]?_?(\d{1,15})", last)
    if not numbers:
        numbers = re.findall(r"\d{1,15}", last)
    if numbers:
        return int(numbers[-1])
    return None


@checked
def series(
    checkpoints: Sequence[str | Path],
    text: str | Iterable[str],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    maps: bool = False,
    backend: str = "auto",
    dtype: str = "float32",
    remember: bool = True,
    variables: Mapping[str, str] | None = None,
    note: Callable[[str], None] | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> SeriesDocument:
    """Measure the heads of each checkpoint of one model: what forms when.

    Args:
        checkpoints: Folders, or hub ids with revisions, in any order; `name@step1,step512` is two
            revisions.
        text: What every checkpoint reads, or several texts, over which numbers are means.
        metrics: Those of `heads`, and "induction" and "duplicate", which repeated words of its own
            tell.
        maps: Whether the weights of the first text are kept.
        backend: What computes: "auto", "numpy" or "torch".
        dtype: The type of the numbers.
        remember: Whether what was measured is kept in the user's cache folder, and taken from
            there.
        variables: Where the caches are looked up; None for the process's.
        note: Called with a sentence on what is fetched, and on what was measured before; None for
            nobody.
        progress: Called with the share that is done, 0 to 1.

    Returns:
        What `attn series --json` writes.

    Raises:
        UsageError: Fewer than two checkpoints, one named twice, no metric of that name, or a page
            of more than it can hold.
        InputError: A checkpoint is not there or damaged, or has other heads than the first.
        UnsupportedError: A family that cannot be read.
    """
    unordered_names = checkpoint_names(list(map(str, checkpoints)))
    chosen = tuple(dict.fromkeys(metrics))
    for name in chosen:
        if name not in REPEATS:
            column_metric(name)  # raises UsageError for one that is not there
    if variables is None:
        variables = os.environ
    # first, so that a model which is not there is refused before the text is read
    locate(unordered_names[0], variables=variables, fetch=Fetch(note))
    request = SeriesRequest(
        unordered_names,
        (text,) if isinstance(text, str) else tuple(text),
        chosen,
        maps=maps,
        backend=backend,
        dtype=dtype,
    )
    names = sort_checkpoints(unordered_names)
    steps = steps_of(names)
    rows: list[SeriesCheckpoint] = []
    tokens: list[TokenRow] = []
    warnings: list[str] = []
    layers = 0
    known: dict[str, str] = {}  # by the digest of the weights, the first checkpoint with them
    remembered = 0  # checkpoints that were measured before
    for place, name in enumerate(names):
        # download the next one meanwhile
        fetching = None
        if place + 1 < len(names):
            fetching = _fetch_ahead(names[place + 1], variables)

        # take what was measured before, or measure
        folder = locate(name, variables=variables, fetch=Fetch(note)).folder
        digest = tensor_digest(folder)
        kept = _kept_results(request, folder, digest, variables, remember=remember)
        measured = _remembered_measurement(kept, request)
        weights: Floats | None = None
        if measured is None:
            report = _share_reporter(request, place, len(names), note, progress)
            measured, weights = _measure(request, name, variables, note, report)
            kept.keep(measured)
        else:
            remembered += 1
        row = SeriesCheckpoint(
            name=name,
            step=steps[place],
            digest=digest,
            same_as=known.get(digest),
            loss=measured.loss,
            heads=measured.heads,
            maps=weights,
        )
        if rows:
            _check_same_heads(rows[0], row)
        rows.append(row)
        known.setdefault(digest, name)
        tokens = tokens or measured.tokens  # as the first checkpoint reads them
        layers = measured.layers
        warnings += [warning for warning in measured.warnings if warning not in warnings]
        progress((place + 1) / len(names))
        if fetching is not None:
            fetching.join()
    if remembered and note is not None:
        note(
            message(
                "cache: results of {count} of {all} checkpoints; --fresh measures them again",
                count=remembered,
                all=len(names),
            )
        )
    return SeriesDocument(
        version=__version__,
        text=request.texts[0],
        tokens=tokens,
        texts=len(request.texts),
        layers=layers,
        heads=max(row.head for row in rows[0].heads) + 1,  # of a layer; they count from 0
        metrics=list(request.metrics),
        checkpoints=rows,
        changes=label_changes(rows),
        warnings=[*warnings, *token_notes(request.texts[0], tokens_of(tokens))],
    )


def sort_checkpoints(names: Sequence[str]) -> list[str]:
    """Sort the names of checkpoints: those that differ only in their numbers by step, others keep
    their place: `step-10, step-9, final` gives `step-9, step-10, final`."""
    stems = [_stem_of(name) for name in names]
    groups: dict[str, list[str]] = {}
    for stem, name in zip(stems, names, strict=True):
        groups.setdefault(stem, []).append(name)
    for group in groups.values():  # a name without a number is the only one of its group
        group.sort(key=lambda name: step_of(name) or 0)
    # in place of each name the next one of its group
    sorted_groups = {stem: iter(group) for stem, group in groups.items()}
    return [next(sorted_groups[stem]) for stem in stems]


def steps_of(names: Sequence[str]) -> list[int | None]:
    """The training step of each of several checkpoints; None for a name without a number, or with a
    number that seems to be no step, because the name does not say "step" or "checkpoint" and no
    other differs from it in the number alone: the 2 of `ind2` beside `step-45`.
    """
    alike = Counter(_stem_of(name) for name in names)
    steps: list[int | None] = []
    for name in names:
        stem = _stem_of(name)
        if alike[stem] > 1 or re.search("step|checkpoint", stem):
            steps.append(step_of(name))
        else:
            steps.append(None)
    return steps


def _stem_of(name: str) -> str:
    """The last part of a name with a mark in place of each number: `step-#`."""
    return re.sub(r"\d+", "#", _last_part(name))


def _last_part(name: str) -> str:
    """The revision of a hub id, or the last folder of a path."""
    *_, last = re.split(r"[@/\\]", name.rstrip("/\\"))
    return last


def _kept_results(
    request: SeriesRequest,
    folder: Path,
    digest: str,
    variables: Mapping[str, str],
    *,
    remember: bool,
) -> KeptResults[MeasuredCheckpoint]:
    """The place in the user's cache folder for what is measured of one checkpoint, whose name
    follows from all that the numbers depend on; where nothing is to be remembered, a place that
    keeps nothing.

    folder: of the checkpoint.
    digest: of the checkpoint's tensors.
    variables: the environment variables, which say where the cache folder is.
    remember: whether anything is kept.
    """
    if not remember:
        return KeptResults(None, MeasuredCheckpoint)  # no file
    name = _request_digest(request, digest, description_digest(folder))
    file = own_cache_folder(variables) / "series" / f"{name}.json"
    return KeptResults(file, MeasuredCheckpoint)


def _check_same_heads(first: SeriesCheckpoint, row: SeriesCheckpoint) -> None:
    """Raise InputError for a checkpoint with other heads than the first of its series."""
    first_places = [(head.layer, head.head) for head in first.heads]
    places = [(head.layer, head.head) for head in row.heads]
    if places != first_places:
        raise InputError(
            message("{name} has other heads than {first}", name=row.name, first=first.name),
            expected=message("checkpoints of one model"),
        )


def label_changes(rows: Sequence[SeriesCheckpoint]) -> list[LabelChange]:
    """The labels that heads earn or lose from one checkpoint to the next."""
    changes = []
    for before, after in pairwise(rows):
        for first, second in zip(before.heads, after.heads, strict=True):
            for label in dict.fromkeys((*first.labels, *second.labels)):
                if (label in first.labels) != (label in second.labels):
                    changes.append(
                        LabelChange(
                            layer=first.layer,
                            head=first.head,
                            label=label,
                            earned=label in second.labels,
                            before=before.name,
                            after=after.name,
                        )
                    )
    return changes


def _fetch_ahead(name: str, variables: Mapping[str, str]) -> Thread:
    """Start a thread that downloads a checkpoint while another one is measured; errors are ignored,
    since they come again when the checkpoint itself is measured.

    variables: the environment variables, which say where downloads are kept.
    """

    def fetch() -> None:
        """Fetch the checkpoint into the cache of downloads."""
        with suppress(AttnError, OSError):
            locate(name, variables=variables, fetch=Fetch(None))  # with no notes

    thread = Thread(target=fetch, daemon=True)
    thread.start()
    return thread


def tensor_digest(folder: Path) -> str:
    """sha256 over a checkpoint's tensors in the order of their names, of each the name, type, shape
    and bytes; the same whatever files hold them.
    """
    checkpoint = open_checkpoint(folder)
    hasher = sha256()
    for name, info in sorted(checkpoint.names().items()):
        hasher.update(
            f"{name}\0{info.dtype}\0{list(info.shape)}\0".encode("utf-8", "surrogatepass")
        )
        stream, _ = open_regular(info.file, what=message("a weight file"), limit=LARGEST_FILE)
        with stream as file:
            file.seek(info.start)
            left = info.bytes
            while left > 0 and (piece := file.read(min(left, PIECE))):
                hasher.update(piece)
                left -= len(piece)
    return hasher.hexdigest()


def _request_digest(request: SeriesRequest, digest: str, description: str) -> str:
    """The key under which a measurement is remembered: sha256 of the request, of the digest of the
    weights, and of the digest of everything else in the checkpoint.
    """
    asked_for = (request.texts, request.metrics, request.backend, request.dtype)
    inputs = (__version__, digest, description, *asked_for)
    return sha256(repr(inputs).encode("utf-8", "surrogatepass")).hexdigest()


def _remembered_measurement(
    kept: KeptResults[MeasuredCheckpoint], request: SeriesRequest
) -> MeasuredCheckpoint | None:
    """What was measured of a checkpoint before; None where nothing was, where the file is no answer
    to the request, and where maps are asked for, which are too large to be kept."""
    if request.maps:
        return None
    measured = kept.read()
    if measured is None or not _is_whole(measured, request):
        return None
    return measured


def _is_whole(measured: MeasuredCheckpoint, request: SeriesRequest) -> bool:
    """Whether what was remembered is an answer to the request: each head once, with each metric. A
    file in the cache may be damaged, or changed by somebody."""
    places = [(head.layer, head.head) for head in measured.heads]
    metrics = {*request.metrics}
    return (
        bool(places)
        and len({*places}) == len(places)
        and min(min(place) for place in places) >= 0
        and max(layer for layer, _ in places) < measured.layers
        and all({*head.metrics} == metrics for head in measured.heads)
        and bool(measured.tokens)
    )


def _measure(
    request: SeriesRequest,
    name: str,
    variables: Mapping[str, str],
    note: Callable[[str], None] | None,
    progress: Callable[[float], None],
) -> tuple[MeasuredCheckpoint, Floats | None]:
    """Load one checkpoint and measure it. Returns (what was measured, the weights of its heads in
    the first text [head, query, key], None where no maps are wanted); the model is let go.

    name: of the checkpoint.
    variables: the environment variables, which say where models are.
    note: called with a sentence on what is fetched; None for nobody.
    progress: called with the share of the texts that is done.
    """
    model = load(name, backend=request.backend, dtype=request.dtype, note=note, variables=variables)
    if not model.own_layers:
        raise UsageError(
            message(
                "{name} runs through transformers alone, and a series needs its layers one by one",
                name=name,
            ),
            expected=message("a family that runs natively"),
        )
    repeats = repeat_scores(model, EVERY)  # scores by name, of each (layer, head)
    names = tuple(metric for metric in request.metrics if metric not in REPEATS)
    heads: dict[tuple[int, int], HeadMeasurements] = {}
    losses: list[float] = []
    tokens: list[TokenRow] = []
    maps: Floats | None = None
    for place, text in enumerate(request.texts):
        text_tokens = model.encode(text)
        keep_maps = request.maps and place == 0
        if keep_maps:
            _refuse_large_page(len(request.names), model, len(text_tokens))
        document = measured_heads(
            model,
            text,
            metrics=names,
            maps=keep_maps,
            labels=True,
            whole=True,
            tokens=text_tokens,
            repeats=repeats,
        )
        for head in document.heads:
            measurements = heads.setdefault(
                (head.layer, head.head), HeadMeasurements(values={}, labels=Counter())
            )
            measurements.add(head, names)
        if keep_maps:
            maps = np.stack([np.asarray(head.weights, np.float32) for head in document.heads])
        tokens = tokens or token_rows(text_tokens)  # of the first text
        loss = _next_token_loss(model, text)
        if loss is not None:
            losses.append(loss)
        progress((place + 1) / len(request.texts))
    mean_loss = None
    if losses:
        mean_loss = float(np.mean(losses))
    rows = [
        measurements.row(place, request, repeats[place]) for place, measurements in heads.items()
    ]
    return (
        MeasuredCheckpoint(len(model.spec.blocks), mean_loss, rows, tokens, list(model.warnings)),
        maps,
    )


class HeadMeasurements(NamedTuple):
    """What was measured of a head, text by text.

    values: of each metric, where it has one.
    labels: in how many texts the head earned each.
    """

    values: dict[str, list[float]]
    labels: Counter[str]

    def add(self, head: HeadMetrics, names: Sequence[str]) -> None:
        """Add what was measured in one text, of the metrics of these names."""
        for metric in names:
            value = head.metrics[metric].value
            if value is not None and np.isfinite(value):
                self.values.setdefault(metric, []).append(value)
        self.labels.update(head.labels or ())

    def row(
        self, place: tuple[int, int], request: SeriesRequest, repeats: Mapping[str, float | None]
    ) -> SeriesHead:
        """The document's entry on the head: the means over texts, and the labels that it earned in
        half of the texts or more.

        place: its (layer, head).
        repeats: its scores on random repeated tokens, by name.
        """
        # None for a metric that no text has
        means: dict[str, float | None] = dict.fromkeys(request.metrics)
        means |= {metric: float(np.mean(values)) for metric, values in self.values.items()}
        means |= {metric: repeats[score] for metric, score in REPEATS.items() if metric in means}
        labels = [label for label, count in self.labels.items() if 2 * count >= len(request.texts)]
        layer, head = place
        return SeriesHead(layer=layer, head=head, metrics=means, labels=labels)


FORETOLD_AFTER = 1.0
"""Seconds of a checkpoint's texts that tell how long all of it takes."""
LONG_WORK = 10.0
"""Expected seconds from which on they are told."""


def _share_reporter(
    request: SeriesRequest,
    place: int,
    count: int,
    note: Callable[[str], None] | None,
    progress: Callable[[float], None],
) -> Callable[[float], None]:
    """The function to call with the share of one checkpoint's texts that is done: passes on the
    share of the series and, at the first checkpoint, notes once how long all takes where that is
    long.

    place: which checkpoint it is, from 0.
    count: how many there are.
    note: called with that sentence; None for nobody.
    progress: called with the share of the series that is done.
    """
    start_time = perf_counter()
    is_note_due = place == 0 and note is not None

    def report(share: float) -> None:
        """Report the share of the series, and once, after a second, how long all of it will
        take."""
        nonlocal is_note_due
        progress((place + share) / count)
        elapsed = perf_counter() - start_time
        if is_note_due and elapsed >= FORETOLD_AFTER:
            is_note_due = False
            seconds = elapsed / share * count
            if seconds >= LONG_WORK and note is not None:
                note(
                    plural(
                        "{count:,} text in {checkpoints} checkpoints: about {duration}; fewer"
                        " checkpoints take less, Ctrl-C ends it",
                        "{count:,} texts in {checkpoints} checkpoints: about {duration}; fewer"
                        " lines or checkpoints take less, Ctrl-C ends it",
                        count=len(request.texts),
                        checkpoints=count,
                        duration=duration_words(seconds),
                    )
                )

    return report


def _refuse_large_page(checkpoints: int, model: Model, count: int) -> None:
    """Raise UsageError where the maps of all checkpoints are more than a page holds.

    count: tokens of the text.
    """
    heads = sum(block.attention.heads for block in model.spec.blocks)
    if checkpoints * heads * count * count > MOST_CELLS:
        raise UsageError(
            message(
                "the page would hold {weights:,} weights: {checkpoints} checkpoints, {heads} heads,"
                " {count} tokens",
                weights=checkpoints * heads * count * count,
                checkpoints=checkpoints,
                heads=heads,
                count=count,
            ),
            expected=message(
                "{most:,} at most: a shorter text, or fewer checkpoints", most=MOST_CELLS
            ),
        )


def _next_token_loss(model: Model, text: str) -> float | None:
    """The loss of a decoder on a text: the mean of −ln p of each token after the first, in nats;
    None for a model that predicts no tokens, and for a text of one token.
    """
    tokens = model.encode(text)
    ids = [token.id for token in tokens]
    if model.spec.head is None or len(ids) < 2 or None in ids:
        return None
    (last,) = model.trace(tokens, layers=[len(model.spec.blocks) - 1], keep=(), idle=True)
    try:
        scores = np.asarray(model.backend.numpy(model.logits(last.after)), np.float64)[:-1]
    except AttnError:  # a file without its output head
        return None
    shifted = scores - scores.max(-1, keepdims=True)  # so that exp does not overflow
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return float(-log_p[np.arange(len(ids) - 1), ids[1:]].mean())
