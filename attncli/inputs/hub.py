"""From the name of a model to a folder that holds it: a folder, the hub's local cache, or a fetch
from the hub.

Only the files that `attn` reads are fetched. Files that must be certain ones are held against their
sha256, and those that are good are remembered until they change.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from enum import Enum, auto
from inspect import signature
from io import SEEK_END, BytesIO, StringIO
from pathlib import Path
from shlex import quote
from shutil import disk_usage
from typing import Any, Literal, TypeVar, assert_never

from msgspec import Struct

from attncli.arrays.backend import torch_is_installed
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError
from attncli.inputs.checkpoint import (
    CONVERT,
    INDEX,
    PICKLED_SINGLE,
    SINGLE,
    WEIGHT_FILES,
    TensorInfo,
    find_tensors,
    local_header,
    shard_names,
)
from attncli.inputs.files import (
    atomic_writer,
    folder_entries,
    growing_file,
    is_file,
    is_folder,
    is_there,
    open_regular,
    read_object,
    read_regular,
)
from attncli.inputs.safetensors_file import HEADER_LIMIT, SafetensorsHeader, read_header
from attncli.language import listing, message, term

MEMORY = "verified.json"
"""The file of the user's cache folder that remembers which files were found good."""
REF_LIMIT = 1000
"""Bytes of a file that names a commit."""
MOST_REMEMBERED = 200
"""Files that were found good and are remembered; of more, the oldest are forgotten."""


def verify_digests(
    folder: Path, expected: Mapping[str, str], *, variables: Mapping[str, str], hint: str
) -> None:
    """Raise InputError where a file of a folder has another sha256 than expected.

    expected: sha256 in hexadecimal by file name.
    variables: the environment, which may say where the user's cache folder is.
    hint: what to try then.

    A file that was found good before, and has kept its place, size and times, is not read again;
    that is remembered in the user's cache folder, or not at all where that cannot be written.
    Raises InputError for a file that is missing or differs, with both digests.
    """
    memory = own_cache_folder(variables) / MEMORY
    memory_entries = _read_verified(memory)
    new_entries = {}
    for name, expected_digest in expected.items():
        path = (folder / name).resolve()
        stamp = _file_stamp(path)
        if stamp is not None and memory_entries.get(str(path)) == [expected_digest, *stamp]:
            continue
        file_digest = digest(path)
        if file_digest != expected_digest:
            what = message(
                "{name} has the sha256 {file_digest}", name=repr(name), file_digest=file_digest
            )
            raise InputError(what, where=str(folder), expected=expected_digest, hint=hint)
        # not where the file has changed while it was read
        if stamp is not None and stamp == _file_stamp(path):
            new_entries[str(path)] = [expected_digest, *stamp]
    if new_entries:
        _remember(memory, memory_entries, new_entries)


def remember_digest(path: Path, known: str, variables: Mapping[str, str]) -> None:
    """Record in the user's cache that a file has the sha256 `known`, so that `verify_digests` need
    not read it. The caller has just written the file and computed it.

    variables: the environment, which may say where the cache is.
    """
    memory = own_cache_folder(variables) / MEMORY
    stamp = _file_stamp(path.resolve())
    if stamp is not None:
        _remember(memory, _read_verified(memory), {str(path.resolve()): [known, *stamp]})


def _remember(memory: Path, old: Mapping[str, object], new: Mapping[str, object]) -> None:
    """Write the record of checked files to the cache file `memory`: the old entries and behind them
    the new ones, of which the last `MOST_REMEMBERED` are kept. Entries go by path."""
    entries = {path: entry for path, entry in old.items() if path not in new} | dict(new)
    _write_verified(memory, dict(list(entries.items())[-MOST_REMEMBERED:]))


def digest(path: Path) -> str:
    """The sha256 of a file in hexadecimal. Raises as `open_regular`."""
    import hashlib  # loads OpenSSL, which files that are remembered do without

    stream, _ = open_regular(path, what="a file")
    with stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # open_regular gives a buffered reader


def own_cache_folder(variables: Mapping[str, str]) -> Path:
    """The folder of `attn`'s own cache, for what can be computed again: XDG_CACHE_HOME/attn or
    ~/.cache/attn; on Windows LOCALAPPDATA/attn.
    """
    place = variables.get("XDG_CACHE_HOME")
    if not place and sys.platform == "win32":
        place = variables.get("LOCALAPPDATA")
    return Path(place or os.path.expanduser("~/.cache")) / "attn"  # noqa: PTH111 - never raises


def _file_stamp(path: Path) -> list[int] | None:
    """Numbers that differ once a file has changed: size, times, inode and device; None where there
    is no file. The time of change (ctime) cannot be set back by whoever writes the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _read_verified(memory: Path) -> dict[str, object]:
    """The record of files whose digests were checked before, from the cache file `memory`; {} where
    it cannot be read."""
    try:
        return read_object(memory, what="a list of files")
    except AttnError:  # there is none yet, or it is not worth keeping
        return {}


def _write_verified(memory: Path, entries: Mapping[str, object]) -> None:
    """Write the record of files whose digests were checked to the cache file `memory`; nothing
    where that cannot be written."""
    with suppress(OSError, AttnError):
        memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_writer(memory, alone=True) as stream:
            stream.write(json.dumps(entries).encode())


# How much of a file the hub's library has fetched, told to someone else than its own progress bars.

Watch = Callable[[str, float], None]
"""Told the name of a file and the share of it that is there, 0 to 1."""


def bar_class(watch: Watch, file: str) -> type:
    """A class that replaces the progress bars of the hub's library: it draws nothing and passes
    `watch` the share of `file` that has arrived.
    """
    from tqdm import tqdm

    class ProgressBar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        monitor_interval = 0  # nothing is drawn that a thread would have to refresh

        def __init__(self, *args: Any, **settings: Any) -> None:
            """A bar that counts even where the library disables it, and draws to nowhere."""
            super().__init__(*args, **{**settings, "disable": False, "file": StringIO()})

        def display(self, *args: Any, **settings: Any) -> bool:
            """Draws nothing: what is fetched is shown by `watch`."""
            return True

        def update(self, n: float | None = 1) -> bool | None:
            """Count `n` bytes more, and hand `watch` the share of the file that is here."""
            displayed: bool | None = super().update(n)
            if self.total:
                watch(file, min(self.n / self.total, 1.0))
            return displayed

    return ProgressBar


# `Fetch`: how a model that is not on this machine yet is fetched.


class Parts(Enum):
    """How much of a model is to be fetched: all files, headers without weights, or the tokenizer
    alone.
    """

    WHOLE = auto()
    HEADERS = auto()  # what says what it is: no weights, but how many and of which types
    TOKENIZER = auto()


class Fetch(Struct, frozen=True):
    """What to fetch of a model, and the callbacks that are told of it or may refuse it.

    note: told what is being fetched; None for silence, of progress bars too.
    accept: handed the folder once its config.json is there and before anything large is fetched, to
        raise for a model that is of no use.
    parts: the whole model, or which of its files.
    watch: told how much of each file is there, in place of progress bars of the hub's own library.
    """

    note: Callable[[str], None] | None = lambda message: None
    accept: Callable[[Path], object] = lambda folder: None
    parts: Parts = Parts.WHOLE
    watch: Watch | None = None


WHOLE = Fetch()
"""A whole model, told to nobody, with progress bars on a terminal."""


# The local cache that the Hugging Face hub's own library keeps, read without importing that
# library.
#
# Layout: `models--OWNER--NAME/snapshots/COMMIT/FILE`, each file a link into `blobs/`; `refs/BRANCH`
# holds a commit; `.no_exist/COMMIT/FILE` remembers files that the hub does not have. Source:
# huggingface_hub, "Understand caching".

DEFAULT_REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")
_ID = re.compile(
    r"(?:[A-Za-z0-9](?:[\w.-]{0,94}[\w-])?/)?[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?", re.ASCII
)
_REVISION = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)
_FOLDER = "models--"
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
"""The file that says how a model continues texts; most have none."""
CHATS = (
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
)
"""The files that say how a model writes chats; many have none."""
VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "tekken.json",
)
"""The files that hold a vocabulary where there is no tokenizer.json."""
BESIDE_A_VOCABULARY = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""The files that say how such a vocabulary is used."""
DESCRIPTION = ("config.json", TOKENIZER)
"""The files that say what a model is and how it cuts texts."""


