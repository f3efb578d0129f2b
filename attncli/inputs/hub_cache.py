"""The local cache that the Hugging Face hub's own library keeps, read without importing that library.

Layout: `models--OWNER--NAME/snapshots/COMMIT/FILE`, each file a link into `blobs/`; `refs/BRANCH` holds a commit;
`.no_exist/COMMIT/FILE` remembers files that the hub does not have. Source: huggingface_hub, "Understand caching".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from attncli.errors import AttnError, InputError
from attncli.inputs.shards import INDEX, SINGLE
from attncli.inputs.strict_json import read_object

DEFAULT_REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
_ID = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,94}[\w-])?/)?[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?", re.ASCII)
_REVISION = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)
_FOLDER = "models--"
FOUND_OR_KNOWN_MISSING = ("tokenizer.json",)


@dataclass(frozen=True)
class HubId:
    """A model on the hub: `owner/name`, or a bare `name` as the oldest models have it, at a branch, tag or commit."""

    name: str
    revision: str = DEFAULT_REVISION

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """The id in "owner/name" or "owner/name@revision"; None where the text cannot be one."""
        name, at, revision = text.partition("@")
        if not _ID.fullmatch(name) or any(part in name for part in ("--", "..")):
            return None
        if not at:
            return cls(name)
        return cls(name, revision) if _REVISION.fullmatch(revision) and ".." not in revision else None

    def __str__(self) -> str:
        return self.name if self.revision == DEFAULT_REVISION else f"{self.name}@{self.revision}"


@dataclass(frozen=True)
class Snapshot:
    """One version of a model in the cache. missing: names of needed files that are not there."""

    name: str
    commit: str
    folder: Path
    missing: tuple[str, ...]


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Where the hub's library keeps its cache: HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if variables.get(name):
            return Path(variables[name]).expanduser()
    base = variables.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(variables.get("HF_HOME") or f"{base}/huggingface").expanduser() / "hub"


def cached(cache: Path, wanted: HubId) -> Snapshot | None:
    """The version of a model that the cache holds for this id; None if there is none. Never uses the network."""
    repository = cache / (_FOLDER + wanted.name.replace("/", "--"))
    commit = wanted.revision
    if not COMMIT.fullmatch(commit):
        try:
            commit = (repository / "refs" / commit).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
    folder = repository / "snapshots" / commit
    if not COMMIT.fullmatch(commit) or not folder.is_dir():
        return None
    return Snapshot(wanted.name, commit, folder, tuple(_missing(repository, folder)))


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


def shard_names(index: Path) -> list[str]:
    """The files that a shard index names, each once. Raises InputError for names that are not plain."""
    places = read_object(index, what="a shard index").get("weight_map")
    found = {place for place in places.values() if isinstance(place, str)} if isinstance(places, dict) else set()
    for name in found:
        if not re.fullmatch(r"\w[\w.-]*\.safetensors", name, re.ASCII):
            raise InputError(f"this index names {name!r}", where=str(index), expected="plain names of .safetensors files")
    return sorted(found)


def _missing(repository: Path, folder: Path) -> Iterator[str]:
    if not (folder / "config.json").exists():
        yield "config.json"
    if not (folder / SINGLE).exists():
        if (folder / INDEX).exists():
            try:
                yield from (name for name in shard_names(folder / INDEX) if not (folder / name).exists())
            except AttnError:
                return  # a malformed index is told by whoever opens the checkpoint
        else:
            yield SINGLE
    for name in FOUND_OR_KNOWN_MISSING:
        if not (folder / name).exists() and not (repository / ".no_exist" / folder.name / name).exists():
            yield name
