"""Makes a corpus of English sentences out of the documentation on this machine: `python
sentences.py COUNT FILE`.

The same files give the same sentences: paragraphs of documentation and docstrings, mostly letters,
cut into sentences, each once, in the order of a hash. No data is kept in the repository.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PLACES = ("/usr/share/doc", "/usr/share/perl", "/usr/lib/python3", sys.prefix, sys.base_prefix)
ENDINGS = (".txt", ".rst", ".md", ".pod", ".gz")
NAMES = ("copyright", "METADATA", "README")
LARGEST = 2 * 2**20


def documents() -> Iterator[str]:
    """The texts of documentation files and of docstrings."""
    for place in dict.fromkeys(PLACES):
        for path in sorted(Path(place).rglob("*")):
            try:
                if not path.is_file() or path.stat().st_size > LARGEST:
                    continue
                if path.suffix == ".py":
                    yield from docstrings(path.read_text("utf-8"))
                elif path.suffix in ENDINGS or path.name in NAMES:
                    raw = (
                        gzip.decompress(path.read_bytes())
                        if path.suffix == ".gz"
                        else path.read_bytes()
                    )
                    yield raw.decode("utf-8")
            except (OSError, ValueError, SyntaxError, EOFError, RecursionError, MemoryError):
                continue


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found = ast.get_docstring(node)
            if found:
                yield found


def sentences(document: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", document):
        text = " ".join(paragraph.split())
        if not text or sum(one.isalpha() or one == " " for one in text) < 0.88 * len(text):
            continue
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", text):
            if (
                20 <= len(sentence) <= 2000
                and len(sentence.split()) >= 4
                and sentence.endswith((".", "!", "?", ":"))
            ):
                yield sentence


def corpus(count: int) -> list[str]:
    """The first `count` sentences by hash, each once."""
    found: dict[bytes, str] = {}
    for document in documents():
        for sentence in sentences(document):
            found.setdefault(
                hashlib.blake2b(sentence.lower().encode(), digest_size=16).digest(), sentence
            )
    return [found[key] for key in sorted(found)[:count]]


if __name__ == "__main__":
    made = corpus(int(sys.argv[1]))
    Path(sys.argv[2]).write_text("".join(f"{sentence}\n" for sentence in made), "utf-8")
    print(f"{len(made):,} sentences")
