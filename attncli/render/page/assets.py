"""The page's script and style: modules joined into one script, without what only their readers need."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

MODULES = (
    "data", "dom", "state", "words", "kernel", "weights", "shades", "grid", "sentence", "matrix", "links", "derivation", "search",
    "difference", "rollout", "effects", "rows", "keyboard", "main",
)  # fmt: skip
"""In the order in which they run; each imports only those before it."""

IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)
COMMENT = re.compile(r"/\*\*.*?\*/ ?", re.DOTALL)
LINE_COMMENT = re.compile(r"^\s*// .*$", re.MULTILINE)
INDENT = re.compile(r"\n\s*")


@cache
def script() -> str:
    """The page's script: each module a function of its own that hands out what it exports."""
    parts = []
    for name in MODULES:
        source = read(f"{name}.js")
        names = EXPORT.findall(source)
        body = EXPORT.sub("", IMPORT.sub(r"const { \1 } = \2_;", source))
        body = INDENT.sub("\n", LINE_COMMENT.sub("", COMMENT.sub("", body))).strip()
        parts.append(f"const {name}_ = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();")
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();"


@cache
def style() -> str:
    """The page's style sheet."""
    return INDENT.sub("\n", read("style.css")).strip()


def read(name: str) -> str:
    """A file of this folder."""
    return files("attncli.render.page").joinpath(name).read_text("utf-8")


def hashed(text: str) -> str:
    """The text as a source expression of a content security policy."""
    return "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"
