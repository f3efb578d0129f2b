"""Large files of the hub: told before, gone on with where a fetch broke off, held against their
sha256.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep

import huggingface_hub.file_download
import pytest
from hub_server import COMMIT, Hub, serving

from attncli.errors import AttnError, InputError
from attncli.inputs import hub as hub_module
from attncli.inputs.hub import Fetch, ModelLocation, Parts, resolve

WEIGHTS = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
CONFIG = {"config.json": b'{"model_type": "toy"}', "tokenizer.json": b"{}"}
GGUF = {
    "a-Q4_K_M.gguf": b"GGUF four",
    "a-Q8_0.gguf": b"GGUF eight",
    "b-F16-00001-of-00002.gguf": b"GGUF one",
    "b-F16-00002-of-00002.gguf": b"GGUF two",
    "mmproj-Q4_K_M.gguf": b"GGUF pictures",
    "deeper/a-Q4_K_M.gguf": b"GGUF elsewhere",
}
Finder = Callable[..., ModelLocation]


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {"owner/model": {**CONFIG, "model.safetensors": WEIGHTS}, "owner/gguf": GGUF}
    with serving(Hub(files)) as served:
        yield served


@pytest.fixture
def find(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finder:
    """Finds a model, in small pieces; the hub's library does not wait between its attempts."""
    monkeypatch.setattr(hub_module, "PIECE", 10_000)
    monkeypatch.setattr(huggingface_hub.file_download.time, "sleep", lambda seconds: sleep(0))

    def location(name: str, fetch: Fetch | None = None, **variables: str) -> ModelLocation:
        given = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.endpoint, **variables}
        return resolve(name, variables=given, fetch=fetch or Fetch(None))

    return location


def blobs(home: Path) -> dict[str, int]:
    """The contents of the cache that are or may become weights, with their sizes."""
    folder = home / "hub" / "models--owner--model" / "blobs"
    return {path.name: path.stat().st_size for path in folder.glob(f"{DIGEST}*")}


