"""From the name of a model to a folder that holds it: a folder, the hub's local cache, or a fetch from the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from attncli.errors import AttnError, InputError
from attncli.inputs import shards as pickled_files
from attncli.inputs.shards import INDEX, SINGLE, TensorInfo, shard_names

# How much of a file the hub's library has fetched, told to someone else than its own progress bars.

Watch = Callable[[str, float], None]
"""Told the name of a file and the share of it that is there, 0 to 1."""


def bar_class(watch: Watch, file: str) -> type:
    """A class that the library takes in place of its bars: it draws nothing and tells `watch`."""
    from tqdm import tqdm

    class ProgressBar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        monitor_interval = 0  # nothing is drawn that a thread would have to refresh

        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": False, "file": StringIO()})

        def display(self, *args: Any, **settings: Any) -> bool:
            return True

        def update(self, n: float | None = 1) -> bool | None:
            displayed: bool | None = super().update(n)
            if self.total:
                watch(file, min(self.n / self.total, 1.0))
            return displayed

    return ProgressBar


# `Fetch`: how a model that is not on this machine yet is fetched.


class Parts(Enum):
    """What is wanted of a model."""

    WHOLE = auto()
    HEADERS = auto()  # what says what it is: no weights, but how many and of which types
    TOKENIZER = auto()


class Fetch(Struct, frozen=True):
    """What is wanted of a model, and who is asked and told on the way.

    note: told what is being fetched; None for silence, of progress bars too. accept: handed the folder once its
    config.json is there and before anything large is fetched, to raise for a model that is of no use. watch: told how
    much of each file is there, in place of progress bars of the hub's own library.
    """

    note: Callable[[str], None] | None = lambda message: None
    accept: Callable[[Path], object] = lambda folder: None
    parts: Parts = Parts.WHOLE
    watch: Watch | None = None


WHOLE = Fetch()
"""A whole model, told to nobody, with progress bars on a terminal."""


# The local cache that the Hugging Face hub's own library keeps, read without importing that library.
#
# Layout: `models--OWNER--NAME/snapshots/COMMIT/FILE`, each file a link into `blobs/`; `refs/BRANCH` holds a commit;
# `.no_exist/COMMIT/FILE` remembers files that the hub does not have. Source: huggingface_hub, "Understand caching".

DEFAULT_REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")
_ID = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,94}[\w-])?/)?[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?", re.ASCII)
_REVISION = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)
_FOLDER = "models--"
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
"""The file that says how a model continues texts; most have none."""
DESCRIPTION = ("config.json", TOKENIZER)
"""The files that say what a model is and how it cuts texts."""


class HubId(Struct, frozen=True):
    """A model on the hub: `owner/name`, or a bare `name` as the oldest models have it, at a branch, tag or commit."""

    name: str
    revision: str = DEFAULT_REVISION

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """The id in "owner/name" or "owner/name@revision"; None where the text cannot be one."""
        name, separator, revision = text.partition("@")
        if not _ID.fullmatch(name) or any(part in name for part in ("--", "..")):
            return None
        if not separator:
            return cls(name)
        return cls(name, revision) if _REVISION.fullmatch(revision) and ".." not in revision else None

    def __str__(self) -> str:
        return self.name if self.revision == DEFAULT_REVISION else f"{self.name}@{self.revision}"


class Snapshot(Struct, frozen=True):
    """One version of a model in the cache. missing: names of needed files that are not there."""

    name: str
    commit: str
    folder: Path
    missing: tuple[str, ...]


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Where the hub's library keeps its cache: HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub."""
    setting = variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE")
    home = variables.get("HF_HOME") or f"{variables.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(os.path.expandvars(os.path.expanduser(setting or f"{home}/hub")))  # noqa: PTH111 - never raises


def find_snapshot(cache: Path, hub_id: HubId) -> Snapshot | None:
    """The version of a model that the cache holds for this id; None if there is none. Never uses the network."""
    repository = cache / (_FOLDER + hub_id.name.replace("/", "--"))
    commit = hub_id.revision if COMMIT.fullmatch(hub_id.revision) else _commit(repository, hub_id.revision)
    if commit is None or not (repository / "snapshots" / commit).is_dir():
        return None
    folder = repository / "snapshots" / commit
    return Snapshot(hub_id.name, commit, folder, tuple(_missing(repository, folder)))


def _commit(repository: Path, revision: str) -> str | None:
    """The commit that a branch, a tag or the beginning of a commit names; None where the cache knows none, or
    several."""
    try:
        commit = (repository / "refs" / revision).read_text(encoding="ascii").strip()
        return commit if COMMIT.fullmatch(commit) else None
    except (OSError, ValueError):
        if not _SHORT_COMMIT.fullmatch(revision):
            return None
    commits = [
        folder.name for folder in (repository / "snapshots").glob(f"{revision}*") if COMMIT.fullmatch(folder.name)
    ]
    return commits[0] if len(commits) == 1 else None


