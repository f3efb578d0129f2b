"""`attn models fetch`: what it says before and after, from the hub, from packages, without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import ask
from hub_server import COMMIT, Hub, serving
from small_gpt2 import small_gpt2
from validity import validate

from attncli.extras import install_command

OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one small decoder."""
    folder = small_gpt2(tmp_path_factory.mktemp("small"))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with serving(Hub({"owner/small": files})) as served:
        yield served


def test_a_model_is_fetched_shown_and_runs_without_a_network(hub: Hub, tmp_path: Path) -> None:
    place = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.endpoint}
    fetched = ask("models", "fetch", "owner/small", "--json", **place)
    size = len(hub.files["owner/small"]["model.safetensors"])
    validate(fetched.json, "attn.model/1")
    assert (fetched.json["name"], fetched.json["source"]) == ("owner/small", "hub")
    assert (fetched.json["revision"], fetched.json["fetched"]) == (COMMIT, True)
    said = " ".join(fetched.err.split())
    assert f"the weights of owner/small are {size / 1e6:,.1f} MB; they come to" in said
    assert said.index("fetching owner/small") < said.index("they come to")
    assert said.index("they come to") < said.index("owner/small is fetched; it is in")
    hub.asked.clear()
    again = ask("models", "fetch", "owner/small", **place, **OFFLINE)
    assert "nothing to fetch: owner/small is in the hub's cache" in " ".join(again.err.split())
    assert "owner/small has 2 layers of 3 heads" in " ".join(again.out.split())
    assert ask("run", "a b", "--model", "owner/small", "--brief", **place, **OFFLINE).code == 0
    assert ask("models", "fetch", "owner/small", "--quiet", **place).err == ""
    assert hub.asked == []


def test_what_pip_or_a_folder_holds_is_not_fetched(tmp_path: Path) -> None:
    installed = ask("models", "fetch", "minilm", **OFFLINE)
    assert "nothing to fetch: minilm is installed" in " ".join(installed.err.split())
    assert "minilm has 6 layers of 12 heads" in installed.out
    folder = ask("models", "fetch", str(small_gpt2(tmp_path / "x")), **OFFLINE)
    assert "is on this machine" in " ".join(folder.err.split())


@pytest.mark.parametrize(
    ("name", "variables", "says", "hint"),
    [
        ("owner/small", OFFLINE, "HF_HUB_OFFLINE forbids", "unset HF_HUB_OFFLINE"),
        ("owner/small:Q8_0", OFFLINE, "HF_HUB_OFFLINE forbids", "unset HF_HUB_OFFLINE"),
        ("owner/small", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be reached", "models list"),
        ("no such", OFFLINE, "there is no such folder", ""),
    ],
)
def test_without_a_network_a_command_is_named(
    tmp_path: Path, name: str, variables: dict[str, str], says: str, hint: str
) -> None:
    refused = ask("models", "fetch", name, HF_HOME=str(tmp_path), **variables)
    assert (refused.code, refused.out) == (3, "")
    said = " ".join(refused.err.split())
    assert says in said
    assert hint in said
    assert "--model" not in said  # which this command does not have


def test_an_alias_whose_package_is_missing_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncli.models.packages.Package.places", lambda package: None)
    refused = ask("models", "fetch", "smollm2", HF_HOME=str(tmp_path), **OFFLINE)
    assert refused.code == 3
    assert install_command("smollm2") in " ".join(refused.err.split())


@pytest.mark.parametrize("command", ["fetch", "show", "verify"])
def test_a_misspelt_alias_is_answered_with_a_command(command: str, tmp_path: Path) -> None:
    refused = ask("models", command, "smolm2", HF_HOME=str(tmp_path), **OFFLINE)
    assert refused.code == 3
    assert refused.err.splitlines()[-1] == f"try: attn models {command} smollm2"