def test_an_interrupted_fetch_goes_on_where_it_stopped(
    hub: Hub, find: Finder, tmp_path: Path
) -> None:
    hub.cut = 100_000
    with pytest.raises(InputError, match=r"broke off while model\.safetensors") as error:
        find("owner/model", Fetch(None, watch=stop_at(0.3)))
    assert "what has arrived is kept" in str(error.value.hint)
    arrived = blobs(tmp_path)[f"{DIGEST}.incomplete"]
    assert DIGEST not in blobs(tmp_path)
    assert arrived == 300_000  # the piece at which it ended was told, not written
    with pytest.raises(InputError, match=r"lacks model\.safetensors"):
        find("owner/model", HF_HUB_OFFLINE="1")

    hub.cut = None
    hub.sent = 0
    hub.parts.clear()
    notes: list[str] = []
    shares: list[float] = []
    watched = Fetch(notes.append, watch=lambda file, share: shares.append(share))
    location = find("owner/model", watched)
    assert hub.parts == [f"bytes={arrived}-"]
    assert hub.sent == len(WEIGHTS) - arrived
    assert (location.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert blobs(tmp_path) == {DIGEST: len(WEIGHTS)}
    left = f"{(len(WEIGHTS) - arrived) / 1e6:,.1f} MB"
    assert f"are 1.0 MB, {left} of it still to fetch" in notes[-1]
    assert (shares[0] > arrived / len(WEIGHTS), shares[-1]) == (True, 1.0)


def stop_at(share: float) -> Callable[[str, float], None]:
    """A watcher in whose hands the connection ends once this share of the weights is there."""

    def watch(file: str, done: float) -> None:
        if file == "model.safetensors" and done >= share:
            raise ConnectionResetError("the network is gone")

    return watch


def test_a_short_break_is_bridged_in_the_same_run(hub: Hub, find: Finder) -> None:
    hub.cut = 300_000
    location = find("owner/model")
    assert (location.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.parts == ["bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_hub_that_sends_no_parts_sends_the_whole_file_anew(
    hub: Hub, find: Finder, tmp_path: Path
) -> None:
    hub.cut = 400_000
    with pytest.raises(InputError, match="broke off"):
        find("owner/model", Fetch(None, watch=stop_at(0.3)))
    hub.cut = None
    hub.ranges = False
    assert (find("owner/model").folder / "model.safetensors").read_bytes() == WEIGHTS
    assert blobs(tmp_path) == {DIGEST: len(WEIGHTS)}


@pytest.mark.parametrize("left", [b"x" * 5000, b"x" * (len(WEIGHTS) + 1), b"x" * len(WEIGHTS)])
def test_what_is_not_the_named_content_is_refused_and_not_kept(
    find: Finder, tmp_path: Path, left: bytes
) -> None:
    part = tmp_path / "hub" / "models--owner--model" / "blobs" / f"{DIGEST}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    if len(left) <= len(WEIGHTS):  # goes on with it and finds out at the end
        with pytest.raises(InputError, match="is not kept") as error:
            find("owner/model")
        assert error.value.expected == DIGEST
        assert blobs(tmp_path) == {}
    assert (find("owner/model").folder / "model.safetensors").read_bytes() == WEIGHTS
    assert blobs(tmp_path) == {DIGEST: len(WEIGHTS)}


def test_the_size_is_told_before_the_weights_are_fetched(
    hub: Hub, find: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(hub_module.Remote, "_fetch_rest", lambda *given: events.append("weights"))
    monkeypatch.setattr(
        hub_module.Remote, "large_file", lambda remote, file: remote._fetch_rest(file)
    )
    find("owner/model", Fetch(lambda note: events.append(str(note))))
    assert events[-1] == "weights"
    assert "the weights of owner/model are 1.0 MB; they come to" in events[-2]


def test_a_disk_without_room_is_told_before_anything_large(
    hub: Hub, find: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_free_bytes", lambda folder: 1000)
    with pytest.raises(AttnError, match=r"need 1\.0 MB more, and 0\.0 MB are free") as error:
        find("owner/model")
    assert "HF_HOME" in str(error.value.hint)
    assert "model.safetensors" not in hub.asked


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("owner/gguf:Q4_K_M", ["a-Q4_K_M.gguf"]),
        ("owner/gguf:q8_0", ["a-Q8_0.gguf"]),
        ("owner/gguf:F16", ["b-F16-00001-of-00002.gguf", "b-F16-00002-of-00002.gguf"]),
    ],
)
def test_a_gguf_file_is_fetched_by_its_quantization_then_taken_from_the_cache(
    hub: Hub, find: Finder, name: str, files: list[str]
) -> None:
    location = find(name)
    assert (location.source, location.revision, location.name) == ("hub", COMMIT, name)
    assert sorted(hub.asked) == files
    assert location.folder.read_bytes() == GGUF[files[0]]
    hub.asked.clear()
    again = find(name, HF_HUB_OFFLINE="1")
    assert (again.source, again.folder) == ("cache", location.folder)
    (location.folder.parent / files[-1]).unlink()
    assert find(name).folder == location.folder
    assert hub.asked == []  # its content is still there


@pytest.mark.parametrize(
    ("name", "fetch", "variables", "says"),
    [
        ("owner/gguf:Q2_K", None, {}, "0 .gguf files whose name has 'Q2_K'"),
        ("owner/gguf:Q", None, {}, "0 .gguf files whose name has 'Q'"),
        ("owner/none:Q4_K_M", None, {}, "no model 'owner/none'"),
        ("owner/gguf:Q4_K_M", None, {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids"),
        ("owner/gguf:Q4_K_M", None, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be reached"),
        ("owner/gguf:Q4_K_M", Fetch(None, parts=Parts.HEADERS), {}, "whole or not at all"),
    ],
)
def test_gguf_files_that_cannot_be_had(
    find: Finder, name: str, fetch: Fetch | None, variables: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        find(name, fetch, **variables)