class HubId(Struct, frozen=True):
    """A model on the hub: `owner/name`, or a bare `name` as the oldest models have it, at a branch,
    tag or commit.
    """

    name: str
    revision: str = DEFAULT_REVISION

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """The id in "owner/name" or "owner/name@revision"; None where the text cannot be one."""
        name, separator, revision = text.partition("@")
        # the hub allows neither "--", which stands for "/" in the cache, nor ".."
        if not _ID.fullmatch(name) or any(part in name for part in ("--", "..")):
            return None
        if not separator:
            return cls(name)
        if _REVISION.fullmatch(revision) and ".." not in revision:
            return cls(name, revision)
        return None

    def __str__(self) -> str:
        if self.revision == DEFAULT_REVISION:
            return self.name
        return f"{self.name}@{self.revision}"


class Snapshot(Struct, frozen=True):
    """One version (commit) of a model in the local cache.

    missing: names of needed files that are not there.
    """

    name: str
    commit: str
    folder: Path
    missing: tuple[str, ...]


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Where the hub's library keeps its cache: HF_HUB_CACHE, HF_HOME/hub, or
    ~/.cache/huggingface/hub.
    """
    setting = variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE")
    home = (
        variables.get("HF_HOME") or f"{variables.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    )
    return Path(os.path.expandvars(os.path.expanduser(setting or f"{home}/hub")))  # noqa: PTH111 - never raises


def find_snapshot(cache: Path, hub_id: HubId) -> Snapshot | None:
    """The version of a model that the cache holds for this id; None if there is none. Never uses
    the network.
    """
    repository = cache / (_FOLDER + hub_id.name.replace("/", "--"))
    if COMMIT.fullmatch(hub_id.revision):
        commit: str | None = hub_id.revision
    else:
        commit = _find_commit(repository, hub_id.revision)
    if commit is None or not is_folder(repository / "snapshots" / commit):
        return None
    folder = repository / "snapshots" / commit
    return Snapshot(hub_id.name, commit, folder, tuple(_missing_files(repository, folder)))


def _find_commit(repository: Path, revision: str) -> str | None:
    """The commit that a branch, a tag or the beginning of a commit names; None where the cache
    knows none, or several."""
    place = repository / "refs" / revision
    try:
        raw = read_regular(place, what=message("a file"), limit=REF_LIMIT)
    except InputError:  # no branch or tag of this name
        if not _SHORT_COMMIT.fullmatch(revision):
            return None
    except LimitError:
        return None
    else:
        commit = raw.decode("ascii", "replace").strip()
        if COMMIT.fullmatch(commit):
            return commit
        return None
    # the beginning of a commit: of all whose snapshots are here, exactly one must begin so
    commits = [
        folder.name
        for folder in (repository / "snapshots").glob(f"{revision}*")
        if COMMIT.fullmatch(folder.name)
    ]
    if len(commits) == 1:
        return commits[0]
    return None


def cached_snapshots(cache: Path) -> Iterator[Snapshot]:
    """Every version of every model in the cache that has a config.json, by name."""
    try:
        repositories = [path for path in folder_entries(cache) if path.name.startswith(_FOLDER)]
    except InputError:  # no cache, or none that may be read
        return
    for repository in repositories:
        name = repository.name.removeprefix(_FOLDER).replace("--", "/")
        for folder in sorted((repository / "snapshots").glob("*")):
            if HubId.parse(name) is None or not COMMIT.fullmatch(folder.name):
                continue
            missing = tuple(_missing_files(repository, folder))
            if "config.json" not in missing:
                yield Snapshot(name, folder.name, folder, missing)


def _missing_files(repository: Path, folder: Path) -> Iterator[str]:
    """The names of the files that a version of a model needs and its folder lacks.

    repository: the model's folder in the cache.
    """
    if not _is_cached(folder / "config.json"):
        yield "config.json"
    try:
        yield from (name for name in _weight_files(folder) if not is_there(folder / name))
    except AttnError:
        return  # opening the checkpoint will report the malformed index
    # the hub's library leaves such a marker where the model has no tokenizer.json to fetch
    marker = repository / ".no_exist" / folder.name / TOKENIZER
    if not _is_cached(folder / TOKENIZER) and not _is_cached(marker):
        yield TOKENIZER


def _is_cached(path: Path) -> bool:
    """Whether the cache has this file; a file that cannot be looked up counts as missing."""
    try:
        return is_there(path)
    except InputError:
        return False


def _weight_files(folder: Path) -> list[str]:
    """The names of the weight files that a model needs: safetensors, else torch's pickled ones; the
    usual safetensors name where the folder has neither."""
    for single, index, ending in WEIGHT_FILES:
        if is_there(folder / single):
            return [single]
        if is_there(folder / index):
            return shard_names(folder / index, ending)
    return [SINGLE]


# GGUF files: one of them is a model, in a folder or by itself.

SUFFIX = ".gguf"
LATER_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
"""The name of one of several files of a model: what they share, which it is, and of how many."""
QUANTIZATION = re.compile(r"([^:]+):([A-Za-z0-9_.-]{1,40})")
"""A hub id and which of its files: `owner/name:Q4_K_M`."""
MOST_NAMES = 6
"""File names that are listed where one is to be chosen."""


def gguf_file(place: Path) -> Path | None:
    """The GGUF file at a path: the path itself, or the only model in a folder without other
    weights; None where it is neither.

    Raises InputError for a folder with several models.
    """
    if is_file(place):
        return place
    if any(is_there(place / name) for single, index, _ in WEIGHT_FILES for name in (single, index)):
        return None
    return chosen_file(place)


def chosen_file(folder: Path, quantization: str = "") -> Path | None:
    """The GGUF file to read in a folder: its only model, of a split one the first part; None
    without any.

    quantization: part of its name, such as "Q4_K_M", in any case.

    Raises InputError where several remain, or none has that in its name.
    """
    names = [path.name for path in folder_entries(folder) if path.suffix.lower() == SUFFIX]
    if not quantization and not _first_parts(names):
        return None
    return folder / _chosen_name(names, quantization, str(folder))


def _chosen_name(names: Iterable[str], quantization: str, where: str) -> str:
    """The only one of several GGUF file names, or the only one with this quantization.

    where: the folder or address that has these files, for errors.

    Raises InputError where several remain, or none has the quantization in its name.
    """
    firsts = _first_parts(names)
    fitting = _fitting_names(firsts, quantization)
    if len(fitting) == 1:
        return fitting[0]
    if quantization:
        what = message(
            "this folder holds {count} .gguf files whose name has {quantization}",
            count=len(fitting),
            quantization=repr(quantization),
        )
    else:
        what = message("this folder holds {count} .gguf files", count=len(fitting))
    # where none has the quantization in its name, all of them; "…" where there are none at all
    shown = fitting or firsts
    names_shown = listing(map(repr, shown[:MOST_NAMES])) or "…"
    raise InputError(what, where=where, expected="one of them: {names}", names=names_shown)


def _first_parts(names: Iterable[str]) -> list[str]:
    """The names of the GGUF files of models, in order; of a split file, the first part that is
    there.
    """
    firsts: dict[str, str] = {}
    for name in sorted(names):
        # "mmproj-…" is the part of a model that sees images
        if not name.lower().endswith(SUFFIX) or name.lower().startswith("mmproj"):
            continue
        match = LATER_PART.fullmatch(name)  # STEM-00001-of-00003.gguf: stem, number, count
        if match is None:
            firsts[name] = name
        else:
            # parts of one model share stem and count; the first of them in order is kept
            firsts.setdefault(f"{match[1]}-of-{match[3]}", name)
    return sorted(firsts.values())


def _fitting_names(names: Sequence[str], quantization: str) -> list[str]:
    """The names that contain a quantization; where several do, those that contain it as a whole
    word: "Q4_K_M" is no word of "Q4_K_M_L".
    """
    fitting = [name for name in names if quantization.lower() in name.lower()]
    if len(fitting) == 1 or not quantization:
        return fitting
    word = re.compile(rf"(?<![A-Z0-9_]){re.escape(quantization)}(?![A-Z0-9_])", re.IGNORECASE)
    return [name for name in fitting if word.search(name)]


def _parts_of(name: str) -> list[str]:
    """The names of all parts of a GGUF file, from the name of its first."""
    match = LATER_PART.fullmatch(name)
    if match is None:
        return [name]
    stem, _, total = match.groups()
    return [f"{stem}-{part:05}-of-{total}{SUFFIX}" for part in range(1, int(total) + 1)]


def _quantized_id(name: str) -> tuple[HubId, str] | None:
    """A hub id and the quantization of one of its GGUF files; None for a name of another form."""
    match = QUANTIZATION.fullmatch(name)
    if match is None:
        return None
    hub_id = HubId.parse(match[1])
    if hub_id is None:
        return None
    return hub_id, match[2]


def _gguf_location(
    name: str, hub_id: HubId, quantization: str, variables: Mapping[str, str], fetch: Fetch
) -> ModelLocation:
    """The GGUF file of a hub id with a quantization, from the hub's local cache, else fetched into
    it. Raises InputError where no file or several fit, where it cannot be fetched, and where
    `fetch` asks for less than a whole model, since a GGUF file is fetched whole.

    name: what the user wrote.
    quantization: part of the file's name, such as "Q4_K_M".
    variables: the environment, which says where the cache is and may forbid the network.
    """
    cache = cache_folder(variables)
    snapshot = find_snapshot(cache, hub_id)
    if snapshot is not None:
        entries = folder_entries(snapshot.folder)
        names = [path.name for path in entries if path.suffix.lower() == SUFFIX]
        # without a network one of the cached files must fit, or an error names them; with one, the
        # hub may have the file that is asked for
        if (is_offline(variables) and names) or _fitting_names(_first_parts(names), quantization):
            first = _chosen_name(names, quantization, str(snapshot.folder))
            # else a part is missing, and the file is fetched below
            if set(_parts_of(first)) <= set(names):
                return ModelLocation(snapshot.folder / first, name, snapshot.commit, "cache")
    if is_offline(variables):
        raise _offline_error(name, cache)
    if fetch.parts is not Parts.WHOLE:
        raise InputError(
            "the local cache does not hold {name}, and a .gguf file is fetched whole or not at all",
            where=str(cache),
            expected="a file that is there",
            hint=f"attn models fetch {quote(name)}",
            name=name,
        )
    file, commit = download_gguf(hub_id, quantization, cache, variables, fetch)
    return ModelLocation(file, name, commit, "hub")


def _offline_error(name: HubId | str, cache: Path, *, missing: str = "") -> InputError:
    """The error, returned and not raised, that the environment forbids fetching.

    missing: the file that the cache lacks of a model; "" for all of them.
    """
    if missing:
        what = message(
            "the local cache lacks {file} of {hub_id}, and HF_HUB_OFFLINE forbids fetching it",
            file=missing,
            hub_id=name,
        )
    else:
        what = message(
            "the local cache does not hold {hub_id}, and HF_HUB_OFFLINE forbids fetching it",
            hub_id=name,
        )
    return InputError(
        what,
        where=str(cache),
        expected="a model in the cache, or a folder that exists",
        hint="unset HF_HUB_OFFLINE, or --model FOLDER",
    )


class ModelLocation(Struct, frozen=True):
    """Where the files of a model are.

    name: what the user wrote.
    revision: the commit, None for a folder.
    source: how it was found.

    tensors: where they would lie, for weights that were not wanted and are not there; None for
    weights that are.
    """

    folder: Path
    name: str
    revision: str | None
    source: Literal["folder", "package", "cache", "hub"]
    tensors: Mapping[str, TensorInfo] | None = None


ALIKE = 0.85
"""How alike two names are, from 0 to 1, of which one may be a misspelling of the other."""
DIGITS = re.compile(r"\d+")
MOST_BESIDE = 1000
"""Entries of a folder that a misspelt name is compared with."""
MOST_NAMED = 8
"""Entries of a folder that an error names."""


def _near_place(place: Path) -> Path | None:
    """A model's folder or GGUF file of nearly the same name, or the first file of such a folder,
    beside a place that does not exist; None without one. Names that differ in a number, such as a
    size or version, do not count.
    """
    name = place.name.lower()
    # the name with what a file's name ends in: .gguf, or -00001-of-00003.gguf
    completed = re.compile(rf"{re.escape(name.removesuffix(SUFFIX))}(-00001-of-\d{{5}})?\{SUFFIX}")
    best: tuple[float, Path] | None = None  # likeness and path
    try:
        entries = [path.name for path in folder_entries(place.parent)][:MOST_BESIDE]
    except (AttnError, OSError, ValueError):
        return None
    for entry in sorted(entries):
        path = place.parent / entry
        alike = SequenceMatcher(None, name, entry.lower()).ratio()
        if completed.fullmatch(entry.lower()):
            alike = 1.0
        elif alike < ALIKE or DIGITS.findall(name) != DIGITS.findall(entry):
            continue
        is_model = path.suffix.lower() == SUFFIX or is_there(path / "config.json")
        if is_model and (best is None or alike > best[0]):
            best = alike, path
    if best is None:
        return None
    return best[1]


def _misspelt(name: str, near: Path) -> InputError:
    """The error, returned and not raised, that there is no folder or file `name`. It suggests
    `near`, a model in the same folder whose name is nearly the same.
    """
    return InputError(
        "there is no such folder or file",
        where=name,
        expected=message("a model that is there; beside it lies {near}", near=near.name),
        hint=f"--model {quote(str(near))}",
    )


def resolve(
    name: str, *, variables: Mapping[str, str] | None = None, fetch: Fetch = WHOLE
) -> ModelLocation:
    """Find a model by name: in a folder, in the local cache, or by fetching it from the hub into
    the cache.

    name: a folder, its config.json or a GGUF file; a hub id `owner/name[@revision]`; or a hub id
        with the quantization of one of its GGUF files, `owner/name:Q4_K_M`. A folder of that name
        comes first.
    variables: the environment; None for that of this process.
    fetch: what to fetch where the model is not here, and how it is told.

    A model in the local cache is taken from there without asking the hub; else it is downloaded,
    unless HF_HUB_OFFLINE is set. Raises InputError where there is no such model or it cannot be
    fetched, UnsupportedError where its weights are of a kind that is not read.
    """
    if variables is None:
        variables = os.environ
    folder = Path(os.path.expanduser(name))  # noqa: PTH111 - pathlib's own raises for users that do not exist
    exists = bool(name) and os.path.exists(folder)  # noqa: PTH110 - pathlib's own raises for names that are too long
    if exists:
        if is_folder(folder) or (folder.suffix.lower() == ".gguf" and is_file(folder)):
            return ModelLocation(folder, name, revision=None, source="folder")
        if folder.name == "config.json" and is_file(folder):
            return ModelLocation(
                folder.parent, str(Path(name).parent), revision=None, source="folder"
            )
        raise _no_model(name, is_file=True)
    quantized = _quantized_id(name)
    if quantized is not None:
        hub_id, quantization = quantized
        return _gguf_location(name, hub_id, quantization, variables, fetch)
    return _hub_location(name, folder, variables, fetch)


def _not_within(what: str, name: str, folder: Path) -> InputError:
    """The error, returned and not raised, that a folder is not there though the one above it is; it
    names the models in that, or what else it holds.

    what: the message.
    name: as the user wrote it.
    """
    entries = sorted(path.name for path in folder_entries(folder.parent))[:MOST_BESIDE]
    models = [entry for entry in entries if _is_model(folder.parent / entry)]
    hint = ""
    if models:
        hint = f"--model {quote(str(folder.parent / models[0]))}"
    elif _is_model(folder.parent):
        hint = f"--model {quote(str(folder.parent))}"
    shown = models or entries
    names = listing(shown[:MOST_NAMED])
    if len(shown) > MOST_NAMED:
        names = message("{names} and more", names=names)
    expected = message("in {folder} there is nothing", folder=folder.parent)
    if shown:
        expected = message("what {folder} holds: {names}", folder=folder.parent, names=names)
    return InputError(what, where=name, expected=expected, hint=hint)


def _is_model(folder: Path) -> bool:
    """Whether a folder holds the description of a model."""
    return is_there(folder / "config.json")


def _as_a_path(name: str, folder: Path, near: Path | None) -> InputError | None:
    """The error, returned and not raised, for a name that the hub does not know and that may be meant
    as a path; None where nothing of that path is there.

    near: a model on disk whose path is almost the same; None without one.
    """
    if near is not None:
        return _misspelt(name, near)
    if "/" in name and is_folder(folder.parent):
        what = message("there is no such folder, and the hub gives no model of that name")
        return _not_within(what, name, folder)
    return None


def _hub_location(
    name: str, folder: Path, variables: Mapping[str, str], fetch: Fetch
) -> ModelLocation:
    """A model of the hub, from the cache or fetched into it.

    name: what the user wrote.
    folder: the same as a path, where nothing is; a model on disk whose path is almost the same may
        be meant.
    variables: the environment, which says where the cache is and may forbid the network.

    Raises InputError for a name that is no hub id, and where the model is not here and cannot be
    fetched; UnsupportedError where its weights are of a kind that is not read.
    """
    near = _near_place(folder)
    hub_id = HubId.parse(name)
    snapshot = None
    if hub_id is not None:
        snapshot = find_snapshot(cache_folder(variables), hub_id)
    # a misspelt path: one that is no hub id, or that is near a GGUF file, which the hub has not
    if near is not None and snapshot is None and (hub_id is None or near.suffix.lower() == SUFFIX):
        raise _misspelt(name, near)
    if hub_id is None:
        raise _no_model(name, is_file=False)
    if snapshot is None and near is None and "/" in name and _is_model(folder.parent):
        # a place within a model, such as a snapshot of a training: no owner of the hub
        raise _not_within(message("there is no such folder"), name, folder)
    # what the cache lacks of the model, and the model in the cache if it can be used all the same
    missing = []
    usable = None
    if snapshot is not None:
        missing = _missing_of(snapshot, fetch)
        cached = ModelLocation(snapshot.folder, name, snapshot.commit, "cache")
        if not missing:
            return cached
        # without its weights a model is of no use; without a tokenizer it still runs on token ids
        if missing == [TOKENIZER]:
            usable = cached
    _note_missing_folder(name, folder, fetch, is_cached=snapshot is not None)
    first_missing = ""
    if missing:
        first_missing = missing[0]
    try:
        return _fetch_model(name, hub_id, variables, fetch, missing=first_missing)
    except AttnError as error:
        if usable is not None:
            return usable
        # only where the hub does not know the name, or may not be asked, may a path be meant
        if not (isinstance(error, InputError) or is_offline(variables)):
            raise
        path_error = _as_a_path(name, folder, near)
        if path_error is None:
            raise
        raise path_error from error


def _note_missing_folder(name: str, folder: Path, fetch: Fetch, *, is_cached: bool) -> None:
    """Say that there is no folder of this name, before the hub is asked for it: a name that begins
    with a folder of this place is more likely a path than an owner of the hub.

    is_cached: whether the cache has files of a model of this name; then nothing is said.
    """
    if is_cached or "/" not in name or fetch.note is None:
        return
    if is_folder(folder.parent):
        fetch.note(
            message("there is no folder {name} here; the hub may have a model of it", name=name)
        )


def _no_model(name: str, *, is_file: bool) -> InputError:
    """The error, returned and not raised, that a name is neither a folder nor a hub id."""
    what = message("there is no such folder")
    hint = ""
    if is_file:
        what = message("this is a file, not a folder")
        folder = Path(os.path.expanduser(name)).parent  # noqa: PTH111 - as in `resolve`
        if is_there(folder / "config.json"):
            hint = f"--model {quote(str(folder))}"
    return InputError(
        what,
        where=name,
        expected=(
            "a folder with config.json and model.safetensors, a .gguf file, or a hub id"
            " owner/name[@revision]"
        ),
        hint=hint,
    )


def _missing_of(snapshot: Snapshot, fetch: Fetch) -> list[str]:
    """The names of the files that a model in the cache lacks, of those that `fetch` asks for."""
    if fetch.parts is not Parts.TOKENIZER:
        return list(snapshot.missing)
    return [file for file in snapshot.missing if file in DESCRIPTION]


def _fetch_model(
    name: str, hub_id: HubId, variables: Mapping[str, str], fetch: Fetch, *, missing: str
) -> ModelLocation:
    """Fetch a model from the hub into the cache.

    name: what the user wrote.
    hub_id: the model that it names.
    variables: the environment, which says where the cache is and may forbid the network.
    missing: a file that the cache lacks of the model, "" where it has none; for errors.

    Raises InputError where the network is forbidden, or the hub cannot be reached or has no such
    model; UnsupportedError where its weights are of a kind that is not read.
    """
    cache = cache_folder(variables)
    if is_offline(variables):
        raise _offline_error(hub_id, cache, missing=missing)
    folder, tensors = download(hub_id, cache, variables, fetch)
    return ModelLocation(folder, name, folder.name, "hub", tensors)


def is_offline(variables: Mapping[str, str]) -> bool:
    """Whether the environment forbids using the network, by the variables of the hub's own library."""
    setting = variables.get("HF_HUB_OFFLINE") or variables.get("TRANSFORMERS_OFFLINE") or ""
    return setting.upper() in ("1", "ON", "YES", "TRUE")


