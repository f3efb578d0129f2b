"""Finding models: folders, prepared caches, and downloads from a local server that answers as the
hub does.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import safetensors.numpy
from hub_server import COMMIT, Hub, serving
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from msgspec.structs import replace
from processes import finish

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.inputs import hub as download
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.hub import WHOLE, Fetch, ModelLocation, Parts, cached_snapshots, resolve

Resolver = Callable[..., ModelLocation]
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
WEIGHTS = safetensors.numpy.save({"a": np.arange(6, dtype=np.float32)})
OTHER = safetensors.numpy.save({"b": np.arange(3, dtype=np.float32)})
MANY = {
    f"a tensor with a long name, number {at}": np.full((1000,), at, np.float32)
    for at in range(1500)
}
"""Their header is longer than what is asked for at first."""
SMALL = {"config.json": b'{"model_type": "toy"}', "tokenizer.json": b"{}"}
UNWANTED = {
    "tokenizer_config.json": b"{ }",
    "pytorch_model.bin": b"pickle",
    "README.md": b"hello",
    "onnx/model.onnx": b"x",
}
INDEX = json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode()
PICKLED = json.dumps({"weight_map": {"a": "a.bin", "b": "b.bin"}}).encode()


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "owner/single": SMALL | UNWANTED | {"model.safetensors": WEIGHTS},
        "owner/sharded": SMALL
        | {"model.safetensors.index.json": INDEX, SHARDS[0]: WEIGHTS, SHARDS[1]: OTHER},
        "owner/partial": SMALL | {"model.safetensors.index.json": INDEX, SHARDS[0]: WEIGHTS},
        "owner/hostile": SMALL
        | {"model.safetensors.index.json": b'{"weight_map": {"a": "../../x.safetensors"}}'},
        "owner/pickle": SMALL | UNWANTED,
        "owner/pickles": SMALL
        | {"pytorch_model.bin.index.json": PICKLED, "a.bin": b"pickle", "b.bin": b"pickle"},
        "owner/bare": SMALL,
        "owner/empty": UNWANTED,
        "owner/gated": SMALL | {"model.safetensors": WEIGHTS},
        "owner/untokenized": {"config.json": b"{}", "model.safetensors": WEIGHTS},
        "owner/broken": SMALL,
        "owner/wordy": SMALL | {"model.safetensors": safetensors.numpy.save(MANY)},
        "owner/cut": SMALL | {"model.safetensors": b"1234567"},
        "owner/lying": SMALL | {"model.safetensors": b"\xff" * 8 + b"x" * 200_000},
        "bare": SMALL | {"model.safetensors": WEIGHTS},
    }
    with serving(Hub(files, gated=("owner/gated",), broken=("owner/broken",))) as served:
        yield served


@pytest.fixture
def find(hub: Hub, tmp_path: Path) -> Resolver:
    def found(name: str, fetch: Fetch = WHOLE, **variables: str) -> ModelLocation:
        return resolve(
            name,
            variables={"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.endpoint, **variables},
            fetch=fetch,
        )

    return found


def test_only_the_needed_files_are_fetched_and_only_once(hub: Hub, find: Resolver) -> None:
    first = find("owner/single")
    assert (first.source, first.revision) == ("hub", COMMIT)
    assert sorted(hub.asked) == sorted([*SMALL, "tokenizer_config.json", "model.safetensors"])
    assert np.array_equal(Checkpoint.open(first.folder).read("a"), np.arange(6))
    hub.asked.clear()
    second = find("owner/single")
    assert (second.source, second.folder, second.revision) == ("cache", first.folder, COMMIT)
    assert hub.asked == []
    assert find("owner/single", HF_HUB_OFFLINE="1").source == "cache"


def test_weights_that_nobody_wants_are_not_fetched(hub: Hub, find: Resolver) -> None:
    tokenizer = Fetch(parts=Parts.TOKENIZER)
    folder = find("owner/single", tokenizer).folder
    assert sorted(hub.asked) == sorted([*SMALL, "tokenizer_config.json"])
    assert find("owner/single", tokenizer, HF_HUB_OFFLINE="1").source == "cache"
    with pytest.raises(InputError, match=r"lacks model\.safetensors"):
        find("owner/single", HF_HUB_OFFLINE="1")
    assert find("owner/single").folder == folder
    assert hub.asked[-1] == "model.safetensors"


@pytest.mark.many
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", ["owner/single", "owner/sharded", "owner/wordy"])
def test_headers_say_what_the_weights_are(
    hub: Hub, find: Resolver, name: str, ranges: bool
) -> None:
    hub.ranges = ranges
    found = find(name, Fetch(parts=Parts.HEADERS))
    assert found.tensors is not None
    assert not list(found.folder.glob("*.safetensors"))
    assert not ranges or hub.sent < 400_000
    described = Checkpoint.open(found.folder, found.tensors).names()
    whole = find(name)
    assert Checkpoint.open(whole.folder).names() == {
        key: replace(info, file=(whole.folder / info.file.name).resolve())
        for key, info in described.items()
    }
    assert find(name, Fetch(parts=Parts.HEADERS)).tensors is None


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("owner/pickle", UnsupportedError, r"no model\.safetensors"),
        ("owner/partial", InputError, "is missing"),
        ("owner/hostile", InputError, "names"),
        ("owner/cut", InputError, "too few for a header"),
        ("owner/lying", InputError, "header claims"),
    ],
)
def test_headers_that_are_no_use(
    find: Resolver, name: str, kind: type[AttnError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        find(name, Fetch(parts=Parts.HEADERS))


def test_a_model_is_refused_before_anything_large_is_fetched(hub: Hub, find: Resolver) -> None:
    def accept(folder: Path) -> None:
        raise UnsupportedError(json.loads((folder / "config.json").read_text())["model_type"])

    with pytest.raises(UnsupportedError, match="toy"):
        find("owner/sharded", Fetch(accept=accept))
    assert hub.asked == ["config.json"]


def test_shards_are_fetched_as_the_index_names_them(hub: Hub, find: Resolver) -> None:
    found = Checkpoint.open(find("owner/sharded").folder)
    assert set(found.names()) == {"a", "b"}
    assert set(SHARDS) <= set(hub.asked)


def test_what_a_broken_off_download_left_is_completed(hub: Hub, find: Resolver) -> None:
    folder = find("owner/sharded").folder
    (folder / SHARDS[1]).unlink()
    hub.asked.clear()
    with pytest.raises(InputError, match=SHARDS[1]):
        find("owner/sharded", HF_HUB_OFFLINE="1")
    assert find("owner/sharded").folder == folder
    assert (folder / SHARDS[1]).exists()


def test_revisions(find: Resolver) -> None:
    assert find("owner/single@v1").revision == COMMIT
    assert find(f"owner/single@{COMMIT}").source == "cache"
    with pytest.raises(InputError, match="no revision 'v2'"):
        find("owner/single@v2")


def test_the_beginning_of_a_commit_names_what_is_in_the_cache(hub: Hub, find: Resolver) -> None:
    folder = find("owner/single").folder
    hub.asked.clear()
    assert find(f"owner/single@{COMMIT[:7]}").folder == folder
    (folder.parent / f"{COMMIT[:8]}{'f' * 32}").mkdir()
    with pytest.raises(InputError, match="does not hold"):
        find(f"owner/single@{COMMIT[:8]}", HF_HUB_OFFLINE="1")
    assert find(f"owner/single@{COMMIT[:9]}").folder == folder
    assert hub.asked == []


def test_a_bare_name_as_the_oldest_models_have(find: Resolver) -> None:
    assert find("bare").source == "hub"


def test_a_token_opens_a_gated_model(find: Resolver) -> None:
    with pytest.raises(InputError, match="gated") as error:
        find("owner/gated")
    assert "HF_TOKEN" in error.value.hint
    assert find("owner/gated", HF_TOKEN="secret").source == "hub"


def test_a_model_without_tokenizer_is_asked_for_it_once(hub: Hub, find: Resolver) -> None:
    assert find("owner/untokenized").source == "hub"
    hub.asked.clear()
    assert find("owner/untokenized").source == "cache"
    assert hub.asked == []


REFUSED = [
    ("owner/missing", InputError, "no model 'owner/missing'"),
    ("owner/bare", UnsupportedError, "no model.safetensors"),
    ("owner/empty", UnsupportedError, "no config.json"),
    ("owner/partial", InputError, SHARDS[1]),
    ("owner/hostile", InputError, "names"),
    ("owner/broken", InputError, "answered 500"),
    ("a/b/c", InputError, "no such folder"),
    ("../x", InputError, "no such folder"),
    ("owner/..", InputError, "no such folder"),
    ("owner/x@../../y", InputError, "no such folder"),
    ("owner/x y", InputError, "no such folder"),
    ("", InputError, "no such folder"),
    ("~nobody/x/y", InputError, "no such folder"),
    ("x" * 5000, InputError, "no such folder"),
    ("a\0b", InputError, "no such folder"),
]


@pytest.mark.parametrize(("name", "kind", "says"), REFUSED)
def test_refusals(
    find: Resolver,
    name: str,
    kind: type[AttnError],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Names that lead out of the folder, such as ../x, are looked for from an empty
    # place of the test's own: beside a checkout a folder of that name may stand.
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    with pytest.raises(kind, match=says):
        find(name)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("owner/pickle", ["pytorch_model.bin"]),
        ("owner/pickles", ["a.bin", "b.bin", "pytorch_model.bin.index.json"]),
    ],
)
def test_weights_that_torch_pickled(
    hub: Hub, find: Resolver, name: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_torch:
        without_torch.setattr(download, "torch_is_installed", lambda: False)
        with pytest.raises(UnsupportedError, match=r"no model\.safetensors"):
            find(name)
    assert not set(files) & set(hub.asked)
    pytest.importorskip("torch")
    folder = find(name).folder
    wanted = {path.name for path in folder.iterdir()} - {"tokenizer_config.json"}
    assert wanted == {*SMALL, *files}
    hub.asked.clear()
    assert find(name).source == "cache"
    (folder / files[0]).unlink()
    assert find(name).source == "hub"
    assert hub.asked == []  # its content is still there
    (folder / files[0]).unlink()
    with pytest.raises(InputError, match=r"lacks (pytorch_model|a)\.bin|lacks model\.safetensors"):
        find(name, HF_HUB_OFFLINE="1")


def test_no_network(find: Resolver, hub: Hub) -> None:
    with pytest.raises(InputError, match="cannot be reached"):
        find("owner/single", HF_ENDPOINT="http://127.0.0.1:9")
    with pytest.raises(InputError, match="HF_HUB_OFFLINE"):
        find("owner/single", HF_HUB_OFFLINE="yes")
    assert hub.asked == []


@pytest.mark.parametrize(
    "broken", [ConnectionResetError("x"), OSError(28, "No space left on device")]
)
def test_what_goes_wrong_after_the_hub_was_reached(
    find: Resolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: OSError
) -> None:
    def breaks(*given: object, **named: object) -> str:
        warnings.warn("the library's own words", UserWarning, stacklevel=1)
        raise broken

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", breaks)
    with warnings.catch_warnings(record=True) as told, pytest.raises(AttnError) as error:
        find("owner/single")
    assert told == []
    if isinstance(broken, ConnectionError):
        assert "broke off while config.json of owner/single" in error.value.what
    else:
        assert (error.value.what, error.value.where) == (
            "fetching owner/single failed: No space left on device",
            str(tmp_path / "home" / "hub"),
        )


@pytest.mark.parametrize(
    ("note", "terminal", "bars"), [(print, True, True), (print, False, False), (None, True, False)]
)
def test_bars_are_for_a_terminal_and_for_those_who_want_to_be_told(
    find: Resolver,
    monkeypatch: pytest.MonkeyPatch,
    note: Callable[[str], None] | None,
    terminal: bool,
    bars: bool,
) -> None:
    enable_progress_bars()  # transformers, where another test imported it, switched them off
    seen = []
    real = huggingface_hub.hf_hub_download

    def fetched(*given: str, **named: str) -> str:
        seen.append(not are_progress_bars_disabled())
        return real(*given, **named)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetched)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    find("owner/single", Fetch(note))
    assert set(seen) == {bars}
    assert not are_progress_bars_disabled()


def test_a_watcher_is_told_how_much_of_each_file_is_there(
    find: Resolver, capfd: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, list[float]] = {}
    find(
        "owner/wordy",
        Fetch(print, watch=lambda file, share: told.setdefault(file, []).append(share)),
    )
    assert list(told) == [*SMALL, "model.safetensors"]
    for shares in told.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1
    assert capfd.readouterr().err == ""


def test_a_folder_comes_before_the_hub(
    find: Resolver, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "single").mkdir(parents=True)
    assert find("owner/single").source == "folder"
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="a file"):
        find("file")
    assert hub.asked == []


def test_a_prepared_cache_is_read_without_the_hubs_library(find: Resolver, tmp_path: Path) -> None:
    find("owner/single")
    program = (
        "import sys\nfrom attncli.inputs.hub import resolve\n"
        f"found = resolve('owner/single', variables={{'HF_HUB_CACHE': {str(tmp_path / 'home' / 'hub')!r}, "
        f"'HF_HUB_OFFLINE': '1'}})\n"
        "print(found.source, 'huggingface_hub' in sys.modules, 'torch' in sys.modules)"
    )
    ran = finish([sys.executable, "-c", program])
    assert ran.stdout.split() == ["cache", "False", "False"]


def test_everything_cached_is_listed(find: Resolver, tmp_path: Path) -> None:
    find("owner/sharded")
    find("owner/single")
    (tmp_path / "home" / "hub" / "models--evil--..--x" / "snapshots" / COMMIT).mkdir(parents=True)
    listed = list(cached_snapshots(tmp_path / "home" / "hub"))
    assert [(one.name, one.commit, one.missing) for one in listed] == [
        ("owner/sharded", COMMIT, ()),
        ("owner/single", COMMIT, ()),
    ]
    assert list(cached_snapshots(tmp_path / "nowhere")) == []


def test_a_folder_that_is_not_there_is_told_before_the_hub_is_asked(
    find: Resolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    notes: list[str] = []
    with pytest.raises(InputError, match="no such folder"):
        find("owner/step-0", Fetch(notes.append))
    assert notes[0] == "there is no folder owner/step-0 here; the hub may have a model of it"
    # what the hub has is fetched all the same, and without such a folder nothing is said of one
    notes.clear()
    find("owner/single", Fetch(notes.append))
    assert [note.partition(" ")[0] for note in notes[:2]] == ["there", "fetching"]
    (tmp_path / "owner").rmdir()
    notes.clear()
    find("owner/sharded", Fetch(notes.append))
    assert notes[0].startswith("fetching")
