"""Fetching a model from the Hugging Face hub into its own local cache: only the files that `attn` reads."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.inputs.fetch import Fetch
from attncli.inputs.hub_cache import TOKENIZER, HubId
from attncli.inputs.shards import CONVERT, INDEX, SINGLE, shard_names

SMALL = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
"""Files that are taken where the hub has them."""
DEFAULT_ENDPOINT = "https://huggingface.co"
NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "requests", "urllib3", "ssl", "socket")


def download(wanted: HubId, cache: Path, variables: Mapping[str, str], asked: Fetch) -> Path:
    """Fetch a model's files and return the folder that holds them.

    Files already in the cache are kept. The weights come last, after everything that could refuse the model. Progress
    goes to standard error where that is a terminal. `HF_ENDPOINT` and `HF_TOKEN` are honoured.
    Raises InputError where the hub cannot be reached, has no such model or revision, or wants a token;
    UnsupportedError where the model has no safetensors; what `asked.accept` raises.
    """
    import huggingface_hub
    from huggingface_hub import errors

    endpoint = variables.get("HF_ENDPOINT") or DEFAULT_ENDPOINT

    def fetch(name: str, revision: str) -> Path | None:
        try:
            found = huggingface_hub.hf_hub_download(
                wanted.name, name, revision=revision, cache_dir=cache, endpoint=endpoint, token=variables.get("HF_TOKEN") or None
            )
        except errors.LocalEntryNotFoundError as error:
            raise _broken_off(wanted, endpoint, name) from error
        except errors.EntryNotFoundError:
            return None
        except Exception as error:
            raise _told(wanted, endpoint, error, errors, _broken_off(wanted, endpoint, name), cache) from error
        return Path(found)

    with _quiet(bars=asked.note is not None and sys.stderr is not None and sys.stderr.isatty()):
        if asked.note is not None:
            asked.note(f"fetching {wanted} from {endpoint}")
        _probe(wanted, endpoint, variables, errors, cache)
        return _fetched(wanted, endpoint, fetch, asked)


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


def _probe(wanted: HubId, endpoint: str, variables: Mapping[str, str], errors: Any, cache: Path) -> None:
    """Ask for the config once, without the retries of a download: a person offline should not wait for them."""
    import huggingface_hub

    url = huggingface_hub.hf_hub_url(wanted.name, "config.json", revision=wanted.revision, endpoint=endpoint)
    try:
        huggingface_hub.get_hf_file_metadata(url, token=variables.get("HF_TOKEN") or None, timeout=10)
    except errors.EntryNotFoundError:
        return
    except Exception as error:
        raise _told(wanted, endpoint, error, errors, _unreachable(wanted, endpoint), cache) from error


def _fetched(wanted: HubId, endpoint: str, fetch: Callable[[str, str], Path | None], asked: Fetch) -> Path:
    config = fetch("config.json", wanted.revision)
    if config is None:
        raise UnsupportedError(f"{wanted} has no config.json", where=endpoint, expected="a transformers model")
    asked.accept(config.parent)
    commit = config.parent.name  # everything else comes from the same version, even if the branch moves on
    for name in SMALL:
        fetch(name, commit)
    if not asked.weights or fetch(SINGLE, commit) is not None:
        return config.parent
    index = fetch(INDEX, commit)
    if index is None:
        raise UnsupportedError(f"{wanted} has no {SINGLE}", where=endpoint, expected="weights as safetensors", hint=CONVERT)
    for shard in shard_names(index):
        if fetch(shard, commit) is None:
            raise InputError(f"the shard {shard!r} of {wanted} is missing", where=endpoint, expected=f"every file of {INDEX}")
    return config.parent


def _told(wanted: HubId, endpoint: str, error: Exception, errors: Any, network: AttnError, cache: Path) -> AttnError:
    """A library's error in our words. network: what to say where it is the connection that failed."""
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
            return network
        case OSError():
            return AttnError(f"fetching {wanted} failed: {error.strerror or error}", where=error.filename or str(cache))
        case _:
            return InputError(f"fetching {wanted} failed: {error}", where=endpoint)


def _unreachable(wanted: HubId, endpoint: str) -> InputError:
    what = f"{wanted} is not in the local cache, and the hub cannot be reached"
    expected, hint = "a network, a model in the cache, or a folder that exists", "attn models list, or --model FOLDER"
    return InputError(what, where=endpoint, expected=expected, hint=hint)


def _broken_off(wanted: HubId, endpoint: str, name: str) -> InputError:
    what = f"the connection broke off while {name} of {wanted} was fetched"
    return InputError(what, where=endpoint, hint="the same command again; files that are complete are kept")
