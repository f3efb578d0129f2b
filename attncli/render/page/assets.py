"""The page's script and style: modules joined into one script, without what only their readers need."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from attncli.render.page.shorter import join_modules

MODULES = (
    "numbers", "data", "dom", "state", "words", "kernel", "weights", "shades", "axes", "grid", "sentence", "matrix", "links",
    "derivation", "search", "difference", "rollout", "effects", "rows", "keyboard", "main",
)  # fmt: skip
"""In the order in which they run; each imports only those before it."""

SPACES = re.compile(r"\s*([{}:;,>])\s*|\n\s*")


@cache
def script() -> str:
    """The page's script: all modules in one."""
    return join_modules({name: read_asset(f"{name}.js") for name in MODULES})


@cache
def style() -> str:
    """The page's style sheet."""
    return shorter_style(read_asset("style.css"))


def shorter_style(sheet: str) -> str:
    """A style sheet without the spaces that only its readers need."""
    return SPACES.sub(lambda match: match[1] or "", sheet).replace(";}", "}").strip()


def read_asset(name: str) -> str:
    """A file of this folder."""
    return files("attncli.render.page").joinpath(name).read_text("utf-8")


def as_json(meta: Mapping[str, Any]) -> str:
    """What a script is told, as JSON that no element's end can stand in."""
    return json.dumps(meta, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def csp_hash(text: str) -> str:
    """The text as a source expression of a content security policy."""
    return "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"