def all_cached(cache: Path) -> Iterator[Snapshot]:
    """Every version of every model in the cache that has a config.json, by name."""
    try:
        repositories = sorted(path for path in cache.iterdir() if path.name.startswith(_FOLDER))
    except OSError:
        return
    for repository in repositories:
        name = repository.name.removeprefix(_FOLDER).replace("--", "/")
        for folder in sorted((repository / "snapshots").glob("*")):
            if HubId.parse(name) is not None and COMMIT.fullmatch(folder.name) and (folder / "config.json").exists():
                yield Snapshot(name, folder.name, folder, tuple(_missing(repository, folder)))


def _missing(repository: Path, folder: Path) -> Iterator[str]:
    if not (folder / "config.json").exists():
        yield "config.json"
    try:
        yield from (name for name in _weights(folder) if not (folder / name).exists())
    except AttnError:
        return  # a malformed index is told by whoever opens the checkpoint
    if not (folder / TOKENIZER).exists() and not (repository / ".no_exist" / folder.name / TOKENIZER).exists():
        yield TOKENIZER


def _weights(folder: Path) -> list[str]:
    """The names of the weight files that a model needs, safetensors before what torch pickled."""
    for whole, index, shards in (
        (SINGLE, INDEX, shard_names),
        (pickled_files.PICKLED_SINGLE, pickled_files.PICKLED_INDEX, pickled_files.pickled_shards),
    ):
        if (folder / whole).exists():
            return [whole]
        if (folder / index).exists():
            return shards(folder / index)
    return [SINGLE]


class ModelLocation(Struct, frozen=True):
    """Where a model is. name: as asked. revision: the commit, None for a folder. source: how it was found.

    tensors: where they would lie, for weights that were not wanted and are not there; None for weights that are.
    """

    folder: Path
    name: str
    revision: str | None
    source: Literal["folder", "package", "cache", "hub"]
    tensors: Mapping[str, TensorInfo] | None = None


def resolve(name: str, *, variables: Mapping[str, str] = os.environ, fetch: Fetch = WHOLE) -> ModelLocation:
    """The folder of a model.

    name: a folder, or a hub id `owner/name[@revision]`. A folder of that name comes first. A model that is in the
    local cache is taken from there without asking the hub; else it is downloaded, unless HF_HUB_OFFLINE is set.
    Raises InputError, UnsupportedError as `download.download`.
    """
    folder = Path(os.path.expanduser(name))  # noqa: PTH111 - pathlib's own raises for users that do not exist
    exists = bool(name) and os.path.exists(folder)  # noqa: PTH110 - pathlib's own raises for names that are too long
    if exists and folder.is_dir():
        return ModelLocation(folder, name, None, "folder")
    hub_id = HubId.parse(name)
    if hub_id is None or exists:
        what = "this is a file, not a folder" if exists else "there is no such folder"
        raise InputError(
            what,
            where=name,
            expected="a folder with config.json and model.safetensors, or a hub id owner/name[@revision]",
        )
    cache = cache_folder(variables)
    snapshot = find_snapshot(cache, hub_id)
    missing = (
        []
        if snapshot is None
        else [file for file in snapshot.missing if fetch.parts is not Parts.TOKENIZER or file in DESCRIPTION]
    )
    if snapshot is not None and not missing:
        return ModelLocation(snapshot.folder, name, snapshot.commit, "cache")
    # without its weights a model is of no use; without a tokenizer it still runs on token ids
    usable = (
        None
        if snapshot is None or set(missing) - {TOKENIZER}
        else ModelLocation(snapshot.folder, name, snapshot.commit, "cache")
    )
    if is_offline(variables):
        if usable is not None:
            return usable
        lacks = f"lacks {missing[0]} of {hub_id}" if missing else f"does not hold {hub_id}"
        expected, hint = "a model in the cache, or a folder that exists", "unset HF_HUB_OFFLINE, or --model FOLDER"
        what = f"the local cache {lacks}, and HF_HUB_OFFLINE forbids fetching it"
        raise InputError(what, where=str(cache), expected=expected, hint=hint)
    from attncli.inputs.download import download

    try:
        folder_in_cache, tensors = download(hub_id, cache, variables, fetch)
    except AttnError:
        if usable is not None:
            return usable
        raise
    return ModelLocation(folder_in_cache, name, folder_in_cache.name, "hub", tensors)


def is_offline(variables: Mapping[str, str]) -> bool:
    """Whether the person forbids using the network, as the hub's own library reads it."""
    setting = variables.get("HF_HUB_OFFLINE") or variables.get("TRANSFORMERS_OFFLINE") or ""
    return setting.upper() in ("1", "ON", "YES", "TRUE")
