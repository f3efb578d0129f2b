"""Fetching a model from the Hugging Face hub into its own local cache: only the files that `attn` reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.inputs.hub_cache import HubId, shard_names
from attncli.inputs.shards import CONVERT, INDEX, SINGLE

SMALL = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""Files that are taken where the hub has them."""
DEFAULT_ENDPOINT = "https://huggingface.co"
NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "requests", "urllib3", "ssl", "socket")


def download(wanted: HubId, cache: Path, variables: Mapping[str, str], note: Callable[[str], None]) -> Path:
    """Fetch a model's files and return the folder that holds them.

    Files already in the cache are kept. The weights come last, after everything that could refuse the model. Progress
    goes to standard error where that is a terminal. `HF_ENDPOINT` and `HF_TOKEN` are honoured.
    Raises InputError where the hub cannot be reached, has no such model or revision, or wants a token;
    UnsupportedError where the model has no safetensors.
    """
    import huggingface_hub
    from huggingface_hub import errors
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()  # what it would say is said by the errors below
    endpoint = variables.get("HF_ENDPOINT") or DEFAULT_ENDPOINT

    def fetch(name: str, revision: str) -> Path | None:
        try:
            found = huggingface_hub.hf_hub_download(
                wanted.name, name, revision=revision, cache_dir=cache, endpoint=endpoint, token=variables.get("HF_TOKEN") or None
            )
        except errors.LocalEntryNotFoundError as error:
            raise _unreachable(wanted, endpoint, error) from error
        except errors.EntryNotFoundError:
            return None
        except Exception as error:
            raise _told(wanted, endpoint, error, errors) from error
        return Path(found)

    quiet = sys.stderr is None or not sys.stderr.isatty()
    was_quiet = are_progress_bars_disabled()
    if quiet:
        disable_progress_bars()
    try:
        note(f"fetching {wanted} from {endpoint}")
        _probe(wanted, endpoint, variables, errors)
        return _fetched(wanted, endpoint, fetch)
    finally:
        if quiet and not was_quiet:
            enable_progress_bars()


def _probe(wanted: HubId, endpoint: str, variables: Mapping[str, str], errors: Any) -> None:
    """Ask for the config once, without the retries of a download: a person offline should not wait for them."""
    import huggingface_hub

    url = huggingface_hub.hf_hub_url(wanted.name, "config.json", revision=wanted.revision, endpoint=endpoint)
    try:
        huggingface_hub.get_hf_file_metadata(url, token=variables.get("HF_TOKEN") or None, timeout=10)
    except errors.EntryNotFoundError:
        return
    except Exception as error:
        raise _told(wanted, endpoint, error, errors) from error


def _fetched(wanted: HubId, endpoint: str, fetch: Callable[[str, str], Path | None]) -> Path:
    config = fetch("config.json", wanted.revision)
    if config is None:
        raise UnsupportedError(f"{wanted} has no config.json", where=endpoint, expected="a transformers model")
    commit = config.parent.name  # everything else comes from the same version, even if the branch moves on
    for name in SMALL:
        fetch(name, commit)
    if fetch(SINGLE, commit) is not None:
        return config.parent
    index = fetch(INDEX, commit)
    if index is None:
        raise UnsupportedError(f"{wanted} has no {SINGLE}", where=endpoint, expected="weights as safetensors", hint=CONVERT)
    for shard in shard_names(index):
        if fetch(shard, commit) is None:
            raise InputError(f"the shard {shard!r} of {wanted} is missing", where=endpoint, expected=f"every file of {INDEX}")
    return config.parent


def _told(wanted: HubId, endpoint: str, error: Exception, errors: Any) -> AttnError:
    match error:
        case AttnError():
            return error
        case errors.GatedRepoError():
            hint = f"accept its terms at {endpoint}/{wanted.name}, then set HF_TOKEN"
            return InputError(f"{wanted.name} is gated: its owner wants its terms accepted", where=endpoint, hint=hint)
        case errors.RepositoryNotFoundError():
            what = f"there is no model {wanted.name!r}, or it is private"
            return InputError(what, where=endpoint, expected="owner/name", hint="attn models list; for a private model set HF_TOKEN")
        case errors.RevisionNotFoundError():
            return InputError(f"{wanted.name} has no revision {wanted.revision!r}", where=endpoint, expected="a branch, tag or commit")
        case errors.HfHubHTTPError(response=response) if response is not None:
            return InputError(f"fetching {wanted} failed: the server answered {response.status_code}", where=endpoint)
        case _ if type(error).__module__.partition(".")[0] in NETWORK_LIBRARIES or isinstance(error, ConnectionError | TimeoutError):
            return _unreachable(wanted, endpoint, error)
        case OSError():
            return AttnError(f"fetching {wanted} failed: {error.strerror or error}", where=error.filename or endpoint)
        case _:
            return InputError(f"fetching {wanted} failed: {error}", where=endpoint)


def _unreachable(wanted: HubId, endpoint: str, error: Exception) -> InputError:
    del error  # its text names internals; the person needs to know what could not be reached
    what = f"{wanted} is not in the local cache, and the hub cannot be reached"
    return InputError(what, where=endpoint, expected="a network, or a model in the cache", hint="attn models list, or --model FOLDER")
