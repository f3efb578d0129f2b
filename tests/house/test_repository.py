"""Laws about files that are not code: what is in the repository, and what it must not say."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "build",
    "dist",
}


def files() -> list[Path]:
    """The files of the repository; all that lie here where it is a plain copy."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        return [
            path
            for name in done.stdout.decode().split("\0")
            if name and (path := ROOT / name).is_file()
        ]
    except (OSError, subprocess.CalledProcessError):
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not SKIPPED & set(path.relative_to(ROOT).parts)
        ]


def texts() -> dict[str, str]:
    found = {}
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data[:4096]:
            found[path.relative_to(ROOT).as_posix()] = data.decode("utf-8", "replace")
    return found


def test_ci_runs_the_readmes_command_without_the_variables_of_python(tmp_path):
    """The script, in a small repository whose test command tells its variables."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "README.md").write_text(
        "<!-- command: test -->\n```bash\nenv; echo ran in $PWD\n```\n"
    )
    python = tmp_path / ".venv" / "bin" / "python"  # what the command would have made
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "then $*"\n')
    python.chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    for name in (
        "chromium-headless-shell",
        "firefox-esr",
        "tsc",
    ):  # found, so nothing is installed here
        stand_in = tmp_path / "bin" / name
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text("#!/bin/sh\n")
        stand_in.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    told = {
        **os.environ,
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTHONOPTIMIZE": "2",
        "OTHER": "3",
    }
    done, whole = (
        subprocess.run(
            ["bash", ".ci/run", *more],
            cwd=tmp_path,
            env=told,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        for more in ((), ("all",))
    )
    assert "OTHER=3" in done.stdout
    assert "ran in" in done.stdout
    assert re.search(
        r"then -m pytest -n 2 --dist loadfile -m thorough or cluster --share [12]?[0-9]/30\n",
        done.stdout,
    )
    assert "then -m pytest -n 2 --dist loadfile -m thorough or cluster\n" in whole.stdout
    assert "PYTHON" not in done.stdout
    assert f"ran in {tmp_path}\n" not in done.stdout


def test_every_test_has_its_share(request):
    """Those that `--share K/20` leave out are in one of the others."""
    names = [item.nodeid for item in request.session.items]
    parts = []
    for share in (f"{part}/20" for part in range(20)):
        items = list(request.session.items)
        conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
        conftest.pytest_collection_modifyitems(
            SimpleNamespace(getoption=lambda _, share=share: share), items
        )
        parts += [item.nodeid for item in items]
    assert sorted(parts) == sorted(names)


def test_the_top_level():
    allowed = {"attncli", "tests", "sample_inputs", "README.md", "LICENSE", "pyproject.toml"}
    assert {
        path.relative_to(ROOT).parts[0]
        for path in files()
        if not path.relative_to(ROOT).parts[0].startswith(".")
    } <= allowed


def test_every_sample_input_is_used():
    everything = texts()
    users = "\n".join(
        text
        for name, text in everything.items()
        if name == "README.md" or (name.startswith("tests/") and "house" not in name)
    )
    for path in sorted((ROOT / "sample_inputs").iterdir()):
        assert path.name in users, (
            f"sample_inputs/{path.name} is used by neither the README nor a test"
        )


def test_nothing_names_the_machine_it_was_written_on():
    places = re.compile(
        r"/wor"
        r"k/(main|shared)|/tmp/ven"
        r"v|/tmp/bri"
        r"ef|/home/(?!user|me|you|nobody)\w|/Users/(?!me|you)\w"
    )
    for name, text in texts().items():
        found = places.search(text)
        assert not found, f"{name} says {found[0] if found else ''}"


def test_files_are_small():
    for path in files():
        assert path.stat().st_size < 1_000_000, f"{path.name} is large for a repository of code"


def test_the_license_and_the_marker_for_type_checkers():
    assert "MIT License" in (ROOT / "LICENSE").read_text("utf-8")
    assert (ROOT / "attncli" / "py.typed").exists()


README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("command", ["run", "test"])
def test_a_marked_block_of_the_readme_works_by_itself(command):
    """After a clone, in a shell where nothing is activated: it makes the environment it uses."""
    [block] = re.findall(rf"<!-- command: {command} -->\n```bash\n([^\n]+)\n```", README)
    first, *others = block.split(" && ")
    assert first == "python3 -m venv .venv"
    assert others
    assert all(one.startswith(".venv/bin/") for one in others)
    assert ("-c tests/constraints.txt" in block) == (command == "test")


def test_the_readme_is_a_front_page():
    lines = README.splitlines()
    assert len(lines) <= 160
    first_screen = "\n".join(lines[:45])
    assert first_screen.count("![") == 1
    assert first_screen.count("?**") == 3
    assert lines.index("## Install") <= 45


def test_tests_do_not_reach_the_network():
    with socket.socket() as there, pytest.raises(ConnectionRefusedError, match=r"192\.0\.2\.1"):
        there.connect(("192.0.2.1", 80))