# `Remote`: one model on the Hugging Face hub, asked through the hub's own library, whose errors are
# told in our words.

DEFAULT_ENDPOINT = "https://huggingface.co"
PATIENCE = 10.0
"""Seconds until a server that says nothing counts as out of reach."""
BEGINNING = 100_000
"""Bytes of a weight file that are asked for at first: nearly every header is shorter."""
NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "requests", "urllib3", "ssl", "socket")
"""Libraries whose exceptions mean that the network failed."""

T = TypeVar("T")

_TAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A file's tag on the hub: git's digest of a small file, the sha256 of a large one."""
SHA256_DIGITS = 64
LARGEST_RESUMED = 50_000_000_000
"""Bytes of a file that the hub sends by HTTP; larger ones its library alone fetches."""


class RemoteFile(Struct, frozen=True):
    """A file on the hub that is not fetched yet.

    name: its path in the model.
    revision: the branch, tag or commit that it is of.
    etag: names its content, for large files its sha256.
    bytes: its size, 0 where the hub does not tell.
    """

    name: str
    revision: str
    etag: str
    bytes: int

    @property
    def can_be_resumed(self) -> bool:
        """Whether enough is known of the file to continue an interrupted download."""
        return 0 < self.bytes <= LARGEST_RESUMED and _TAG.fullmatch(self.etag) is not None


class Remote:
    """One model on the hub, which files can be fetched from.

    hub_id: which.
    endpoint: the hub's address.
    cache: the folder of the local cache, into which files come.
    watch: called with a file's name and the share of it that is there.

    Every method raises InputError where the hub cannot be reached, has no such model or revision,
    or wants a token.
    """

    def __init__(
        self,
        hub_id: HubId,
        cache: Path,
        variables: Mapping[str, str],
        *,
        watch: Watch | None = None,
    ) -> None:
        """A model on the hub whose files come into the folder `cache`. The environment may name
        another hub (HF_ENDPOINT) and a token (HF_TOKEN); nothing is asked yet."""
        self.hub_id = hub_id
        self.endpoint = variables.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
        self.cache = cache
        self._watch = watch
        self._token = variables.get("HF_TOKEN") or None  # an empty one counts as none

    def probe(self, name: str) -> None:
        """Ask the hub once whether it has a file, without retries, so that somebody offline does
        not wait; raises InputError where nothing answers."""
        import huggingface_hub

        url = self._url(name, self.hub_id.revision)
        metadata = huggingface_hub.get_hf_file_metadata
        self._ask(lambda: metadata(url, token=self._token, timeout=PATIENCE), self._unreachable())

    def file(self, name: str, revision: str) -> Path | None:
        """The file, fetched into the cache unless it is there; None where the model has none of
        that name.
        """
        import huggingface_hub

        # older versions of the library have no such argument and draw their own bars
        bars: dict[str, Any] = {}
        if (
            self._watch is not None
            and "tqdm_class" in signature(huggingface_hub.hf_hub_download).parameters
        ):
            bars["tqdm_class"] = bar_class(self._watch, name)

        source = {"cache_dir": self.cache, "endpoint": self.endpoint, "token": self._token}
        path = self._ask(
            lambda: huggingface_hub.hf_hub_download(
                self.hub_id.name, name, revision=revision, **source, **bars
            ),
            self._broken_off(name),
        )
        if path is None:
            return None
        return Path(path)

    def names(self) -> list[str]:
        """The names of the model's files at its revision, without those in subfolders."""
        import huggingface_hub

        hub = huggingface_hub.HfApi(endpoint=self.endpoint, token=self._token)
        names = self._ask(
            lambda: hub.list_repo_files(self.hub_id.name, revision=self.hub_id.revision),
            self._unreachable(),
        )
        # (None, which `_ask` gives for a file that is not there, is for the type checker alone)
        return [name for name in names or () if "/" not in name]

    def describe(self, name: str, revision: str) -> RemoteFile | None:
        """What the hub says about a file before it is fetched; None where the model has none of
        that name.
        """
        import huggingface_hub

        address = self._url(name, revision)
        metadata = self._ask(
            lambda: huggingface_hub.get_hf_file_metadata(
                address, token=self._token, timeout=PATIENCE
            ),
            self._unreachable(),
        )
        if metadata is None:
            return None
        # a server may state neither a digest nor a size
        return RemoteFile(name, revision, metadata.etag or "", metadata.size or 0)

    def arrived_bytes(self, file: RemoteFile) -> int:
        """How many bytes of a file are on this machine, whether whole or left by an interrupted
        download.
        """
        if self._is_whole(file):
            return file.bytes
        with suppress(OSError):
            return min(self._part(file).stat().st_size, file.bytes)
        return 0

    def large_file(self, file: RemoteFile) -> Path:
        """A file, fetched into the cache unless it is there. An interrupted download is continued,
        and the file gets its name only once its sha256 is right.

        The hub's library keeps no part of a file (2.4) and compares sizes alone, so the content is
        fetched here, to the place at which the library looks for it.
        """
        if file.can_be_resumed and not self._is_whole(file):
            self._ask(lambda: self._fetch_rest(file), self._broken_off(file.name, kept=True))
        path = self.file(file.name, file.revision)
        if path is None:
            raise self._broken_off(file.name)
        return path

    def _fetch_rest(self, file: RemoteFile) -> None:
        """Fetch what is missing of a file, and put it among the contents that the cache holds."""
        from huggingface_hub.utils import WeakFileLock

        part = self._part(file)
        lock = self.cache / ".locks" / self._repository / f"{file.etag}.lock"
        part.parent.mkdir(parents=True, exist_ok=True)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(str(lock)):
            if self._is_whole(file):  # by another process, which was waited for
                return
            self._append_rest(file, part)
            self._check_digest(file, part)
            part.replace(self._content(file))

    def _append_rest(self, file: RemoteFile, part: Path) -> None:
        """Fetch the bytes of a file that `part`, the path of an interrupted download, lacks, and
        append them to it."""
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        # older versions of the library have no such argument and draw their own bars
        bars: dict[str, Any] = {}
        if self._watch is not None and "tqdm_class" in signature(http_get).parameters:
            bars["tqdm_class"] = bar_class(self._watch, file.name)
        with growing_file(part) as stream, _small_pieces():
            # opened for appending, a stream stands at its end
            if stream.tell() > file.bytes:  # longer than the file: no beginning of it
                stream.truncate(0)
            bytes_so_far = stream.seek(0, SEEK_END)
            http_get(
                self._url(file.name, file.revision),
                stream,
                resume_size=bytes_so_far,
                headers=build_hf_headers(token=self._token),
                expected_size=file.bytes,
                displayed_filename=file.name,
                **bars,
            )

    def _check_digest(self, file: RemoteFile, part: Path) -> None:
        """Raise InputError, and remove the downloaded file, where its digest is not the one that
        the hub states.
        """
        if len(file.etag) != SHA256_DIGITS:  # a small file's tag is a digest of another kind
            return
        content_digest = digest(part)
        if content_digest != file.etag:
            part.unlink()
            raise InputError(
                "{name} was fetched with the sha256 {digest}, and is not kept",
                where=self.endpoint,
                expected=file.etag,
                hint="the same command again",
                name=file.name,
                digest=content_digest,
            )

    @property
    def _repository(self) -> str:
        """The name of the model's folder in the cache."""
        return _FOLDER + self.hub_id.name.replace("/", "--")

    def _content(self, file: RemoteFile) -> Path:
        """Where the cache holds a file's content, by its tag."""
        return self.cache / self._repository / "blobs" / file.etag

    def _part(self, file: RemoteFile) -> Path:
        """The path of a file's incomplete content in the cache."""
        return self.cache / self._repository / "blobs" / f"{file.etag}.incomplete"

    def _is_whole(self, file: RemoteFile) -> bool:
        """Whether all of a file is in the cache."""
        return file.can_be_resumed and _is_cached(self._content(file))

    def header(self, name: str, revision: str) -> SafetensorsHeader | None:
        """The header of a safetensors file, none of its data; None where the model has none of that
        name. Raises InputError for anything that the format does not allow."""
        beginning = self._ask(
            lambda: self._byte_range(name, revision, 0, BEGINNING), self._broken_off(name)
        )
        if beginning is None:
            return None
        raw, size = beginning
        # the first eight bytes of the format are the length of the JSON that follows
        header_size = 8 + int.from_bytes(raw[:8], "little")
        # a header that goes on is fetched to its end, unless `read_header` refuses its length
        if len(raw) < header_size <= min(size, 8 + HEADER_LIMIT):
            rest = self._ask(
                lambda: self._byte_range(name, revision, len(raw), header_size),
                self._broken_off(name),
            )
            if rest is not None:
                raw += rest[0]
        return read_header(BytesIO(raw), size, f"{self.endpoint}/{self.hub_id} {name}")

    def _byte_range(self, name: str, revision: str, start: int, stop: int) -> tuple[bytes, int]:
        """The bytes start..stop-1 of a file on the hub, and its size."""
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        headers = {**build_hf_headers(token=self._token), "Range": f"bytes={start}-{stop - 1}"}
        response = get_session().get(self._url(name, revision), headers=headers, timeout=PATIENCE)
        hf_raise_for_status(response)
        sent_range = re.fullmatch(
            r"bytes [0-9]+-[0-9]+/([0-9]+)", response.headers.get("Content-Range", "")
        )
        if sent_range is None:  # the whole file was sent
            return response.content[start:stop], len(response.content)
        return response.content, int(sent_range[1])

    def _url(self, name: str, revision: str) -> str:
        """The address (URL) of a file on the hub at this revision."""
        import huggingface_hub

        return huggingface_hub.hf_hub_url(
            self.hub_id.name, name, revision=revision, endpoint=self.endpoint
        )

    def _ask(self, request: Callable[[], T], network_error: AttnError) -> T | None:
        """The result of a request to the hub, None where it has no such file.

        network_error: the error to raise where the network fails.
        """
        from huggingface_hub import errors

        try:
            return request()
        except errors.LocalEntryNotFoundError as error:  # a subclass of the next one: no network
            raise network_error from error
        except errors.EntryNotFoundError:
            return None
        except Exception as error:
            raise self._translate_error(error, errors, network_error) from error

    def _translate_error(
        self, error: Exception, errors: Any, network_error: AttnError
    ) -> AttnError:
        """The error, returned and not raised, that tells the user of an exception of the hub's
        library.

        error: the exception.
        errors: that library's module of errors.
        network_error: what to return where the network failed.
        """
        hub_id = self.hub_id
        endpoint = self.endpoint
        match error:
            case AttnError():
                return error
            case errors.GatedRepoError():  # a kind of the next error, so it comes first
                what = message(
                    "{hub_id} is gated: its owner wants its terms accepted", hub_id=hub_id.name
                )
                hint = message(
                    "accept its terms at {endpoint}/{hub_id}, then set HF_TOKEN",
                    endpoint=endpoint,
                    hub_id=hub_id.name,
                )
                return InputError(what, where=endpoint, hint=hint)
            case errors.RepositoryNotFoundError():
                what = message(
                    "there is no model {hub_id}, or it is private", hub_id=repr(hub_id.name)
                )
                hint = message("attn models list; for a private model set HF_TOKEN")
                return InputError(what, where=endpoint, expected="owner/name", hint=hint)
            case errors.RevisionNotFoundError():
                revision = repr(hub_id.revision)
                what = message(
                    "{hub_id} has no revision {revision}", hub_id=hub_id.name, revision=revision
                )
                return InputError(what, where=endpoint, expected="a branch, tag or commit")
            case errors.HfHubHTTPError(response=response) if response is not None:
                return InputError(
                    "fetching {hub_id} failed: the server answered {status_code}",
                    where=endpoint,
                    hub_id=hub_id,
                    status_code=response.status_code,
                )
            case ConnectionError() | TimeoutError():
                return network_error
            case _ if type(error).__module__.partition(".")[0] in NETWORK_LIBRARIES:
                return network_error
            case OSError():
                strerror = term(error.strerror or str(error))
                what = message(
                    "fetching {hub_id} failed: {strerror}", hub_id=hub_id, strerror=strerror
                )
                return AttnError(what, where=error.filename or str(self.cache))
            case _:
                return InputError(
                    "fetching {hub_id} failed: {error}", where=endpoint, hub_id=hub_id, error=error
                )

    def _unreachable(self) -> InputError:
        """The error, returned and not raised, that nothing answers at the hub's address."""
        what = message(
            "{hub_id} is not in the local cache, and the hub cannot be reached", hub_id=self.hub_id
        )
        expected = message("a network, a model in the cache, or a folder that exists")
        return InputError(
            what, where=self.endpoint, expected=expected, hint="attn models list, or --model FOLDER"
        )

    def _broken_off(self, name: str, *, kept: bool = False) -> InputError:
        """The error, returned and not raised, that only part of a file arrived.

        name: of the file.
        kept: whether the part that arrived is kept, so that the next attempt goes on from there.
        """
        what = message(
            "the connection broke off while {name} of {hub_id} was fetched",
            name=name,
            hub_id=self.hub_id,
        )
        hint = message("the same command again; files that are complete are kept")
        if kept:
            hint = message("the same command again; what has arrived is kept")
        return InputError(what, where=self.endpoint, hint=hint)


