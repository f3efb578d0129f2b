"""Fetching a model from the Hugging Face hub into its local cache: only the files that `attn` reads."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, assert_never

from attncli.arrays.backend import torch_is_installed
from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.inputs import shards
from attncli.inputs.hub import GENERATION, TOKENIZER, Fetch, HubId, Parts, Watch, bar_class
from attncli.inputs.safetensors_file import HEADER_LIMIT, SafetensorsHeader, read_header
from attncli.inputs.shards import CONVERT, INDEX, SINGLE, TensorInfo, find_tensors, local_header, shard_names

# `Remote`: one model on the Hugging Face hub, asked through the hub's own library, whose errors are told in our
# words.

DEFAULT_ENDPOINT = "https://huggingface.co"
PATIENCE = 10.0
"""Seconds until a server that says nothing counts as out of reach."""
BEGINNING = 100_000
"""Bytes of a weight file that are asked for at first: nearly every header is shorter."""
NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "requests", "urllib3", "ssl", "socket")

T = TypeVar("T")


class Remote:
    """One model on the hub. hub_id: which. endpoint: the hub's address. watch: told how much of a file is there.

    Every method raises InputError where the hub cannot be reached, has no such model or revision, or wants a token.
    """

    def __init__(self, hub_id: HubId, cache: Path, variables: Mapping[str, str], *, watch: Watch | None = None) -> None:
        self.hub_id = hub_id
        self.endpoint = variables.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
        self._cache, self._watch = cache, watch
        self._token = variables.get("HF_TOKEN") or None

    def probe(self, name: str) -> None:
        """Ask for a file once, without the retries of a download: a person offline should not wait for them."""
        import huggingface_hub

        url = self._url(name, self.hub_id.revision)
        self._ask(
            lambda: huggingface_hub.get_hf_file_metadata(url, token=self._token, timeout=PATIENCE), self._unreachable()
        )

    def file(self, name: str, revision: str) -> Path | None:
        """The file, fetched into the cache unless it is there; None where the model has none of that name."""
        import huggingface_hub

        bars: dict[str, Any] = {}
        # older versions of the library draw their own
        if self._watch is not None and "tqdm_class" in signature(huggingface_hub.hf_hub_download).parameters:
            bars["tqdm_class"] = bar_class(self._watch, name)

        def fetch() -> Path:
            return Path(
                huggingface_hub.hf_hub_download(
                    self.hub_id.name,
                    name,
                    revision=revision,
                    cache_dir=self._cache,
                    endpoint=self.endpoint,
                    token=self._token,
                    **bars,
                )
            )

        return self._ask(fetch, self._broken_off(name))

    def header(self, name: str, revision: str) -> SafetensorsHeader | None:
        """The header of a safetensors file, none of its data; None where the model has none of that name. Raises as
        `read_header`."""
        beginning = self._ask(lambda: self._part(name, revision, 0, BEGINNING), self._broken_off(name))
        if beginning is None:
            return None
        raw, size = beginning
        header_size = 8 + int.from_bytes(raw[:8], "little")
        if len(raw) < header_size <= min(size, 8 + HEADER_LIMIT):
            rest = self._ask(lambda: self._part(name, revision, len(raw), header_size), self._broken_off(name))
            raw += b"" if rest is None else rest[0]
        return read_header(BytesIO(raw), size, f"{self.endpoint}/{self.hub_id} {name}")

    def _part(self, name: str, revision: str, start: int, stop: int) -> tuple[bytes, int]:
        """Bytes of a file, and its size."""
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        headers = {**build_hf_headers(token=self._token), "Range": f"bytes={start}-{stop - 1}"}
        response = get_session().get(self._url(name, revision), headers=headers, timeout=PATIENCE)
        hf_raise_for_status(response)
        byte_range = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+)", response.headers.get("Content-Range", ""))
        if byte_range is None:  # the whole file was sent
            return response.content[start:stop], len(response.content)
        return response.content, int(byte_range[2])

    def _url(self, name: str, revision: str) -> str:
        import huggingface_hub

        return huggingface_hub.hf_hub_url(self.hub_id.name, name, revision=revision, endpoint=self.endpoint)

    def _ask(self, question: Callable[[], T], network_error: AttnError) -> T | None:
        """What the hub answers, None where it has no such file. network_error: raised where the network fails."""
        from huggingface_hub import errors

        try:
            return question()
        except errors.LocalEntryNotFoundError as error:
            raise network_error from error
        except errors.EntryNotFoundError:
            return None
        except Exception as error:
            raise self._translate_error(error, errors, network_error) from error

    def _translate_error(self, error: Exception, errors: Any, network_error: AttnError) -> AttnError:
        hub_id, endpoint = self.hub_id, self.endpoint
        match error:
            case AttnError():
                return error
            case errors.GatedRepoError():
                hint = f"accept its terms at {endpoint}/{hub_id.name}, then set HF_TOKEN"
                return InputError(
                    f"{hub_id.name} is gated: its owner wants its terms accepted", where=endpoint, hint=hint
                )
            case errors.RepositoryNotFoundError():
                what = f"there is no model {hub_id.name!r}, or it is private"
                return InputError(
                    what,
                    where=endpoint,
                    expected="owner/name",
                    hint="attn models list; for a private model set HF_TOKEN",
                )
            case errors.RevisionNotFoundError():
                return InputError(
                    f"{hub_id.name} has no revision {hub_id.revision!r}",
                    where=endpoint,
                    expected="a branch, tag or commit",
                )
            case errors.HfHubHTTPError(response=response) if response is not None:
                return InputError(
                    f"fetching {hub_id} failed: the server answered {response.status_code}", where=endpoint
                )
            case _ if type(error).__module__.partition(".")[0] in NETWORK_LIBRARIES or isinstance(
                error, ConnectionError | TimeoutError
            ):
                return network_error
            case OSError():
                return AttnError(
                    f"fetching {hub_id} failed: {error.strerror or error}", where=error.filename or str(self._cache)
                )
            case _:
                return InputError(f"fetching {hub_id} failed: {error}", where=endpoint)

    def _unreachable(self) -> InputError:
        what = f"{self.hub_id} is not in the local cache, and the hub cannot be reached"
        expected, hint = (
            "a network, a model in the cache, or a folder that exists",
            "attn models list, or --model FOLDER",
        )
        return InputError(what, where=self.endpoint, expected=expected, hint=hint)

    def _broken_off(self, name: str) -> InputError:
        what = f"the connection broke off while {name} of {self.hub_id} was fetched"
        return InputError(what, where=self.endpoint, hint="the same command again; files that are complete are kept")


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
    index = hub.file(shards.PICKLED_INDEX, commit)
    if index is not None:
        _shards(hub, commit, shards.pickled_shards(index))
    elif hub.file(shards.PICKLED_SINGLE, commit) is None:
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
        expected=f"weights as safetensors, or as {shards.PICKLED_SINGLE} with torch to read it",
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
