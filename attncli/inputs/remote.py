"""`Remote`: one model on the Hugging Face hub, asked through the hub's own library, whose errors are told in our
words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import signature
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from attncli.errors import AttnError, InputError
from attncli.inputs.download_bar import Watch, bar_class
from attncli.inputs.hub_cache import HubId
from attncli.inputs.safetensors_file import HEADER_LIMIT, SafetensorsHeader, read_header

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