def download(
    hub_id: HubId, cache: Path, variables: Mapping[str, str], fetch: Fetch
) -> tuple[Path, Mapping[str, TensorInfo] | None]:
    """Fetch a model's files and return the folder that holds them; with `Parts.HEADERS` also where
    its tensors would lie.

    Files already in the cache are kept. The weights come last, after everything that could refuse
    the model. Progress goes to `fetch.watch`, else to standard error where that is a terminal.
    `HF_ENDPOINT` and `HF_TOKEN` are honoured. Raises InputError where the hub cannot be reached,
    has no such model or revision, or wants a token; UnsupportedError where the model has neither
    safetensors nor, with torch to read them, pickled weights; what `fetch.accept` raises.
    """
    hub = Remote(hub_id, cache, variables, watch=fetch.watch)
    with _silent_library(bars=_shows_bars(fetch)):
        if fetch.note is not None:
            fetch.note(
                message("fetching {hub_id} from {endpoint}", hub_id=hub_id, endpoint=hub.endpoint)
            )
        hub.probe("config.json")
        config = hub.file("config.json", hub_id.revision)
        if config is None:
            raise UnsupportedError(
                "{hub_id} has no config.json",
                where=hub.endpoint,
                expected="a transformers model",
                hub_id=hub_id,
            )
        folder = config.parent
        fetch.accept(folder)
        # everything else comes from this commit, even if the branch moves on meanwhile
        commit = folder.name
        # `file` fetches what the model has of these names, and passes over the others
        if hub.file(TOKENIZER, commit) is None:
            for name in (*BESIDE_A_VOCABULARY, *VOCABULARIES):
                hub.file(name, commit)
        if fetch.parts is not Parts.HEADERS:
            for name in CHATS:
                hub.file(name, commit)
        match fetch.parts:
            case Parts.WHOLE:
                hub.file(GENERATION, commit)
                _fetch_weights(hub, commit, fetch.note)
            case Parts.HEADERS:
                return folder, _tensors_of_headers(hub, folder, commit)
            case Parts.TOKENIZER:
                pass
            case _:
                assert_never(fetch.parts)
        return folder, None


