"""Fetching a model from the Hugging Face hub into its own local cache: only the files that `attn` reads."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

from attncli.arrays.backend import torch_is_installed
from attncli.errors import InputError, UnsupportedError
from attncli.inputs import pickled_files
from attncli.inputs.fetching import Fetch, Parts
from attncli.inputs.hub_cache import GENERATION, TOKENIZER, HubId
from attncli.inputs.remote import Remote
from attncli.inputs.safetensors_file import SafetensorsHeader
from attncli.inputs.shards import CONVERT, INDEX, SINGLE, TensorInfo, find_tensors, local_header, shard_names


def download(
    hub_id: HubId, cache: Path, variables: Mapping[str, str], fetch: Fetch
) -> tuple[Path, Mapping[str, TensorInfo] | None]:
    """Fetch a model's files and return the folder that holds them; with `Parts.HEADERS` also where its tensors would
    lie.

    Files already in the cache are kept. The weights come last, after everything that could refuse the model. Progress
    goes to `fetch.watch`, else to standard error where that is a terminal. `HF_ENDPOINT` and `HF_TOKEN` are honoured.
    Raises InputError where the hub cannot be reached, has no such model or revision, or wants a token;
    UnsupportedError where the model has neither safetensors nor, with torch to read them, pickled weights; what
    `fetch.accept` raises.
    """
    hub = Remote(hub_id, cache, variables, watch=fetch.watch)
    with _quiet(bars=fetch.note is not None and sys.stderr is not None and sys.stderr.isatty()):
        if fetch.note is not None:
            fetch.note(f"fetching {hub_id} from {hub.endpoint}")
        hub.probe("config.json")
        config = hub.file("config.json", hub_id.revision)
        if config is None:
            raise UnsupportedError(f"{hub_id} has no config.json", where=hub.endpoint, expected="a transformers model")
        folder = config.parent
        fetch.accept(folder)
        commit = folder.name  # everything else comes from the same version, even if the branch moves on
        hub.file(TOKENIZER, commit)
        match fetch.parts:
            case Parts.WHOLE:
                hub.file(GENERATION, commit)
                _weights(hub, commit)
            case Parts.HEADERS:
                return folder, _tensors(hub, folder, commit)
            case Parts.TOKENIZER:
                pass
            case _:
                assert_never(fetch.parts)
        return folder, None


def _weights(hub: Remote, commit: str) -> None:
    """Fetch the weights: safetensors, or else what torch pickled, where torch is there to read it."""
    if hub.file(SINGLE, commit) is not None:
        return
    index = hub.file(INDEX, commit)
    if index is not None:
        _shards(hub, commit, shard_names(index))
        return
    if not torch_is_installed():
        raise _no_weights(hub)
    index = hub.file(pickled_files.PICKLED_INDEX, commit)
    if index is not None:
        _shards(hub, commit, pickled_files.pickled_shards(index))
    elif hub.file(pickled_files.PICKLED_SINGLE, commit) is None:
        raise _no_weights(hub)


def _shards(hub: Remote, commit: str, names: Sequence[str]) -> None:
    for shard in names:
        if hub.file(shard, commit) is None:
            raise InputError(
                f"the shard {shard!r} of {hub.hub_id} is missing",
                where=hub.endpoint,
                expected="every file that its index names",
            )


def _tensors(hub: Remote, folder: Path, commit: str) -> Mapping[str, TensorInfo]:
    """Where the tensors would lie, from the headers of the files, a few kilobytes in place of gigabytes."""
    single = hub.header(SINGLE, commit)
    if single is None and hub.file(INDEX, commit) is None:
        raise UnsupportedError(
            f"{hub.hub_id} has no {SINGLE}",
            where=hub.endpoint,
            expected="safetensors, whose headers tell what is in them; pickled weights tell it when they are here",
            hint=f"attn run --model {hub.hub_id}",
        )

    def header(path: Path) -> SafetensorsHeader | None:
        return single if path.name == SINGLE else local_header(path) or hub.header(path.name, commit)

    return find_tensors(folder.resolve(), header)


def _no_weights(hub: Remote) -> UnsupportedError:
    return UnsupportedError(
        f"{hub.hub_id} has no {SINGLE}",
        where=hub.endpoint,
        expected=f"weights as safetensors, or as {pickled_files.PICKLED_SINGLE} with torch to read it",
        hint=CONVERT,
    )


@contextmanager
def _quiet(*, bars: bool) -> Iterator[None]:
    """Silence of the hub's library, except for its progress bars; what it would say is said by our errors."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
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
