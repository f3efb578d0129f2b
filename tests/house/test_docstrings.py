"""What docstrings promise: each folder says what belongs in it, and the names in them exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import syntax

PACKAGE = Path(__file__).parents[2] / "attncli"
SOURCES = sorted(PACKAGE.rglob("*.py"))
FOREIGN = {"numpy", "torch", "nn", "attn", "llama", "tokenizer", "module", "query", "model", "done"}
"""What begins a dotted name that is another library's, a tensor's, a key's or a member's."""
FILES = (".json", ".py", ".jinja", ".safetensors", ".js", ".css")


def test_every_folder_says_what_belongs_in_it():
    firsts = {}
    for folder in sorted({path.parent for path in SOURCES}):
        page = folder / "__init__.py"
        assert page.is_file(), f"{folder.relative_to(PACKAGE)} has no __init__.py"
        text = ast.get_docstring(syntax.tree(page.read_text("utf-8"))) or ""
        firsts[folder] = text.partition("\n\n")[0]
        assert len(firsts[folder]) > 20, f"{folder.relative_to(PACKAGE)} says {firsts[folder]!r}"
    assert len(set(firsts.values())) == len(firsts)


@cache
def declared(path: Path) -> frozenset[str]:
    """The names at the top of a module, those for the type checker included."""
    names: set[str] = set()
    for node in syntax.tree(path.read_text("utf-8")).body:
        for inner in ast.walk(node) if isinstance(node, ast.If) else [node]:
            match inner:
                case ast.FunctionDef(name) | ast.ClassDef(name) | ast.AnnAssign(ast.Name(name)):
                    names.add(name)
                case ast.Assign(targets):
                    names |= {target.id for target in targets if isinstance(target, ast.Name)}
                case ast.Import(aliases) | ast.ImportFrom(_, aliases):
                    names |= {alias.asname or alias.name for alias in aliases}
    return frozenset(names)


def bound(source: str) -> set[str]:
    """Every name of a file that stands for a value."""
    names: set[str] = set()
    for node in syntax.nodes(source):
        match node:
            case ast.Name(name) | ast.arg(name):
                names.add(name)
            case ast.alias(name, other):
                names.add(other or name)
    return names


def exists(parts: list[str]) -> bool:
    """Whether a dotted name is a module or folder of the package, or what one declares."""
    for count in range(len(parts), 0, -1):
        tail = "/" + "/".join(parts[:count])
        for path in SOURCES:
            module = path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__")
            rest = parts[count:]
            if f"/{module}".endswith(tail) and (not rest or rest[0] in declared(path)):
                return True
    return len(parts) == 1 and parts[0] in declared(PACKAGE / "__init__.py")


def stale_names(source: str) -> list[str]:
    """Dotted names in backticks that lead nowhere."""
    names = re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)(?:\([^`]*\))?`", source)
    values = bound(source)
    return [
        name
        for name in names
        if not name.endswith(FILES)
        and name.partition(".")[0] not in FOREIGN | values
        and not exists(name.removeprefix("attncli.").split("."))
    ]


def test_names_in_backticks_exist():
    assert stale_names('"""As `download.download`, not `hub.download` or `config.json`."""') == [
        "download.download"
    ]
    assert {
        path.relative_to(PACKAGE).as_posix(): names
        for path in SOURCES
        if (names := stale_names(path.read_text("utf-8")))
    } == {}