def download_gguf(
    hub_id: HubId, quantization: str, cache: Path, variables: Mapping[str, str], fetch: Fetch
) -> tuple[Path, str]:
    """Fetch a GGUF file, all parts of a split one, and return its place in the cache and the
    commit.

    quantization: part of its name.

    Raises InputError where the hub cannot be reached or has no such model, and where not exactly
    one file has that in its name.
    """
    hub = Remote(hub_id, cache, variables, watch=fetch.watch)
    with _silent_library(bars=_shows_bars(fetch)):
        if fetch.note is not None:
            fetch.note(
                message("fetching {hub_id} from {endpoint}", hub_id=hub_id, endpoint=hub.endpoint)
            )
        hub.probe("config.json")  # whether it is there does not matter: somebody must answer
        first = _chosen_name(hub.names(), quantization, f"{hub.endpoint}/{hub_id}")
        files = _described_files(hub, _parts_of(first), hub_id.revision)
        _fetch_files(hub, files, fetch.note)
        file = hub.large_file(files[0])  # the first part, which is in the cache by now
        return file, file.parent.name


def _fetch_weights(hub: Remote, commit: str, note: Callable[[str], None] | None) -> None:
    """Fetch a model's weights: safetensors, or else torch's pickled files, where torch is installed
    to read them. Raises UnsupportedError where the model has neither.

    commit: the model's version.
    note: called with a sentence on how much is fetched; None for silence.
    """
    kinds: Sequence[tuple[str, str, str]] = WEIGHT_FILES
    if not torch_is_installed():
        kinds = WEIGHT_FILES[:1]  # pickled files come last
    for single, index_name, ending in kinds:
        file = hub.describe(single, commit)
        if file is not None:
            _fetch_files(hub, [file], note)
            return
        index = hub.file(index_name, commit)
        if index is None:
            continue
        _fetch_files(hub, _described_files(hub, shard_names(index, ending), commit), note)
        return
    expected = message(
        "weights as safetensors, or as {pickled_single} with torch to read it",
        pickled_single=PICKLED_SINGLE,
    )
    raise _no_safetensors(hub, expected, CONVERT)


