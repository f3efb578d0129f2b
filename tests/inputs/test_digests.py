"""Files by their sha256: those found good are read again only where they have changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from attncli.errors import InputError
from attncli.inputs import hub

VARIABLES = "XDG_CACHE_HOME"


def good(folder: Path, *names: str) -> dict[str, str]:
    """Files that hold their own names, and their sha256."""
    for name in names:
        (folder / name).write_text(name)
    return {name: hashlib.sha256(name.encode()).hexdigest() for name in names}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, as they are."""
    names: list[str] = []
    true = hub.digest

    def digest(path: Path) -> str:
        names.append(path.name)
        return true(path)

    monkeypatch.setattr(hub, "digest", digest)
    return names


def test_a_good_file_is_read_once(tmp_path: Path, read: list[str]) -> None:
    expected, variables = good(tmp_path, "a", "b"), {VARIABLES: str(tmp_path / "cache")}
    for _ in range(2):
        hub.verify_digests(tmp_path, expected, variables=variables, hint="")
    assert read == ["a", "b"]
    (tmp_path / "b").unlink()
    good(tmp_path, "b")  # the same content in another file
    hub.verify_digests(tmp_path, expected, variables=variables, hint="")
    assert read == ["a", "b", "b"]
    with pytest.raises(
        InputError, match="'a' has the sha256 ca97"
    ) as caught:  # remembered, but not as that
        hub.verify_digests(
            tmp_path, {"a": expected["b"]}, variables=variables, hint="fetch it again"
        )
    assert (caught.value.expected, caught.value.hint) == (expected["b"], "fetch it again")


def test_a_file_that_changes_is_found_out(tmp_path: Path, read: list[str]) -> None:
    expected, variables = good(tmp_path, "a"), {VARIABLES: str(tmp_path / "cache")}
    hub.verify_digests(tmp_path, expected, variables=variables, hint="")
    (tmp_path / "a").write_text("b")
    for _ in range(2):
        with pytest.raises(InputError, match="'a' has the sha256 3e23"):
            hub.verify_digests(tmp_path, expected, variables=variables, hint="")
    (tmp_path / "a").unlink()
    with pytest.raises(InputError, match="cannot read"):
        hub.verify_digests(tmp_path, expected, variables=variables, hint="")


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = good(tmp_path, "a")

    def digest(path: Path) -> str:
        path.write_text("other")
        return expected["a"]

    monkeypatch.setattr(hub, "digest", digest)
    hub.verify_digests(tmp_path, expected, variables={VARIABLES: str(tmp_path / "cache")}, hint="")
    assert not (tmp_path / "cache").exists()


def test_the_newest_are_remembered_and_what_cannot_be_is_not(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MOST_REMEMBERED", 2)
    expected, variables = good(tmp_path, "a", "b", "c"), {VARIABLES: str(tmp_path / "cache")}
    for name in "abc":
        hub.verify_digests(tmp_path, {name: expected[name]}, variables=variables, hint="")
    held = json.loads((tmp_path / "cache" / "attn" / hub.MEMORY).read_text())
    assert [Path(path).name for path in held] == ["b", "c"]
    nowhere = {VARIABLES: str(tmp_path / "a")}  # a file
    for _ in range(2):
        hub.verify_digests(tmp_path, {"c": expected["c"]}, variables=nowhere, hint="")
    assert read == ["a", "b", "c", "c", "c"]
