"""The local cache that the Hugging Face hub's own library keeps, read without importing that library.

Layout: `models--OWNER--NAME/snapshots/COMMIT/FILE`, each file a link into `blobs/`; `refs/BRANCH` holds a commit;
`.no_exist/COMMIT/FILE` remembers files that the hub does not have. Source: huggingface_hub, "Understand caching".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from attncli.errors import AttnError
from attncli.inputs import pickled_files
from attncli.inputs.shards import INDEX, SINGLE, shard_names

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