def _described_files(hub: Remote, names: Sequence[str], revision: str) -> list[RemoteFile]:
    """What the hub says about files that all belong to a model. Raises InputError for a missing
    one.
    """
    files = []
    for name in names:
        file = hub.describe(name, revision)
        if file is None:
            what = message(
                "the shard {shard} of {hub_id} is missing", shard=repr(name), hub_id=hub.hub_id
            )
            raise InputError(what, where=hub.endpoint, expected="every file that its index names")
        files.append(file)
    return files


def _fetch_files(
    hub: Remote, files: Sequence[RemoteFile], note: Callable[[str], None] | None
) -> None:
    """Fetch large files one after the other.

    note: called before with a sentence on how large they are, and how much of that is here; None
        for silence.

    Raises AttnError where the disk has no room for them.
    """
    size = sum(file.bytes for file in files)
    arrived = sum(hub.arrived_bytes(file) for file in files)
    if note is not None and arrived < size:
        if arrived:
            sentence = message(
                "the weights of {hub_id} are {size}, {left} of it still to fetch; they come to"
                " {folder}",
                hub_id=hub.hub_id,
                size=_size_words(size),
                left=_size_words(size - arrived),
                folder=hub.cache,
            )
        else:
            sentence = message(
                "the weights of {hub_id} are {size}; they come to {folder}",
                hub_id=hub.hub_id,
                size=_size_words(size),
                folder=hub.cache,
            )
        note(sentence)
    free = _free_bytes(hub.cache)
    if free is not None and free < size - arrived:
        raise AttnError(
            "the weights of {hub_id} need {size} more, and {free} are free",
            where=str(hub.cache),
            hint="HF_HOME=FOLDER before the command",
            hub_id=hub.hub_id,
            size=_size_words(size - arrived),
            free=_size_words(free),
        )
    for file in files:
        hub.large_file(file)


