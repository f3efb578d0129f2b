"""A disk that takes a few bytes or none: one error, exit code 1, and nothing is left of what was
begun.

The system refuses files above a size here, as it does for `ulimit -f`; a full disk cuts a file short
in the same way.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from asking import ask
from commands import commands, example
from scanning import inside
from small_gpt2 import small_gpt2

from attncli.cli import main
from attncli.cli.environment import Environment

resource = pytest.importorskip("resource", reason="this system bounds no files")

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
VALUES = {
    "--output": ("out.txt",),
    "--csv": ("out.csv",),
    "--html": ("out.html",),
    "--figure": ("out.svg", "out.png", "out.pdf"),
    "--save": ("out.safetensors", "out.npz"),
}
"""Options that name what is written, and the kinds of file."""
FOLDERS = {"learn": ("--save", "out")}
"""Those of a command whose value is a folder."""
LINES: dict[str, tuple[str, ...]] = {
    "tensors": ("tensors", str(SAMPLES / "captured.npz")),
    "weights convert": ("weights", "convert", str(SAMPLES / "mha.safetensors"), "out.npz", "--num-heads", "4"),
    "weights init": ("weights", "init", "out.npz"),
    "weights show": ("weights", "show", str(SAMPLES / "mha.safetensors")),
    "models show": ("models", "show", "{t}/gpt2"),
    "models fetch": ("models", "fetch", "{t}/gpt2"),
    "models verify": ("models", "verify", "{t}/gpt2"),
    "learn": ("learn", "order", "--steps", "2"),
    "series": ("series", "{t}/gpt2", "{t}/again", "--text", "a b c"),
    "scan start": ("scan", "{t}/gpt2", "{t}/corpus.txt", "-o", "out"),
    "scan show": ("scan", "show", "{t}/scan"),
    "scan compare": ("scan", "compare", "{t}/scan", "{t}/scan"),
    "scan verify": ("scan", "verify", "{t}/scan"),
    "scan export": ("scan", "export", "{t}/scan", "heads.csv"),
    "view": ("view", "{t}/run.json"),
    "logits": ("logits", "a b c", "--model", "{t}/gpt2"),
    "next": ("next", "a b c", "--model", "{t}/gpt2"),
    "answer": ("answer", "a b c", "--model", "{t}/gpt2", "--region", "r=tokens:0-1", "--tokens", "4"),
    "circuit": ("circuit", "--pairs", str(SAMPLES / "pairs.jsonl"), "--model", "{t}/gpt2"),
    "pairs check": ("pairs", "check", str(SAMPLES / "pairs.jsonl"), "--model", "{t}/gpt2"),
}  # fmt: skip
"""A line for each command whose example names what is not here."""
EVERY_DAY = 100
"""One case in so many is tried every day, always the same."""


def cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every command with everything that it writes: an answer on standard output, as a screen and as
    JSON, and each file."""
    for name, command in commands():
        if name == "explore":  # what fills a terminal's screen writes nothing by itself
            continue
        yield name, ()
        options = {option for parameter in command.params for option in parameter.opts}
        if "--json" in options:
            yield name, ("--json",)
        for option, files in VALUES.items():
            if option in options and (name, option) != ("scan start", "--output"):  # its folder
                given = (
                    [FOLDERS[name]]
                    if (name, option) == ("learn", "--save")
                    else [(option, file) for file in files]
                )
                yield from ((name, pair) for pair in given)


@dataclass(frozen=True)
class Written:
    """What a command line left: its exit code, what it said, standard output, and the files of its
    folder by name, with their sizes."""

    code: int
    told: str
    out: bytes
    files: dict[str, int]


@contextmanager
def files_of_at_most(limit: int | None) -> Iterator[None]:
    """A context manager in which no file can grow above so many bytes; None for no bound."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    keeps_no_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # what the program does for itself where it begins
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = keeps_no_bytecode


def write(line: list[str], folder: Path, limit: int | None) -> Written:
    """Run a command line in a folder of its own, with standard output in a file beside it."""
    here = folder / "here"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    out, told = folder / "stdout", StringIO()
    with chdir(here), inside(), files_of_at_most(limit), out.open("wb", buffering=0) as stream:
        variables = {"LANG": "C.UTF-8", "XDG_CACHE_HOME": str(folder / "cache")}
        environment = Environment(BytesIO(), stream, told, variables, stdin_is_terminal=True)
        code = int(main(line, environment))
    files = {str(path.relative_to(here)): path.stat().st_size for path in sorted(here.rglob("*"))}
    return Written(code, told.getvalue(), out.read_bytes(), files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines name."""
    made = tmp_path_factory.mktemp("disk")
    shutil.copytree(small_gpt2(made / "gpt2"), made / "again")
    (made / "run.json").write_text(ask("run", "a b c", "--json").out)
    (made / "corpus.txt").write_text("a b\nc d e\n")
    return made


@pytest.fixture(scope="module")
def scanned(folder: Path) -> Path:
    """The folder with a scan in it."""
    with inside():
        line = (
            "scan",
            str(folder / "gpt2"),
            str(folder / "corpus.txt"),
            "-o",
            str(folder / "scan"),
        )
        assert ask(*line).code == 0
    return folder


def some() -> list[Any]:
    """The cases, of which all but one in `EVERY_DAY` are thorough."""
    return [
        pytest.param(
            name,
            options,
            marks=()
            if crc32(repr((name, options)).encode()) % EVERY_DAY == 0
            else pytest.mark.thorough,
            id=" ".join((name, *options)),
        )
        for name, options in cases()
    ]


@pytest.mark.parametrize(("name", "options"), some())
def test_nothing_is_left_on_a_full_disk(
    name: str,
    options: tuple[str, ...],
    folder: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if name.startswith("scan "):
        request.getfixturevalue("scanned")
    words = LINES.get(name) or example(name)
    line = [*(word.replace("{t}", str(folder)) for word in words), *options]
    whole = write(line, tmp_path, None)
    assert whole.code == 0, whole.told
    largest = max(len(whole.out), *whole.files.values(), 0)
    assert largest
    for limit in sorted({0, 1000, largest // 2, largest - 1}):
        cut = write(line, tmp_path, limit)
        if limit >= largest:
            assert cut == whole
            continue
        assert (cut.code, cut.told.count("error"), cut.told.count("cannot")) == (1, 1, 1), (
            limit,
            cut,
        )
        assert "cannot write" in cut.told, (limit, cut)
        assert cut.out == b"" or cut.out.endswith(b"\n"), (limit, cut)
        if name == "scan start":  # what is counted stays, and the next call goes on from there
            assert set(cut.files) <= set(whole.files), (limit, cut)
        else:
            assert cut.files == {}, (limit, cut)
