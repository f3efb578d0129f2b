"""Files are opened in one place, which never waits for a pipe and says what is there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import syntax

ROOT = Path(__file__).parents[2]
SEAM = "attncli/inputs/files.py"
METHODS = {
    "open", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "fromfile", "tofile", "memmap",
    "from_file", "from_pretrained", "safe_open", "load_file", "listdir", "scandir", "fdopen",
    "open_memmap", "loadtxt", "genfromtxt", "savez",
}  # fmt: skip
"""What opens a file, or lists a folder, by its name."""
QUESTIONS = {"exists", "is_file", "is_dir"}
"""Methods that fail for names that are too long, and in folders that may not be searched: the
functions `is_there`, `is_file` and `is_folder` say so."""
OTHERS = {"webbrowser", "Checkpoint", "cls", "model_class", "model_classes", "zip_file", "_zip", "fsspec"}  # fmt: skip
"""Owners of a method `open` that opens no file of this machine by its name."""
OWN_FILES = "what comes with the package is there"
DEVICE = "a device, which is always there"
ELSEWHERE = {
    "attncli/language/__init__.py": (3, OWN_FILES),
    "attncli/language/guide/__init__.py": (2, OWN_FILES),
    "attncli/cli/environment.py": (2, DEVICE),
    "attncli/inputs/vocabulary_tokenizer.py": (1, DEVICE),
    "attncli/explore/explorer.py": (2, DEVICE),
    "attncli/scan/worker_process.py": (1, "standard output, which is open"),
    "attncli/arrays/torch_backend.py": (1, "torch maps the file; its callers opened it before"),
    "attncli/models/verify.py": (1, "config.json was read before"),
}
"""How often a file opens another way, and why it may."""


def opened(source: str) -> Iterator[tuple[int, str]]:
    """Each call in a source that opens a file or lists a folder, with its line."""
    for node in syntax.nodes(source):
        match node:
            case ast.Call(ast.Name(name)) if name in METHODS:
                yield node.lineno, name
            case ast.Call(ast.Attribute(ast.Name(owner), "load" | "save" as name), [first, *_]) if (
                owner in ("np", "numpy", "torch") and ast.unparse(first) != "stream"
            ):
                yield node.lineno, f"{owner}.{name}"
            case ast.Call(ast.Attribute(owner, name)) if name in METHODS | QUESTIONS:
                text = ast.unparse(owner)
                if text != "os.path" and not {*re.findall(r"\w+", text)} & OTHERS:
                    yield node.lineno, f"{text}.{name}"


PLANTED = {
    "open(path)": 1,
    "with path.open('rb') as stream: pass": 1,
    "io.open(path)": 1,
    "os.open(path, 0)": 1,
    "Path(name).read_text()": 1,
    "(folder / name).write_bytes(b'')": 1,
    "for entry in folder.iterdir(): pass": 1,
    "os.scandir(folder)": 1,
    "np.load(path)": 1,
    "np.load(stream)": 0,
    "torch.load(path, mmap=True)": 1,
    "Tokenizer.from_file(str(path))": 1,
    "path.exists()": 1,
    "os.path.exists(path)": 0,
    "is_file(path)": 0,
    "Checkpoint.open(folder)": 0,
    "self._zip.open(member)": 0,
    "webbrowser.open(address)": 0,
    "stream.read()": 0,
}


@pytest.mark.parametrize("source", PLANTED)
def test_what_opens_a_file_is_seen(source: str) -> None:
    assert len(list(opened(source))) == PLANTED[source]


def test_files_are_opened_in_one_place() -> None:
    calls = {
        path.relative_to(ROOT).as_posix(): list(opened(path.read_text("utf-8")))
        for path in sorted((ROOT / "attncli").rglob("*.py"))
    }
    assert calls.pop(SEAM)
    counts = Counter({name: len(lines) for name, lines in calls.items() if lines})
    allowed = {name: number for name, (number, _) in ELSEWHERE.items()}
    assert counts == allowed, {
        name: lines for name, lines in calls.items() if len(lines) != allowed.get(name, 0)
    }