def _size_words(size: int) -> str:
    """Bytes in words, in megabytes as downloads are counted."""
    return f"{size / 1e6:,.1f} MB"


def _free_bytes(folder: Path) -> int | None:
    """The free bytes of the disk on which a folder is, or would be made; None where the system does
    not tell."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return disk_usage(place).free
    return None


def _tensors_of_headers(hub: Remote, folder: Path, commit: str) -> Mapping[str, TensorInfo]:
    """The `TensorInfo` of every tensor by name, from the headers of the hub's files: a few
    kilobytes are fetched in place of gigabytes."""
    single = hub.header(SINGLE, commit)
    if single is None and hub.file(INDEX, commit) is None:
        expected = message(
            "safetensors, whose headers tell what is in them; pickled weights tell it when they are"
            " here"
        )
        raise _no_safetensors(hub, expected, f"attn run --model {hub.hub_id}")

    def header(path: Path) -> SafetensorsHeader | None:
        """The header of a weight file: from disk where it is there, else its first bytes from the
        hub; None where the hub has none of that name."""
        if path.name == SINGLE:
            return single
        return local_header(path) or hub.header(path.name, commit)

    return find_tensors(folder.resolve(), header)


def _no_safetensors(hub: Remote, expected: str, hint: str) -> UnsupportedError:
    """The error, returned and not raised, that a model has no weights that can be read.

    expected: which weights could be read.
    hint: what to try.
    """
    return UnsupportedError(
        "{hub_id} has no {single}",
        where=hub.endpoint,
        expected=expected,
        hint=hint,
        hub_id=hub.hub_id,
        single=SINGLE,
    )


PIECE = 2**18
"""Bytes of a download that may be lost where it breaks off: the library's own are 10 MB."""


@contextmanager
def _small_pieces() -> Iterator[None]:
    """A context manager in which the hub's library writes what it fetches, and reports it, in small
    pieces, so that little is lost where the connection breaks off.
    """
    from huggingface_hub import constants

    before = constants.DOWNLOAD_CHUNK_SIZE
    constants.DOWNLOAD_CHUNK_SIZE = PIECE
    try:
        yield
    finally:
        constants.DOWNLOAD_CHUNK_SIZE = before


def _shows_bars(fetch: Fetch) -> bool:
    """Whether the hub's library may show its own progress bars."""
    return fetch.note is not None and sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def _silent_library(*, bars: bool) -> Iterator[None]:
    """A context manager that keeps the hub's library silent, except for its progress bars where
    `bars` is true.
    """
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()
    hides = not bars and not are_progress_bars_disabled()
    if hides:
        disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if hides:
            enable_progress_bars()
