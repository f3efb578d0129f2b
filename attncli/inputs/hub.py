"""From the name of a model to a folder that holds it: a folder, the hub's local cache, or the hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from attncli.errors import AttnError, InputError
from attncli.inputs.fetching import WHOLE, Fetch, Parts
from attncli.inputs.hub_cache import DESCRIPTION, TOKENIZER, HubId, cache_folder, find_snapshot
from attncli.inputs.shards import TensorInfo


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
